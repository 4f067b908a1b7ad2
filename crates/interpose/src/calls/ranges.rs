//! Memory that is there by a mapping or an import. Its end waits for nothing.

use std::ffi::{c_uint, c_void};

use millpond_core::ids::DeviceId;
use millpond_core::op::What;
use millpond_driver::cuda::abi::EventName;
use smallvec::SmallVec;

use super::read;
use crate::abi::{Code, Pool};
use crate::ask;
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// `cuMemMap`
pub(crate) unsafe fn map(
    at: &At,
    real: impl FnOnce() -> Code,
    start: u64,
    bytes: usize,
    _offset: usize,
    _handle: u64,
    _flags: u64,
) -> Code {
    at.done(real(), |session| session.add_memory_now(start, bytes as u64, Kind::Mapped))
}

/// `cuMemUnmap`
pub(crate) unsafe fn unmap(at: &At, real: impl FnOnce() -> Code, start: u64, bytes: usize) -> Code {
    let gone = at.note(|session| {
        let (mut from, mut gone) = (start, Gone::new());
        while let Some(entry) = session.index.find(from).filter(|it| it.is_live && from < start + bytes as u64).copied()
        {
            from = entry.end;
            session.index.free(entry.memory);
            gone.push(entry);
        }
        gone
    });
    let code = real();
    settle(at, code, gone, |_, _| ());
    code
}

/// Memory that ends with a call, unless it is refused.
type Gone = SmallVec<[Entry; 2]>;

fn settle(at: &At, code: Code, gone: Gone, before: impl Fn(&mut Session, &Entry)) {
    at.settle(|session| {
        for entry in gone {
            if code == Code::SUCCESS {
                before(session, &entry);
                session.freed_immediately(entry);
            } else {
                session.index.revive(entry.memory);
            }
        }
    });
}

/// `cuIpcOpenMemHandle`
pub(crate) unsafe fn open(
    at: &At,
    real: impl FnOnce() -> Code,
    place: *mut u64,
    _handle: EventName,
    _flags: c_uint,
) -> Code {
    // SAFETY: the caller's place.
    at.done(real(), |session| session.imported(unsafe { read(place) }, Kind::Mapped))
}

/// `cuIpcCloseMemHandle`: whether it waits is not documented; it is taken to, so that nothing right is called wrong.
pub(crate) unsafe fn close(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    let gone = at.note(|session| {
        let gone: Gone = session.living(start).into_iter().collect();
        gone.iter().for_each(|entry| session.index.free(entry.memory));
        gone
    });
    let code = real();
    settle(at, code, gone, |session, entry| {
        session.push(What::SynchronizeDevice { device: DeviceId(entry.device as u32) });
    });
    code
}

/// `cuMemPoolImportPointer`
pub(crate) unsafe fn import(
    at: &At,
    real: impl FnOnce() -> Code,
    place: *mut u64,
    _pool: Pool,
    _data: *const c_void,
) -> Code {
    // SAFETY: the caller's place.
    at.done(real(), |session| session.imported(unsafe { read(place) }, Kind::Mapped))
}

impl Session {
    fn imported(&mut self, start: Option<u64>, kind: Kind) {
        let Some((base, bytes)) = start.and_then(ask::range_of) else { return };
        // Opened twice it is there once.
        if self.living(base).is_none() {
            self.add_memory_now(base, bytes as u64, kind);
        }
    }
}
