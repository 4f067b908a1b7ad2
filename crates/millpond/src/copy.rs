//! Copies in, out and across, and fills.
//!
//! Knows accesses and host slices. Host memory that a copy reads is staged, so that the caller's slice is free at once;
//! host memory that a copy writes is handed out only when the copy is over.

use std::panic::Location;

use bytemuck::Pod;
use millpond_driver::{CopyKind, Driver};

use crate::access::{Read, Write};
use crate::error::{Invalid, Result};
use crate::graph::Payload;
use crate::launch::To;
use crate::shell;
use crate::stream::{Staged, Stream, release_staging};

impl Stream {
    /// Copies a host slice to the device, in stream order (CUDA: `cudaMemcpyAsync`, host to device). The slice is
    /// staged and can be reused at once.
    ///
    /// # Errors
    /// [`Invalid::Length`] where the two sides differ; else as for [`launch`](Self::launch).
    #[track_caller]
    pub fn copy_from_host<T: Pod>(&self, to: Write<'_, T>, from: &[T]) -> Result<()> {
        check_lengths("copy_from_host", from.len(), to.len())?;
        let shared = &self.shared;
        let driver = &*shared.context.driver;
        shared.operate(&to, true, Location::caller(), |to, place| {
            let state = match to {
                To::Device(state) => state,
                To::Graph(payload) => {
                    // The graph keeps the bytes.
                    *payload = Payload::upload(place.address, bytemuck::cast_slice(from));
                    return Ok(());
                }
            };
            release_staging(&mut state.staging, driver);
            if size_of_val(from) == 0 {
                return Ok(());
            }
            let staged: Box<[u8]> = bytemuck::cast_slice(from).into();
            let (source, bytes) = (staged.as_ptr() as u64, staged.len() as u64);
            shell::submit_copy(&shared.context, shared.raw, place.address, source, bytes, CopyKind::HostToDevice)?;
            match driver.mark(shared.raw) {
                Ok(over) => state.staging.push(Staged { over, bytes: staged }),
                // Nobody can tell any more when the copy is over: the staged bytes are left to it.
                Err(_) => drop(Box::leak(staged)),
            }
            Ok(())
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
        shared.refuse_in_capture("copy_to_host")?;
        let mut to = vec![T::zeroed(); from.len()];
        let target = to.as_mut_ptr() as u64;
        let bytes = (to.len() * size_of::<T>()) as u64;
        shared.operate(&from, true, Location::caller(), |_, place| match bytes {
            0 => Ok(()),
            _ => {
                let kind = CopyKind::DeviceToHost;
                Ok(shell::submit_copy(&shared.context, shared.raw, target, place.address, bytes, kind)?)
            }
        })?;
        if let Err(error) = self.synchronize() {
            // The copy may still run: its target is left to it.
            to.leak();
            return Err(error);
        }
        Ok(to)
    }

    /// Copies between device memory, in stream order (CUDA: `cudaMemcpyAsync`, device to device).
    ///
    /// # Errors
    /// [`Invalid::Length`] where the two sides differ; else as for [`launch`](Self::launch).
    #[track_caller]
    pub fn copy<T: Pod>(&self, from: Read<'_, T>, to: Write<'_, T>) -> Result<()> {
        check_lengths("copy", from.len(), to.len())?;
        let shared = &self.shared;
        let bytes = (from.len() * size_of::<T>()) as u64;
        shared.operate(&(from, to), true, Location::caller(), |goes, (from, to)| match (bytes, goes) {
            (0, _) => Ok(()),
            (_, To::Graph(payload)) => {
                *payload = Payload::Copy { to: to.address, from: from.address, bytes };
                Ok(())
            }
            (_, To::Device(_)) => {
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
        let bytes = (to.len() * size_of::<T>()) as u64;
        shared.operate(&to, true, Location::caller(), |goes, place| match (bytes, goes) {
            (0, _) => Ok(()),
            (_, To::Graph(payload)) => {
                *payload = Payload::Memset { at: place.address, bytes, value };
                Ok(())
            }
            (_, To::Device(_)) => Ok(shell::submit_fill(&shared.context, shared.raw, place.address, bytes, value)?),
        })
    }
}

fn check_lengths(what: &'static str, left: usize, right: usize) -> Result<()> {
    match left == right {
        true => Ok(()),
        false => Err(Invalid::Length { what, left: left as u64, right: right as u64 }.into()),
    }
}
