//! An event: a recorded position of a stream (CUDA: `cudaEvent_t` after `cudaEventRecord`).
//!
//! An [`Event`] *is* what was recorded and never changes: recording again makes another event. So the questions which
//! record a wait meant, and whether an event was recorded at all, do not arise.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_driver::{Driver, process};

use crate::clock::mark::Mark;
use crate::names::error::Result;
use crate::state::context::Context;
use crate::state::session::CapturedAt;
use crate::sync::handle::Handle;
use crate::trace::tracer::{TracedEvent, Tracer};

/// A position of a stream with everything that comes before it. Cheap to clone.
#[derive(Clone)]
pub struct Event {
    /// Its end is known before the device's can come.
    pub(crate) traced: Option<Handle<TracedEvent>>,
    pub(crate) at: At,
}

/// A record: what comes before it, for the order and for the device.
pub(crate) type Record = (Snapshot, Arc<Mark>);

/// Where an event was recorded.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// On a stream of the device.
    Live {
        /// What comes before it.
        snapshot: Snapshot,
        /// The driver's side.
        mark: Handle<Mark>,
        /// The device.
        context: Handle<Context>,
    },
    /// In a capture: an edge of the graph, and nothing that can be waited for by the host.
    Captured(Handle<CapturedAt>),
}

impl Event {
    /// A record of a stream of this device.
    #[inline]
    pub(crate) fn at((snapshot, mark): Record, traced: Option<Arc<TracedEvent>>, context: &Arc<Context>) -> Self {
        let at = At::Live { snapshot, mark: mark.into(), context: Arc::clone(context).into() };
        Self { traced: traced.map(Into::into), at }
    }

    /// Whether everything before it has completed (CUDA: `cudaEventQuery`). A yes orders what the host submits from
    /// then on after it, as a synchronisation does.
    ///
    /// # Errors
    /// The device is lost; it is not asked again about what is known to have completed.
    #[track_caller]
    pub fn is_over(&self) -> Result<bool> {
        let (snapshot, mark, context) = self.live(Location::caller(), Tracer::event_over)?;
        let over = context.driver.is_over(mark.raw)? && context.are_strays_over(snapshot)?;
        if over {
            // Written down before anybody acts on it.
            if let (Some(tracer), Some(event)) = (&context.tracer, &self.traced) {
                tracer.event_over(event, Location::caller());
            }
            context.host_learned([snapshot]);
        }
        Ok(over)
    }

    /// Waits until everything before it has completed (CUDA: `cudaEventSynchronize`).
    ///
    /// # Errors
    /// The device is lost.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let (snapshot, mark, context) = self.live(Location::caller(), Tracer::synchronized_with)?;
        context.driver.block_on(mark.raw)?;
        context.block_on_strays(snapshot)?;
        if let (Some(tracer), Some(event)) = (&context.tracer, &self.traced) {
            tracer.synchronized_with(event, Location::caller());
        }
        context.synchronized([snapshot]);
        Ok(())
    }

    /// The number of its device.
    pub(crate) fn device(&self) -> u32 {
        match &self.at {
            At::Live { context, .. } => context.number,
            At::Captured(at) => at.device(),
        }
    }

    /// What the host can ask the device about; asking for a captured event ends that capture.
    fn live(
        &self,
        caller: &'static Location<'static>,
        asked: impl FnOnce(&Tracer, &TracedEvent, &'static Location<'static>),
    ) -> Result<(&Snapshot, &Mark, &Context)> {
        process::refuse_forked()?;
        match &self.at {
            At::Live { snapshot, mark, context } => Ok((snapshot, mark, context)),
            At::Captured(at) => {
                let error = at.refuse();
                if let (Some(tracer), Some(event)) = (&at.session.context.tracer, &self.traced)
                    && error.is_verdict()
                {
                    asked(tracer, event, caller);
                }
                Err(error)
            }
        }
    }
}
