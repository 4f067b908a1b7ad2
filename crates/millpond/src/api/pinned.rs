//! Allocation of pinned host memory by a device.

use std::panic::Location;

use bytemuck::Pod;
use millpond_driver::{DriverError, process};

use crate::Device;
use crate::names::count::Count;
use crate::names::error::Result;
use crate::stream::host_memory::PinnedBuffer;
use crate::trace::tracer::Tracer;

impl Device {
    /// Allocates host memory for copies of this device that run while the program goes on (CUDA: `cudaMallocHost`). The
    /// contents are undefined: zeros, or the bytes of former buffers.
    ///
    /// Getting memory from the system is slow and may wait for work of the device. Memory of dropped buffers of about
    /// the same size is used again, as soon as no copy uses it. [`synchronize`](Self::synchronize) gives back what is
    /// left of it. On the host device it is plain memory, aligned to a page.
    ///
    /// # Errors
    /// Returns [`DriverError::OutOfHostMemory`] if the host has no more memory, or none that can be page-locked.
    /// Returns another driver error if the device has no such memory. If a capture forbids the call
    /// ([`begin_capture_in`](crate::Stream::begin_capture_in)), the call is refused and the capture is invalid.
    #[track_caller]
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        process::refuse_forked()?;
        let (context, caller) = (self.context(), Location::caller());
        let Some(count) = Count::new(len) else {
            let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
            return Err(DriverError::OutOfHostMemory { call: "alloc_host", bytes, limits: ", nor has any" }.into());
        };
        if count.bytes() == 0 {
            return Ok(PinnedBuffer::empty(context, count));
        }
        context.alloc_numbers.check()?;
        context.graphs.refuse_unsafe("pinned").inspect_err(|error| {
            Tracer::refused(context.tracer.as_ref(), error, |tracer| {
                let number = context.alloc_numbers.take();
                tracer.pinned((number.id, number.generation), count.bytes(), caller, true);
                context.alloc_numbers.give_back(number);
            });
        })?;
        let memory = context.host_memory(count.bytes())?;
        Ok(PinnedBuffer::new(context, memory, count, caller))
    }
}
