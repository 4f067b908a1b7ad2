//! Events: recorded, waited for, timed, and named to other processes.
//!
//! Knows the device's streams; see the module above.

use std::sync::Arc;

use millpond_driver::cuda::abi::{Code, Context, Event, EventName, Stream};
use millpond_driver::{Driver, RawEvent, RawTime, StreamFlags, Work};

use super::{Device, answer, end_handle, fresh_handle, open};
use crate::between::{Named, Opened};
use crate::current;

/// An event.
#[derive(Debug)]
pub(super) struct EventState {
    pub(super) context: Context,
    /// The last recorded event, if there is one.
    pub(super) recorded: Option<RawEvent>,
    /// `true` if it takes times; `time` is the last one that it took.
    is_timed: bool,
    time: Option<RawTime>,
    reach: Reach,
}

/// The processes that can wait for an event.
#[derive(Debug)]
enum Reach {
    /// This process.
    Own,
    /// Also other processes, for which it may have a name.
    Others(Option<Named>),
    /// The event belongs to another process.
    Opened(Arc<Opened>),
}

/// The object that a wait for an event waits for.
enum Awaited {
    /// Never recorded: there is no wait.
    Nothing,
    Recorded(RawEvent),
    Opened(Arc<Opened>),
}

impl Device {
    pub(crate) fn open_event(&self, is_interprocess: bool, is_timed: bool) -> Result<Event, Code> {
        self.add_event(if is_interprocess { Reach::Others(None) } else { Reach::Own }, is_timed)
    }

    fn add_event(&self, reach: Reach, is_timed: bool) -> Result<Event, Code> {
        let handle = fresh_handle();
        let known = EventState { context: current::context(), recorded: None, is_timed, time: None, reach };
        self.state()?.events.insert(handle, known);
        Ok(Event(handle))
    }

    pub(crate) fn close_event(&self, event: Event) -> Result<(), Code> {
        let known = self.state()?.events.remove(&event.0).ok_or(Code::INVALID_HANDLE)?;
        end_handle(event.0);
        known.time.into_iter().for_each(|time| self.host.forget_time(time));
        let Reach::Others(Some(named)) = known.reach else { return Ok(()) };
        named.close().inspect_err(|code| {
            if let Ok(mut state) = self.state() {
                state.fault = Some(*code);
            }
        })
    }

    /// Makes a name of an event for other processes.
    pub(crate) fn name_event(&self, event: Event) -> Result<EventName, Code> {
        let mut state = self.state()?;
        let known = state.events.get_mut(&event.0).ok_or(Code::INVALID_HANDLE)?;
        let (Reach::Others(named @ None), Some(recorded)) = (&mut known.reach, known.recorded) else {
            return Err(Code::INVALID_HANDLE);
        };
        let (fresh, name) = Named::new()?;
        let tell = fresh.teller();
        *named = Some(fresh);
        let raw = answer(self.host.open_stream(StreamFlags::default()))?;
        answer(self.host.wait(raw, recorded))?;
        // SAFETY: the work touches no device memory.
        answer(unsafe { self.host.submit(raw, &mut Some(Work::Run(Box::new(tell)))) })?;
        answer(self.host.close_stream(raw))?;
        Ok(name)
    }

    /// Opens an event of another process.
    pub(crate) fn open_named_event(&self, name: &EventName) -> Result<Event, Code> {
        self.add_event(Reach::Opened(Arc::new(Opened::new(name)?)), false)
    }

    pub(crate) fn record(&self, event: Event, stream: Stream) -> Result<(), Code> {
        let mut state = self.state()?;
        if state.graphs.record(event, stream) {
            return Ok(());
        }
        state.graphs.spoil(stream, Code::CAPTURE_UNSUPPORTED)?;
        let raw = self.begin(&mut state, stream)?;
        // A stream and its event belong to the same context.
        let known = state.events.get_mut(&event.0).filter(|known| known.context == current::context());
        let known = known.ok_or(Code::INVALID_HANDLE)?;
        if known.is_timed {
            let former = known.time.replace(answer(self.host.record_time(raw))?);
            former.into_iter().for_each(|time| self.host.forget_time(time));
        }
        let recorded = answer(self.host.record(raw))?;
        match &known.reach {
            // Other processes wait for the former record, or made it.
            Reach::Others(Some(_)) | Reach::Opened(_) => return Err(Code::ILLEGAL_STATE),
            _ => known.recorded = Some(recorded),
        }
        Ok(())
    }

    fn recorded(&self, event: Event) -> Result<Awaited, Code> {
        let state = self.state()?;
        let known = state.events.get(&event.0).ok_or(Code::INVALID_HANDLE)?;
        Ok(match (&known.reach, known.recorded) {
            (Reach::Opened(opened), _) => Awaited::Opened(Arc::clone(opened)),
            (_, Some(recorded)) => Awaited::Recorded(recorded),
            (_, None) => Awaited::Nothing,
        })
    }

    /// Makes a stream wait for an event, which may belong to another context, also of another device.
    pub(crate) fn wait(&self, stream: Stream, event: Event) -> Result<(), Code> {
        let mut owner = None;
        let awaited = match self.recorded(event) {
            Err(_) => {
                let others = open::devices().filter(|(ordinal, _)| *ordinal != self.ordinal);
                let found = others.into_iter().find_map(|(_, other)| Some((other.recorded(event).ok()?, other)));
                let (awaited, other) = found.ok_or(Code::INVALID_HANDLE)?;
                owner = Some(other);
                awaited
            }
            own => own?,
        };
        let mut state = self.state()?;
        if state.graphs.wait(event, stream) {
            return Ok(());
        }
        state.graphs.spoil(stream, Code::CAPTURE_ISOLATION)?;
        let raw = self.begin(&mut state, stream)?;
        match (awaited, owner) {
            (Awaited::Nothing, _) => Ok(()),
            (Awaited::Recorded(recorded), None) => answer(self.host.wait(raw, recorded)),
            (Awaited::Recorded(recorded), Some(owner)) => {
                answer(self.host.wait_foreign(raw, &answer(owner.host.fence(recorded))?))
            }
            (Awaited::Opened(opened), _) => {
                let mut work = Some(Work::Run(Box::new(move || opened.block())));
                // SAFETY: the work touches no device memory.
                answer(unsafe { self.host.submit(raw, &mut work) })
            }
        }
    }

    pub(crate) fn query(&self, event: Event) -> Result<(), Code> {
        self.check_unsafe()?;
        let is_over = match self.recorded(event)? {
            Awaited::Nothing => true,
            Awaited::Recorded(recorded) => answer(self.host.is_over(recorded))?,
            Awaited::Opened(opened) => opened.is_over(),
        };
        if is_over { Ok(()) } else { Err(Code::NOT_READY) }
    }

    pub(crate) fn block_on(&self, event: Event) -> Result<(), Code> {
        self.check_unsafe()?;
        match self.recorded(event)? {
            Awaited::Nothing => Ok(()),
            Awaited::Recorded(recorded) => answer(self.host.block_on(recorded)),
            Awaited::Opened(opened) => {
                opened.block();
                Ok(())
            }
        }
    }

    /// Returns the time from one record to another, in milliseconds.
    pub(crate) fn elapsed(&self, from: Event, to: Event) -> Result<f32, Code> {
        for event in [from, to] {
            self.query(event)?;
        }
        let state = self.state()?;
        let time = |event: Event| {
            let known = state.events.get(&event.0).filter(|known| known.context == current::context());
            known.and_then(|known| known.time).ok_or(Code::INVALID_HANDLE)
        };
        let (from, to) = (time(from)?, time(to)?);
        drop(state);
        let milliseconds = |from, to| answer(self.host.elapsed(from, to)).map(|it| it.as_secs_f32() * 1000.0);
        // One of the two is zero.
        Ok(milliseconds(from, to)? - milliseconds(to, from)?)
    }
}
