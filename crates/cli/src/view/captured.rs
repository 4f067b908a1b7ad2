//! Captured work as the nodes that it makes: what a program does on a captured stream, drawn in its graph.
//!
//! Nothing is judged here: what the checker refuses is drawn where it would be.

use std::collections::HashMap;

use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Memory, Name, NodeOp, Op, What};

/// A place in a capture: what the next node comes after.
#[derive(Clone)]
struct At {
    graph: GraphId,
    tails: Vec<NodeId>,
}

/// The captures that go on.
#[derive(Default)]
pub(super) struct Captures {
    streams: HashMap<StreamId, At>,
    events: HashMap<EventId, At>,
    sizes: HashMap<GraphId, u32>,
    /// Memory that captures allocated, with the nodes that allocate and use it.
    own: HashMap<Memory, (GraphId, Vec<NodeId>)>,
    /// The graph of each instance.
    execs: HashMap<ExecId, GraphId>,
}

impl Captures {
    /// The graph that a stream's work goes into.
    pub(super) fn graph(&self, stream: StreamId) -> Option<GraphId> {
        self.streams.get(&stream).map(|at| at.graph)
    }

    /// What an operation is for a picture, where that is not itself. What is refused is a node that nothing comes
    /// after.
    pub(super) fn turn(&mut self, op: &Op, is_done: bool) -> Option<Option<What>> {
        let (stream, node, name) = match op.what {
            What::CaptureBegin { stream, graph, symbolic, .. } if is_done => {
                self.streams.insert(stream, At { graph, tails: Vec::new() });
                return Some(Some(What::GraphCreate { graph, symbolic }));
            }
            What::CaptureEnd { stream } => {
                if let Some(graph) = self.streams.get(&stream).map(|at| at.graph) {
                    self.streams.retain(|_, at| at.graph != graph);
                    self.own.retain(|_, (of, _)| *of != graph);
                }
                return Some(None);
            }
            What::Drop { memory } => return self.free_node(memory, is_done).map(Some),
            What::Instantiate { graph, exec, .. } => {
                self.execs.insert(exec, graph);
                return None;
            }
            What::EventRecord { event, stream, external, .. } => match (self.streams.get(&stream).cloned(), external) {
                (Some(_), true) => (stream, NodeOp::EventRecord(event), None),
                (Some(at), false) => {
                    self.events.insert(event, at);
                    return Some(None);
                }
                (None, _) => {
                    self.events.remove(&event);
                    return None;
                }
            },
            What::EventWait { event, stream, external: true } => (stream, NodeOp::EventWait(event), None),
            What::EventWait { event, stream, external: false } => {
                let from = self.events.get(&event).filter(|at| self.streams.values().any(|it| it.graph == at.graph))?;
                let at = self.streams.entry(stream).or_insert(At { graph: from.graph, tails: Vec::new() });
                at.tails.extend(&from.tails);
                at.tails.sort_unstable();
                at.tails.dedup();
                return Some(None);
            }
            What::Alloc { memory, stream, bytes, name, .. } => (stream, NodeOp::Alloc { memory, bytes }, name),
            What::Free { memory, stream, .. } => (stream, NodeOp::Free(memory), None),
            What::Launch { stream, ref accesses, name, .. } => (stream, NodeOp::Kernel(accesses.clone()), name),
            What::Copy { stream, ref accesses } => (stream, NodeOp::Copy(accesses.clone()), None),
            What::GraphLaunch { exec, stream } => (stream, NodeOp::Child(*self.execs.get(&exec)?), None),
            _ => return None,
        };
        self.node(stream, node, name, is_done).map(Some)
    }

    /// A free after all that uses the memory, whichever streams that was captured on.
    fn free_node(&mut self, memory: Memory, is_done: bool) -> Option<What> {
        let (graph, mut after) = self.own.remove(&memory)?;
        // The users come after the allocation.
        if after.len() > 1 {
            after.remove(0);
        }
        *self.sizes.entry(graph).or_insert(0) += u32::from(is_done);
        let node = Box::new(NodeOp::Free(memory));
        Some(What::GraphNode { graph, node, after: after.into(), name: None })
    }

    /// The next node of a captured stream.
    fn node(&mut self, stream: StreamId, node: NodeOp, name: Option<Name>, is_done: bool) -> Option<What> {
        let At { graph, tails } = self.streams.get_mut(&stream)?;
        let size = self.sizes.entry(*graph).or_insert(0);
        if !is_done {
            let after = tails.clone().into();
            return Some(What::GraphNode { graph: *graph, node: Box::new(node), after, name });
        }
        let after = std::mem::replace(tails, vec![NodeId(*size)]);
        match &node {
            NodeOp::Alloc { memory, .. } => drop(self.own.insert(*memory, (*graph, vec![NodeId(*size)]))),
            NodeOp::Free(memory) => drop(self.own.remove(memory)),
            NodeOp::Kernel(accesses) => {
                for access in accesses {
                    if let Some((_, nodes)) = self.own.get_mut(&access.memory) {
                        nodes.push(NodeId(*size));
                    }
                }
            }
            _ => {}
        }
        *size += 1;
        Some(What::GraphNode { graph: *graph, node: Box::new(node), after: after.into(), name })
    }
}
