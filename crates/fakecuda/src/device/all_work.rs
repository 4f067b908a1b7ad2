//! All work of a device at once: waited for, and an event after it. Either spoils what is being captured.
//!
//! Knows the device's streams, also closed ones; see the module above.

use millpond_driver::cuda::abi::{Code, Event};
use millpond_driver::{Driver, RawEvent, StreamFlags};

use super::{Device, State, answer};
use crate::current;

impl Device {
    /// Waits for all that was submitted, to closed streams as well.
    pub(crate) fn synchronize(&self) -> Result<(), Code> {
        self.spoil_all()?;
        self.wait_for_all()
    }

    /// As [`synchronize`](Self::synchronize), whatever is being captured.
    pub(crate) fn wait_for_all(&self) -> Result<(), Code> {
        let ends = self.ends(&*self.state()?)?;
        ends.into_iter().try_for_each(|end| answer(self.host.block_on(end)))
    }

    /// The ends of all that was submitted, to closed streams as well.
    fn ends(&self, state: &State) -> Result<Vec<RawEvent>, Code> {
        let open = state.streams.values().map(|open| open.raw);
        let all = open.chain(state.legacy).chain(state.per_thread.values().copied());
        let ends = all.map(|raw| answer(self.host.record(raw)));
        ends.chain(state.ended.iter().copied().map(Ok)).collect()
    }

    /// Of what is closed the ends are kept that are not reached.
    pub(super) fn note_end(&self, state: &mut State, end: RawEvent) {
        state.ended.retain(|end| self.host.is_over(*end) == Ok(false));
        state.ended.push(end);
    }

    /// An event after all that was submitted. Who waits for the device later waits for it, too.
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
