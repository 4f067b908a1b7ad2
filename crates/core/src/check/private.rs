//! Memory that only its owner stream has named.
//!
//! A stream's own use of its memory is always in order, because the stream comes after everything that it did. So a
//! caller need not step it. The caller keeps a [`Header`] and counts the stream's positions itself. Once a step names
//! the memory, the caller [publishes](Checker::publish) the header. Nothing is lost: on one chain, and for all bytes,
//! the history of an allocation is its allocation, the last write, and the last read if that is later.
//!
//! Before a step or a publication, the checker must know the positions of all streams concerned ([`Checker::advance`]):
//! the stream of the step, the owner, and all streams before a step that takes their ends (a synchronisation of a
//! device, an operation of the legacy default stream, the end of a process).

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
    /// Its device.
    pub device: DeviceId,
    /// Its size, as requested.
    pub bytes: u64,
    /// The program's name for it.
    pub name: Option<Name>,
    /// The allocation by its owner.
    pub born: Use,
    /// The owner's last write of all bytes.
    pub write: Option<Use>,
    /// The owner's last read of all bytes, if it comes after the last write.
    pub read: Option<Use>,
    /// The free.
    pub free: Option<Use>,
}

impl Header {
    /// Makes a header without uses.
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

    /// Returns the points that a free has to come after.
    fn points(&self) -> impl Iterator<Item = Point> {
        [Some(self.born), self.write, self.read].into_iter().flatten().map(|it| it.point)
    }
}

impl Checker {
    /// Makes an allocation that was private so far known to the checker: steps may name it from now on. It may be freed
    /// already; a later operation that names it is then refused.
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

    /// Frees a private allocation on another stream than its owner's, as [`What::Free`](crate::op::What::Free) does, if
    /// that stream comes after everything that was done to it. Returns the point after which the memory is free.
    /// Appends new waits to `waits`.
    ///
    /// Returns `None` if the stream does not come after all that, if a capture may forbid the free, or if the stream is
    /// of another device. The allocation must then be published, and the step by name judges the free.
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

    /// Does what each operation of a stream does first: the stream comes after what its process knows, and a blocking
    /// stream after the legacy default stream's last operation. A stream's private operations must begin with this.
    /// They must begin again after each step in which the process learned something, and after each step of the legacy
    /// default stream. Returns the position from which the private operations go on. Appends new waits to `waits`.
    ///
    /// Returns `None` if the stream is captured, destroyed, or the legacy default stream. These have no private
    /// operations.
    pub fn enter_private(&mut self, at: (HostId, Place), stream: StreamHandle, waits: &mut Vec<Wait>) -> Option<Seq> {
        if self.time.get(stream.0)?.role.standing() == Standing::Barrier {
            return None;
        }
        self.enter_by_handle(at, stream, waits)?;
        Some(self.time.at(stream.0).chain.seq())
    }
}
