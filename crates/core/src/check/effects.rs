//! The effects of an operation, for a caller that shows them.
//!
//! Plain data. A check without effects costs one test at each place that tells one.

use crate::ids::{DeviceId, EventId, GraphId, NodeId, Point};

/// The capture that an operation's stream is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The graph that is being captured.
    pub graph: GraphId,
    /// The nodes that a node of the operation comes after.
    pub after: Vec<NodeId>,
}

/// The effects of an operation. Those of a refused one are the waits and what the host learned before the refusal.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// The last point of its stream after it: the operation's own point, if it takes one. For an act of the host itself
    /// on memory, the point of that act. `None` for other operations of no stream, and on a captured stream.
    pub point: Option<Point>,
    /// The number of the operation in its stream, counted from 1. A call that is not an operation has the number of the
    /// last operation.
    pub number: u64,
    /// The device of its stream. `None` if the stream is not live.
    pub device: Option<DeviceId>,
    /// The points of the new waits, in the order in which they were made: for events, for or by the legacy default
    /// stream, and for the launch of the same graph before. They stay made if the operation is refused.
    pub waits: Vec<Point>,
    /// The points that the calling thread's process learned to have completed, each with everything that comes before
    /// it. For [`What::Tell`](crate::op::What::Tell), the process of the other thread learned them.
    pub learned: Vec<Point>,
    /// The events whose records it waits for, new or not, each with the point of the record. They are those of a wait,
    /// a synchronisation, a query that returned success, and the event wait nodes of a launch. A record in a capture
    /// has no point.
    pub awaited: Vec<(EventId, Option<Point>)>,
    /// The events that it records, including those of a launch's event record nodes.
    pub recorded: Vec<EventId>,
    /// The capture that its stream was in, or joined by this operation. For the drop of an allocation of a capture,
    /// that capture.
    pub captured: Option<Captured>,
}

/// The effects of the current operation, if the caller asks for them.
#[derive(Debug, Default)]
pub(super) struct Asked(Option<Effects>);

impl Asked {
    /// Begins to collect the effects of an operation.
    pub(super) fn ask(&mut self) {
        self.0 = Some(Effects::default());
    }

    /// Returns the effects since then.
    pub(super) fn take(&mut self) -> Effects {
        self.0.take().unwrap_or_default()
    }

    /// Adds an effect, if the caller asks for them.
    #[inline]
    pub(super) fn tell(&mut self, tell: impl FnOnce(&mut Effects)) {
        if let Some(effects) = &mut self.0 {
            tell(effects);
        }
    }
}
