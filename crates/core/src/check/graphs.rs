//! Graphs that the program makes, by hand and by capture.
//!
//! The [`graph`](crate::graph) module says what a graph is and what is wrong with it, as in the library. Here the
//! program's names become numbers of graphs, and refusals become findings. Knows no launch.
//!
//! Which allocations of a graph share bytes is decided as in the library, with addresses that no memory has.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::addresses::empty_graph;
use super::checker::{Call, Checker, Step, quiet};
use super::finding::{Finding, Spot};
use super::graph_state::Made;
use super::lives::{Found, Named};
use super::names::Held;
use crate::graph::{
    Access as NodeAccess, Asked, Draft, EventKey, Graph, GraphError, GraphFault, Holder, Label, Memory as NodeMemory,
    NodeKind, Origin, Pin, Refusal, Work,
};
use crate::ids::{GraphId, NodeId, StreamId};
use crate::life::{Kind, Site};
use crate::op::{Access, Act, CaptureMode, Memory, Name, NodeOp, Part, Thing, What};

impl Checker {
    /// Returns the label of a node that was captured on a stream, or added by hand.
    pub(super) fn label(&self, call: Call<'_>, name: Option<Name>, stream: Option<StreamId>) -> Label {
        let device = stream.and_then(|stream| self.time.stream(stream)).map(|stream| stream.kept.device);
        let name = name.and_then(|name| call.names.text(name)).cloned();
        Label { name, place: call.op.place, stream, device }
    }

    /// Returns the memory that a name means in a node of a graph.
    pub(super) fn node_memory(
        &mut self,
        call: Call<'_>,
        graph: GraphId,
        memory: Memory,
        later: Site,
        pins: &mut Pins,
    ) -> Step<NodeMemory> {
        let key = match self.graphs.names.key(memory) {
            Some(key) => key,
            None => {
                let target = self.resolve(call, memory, later)?;
                let Some(named) = self.left_by_launch(target.life) else {
                    return Ok(NodeMemory::External { id: memory.id, generation: memory.generation });
                };
                let Memory { id, generation } = memory;
                let pin = Pin { graph: named.0, alloc: named.1, id, generation };
                match later.act {
                    Act::Free => {}
                    _ if named.0 == graph => return Err(self.made_anew(call, pin, "named")),
                    _ => pins.push(pin),
                }
                named
            }
        };
        if key.0 == graph {
            return Ok(NodeMemory::Own(key.1));
        }
        self.refuse_symbolic(call, graph, key.0)?;
        self.graphs.hold(graph, &smallvec![key.0]);
        Ok(NodeMemory::Foreign { graph: key.0, alloc: key.1 })
    }

    /// Returns the accesses of a node, by the memory that they mean in its graph.
    pub(super) fn node_accesses(
        &mut self,
        call: Call<'_>,
        graph: GraphId,
        accesses: &[Access],
        sites: &[Site],
    ) -> Step<(SmallVec<[NodeAccess; 2]>, Pins)> {
        let (mut found, mut pins) = (SmallVec::new(), Pins::new());
        for (access, site) in accesses.iter().zip(sites) {
            let memory = self.node_memory(call, graph, access.memory, *site, &mut pins)?;
            found.push(NodeAccess { memory, act: access.act, part: access.part });
        }
        Ok((found, pins))
    }

    fn remove_node(&mut self, call: Call<'_>, graph: GraphId, node: NodeId) -> Step {
        let key = match self.made(call, graph)?.graph.node(node).map(|node| &node.kind) {
            Some(NodeKind::MemAlloc(alloc)) => Some((graph, *alloc)),
            _ => None,
        };
        let others = self.graphs.others(graph, key);
        let removed = self.edit(call, graph, |graph| graph.remove_unshared(node, others))?;
        self.take_back(graph, &removed);
        Ok(())
    }

    /// Checks that the number of a new graph or instance is unused: a number names one of them until nothing is left of
    /// it. (Programs number what they make; a damaged trace may give a number twice.)
    fn check_number(&self, what: &What, call: Call<'_>) -> Step {
        let it = &self.graphs;
        let taken = match *what {
            What::GraphCreate { graph, .. }
            | What::GraphClone { copy: graph, .. }
            | What::CaptureBegin { graph, .. } => {
                let is_taken = it.graphs.contains_key(&graph) || it.capture_into(graph).is_some();
                (is_taken || it.names.is_held(graph)).then(|| call.names.title(Thing::Graph(graph)))
            }
            What::Instantiate { exec, .. } => it.execs.contains_key(&exec).then(|| call.names.title(Thing::Exec(exec))),
            _ => None,
        };
        let Some(number) = taken else { return Ok(()) };
        let mut finding = Finding::new(Kind::UnknownName, format!("{number} exists already"), "give it another number");
        finding.later = Some(self.side(call, self.host_site(call, Act::Read), "made"));
        Err(Box::new(finding))
    }

    /// Does the operations of graphs, captures and instances.
    pub(super) fn graph_step(&mut self, what: &What, call: Call<'_>) -> Step {
        self.check_number(what, call)?;
        match *what {
            What::GraphCreate { graph, symbolic } => {
                self.add_graph(empty_graph(graph, symbolic), Held::new());
                self.graphs.hold(graph, &smallvec![graph]);
                Ok(())
            }
            What::GraphNode { graph, ref node, ref after, name } => {
                let after = self.nodes(call, graph, after);
                let added = after.and_then(|after| self.add_node(call, graph, node, &after, name));
                // The program counts the refused node, too.
                if let (Err(_), Some(made)) = (&added, self.graphs.graphs.get_mut(&graph)) {
                    made.refused.push((made.graph.len() + made.refused.len()) as u32);
                }
                added
            }
            What::GraphEdge { graph, from, to } => {
                let ends = self.nodes(call, graph, &[from, to])?;
                self.edit(call, graph, |graph| graph.add_edge(ends[0], ends[1]))
            }
            What::GraphEdgeRemove { graph, from, to } => {
                let ends = self.nodes(call, graph, &[from, to])?;
                self.edit(call, graph, |graph| graph.remove_edge(ends[0], ends[1]))
            }
            What::GraphNodeRemove { graph, node } => {
                let node = self.nodes(call, graph, &[node])?[0];
                self.remove_node(call, graph, node)
            }
            What::GraphClone { graph, copy } => self.clone_graph(call, graph, copy),
            What::CopyName { graph, node, memory } => self.name_of_copy(call, graph, node, memory),
            What::GraphDestroy { graph } => {
                self.made(call, graph)?;
                self.check_unasked(call, graph);
                if let Some(made) = self.graphs.graphs.remove(&graph) {
                    self.forget_names(&made.held);
                }
                Ok(())
            }
            What::CaptureBegin { stream, graph, mode, symbolic } => {
                self.begin_capture(call, stream, graph, mode, symbolic)
            }
            What::CaptureToGraph { stream, graph, ref after, mode } => {
                let after = self.nodes(call, graph, after)?;
                self.begin_capture_to(call, stream, (graph, &after), mode)
            }
            What::CaptureModeExchange { mode } => {
                match mode {
                    CaptureMode::Global => drop(self.graphs.modes.remove(&call.op.host)),
                    other => drop(self.graphs.modes.insert(call.op.host, other)),
                }
                Ok(())
            }
            What::CaptureEnd { stream } => self.end_capture(call, stream),
            What::CaptureAbandon { stream } => self.abandon_capture(call, stream),
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                self.instantiate(call, graph, exec, auto_free_on_launch)
            }
            What::ExecUpdate { exec, graph } => self.update(call, exec, graph),
            What::GraphLaunch { exec, stream } => self.launch_graph(call, exec, stream),
            What::GraphUpload { exec, stream } => self.upload(call, exec, stream),
            What::Take { exec, node, memory } => self.take(call, exec, node, memory),
            What::ExecDestroy { exec } => self.destroy_exec(call, exec),
            _ => Ok(()),
        }
    }

    fn clone_graph(&mut self, call: Call<'_>, graph: GraphId, copy: GraphId) -> Step {
        let made = self.made(call, graph)?;
        let (mut held, refused) = (made.held.clone(), made.refused.clone());
        let copied = made.graph.duplicate(copy);
        let copied = copied.map_err(|error| self.graph_refused_at(call, graph, error))?;
        held.retain(|of| *of != graph);
        held.push(copy);
        self.graphs.names.hold(&held);
        self.add_graph(copied, held);
        let made = self.made(call, copy)?;
        (made.refused, made.original) = (refused, Some(graph));
        Ok(())
    }

    pub(super) fn add_graph(&mut self, graph: Graph, held: Held) {
        self.graphs.said.remove(&graph.id());
        let made = Made {
            graph,
            held,
            original: None,
            holder: None,
            before: SmallVec::new(),
            is_checked: false,
            is_made_of: false,
            refused: Vec::new(),
        };
        self.graphs.graphs.insert(made.graph.id(), made);
    }

    /// Checks that a graph may get an instance or become a child. A graph with fixed addresses may do so only once.
    pub(super) fn check_copy(&mut self, call: Call<'_>, graph: GraphId, asked: Asked) -> Step {
        let holder = self.graphs.others(graph, None).holder;
        let checked = self.made(call, graph)?.graph.check_unheld(asked, holder);
        checked.map_err(|error| self.graph_refused_at(call, graph, error))
    }

    /// Releases the names of a graph or an instance that no longer exists. The names of memory that nothing else holds
    /// then refer to its last free, or to nothing.
    pub(super) fn forget_names(&mut self, held: &Held) {
        for memory in self.graphs.release(held) {
            let freed = self.graphs.freed.remove(&memory);
            if let Found::Named(Named::Node { .. }) = self.lives.find(memory) {
                match freed {
                    Some(freed) => self.lives.forget(memory, freed),
                    None => self.lives.remove(memory),
                }
            }
        }
    }

    /// Gives memory of a copy a name of its own.
    fn name_of_copy(&mut self, call: Call<'_>, graph: GraphId, node: Memory, memory: Memory) -> Step {
        let original = self.made(call, graph)?.original;
        if let Found::Named(Named::Void) = self.lives.find(node) {
            return Err(quiet());
        }
        let Some((_, alloc)) = self.graphs.names.key(node).filter(|key| Some(key.0) == original) else {
            let (name, graph) = (call.names.title(Thing::Memory(node)), call.names.title(Thing::Graph(graph)));
            let sentence = format!("{name} is not memory of the graph that {graph} is a copy of");
            let mut finding = Finding::new(Kind::UnknownName, sentence, "name an alloc node of the original");
            finding.later = Some(self.side(call, self.host_site(call, Act::Read), "named"));
            return Err(Box::new(finding));
        };
        if let Some(kept) = self.graphs.kept.get(&node).cloned() {
            self.graphs.kept.insert(memory, kept);
        }
        let addressing = self.made(call, graph)?.graph.addressing();
        self.graphs.names.add((graph, alloc), memory, addressing);
        self.lives.name(memory, Named::Node { graph, alloc });
        Ok(())
    }

    pub(super) fn made(&mut self, call: Call<'_>, graph: GraphId) -> Step<&mut Made> {
        if self.graphs.void_graphs.contains(&graph) {
            return Err(quiet());
        }
        if !self.graphs.graphs.contains_key(&graph) || self.graphs.capture_into(graph).is_some() {
            let sentence = format!("{} is not there", call.names.title(Thing::Graph(graph)));
            let mut finding = Finding::new(Kind::UnknownName, sentence, "create it, or capture it, first");
            finding.later = Some(self.side(call, self.host_site(call, Act::Read), "used"));
            return Err(Box::new(finding));
        }
        Ok(self.graphs.graphs.get_mut(&graph).expect("the graph is there"))
    }

    /// Returns nodes by the program's numbers. An operation on a refused node is not done.
    fn nodes(&mut self, call: Call<'_>, graph: GraphId, nodes: &[NodeId]) -> Step<SmallVec<[NodeId; 4]>> {
        let made = self.made(call, graph)?;
        nodes.iter().map(|node| made.node(*node)).collect::<Option<_>>().ok_or_else(quiet)
    }

    fn edit<R>(
        &mut self,
        call: Call<'_>,
        graph: GraphId,
        edit: impl FnOnce(&mut Graph) -> Result<R, GraphError>,
    ) -> Step<R> {
        let made = self.made(call, graph)?;
        made.is_checked = false;
        edit(&mut made.graph).map_err(|error| self.graph_refused_at(call, graph, error))
    }

    fn add_node(
        &mut self,
        call: Call<'_>,
        graph: GraphId,
        node: &NodeOp,
        after: &[NodeId],
        name: Option<Name>,
    ) -> Step {
        self.made(call, graph)?;
        let label = self.label(call, name, None);
        match *node {
            NodeOp::Alloc { memory, bytes } => {
                let holder = self.graphs.others(graph, None).holder;
                let made = self.graphs.graphs.get_mut(&graph).ok_or_else(quiet)?;
                made.is_checked = false;
                let may = made.graph.check_unmoved(holder);
                let added = may.and_then(|()| self.graphs.addresses.add_alloc(&mut made.graph, after, bytes, label));
                let addressing = made.graph.addressing();
                let (_, alloc) = added.map_err(|error| self.graph_refused_at(call, graph, error))?;
                self.graphs.names.add((graph, alloc), memory, addressing);
                self.lives.name(memory, Named::Node { graph, alloc });
                Ok(())
            }
            NodeOp::Free(memory) => {
                let later = self.host_site(call, Act::Free);
                let found = self.node_memory(call, graph, memory, later, &mut Pins::new())?;
                let key = self.made(call, graph)?.graph.freed_alone(found);
                let others = self.graphs.others(graph, key);
                self.edit(call, graph, |graph| graph.add_only_free(after, found, label, others))?;
                self.graphs.grant(key, graph);
                Ok(())
            }
            NodeOp::Child(child) => {
                let made = self.made(call, child)?;
                made.is_made_of = true;
                let (inside, held) = (Arc::new(made.graph.clone()), made.held.clone());
                let is_fixed = inside.fixed_memory().is_some();
                let holders = (self.graphs.others(graph, None).holder, self.graphs.others(child, None).holder);
                self.edit(call, graph, |graph| graph.add_unheld_child(after, inside, label, holders))?;
                self.graphs.hold(graph, &held);
                if is_fixed {
                    let made = self.made(call, child)?;
                    made.holder = Some((Holder::Parent(graph, call.op.place), None));
                    let before = std::mem::take(&mut made.before);
                    self.made(call, graph)?.before.extend(before);
                }
                Ok(())
            }
            ref other => {
                let (work, named) = work(other);
                if let NodeOp::EventRecord(event) | NodeOp::EventWait(event) = *other {
                    self.check_event_process(call, event, self.host_site(call, Act::Read))?;
                }
                let sites: SmallVec<[Site; 2]> = named.iter().map(|it| self.host_site(call, it.act)).collect();
                let (accesses, pins) = self.node_accesses(call, graph, named, &sites)?;
                if work == Work::Copy {
                    let subject = |at: usize| self.named_by_node(call, graph, &named[at], &accesses[at]);
                    self.refuse_overlap(call, self.host_site(call, Act::Write), used(&accesses), subject)?;
                }
                let may_share = !self.settings.races;
                self.edit(call, graph, |graph| {
                    let node = graph.add_work(work, after, &accesses, label)?;
                    pins.into_iter().for_each(|pin| graph.pin(pin));
                    graph.set_may_share(node, may_share);
                    Ok(())
                })
            }
        }
    }

    /// Checks a graph as a whole and reports what is wrong. A fault between nodes is reported once, at those nodes.
    /// Another refusal is reported each time that it is met. Returns `None` if anything is wrong.
    pub(super) fn check_whole(&mut self, call: Call<'_>, graph: GraphId) -> Option<Draft> {
        let made = self.graphs.graphs.get_mut(&graph)?;
        let was_checked = std::mem::replace(&mut made.is_checked, true);
        made.is_made_of = true;
        match Draft::new(&made.graph) {
            Ok(draft) => Some(draft),
            Err(Refusal::Faults(_)) if was_checked => None,
            Err(Refusal::Faults(faults)) => {
                for fault in faults {
                    if !self.was_said(graph, &fault) {
                        let mut finding = self.graph_fault(call, graph, &fault);
                        if let (What::Instantiate { .. }, Some(path)) = (&call.op.what, finding.notes.last_mut()) {
                            *path += " when it is instantiated";
                            if call.op.place != Default::default() {
                                *path += &format!(" ({})", Spot::new(call.op.place, call.names));
                            }
                        }
                        self.more.push(finding);
                    }
                }
                None
            }
            Err(refusal) => {
                let later = self.side(call, self.host_site(call, Act::Read), "instantiated");
                self.more.push(Finding::of_draft(&refusal).at(later));
                None
            }
        }
    }

    /// Returns `true` if a fault was reported for another graph: the innermost child that contains both nodes, or a
    /// graph around that child. If not, notes that it is reported for this one now.
    fn was_said(&mut self, graph: GraphId, fault: &GraphFault) -> bool {
        let Some(made) = self.graphs.graphs.get(&graph) else { return false };
        let (mut within, mut nodes) = (&made.graph, (&fault.earlier.origin[..], &fault.later.origin[..]));
        while let ([first, earlier @ ..], [same, later @ ..]) = nodes
            && first == same
            && let Some(NodeKind::Child(child)) = within.node(*first).map(|node| &node.kind)
        {
            (within, nodes) = (child, (earlier, later));
        }
        let memory = match fault.subject.memory {
            NodeMemory::Foreign { graph, alloc } if graph == within.id() => NodeMemory::Own(alloc),
            memory => memory,
        };
        let key = (fault.kind, memory, Origin::from(nodes.0), Origin::from(nodes.1));
        *self.graphs.said.entry(within.id()).or_default().entry(key).or_insert(graph) != graph
    }

    /// As [`check_whole`](Self::check_whole), for a graph from which nothing was made.
    fn check_unasked(&mut self, call: Call<'_>, graph: GraphId) {
        if self.settings.unused_graphs && self.graphs.graphs.get(&graph).is_some_and(|made| !made.is_made_of) {
            self.check_whole(call, graph);
        }
    }

    /// Checks the graphs from which nothing was made.
    pub(super) fn check_leftover_graphs(&mut self, call: Call<'_>) {
        let mut left: Vec<GraphId> =
            self.graphs.graphs.iter().filter(|(_, made)| !made.is_made_of).map(|(id, _)| *id).collect();
        left.sort_unstable();
        for graph in left {
            self.check_whole(call, graph);
        }
    }
}

/// The lifetimes that a node names of memory that launches of other graphs left.
pub(super) type Pins = SmallVec<[Pin; 1]>;

/// Returns the memory, the act and the bytes of a node's accesses.
pub(super) fn used(accesses: &[NodeAccess]) -> impl Iterator<Item = (NodeMemory, Act, Part)> {
    accesses.iter().map(|access| (access.memory, access.act, access.part))
}

/// Returns the work and the accesses of a node that neither allocates nor frees.
fn work(node: &NodeOp) -> (Work, &[Access]) {
    match node {
        NodeOp::Kernel(accesses) => (Work::Kernel, accesses),
        NodeOp::Copy(accesses) => (Work::Copy, accesses),
        NodeOp::Fill(accesses) => (Work::Memset, accesses),
        NodeOp::HostFunction(accesses) => (Work::HostFunction, accesses),
        NodeOp::EventRecord(event) => (Work::EventRecord(EventKey(u64::from(event.0))), &[]),
        NodeOp::EventWait(event) => (Work::EventWait(EventKey(u64::from(event.0))), &[]),
        _ => (Work::Empty, &[]),
    }
}
