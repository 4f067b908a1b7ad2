//! Copies in, out and across, and fills.
//!
//! Knows accesses and host slices. Host memory that a copy reads is staged, so that the caller's slice is free at once,
//! and the copy owns it; host memory that a copy writes is handed out only when the copy has completed.

use std::panic::Location;

use bytemuck::Pod;
use millpond_driver::CopyKind;

use crate::names::error::{Invalid, Result};
use crate::names::role::Ask;
use crate::pool::handle::Pool;
use crate::pool::shell;
use crate::state::access::{Read, Write};
use crate::state::aliased::Job;
use crate::stream::buffer::Buffer;
use crate::stream::handle::Stream;
use crate::stream::payload::{Payload, To, no_room, staged};

impl Stream {
    /// Allocates memory and fills it with zeros, in stream order (CUDA: `cudaMallocAsync` and `cudaMemsetAsync`).
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`memset`](Self::memset); nothing is allocated then.
    #[track_caller]
    pub fn alloc_zeroed<T: Pod>(&self, pool: &Pool, len: usize) -> Result<Buffer<T>> {
        let buffer = self.alloc(pool, len)?;
        self.memset(buffer.write(), 0)?;
        Ok(buffer)
    }

    /// Allocates memory for a host slice and copies it there, in stream order (CUDA: `cudaMallocAsync` and
    /// `cudaMemcpyAsync`). The slice is staged and can be reused at once.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`copy_from_host`](Self::copy_from_host); nothing is allocated then.
    #[track_caller]
    pub fn upload<T: Pod>(&self, pool: &Pool, from: &[T]) -> Result<Buffer<T>> {
        let buffer = self.alloc(pool, from.len())?;
        self.copy_from_host(buffer.write(), from)?;
        Ok(buffer)
    }

    /// Copies a host slice to the device, in stream order (CUDA: `cudaMemcpyAsync`, host to device). The slice is
    /// staged and can be reused at once.
    ///
    /// # Errors
    /// [`Invalid::Length`] where the two sides differ; the host has no memory left to stage the slice; else as for
    /// [`launch`](Self::launch).
    #[track_caller]
    pub fn copy_from_host<T: Pod>(&self, to: Write<'_, T>, from: &[T]) -> Result<()> {
        check_lengths("copy_from_host", from.len(), to.len())?;
        let shared = &self.shared;
        // Before the stream's lock is taken: that takes as long as the bytes are many.
        let staged = staged("copy_from_host", from)?;
        shared.operate(&to, Job::Copy, Location::caller(), |to| match to {
            _ if staged.is_empty() => Ok(()),
            To::Graph(payload, place) => {
                *payload = Payload::Upload { to: place.address, from: staged };
                Ok(())
            }
            To::Device(place) => Ok(shell::submit_upload(&shared.context, shared.raw, place.address, staged)?),
        })
    }

    /// Copies device memory to the host and waits for it (CUDA: `cudaMemcpyAsync`, device to host, and
    /// `cudaStreamSynchronize`).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch) and [`synchronize`](Self::synchronize).
    #[track_caller]
    pub fn copy_to_host<T: Pod>(&self, from: Read<'_, T>) -> Result<Vec<T>> {
        let shared = &self.shared;
        const CALL: &str = "copy_to_host";
        shared.enter_to_ask(&mut shared.state.lock(), CALL).inspect_err(|error| {
            shared.note_refused(error, |tracer| tracer.asked(shared.id, Ask::Synchronize, Location::caller()));
        })?;
        let bytes = from.bytes();
        let (mut to, caller) = (Vec::new(), Location::caller());
        let end = shared.operate_then(
            &from,
            Job::Copy,
            caller,
            |goes| {
                // Another thread may have begun a capture this moment.
                let To::Device(place) = goes else { return Err(Invalid::Uncapturable { call: CALL }.into()) };
                // Once it is known that the memory is there, or any number could be asked for. Its pages come as they
                // are written to.
                to = bytemuck::allocation::try_zeroed_vec::<T>(from.len()).map_err(|()| no_room(CALL, bytes))?;
                match (bytes, to.as_mut_ptr() as u64) {
                    (0, _) => Ok(()),
                    (_, target) => {
                        let kind = CopyKind::DeviceToHost;
                        Ok(shell::submit_copy(&shared.context, shared.raw, target, place.address, bytes, kind)?)
                    }
                }
            },
            // The end of this copy: behind the lock the stream may be captured.
            |state, ()| shared.record_event(state, caller),
        )?;
        if let Err(error) = end.and_then(|end| end.wait(caller)) {
            // The copy may still run: its target is left to it.
            to.leak();
            return Err(error);
        }
        Ok(to)
    }

    /// As [`copy_to_host`](Self::copy_to_host), into a slice.
    ///
    /// The bytes come by way of a buffer of this call's own: `to` is written only once the copy has completed.
    ///
    /// # Errors
    /// [`Invalid::Length`] where the two sides differ, and as for [`copy_to_host`](Self::copy_to_host); `to` is as it
    /// was then.
    #[track_caller]
    pub fn copy_to_host_into<T: Pod>(&self, from: Read<'_, T>, to: &mut [T]) -> Result<()> {
        check_lengths("copy_to_host_into", from.len(), to.len())?;
        to.copy_from_slice(&self.copy_to_host(from)?);
        Ok(())
    }

    /// Copies between device memory, in stream order (CUDA: `cudaMemcpyAsync`, device to device).
    ///
    /// # Errors
    /// [`Invalid::Length`] if the two sizes differ; a violation if the two sides overlap; otherwise as for
    /// [`launch`](Self::launch).
    #[track_caller]
    pub fn copy<T: Pod>(&self, from: Read<'_, T>, to: Write<'_, T>) -> Result<()> {
        check_lengths("copy", from.len(), to.len())?;
        let shared = &self.shared;
        let bytes = from.bytes();
        shared.operate(&(from, to), Job::Copy, Location::caller(), |goes| match (bytes, goes) {
            (0, _) => Ok(()),
            (_, To::Graph(payload, (from, to))) => {
                *payload = Payload::Copy { to: to.address, from: from.address, bytes };
                Ok(())
            }
            (_, To::Device((from, to))) => {
                let kind = CopyKind::DeviceToDevice;
                Ok(shell::submit_copy(&shared.context, shared.raw, to.address, from.address, bytes, kind)?)
            }
        })
    }

    /// Sets each byte, in stream order (CUDA: `cudaMemsetAsync`).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    #[track_caller]
    pub fn memset<T: Pod>(&self, to: Write<'_, T>, value: u8) -> Result<()> {
        let shared = &self.shared;
        let bytes = to.bytes();
        shared.operate(&to, Job::Declared, Location::caller(), |goes| match (bytes, goes) {
            (0, _) => Ok(()),
            (_, To::Graph(payload, place)) => {
                *payload = Payload::Memset { at: place.address, bytes, value };
                Ok(())
            }
            (_, To::Device(place)) => Ok(shell::submit_fill(&shared.context, shared.raw, place.address, bytes, value)?),
        })
    }
}

pub(crate) fn check_lengths(what: &'static str, left: usize, right: usize) -> Result<()> {
    match left == right {
        true => Ok(()),
        false => Err(Invalid::Length { what, left: left as u64, right: right as u64 }.into()),
    }
}
