//! What the floors of graphs and of sharing keep with a device, and what the floors below ask of them. Their own types
//! are theirs alone: here they are what they answer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use millpond_core::check::{Act, Place, Site, Use};
use millpond_core::graph::GraphAllocId;
use millpond_core::ids::AllocId;
use millpond_core::op::Memory as TracedMemory;
use millpond_core::pool::Frontier;
use millpond_driver::process;

use crate::names::error::Result;
use crate::state::allocation::{Allocation, Life, Origin};
use crate::state::context::Context;
use crate::state::session::Session;
use crate::sync::locks::BiasedGuard;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// Who knows the memory of captures that go on.
pub(crate) trait Captured {
    /// An allocation of a capture that goes on.
    fn find_open(&self, id: AllocId) -> Option<Arc<Allocation>>;
}

/// What the graphs of a device share.
pub(crate) trait DeviceGraphs: Captured + Any + fmt::Debug + Send + Sync {
    /// The memory of a life that a launch began, and that ended just now, is free after `after`. Its lock is held until
    /// that is known: the next launch must not begin another life in between.
    fn freed(&self, allocation: &Arc<Allocation>, life: BiasedGuard<'_, { ranks::LIFE }, Life>, after: Frontier);

    /// A buffer of a capture's memory was dropped: a free node after all its uses.
    fn drop_captured(&self, session: &Arc<Session>, alloc: GraphAllocId);

    /// A buffer of a capture's memory gets a name.
    fn name_captured(&self, session: &Arc<Session>, alloc: GraphAllocId, name: &Arc<str>);

    /// What a trace calls the memory of a graph that starts at `pointer` and is not live.
    fn freed_at(&self, context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory>;

    /// Gives graph memory back that nothing needs.
    fn trim(&self, context: &Context) -> Result<()>;

    /// Gives back what nothing uses any more of graphs that are gone. Never waits.
    fn finish(&self, context: &Context);
}

/// What a device shares with other processes.
pub(crate) trait DeviceSharing: Any + fmt::Debug + Send + Sync {}

/// As [`DeviceGraphs::freed`], where it is memory of a graph.
pub(crate) fn free_in_graph(
    allocation: &Arc<Allocation>,
    life: BiasedGuard<'_, { ranks::LIFE }, Life>,
    after: Frontier,
) {
    if let Origin::Graph(arena) = &allocation.origin {
        arena.context.graphs.freed(allocation, life, after);
    }
}

/// A buffer of a graph's memory was dropped: freed after everything declared so far.
pub(crate) fn drop_in_graph(allocation: &Arc<Allocation>, generation: u64) {
    if process::is_forked() {
        return;
    }
    if let Origin::Captured(session) = &allocation.origin {
        return session.context.graphs.drop_captured(session, GraphAllocId(allocation.index));
    }
    let mut life = allocation.life();
    if life.freed.is_some() || life.generation != generation {
        return;
    }
    let after = Frontier::of(life.history.points());
    let last = life.history.uses().last().copied().unwrap_or(life.history.born());
    life.freed = Some(Use { point: last.point, site: Site { act: Act::Free, place: Place::Unknown, ..last.site } });
    if let Some(tracer) = allocation.tracer() {
        tracer.dropped(allocation.id, generation);
    }
    free_in_graph(allocation, life, after);
}
