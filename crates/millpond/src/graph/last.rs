//! The end of a launch, for the next one to come after.
//!
//! Knows the stream of the launch, and asks it for a mark only where a stream waits: a launch after launches of its own
//! stream never does, and a mark would cost it a call.

use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_driver::RawEvent;
use smallvec::SmallVec;

use crate::clock::mark::Mark;
use crate::clock::progress::Progress;
use crate::names::error::Result;
use crate::state::stream::{State, StreamShared};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    /// What comes before it, for the order.
    pub(crate) snapshot: Snapshot,
    progress: Arc<Progress>,
    /// Where one was made.
    pub(crate) mark: Option<Arc<Mark>>,
}

/// Launches to come after.
pub(crate) type Lasts = SmallVec<[Last; 1]>;

impl Last {
    /// The end of what `stream` has now.
    fn of(stream: &StreamShared, state: &State, mark: Option<Arc<Mark>>) -> Self {
        Self { snapshot: state.chain.snapshot(), progress: Arc::clone(&stream.progress), mark }
    }

    /// Puts the end of what `stream` has now in the place of an older end, which was nearly always of the same stream:
    /// then hardly a shared count is touched.
    #[inline]
    pub(crate) fn put(place: &mut Option<Last>, stream: &StreamShared, state: &State, mark: Option<&Arc<Mark>>) {
        match place {
            Some(last) if Arc::ptr_eq(&last.progress, &stream.progress) => {
                state.chain.renew(&mut last.snapshot);
                if last.mark.is_some() || mark.is_some() {
                    last.mark = mark.cloned();
                }
            }
            _ => *place = Some(Last::of(stream, state, mark.cloned())),
        }
    }

    /// As [`put`](Self::put), with a mark that is this launch's alone: nearly always it takes the older one's place in
    /// memory, and no shared count is touched.
    #[inline]
    pub(crate) fn put_marked(place: &mut Option<Last>, stream: &StreamShared, state: &State, raw: RawEvent) {
        let driver = &stream.context.driver;
        if let Some(last) = place
            && Arc::ptr_eq(&last.progress, &stream.progress)
            && let Some(mark) = last.mark.as_mut().and_then(Arc::get_mut)
        {
            mark.become_another(raw, driver);
            return state.chain.renew(&mut last.snapshot);
        }
        Self::put(place, stream, state, Some(&Arc::new(Mark::new(raw, driver))));
    }

    /// Makes a stream come after it.
    pub(crate) fn before(&self, stream: &StreamShared, state: &mut State) -> Result<()> {
        match &self.mark {
            Some(mark) => stream.wait_for(state, &self.snapshot, mark.raw),
            None => stream.wait_for_chain(state, &self.snapshot, &self.progress),
        }
    }
}
