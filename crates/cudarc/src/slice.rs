//! A buffer as a `CudaSlice`, for code that needs one.
//!
//! While the slice exists cudarc orders its uses, with two events for each slice, and Millpond sees none of them. So
//! the end of the slice comes after all work that is then in any stream that both libraries know: cudarc's one read
//! event keeps only the last reader.

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

/// Millpond's memory as a [`CudaSlice`], for a time: borrow one, or take views of it.
/// [`Context::slice`](crate::Context::slice) makes it. Dropping it frees the memory in Millpond, after all work that is
/// then in the context's streams.
///
/// cudarc orders the uses automatically, with a gap: of two reads on two streams it remembers only the last, and a
/// later **write** waits only for that one (`examples/two_readers.rs`). [`run`](millpond_adaptor::Stream::run) has no
/// such gap.
pub struct Slice<T: Pod> {
    /// Never dropped: cudarc would free it.
    inner: ManuallyDrop<CudaSlice<T>>,
    /// `Some` until the slice ends.
    loan: Option<Loan<T, Cudarc>>,
}

impl<T: Pod> Slice<T> {
    pub(crate) fn new(loan: Loan<T, Cudarc>) -> Self {
        // SAFETY: the memory is the buffer's, which is kept, and any bytes are a valid `T: Pod`.
        let inner = unsafe { loan.home().theirs().upgrade_device_ptr(loan.address(), loan.len()) };
        Self { inner: ManuallyDrop::new(inner), loan: Some(loan) }
    }

    /// Returns all of it, to write.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.inner.as_view_mut()
    }

    /// Returns the buffer, which Millpond orders from here on. Its stream is made to wait for all work in the context's
    /// other streams.
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

    /// Ends cudarc's use: its stream waits for the last read and the last write, and cudarc's events are dropped.
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
