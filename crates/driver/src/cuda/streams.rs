//! Streams: ours, the default ones, and those taken over from the program.
//!
//! Knows which are open and who may use them; no marks, no work. CUDA gives a closed stream's handle to the next one
//! and does not always notice a stale one, so our handles are numbers of our own.
//!
//! Invariants: `open-native`: while a slot's lock is held for reading, its stream is not closed; `own-thread`: work
//! goes to the per-thread default stream on the thread that it was opened on, for the handle names another one
//! elsewhere.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::ThreadId;

use super::abi::{Context, STREAM_DEFAULT, STREAM_NON_BLOCKING, Stream};
use super::gpu::Gpu;
use super::slots::Slots;
use crate::ledger::failed;
use crate::{DriverError, RawStream, Result, Tie};

/// An open stream.
#[derive(Clone, Copy, Debug)]
struct Open {
    native: Stream,
    /// Whether it is ours to destroy.
    is_owned: bool,
    /// The only thread that may use it, where there is such a one.
    thread: Option<ThreadId>,
    /// Whether it captures, and who is marked in its stead.
    stand_in: Option<Stream>,
}

#[derive(Debug, Default)]
struct Occupant {
    /// How often the slot was taken.
    generation: u32,
    open: Option<Open>,
}

/// A stream's place; no cache line is shared with another's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(RwLock<Occupant>);

/// The streams of one device.
#[derive(Debug)]
pub(super) struct Streams {
    gpu: Arc<Gpu>,
    slots: Slots<Slot>,
    /// Marked in the stead of streams that capture, once there was one: 0 until then.
    stand_in: Mutex<Stream>,
}

/// An open stream, not closed while this lives.
pub(super) struct Held<'a> {
    pub(super) native: Stream,
    /// Whether the handle names another stream on this thread.
    is_elsewhere: bool,
    stand_in: Option<Stream>,
    _slot: RwLockReadGuard<'a, Occupant>,
}

impl Streams {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, slots: Slots::new(), stand_in: Mutex::default() }
    }

    pub(super) fn open(&self, tie: Tie) -> Result<RawStream> {
        const CALL: &str = "open_stream";
        self.gpu.check_lost()?;
        let entered = self.gpu.enter(CALL)?;
        let flags = match tie {
            Tie::Legacy => return self.enlist(CALL, default_stream(Stream::LEGACY)),
            Tie::PerThread => return self.enlist(CALL, default_stream(Stream::PER_THREAD)),
            Tie::Blocking => STREAM_DEFAULT,
            Tie::Free => STREAM_NON_BLOCKING,
        };
        let mut native = Stream::default();
        // SAFETY: a place for a stream (context-current).
        self.gpu.check(CALL, unsafe { (entered.table.open_stream)(&raw mut native, flags) })?;
        self.enlist(CALL, Open { native, is_owned: true, thread: None, stand_in: None })
    }

    /// # Safety
    /// As of `Driver::adopt_stream`.
    pub(super) unsafe fn adopt(&self, native: u64) -> Result<RawStream> {
        const CALL: &str = "adopt_stream";
        self.gpu.check_lost()?;
        let native = match Stream(native as usize) {
            Stream(0) => return self.enlist(CALL, default_stream(Stream::LEGACY)),
            native @ (Stream::LEGACY | Stream::PER_THREAD) => return self.enlist(CALL, default_stream(native)),
            other => other,
        };
        let (entered, mut context) = (self.gpu.enter(CALL)?, Context::default());
        // SAFETY: the caller's promise: an open stream.
        self.gpu.check(CALL, unsafe { (entered.table.stream_context)(native, &raw mut context) })?;
        if !self.gpu.is_ours(context) {
            return Err(failed(CALL, "the stream is of another context than the device's primary one"));
        }
        self.enlist(CALL, Open { native, is_owned: false, thread: None, stand_in: None })
    }

    /// Where the device refuses, it stays open.
    pub(super) fn close(&self, stream: RawStream) -> Result<()> {
        const CALL: &str = "close_stream";
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(CALL, stream))?;
        let mut occupant = slot.0.write().unwrap_or_else(PoisonError::into_inner);
        let open = occupant.open.filter(|_| occupant.generation == generation).ok_or_else(|| unknown(CALL, stream))?;
        if open.is_owned {
            let entered = self.gpu.enter(CALL)?;
            // SAFETY: ours, open, and used by nobody else at present (open-native).
            self.gpu.check(CALL, unsafe { (entered.table.close_stream)(open.native) })?;
        }
        occupant.open = None;
        drop(occupant);
        self.slots.give_back(number);
        Ok(())
    }

    /// An open stream that the calling thread may use.
    #[inline]
    pub(super) fn hold(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let held = self.find(call, stream)?;
        if held.is_elsewhere { Err(elsewhere(call)) } else { Ok(held) }
    }

    #[inline]
    fn find(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(call, stream))?;
        let occupant = slot.0.read().unwrap_or_else(PoisonError::into_inner);
        match occupant.open {
            Some(open) if occupant.generation == generation => {
                let is_elsewhere = open.thread.is_some_and(|thread| thread != std::thread::current().id());
                Ok(Held { native: open.native, is_elsewhere, stand_in: open.stand_in, _slot: occupant })
            }
            _ => Err(unknown(call, stream)),
        }
    }

    /// As [`hold`](Self::hold), to mark the stream's end, from any thread: where the per-thread default stream cannot
    /// be named, the legacy one comes after it.
    #[inline]
    pub(super) fn hold_to_mark(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let mut held = self.find(call, stream)?;
        if held.is_elsewhere {
            held.native = Stream::LEGACY;
        }
        held.native = held.stand_in.unwrap_or(held.native);
        Ok(held)
    }

    /// As [`hold`](Self::hold), for a stream that does not capture.
    #[inline]
    pub(super) fn hold_idle(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let held = self.hold(call, stream)?;
        if held.stand_in.is_none() { Ok(held) } else { Err(failed(call, "the stream captures")) }
    }

    /// A stream to be marked in the stead of those that capture: it is made to come after what they had before.
    pub(super) fn stand_in(&self) -> Result<Stream> {
        const CALL: &str = "begin_capture";
        let mut stand_in = self.stand_in.lock().unwrap_or_else(PoisonError::into_inner);
        if *stand_in == Stream::default() {
            let entered = self.gpu.enter(CALL)?;
            // SAFETY: a place for a stream (context-current).
            let code = unsafe { (entered.table.open_stream)(&raw mut *stand_in, STREAM_NON_BLOCKING) };
            self.gpu.check(CALL, code)?;
        }
        Ok(*stand_in)
    }

    /// A stream begins to capture where `begin` does well; `stand_in` comes after what it had before.
    pub(super) fn begin_capture(
        &self,
        stream: RawStream,
        stand_in: Stream,
        begin: impl FnOnce(Stream) -> Result<()>,
    ) -> Result<()> {
        self.change("begin_capture", stream, |open| {
            if open.stand_in.is_some() {
                return Err(failed("begin_capture", "the stream captures already"));
            }
            begin(open.native)?;
            open.stand_in = Some(stand_in);
            Ok(())
        })
    }

    /// A stream captures no more, whatever `end` says.
    pub(super) fn end_capture<R>(&self, stream: RawStream, end: impl FnOnce(Stream) -> Result<R>) -> Result<R> {
        self.change("end_capture", stream, |open| {
            open.stand_in.take().ok_or_else(|| failed("end_capture", "the stream does not capture"))?;
            end(open.native)
        })
    }

    /// Acts on an open stream while nobody else uses it.
    fn change<R>(&self, call: &'static str, stream: RawStream, act: impl FnOnce(&mut Open) -> Result<R>) -> Result<R> {
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(call, stream))?;
        let mut occupant = slot.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_live = occupant.generation == generation;
        let open = occupant.open.as_mut().filter(|_| is_live).ok_or_else(|| unknown(call, stream))?;
        if open.thread.is_some_and(|thread| thread != std::thread::current().id()) {
            return Err(elsewhere(call));
        }
        act(open)
    }

    fn enlist(&self, call: &'static str, open: Open) -> Result<RawStream> {
        let Some((number, slot)) = self.slots.take() else {
            self.destroy(open);
            return Err(failed(call, "too many streams are open"));
        };
        let mut occupant = slot.0.write().unwrap_or_else(PoisonError::into_inner);
        occupant.generation += 1;
        occupant.open = Some(open);
        Ok(RawStream(u64::from(occupant.generation) << 32 | u64::from(number)))
    }

    fn destroy(&self, open: Open) {
        if let (true, Ok(entered)) = (open.is_owned, self.gpu.enter("close_stream")) {
            // SAFETY: ours, and known to nobody else. A refusal leaves it to the context.
            let _ = unsafe { (entered.table.close_stream)(open.native) };
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for slot in self.slots.iter() {
            let open = slot.0.write().unwrap_or_else(PoisonError::into_inner).open.take();
            open.into_iter().for_each(|open| self.destroy(open));
        }
        let native = std::mem::take(self.stand_in.get_mut().unwrap_or_else(PoisonError::into_inner));
        if native != Stream::default() {
            self.destroy(Open { native, is_owned: true, thread: None, stand_in: None });
        }
    }
}

/// A default stream, which nobody destroys.
fn default_stream(native: Stream) -> Open {
    let thread = (native == Stream::PER_THREAD).then(|| std::thread::current().id());
    Open { native, is_owned: false, thread, stand_in: None }
}

fn unpack(stream: RawStream) -> (u32, u32) {
    (stream.0 as u32, (stream.0 >> 32) as u32)
}

#[cold]
fn unknown(call: &'static str, stream: RawStream) -> DriverError {
    DriverError::UnknownHandle { call, what: "stream", handle: stream.0 }
}

#[cold]
fn elsewhere(call: &'static str) -> DriverError {
    failed(call, "this is the default stream of another thread, and cannot be named here")
}
