//! What the rest of the library asks of a device's graphs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millpond_core::graph::{ArenaKey, NodeId};
use millpond_core::ids::StreamId;
use millpond_core::op::Memory as TracedMemory;
use millpond_core::order::default_streams::Standing;
use millpond_core::pool::Frontier;
use millpond_core::units::{GIB, Range, round_up};
use millpond_driver::locks::{BiasedGuard, lock};
use millpond_driver::{Driver, DriverError, RawGraph};

use super::registry::Graphs;
use crate::names::error::Result;
use crate::state::allocation::{Allocation, Life};
use crate::state::arena::Arena;
use crate::state::context::Context;
use crate::state::session::Session;
use crate::state::stream::State;
use crate::stream::payload::Payload;
use crate::sync::garbage::Garbage;
use crate::trace::tracer::Tracer;

impl Graphs {
    /// The memory of a life that a launch began, and that ended just now, is free after `after`. Its lock is held until
    /// that is known: the next launch must not begin another life in between.
    pub(crate) fn freed(&self, allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, after: Frontier) {
        self.frees.push(life.range, after);
        drop(life);
        self.take_orphan(allocation);
    }

    /// A stream is closed, whose state is locked: a capture that began on it has ended.
    #[cold]
    pub(crate) fn abandon<'g>(&self, stream: StreamId, _: &mut BiasedGuard<'g, State>, garbage: &'g Garbage) {
        let mut recording = lock(&self.captures);
        let ended = recording.abandon(stream, garbage);
        drop(recording);
        if let Some(open) = &ended {
            self.open.fetch_sub(1, Ordering::AcqRel);
            open.session.is_open.store(false, Ordering::Release);
            self.leave_captured(&open.session);
        }
    }

    /// Refuses a call that waits for a stream or asks about it, while it captures or a capture forbids unsafe calls.
    pub(crate) fn refuse_to_ask(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| {
            recording.check_stream(stream, call)?;
            recording.check_unsafe(call)
        })
    }

    /// Refuses an unsafe call of the calling thread, while a capture forbids those; that is invalid then.
    pub(crate) fn refuse_unsafe(&self, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_unsafe(call))
    }

    /// The legacy default stream is used: no blocking stream may be capturing.
    pub(crate) fn refuse_legacy_use(&self, context: &Context) -> Result<()> {
        self.if_capturing(|recording| {
            let streams = context.streams();
            let blocking = |id| streams.iter().any(|it| it.id == id && it.role.standing() == Standing::Tied);
            recording.check_legacy(blocking)
        })
    }

    /// What a captured stream's window has seen is what a node does.
    pub(crate) fn keep_seen(&self, session: &Session, node: NodeId, seen: Result<Option<RawGraph>>) -> Result<()> {
        let seen = seen.map(|graph| Payload::seen(&session.context, graph));
        lock(&self.captures).keep(session, node, seen)
    }
}

/// Addresses are reserved in steps of at least this many bytes: they cost nothing.
const STEP: u64 = 4 * GIB;

impl Context {
    /// The number of another arena.
    pub(crate) fn next_arena(&self) -> ArenaKey {
        ArenaKey(self.graphs.next_arena.fetch_add(1, Ordering::Relaxed))
    }

    /// An arena is there.
    pub(crate) fn begin_arena(&self, arena: &Arc<Arena>) {
        self.graphs.enter_arena(arena);
    }

    /// Addresses for at least `bytes` that no arena has.
    pub(crate) fn arena_addresses(&self, bytes: u64) -> Result<Range> {
        let granularity = self.properties.granularity;
        let [needed, bytes] = [bytes, bytes.max(STEP)].map(|it| round_up(it, granularity).unwrap_or(it));
        match self.graphs.take_spare(bytes) {
            Some(spare) => Ok(spare),
            None => match self.driver.reserve(bytes) {
                Err(DriverError::OutOfAddresses { .. }) if needed < bytes => {
                    Ok(Range::new(self.driver.reserve(needed)?, needed))
                }
                start => Ok(Range::new(start?, bytes)),
            },
        }
    }

    /// An arena is gone: another may have its addresses once no work is left that could touch them.
    pub(crate) fn end_arena(&self, arena: ArenaKey, ranges: Vec<Range>) {
        self.graphs.close(self, arena, ranges);
        self.memory_came_back();
    }
}

/// What a trace calls the memory of a graph that starts at `pointer` and is not live: its last life, or the alloc node
/// that never had one.
#[cold]
pub(crate) fn freed_in_graphs(context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory> {
    let had_life = context.graphs.outputs_at(pointer).into_iter().find_map(|allocation| {
        let life = allocation.life();
        let is_it = life.was_launched() && life.freed.is_some() && life.range.start == pointer;
        is_it.then(|| tracer.memory(allocation.id, life.generation))
    });
    had_life.or_else(|| {
        let arenas: Vec<Arc<Arena>> = lock(&context.graphs.arenas).iter().filter_map(Weak::upgrade).collect();
        let (graph, alloc) = arenas.iter().find_map(|arena| arena.node_from(pointer))?;
        Some(tracer.alloc_node(graph, alloc))
    })
}
