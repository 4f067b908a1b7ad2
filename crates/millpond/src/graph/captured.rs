//! The operations of a capturing stream: each becomes a node, and nothing goes to the device.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::check::{Act, Finding, Place, Use};
use millpond_core::graph::{GraphAllocId, Memory};
use millpond_core::ids::{ChainIndex, Point};
use millpond_core::units::Range;
use millpond_driver::locks::{BiasedGuard, lock};

use super::capture::{check_free, check_uses};
use crate::names::count::Count;
use crate::names::error::{Invalid, Result};
use crate::names::stream_names::side;
use crate::state::access::{Access, placed};
use crate::state::aliased::Job;
use crate::state::allocation::{Allocation, Owned, site};
use crate::state::named::{MemAllocNode, NodeName};
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::session::Session;
use crate::state::stream::{Mode, State, StreamShared};
use crate::stream::buffer::Buffer;
use crate::stream::event::{At, Event};
use crate::stream::external::{EventNode, ExternalEvent};
use crate::stream::handle::Stream;
use crate::stream::hot::Served;
use crate::stream::payload::{Payload, To};
use crate::sync::garbage::Garbage;
use crate::trace::tracer::Tracer;

impl StreamShared {
    /// Adds an alloc node.
    #[cold]
    pub(crate) fn capture_alloc(
        &self,
        _: &State,
        pool: &PoolShared,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<Served> {
        self.check_pool(pool)?;
        let place = Place::Source(caller);
        lock(&self.context.graphs.captures).operate(self.id, place, |adding| {
            let (node, alloc, address) = adding.graph.body.add_alloc(adding.tails, bytes, place)?;
            adding.graph.session.allocs.store(alloc.0 + 1, Ordering::Relaxed);
            let number = self.context.alloc_numbers.take();
            let origin = Origin::Captured(Arc::clone(&adding.graph.session));
            let allocation = Arc::new(Allocation::new(number, alloc.0, self.context.number, origin));
            allocation.set_address(address);
            let mut life = allocation.life();
            let point = Point { chain: ChainIndex(0), seq: 0 };
            life.begin(bytes, Use { point, site: site(Act::Allocate, self.id, 0, caller) });
            life.range = Range::new(address, bytes);
            let generation = life.generation;
            drop(life);
            self.context.graphs.enter_captured(&allocation);
            if let Some(tracer) = adding.graph.session.tracer() {
                tracer.captured_alloc(Some((adding.graph.session.id, alloc)), pool.id, self.id, bytes, caller);
            }
            Ok((node, (allocation, generation)))
        })
    }

    /// Adds a free node.
    #[cold]
    pub(crate) fn capture_free(&self, owned: &Owned, caller: &'static Location<'static>) -> Result<()> {
        let allocation = &owned.allocation;
        let key = match &allocation.origin {
            Origin::Captured(session) => Some((session.id, GraphAllocId(allocation.index))),
            Origin::Graph(_) => self.context.graphs.key_of(allocation),
            Origin::Pool(_) | Origin::Imported(_) | Origin::Pinned(_) => None,
        };
        let Some((graph, alloc)) = key else {
            // If the capture is invalid, the free is refused for that reason instead.
            return lock(&self.context.graphs.captures).operate(self.id, Place::Source(caller), |adding| {
                let later = site(Act::Free, self.id, 0, caller);
                adding.graph.body.check_life(allocation, owned.generation, later)?;
                let later = side(self.context.number, later);
                Err(Finding::foreign_free(&allocation.describe(&allocation.life())).at(later).into())
            });
        };
        let memory = Memory::Foreign { graph, alloc };
        self.capture_free_of(memory, Some(owned), caller, |tracer| tracer.free_owned(owned, Some(self.id), caller))
    }

    /// Adds a free node for the memory of an alloc node. `owned` is a lifetime of that memory, if one is named.
    fn capture_free_of(
        &self,
        memory: Memory,
        owned: Option<&Owned>,
        caller: &'static Location<'static>,
        write: impl FnOnce(&Tracer),
    ) -> Result<()> {
        let place = Place::Source(caller);
        lock(&self.context.graphs.captures).operate(self.id, place, |adding| {
            let memory = match memory {
                Memory::Foreign { graph, alloc } if graph == adding.graph.body.core.id() => Memory::Own(alloc),
                memory => memory,
            };
            if let Some(Owned { allocation, generation, .. }) = owned
                && let Origin::Graph(_) = allocation.origin
            {
                adding.graph.body.check_life(allocation, *generation, site(Act::Free, self.id, 0, caller))?;
            }
            check_free(adding, memory, place)?;
            let node = adding.graph.body.add_free(adding.tails, memory, place)?;
            if let Some(tracer) = adding.graph.session.tracer() {
                write(tracer);
            }
            Ok((node, ()))
        })
    }

    /// Adds a node that does work. Its work is found while the lock of the captures is not held, because that may run
    /// foreign code. The values that a refused node owns are dropped as garbage.
    #[cold]
    pub(crate) fn capture_work<'g, A: Access, R>(
        &self,
        (state, garbage): (&mut BiasedGuard<'g, State>, &'g Garbage),
        (accesses, job): (&A, Job),
        caller: &'static Location<'static>,
        work: impl FnOnce(To<'_, A::Place>) -> Result<R>,
    ) -> Result<R> {
        let (captures, at) = (&self.context.graphs.captures, Place::Source(caller));
        let (resolved, may_share) = (lock(captures).resolve(self.id, accesses, job, at)?, job.may_race());
        let place = placed(accesses, resolved.addresses.iter().copied());
        let mut payload = garbage.hold(Payload::Nothing);
        let result = work(To::Graph(&mut payload, place))?;
        let is_open = matches!(*payload, Payload::Open);
        let add = || {
            lock(captures).operate(self.id, at, |adding| {
                check_uses(adding, &resolved.accesses, may_share, payload.noun(), at)?;
                let node = adding.graph.body.add_work(adding.tails, &resolved, payload, may_share, at)?;
                if let Some(tracer) = adding.graph.session.tracer() {
                    tracer.declared_launch(&self.context.graphs, self.id, (accesses, job), false, caller);
                }
                Ok((node, node))
            })
        };
        if is_open {
            self.open_window(state, add)?;
        } else {
            add()?;
        }
        Ok(result)
    }

    /// Adds a node that orders the graph with operations outside it.
    #[cold]
    pub(crate) fn capture_event(&self, node: EventNode, event: &ExternalEvent, place: Place) -> Result<()> {
        // The payload holds the caller's event, which lives on. So no event is dropped here for the last time.
        let garbage = Garbage::default();
        lock(&self.context.graphs.captures).operate(self.id, place, |adding| {
            let added = adding.graph.body.add_event(&garbage, adding.tails, node, event, place)?;
            if let (Some(tracer), Some(event)) = (adding.graph.session.tracer(), event.traced()) {
                tracer.captured_event(self.id, event, matches!(node, EventNode::Record), place);
            }
            Ok((added, ()))
        })
    }

    /// Records an event in the capture: the start of an edge.
    #[cold]
    pub(crate) fn capture_record(&self, state: &mut State, caller: &'static Location<'static>) -> Result<Event> {
        let place = Place::Source(caller);
        let at = lock(&self.context.graphs.captures).record(self.id, place)?;
        let traced = at.session.tracer().map(|tracer| {
            let event = tracer.event();
            tracer.record(self.id, &event, place);
            event
        });
        state.counted(Ok(Event { traced, at: At::Captured(Arc::new(at)) }))
    }

    /// Makes the stream wait: adds an edge, or lets the stream join a capture, or refuses.
    #[cold]
    pub(crate) fn capture_wait(
        &self,
        state: &mut State,
        event: &Event,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        let (mut recording, place) = (lock(&self.context.graphs.captures), Place::Source(caller));
        match &event.at {
            At::Live { .. } => recording.wait_outside(self.id, place),
            At::Captured(at) => {
                recording.wait((self.id, self.role), at, place)?;
                if let (Some(tracer), Some(event)) = (at.session.tracer(), &event.traced) {
                    tracer.wait(self.id, event, place);
                }
                state.capture = Some(Arc::clone(&at.session));
                state.epoch = 0;
                state.counted(Ok(()))
            }
        }
    }
}

impl Session {
    /// Returns the name of an allocation of the capture.
    fn name<T: bytemuck::Pod>(&self, owned: &Owned, count: Count<T>) -> MemAllocNode<T> {
        let alloc = GraphAllocId(owned.allocation.index);
        let name = NodeName { device: self.context.number, graph: self.id, alloc, address: owned.address };
        MemAllocNode::new(Some(name), count)
    }
}

impl<T: bytemuck::Pod> Buffer<T> {
    /// Leaves memory that was allocated in a capture live after a launch of the graph. Returns the name by which a
    /// launch [hands it out](crate::graph::Launch::take). A buffer that was not allocated in a capture is dropped, and
    /// its name takes nothing.
    pub fn into_alloc_node(self) -> MemAllocNode<T> {
        let (owned, count) = self.into_owned();
        match owned {
            Some(owned) => match &owned.allocation.origin {
                Origin::Captured(session) => Arc::clone(session).name(&owned, count),
                _ => {
                    drop(Buffer::new(Some(owned), count));
                    MemAllocNode::new(None, count)
                }
            },
            None => MemAllocNode::new(None, count),
        }
    }
}

impl Stream {
    /// In a capture, adds a free node for memory that a launch of another graph leaves live, by its alloc node.
    ///
    /// # Errors
    /// The stream does not capture; the memory has a free node already.
    #[track_caller]
    pub fn free_alloc_node<T: bytemuck::Pod>(&self, memory: MemAllocNode<T>) -> Result<()> {
        let caller = Location::caller();
        let Some(name) = memory.name else { return Ok(()) };
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let mode = shared.enter(&mut state);
        // Outside of a capture a free of this memory would be another operation in a trace, which may be right.
        let is_traced = !matches!(mode, Ok(Mode::Live));
        let freed = mode.and_then(|_| self.capture_free_node(&mut state, name, caller));
        // The stream is still locked: the capture cannot end before its refusal is traced.
        freed.inspect_err(|error| {
            if is_traced {
                shared.note_refused(error, |tracer| {
                    tracer.free_of(tracer.alloc_node(name.graph, name.alloc), shared.id, caller);
                });
            }
        })
    }

    fn capture_free_node(&self, state: &mut State, name: NodeName, caller: &'static Location<'static>) -> Result<()> {
        let shared = &self.shared;
        if name.device != shared.context.number {
            return Err(Invalid::OtherDevice { what: "an alloc node".into(), with: shared.title() }.into());
        }
        if name.is_symbolic() {
            return lock(&shared.context.graphs.captures).operate(shared.id, Place::Source(caller), |_| {
                let later = side(shared.context.number, site(Act::Free, shared.id, 0, caller));
                Err(Finding::symbolic(&name.graph.to_string()).at(later).into())
            });
        }
        let (id, memory) = (shared.id, Memory::Foreign { graph: name.graph, alloc: name.alloc });
        let captured = shared.capture_free_of(memory, None, caller, |tracer| {
            tracer.free_of(tracer.alloc_node(name.graph, name.alloc), id, caller);
        });
        state.counted(captured)
    }
}
