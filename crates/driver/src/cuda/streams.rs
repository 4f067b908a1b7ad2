//! Streams: ours, the default ones, and those adopted from the program.
//!
//! Knows which streams are open and which threads may use them, but no work. CUDA reuses the handle of a closed stream
//! for a new one and does not always notice a stale handle, so our handles are numbers of our own.
//!
//! A stream may belong to another context of the device. Memory belongs to the device, and calls for that stream are
//! made in its own context.
//!
//! A stream whose native handle the program has is *foreign*: the program may capture it. Such a stream is first
//! checked for a capture. While it captures, it records no events, is not made to wait and gets no work
//! (`not-captured`).
//!
//! Invariants: `open-native`: while a slot's lock is held for reading, its stream is not closed; `own-thread`: only the
//! thread that opened the per-thread default stream submits work to it, because on another thread the handle names
//! another stream.

use std::sync::Arc;

use super::PLACES_MAX;
use super::abi::{Code, Context, EVENT_DISABLE_TIMING, Event, STREAM_DEFAULT, STREAM_NON_BLOCKING, Stream};
use super::apart::{LegacyCall, capture_call, legacy_call};
use super::ends::End;
use super::events::Events;
use super::gpu::{Entered, Gpu};
use crate::errors::{failed, unknown};
use crate::locks::{self, Leaf, Mutex, ReadGuard, RwLock, lock, read, write};
use crate::places::Places;
use crate::process::{ThreadNumber, this_thread};
use crate::{DriverError, RawStream, Result, StreamFlags, Tie};

/// The replacement for a stream of another context. An event belongs to one context, and the program may destroy that
/// context while events of the stream are in use. So events are recorded in `follower`, a stream of the primary
/// context, which first waits for `event`.
#[derive(Clone, Copy, Debug)]
struct Bridge {
    /// The context of the program's stream.
    context: Context,
    /// An event of that context, recorded again and again.
    event: Event,
    /// A stream of ours.
    follower: Stream,
}

/// An open stream.
#[derive(Clone, Copy, Debug)]
struct Open {
    native: Stream,
    /// Set for a stream of another context of the device.
    bridge: Option<Bridge>,
    /// `true` if the driver must destroy it.
    is_owned: bool,
    /// For the per-thread default stream: its thread, the only one that may use it.
    thread: Option<ThreadNumber>,
    /// While this driver captures the stream: the stream in which events are recorded instead.
    stand_in: Option<Stream>,
    /// `true` if only this driver submits work to it: it is ours and non-blocking, and no caller has its handle.
    is_alone: bool,
    /// `true` if the program has its handle.
    is_foreign: bool,
}

#[derive(Debug, Default)]
struct Occupant {
    /// The number of times that the slot was taken.
    generation: u32,
    open: Option<Open>,
}

/// A stream's slot. It shares no cache line with another slot.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    occupant: RwLock<locks::CudaStream, Occupant>,
    /// Used while only this driver submits work to the stream (`is_alone`).
    end: End,
}

/// The streams of one device.
#[derive(Debug)]
pub(super) struct Streams {
    gpu: Arc<Gpu>,
    slots: Places<Slot>,
    /// Events are recorded in it instead of in streams that capture. 0 before the first capture.
    stand_in: Mutex<Leaf, Stream>,
    /// Held while an event is recorded in a stream of another context.
    crossing: Mutex<Leaf, ()>,
}

/// An open stream, which is not closed while this exists.
pub(super) struct Held<'a> {
    pub(super) native: Stream,
    bridge: Option<Bridge>,
    /// `true` if the handle names another stream on this thread.
    is_elsewhere: bool,
    stand_in: Option<Stream>,
    is_foreign: bool,
    /// Set if only this driver submits work to the stream, and the stream does not capture.
    pub(super) end: Option<&'a End>,
    _slot: ReadGuard<'a, Occupant>,
    /// Set for the legacy default stream and for a stream of the program's (legacy-apart).
    _legacy: Option<LegacyCall>,
}

impl Held<'_> {
    /// Locks for legacy-apart if the stream needs it. In place, because moving `Held` copies the slot's guard.
    #[inline]
    fn keep_apart(&mut self) {
        if self.native == Stream::LEGACY || self.is_foreign {
            self._legacy = Some(legacy_call());
        }
    }
}

impl Streams {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, slots: Places::new(PLACES_MAX), stand_in: Mutex::default(), crossing: Mutex::default() }
    }

    pub(super) fn open(&self, StreamFlags { tie, priority, .. }: StreamFlags) -> Result<RawStream> {
        const CALL: &str = "open_stream";
        self.gpu.check_lost()?;
        let entered = self.gpu.enter_apart(CALL)?;
        let flags = match tie {
            Tie::Legacy => return self.enlist(CALL, default_stream(Stream::LEGACY)),
            Tie::PerThread => return self.enlist(CALL, default_stream(Stream::PER_THREAD)),
            Tie::Blocking => STREAM_DEFAULT,
            Tie::Free => STREAM_NON_BLOCKING,
        };
        let native = entered.open_stream(CALL, flags, priority)?;
        self.enlist(CALL, Open { is_alone: tie == Tie::Free, ..owned(native) })
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
        // SAFETY: the caller promises that the stream is open.
        self.gpu.check(CALL, unsafe { (entered.table.stream_context)(native, &raw mut context) })?;
        drop(entered);
        if !self.gpu.has_context(CALL, context)? {
            return Err(failed(CALL, "the stream is of another device: adopt it there"));
        }
        let bridge = if context == self.gpu.context() { None } else { Some(self.bridge(CALL, context)?) };
        self.enlist(CALL, Open { bridge, is_owned: false, is_foreign: true, ..owned(native) })
    }

    fn bridge(&self, call: &'static str, context: Context) -> Result<Bridge> {
        let follower = self.gpu.enter(call)?.open_stream(call, STREAM_NON_BLOCKING, 0)?;
        let entered = self.gpu.enter_other(call, context);
        match entered.and_then(|entered| entered.open_event(call, EVENT_DISABLE_TIMING)) {
            Ok(event) => Ok(Bridge { context, event, follower }),
            Err(error) => {
                self.destroy(owned(follower));
                Err(error)
            }
        }
    }

    /// Destroys the event and the follower. If the program has destroyed the context, the event is already gone.
    fn take_down(&self, bridge: Bridge) {
        if let Ok(entered) = self.gpu.enter_other("close_stream", bridge.context) {
            // SAFETY: the event is ours and is not used again.
            let _ = unsafe { (entered.table.close_event)(bridge.event) };
        }
        self.destroy(owned(bridge.follower));
    }

    /// Returns the native handle of a stream for foreign code, which may submit work to the stream from now on.
    pub(super) fn hand_out(&self, call: &'static str, stream: RawStream) -> Result<Stream> {
        let Held { native, is_foreign, .. } = self.hold(call, stream)?;
        if !is_foreign {
            self.change(call, stream, |open| {
                (open.is_alone, open.is_foreign) = (false, true);
                Ok(())
            })?;
        }
        Ok(native)
    }

    /// Closes a stream. If the library refuses, it stays open.
    pub(super) fn close(&self, stream: RawStream, events: &Events) -> Result<()> {
        const CALL: &str = "close_stream";
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(CALL, "stream", stream.0))?;
        let mut occupant = write(&slot.occupant);
        let open = occupant
            .open
            .filter(|_| occupant.generation == generation)
            .ok_or_else(|| unknown(CALL, "stream", stream.0))?;
        if open.is_owned {
            let entered = self.gpu.enter_apart(CALL)?;
            // SAFETY: the stream is ours and open, and no other thread uses it now (open-native).
            self.gpu.check(CALL, unsafe { (entered.table.close_stream)(open.native) })?;
        }
        occupant.open = None;
        slot.end.clear(events);
        drop(occupant);
        self.slots.give_back(number);
        open.bridge.into_iter().for_each(|bridge| self.take_down(bridge));
        Ok(())
    }

    /// Returns an open stream that the calling thread may use.
    #[inline]
    pub(super) fn hold(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let mut held = self.find(call, stream)?;
        if held.is_elsewhere {
            return Err(elsewhere(call));
        }
        held.keep_apart();
        Ok(held)
    }

    #[inline]
    fn find(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(call, "stream", stream.0))?;
        let occupant = read(&slot.occupant);
        match occupant.open {
            Some(open) if occupant.generation == generation => {
                let is_elsewhere = open.thread.is_some_and(|thread| thread != this_thread());
                let Open { native, bridge, stand_in, is_alone, is_foreign, .. } = open;
                let end = (is_alone && stand_in.is_none()).then_some(&slot.end);
                Ok(Held { native, bridge, is_elsewhere, stand_in, is_foreign, end, _slot: occupant, _legacy: None })
            }
            _ => Err(unknown(call, "stream", stream.0)),
        }
    }

    /// As [`hold`](Self::hold), for an event at the stream's end, on any thread. A thread cannot name the per-thread
    /// default stream of another thread. The event is then recorded in the legacy default stream, which comes after
    /// that stream.
    #[inline]
    pub(super) fn hold_to_record(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let mut held = self.find(call, stream)?;
        if held.is_elsewhere {
            held.native = Stream::LEGACY;
        }
        if let Some(stand_in) = held.stand_in {
            (held.native, held.bridge, held.is_foreign) = (stand_in, None, false);
        }
        held.keep_apart();
        self.check_captured(call, &held)?;
        self.cross(call, &mut held)?;
        Ok(held)
    }

    /// Refuses a stream that the program captures (not-captured).
    #[inline]
    pub(super) fn check_captured(&self, call: &'static str, held: &Held<'_>) -> Result<()> {
        if held.is_foreign && self.is_captured(call, held)? { Err(DriverError::Captured { call }) } else { Ok(()) }
    }

    /// Returns `true` if the program captures a stream, as far as this thread can query that.
    pub(super) fn is_foreign_captured(&self, call: &'static str, stream: RawStream) -> Result<bool> {
        let mut held = self.find(call, stream)?;
        if held.is_elsewhere {
            held.native = Stream::LEGACY;
        }
        held.keep_apart();
        Ok(held.is_foreign && self.is_captured(call, &held)?)
    }

    /// Returns `true` if the program captures a foreign stream. Captures of this driver itself do not count.
    pub(super) fn is_captured(&self, call: &'static str, held: &Held<'_>) -> Result<bool> {
        if held.stand_in.is_some() {
            return Ok(false);
        }
        let (entered, mut status) = (self.enter(call, held)?, 0);
        // SAFETY: the stream is held in its context, and the pointer is valid for a number.
        match unsafe { (entered.table.is_capturing)(held.native, &raw mut status) } {
            // The legacy default stream cannot be used while a stream that synchronises with it captures.
            Code::CAPTURE_IMPLICIT => Ok(true),
            code => entered.check(call, code).map(|()| status != 0),
        }
    }

    /// Makes the follower of a stream of another context wait for it, and holds the follower instead.
    fn cross(&self, call: &'static str, held: &mut Held<'_>) -> Result<()> {
        let Some(Bridge { context, event, follower }) = held.bridge else { return Ok(()) };
        // Held from the record to the wait, because another thread may use the same stream.
        let _one = lock(&self.crossing);
        let entered = self.gpu.enter_other(call, context)?;
        // SAFETY: the event and the stream belong to that context, which is current.
        entered.check(call, unsafe { (entered.table.record_event)(event, held.native) })?;
        drop(entered);
        let entered = self.gpu.enter(call)?;
        // SAFETY: the stream is ours, and the event belongs to the same device.
        self.gpu.check(call, unsafe { (entered.table.wait_event)(follower, event, 0) })?;
        held.native = follower;
        Ok(())
    }

    /// Enters the context that a stream is used in.
    #[inline]
    pub(super) fn enter(&self, call: &'static str, held: &Held<'_>) -> Result<Entered<'_>> {
        self.gpu.enter_other(call, self.context(held))
    }

    /// Returns the context of a stream.
    #[inline]
    pub(super) fn context(&self, held: &Held<'_>) -> Context {
        held.bridge.map_or(self.gpu.context(), |bridge| bridge.context)
    }

    /// As [`hold`](Self::hold), for a stream that does not capture.
    #[inline]
    pub(super) fn hold_idle(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let held = self.hold(call, stream)?;
        if held.stand_in.is_some() {
            return Err(failed(call, "the stream captures"));
        }
        self.check_captured(call, &held)?;
        Ok(held)
    }

    /// As [`hold`](Self::hold), for a stream that the program does not capture. This driver may capture it.
    #[inline]
    pub(super) fn hold_to_submit(&self, call: &'static str, stream: RawStream) -> Result<Held<'_>> {
        let held = self.hold(call, stream)?;
        self.check_captured(call, &held)?;
        Ok(held)
    }

    /// Returns the stream in which events are recorded instead of in streams that capture. The caller makes it wait for
    /// the work before the capture.
    pub(super) fn stand_in(&self) -> Result<Stream> {
        const CALL: &str = "begin_capture";
        let mut stand_in = lock(&self.stand_in);
        if *stand_in == Stream::default() {
            *stand_in = self.gpu.enter(CALL)?.open_stream(CALL, STREAM_NON_BLOCKING, 0)?;
        }
        Ok(*stand_in)
    }

    /// Marks a stream as capturing if `begin` succeeds. `stand_in` waits for the work before the capture.
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
            if open.bridge.is_some() {
                let reason = "the stream is of another context than the device's primary one, and cannot capture";
                return Err(failed("begin_capture", reason));
            }
            let _apart = capture_call();
            begin(open.native)?;
            open.stand_in = Some(stand_in);
            Ok(())
        })
    }

    /// Ends a stream's capture, also if `end` fails.
    pub(super) fn end_capture<R>(&self, stream: RawStream, end: impl FnOnce(Stream) -> Result<R>) -> Result<R> {
        self.change("end_capture", stream, |open| {
            open.stand_in.take().ok_or_else(|| failed("end_capture", "the stream does not capture"))?;
            let _apart = capture_call();
            end(open.native)
        })
    }

    /// Changes an open stream while no other thread uses it.
    fn change<R>(&self, call: &'static str, stream: RawStream, act: impl FnOnce(&mut Open) -> Result<R>) -> Result<R> {
        let (number, generation) = unpack(stream);
        let slot = self.slots.find(number).ok_or_else(|| unknown(call, "stream", stream.0))?;
        let mut occupant = write(&slot.occupant);
        let is_live = occupant.generation == generation;
        let open = occupant.open.as_mut().filter(|_| is_live).ok_or_else(|| unknown(call, "stream", stream.0))?;
        if open.thread.is_some_and(|thread| thread != this_thread()) {
            return Err(elsewhere(call));
        }
        act(open)
    }

    fn enlist(&self, call: &'static str, open: Open) -> Result<RawStream> {
        let Some((number, slot)) = self.slots.take(Slot::default) else {
            open.bridge.into_iter().for_each(|bridge| self.take_down(bridge));
            self.destroy(open);
            return Err(failed(call, "too many streams are open"));
        };
        let mut occupant = write(&slot.occupant);
        occupant.generation += 1;
        occupant.open = Some(open);
        Ok(RawStream(u64::from(occupant.generation) << 32 | u64::from(number)))
    }

    fn destroy(&self, open: Open) {
        if let (true, Ok(entered)) = (open.is_owned, self.gpu.enter("close_stream")) {
            // SAFETY: the stream is ours, and no other code uses it. If this fails, the context keeps it.
            let _ = unsafe { (entered.table.close_stream)(open.native) };
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for slot in self.slots.iter() {
            let open = write(&slot.occupant).open.take();
            open.into_iter().for_each(|open| {
                open.bridge.into_iter().for_each(|bridge| self.take_down(bridge));
                self.destroy(open);
            });
        }
        let native = std::mem::take(self.stand_in.get_mut());
        if native != Stream::default() {
            self.destroy(owned(native));
        }
    }
}

/// Returns the entry of a default stream, which is never destroyed.
fn default_stream(native: Stream) -> Open {
    let thread = (native == Stream::PER_THREAD).then(this_thread);
    Open { is_owned: false, thread, is_foreign: true, ..owned(native) }
}

/// Returns the entry of a stream of ours.
fn owned(native: Stream) -> Open {
    Open { native, bridge: None, is_owned: true, thread: None, stand_in: None, is_alone: false, is_foreign: false }
}

fn unpack(stream: RawStream) -> (u32, u32) {
    (stream.0 as u32, (stream.0 >> 32) as u32)
}

#[cold]
fn elsewhere(call: &'static str) -> DriverError {
    failed(call, "this is the default stream of another thread, and cannot be named here")
}
