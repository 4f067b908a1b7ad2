//! Copies between device memory and pinned host memory. Neither side is staged, and the host goes on meanwhile.
//!
//! Depends on accesses. Both sides are uses at one point of the stream, checked and recorded as those of a launch. That
//! includes the pinned side, so copies on two streams need an order there, too. The rules for the host are in
//! `stream/host_memory.rs`.

use std::panic::Location;

use bytemuck::Pod;
use millpond_driver::CopyKind;

use crate::names::error::{Invalid, Result};
use crate::operations::copy::check_lengths;
use crate::pool::shell;
use crate::state::access::{Read, Write};
use crate::state::aliased::Job;
use crate::stream::handle::Stream;
use crate::stream::host_memory::{PinnedRead, PinnedWrite};
use crate::stream::payload::To;

impl Stream {
    /// Copies pinned host memory to the device, in stream order (CUDA: `cudaMemcpyAsync`, host to device, from
    /// page-locked memory). Returns at once. Until the copy has completed, the host may read the pinned memory but not
    /// write it.
    ///
    /// # Errors
    /// Returns [`Invalid::Length`](crate::error::Invalid::Length) if the lengths of the two sides differ, and
    /// [`Invalid::OtherDevice`](crate::error::Invalid::OtherDevice) for pinned memory of another device. Returns a
    /// violation of either side, as for [`launch`](Self::launch). Returns [`Invalid::Uncapturable`] in a capture, which
    /// goes on: there use [`copy_from_host`](Self::copy_from_host), which becomes a node.
    #[track_caller]
    pub fn copy_from_pinned<T: Pod>(&self, to: Write<'_, T>, from: PinnedRead<'_, T>) -> Result<()> {
        self.copy_pinned("copy_from_pinned", from.0, to, CopyKind::HostToDevice)
    }

    /// Copies device memory to pinned host memory, in stream order (CUDA: `cudaMemcpyAsync`, device to host, to
    /// page-locked memory). Returns at once. Once the host has synchronised with the copy, it may read what was copied.
    ///
    /// # Errors
    /// As for [`copy_from_pinned`](Self::copy_from_pinned).
    #[track_caller]
    pub fn copy_to_pinned<T: Pod>(&self, from: Read<'_, T>, to: PinnedWrite<'_, T>) -> Result<()> {
        self.copy_pinned("copy_to_pinned", from, to.0, CopyKind::DeviceToHost)
    }

    #[track_caller]
    fn copy_pinned<T: Pod>(
        &self,
        call: &'static str,
        from: Read<'_, T>,
        to: Write<'_, T>,
        kind: CopyKind,
    ) -> Result<()> {
        check_lengths(call, from.len(), to.len())?;
        let shared = &self.shared;
        let bytes = from.bytes();
        shared.operate(&(from, to), Job::Copy, Location::caller(), |goes| match (bytes, goes) {
            (_, To::Graph(..)) => Err(Invalid::Uncapturable { call }.into()),
            (0, _) => Ok(()),
            // The pinned side stays until the copy has completed (pinned-after-copies).
            (_, To::Device((from, to))) => {
                Ok(shell::submit_copy(&shared.context, shared.raw, to.address, from.address, bytes, kind)?)
            }
        })
    }
}
