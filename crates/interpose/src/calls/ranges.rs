//! Memory from mappings and imports. Its end waits for nothing.

use smallvec::SmallVec;

use crate::abi::Code;
use crate::ask;
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// `cuMemUnmap`
pub(crate) fn unmap(at: &At, real: impl FnOnce() -> Code, start: u64, bytes: usize) -> Code {
    let gone = at.note(|session| {
        let (mut from, end, mut gone) = (start, start.saturating_add(bytes as u64), Gone::new());
        let is_mapped = |it: &&Entry| it.is_live && it.kind == Kind::Mapped;
        while let Some(entry) = session.index.find(from).filter(is_mapped).copied().filter(|_| from < end) {
            from = entry.end;
            session.index.free(entry.memory());
            gone.push(entry);
        }
        gone
    });
    let code = real();
    settle(at, code, gone, |_, _| ());
    code
}

/// Memory that ends with a call, unless the call is refused.
type Gone = SmallVec<[Entry; 2]>;

fn settle(at: &At, code: Code, gone: Gone, before: impl Fn(&mut Session, &Entry)) {
    at.settle(|session| {
        for entry in gone {
            if code == Code::SUCCESS {
                before(session, &entry);
                session.freed_immediately(entry);
            } else {
                session.index.revive(entry.memory());
            }
        }
    });
}

/// `cuIpcCloseMemHandle`: the memory exists until it was closed as often as it was opened. CUDA does not document
/// whether the call waits. It is assumed to, so that no correct program is reported.
pub(crate) fn close(at: &At, real: impl FnOnce() -> Code, start: u64) -> Code {
    let (left, gone) = at.note(|session| {
        let left = session.handles.close_memory(start);
        let gone: Gone = session.living(start).filter(|_| left.is_none_or(|left| left == 0)).into_iter().collect();
        gone.iter().for_each(|entry| session.index.free(entry.memory()));
        (left, gone)
    });
    let code = real();
    if code != Code::SUCCESS && left.is_some() {
        at.settle(|session| session.handles.open_memory(start));
    }
    settle(at, code, gone, |session, entry| {
        if session.captures.is_empty() {
            session.synchronize_device(session.handles.device_of(entry.home));
        }
    });
    code
}

impl Session {
    /// Notes a mapping. Graphs refer to memory by address: a graph captured on a range that was mapped anew since uses
    /// the new mapping. So a new mapping at the old place gets the old one's name.
    pub(crate) fn map(&mut self, start: u64, bytes: u64) {
        match self.index.map_again(start, bytes) {
            Some(memory) => self.memory_now(memory, bytes, Kind::Mapped),
            None => self.add_memory_now(start, bytes, Kind::Mapped),
        }
    }

    /// Notes that another process's memory is opened.
    pub(crate) fn open(&mut self, start: u64) {
        self.handles.open_memory(start);
        self.import(start);
    }

    /// Notes imported memory, which may have been imported before.
    pub(crate) fn import(&mut self, start: u64) {
        let Some((base, bytes)) = ask::range_of(start) else { return };
        // A call that was not seen may have ended the range that is known at this address.
        if self.living(base).is_none_or(|entry| entry.end - entry.start != bytes as u64) {
            self.add_memory_now(base, bytes as u64, Kind::Mapped);
        }
    }
}
