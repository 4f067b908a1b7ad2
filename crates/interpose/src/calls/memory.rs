//! Memory: in the order of streams, at once, of the host; and its frees.
//!
//! Memory has ended in the index before its real free, from which on another thread may get its addresses; the free is
//! noted once the real call has accepted it. `cuMemFree` and `cuMemFreeHost` wait for the device, but for memory of
//! pools: that wait is an order of the program.

use std::ffi::c_uint;

use millpond_core::ids::DeviceId;
use millpond_core::op::{Memory, What};

use super::read;
use crate::abi::{Code, Pool, Stream};
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// `cuMemAllocAsync`
pub(crate) unsafe fn alloc_async(
    at: &At,
    real: impl FnOnce() -> Code,
    place: *mut u64,
    bytes: usize,
    stream: Stream,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let start = unsafe { read(place) };
        session.alloc_in(at, start, bytes, None, stream);
    })
}

/// `cuMemAllocFromPoolAsync`
pub(crate) unsafe fn alloc_from_pool(
    at: &At,
    real: impl FnOnce() -> Code,
    place: *mut u64,
    bytes: usize,
    pool: Pool,
    stream: Stream,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let start = unsafe { read(place) };
        session.alloc_in(at, start, bytes, Some(pool), stream);
    })
}

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
pub(crate) unsafe fn free_async(at: &At, real: impl FnOnce() -> Code, start: u64, stream: Stream) -> Code {
    let ending = at.note(|session| match session.is_lost(stream) {
        true => Ending::Unseen,
        false => session.begin_free(start),
    });
    let code = real();
    match (ending, code) {
        (Ending::Memory(entry), Code::SUCCESS) => at.settle(|session| {
            let stream = session.stream(at, stream);
            session.push(What::Free { memory: entry.memory, stream });
        }),
        (Ending::Memory(entry), _) => at.settle(|session| session.index.revive(entry.memory)),
        (Ending::Unknown, Code::INVALID_VALUE) => at.settle(|session| {
            let memory = session.misnamed(start);
            let stream = session.stream(at, stream);
            session.push(What::Free { memory, stream });
        }),
        _ => {}
    }
    code
}

/// Handlers of memory that is there at once.
macro_rules! at_once {
    ($($name:ident($($arg:ident: $ty:ty),*) $bytes:expr, $kind:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub(crate) unsafe fn $name(at: &At, real: impl FnOnce() -> Code, place: *mut u64, $($arg: $ty),*) -> Code {
            at.done(real(), |session| {
                // SAFETY: the caller's places, which were written.
                if let (Some(start), Some(bytes)) = unsafe { (read(place), $bytes) } {
                    session.add_memory_now(start, bytes as u64, $kind);
                }
            })
        }
    )*};
}

at_once! {
    alloc(bytes: usize) Some(bytes), Kind::Device, "`cuMemAlloc`";
    alloc_pitch(pitch: *mut usize, _width: usize, height: usize, _element: c_uint)
        read(pitch).map(|pitch| pitch * height), Kind::Device, "`cuMemAllocPitch`";
    alloc_managed(bytes: usize, _flags: c_uint) Some(bytes), Kind::Device, "`cuMemAllocManaged`";
    alloc_host(bytes: usize) Some(bytes), Kind::Host, "`cuMemAllocHost`";
    host_alloc(bytes: usize, _flags: c_uint) Some(bytes), Kind::Host, "`cuMemHostAlloc`";
}

/// `cuMemHostRegister`
pub(crate) unsafe fn register(at: &At, real: impl FnOnce() -> Code, start: u64, bytes: usize, _flags: c_uint) -> Code {
    at.done(real(), |session| session.add_memory_now(start, bytes as u64, Kind::Host))
}

/// `cuMemFree`
pub(crate) unsafe fn free(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    free_now(at, real, start)
}

/// `cuMemFreeHost`
pub(crate) unsafe fn free_host(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    free_now(at, real, start)
}

/// `cuMemHostUnregister`
pub(crate) unsafe fn unregister(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    free_now(at, real, start)
}

fn free_now(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    if start == 0 {
        return real();
    }
    let ending = at.note(|session| session.begin_free(start));
    let code = real();
    match (ending, code) {
        (Ending::Memory(entry), Code::SUCCESS) => at.settle(|session| session.freed_immediately(entry)),
        (Ending::Memory(entry), _) => at.settle(|session| session.index.revive(entry.memory)),
        (Ending::Unknown, Code::INVALID_VALUE) => at.settle(|session| {
            let memory = session.misnamed(start);
            session.push(What::FreeNow { memory });
        }),
        _ => {}
    }
    code
}

impl Session {
    fn alloc_in(&mut self, at: &At, start: Option<u64>, bytes: usize, pool: Option<Pool>, handle: Stream) {
        let Some(start) = start.filter(|start| *start != 0) else { return };
        if self.is_lost(handle) {
            return;
        }
        let stream = self.stream(at, handle);
        let pool = match pool {
            Some(pool) => self.pool(pool),
            None => self.pool_for(handle),
        };
        let kind = if self.is_capturing(stream) { Kind::Node } else { Kind::Ordered };
        let memory = self.add_memory(start, bytes as u64, kind);
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
            self.index.free(entry.memory);
        }
        Ending::Memory(entry)
    }

    /// Memory was freed at once.
    pub(crate) fn freed_immediately(&mut self, entry: Entry) {
        let memory = entry.memory;
        if !self.captures.is_empty() {
            // The real call allows it, be it by the thread's mode, which operations do not have.
            return self.push(What::Drop { memory });
        }
        if matches!(entry.kind, Kind::Device | Kind::Host) {
            self.push(What::SynchronizeDevice { device: DeviceId(entry.device as u32) });
        }
        self.push(What::FreeNow { memory });
    }

    /// What a free means that the real call refuses: memory that is freed already, or an address that is none's start.
    fn misnamed(&mut self, start: u64) -> Memory {
        match self.index.find(start).copied() {
            Some(entry) if entry.start == start => entry.memory,
            Some(entry) => {
                let (inside, id) = (start - entry.start, entry.memory.id);
                self.note = Some(format!("{start:#x} is no start of an allocation: it is {inside} bytes inside {id}"));
                self.index.unused_name()
            }
            None => {
                self.note = Some(format!("no allocation is known at {start:#x}"));
                self.index.unused_name()
            }
        }
    }
}
