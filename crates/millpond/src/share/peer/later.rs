//! What happens later between an importer and its exporter: an answer that comes too late, words for which there was no
//! room.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use millpond_core::share::{Reply, Request};
use millpond_driver::locks::lock;
use rustix::io::Errno;

use super::Peer;
use crate::share::socket::{self, Received};
use crate::share::watch::{Next, Watched};

/// An answer that did not come in time.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) peer: Arc<Peer>,
    pub(super) socket: OwnedFd,
    pub(super) room: Vec<u8>,
}

impl Watched for Late {
    fn file(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(&mut self) -> Next {
        match socket::receive(&self.socket, &mut self.room, false) {
            Ok(Received::Nothing) => return Next::Again(None),
            Ok(Received::Packet(bytes, _)) => {
                if let Ok(Reply::Memory(grant)) = Reply::from_bytes(&self.room[..bytes]) {
                    // What it grants is given back.
                    self.peer.say(&Request::Release { lease: grant.lease, uses: Vec::new() }, Duration::ZERO);
                }
            }
            _ => {}
        }
        self.peer.end_turn(std::mem::take(&mut self.room));
        Next::Done
    }
}

/// What an exporter has no room for.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) peer: Arc<Peer>,
    pub(super) socket: OwnedFd,
}

impl Watched for Rest {
    fn file(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_to_send(&self) -> bool {
        true
    }

    fn ready(&mut self) -> Next {
        let mut unsaid = lock(&self.peer.unsaid);
        while let Some(packet) = unsaid.packets.front() {
            if socket::send(&self.socket, packet, &[], false) == Err(Errno::AGAIN) {
                return Next::Again(None);
            }
            unsaid.packets.pop_front();
            unsaid.is_taken();
        }
        unsaid.is_watched = false;
        Next::Done
    }
}
