//! The operations on graphs with memory nodes that CUDA refuses, from the words of its manual alone.
//!
//! > Graphs with allocation or free nodes: nodes and edges cannot be deleted; the graph cannot be used in a child node
//! > [by a copy, but can be moved into one]; only one instantiation of the graph may exist at any point in time; the
//! > graph cannot be cloned. (`cuGraphAddMemAllocNode`, `cuGraphAddMemFreeNode`.) An instance cannot be updated from a
//! > graph with memory nodes that is instantiated as another one. A child that was moved cannot be instantiated, moved
//! > again, or used in an update, and no alloc or free nodes can be added to it.
//!
//! Graphs whose addresses are determined at instantiation are exempt. A launch into a capture is a child by a copy.
//! Deletion is allowed here, except for memory nodes of a child that was moved.

use std::collections::{HashMap, HashSet};

use millpond_core::ids::{ExecId, GraphId, StreamId};
use millpond_core::op::{NodeOp, What};

use crate::Program;

#[derive(Clone, Default)]
struct Graph {
    is_symbolic: bool,
    /// For each node, `true` if it is a memory node or a child with memory nodes; `None` if it was removed.
    nodes: Vec<Option<bool>>,
}

impl Graph {
    fn is_frozen(&self) -> bool {
        self.nodes.contains(&Some(true))
    }
}

#[derive(Default)]
struct Copies {
    graphs: HashMap<GraphId, Graph>,
    /// The graph of each instance, as it was at instantiation.
    execs: HashMap<ExecId, (GraphId, Graph)>,
    moved: HashSet<GraphId>,
    captures: HashMap<StreamId, GraphId>,
}

/// Returns the lines of refused operations in a program in which nothing else is refused. These are clones,
/// instantiations, child nodes, launches into captures and updates that would put a graph with memory nodes in two
/// places, and memory nodes that would be added to a moved graph or removed from it.
pub fn refused_copies(program: &Program) -> Vec<u32> {
    let mut copies = Copies::default();
    let refused = program.ops().iter().filter(|op| copies.refuses(&op.what));
    refused.filter_map(|op| op.place.line()).collect()
}

impl Copies {
    fn graph(&self, graph: GraphId) -> Graph {
        self.graphs.get(&graph).cloned().unwrap_or_default()
    }

    /// Returns `true` if a graph with memory nodes has an instance with memory nodes, or is another graph's child.
    fn is_taken(&self, graph: GraphId) -> bool {
        let has_instance = self.execs.values().any(|(of, made)| *of == graph && made.is_frozen());
        self.graph(graph).is_frozen() && (has_instance || self.moved.contains(&graph))
    }

    fn add(&mut self, graph: GraphId, is_frozen: bool) {
        self.graphs.entry(graph).or_default().nodes.push(Some(is_frozen));
    }

    fn capture(&mut self, stream: StreamId, is_memory: bool) {
        if let Some(graph) = self.captures.get(&stream).copied() {
            let is_symbolic = self.graph(graph).is_symbolic;
            self.add(graph, is_memory && !is_symbolic);
        }
    }

    /// Performs an operation, or returns `true` if it is refused.
    fn refuses(&mut self, what: &What) -> bool {
        match *what {
            What::GraphCreate { graph, symbolic } => {
                self.graphs.insert(graph, Graph { is_symbolic: symbolic, ..Graph::default() });
            }
            What::GraphNode { graph, ref node, .. } => {
                let is_frozen = match **node {
                    NodeOp::Alloc { .. } | NodeOp::Free(_) if self.moved.contains(&graph) => return true,
                    NodeOp::Alloc { .. } | NodeOp::Free(_) => !self.graph(graph).is_symbolic,
                    NodeOp::Child(child) if self.is_taken(child) => return true,
                    NodeOp::Child(child) => {
                        let is_frozen = self.graph(child).is_frozen();
                        if is_frozen && self.moved.contains(&graph) {
                            return true;
                        }
                        if is_frozen {
                            self.moved.insert(child);
                        }
                        is_frozen
                    }
                    _ => false,
                };
                self.add(graph, is_frozen);
            }
            What::GraphNodeRemove { graph, node } => {
                if self.moved.contains(&graph) && self.graph(graph).nodes.get(node.index()) == Some(&Some(true)) {
                    return true;
                }
                if let Some(removed) = self.graphs.get_mut(&graph).and_then(|it| it.nodes.get_mut(node.index())) {
                    *removed = None;
                }
            }
            What::GraphClone { graph, copy } => {
                let copied = self.graph(graph);
                if copied.is_frozen() {
                    return true;
                }
                self.graphs.insert(copy, copied);
            }
            What::CaptureBegin { stream, graph, symbolic, .. } => {
                self.graphs.insert(graph, Graph { is_symbolic: symbolic, ..Graph::default() });
                self.captures.insert(stream, graph);
            }
            What::CaptureEnd { stream } => {
                let ended = self.captures.get(&stream).copied();
                self.captures.retain(|_, graph| Some(*graph) != ended);
            }
            What::Alloc { stream, .. } | What::Free { stream, .. } => self.capture(stream, true),
            What::GraphLaunch { exec, stream } if self.captures.contains_key(&stream) => {
                return self.execs.get(&exec).is_some_and(|(_, made)| made.is_frozen());
            }
            What::Instantiate { graph, exec, .. } => {
                if self.is_taken(graph) {
                    return true;
                }
                self.execs.insert(exec, (graph, self.graph(graph)));
            }
            What::ExecUpdate { exec, graph } => {
                let from = self.graph(graph);
                let Some((of, made)) = self.execs.get_mut(&exec) else { return false };
                if *of != graph && (made.is_frozen() || from.is_frozen()) {
                    return true;
                }
                (*of, *made) = (graph, from);
            }
            What::ExecDestroy { exec } => drop(self.execs.remove(&exec)),
            What::GraphDestroy { graph } => drop(self.graphs.remove(&graph)),
            _ => {}
        }
        false
    }
}
