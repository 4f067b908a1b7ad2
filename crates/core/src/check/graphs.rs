//! Graphs as the program makes them: by hand and by capture.
//!
//! What a graph is, and what of it is wrong, is the [`graph`](crate::graph) module's to say, as in the library; here
//! the program's names become numbers of graphs, and what is refused becomes findings. Knows no launch.
//!
//! The graphs have symbolic addresses: where memory lies is no question of the checker.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::checker::{Call, Checker, Step, quiet};
use super::finding::Finding;
use super::kind::Kind;
use super::launches::{Family, Instance};
use super::lives::{Found, Named, Source};
use super::violation::Site;
use crate::graph::{
    Access as NodeAccess, Addressing, Captures, Draft, EventKey, Graph, GraphAllocId, GraphError, Label,
    Memory as NodeMemory, Refusal, Uses, Work,
};
use crate::ids::{ExecId, GraphId, NodeId, StreamId};
use crate::op::{Access, Act, Memory, Name, NodeOp, What};

/// A graph of the program.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) graph: Graph,
    /// The names of its allocations, those of the graphs it was copied from left out.
    pub(super) names: Vec<(GraphAllocId, Memory)>,
    /// Whose addresses its allocations have; none where each instance has its own.
    pub(super) family: Option<GraphId>,
    /// Whether it was ever looked at as a whole.
    is_checked: bool,
}

/// A graph that is being captured.
#[derive(Debug, Default)]
pub(super) struct Captured {
    pub(super) names: Vec<(GraphAllocId, Memory)>,
    pub(super) family: Option<GraphId>,
    /// What its nodes did so far.
    pub(super) uses: Uses,
    /// Where the capture began: on which stream, and in the program.
    pub(super) origin: Option<StreamId>,
    pub(super) begun: Option<Site>,
}

/// All graphs of a program.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    pub(super) captures: Captures,
    /// How many captures go on.
    pub(super) capturing: usize,
    /// What is known of a graph that is being captured.
    pub(super) captured: FxHashMap<GraphId, Captured>,
    pub(super) graphs: FxHashMap<GraphId, Made>,
    pub(super) execs: FxHashMap<ExecId, Instance>,
    pub(super) families: FxHashMap<GraphId, Family>,
    /// Graphs and instances that are not there because something was refused.
    pub(super) void_graphs: FxHashSet<GraphId>,
    pub(super) void_execs: FxHashSet<ExecId>,
    /// What the program calls memory of alloc nodes, where it says so.
    pub(super) called: FxHashMap<Memory, Name>,
    /// The instance that was launched last of a graph with memory that outlives it.
    pub(super) latest: FxHashMap<GraphId, ExecId>,
}

impl Graphs {
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.capturing > 0
    }

    #[inline]
    pub(super) fn is_captured(&self, stream: StreamId) -> bool {
        self.capturing > 0 && self.captures.of(stream).is_some()
    }

    /// The names of a graph's memory, also while it is captured.
    pub(super) fn names_of(&self, graph: GraphId) -> Option<&[(GraphAllocId, Memory)]> {
        let captured = self.captured.get(&graph).map(|captured| &captured.names[..]);
        captured.or_else(|| self.graphs.get(&graph).map(|made| &made.names[..]))
    }

    pub(super) fn entries(&self) -> usize {
        self.graphs.len() + self.execs.len() + self.latest.len() + self.captured.len()
    }
}

impl Checker {
    pub(super) fn label(&self, call: Call<'_>, name: Option<Name>) -> Label {
        Label { name: name.and_then(|name| call.names.text(name)).cloned(), place: call.place }
    }

    /// What a name means to a node of a graph.
    pub(super) fn node_memory(&self, call: Call<'_>, graph: GraphId, memory: Memory, later: Site) -> Step<NodeMemory> {
        match self.lives.find(memory) {
            Found::Named(Named::Node { graph: owner, alloc }) if owner == graph => Ok(NodeMemory::Own(alloc)),
            Found::Named(Named::Node { graph, alloc }) => Ok(NodeMemory::Foreign { graph, alloc }),
            _ => {
                let target = self.resolve(call, memory, later)?;
                match self.lives.at(target.life).source {
                    Source::Launch(exec, alloc) if later.act == Act::Free => {
                        Ok(self.foreign(exec, alloc).unwrap_or(NodeMemory::Own(alloc)))
                    }
                    _ => Ok(NodeMemory::External { id: memory.id, generation: memory.generation }),
                }
            }
        }
    }

    /// Another graph's memory is freed by one node of all graphs.
    pub(super) fn grant(&mut self, call: Call<'_>, to: GraphId, memory: NodeMemory, later: Site) -> Step {
        let NodeMemory::Foreign { graph, alloc } = memory else { return Ok(()) };
        let Some(owner) = self.graphs.graphs.get_mut(&graph) else { return Ok(()) };
        owner.graph.grant_free(alloc, to).map_err(|error| {
            let mut finding = Finding::new(Kind::DoubleFree, error.to_string(), "free it once");
            finding.later = Some(self.act_side(call, later));
            Box::new(finding)
        })
    }

    /// Graphs, captures, instances.
    pub(super) fn graph_step(&mut self, what: &What, call: Call<'_>) -> Step {
        match *what {
            What::GraphCreate { graph, symbolic } => {
                let family = (!symbolic).then_some(graph);
                self.add_graph(Graph::new(graph, 512, Addressing::Symbolic), Vec::new(), family);
                Ok(())
            }
            What::GraphNode { graph, ref node, ref after, name } => self.add_node(call, graph, node, after, name),
            What::GraphEdge { graph, from, to } => self.edit(call, graph, |graph| graph.add_edge(from, to)),
            What::GraphEdgeRemove { graph, from, to } => self.edit(call, graph, |graph| graph.remove_edge(from, to)),
            What::GraphNodeRemove { graph, node } => self.edit(call, graph, |graph| graph.remove_node(node).map(drop)),
            What::GraphClone { graph, copy } => {
                let made = self.made(call, graph)?;
                let (copied, family) = (made.graph.duplicate(copy), made.family);
                self.add_graph(copied, Vec::new(), family);
                Ok(())
            }
            What::GraphDestroy { graph } => {
                self.made(call, graph)?;
                self.check_whole(call, graph);
                if let Some(made) = self.graphs.graphs.remove(&graph) {
                    self.forget_names(graph, &made.names);
                }
                Ok(())
            }
            What::CaptureBegin { stream, graph, mode, symbolic } => {
                self.begin_capture(call, stream, graph, mode, symbolic)
            }
            What::CaptureEnd { stream } => self.end_capture(call, stream),
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                self.instantiate(call, graph, exec, auto_free_on_launch)
            }
            What::ExecUpdate { exec, graph } => self.update(call, exec, graph),
            What::GraphLaunch { exec, stream } => self.launch_graph(call, exec, stream),
            What::Take { exec, node, memory } => self.take(call, exec, node, memory),
            What::ExecDestroy { exec } => self.destroy_exec(call, exec),
            _ => Ok(()),
        }
    }

    pub(super) fn add_graph(&mut self, graph: Graph, names: Vec<(GraphAllocId, Memory)>, family: Option<GraphId>) {
        self.graphs.graphs.insert(graph.id(), Made { graph, names, family, is_checked: false });
    }

    /// Names of a graph's memory lead nowhere once neither it nor an instance that was launched is there.
    pub(super) fn forget_names(&mut self, graph: GraphId, names: &[(GraphAllocId, Memory)]) {
        if self.graphs.graphs.contains_key(&graph) || self.graphs.latest.contains_key(&graph) {
            return;
        }
        for (_, memory) in names {
            self.graphs.called.remove(memory);
            if let Found::Named(Named::Node { .. }) = self.lives.find(*memory) {
                self.lives.remove(*memory);
            }
        }
    }

    pub(super) fn made(&mut self, call: Call<'_>, graph: GraphId) -> Step<&mut Made> {
        if self.graphs.void_graphs.contains(&graph) {
            return Err(quiet());
        }
        if !self.graphs.graphs.contains_key(&graph) {
            let mut finding =
                Finding::new(Kind::UnknownName, format!("{graph} is not there"), "create it, or capture it, first");
            finding.later = Some(self.side(call, self.host_site(call, Act::Read), "used"));
            return Err(Box::new(finding));
        }
        Ok(self.graphs.graphs.get_mut(&graph).expect("the graph is there"))
    }

    fn edit(
        &mut self,
        call: Call<'_>,
        graph: GraphId,
        edit: impl FnOnce(&mut Graph) -> Result<(), GraphError>,
    ) -> Step {
        let made = self.made(call, graph)?;
        made.is_checked = false;
        edit(&mut made.graph).map_err(|error| self.graph_refused_at(call, error))
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
        let label = self.label(call, name);
        match *node {
            NodeOp::Alloc { memory, bytes } => {
                let added = self.made(call, graph)?.graph.add_alloc(after, bytes, label);
                let (_, alloc) = added.map_err(|error| self.graph_refused_at(call, error))?;
                self.made(call, graph)?.names.push((alloc, memory));
                self.lives.name(memory, Named::Node { graph, alloc });
                Ok(())
            }
            NodeOp::Free(memory) => {
                let later = self.host_site(call, Act::Free);
                let found = self.node_memory(call, graph, memory, later)?;
                self.grant(call, graph, found, later)?;
                self.edit(call, graph, |graph| graph.add_free(after, found, label).map(drop))
            }
            NodeOp::Child(child) => {
                let child = Arc::new(self.made(call, child)?.graph.clone());
                self.edit(call, graph, |graph| graph.add_child(after, child, label).map(drop))
            }
            ref other => {
                let (work, accesses) = work(other);
                let of = |access: &Access| {
                    let memory = self.node_memory(call, graph, access.memory, self.host_site(call, access.act))?;
                    Ok(NodeAccess { memory, act: access.act })
                };
                let accesses: SmallVec<[NodeAccess; 2]> = accesses.iter().map(of).collect::<Step<_>>()?;
                let may_share = !self.settings.races;
                self.edit(call, graph, |graph| {
                    let node = graph.add_work(work, after, &accesses, label)?;
                    graph.set_may_share(node, may_share);
                    Ok(())
                })
            }
        }
    }

    /// What is wrong with a graph as a whole, the first time that it is asked.
    pub(super) fn check_whole(&mut self, call: Call<'_>, graph: GraphId) -> Option<Draft> {
        let made = self.graphs.graphs.get_mut(&graph)?;
        let was_checked = std::mem::replace(&mut made.is_checked, true);
        match Draft::new(&made.graph) {
            Ok(draft) => Some(draft),
            Err(_) if was_checked => None,
            Err(Refusal::Faults(faults)) => {
                for fault in faults {
                    let finding = self.graph_fault(call, graph, &fault);
                    self.more.push(finding);
                }
                None
            }
            Err(refusal) => {
                let mut finding = Finding::new(Kind::GraphRefused, refusal.to_string(), "make it smaller");
                finding.later = Some(self.side(call, self.host_site(call, Act::Read), "instantiated"));
                self.more.push(finding);
                None
            }
        }
    }

    /// Graphs that were never instantiated.
    pub(super) fn check_leftover_graphs(&mut self, call: Call<'_>) {
        let mut left: Vec<GraphId> =
            self.graphs.graphs.iter().filter(|(_, made)| !made.is_checked).map(|(id, _)| *id).collect();
        left.sort_unstable();
        for graph in left {
            self.check_whole(call, graph);
        }
    }
}

/// A node that neither allocates nor frees.
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
