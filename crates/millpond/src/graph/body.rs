//! A graph in the making: core's graph, and what each node does.
//!
//! Depends on accesses and allocations; not on streams. Both ways of building use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::check::{Act, Finding, Place, Side, Site, Subject};
use millpond_core::graph::{
    Access as NodeAccess, Addressing, Asked, Graph as CoreGraph, GraphAllocId, GraphError as CoreError, GraphId, Label,
    Memory, NodeId, Others, Pin,
};
use millpond_core::ids::{AllocId, DeviceId, StreamId};
use millpond_core::op::{Names, NodeOp};
use millpond_core::units::Range;
use millpond_driver::DriverError;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::grant::Grant;
use super::holder::HeldBy;
use crate::graph::arena::Arena;
use crate::names::count::Count;
use crate::names::error::{Error, Invalid, Result};
use crate::names::share_error::ShareError;
use crate::names::shown::shown;
use crate::names::stream_names::side;
use crate::state::access::{Access, Declared, Few, Source};
use crate::state::aliased::Job;
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::named::NodeName;
use crate::state::named::{MemAllocNode, Named};
use crate::state::origin::Origin;
use crate::stream::external::{EventNode, ExternalEvent};
use crate::stream::payload::{LatePlace, Payload};
use crate::sync::garbage::{Garbage, Held};
use crate::trace::tracer::Tracer;

/// The accesses of a node, resolved for the order, and their addresses in the order of declaration.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) accesses: SmallVec<[NodeAccess; 4]>,
    /// The same accesses for the trace, if there is one: with the lifetime, if the program named one.
    pub(crate) traced: SmallVec<[NodeAccess; 4]>,
    pub(crate) addresses: SmallVec<[u64; 4]>,
    /// The place of each declared access, if some address is symbolic.
    pub(crate) late: Option<SmallVec<[LatePlace; 2]>>,
    /// The named lifetimes of other graphs' memory.
    pins: SmallVec<[Pin; 1]>,
    /// The memory of each declared access that has any, the offset in it, and `true` if its address is symbolic.
    named: SmallVec<[Option<(Memory, u64, bool)>; 4]>,
}

impl Resolved {
    /// Fills in `late` if some address is symbolic.
    fn settle(&mut self) {
        if !self.named.iter().flatten().any(|(_, _, is_symbolic)| *is_symbolic) {
            return;
        }
        let place = |(named, address): (&Option<(Memory, u64, bool)>, &u64)| match named {
            Some((memory, offset, true)) => {
                let access = self.accesses.iter().position(|access| access.memory == *memory);
                LatePlace::Within { access: access.expect("it is declared") as u32, offset: *offset }
            }
            _ => LatePlace::At(*address),
        };
        self.late = Some(self.named.iter().zip(&self.addresses).map(place).collect());
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Body {
    pub(crate) context: Arc<Context>,
    pub(crate) core: CoreGraph,
    /// By node.
    pub(crate) payloads: Vec<Payload>,
    /// The graphs that are nodes. Such a node does what the nodes of its graph do.
    pub(crate) children: BTreeMap<NodeId, Arc<Body>>,
    pub(crate) arena: Arc<Arena>,
    /// The memory from outside the graph that nodes name.
    pub(crate) held: FxHashMap<AllocId, Arc<Allocation>>,
    pub(crate) grant: Arc<Grant>,
    /// `true` while a capture builds the graph. The trace then has the stream's operations in place of nodes.
    is_in_capture: bool,
    /// The stream that captures the next nodes, if a capture builds the graph.
    captured_on: Option<StreamId>,
    /// The graph that this is a clone of, and the graphs which that one was a clone of, each with its node count then.
    pub(super) originals: Vec<(GraphId, usize)>,
    pub(super) held_by: Arc<HeldBy>,
}

impl Body {
    pub(crate) fn new(context: &Arc<Context>, addressing: Addressing) -> Self {
        let mut body = Self::to_capture(context, addressing);
        if let Some(tracer) = &context.tracer {
            tracer.graph(body.core.id(), addressing == Addressing::Symbolic);
        }
        body.captured();
        body
    }

    /// Makes a graph for a capture. Until the capture ends well, the trace has the operations of its streams instead.
    pub(crate) fn to_capture(context: &Arc<Context>, addressing: Addressing) -> Self {
        let id = context.graphs.next_graph();
        Self {
            context: Arc::clone(context),
            core: CoreGraph::new(id, context.properties.granularity, addressing),
            payloads: Vec::new(),
            children: BTreeMap::new(),
            arena: Arena::new(context),
            held: FxHashMap::default(),
            grant: Grant::new(id, context.tracer.as_ref(), false),
            is_in_capture: true,
            captured_on: None,
            originals: Vec::new(),
            held_by: Arc::default(),
        }
    }

    /// Records that the capture has ended and the graph exists.
    pub(crate) fn captured(&mut self) {
        self.is_in_capture = false;
        self.captured_on = None;
        self.grant.is_there();
    }

    /// Sets the stream on which the next nodes are captured.
    pub(crate) fn captures_on(&mut self, stream: StreamId) {
        self.captured_on = Some(stream);
    }

    /// Returns the site of a node that is added.
    fn site(&self, act: Act, place: Place) -> Site {
        Site { act, stream: self.captured_on.unwrap_or(StreamId::HOST), op: 0, place }
    }

    /// Returns the same as a side of a report.
    fn side(&self, site: Site) -> Side {
        let side = side(self.context.number, site);
        match self.captured_on {
            Some(_) => side,
            None => Side { who: format!("a node of {}", self.core.id()), ..side },
        }
    }

    pub(super) fn label(&self, place: Place) -> Label {
        // As in a trace, which does not say on which device a node that was added by hand runs.
        let device = self.captured_on.map(|_| DeviceId(self.context.number));
        Label { place: shown(place), stream: self.captured_on, device, ..Label::default() }
    }

    /// Returns the tracer that records nodes as nodes, if any.
    pub(super) fn node_tracer(&self) -> Option<&Arc<Tracer>> {
        self.context.tracer.as_ref().filter(|_| !self.is_in_capture)
    }

    /// Makes a copy with a graph number of its own.
    pub(crate) fn duplicate(&self) -> Result<Self> {
        let id = self.context.graphs.next_graph();
        let core = self.core.duplicate(id);
        let tracer = self.context.tracer.clone();
        if let Some(tracer) = &tracer {
            tracer.graph_cloned(self.core.id(), id, core.is_ok());
        }
        let core = core?;
        let grant = Grant::new(id, tracer.as_ref(), true);
        let originals = self.originals.iter().copied().chain([(self.core.id(), self.core.len())]).collect();
        let arena = Arena::new(&self.context);
        Ok(Self { core, grant, originals, arena, held_by: Arc::default(), ..self.clone() })
    }

    /// Makes a copy of the same graph for a capture into it. If the capture fails, the copy's free nodes are forgotten.
    pub(crate) fn attempt(&self) -> Self {
        Self { grant: Grant::attempt(&self.grant), is_in_capture: true, ..self.clone() }
    }

    pub(crate) fn keep(&mut self, node: NodeId, payload: Payload) {
        // The node of a window may have later nodes by the time that the window is closed.
        if node.index() >= self.payloads.len() {
            self.payloads.resize(node.index() + 1, Payload::Nothing);
        }
        self.payloads[node.index()] = payload;
    }

    /// Finds the memory of the declared accesses, and refuses accesses that one node cannot have. `late` is called with
    /// the graph of each access whose address is symbolic, and may refuse it.
    pub(crate) fn resolve<A: Access>(
        &mut self,
        accesses: &A,
        job: Job,
        place: Place,
        late: impl Fn(GraphId) -> Result<()>,
    ) -> Result<Resolved> {
        let mut resolved = Resolved::default();
        let mut failed = None;
        let mut parts = Few::new();
        accesses.declare(&mut |declared| {
            if failed.is_none() {
                let found = self.resolve_one(&declared, self.site(declared.act, place), &mut resolved);
                failed = found.and_then(|symbolic| symbolic.map_or(Ok(()), &late)).err();
            }
            if let (None, Some(part), Some(access)) = (&failed, declared.part, resolved.accesses.last()) {
                parts.push((access.memory, access.act, part));
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        resolved.settle();
        parts.sort_by_key(|(memory, _, bytes)| (*memory, *bytes));
        if let Some(at) = job.find_aliased::<A, _>(parts.iter().copied()) {
            let later = self.side(self.site(Act::Write, place));
            return Err(job.aliased(&parts, at, self.described(parts[at].0), later));
        }
        Ok(resolved)
    }

    /// Resolves one access. Returns its graph if the address is symbolic: each instance then has its own address.
    fn resolve_one(
        &mut self,
        declared: &Declared<'_>,
        later: Site,
        resolved: &mut Resolved,
    ) -> Result<Option<GraphId>> {
        let symbolic = match declared.source {
            Source::Node(name) if name.is_symbolic() => Some(name.graph),
            _ => None,
        };
        let Some(part) = declared.part else {
            resolved.addresses.push(0);
            resolved.named.push(None);
            return Ok(None);
        };
        let (memory, address) = match declared.source {
            Source::Empty | Source::Named(None) => {
                resolved.addresses.push(0);
                resolved.named.push(None);
                return Ok(None);
            }
            Source::Nothing => return Err(Invalid::Stale.into()),
            Source::Owned(owned) => {
                (self.memory_of(&owned.allocation, owned.generation, later, &mut resolved.pins)?, owned.address)
            }
            Source::Named(Some(named)) => (self.memory_named(named, later, &mut resolved.pins)?, named.address),
            Source::Node(name) => (self.memory_of_node(name)?, name.address),
        };
        let access = NodeAccess { memory, act: declared.act, part };
        resolved.accesses.push(access);
        if self.node_tracer().is_some() {
            let is_by_node = matches!(declared.source, Source::Node(_));
            let memory = if is_by_node { memory } else { self.traced(memory, &resolved.pins) };
            resolved.traced.push(NodeAccess { memory, ..access });
        }
        resolved.addresses.push(address + part.from());
        resolved.named.push(Some((memory, part.from(), symbolic.is_some())));
        Ok(symbolic)
    }

    /// Refuses objects of another device. Numbers of graphs and allocations are unique only on one device.
    pub(crate) fn check_device(&self, device: u32, what: impl FnOnce() -> String) -> Result<()> {
        match device == self.context.number {
            true => Ok(()),
            false => Err(Invalid::OtherDevice { what: what(), with: self.core.id().to_string() }.into()),
        }
    }

    /// Returns the name in this graph of an alloc node's memory.
    pub(crate) fn memory_of_node(&self, name: NodeName) -> Result<Memory> {
        self.check_device(name.device, || "an alloc node".into())?;
        if name.graph == self.core.id() {
            return Ok(Memory::Own(name.alloc));
        }
        self.check_symbolic(name)?;
        Ok(Memory::Foreign { graph: name.graph, alloc: name.alloc })
    }

    /// Refuses memory with symbolic addresses of a graph that is not part of this one.
    fn check_symbolic(&self, name: NodeName) -> Result<()> {
        match name.is_symbolic() && name.graph != self.core.id() && !self.core.has_child(name.graph) {
            true => Err(Finding::symbolic(&name.graph.to_string()).into()),
            false => Ok(()),
        }
    }

    fn memory_named(&mut self, named: Named, later: Site, pins: &mut SmallVec<[Pin; 1]>) -> Result<Memory> {
        self.check_device(named.device, || "a view".into())?;
        let found = match named.pool {
            None => match self.context.share.find_import(named.id) {
                Some(import) => import,
                None => self.context.graphs.find(named.id, named.generation)?,
            },
            Some(id) => {
                let pool = self.context.pools().into_iter().find(|pool| pool.id == id);
                pool.and_then(|pool| pool.resolve(named.index)).ok_or(Invalid::Stale)?
            }
        };
        self.memory_of(&found, named.generation, later, pins)
    }

    /// Refuses a lifetime that has ended.
    pub(crate) fn check_life(&self, allocation: &Allocation, generation: u64, later: Site) -> Result<()> {
        let life = allocation.life();
        if life.generation != generation {
            return Err(allocation.stale_name(&life, generation, self.side(later)).into());
        }
        if let Some(free) = life.freed.now() {
            let freed = side(self.context.number, free.site);
            return Err(Finding::after_free(allocation.subject(&life), Some(freed), self.side(later)).into());
        }
        Ok(())
    }

    /// Returns the name in this graph of one lifetime of an allocation.
    fn memory_of(
        &mut self,
        allocation: &Arc<Allocation>,
        generation: u64,
        later: Site,
        pins: &mut SmallVec<[Pin; 1]>,
    ) -> Result<Memory> {
        self.check_device(allocation.device, || allocation.id.to_string())?;
        if let Origin::Captured(session) = &allocation.origin {
            let (graph, alloc) = (session.id, GraphAllocId(allocation.index));
            return Ok(match graph == self.core.id() {
                true => Memory::Own(alloc),
                false => Memory::Foreign { graph, alloc },
            });
        }
        self.check_life(allocation, generation, later)?;
        if let Some(memory) = self.core.pinned(allocation.id, generation) {
            return Ok(memory);
        }
        if allocation.is_import() {
            return Err(ShareError::NotInGraphs { what: allocation.id.to_string() }.into());
        }
        if let Origin::Pinned(_) = allocation.origin {
            // Only a copy names pinned memory. A graph has no such copies: the caller refuses it next.
            return Ok(Memory::External { id: allocation.id, generation });
        }
        self.held.entry(allocation.id).or_insert_with(|| Arc::clone(allocation));
        if let Origin::Graph(_) = allocation.origin
            && let Some((graph, alloc)) = self.context.graphs.key_of(allocation)
        {
            let id = allocation.id;
            return match graph == self.core.id() {
                true => Err(Finding::made_anew(&id.to_string()).at(self.side(later)).into()),
                false => {
                    let pin = Pin { graph, alloc, id, generation };
                    pins.push(pin);
                    Ok(pin.memory())
                }
            };
        }
        // If a graph is kept for over four billion lifetimes of one allocation, it takes a new lifetime for the named
        // one.
        Ok(Memory::External { id: allocation.id, generation })
    }

    /// Returns the memory that a node names, in words, and its size.
    #[cold]
    fn described(&self, memory: Memory) -> (String, u64) {
        match memory {
            Memory::Own(alloc) => (alloc.to_string(), self.core.alloc(alloc).map_or(u64::MAX, |alloc| alloc.bytes)),
            Memory::Foreign { alloc, .. } => (alloc.to_string(), u64::MAX),
            Memory::External { id, .. } => match self.outside(memory) {
                Some(subject) => (subject.to_string(), subject.bytes),
                None => (id.to_string(), u64::MAX),
            },
        }
    }

    /// Returns memory from outside the graph as a report shows it.
    #[cold]
    pub(super) fn outside(&self, memory: Memory) -> Option<Subject> {
        let Memory::External { id, generation } = memory else { return None };
        let allocation = self.held.get(&id)?;
        let life = allocation.life();
        (life.generation == generation).then(|| allocation.subject(&life))
    }

    /// Returns the name of memory in a trace: that of the named lifetime, if there is one.
    fn traced(&self, memory: Memory, pins: &[Pin]) -> Memory {
        let life = |Pin { id, generation, .. }| Memory::External { id, generation };
        let named = pins.iter().copied().find(|pin| pin.memory() == memory);
        named.or_else(|| self.core.pin_of(memory)).map_or(memory, life)
    }

    /// Adds a node that does work, with its accesses and their form in a trace. The payload may own any values of the
    /// program, so it is not dropped here.
    pub(crate) fn add_work(
        &mut self,
        dependencies: &[NodeId],
        resolved: &Resolved,
        payload: Held<'_, Payload>,
        may_share: bool,
        place: Place,
    ) -> Result<NodeId> {
        let label = self.label(place);
        let node = self.core.add_work(payload.work(), dependencies, &resolved.accesses, label)?;
        resolved.pins.iter().for_each(|pin| self.core.pin(*pin));
        self.core.set_may_share(node, may_share);
        if let Some(tracer) = self.node_tracer() {
            tracer.node(
                self.core.id(),
                dependencies,
                payload.traced(tracer.accesses(self.core.id(), &resolved.traced)),
                place,
            );
        }
        self.keep(node, payload.take());
        Ok(node)
    }

    /// Adds an event record or wait node.
    pub(crate) fn add_event(
        &mut self,
        garbage: &Garbage,
        dependencies: &[NodeId],
        node: EventNode,
        event: &ExternalEvent,
        place: Place,
    ) -> Result<NodeId> {
        event.check_device(self.context.number, || self.core.id().to_string())?;
        let payload = match node {
            EventNode::Record => Payload::EventRecord(event.clone()),
            EventNode::Wait => Payload::EventWait(event.clone()),
        };
        self.add_work(dependencies, &Resolved::default(), garbage.hold(payload), false, place)
    }

    /// Adds an alloc node. Returns the address 0 if it is symbolic.
    pub(crate) fn add_alloc(
        &mut self,
        dependencies: &[NodeId],
        bytes: u64,
        place: Place,
    ) -> Result<(NodeId, GraphAllocId, u64)> {
        if bytes > self.context.properties.total_bytes {
            return Err(DriverError::OutOfMemory { call: "alloc node", bytes }.into());
        }
        self.core.check_unmoved(self.held_by.holder())?;
        loop {
            match self.core.add_alloc(dependencies, bytes, self.label(place)) {
                Err(CoreError::NoAddresses { bytes }) => self.core.extend(self.arena.reserve(bytes)?),
                Err(error) => return Err(error.into()),
                Ok((node, alloc)) => {
                    self.keep(node, Payload::Nothing);
                    if let Some(tracer) = self.node_tracer() {
                        let memory = tracer.node_memory(self.core.id(), Memory::Own(alloc));
                        tracer.node(self.core.id(), dependencies, NodeOp::Alloc { memory, bytes }, place);
                    }
                    let range = self.core.alloc(alloc).and_then(|alloc| alloc.range);
                    let start = range.map_or(0, |range| range.start);
                    if start != 0 {
                        self.arena.note(Range::new(start, bytes), (self.core.id(), alloc), place);
                    }
                    return Ok((node, alloc, start));
                }
            }
        }
    }

    /// Adds a free node, for this graph's memory or for memory that another graph leaves live.
    pub(crate) fn add_free(&mut self, dependencies: &[NodeId], memory: Memory, place: Place) -> Result<NodeId> {
        let (label, holder) = (self.label(place), self.held_by.holder());
        let (core, grant, context) = (&mut self.core, &self.grant, &self.context);
        let key = core.freed_alone(memory);
        let add = |freed_by| core.add_only_free(dependencies, memory, label, Others { holder, freed_by });
        let added = match key {
            Some(key) => context.graphs.grant(key, grant, add),
            None => add(None),
        };
        let node = added.map_err(|error| self.free_refused(error, place))?;
        if let Some(tracer) = self.node_tracer() {
            let freed = tracer.node_memory(self.core.id(), memory);
            tracer.node(self.core.id(), dependencies, NodeOp::Free(freed), place);
        }
        self.keep(node, Payload::Nothing);
        Ok(node)
    }

    #[cold]
    fn free_refused(&self, error: CoreError, place: Place) -> Error {
        let finding = Finding::of_change(&error, |node| node.to_string(), &Names::default());
        finding.at(self.side(self.site(Act::Free, place))).into()
    }

    /// Refuses a request that would need the graph's addresses twice.
    pub(super) fn check_copy(&self, asked: Asked) -> Result<()> {
        Ok(self.core.check_copy(asked, None)?)
    }

    /// Adds a whole graph as one node.
    pub(crate) fn add_child(&mut self, dependencies: &[NodeId], child: &Arc<Body>, place: Place) -> Result<NodeId> {
        self.check_device(child.context.number, || "the child graph".into())?;
        let (core, label) = (Arc::new(child.core.clone()), self.label(place));
        let (into, holder) = ((self.core.id(), place), self.held_by.holder());
        let add = |child| Ok(self.core.add_unheld_child(dependencies, core, label, (holder, child))?);
        let node = child.held_by.move_into(&child.core, into, add)?;
        self.keep(node, Payload::Nothing);
        self.children.insert(node, Arc::clone(child));
        if let Some(tracer) = self.node_tracer() {
            tracer.node(self.core.id(), dependencies, tracer.child(child.core.id()), place);
        }
        Ok(node)
    }

    /// Gives a node a name, for messages.
    pub(crate) fn name_node(&mut self, node: NodeId, name: &Arc<str>) {
        if let Some(old) = self.core.node(node) {
            let label = Label { name: Some(Arc::clone(name)), ..old.label.clone() };
            self.core.set_label(node, label);
        }
    }

    /// Gives an allocation a name, for messages. The name is that of its alloc node.
    pub(crate) fn name_alloc(&mut self, alloc: GraphAllocId, name: &Arc<str>) {
        if let Some(node) = self.core.alloc(alloc).map(|alloc| alloc.node) {
            self.name_node(node, name);
        }
    }

    /// Returns the name of an allocation of this graph.
    pub(crate) fn name<T: bytemuck::Pod>(&self, alloc: GraphAllocId, address: u64, count: Count<T>) -> MemAllocNode<T> {
        let (device, graph) = (self.context.number, self.core.id());
        MemAllocNode::new(Some(NodeName { device, graph, alloc, address }), count)
    }
}
