//! A driver that wraps another one and checks that its caller keeps the contract. On request it records each call.
//!
//! If the device itself refuses a call as wrong (an unknown handle, a size, a place), that is a breach. This driver
//! also finds breaches that the device cannot see: work on memory that is not mapped, memory that is unmapped or freed
//! under work in flight, and leaks. It asks the device whether work has completed, through an event recorded after the
//! work; it knows no order.
//!
//! A breach is recorded and the call is refused, because the device would write where no memory is.

mod call;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

pub use call::{Call, WorkCall};

use crate::contract::Around;
use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{
    CallKind, Driver, DriverError, EventHandle, Fence, RawChunk, RawEvent, RawStream, RawTime, Result, StreamFlags,
    Work,
};

/// A driver that checks its caller against the contract.
#[derive(Debug)]
pub struct Checked<D> {
    device: D,
    keeps_calls: bool,
    state: Mutex<Leaf, State>,
}

/// A breach of the contract by the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The call that revealed it.
    pub kind: CallKind,
    /// The breach, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.what)
    }
}

/// The objects that were made and not destroyed, by address or handle, with their bytes; and the calls and breaches so
/// far.
#[derive(Debug, Default)]
struct State {
    ranges: BTreeMap<u64, u64>,
    chunks: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, u64>,
    host: BTreeMap<u64, u64>,
    streams: BTreeSet<u64>,
    /// The device's event by its name here. The device may return the same event again; names here are never reused.
    events: BTreeMap<u64, RawEvent>,
    recorded: u64,
    times: BTreeSet<u64>,
    /// Work that was in flight at the last query, each with an event recorded after it.
    pending: Vec<(WorkCall, RawEvent)>,
    calls: Vec<Call>,
    violations: Vec<Violation>,
}

impl<D: Driver> Checked<D> {
    /// Wraps a device with the checks.
    pub fn new(device: D) -> Self {
        Self { device, keeps_calls: false, state: Mutex::default() }
    }

    /// As [`new`](Self::new), and records each call.
    pub fn recording(device: D) -> Self {
        Self { keeps_calls: true, ..Self::new(device) }
    }

    /// Returns the wrapped device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Takes the recorded calls.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns the breaches of the contract so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Returns the objects that a program should have released by its end: mappings, chunks, ranges, host memory,
    /// streams, events, times.
    pub fn leaks(&self) -> Vec<String> {
        let State { ranges, chunks, mappings, host, streams, events, times, .. } = &*self.lock();
        let mut leaks: Vec<String> =
            mappings.iter().map(|(at, bytes)| format!("{bytes} B are mapped at {at:#x}")).collect();
        leaks.extend(chunks.iter().map(|(chunk, bytes)| format!("chunk {chunk} of {bytes} B lives")));
        leaks.extend(ranges.iter().map(|(at, bytes)| format!("{bytes} B are reserved at {at:#x}")));
        leaks.extend(host.iter().map(|(at, bytes)| format!("{bytes} B of the host at {at:#x} are kept")));
        leaks.extend(streams.iter().map(|stream| format!("stream {stream} is open")));
        leaks.extend(events.keys().map(|event| format!("event {event} is not forgotten")));
        leaks.extend(times.iter().map(|time| format!("time {time} is not forgotten")));
        leaks
    }

    /// Asserts that the contract was kept and that nothing leaks.
    ///
    /// # Panics
    /// If not, with the list.
    #[track_caller]
    pub fn assert_clean(&self) {
        let (violations, leaks) = (self.violations(), self.leaks());
        assert!(violations.is_empty() && leaks.is_empty(), "violations: {violations:#?}\nleaks: {leaks:#?}");
    }

    fn lock(&self) -> Guard<'_, State> {
        lock(&self.state)
    }

    /// Records the outcome of a call: the new object and the call, or a breach if the device refused the call as wrong.
    fn seen<R>(&self, kind: CallKind, outcome: Result<R>, act: impl FnOnce(&mut State, &R) -> Call) -> Result<R> {
        let mut state = self.lock();
        if let Err(error @ (DriverError::UnknownHandle { .. } | DriverError::Failed { .. })) = &outcome {
            state.violations.push(Violation { kind, what: error.to_string() });
        }
        let call = match &outcome {
            Ok(answer) => act(&mut state, answer),
            Err(error) => Call::Refused { kind, error: error.clone() },
        };
        if self.keeps_calls {
            state.calls.push(call);
        }
        outcome
    }

    /// Releases an object. It is removed from the table before the device releases it, because the device may return it
    /// again at once.
    fn give_back(
        &self,
        kind: CallKind,
        of: fn(&mut State) -> &mut BTreeMap<u64, u64>,
        name: u64,
        act: impl FnOnce() -> Result<()>,
        call: Call,
    ) -> Result<()> {
        let struck = of(&mut self.lock()).remove(&name);
        let outcome = act();
        if let (Err(_), Some(bytes)) = (&outcome, struck) {
            of(&mut self.lock()).insert(name, bytes);
        }
        self.seen(kind, outcome, |_, ()| call)
    }

    /// Records a breach that the device cannot see, and refuses the call.
    fn breach(&self, kind: CallKind, what: String) -> Result<()> {
        let error = failed(kind.name(), what);
        self.seen(kind, Err(error), |_, &()| unreachable!("it is refused"))
    }

    /// Returns the device's event for a name that is not forgotten.
    fn find_event(&self, kind: CallKind, event: RawEvent) -> Result<RawEvent> {
        let found = self.lock().events.get(&event.0).copied();
        let answer = found.ok_or_else(|| unknown(kind.name(), "event", event.0));
        if answer.is_ok() { answer } else { self.seen(kind, answer, |_, _| unreachable!("it is refused")) }
    }

    /// Records the outcome of a call that returns an event, and names the event.
    fn named(&self, stream: RawStream, outcome: Result<RawEvent>) -> Result<RawEvent> {
        let mut named = None;
        self.seen(CallKind::Record, outcome, |state, &event| {
            let event = state.name_event(event);
            named = Some(event);
            Call::Record { stream, event }
        })?;
        Ok(named.expect("it succeeded"))
    }

    /// Returns work in flight that uses some bytes; a lost device has none.
    fn in_flight(&self, uses: impl Fn(&WorkCall) -> bool) -> Option<WorkCall> {
        let pending: Vec<_> = self.lock().pending.iter().filter(|(work, _)| uses(work)).copied().collect();
        pending.into_iter().find(|(_, event)| self.device.peek(*event) == Ok(false)).map(|(work, _)| work)
    }

    /// Checks the caller's promise of `submit` as far as it can be seen: the ranges that the work touches are mapped.
    /// If there are other devices, an address may belong to one of them.
    fn check_work(&self, work: WorkCall) -> Result<()> {
        let state = self.lock();
        let is_ours = |at: u64| state.ranges.range(..=at).next_back().is_some_and(|(start, bytes)| at - start < *bytes);
        let has_peers = self.device.peer().is_some();
        let unmapped = |&(at, bytes): &(u64, u64)| (is_ours(at) || !has_peers) && !state.is_mapped(at, bytes);
        let found = work.touched().find(unmapped);
        drop(state);
        match found {
            Some((at, bytes)) => {
                self.breach(CallKind::Submit, format!("{work:?}: {bytes} B at {at:#x} are not all mapped"))
            }
            None => Ok(()),
        }
    }

    /// Records an event after the last submitted work.
    fn follow(&self, stream: RawStream, work: WorkCall) {
        if work == WorkCall::Run {
            return;
        }
        let before = std::mem::take(&mut self.lock().pending);
        let (done, mut pending): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|(_, event)| self.device.peek(*event) != Ok(false));
        done.into_iter().for_each(|(_, event)| self.device.forget(event));
        pending.extend(self.device.record(stream).ok().map(|event| (work, event)));
        self.lock().pending.extend(pending);
    }
}

impl State {
    /// Returns `true` if every byte of `at..at + bytes` is mapped.
    fn is_mapped(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let mut covered = at;
        while covered < end {
            match self.mappings.range(..=covered).next_back() {
                Some((&start, &size)) if start + size > covered => covered = start + size,
                _ => return false,
            }
        }
        true
    }

    fn name_event(&mut self, event: RawEvent) -> RawEvent {
        self.recorded += 1;
        self.events.insert(self.recorded, event);
        RawEvent(self.recorded)
    }
}

// SAFETY: each call is refused or passed on unchanged; in addition this driver only records events.
unsafe impl<D: Driver> Around for Checked<D> {
    type Device = D;

    fn around(&self) -> &D {
        &self.device
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.seen(CallKind::Reserve, self.device.reserve(bytes), |state, &at| {
            state.ranges.insert(at, bytes);
            Call::Reserve { bytes, at }
        })
    }

    unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        let act = || unsafe { self.device.unreserve(at, bytes) };
        self.give_back(CallKind::Unreserve, |it| &mut it.ranges, at, act, Call::Unreserve { at, bytes })
    }

    fn create(&self, bytes: u64) -> Result<RawChunk> {
        self.seen(CallKind::Create, self.device.create(bytes), |state, &chunk| {
            state.chunks.insert(chunk.0, bytes);
            Call::Create { bytes, chunk }
        })
    }

    fn create_shareable(&self, bytes: u64) -> Result<RawChunk> {
        let chunk = self.device.create_shareable(bytes)?;
        self.lock().chunks.insert(chunk.0, bytes);
        Ok(chunk)
    }

    fn import(&self, file: std::os::fd::OwnedFd, bytes: u64) -> Result<RawChunk> {
        let chunk = self.device.import(file, bytes)?;
        self.lock().chunks.insert(chunk.0, bytes);
        Ok(chunk)
    }

    fn import_to_read(&self, file: std::os::fd::OwnedFd, bytes: u64) -> Result<RawChunk> {
        let chunk = self.device.import_to_read(file, bytes)?;
        self.lock().chunks.insert(chunk.0, bytes);
        Ok(chunk)
    }

    fn destroy(&self, chunk: RawChunk) -> Result<()> {
        let act = || self.device.destroy(chunk);
        self.give_back(CallKind::Destroy, |it| &mut it.chunks, chunk.0, act, Call::Destroy { chunk })
    }

    unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        let outcome = unsafe { self.device.map(chunk, at, bytes) };
        self.seen(CallKind::Map, outcome, |state, ()| {
            state.mappings.insert(at, bytes);
            Call::Map { chunk, at, bytes }
        })
    }

    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()> {
        let overlaps = |(start, size): (u64, u64)| start < at + bytes && at < start.saturating_add(size);
        if let Some(work) = self.in_flight(|work| work.touched().any(overlaps)) {
            let what = format!("{work:?} is in flight and touches {bytes} B at {at:#x}");
            return self.breach(CallKind::Unmap, what);
        }
        // SAFETY: the caller's promise is passed on.
        let act = || unsafe { self.device.unmap(at, bytes) };
        self.give_back(CallKind::Unmap, |it| &mut it.mappings, at, act, Call::Unmap { at, bytes })
    }

    fn alloc_host(&self, bytes: u64) -> Result<u64> {
        self.seen(CallKind::AllocHost, self.device.alloc_host(bytes), |state, &at| {
            state.host.insert(at, bytes);
            Call::AllocHost { bytes, at }
        })
    }

    unsafe fn free_host(&self, at: u64) -> Result<()> {
        let bytes = self.lock().host.get(&at).copied().unwrap_or(0);
        let uses =
            |work: &WorkCall| work.on_host().is_some_and(|(start, size)| start < at + bytes && at < start + size);
        if let Some(work) = self.in_flight(uses) {
            let what = format!("{work:?} is in flight and uses {bytes} B at {at:#x}");
            return self.breach(CallKind::FreeHost, what);
        }
        // SAFETY: the caller's promise is passed on.
        let act = || unsafe { self.device.free_host(at) };
        self.give_back(CallKind::FreeHost, |it| &mut it.host, at, act, Call::FreeHost { at })
    }

    fn open_stream(&self, flags: StreamFlags) -> Result<RawStream> {
        self.seen(CallKind::OpenStream, self.device.open_stream(flags), |state, &stream| {
            state.streams.insert(stream.0);
            Call::OpenStream { label: flags.label.numbers.1, stream }
        })
    }

    fn close_stream(&self, stream: RawStream) -> Result<()> {
        self.seen(CallKind::CloseStream, self.device.close_stream(stream), |state, ()| {
            state.streams.remove(&stream.0);
            Call::CloseStream { stream }
        })
    }

    unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
        let Some(given) = &*work else { return Ok(()) };
        let what = WorkCall::from(given);
        self.check_work(what)?;
        // SAFETY: the caller's promise is passed on.
        let outcome = unsafe { self.device.submit(stream, work) };
        self.seen(CallKind::Submit, outcome, |_, ()| Call::Submit { stream, work: what })?;
        self.follow(stream, what);
        Ok(())
    }

    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        self.named(stream, self.device.record(stream))
    }

    fn record_apart(&self, stream: RawStream) -> Result<RawEvent> {
        self.named(stream, self.device.record_apart(stream))
    }

    fn record_all(&self) -> Result<Option<RawEvent>> {
        let event = self.device.record_all()?;
        Ok(event.map(|event| self.lock().name_event(event)))
    }

    fn export_event(&self, stream: RawStream) -> Result<(RawEvent, EventHandle)> {
        let (event, name) = self.device.export_event(stream)?;
        Ok((self.lock().name_event(event), name))
    }

    fn import_event(&self, name: &EventHandle) -> Result<RawEvent> {
        let event = self.device.import_event(name)?;
        Ok(self.lock().name_event(event))
    }

    fn fence(&self, event: RawEvent) -> Result<Fence> {
        self.device.fence(self.find_event(CallKind::Wait, event)?)
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let found = self.find_event(CallKind::Wait, event)?;
        self.seen(CallKind::Wait, self.device.wait(stream, found), |_, ()| Call::Wait { stream, event })
    }

    fn is_over(&self, event: RawEvent) -> Result<bool> {
        let found = self.find_event(CallKind::IsOver, event)?;
        self.seen(CallKind::IsOver, self.device.is_over(found), |_, &over| Call::IsOver { event, over })
    }

    fn peek(&self, event: RawEvent) -> Result<bool> {
        let found = self.find_event(CallKind::IsOver, event)?;
        self.seen(CallKind::IsOver, self.device.peek(found), |_, &over| Call::IsOver { event, over })
    }

    fn block_on(&self, event: RawEvent) -> Result<()> {
        let found = self.find_event(CallKind::BlockOn, event)?;
        self.seen(CallKind::BlockOn, self.device.block_on(found), |_, ()| Call::BlockOn { event })
    }

    fn forget(&self, event: RawEvent) {
        let found = self.lock().events.remove(&event.0);
        found.into_iter().for_each(|event| self.device.forget(event));
        // It cannot fail.
        let _ = self.seen(CallKind::Forget, Ok(()), |_, ()| Call::Forget { event });
    }

    fn record_time(&self, stream: RawStream) -> Result<RawTime> {
        self.seen(CallKind::Record, self.device.record_time(stream), |state, &time| {
            state.times.insert(time.0);
            Call::RecordTime { stream, time }
        })
    }

    fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> {
        let describe = |_: &mut State, &elapsed: &Duration| Call::Elapsed { from, to, elapsed };
        self.seen(CallKind::IsOver, self.device.elapsed(from, to), describe)
    }

    fn forget_time(&self, time: RawTime) {
        self.lock().times.remove(&time.0);
        self.device.forget_time(time);
        // It cannot fail.
        let _ = self.seen(CallKind::Forget, Ok(()), |_, ()| Call::ForgetTime { time });
    }
}
