//! Memory: in the order of streams, at once, of the host; and its frees.
//!
//! A free of memory that lives is noted before the real call: then another thread may get these addresses. `cuMemFree`
//! and `cuMemFreeHost` wait for the device, but for memory of pools: that wait is an order of the program.

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

/// `cuMemFreeAsync`
pub(crate) unsafe fn free_async(at: &At, real: impl FnOnce() -> Code, start: u64, stream: Stream) -> Code {
    let is_known = at.note(|session| {
        if session.is_lost(stream) {
            return true;
        }
        let Some(entry) = session.living(start) else { return false };
        let stream = session.stream(at, stream);
        session.end_memory(entry);
        session.push(What::Free { memory: entry.memory, stream });
        true
    });
    let code = real();
    if !is_known && code == Code::INVALID_VALUE {
        at.note(|session| {
            let memory = session.misnamed(start);
            let stream = session.stream(at, stream);
            session.push(What::Free { memory, stream });
            session.note = None;
        });
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
    let mut is_captured = false;
    let is_known = start == 0
        || at.note(|session| {
            let Some(entry) = session.living(start) else { return false };
            // While something is captured the real call says first whether it is allowed.
            is_captured = !session.captures.is_empty();
            if !is_captured {
                session.free_at_once(entry);
            }
            true
        });
    let code = real();
    if is_captured && code == Code::SUCCESS {
        at.note(|session| {
            if let Some(entry) = session.living(start) {
                session.free_at_once(entry);
            }
        });
    }
    if !is_known && code == Code::INVALID_VALUE {
        at.note(|session| {
            let memory = session.misnamed(start);
            session.push(What::FreeNow { memory });
            session.note = None;
        });
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

    /// A free of memory: that of an alloc node is there again with the next launch.
    fn end_memory(&mut self, entry: Entry) {
        if entry.kind != Kind::Node {
            self.index.free(entry.memory);
        }
    }

    /// Memory is freed at once.
    pub(crate) fn free_at_once(&mut self, entry: Entry) {
        self.end_memory(entry);
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
