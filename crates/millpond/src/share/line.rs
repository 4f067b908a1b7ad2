//! The socket of one event between two processes, at the importer's end, and the mark that is closed behind it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_driver::Driver;

use super::peer::Peer;
use super::socket::{self, Received};
use crate::clock::mark::{Mark, insist};
use crate::state::context::Context;

/// An importer's end of the socket that an exported event has. Its own byte, when it goes, says that nothing here needs
/// the event any more.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) file: OwnedFd,
    pub(super) peer: Arc<Peer>,
}

impl Line {
    pub(super) fn new(file: OwnedFd, peer: Arc<Peer>) -> Line {
        Line { file, peer }
    }

    /// Waits for the byte. Where the exporter is gone before, its process has ended when this returns.
    pub(super) fn wait_end(&self) {
        socket::wait_for(&self.file);
        if !matches!(self.receive(), Ok(Received::Packet(..)))
            && let Some(life) = &self.peer.life
        {
            socket::wait_for(life);
        }
    }

    pub(super) fn receive(&self) -> rustix::io::Result<Received> {
        socket::receive(&self.file, &mut [0], false)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The exporter may be gone, or need no telling.
        let _ = socket::send(&self.file, &[1], &[], false);
    }
}

/// A mark that has completed, until the device is past it: closed first, and then that is said.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) mark: Mark,
    pub(super) past: Arc<Mark>,
    pub(super) line: Arc<Line>,
}

impl Closing {
    /// Waits until the device is past it, and closes it.
    pub(super) fn finish(self, context: &Context) {
        insist(|| context.driver.block_on(self.past.raw));
        drop(self.mark);
        drop(self.line);
    }
}
