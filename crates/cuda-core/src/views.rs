//! Declared memory as cuda-core's arguments: [`In`] for a read, [`Out`] for a write.
//!
//! They are addresses for launches. [`Borrowed`] makes a `DeviceBuffer` of one, for cuda-core's own calls. cuda-core
//! accepts it only on the stream that it was declared on, because it holds a lease of that stream meanwhile.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;

use bytemuck::Pod;
use cuda_core::sys::CUdeviceptr;
use cuda_core::{AllocationLease, CudaStream, DeviceBuffer, DeviceCopy, DriverError, RawDeviceBuffer};

millpond_adaptor::views! {
    CudaStream;
    /// Memory that was declared as read.
    In;
    /// Memory that was declared as written, or as read and written.
    Out;
}

/// Returns a plain value as an argument of a launch.
pub fn argument<T: DeviceCopy>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

macro_rules! pointers {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// Returns the first address.
            pub fn cu_deviceptr(&self) -> CUdeviceptr {
                *self.0.address()
            }

            /// Returns the first address as an argument of a launch. It is valid as long as this view.
            pub fn argument(&self) -> *mut c_void {
                argument(self.0.address())
            }
        }

        impl<T: Pod + DeviceCopy> $name<'_, T> {
            /// Returns the memory as a `DeviceBuffer`, for cuda-core's calls that read one. Each of its copies records
            /// an event, as always in cuda-core; Millpond's own copies do not.
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
    /// The `DeviceBuffer` must not be moved out of the reference, by `std::mem::replace` for example: it would outlive
    /// the declared access.
    pub unsafe fn with_buffer_mut<R>(
        &mut self,
        work: impl FnOnce(&mut DeviceBuffer<T>) -> R,
    ) -> Result<R, DriverError> {
        Ok(work(&mut self.buffer()?.buffer))
    }
}

/// Declared memory as a `DeviceBuffer` that owns nothing.
pub struct Borrowed<'a, T> {
    buffer: DeviceBuffer<T>,
    /// Makes cuda-core refuse uses on other streams.
    _lease: AllocationLease,
    view: PhantomData<&'a ()>,
}

impl<T: Pod + DeviceCopy> Borrowed<'_, T> {
    fn new(address: CUdeviceptr, len: usize, stream: &CudaStream) -> Result<Self, DriverError> {
        let context = stream.context().clone();
        // SAFETY: the memory belongs to the declared access, and exists as long as the view. cuda-core's work with it
        // goes to this stream.
        let storage = unsafe { RawDeviceBuffer::borrowed_from_raw_parts(address, len * size_of::<T>(), context) };
        let _lease = storage.acquire(stream, true, false)?;
        // SAFETY: any bytes are a valid `T: Pod`.
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
