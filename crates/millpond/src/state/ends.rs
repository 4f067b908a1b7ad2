//! The ends of lifetimes of memory that is not a pool's: of graphs, of captures, of imports.

use std::sync::Arc;

use millpond_core::check::Use;
use millpond_core::graph::GraphAllocId;
use millpond_core::pool::Frontier;
use millpond_driver::locks::BiasedGuard;
use millpond_driver::process;

use crate::graph::drop_captured;
use crate::state::allocation::{Allocation, Life};
use crate::state::origin::Origin;

/// As [`Graphs::freed`](crate::graph::Graphs::freed), if it is memory of a graph.
pub(crate) fn free_in_graph(allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, after: Frontier) {
    if let Origin::Graph(arena) = &allocation.origin {
        let context = &arena.context;
        context.graphs.freed(allocation, life, after);
        context.memory_came_back();
    }
}

/// Sends the end of an import's lifetime, which ended with this free, to the exporter.
pub(crate) fn free_import(allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, free: Option<Use>) {
    let Origin::Imported(imported) = &allocation.origin else { return };
    let context = Arc::clone(&imported.context);
    context.share.end_import(&context, allocation.id, life, free);
}

/// Frees memory of a graph or an import whose buffer was dropped, after everything declared so far.
pub(crate) fn drop_unpooled(allocation: &Arc<Allocation>, generation: u64) {
    if process::is_forked() {
        return;
    }
    if let Origin::Captured(session) = &allocation.origin {
        return drop_captured(session, GraphAllocId(allocation.index));
    }
    let mut life = allocation.life();
    if !life.is_live(generation) {
        return;
    }
    let after = Frontier::of(life.history.points());
    life.end_dropped();
    if let Some(tracer) = allocation.tracer() {
        tracer.dropped(allocation.id, generation);
    }
    match allocation.is_import() {
        true => free_import(allocation, life, None),
        false => free_in_graph(allocation, life, after),
    }
}
