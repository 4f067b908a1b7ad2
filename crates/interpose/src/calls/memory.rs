//! Memory: in the order of streams, at once, of the host; and its frees.
//!
//! Memory has ended in the index before its real free, from which on another thread may get its addresses; the free is
//! noted once the real call has accepted it. `cuMemFree` and `cuMemFreeHost` wait for the device, but for memory of
//! pools: that wait is an order of the program.

use millpond_core::op::{Memory, Trust, What};

use crate::abi::{Code, Pool, Stream};
use crate::ask;
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// What a free was found to be about, before the real call.
#[derive(Clone, Copy, Debug, Default)]
enum Ending {
    /// Nothing that is noted.
    #[default]
    Unseen,
    /// No memory that lives.
    Unknown,
    /// This, which is freed for who allocates meanwhile.
    Memory(Entry),
}

/// `cuMemFreeAsync`
pub(crate) fn free_async(at: &At, real: impl FnOnce() -> Code, start: u64, stream: Stream) -> Code {
    let ending = at.note(|session| match session.is_lost(at, stream) {
        true => Ending::Unseen,
        false => session.begin_free(start),
    });
    let code = real();
    match (ending, code) {
        (Ending::Memory(entry), Code::SUCCESS) => at.settle(|session| {
            let stream = session.stream(at, stream);
            // An alloc node's is there again with the next launch.
            session.index.set_allocated(entry.memory(), false);
            session.push(What::Free { memory: entry.memory(), stream, trust: Trust::None });
        }),
        (Ending::Memory(entry), _) => at.settle(|session| {
            session.index.revive(entry.memory());
            if code == Code::INVALID_VALUE && entry.kind == Kind::Host {
                let stream = session.stream(at, stream);
                session.push(What::Free { memory: entry.memory(), stream, trust: Trust::None });
            }
        }),
        (Ending::Unknown, Code::INVALID_VALUE) => at.settle(|session| {
            let Some(memory) = session.misnamed(start) else { return };
            let stream = session.stream(at, stream);
            session.push(What::Free { memory, stream, trust: Trust::None });
        }),
        _ => {}
    }
    code
}

/// `cuMemFree` and its kin
pub(crate) fn free_now(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    if start == 0 {
        return real();
    }
    let ending = at.note(|session| session.begin_free(start));
    let code = real();
    match (ending, code) {
        (Ending::Memory(entry), Code::SUCCESS) => at.settle(|session| session.freed_immediately(entry)),
        (Ending::Memory(entry), Code::CAPTURE_UNSUPPORTED) => at.settle(|session| {
            session.index.revive(entry.memory());
            session.push_refused(Some(What::FreeNow { memory: entry.memory() }));
        }),
        (Ending::Memory(entry), _) => at.settle(|session| {
            session.index.revive(entry.memory());
            let call = match entry.kind {
                Kind::Host => "pinned memory, which cuMemFreeHost frees",
                Kind::Device => "device memory, which cuMemFree frees",
                _ => return,
            };
            if code == Code::INVALID_VALUE {
                session.note = Some(format!("{start:#x} is {call}"));
                let memory = session.index.unused_name();
                session.push(What::FreeNow { memory });
            }
        }),
        (Ending::Unknown, Code::INVALID_VALUE) => at.settle(|session| {
            let Some(memory) = session.misnamed(start) else { return };
            session.push(What::FreeNow { memory });
        }),
        _ => {}
    }
    code
}

impl Session {
    /// Memory of a pool, or of the device's current one.
    pub(crate) fn alloc_in(&mut self, at: &At, start: u64, bytes: usize, pool: Option<Pool>, handle: Stream) {
        if start == 0 || self.is_lost(at, handle) {
            return;
        }
        let stream = self.stream(at, handle);
        let pool = match pool {
            Some(pool) => self.pool(pool),
            None => self.pool_for(handle),
        };
        let origin = self.origin(at, stream, handle);
        let kind = if origin.is_some() { Kind::Node } else { Kind::Ordered };
        let memory = self.add_memory(start, bytes as u64, kind);
        if let Some(capture) = origin.and_then(|origin| self.captures.get_mut(&origin)) {
            capture.memory.push(memory);
        }
        self.push(What::Alloc { memory, pool, stream, bytes: bytes as u64, name: None });
    }

    /// The memory that begins at an address, if it lives.
    pub(crate) fn living(&self, start: u64) -> Option<Entry> {
        self.index.starting_at(start).filter(|entry| entry.is_live).copied()
    }

    /// A free begins: who allocates meanwhile may get these addresses. Memory of an alloc node is there again with the
    /// next launch.
    fn begin_free(&mut self, start: u64) -> Ending {
        let Some(entry) = self.living(start) else { return Ending::Unknown };
        if entry.kind != Kind::Node {
            self.index.free(entry.memory());
        }
        Ending::Memory(entry)
    }

    /// Memory was freed at once.
    pub(crate) fn freed_immediately(&mut self, entry: Entry) {
        let memory = entry.memory();
        self.index.set_allocated(memory, false);
        if !self.captures.is_empty() {
            // Whether it waits for the device then is not known.
            return self.push(What::Drop { memory });
        }
        if matches!(entry.kind, Kind::Device | Kind::Managed | Kind::Host) {
            self.synchronize_device(self.handles.device_of(entry.home));
        }
        self.push(What::FreeNow { memory });
    }

    /// What a free means that the real call refuses: memory that is freed already, or an address that is none's start.
    /// None for memory of a graph that never was, or is gone: nothing is freed.
    fn misnamed(&mut self, start: u64) -> Option<Memory> {
        if self.void.remove(&start) {
            return None;
        }
        Some(match self.index.used(start, ask::is_of_host).copied() {
            Some(entry) if entry.start == start => entry.memory(),
            Some(entry) => {
                let (inside, id) = (start - entry.start, entry.memory().id);
                self.note =
                    Some(format!("{start:#x} is not a start of an allocation: it is {inside} bytes inside {id}"));
                self.index.unused_name()
            }
            None => {
                self.note = Some(format!("no allocation is known at {start:#x}"));
                self.index.unused_name()
            }
        })
    }
}
