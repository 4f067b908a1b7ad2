//! Pinned host memory, from the device's handle.

use std::panic::Location;

use bytemuck::Pod;
use millpond_driver::{DriverError, process};

use crate::Device;
use crate::names::count::Count;
use crate::names::error::Result;
use crate::stream::host_memory::PinnedBuffer;
use crate::trace::tracer::Tracer;

impl Device {
    /// Host memory for copies of this device that run while the program goes on (CUDA: `cudaMallocHost`). The contents
    /// are undefined: zeros, or the bytes of former buffers.
    ///
    /// Getting it from the system is slow and may wait for work of the device. Memory of dropped buffers serves again
    /// where the size is right, as soon as no copy uses it; [`synchronize`](Self::synchronize) gives back what is left
    /// of them. On the host device it is plain memory, aligned to a page.
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] where the host has no more, or none that can be page-locked; another driver
    /// error where the device has no such memory. A capture forbids it
    /// ([`begin_capture_in`](crate::Stream::begin_capture_in)), and is invalid then.
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
                tracer.pinned(number.id, number.generation, count.bytes(), caller);
                context.alloc_numbers.give_back(number);
            });
        })?;
        let memory = context.host_memory(count.bytes())?;
        Ok(PinnedBuffer::new(context, memory, count, caller))
    }
}
