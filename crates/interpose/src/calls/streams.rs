//! Streams: made, waited for, and work on them that is no kernel and no copy.

use std::ffi::{c_int, c_uint};

use millpond_core::op::{Act, Start, StreamRole, What};
use smallvec::SmallVec;

use super::{list, read};
use crate::abi::{Code, EXTERNAL, Event, Stream, StreamMemOp};
use crate::ask;
use crate::session::{At, Session};

/// `cuStreamCreate`
pub(crate) unsafe fn create(at: &At, real: impl FnOnce() -> Code, stream: *mut Stream, flags: c_uint) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let Some(stream) = (unsafe { read(stream) }) else { return };
        let role = if flags & 1 != 0 { StreamRole::NonBlocking } else { StreamRole::Blocking };
        session.add_stream(stream, role, ask::current_device());
    })
}

/// `cuStreamCreateWithPriority`
pub(crate) unsafe fn create_with_priority(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: *mut Stream,
    flags: c_uint,
    _priority: c_int,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { create(at, real, stream, flags) }
}

/// `cuStreamDestroy`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy(at: &At, real: impl FnOnce() -> Code, stream: Stream) -> Code {
    at.note(|session| {
        let Some(&(id, _)) = session.handles.streams.get(&stream) else { return };
        // One that takes part in a capture is a part of that until it ends.
        let is_captured = session.is_capturing(id);
        session.handles.streams.remove(&stream);
        session.handles.last_stream = None;
        if session.captures.remove(&id).is_some() {
            session.push(What::CaptureEnd { stream: id });
        } else if is_captured {
            return session.leaving.push(id);
        }
        session.push(What::StreamDestroy { stream: id });
    });
    real()
}

/// `cuStreamSynchronize`
pub(crate) unsafe fn synchronize(at: &At, real: impl FnOnce() -> Code, stream: Stream) -> Code {
    at.done(real(), |session| {
        let stream = session.stream(at, stream);
        session.push(What::StreamSynchronize { stream });
    })
}

/// `cuStreamQuery`
pub(crate) unsafe fn query(at: &At, real: impl FnOnce() -> Code, stream: Stream) -> Code {
    at.done(real(), |session| {
        let stream = session.stream(at, stream);
        session.push(What::StreamQuery { stream, is_idle: true });
    })
}

/// `cuStreamWaitEvent`
pub(crate) unsafe fn wait_event(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    event: Event,
    flags: c_uint,
) -> Code {
    at.done(real(), |session| {
        if session.is_lost(stream) {
            return;
        }
        let (stream, event) = (session.stream(at, stream), session.event(event));
        let external = flags & EXTERNAL != 0;
        session.push(What::EventWait { event, stream, external });
    })
}

impl Session {
    /// Work that uses these bytes, or none.
    pub(crate) fn work(&mut self, at: &At, stream: Stream, uses: &[(u64, u64, Act)]) {
        if self.is_lost(stream) {
            return;
        }
        let mut accesses = SmallVec::new();
        for (from, bytes, act) in uses {
            self.access(*from, *bytes, *act, &mut accesses);
        }
        let stream = self.stream(at, stream);
        self.push(What::Launch { stream, accesses, start: Start::Ordered, name: None });
    }
}

/// `cuStreamAddCallback`
pub(crate) unsafe fn callback(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    _function: usize,
    _data: usize,
    _flags: c_uint,
) -> Code {
    at.done(real(), |session| session.work(at, stream, &[]))
}

/// `cuLaunchHostFunc`
pub(crate) unsafe fn host_function(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    _function: usize,
    _data: usize,
) -> Code {
    at.done(real(), |session| session.work(at, stream, &[]))
}

/// Handlers of a word that a stream writes or waits for.
macro_rules! words {
    ($($name:ident $ty:ty, $bytes:literal, $act:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub(crate) unsafe fn $name(
            at: &At,
            real: impl FnOnce() -> Code,
            stream: Stream,
            word: u64,
            _value: $ty,
            _flags: c_uint,
        ) -> Code {
            at.done(real(), |session| session.work(at, stream, &[(word, $bytes, $act)]))
        }
    )*};
}

words! {
    write32 u32, 4, Act::Write, "`cuStreamWriteValue32`";
    write64 u64, 8, Act::Write, "`cuStreamWriteValue64`";
    wait32 u32, 4, Act::Read, "`cuStreamWaitValue32`";
    wait64 u64, 8, Act::Read, "`cuStreamWaitValue64`";
}

/// `cuStreamBatchMemOp`
pub(crate) unsafe fn batch(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    count: c_uint,
    ops: *const StreamMemOp,
    _flags: c_uint,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's list.
        for op in unsafe { list(ops, count as usize) } {
            match op.operation {
                1 => session.work(at, stream, &[(op.at, 4, Act::Read)]),
                2 => session.work(at, stream, &[(op.at, 4, Act::Write)]),
                4 => session.work(at, stream, &[(op.at, 8, Act::Read)]),
                5 => session.work(at, stream, &[(op.at, 8, Act::Write)]),
                _ => {}
            }
        }
    })
}
