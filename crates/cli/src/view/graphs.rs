//! A drawn graph: its nodes and edges in the order in which they are made. `layout.rs` computes the positions.

use millpond_core::ids::{GraphId, NodeId};
use millpond_core::op::{Access, Act, Memory, NodeOp};
use millpond_core::units::Bytes;

use super::layout::layered;
use super::scene::{Drawing, Node};

/// A graph that is still being built.
#[derive(Clone, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<(u32, u32)>,
    /// Missing paths that the checker reports.
    pub(super) missing: Vec<(u32, u32)>,
    pub(super) allocs: Vec<Memory>,
    pub(super) frees: Vec<Memory>,
    /// The index in `nodes` of each node that the checker counts. A refused node is drawn but not counted.
    pub(super) places: Vec<u32>,
    /// The step that made each node of `nodes`.
    steps: Vec<u64>,
}

impl Graph {
    /// Returns the index of a node, given its number. The number after the last one is that of the newest node, which
    /// was refused.
    pub(super) fn place(&self, number: usize) -> Option<u32> {
        let refused = || (number == self.places.len()).then(|| self.nodes.len().checked_sub(1)).flatten();
        self.places.get(number).copied().or_else(|| refused().map(|place| place as u32))
    }

    /// Returns the step that made a node.
    pub(super) fn step_of(&self, number: usize) -> Option<u64> {
        self.steps.get(self.place(number)? as usize).copied()
    }

    /// Adds a node with its dependencies.
    pub(super) fn push(&mut self, node: Node, after: &[NodeId], step: u64, is_done: bool) {
        let place = self.nodes.len() as u32;
        let before: Vec<u32> = after.iter().filter_map(|it| self.places.get(it.index()).copied()).collect();
        self.edges.extend(before.into_iter().map(|before| (before, place)));
        self.nodes.push(Node { bad: !is_done, ..node });
        self.steps.push(step);
        if is_done {
            self.places.push(place);
        }
    }

    /// Returns an edge, given the numbers of its nodes.
    pub(super) fn edge(&self, from: NodeId, to: NodeId) -> Option<(u32, u32)> {
        self.places.get(from.index()).copied().zip(self.places.get(to.index()).copied())
    }
}

/// The memory of an alloc node.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) bytes: u64,
    /// Its name in the graph.
    pub(super) name: String,
    pub(super) graph: GraphId,
    pub(super) node: usize,
}

/// An instance of a graph.
pub(super) struct Exec {
    pub(super) graph: GraphId,
    pub(super) auto_free: bool,
    /// The stream of its last launch. `left` has the outputs of that launch.
    pub(super) stream: u32,
    pub(super) left: Vec<u32>,
}

/// Describes a node: its kind, its label and a note.
pub(super) fn describe(node: &NodeOp, called: &dyn Fn(Memory) -> String) -> (&'static str, String, String) {
    let uses = |accesses: &[Access]| {
        let list = |writes: bool| {
            let those = accesses.iter().filter(|access| (access.act != Act::Read) == writes);
            those.map(|access| called(access.memory)).collect::<Vec<_>>().join(", ")
        };
        let parts = [("reads", list(false)), ("writes", list(true))];
        let shown = parts.iter().filter(|(_, list)| !list.is_empty()).map(|(verb, list)| format!("{verb} {list}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    match node {
        NodeOp::Kernel(accesses) => ("kernel", "kernel".to_owned(), uses(accesses)),
        NodeOp::Copy(accesses) => ("kernel", "copy".to_owned(), uses(accesses)),
        NodeOp::Fill(accesses) => ("kernel", "fill".to_owned(), uses(accesses)),
        NodeOp::HostFunction(accesses) => ("kernel", "host function".to_owned(), uses(accesses)),
        NodeOp::Empty => ("other", "empty".to_owned(), String::new()),
        NodeOp::EventRecord(event) => ("record", "record".to_owned(), event.to_string()),
        NodeOp::EventWait(event) => ("wait", "wait".to_owned(), event.to_string()),
        NodeOp::Alloc { memory, bytes } => ("alloc", format!("alloc {}", called(*memory)), Bytes(*bytes).to_string()),
        NodeOp::Free(memory) => ("free", format!("free {}", called(*memory)), String::new()),
        NodeOp::Child(graph) => ("other", graph.to_string(), String::new()),
    }
}

pub(super) fn drawing(id: GraphId, graph: Graph) -> Drawing {
    let Graph { mut nodes, mut edges, mut missing, .. } = graph;
    edges.retain(|(from, to)| (*from.max(to) as usize) < nodes.len());
    missing.retain(|(from, to)| (*from.max(to) as usize) < nodes.len());
    missing.dedup();
    let places = layered(nodes.len(), &edges);
    for (node, (x, y)) in nodes.iter_mut().zip(places) {
        (node.x, node.y) = (x, y);
    }
    Drawing { name: id.to_string(), nodes, edges, missing }
}
