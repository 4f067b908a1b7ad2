//! The end of a launch, for the next one to come after.
//!
//! Knows the stream of the launch, and asks it for a mark only where somebody waits: a launch after launches of its own
//! stream never does, and a mark would cost it a call.

use std::sync::Arc;

use millpond_core::order::Snapshot;
use smallvec::SmallVec;

use crate::error::Result;
use crate::event::Mark;
use crate::progress::Progress;
use crate::stream::{State, StreamShared};

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
    pub(crate) fn of(stream: &StreamShared, state: &State, mark: Option<Arc<Mark>>) -> Self {
        Self { snapshot: state.chain.snapshot(), progress: Arc::clone(&stream.progress), mark }
    }

    /// Makes a stream come after it.
    pub(crate) fn before(&self, stream: &StreamShared, state: &mut State) -> Result<()> {
        match &self.mark {
            Some(mark) => stream.wait_for(state, &self.snapshot, mark.raw),
            None => stream.wait_for_chain(state, &self.snapshot, &self.progress),
        }
    }
}
