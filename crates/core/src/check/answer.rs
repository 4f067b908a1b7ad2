//! What a step of the checker answers to a caller that drives a device.
//!
//! Plain data. The checker fills it in only while it is asked ([`Checker::step`](super::Checker::step)); a check of a
//! program costs one test of a flag at each place.

use super::changes::Change;
use super::finding::Finding;
use crate::ids::{EventId, GraphId, NodeId, Point};
use crate::op::Memory;
use crate::order::StreamIndex;

/// A stream that lives, by its place in the checker's table: it names no other one until the stream is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamHandle(pub(super) StreamIndex);

/// A wait that puts an operation after a point that it did not come after before. The device has to wait, too, unless
/// it has completed that point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The point. Whoever waits for it comes after all that comes before it.
    pub point: Point,
    /// The event wait node that waits, where it is a node of a launched graph. Otherwise the stream waits, before the
    /// operation.
    pub node: Option<NodeId>,
}

/// An allocation that exists from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Its name.
    pub memory: Memory,
    /// Where it was allocated. Position 0: at once, before everything.
    pub point: Point,
}

/// An allocation that exists no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its name.
    pub memory: Memory,
    /// The memory may be used again by whoever comes after all of these points, at most one of each chain. There is
    /// none where nothing was done on any chain.
    pub after: Vec<Point>,
}

/// A capture that an operation's stream is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The graph that is captured.
    pub graph: GraphId,
    /// The nodes that a node of the operation comes after.
    pub after: Vec<NodeId>,
}

/// What an operation did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Done {
    /// Where its stream stands after it: the operation's point, where it takes one. None for an operation of no stream,
    /// and on a captured stream.
    pub point: Option<Point>,
    /// Its stream, for steps by handle. None where that does not live.
    pub stream: Option<StreamHandle>,
    /// Which operation of its stream it is, counted from 1. What is no operation has the number of the last one.
    pub number: u64,
    /// The waits that were news, in the order in which they were made: for events, for the legacy default stream or by
    /// it, for the launch of the same graph before. A wait stays made where the operation is refused.
    pub waits: Vec<Wait>,
    /// What the calling thread's process learned to have completed: everything that comes before these points or is at
    /// one of them. Of [`What::Tell`](crate::op::What::Tell) it is the other thread's process that learned.
    pub learned: Vec<Point>,
    /// Allocations that exist from now on. The launch of a graph makes and frees allocations when the device has it:
    /// see [`Checker::advance`](super::Checker::advance).
    pub begun: Vec<Begun>,
    /// Allocations that exist no more.
    pub ended: Vec<Ended>,
    /// The events whose records it waits for, news or not, each with the record's point: of a wait, a synchronisation,
    /// a query that said yes, and the event wait nodes of a launch. No point for a record in a capture.
    pub awaited: Vec<(EventId, Option<Point>)>,
    /// The events that it records: those of a launch's event record nodes, too.
    pub recorded: Vec<EventId>,
    /// The capture that its stream was in, or has joined by it. Of a dropped allocation of a capture, that one.
    pub captured: Option<Captured>,
    /// The node that was added to a graph.
    pub node: Option<NodeId>,
    /// Chains that begin, each with its first position: of a new stream, of a process, and those of an instance whose
    /// nodes record events. One may have the number of a chain that is closed.
    pub opened: Vec<Point>,
    /// Chains that end, each with its last point. The number is given to another chain only after a thread that knows
    /// this point to have completed makes a stream.
    pub closed: Vec<Point>,
    /// Advice, and what else was found: it did not refuse the operation.
    pub findings: Vec<Finding>,
    /// What a launch changed, for who withdraws it.
    pub(super) changes: Vec<Change>,
}

/// Why an operation is not done.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// It is wrong.
    Finding(Box<Finding>),
    /// It may be wrong because of the last launch of this stream, which may still be withdrawn. Wait until the device
    /// has that launch or it is withdrawn, [advance](super::Checker::advance) the stream or
    /// [retract](super::Checker::retract) the launch, and make this step again.
    AskAgain(StreamHandle),
    /// It names something that is not there because an earlier operation was refused. The finding was that one's.
    Follows,
}

/// An operation that was refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What was done all the same: waits, and findings beside the reason.
    pub done: Done,
}

/// The answer to the step at hand, where one was asked for.
#[derive(Debug, Default)]
pub(super) struct Answer {
    is_wanted: bool,
    /// The step is to be made again once the last launch of this stream has ended.
    pub(super) again: Option<StreamHandle>,
    done: Done,
}

impl Answer {
    /// The next step is to answer.
    pub(super) fn ask(&mut self) {
        self.is_wanted = true;
    }

    /// The answer to that step.
    pub(super) fn take(&mut self) -> Done {
        self.is_wanted = false;
        std::mem::take(&mut self.done)
    }

    /// The waits of that step, where it can have answered nothing else.
    #[inline]
    pub(super) fn take_waits(&mut self, waits: &mut Vec<Wait>) {
        self.is_wanted = false;
        waits.append(&mut self.done.waits);
    }

    /// Whether the step at hand is to be answered: it may be withdrawn, then, if it is a launch.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// What the step at hand has changed, to be added to.
    pub(super) fn changes(&mut self) -> &mut Vec<Change> {
        &mut self.done.changes
    }

    /// Adds something to the answer.
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
