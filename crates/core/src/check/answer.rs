//! The answer of a step of the checker to a caller that drives a device.
//!
//! Plain data. The checker fills it in only for a step that has to answer ([`Checker::step`](super::Checker::step)).
//! The check of a whole program costs one test of a flag at each place.

use super::changes::Change;
use super::finding::Finding;
use crate::ids::{EventId, GraphId, NodeId, Point};
use crate::op::Memory;
use crate::order::StreamIndex;

/// A live stream, by its index in the checker's table. The handle refers to no other stream until this one is
/// destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamHandle(pub(super) StreamIndex);

/// A wait that puts an operation after a point that it did not come after before. The device has to wait, too, unless
/// it has completed that point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The point to wait for. A party that waits for it comes after everything that comes before it.
    pub point: Point,
    /// The event wait node that waits, if the wait belongs to a node of a launched graph. Otherwise the stream waits,
    /// before the operation.
    pub node: Option<NodeId>,
}

/// An allocation that is live from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Its name.
    pub memory: Memory,
    /// The point of the allocation. Position 0 means an immediate allocation, which comes before everything.
    pub point: Point,
}

/// An allocation that is no longer live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its name.
    pub memory: Memory,
    /// The points that a party must come after to use the memory again: at most one for each chain, and none if nothing
    /// was done on any chain.
    pub after: Vec<Point>,
}

/// The capture that an operation's stream is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The graph that is being captured.
    pub graph: GraphId,
    /// The nodes that a node of the operation comes after.
    pub after: Vec<NodeId>,
}

/// The effects of an operation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Done {
    /// The last point of its stream after it: the operation's own point, if it takes one. For an act of the host itself
    /// on memory, the point of that act. `None` for other operations of no stream, and on a captured stream.
    pub point: Option<Point>,
    /// Its stream, for steps by handle. `None` if the stream is not live.
    pub stream: Option<StreamHandle>,
    /// The number of the operation in its stream, counted from 1. A call that is not an operation has the number of the
    /// last operation.
    pub number: u64,
    /// The new waits, in the order in which they were made: for events, for or by the legacy default stream, and for
    /// the launch of the same graph before. They stay made if the operation is refused.
    pub waits: Vec<Wait>,
    /// The points that the calling thread's process learned to have completed, each with everything that comes before
    /// it. For [`What::Tell`](crate::op::What::Tell), the process of the other thread learned them.
    pub learned: Vec<Point>,
    /// The allocations that are live from now on. The launch of a graph allocates and frees only when the device has
    /// it: see [`Checker::advance`](super::Checker::advance).
    pub begun: Vec<Begun>,
    /// The allocations that are no longer live.
    pub ended: Vec<Ended>,
    /// The events whose records it waits for, new or not, each with the point of the record. They are those of a wait,
    /// a synchronisation, a query that returned success, and the event wait nodes of a launch. A record in a capture
    /// has no point.
    pub awaited: Vec<(EventId, Option<Point>)>,
    /// The events that it records, including those of a launch's event record nodes.
    pub recorded: Vec<EventId>,
    /// The capture that its stream was in, or joined by this operation. For the drop of an allocation of a capture,
    /// that capture.
    pub captured: Option<Captured>,
    /// The node that was added to a graph.
    pub node: Option<NodeId>,
    /// The chains that begin, each with its first position: the chain of a new stream or process, and the chains of an
    /// instance whose nodes record events. A chain may have the index of a closed one.
    pub opened: Vec<Point>,
    /// The chains that end, each with its last point. Only a stream whose creating thread knows that this point has
    /// completed gets the index again.
    pub closed: Vec<Point>,
    /// Advice, and other findings that did not refuse the operation.
    pub findings: Vec<Finding>,
    /// The changes of a launch, for a caller that withdraws it.
    pub(super) changes: Vec<Change>,
}

/// The reason why an operation is not done.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The operation is wrong.
    Finding(Box<Finding>),
    /// The operation may be wrong because of the last launch of this stream, which may still be withdrawn. Wait until
    /// the device has that launch or it is withdrawn, [advance](super::Checker::advance) the stream or
    /// [retract](super::Checker::retract) the launch, and make this step again.
    AskAgain(StreamHandle),
    /// The operation names something that does not exist because an earlier operation was refused. That refusal was
    /// reported.
    Follows,
}

/// An operation that was refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The effects that stay: waits, and findings beside the reason.
    pub done: Done,
}

/// The answer to the current step, if the caller wants one.
#[derive(Debug, Default)]
pub(super) struct Answer {
    is_wanted: bool,
    /// The stream whose last launch must be confirmed or withdrawn before the step is made again.
    pub(super) again: Option<StreamHandle>,
    done: Done,
}

impl Answer {
    /// Makes the next step answer.
    pub(super) fn ask(&mut self) {
        self.is_wanted = true;
    }

    /// Returns the answer to that step.
    pub(super) fn take(&mut self) -> Done {
        self.is_wanted = false;
        std::mem::take(&mut self.done)
    }

    /// Moves the waits of that step to `waits`, for a step that can have answered nothing else.
    #[inline]
    pub(super) fn take_waits(&mut self, waits: &mut Vec<Wait>) {
        self.is_wanted = false;
        waits.append(&mut self.done.waits);
    }

    /// Returns `true` if the current step has to answer. If it is a launch, it may then be withdrawn.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Returns the changes of the current step, to be added to.
    pub(super) fn changes(&mut self) -> &mut Vec<Change> {
        &mut self.done.changes
    }

    /// Adds something to the answer, if one is wanted.
    #[inline]
    pub(super) fn tell(&mut self, tell: impl FnOnce(&mut Done)) {
        if self.is_wanted {
            tell(&mut self.done);
        }
    }

    /// Adds a wait of a stream.
    #[inline]
    pub(super) fn waits(&mut self, point: Point) {
        self.tell(|done| done.waits.push(Wait { point, node: None }));
    }
}
