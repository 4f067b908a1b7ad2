//! Memory that only its owner stream has named.
//!
//! What a stream does to memory of its own is in order: the stream comes after all that it did. So a caller need not
//! step it. It keeps a [`Header`] and counts the stream's positions by itself, until a step names the memory: then it
//! [publishes](Checker::publish) the header. Nothing is lost by that: on one chain, and for all bytes, the history of
//! an allocation is its birth, the last write, and the last read if that is later.
//!
//! Before a step or a publication the checker has to know how far the streams are that it may ask about
//! ([`Checker::advance`]): the stream of the step, the owner, and all streams before a step that takes their ends (a
//! synchronisation of a device, an operation of the legacy default stream, the end of a process).

use super::answer::{StreamHandle, Wait};
use super::checker::Checker;
use super::lives::{Named, Source};
use crate::ids::{DeviceId, HostId, Point, PoolId, Seq};
use crate::life::Use;
use crate::op::{Act, Memory, Name, Part, Place};
use crate::order::Knows;
use crate::order::default_streams::Standing;

/// An allocation that only its owner stream has named: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name.
    pub memory: Memory,
    /// Its pool.
    pub pool: PoolId,
    /// The device that it is of.
    pub device: DeviceId,
    /// Its size, as asked for.
    pub bytes: u64,
    /// What the program calls it.
    pub name: Option<Name>,
    /// Where its owner allocated it.
    pub born: Use,
    /// The owner's last write of all bytes.
    pub write: Option<Use>,
    /// The owner's last read of all bytes, where it is after the last write.
    pub read: Option<Use>,
    /// Where it was freed.
    pub free: Option<Use>,
}

impl Header {
    /// An allocation without uses.
    pub fn new(memory: Memory, (pool, device): (PoolId, DeviceId), bytes: u64, name: Option<Name>, born: Use) -> Self {
        Header { memory, pool, device, bytes, name, born, write: None, read: None, free: None }
    }

    /// Adds a use of all bytes by the owner.
    pub fn add_use(&mut self, used: Use) {
        match used.site.act {
            Act::Read => self.read = Some(used),
            _ => (self.write, self.read) = (Some(used), None),
        }
    }

    /// The points that a free has to come after.
    fn points(&self) -> impl Iterator<Item = Point> {
        [Some(self.born), self.write, self.read].into_iter().flatten().map(|it| it.point)
    }
}

impl Checker {
    /// Tells of an allocation that was private so far: from now on steps may name it. One that was freed is named by
    /// what comes too late.
    pub fn publish(&mut self, header: &Header) {
        let Header { memory, pool, device, bytes, name, born, write, read, free } = *header;
        let exportable = self.is_exportable(pool);
        let life = self.lives.begin(memory, born, bytes, name, Source::Stream { exportable, pool, device });
        self.lives.name(memory, Named::Life(life));
        for used in write.into_iter().chain(read) {
            self.lives.at_mut(life).history.push(used, Part::WHOLE);
        }
        if let Some(free) = free {
            self.lives.end(life, free);
        }
    }

    /// Frees a private allocation on another stream than its owner, as [`What::Free`](crate::op::What::Free) does:
    /// where the stream comes after all that was done. Returns the point after which the memory is free. Waits that are
    /// news are appended to `waits`.
    ///
    /// None where that is not so, or a capture may forbid it, or the stream is of another device: then the allocation
    /// is to be published, and the step by name judges it.
    pub fn free_private(
        &mut self,
        at: (HostId, Place),
        stream: StreamHandle,
        header: &Header,
        waits: &mut Vec<Wait>,
    ) -> Option<Point> {
        let site = self.enter_by_handle(at, stream, waits)?;
        let freeing = self.time.at(stream.0);
        if freeing.kept.device != header.device || header.free.is_some() {
            return None;
        }
        if !header.points().all(|point| freeing.chain.covers(point)) {
            return None;
        }
        let point = self.time.at_mut(stream.0).chain.submit();
        self.time.done(stream.0, "freed", site.place);
        Some(point)
    }

    /// Does what each operation of a stream does first: it comes after what its process knows, and after the legacy
    /// default stream's last operation. A stream's private operations are to begin with this, and again after each
    /// step in which the process learned something or which is the legacy default stream's. Returns the position that
    /// they go on from. Waits that are news are appended to `waits`.
    ///
    /// None where the stream is captured, destroyed, or the legacy default stream: these have no private operations.
    pub fn enter_private(&mut self, at: (HostId, Place), stream: StreamHandle, waits: &mut Vec<Wait>) -> Option<Seq> {
        if self.time.get(stream.0)?.role.standing() == Standing::Barrier {
            return None;
        }
        self.enter_by_handle(at, stream, waits)?;
        Some(self.time.at(stream.0).chain.seq())
    }
}
