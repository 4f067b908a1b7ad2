//! Declared memory as cuda-core's arguments: [`In`] for what is read, [`Out`] for what is written.
//!
//! They are addresses for launches. [`Borrowed`] makes a `DeviceBuffer` of one, for cuda-core's own calls; those take
//! it on the stream that it was declared on alone: cuda-core refuses others, as a lease of that stream is held
//! meanwhile.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;

use bytemuck::Pod;
use cuda_core::sys::CUdeviceptr;
use cuda_core::{AllocationLease, CudaStream, DeviceBuffer, DeviceCopy, DriverError, RawDeviceBuffer};

millpond_adaptor::views! {
    CudaStream;
    /// Memory that was declared to be read.
    In;
    /// Memory that was declared to be written, or read and written.
    Out;
}

/// A plain value as an argument of a launch.
pub fn argument<T: DeviceCopy>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

macro_rules! pointers {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// The first address.
            pub fn cu_deviceptr(&self) -> CUdeviceptr {
                *self.0.address()
            }

            /// The first address as an argument of a launch: valid as long as this view.
            pub fn argument(&self) -> *mut c_void {
                argument(self.0.address())
            }
        }

        impl<T: Pod + DeviceCopy> $name<'_, T> {
            /// The memory as a `DeviceBuffer`, for cuda-core's calls that read one. Its copies record an event each, as
            /// cuda-core's always do; Millpond's own do not.
            ///
            /// # Errors
            /// cuda-core has no more access identifiers.
            pub fn buffer(&self) -> Result<Borrowed<'_, T>, DriverError> {
                Borrowed::new(*self.0.address(), self.0.len(), self.0.stream())
            }
        }
    };
}

pointers!(In);
pointers!(Out);

impl<T: Pod + DeviceCopy> Out<'_, T> {
    /// As [`buffer`](Self::buffer), for launches that take a `&mut DeviceBuffer`.
    ///
    /// # Errors
    /// As of [`buffer`](Self::buffer).
    ///
    /// # Safety
    /// The `DeviceBuffer` is not moved out of the reference, by `std::mem::replace` or the like: it would outlive the
    /// declared access.
    pub unsafe fn with_buffer_mut<R>(
        &mut self,
        work: impl FnOnce(&mut DeviceBuffer<T>) -> R,
    ) -> Result<R, DriverError> {
        Ok(work(&mut self.buffer()?.buffer))
    }
}

/// Declared memory as a `DeviceBuffer`, which owns nothing.
pub struct Borrowed<'a, T> {
    buffer: DeviceBuffer<T>,
    /// Uses on other streams are refused meanwhile.
    _lease: AllocationLease,
    view: PhantomData<&'a ()>,
}

impl<T: Pod + DeviceCopy> Borrowed<'_, T> {
    fn new(address: CUdeviceptr, len: usize, stream: &CudaStream) -> Result<Self, DriverError> {
        let context = stream.context().clone();
        // SAFETY: the memory is the declared access's, and is there as long as the view; what cuda-core does with it
        // goes to this stream.
        let storage = unsafe { RawDeviceBuffer::borrowed_from_raw_parts(address, len * size_of::<T>(), context) };
        let _lease = storage.acquire(stream, true, false)?;
        // SAFETY: any bytes are a `T: Pod`.
        let buffer = unsafe { DeviceBuffer::from_storage_copy(storage, len) }?;
        Ok(Self { buffer, _lease, view: PhantomData })
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = DeviceBuffer<T>;

    fn deref(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }
}

impl<T> std::fmt::Debug for Borrowed<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Borrowed").field("storage", self.buffer.storage()).finish_non_exhaustive()
    }
}
