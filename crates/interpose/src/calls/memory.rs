//! Memory: stream-ordered, immediate, of the host; and frees.
//!
//! Memory ends in the index before its real free, because from then on another thread may get its addresses. The free
//! is noted once the real call has accepted it. `cuMemFree` and `cuMemFreeHost` wait for the device, unless the memory
//! is a pool's. That wait is an order of the program.

use millpond_core::op::{Memory, Trust, What};

use crate::abi::{Code, Pool, Stream};
use crate::ask;
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// The index's answer for a free's address, before the real call.
#[derive(Clone, Copy, Debug, Default)]
enum Ending {
    /// The free is not noted.
    #[default]
    Unseen,
    /// No live allocation begins at the address.
    Unknown,
    /// This allocation. Unless it is an alloc node's, it has ended in the index already, because another thread may get
    /// its addresses meanwhile.
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
            // The next launch allocates an alloc node's memory again.
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

/// `cuMemFree` and similar calls.
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
    /// Notes an allocation from a pool, or from the device's current pool.
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

    /// Returns the live allocation that begins at an address.
    pub(crate) fn living(&self, start: u64) -> Option<Entry> {
        self.index.starting_at(start).filter(|entry| entry.is_live).copied()
    }

    /// Begins a free: other threads may get these addresses meanwhile. The next launch allocates an alloc node's memory
    /// again.
    fn begin_free(&mut self, start: u64) -> Ending {
        let Some(entry) = self.living(start) else { return Ending::Unknown };
        if entry.kind != Kind::Node {
            self.index.free(entry.memory());
        }
        Ending::Memory(entry)
    }

    /// Notes an immediate free.
    pub(crate) fn freed_immediately(&mut self, entry: Entry) {
        let memory = entry.memory();
        self.index.set_allocated(memory, false);
        if !self.captures.is_empty() {
            // It is not known whether the call waits for the device during a capture.
            return self.push(What::Drop { memory });
        }
        if matches!(entry.kind, Kind::Device | Kind::Managed | Kind::Host) {
            self.synchronize_device(self.handles.device_of(entry.home));
        }
        self.push(What::FreeNow { memory });
    }

    /// Returns the memory of a free that the real call refuses: memory that is freed already, or an unused name if no
    /// allocation begins at the address. `None` for memory of a graph that never came to be or is gone: nothing is
    /// freed.
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
