//! What the floors below ask of a device's graphs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millpond_core::check::{Side, Sought};
use millpond_core::graph::{ArenaKey, GraphAllocId, NodeId};
use millpond_core::ids::StreamId;
use millpond_core::op::Memory as TracedMemory;
use millpond_core::order::default_streams::Standing;
use millpond_core::pool::Frontier;
use millpond_core::units::{GIB, Range, round_up};
use millpond_driver::locks::{BiasedGuard, lock};
use millpond_driver::{Driver, DriverError, RawGraph};

use super::capture::{drop_captured, name_captured};
use super::memory::trim;
use super::registry::Graphs;
use crate::names::error::Result;
use crate::state::arena::Arenas;
use crate::state::context::Context;
use crate::state::device::{Allocation, Arena, Life, Session, State};
use crate::state::parts::DeviceGraphs;
use crate::stream::payload::Payload;
use crate::sync::garbage::Garbage;
use crate::trace::tracer::Tracer;

impl DeviceGraphs<Context> for Graphs {
    fn freed(&self, allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, after: Frontier) {
        self.frees.push(life.range, after);
        drop(life);
        self.take_orphan(allocation);
    }

    fn drop_captured(&self, session: &Arc<Session>, alloc: GraphAllocId) {
        drop_captured(session, alloc);
    }

    fn name_captured(&self, session: &Arc<Session>, alloc: GraphAllocId, name: &Arc<str>) {
        name_captured(session, alloc, name);
    }

    fn freed_at(&self, context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory> {
        freed_in_graphs(context, tracer, pointer)
    }

    fn node_of(&self, launch: &Side, sought: Sought) -> Option<Side> {
        self.node_of_launch(launch, sought)
    }

    fn trim(&self, context: &Context) -> Result<()> {
        trim(context)
    }

    fn finish(&self, context: &Context) {
        self.finish_closing(context);
    }

    #[cold]
    fn abandon<'g>(&self, stream: StreamId, _: &mut BiasedGuard<'g, State>, garbage: &'g Garbage) {
        let mut recording = lock(&self.captures);
        let ended = recording.abandon(stream, garbage);
        drop(recording);
        if let Some(open) = &ended {
            self.open.fetch_sub(1, Ordering::AcqRel);
            open.session.is_open.store(false, Ordering::Release);
            self.leave_captured(&open.session);
        }
    }

    fn refuse_to_ask(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| {
            recording.check_stream(stream, call)?;
            recording.check_unsafe(call)
        })
    }

    fn refuse_unsafe(&self, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_unsafe(call))
    }

    fn refuse_legacy_use(&self, context: &Context) -> Result<()> {
        self.if_capturing(|recording| {
            let streams = context.streams();
            let blocking = |id| streams.iter().any(|it| it.id == id && it.role.standing() == Standing::Tied);
            recording.check_legacy(blocking)
        })
    }

    fn keep_seen(&self, session: &Session, node: NodeId, seen: Result<Option<RawGraph>>) -> Result<()> {
        let seen = seen.map(|graph| Payload::seen(&session.context, graph));
        lock(&self.captures).keep(session, node, seen)
    }
}

/// Addresses are reserved in steps of at least this many bytes: they cost nothing.
const STEP: u64 = 4 * GIB;

impl Arenas for Context {
    fn next_arena(&self) -> ArenaKey {
        ArenaKey(self.graphs().next_arena.fetch_add(1, Ordering::Relaxed))
    }

    fn begin_arena(&self, arena: &Arc<Arena>) {
        self.graphs().enter_arena(arena);
    }

    fn arena_addresses(&self, bytes: u64) -> Result<Range> {
        let granularity = self.properties.granularity;
        let [needed, bytes] = [bytes, bytes.max(STEP)].map(|it| round_up(it, granularity).unwrap_or(it));
        match self.graphs().take_spare(bytes) {
            Some(spare) => Ok(spare),
            None => match self.driver.reserve(bytes) {
                Err(DriverError::OutOfAddresses { .. }) if needed < bytes => {
                    Ok(Range::new(self.driver.reserve(needed)?, needed))
                }
                start => Ok(Range::new(start?, bytes)),
            },
        }
    }

    fn end_arena(&self, arena: ArenaKey, ranges: Vec<Range>) {
        self.graphs().close(self, arena, ranges);
        self.memory_came_back();
    }
}

/// What a trace calls the memory of a graph that starts at `pointer` and is not live: its last life, or the alloc node
/// that never had one.
#[cold]
fn freed_in_graphs(context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory> {
    let had_life = context.graphs().outputs_at(pointer).into_iter().find_map(|allocation| {
        let life = allocation.life();
        let is_it = life.was_launched() && life.freed.is_some() && life.range.start == pointer;
        is_it.then(|| tracer.memory(allocation.id, life.generation))
    });
    had_life.or_else(|| {
        let arenas: Vec<Arc<Arena>> = lock(&context.graphs().arenas).iter().filter_map(Weak::upgrade).collect();
        let (graph, alloc) = arenas.iter().find_map(|arena| arena.node_from(pointer))?;
        Some(tracer.alloc_node(graph, alloc))
    })
}
