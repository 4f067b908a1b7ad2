//! All work of a device: waits for it, and events after it. Either invalidates captures.
//!
//! Knows the device's streams, also closed ones; see the module above.

use millpond_driver::cuda::abi::{Code, Event};
use millpond_driver::{Driver, RawEvent, StreamFlags};

use super::{Device, State, answer};
use crate::current;

impl Device {
    /// Waits for all submitted work, also of closed streams.
    pub(crate) fn synchronize(&self) -> Result<(), Code> {
        self.spoil_all()?;
        self.wait_for_all()
    }

    /// As [`synchronize`](Self::synchronize), without invalidating captures.
    pub(crate) fn wait_for_all(&self) -> Result<(), Code> {
        let ends = self.ends(&*self.state()?)?;
        ends.into_iter().try_for_each(|end| answer(self.host.block_on(end)))
    }

    /// Returns the ends of all submitted work, also of closed streams.
    fn ends(&self, state: &State) -> Result<Vec<RawEvent>, Code> {
        let open = state.streams.values().map(|open| open.raw);
        let all = open.chain(state.legacy).chain(state.per_thread.values().copied());
        let ends = all.map(|raw| answer(self.host.record(raw)));
        ends.chain(state.ended.iter().copied().map(Ok)).collect()
    }

    /// Keeps the end of a closed stream until it has completed.
    pub(super) fn note_end(&self, state: &mut State, end: RawEvent) {
        state.ended.retain(|end| self.host.is_over(*end) == Ok(false));
        state.ended.push(end);
    }

    /// Records an event after all submitted work. A later wait for the device includes it.
    pub(crate) fn record_all(&self, event: Event) -> Result<(), Code> {
        self.spoil_all()?;
        let mut state = self.state()?;
        let raw = answer(self.host.open_stream(StreamFlags::default()))?;
        self.ends(&state)?.into_iter().try_for_each(|end| answer(self.host.wait(raw, end)))?;
        let recorded = answer(self.host.record(raw))?;
        answer(self.host.close_stream(raw))?;
        self.note_end(&mut state, recorded);
        let known = state.events.get_mut(&event.0).filter(|known| known.context == current::context());
        known.ok_or(Code::INVALID_HANDLE)?.recorded = Some(recorded);
        Ok(())
    }
}
