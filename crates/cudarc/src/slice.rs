//! A buffer as a `CudaSlice`, for code that is written for one.
//!
//! Between its beginning and its end cudarc orders its uses, by its two events a slice, and Millpond sees none of them.
//! So the end is put after all that any stream that both libraries know has by then: cudarc's one read event forgets
//! all readers but the last.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};
use millpond::Buffer;
use millpond_adaptor::Loan;

use crate::library::Cudarc;

/// Memory of Millpond's that is a [`CudaSlice`] meanwhile: borrow one, or take views of it. Made by
/// [`Context::slice`](crate::Context::slice); dropping it frees the memory, to Millpond, after everything that the
/// context's streams have in them by then.
///
/// cudarc orders its uses, automatically and not quite: of two reads on two streams it remembers the last one, and a
/// later **write** waits for that alone (`examples/two_readers.rs`). [`run`](millpond_adaptor::Stream::run) has no such
/// gap.
pub struct Slice<T: Pod> {
    /// Never dropped: cudarc would free it.
    inner: ManuallyDrop<CudaSlice<T>>,
    /// Taken at the end only.
    loan: Option<Loan<T, Cudarc>>,
}

impl<T: Pod> Slice<T> {
    pub(crate) fn new(loan: Loan<T, Cudarc>) -> Self {
        // SAFETY: the memory is the buffer's, which is kept, and any bytes are a `T: Pod`.
        let inner = unsafe { loan.home().theirs().upgrade_device_ptr(loan.address(), loan.len()) };
        Self { inner: ManuallyDrop::new(inner), loan: Some(loan) }
    }

    /// All of it, to write.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.inner.as_view_mut()
    }

    /// The buffer again, for Millpond to order. Its stream is made to wait for what the context's other streams have in
    /// them.
    ///
    /// # Errors
    /// The device is lost, or a stream captures. The memory is then freed as by a drop.
    #[track_caller]
    pub fn into_buffer(mut self) -> millpond::Result<Buffer<T>> {
        if let Some(loan) = &self.loan {
            loan.join()?;
        }
        self.end().expect("it is taken at the end only").end()
    }

    /// Ends what cudarc has: its stream waits for the last read and the last write, and the events go.
    fn end(&mut self) -> Option<Loan<T, Cudarc>> {
        let loan = self.loan.take()?;
        // SAFETY: this happens once, with the loan.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        inner.leak();
        Some(loan)
    }
}

impl<T: Pod> Drop for Slice<T> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl<T: Pod> Deref for Slice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.inner
    }
}

impl<T: Pod> fmt::Debug for Slice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice").field("loan", &self.loan).finish_non_exhaustive()
    }
}

impl<T: Pod> DeviceSlice<T> for Slice<T> {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.inner.stream()
    }
}

impl<T: Pod> DevicePtr<T> for Slice<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.inner.device_ptr(stream)
    }
}

impl<T: Pod> DevicePtrMut<T> for Slice<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.inner.device_ptr_mut(stream)
    }
}

// SAFETY: cudarc's own implementation for the slice, which lives as long as the arguments do.
unsafe impl<'a, 'b: 'a, T: Pod> PushKernelArg<&'b Slice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b Slice<T>) -> &mut Self {
        self.arg(&*arg.inner)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T: Pod> PushKernelArg<&'b mut Slice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut Slice<T>) -> &mut Self {
        self.arg(&mut *arg.inner)
    }
}
