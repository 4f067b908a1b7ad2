//! What the floors of graphs and of sharing keep with a device, and what the floors below ask of them. Their own types
//! are theirs alone: here they are what they answer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use millpond_core::check::{Side, Sought, Use};
use millpond_core::graph::{GraphAllocId, NodeId};
use millpond_core::ids::{AllocId, StreamId};
use millpond_core::op::Memory as TracedMemory;
use millpond_core::pool::Frontier;
use millpond_driver::RawGraph;
use millpond_driver::locks::BiasedGuard;

use crate::names::error::Result;
use crate::state::allocation::{Allocation, Life};
use crate::state::pool::Pools;
use crate::state::session::Session;
use crate::state::stream::State;
use crate::state::types::DeviceTypes;
use crate::sync::garbage::Garbage;
use crate::trace::tracer::Tracer;

/// Who knows the memory of captures that go on.
pub(crate) trait Captured<C: DeviceTypes> {
    /// An allocation of a capture that goes on.
    fn find_open(&self, id: AllocId) -> Option<Arc<Allocation<C>>>;
}

/// What the graphs of a device share.
pub(crate) trait DeviceGraphs<C: Pools>: Captured<C> + Any + fmt::Debug + Send + Sync {
    /// The memory of a life that a launch began, and that ended just now, is free after `after`. Its lock is held until
    /// that is known: the next launch must not begin another life in between.
    fn freed(&self, allocation: &Arc<Allocation<C>>, life: BiasedGuard<'_, Life<C>>, after: Frontier);

    /// A buffer of a capture's memory was dropped: a free node after all its uses.
    fn drop_captured(&self, session: &Arc<Session<C>>, alloc: GraphAllocId);

    /// A buffer of a capture's memory gets a name.
    fn name_captured(&self, session: &Arc<Session<C>>, alloc: GraphAllocId, name: &Arc<str>);

    /// What a trace calls the memory of a graph that starts at `pointer` and is not live.
    fn freed_at(&self, context: &C, tracer: &Tracer, pointer: u64) -> Option<TracedMemory>;

    /// Which node of a launch did what a side says that the launch did, if it is one. No lock is held.
    fn node_of(&self, launch: &Side, sought: Sought) -> Option<Side>;

    /// Gives graph memory back that nothing needs.
    fn trim(&self, context: &C) -> Result<()>;

    /// Gives back what nothing uses any more of graphs that are gone. Never waits.
    fn finish(&self, context: &C);

    /// A stream is closed, whose state is locked: a capture that began on it has ended.
    fn abandon<'g>(&self, stream: StreamId, state: &mut BiasedGuard<'g, State<C>>, garbage: &'g Garbage);

    /// Refuses a call that waits for a stream or asks about it, while it captures or a capture forbids unsafe calls.
    fn refuse_to_ask(&self, stream: StreamId, call: &'static str) -> Result<()>;

    /// Refuses an unsafe call of the calling thread, while a capture forbids those; that is invalid then.
    fn refuse_unsafe(&self, call: &'static str) -> Result<()>;

    /// The legacy default stream is used: no blocking stream may be capturing.
    fn refuse_legacy_use(&self, context: &C) -> Result<()>;

    /// What a captured stream's window has seen is what a node does.
    fn keep_seen(&self, session: &Session<C>, node: NodeId, seen: Result<Option<RawGraph>>) -> Result<()>;
}

/// What a device shares with other processes.
pub(crate) trait DeviceSharing<C: DeviceTypes>: Any + fmt::Debug + Send + Sync {
    /// The host has learned something: exporters get what is known to have completed.
    fn host_learned(&self, context: &C);

    /// Serves all that importers have said so far that hold something.
    fn settle(&self);

    /// Memory of another process that this device has.
    fn find_import(&self, id: AllocId) -> Option<Arc<Allocation<C>>>;

    /// The life of memory of another process ended, with this free: its exporter is to learn of it now.
    fn freed(&self, context: &Arc<C>, id: AllocId, life: BiasedGuard<'_, Life<C>>, free: Option<Use>);

    /// Tries once more to give back what the driver refused to take.
    fn finish(&self, context: &C);

    /// The device is gone.
    fn stop(&self, context: &C);
}
