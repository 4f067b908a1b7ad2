//! Graphs: how they are built and captured, until their launches become tasks.
//!
//! Launches of an instance come after its earlier launches, and after those of former instances at the same addresses,
//! on any stream.

mod launches;

use millpond_core::ids::{EventId, ExecId, GraphId, StreamId};
use millpond_core::op::{Access, Memory, NodeOp, What};

use super::Lower;
use super::memory::Named;
use crate::model::{Task, TooMuch};
use launches::allocs;

/// Graphs are nested no deeper.
const DEPTH_MAX: usize = 64;

/// Returns the number of graphs within each other, of which the outermost has these nodes.
fn depth(nodes: &[Node]) -> usize {
    let below = |node: &Node| match &node.work {
        Work::Child(nodes) => depth(nodes),
        _ => 0,
    };
    1 + nodes.iter().map(below).max().unwrap_or(0)
}

/// The work of a node.
#[derive(Clone, Debug)]
enum Work {
    Uses(Vec<Access>),
    Record(EventId),
    Wait(EventId),
    Alloc(Memory),
    Free(Memory),
    Child(Vec<Node>),
}

impl Work {
    /// Renames the graph's own memory.
    fn rename(&mut self, former: Memory, memory: Memory) {
        match self {
            Work::Uses(uses) => {
                uses.iter_mut().filter(|it| it.memory == former).for_each(|access| access.memory = memory);
            }
            Work::Alloc(own) | Work::Free(own) if *own == former => *own = memory,
            _ => {}
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    work: Work,
    after: Vec<usize>,
    line: u32,
    is_removed: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    /// The graphs whose fixed addresses it has: its own and those of its children.
    at: Vec<GraphId>,
    /// `true` once it was instantiated or became a part of another graph.
    is_run: bool,
}

/// A stream that is being captured.
#[derive(Clone, Debug)]
pub(super) struct Captured {
    pub(super) graph: GraphId,
    pub(super) tails: Vec<usize>,
    is_origin: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Exec {
    nodes: Vec<Node>,
    at: Vec<GraphId>,
    auto_free: bool,
    last: Option<usize>,
    /// The memory that the latest launch allocated.
    outputs: Vec<(Memory, usize)>,
    is_run: bool,
}

impl Exec {
    fn new(nodes: Vec<Node>, at: Vec<GraphId>, auto_free: bool) -> Self {
        Exec { nodes, at, auto_free, last: None, outputs: Vec::new(), is_run: false }
    }
}

impl Lower<'_> {
    pub(super) fn graph_step(&mut self, what: &What) -> Result<(), TooMuch> {
        match *what {
            What::GraphCreate { graph, symbolic } => {
                let at = Vec::from_iter((!symbolic).then_some(graph));
                self.graphs.insert(graph, Graph { at, ..Graph::default() });
            }
            What::GraphNode { graph, ref node, ref after, .. } => {
                let work = self.node_work(node);
                let after = after.iter().map(|node| node.index()).collect();
                self.add_node(graph, work, after);
                if let NodeOp::Child(child) = **node {
                    let inside = self.graphs[&child].at.clone();
                    self.graphs.entry(graph).or_default().at.extend(inside);
                }
            }
            What::GraphEdge { graph, from, to } => {
                if let Some(node) = self.node(graph, to.index()) {
                    node.after.push(from.index());
                }
            }
            What::GraphEdgeRemove { graph, from, to } => {
                if let Some(node) = self.node(graph, to.index()) {
                    node.after.retain(|it| *it != from.index());
                }
            }
            What::GraphNodeRemove { graph, node } => self.remove_node(graph, node.index()),
            What::GraphClone { graph, copy } => {
                let copied = self.graphs.get(&graph).cloned().unwrap_or_default();
                self.graphs.insert(copy, copied);
            }
            What::CopyName { graph, node, memory } => {
                self.named.insert(memory, Named::Node);
                let nodes = self.graphs.get_mut(&graph).map(|graph| &mut graph.nodes);
                nodes.into_iter().flatten().for_each(|it| it.work.rename(node, memory));
            }
            What::CaptureBegin { stream, graph, symbolic, .. } => {
                let at = Vec::from_iter((!symbolic).then_some(graph));
                self.graphs.insert(graph, Graph { at, ..Graph::default() });
                self.captures.insert(stream, Captured { graph, tails: Vec::new(), is_origin: true });
            }
            What::CaptureEnd { stream } => {
                if let Some(ended) = self.captures.get(&stream).map(|it| it.graph) {
                    self.captures.retain(|_, it| it.graph != ended);
                }
            }
            What::Instantiate { graph, exec, auto_free_on_launch: auto_free } => {
                let made = self.graphs.entry(graph).or_default();
                made.is_run = true;
                let Graph { nodes, mut at, .. } = made.clone();
                at.retain(|_| !allocs(&nodes).is_empty());
                let left = at.iter().filter_map(|graph| self.addresses.get(graph));
                let mut outputs: Vec<_> = left.flat_map(|(_, outputs)| outputs.clone()).collect();
                // A launch of a graph with children left the same outputs at the addresses of each of these graphs.
                outputs.sort_unstable_by_key(|(_, life)| *life);
                outputs.dedup();
                self.execs.insert(exec, Exec { outputs, ..Exec::new(nodes, at, auto_free) });
            }
            What::GraphUpload { exec, stream } => self.upload_exec(exec, stream),
            What::GraphLaunch { exec, stream } => self.launch_exec(exec, stream),
            What::Take { exec, node, memory } => {
                let life = self.latest_of.get(&(exec, node)).copied();
                let life = life.unwrap_or_else(|| self.new_life(memory, false));
                self.named.insert(memory, Named::Life(life));
            }
            What::ExecUpdate { exec, graph } => return self.update(exec, graph),
            _ => {}
        }
        Ok(())
    }

    fn launch_exec(&mut self, exec: ExecId, stream: StreamId) {
        let Some(found) = self.execs.get_mut(&exec) else { return };
        found.is_run = true;
        let found = found.clone();
        if self.captures.contains_key(&stream) {
            return self.capture(stream, Work::Child(found.nodes));
        }
        let (needs, who) = (self.needs(stream), self.who(stream));
        let launched = self.launch_graph(needs, who, found);
        self.latest_of.extend(launched.outputs.iter().map(|(memory, life)| ((exec, *memory), *life)));
        let stream = self.streams.get_mut(&stream).expect("it was entered");
        stream.last = launched.last;
        self.execs.insert(exec, launched);
    }

    /// Lowers an upload. It comes after the launches before it, and does nothing else.
    fn upload_exec(&mut self, exec: ExecId, stream: StreamId) {
        let Some(found) = self.execs.get(&exec).filter(|_| !self.captures.contains_key(&stream)).cloned() else {
            return;
        };
        let (mut needs, who) = (self.needs(stream), self.who(stream));
        needs.extend(self.launches_before(&found));
        let task = self.push(Task { needs, who, ..Task::default() });
        self.stream(stream).last = Some(task);
        for graph in &found.at {
            self.addresses.entry(*graph).or_default().0 = task;
        }
        self.execs.insert(exec, Exec { last: Some(task), ..found });
    }

    fn update(&mut self, exec: ExecId, graph: GraphId) -> Result<(), TooMuch> {
        let nodes = self.graphs.get(&graph).map_or_else(Vec::new, |graph| graph.nodes.clone());
        self.graphs.entry(graph).or_default().is_run = true;
        let Some(exec) = self.execs.get_mut(&exec) else { return Ok(()) };
        if allocs(&nodes) != allocs(&exec.nodes) {
            return Err(TooMuch("an instance is updated to other memory of its own".into()));
        }
        exec.nodes = nodes;
        Ok(())
    }

    fn node_work(&mut self, node: &NodeOp) -> Work {
        match node {
            NodeOp::Kernel(uses) | NodeOp::Copy(uses) | NodeOp::Fill(uses) | NodeOp::HostFunction(uses) => {
                Work::Uses(uses.to_vec())
            }
            NodeOp::Empty => Work::Uses(Vec::new()),
            NodeOp::EventRecord(event) => Work::Record(*event),
            NodeOp::EventWait(event) => Work::Wait(*event),
            NodeOp::Alloc { memory, .. } => {
                self.named.insert(*memory, Named::Node);
                Work::Alloc(*memory)
            }
            NodeOp::Free(memory) => Work::Free(*memory),
            NodeOp::Child(child) => {
                let child = self.graphs.entry(*child).or_default();
                child.is_run = true;
                match depth(&child.nodes) < DEPTH_MAX {
                    true => Work::Child(child.nodes.clone()),
                    // Such a node is refused.
                    false => Work::Uses(Vec::new()),
                }
            }
        }
    }

    fn node(&mut self, graph: GraphId, node: usize) -> Option<&mut Node> {
        self.graphs.get_mut(&graph)?.nodes.get_mut(node)
    }

    fn add_node(&mut self, graph: GraphId, work: Work, after: Vec<usize>) -> usize {
        let line = self.line;
        let nodes = &mut self.graphs.entry(graph).or_default().nodes;
        nodes.push(Node { work, after, line, is_removed: false });
        nodes.len() - 1
    }

    fn remove_node(&mut self, graph: GraphId, node: usize) {
        let Some(graph) = self.graphs.get_mut(&graph) else { return };
        graph.nodes.iter_mut().for_each(|other| other.after.retain(|it| *it != node));
        if let Some(node) = graph.nodes.get_mut(node) {
            node.is_removed = true;
        }
    }

    /// Adds the next node of a captured stream.
    fn capture(&mut self, stream: StreamId, work: Work) {
        let Some(Captured { graph, tails, .. }) = self.captures.get(&stream).cloned() else { return };
        let node = self.add_node(graph, work, tails);
        if let Some(captured) = self.captures.get_mut(&stream) {
            captured.tails = vec![node];
        }
    }

    pub(super) fn captured_work(&mut self, stream: StreamId, accesses: &[Access]) -> bool {
        let is_captured = self.captures.contains_key(&stream);
        if is_captured {
            self.capture(stream, Work::Uses(accesses.to_vec()));
        }
        is_captured
    }

    pub(super) fn captured_alloc(&mut self, stream: StreamId, memory: Memory) -> bool {
        let is_captured = self.captures.contains_key(&stream);
        if is_captured {
            self.named.insert(memory, Named::Node);
            self.capture(stream, Work::Alloc(memory));
        }
        is_captured
    }

    pub(super) fn captured_free(&mut self, stream: StreamId, memory: Memory) -> bool {
        let is_captured = self.captures.contains_key(&stream);
        if is_captured {
            self.capture(stream, Work::Free(memory));
        }
        is_captured
    }

    /// Lowers a drop of memory of an ongoing capture: a free node after all nodes that use the memory.
    pub(super) fn captured_drop(&mut self, memory: Memory) -> bool {
        let Some(graph) = self.captures.values().find(|it| it.is_origin).map(|it| it.graph) else { return false };
        let Some(nodes) = self.graphs.get(&graph).map(|it| &it.nodes) else { return false };
        let uses = |node: &Node| match &node.work {
            Work::Uses(uses) => uses.iter().any(|access| access.memory == memory),
            Work::Alloc(own) => *own == memory,
            _ => false,
        };
        let after: Vec<usize> = (0..nodes.len()).filter(|at| uses(&nodes[*at])).collect();
        let is_own = nodes.iter().any(|node| matches!(node.work, Work::Alloc(own) if own == memory));
        if is_own {
            self.add_node(graph, Work::Free(memory), after);
        }
        is_own
    }

    pub(super) fn captured_event(&mut self, stream: StreamId, event: EventId, is_record: bool) {
        self.capture(stream, if is_record { Work::Record(event) } else { Work::Wait(event) });
    }

    /// Lets a stream join a capture, because it waits for an event of the capture.
    pub(super) fn join(&mut self, stream: StreamId, graph: GraphId, tails: Vec<usize>) {
        if !self.captures.values().any(|it| it.graph == graph) {
            return;
        }
        let joined = self.captures.entry(stream).or_insert(Captured { graph, tails: Vec::new(), is_origin: false });
        joined.tails.extend(tails);
        joined.tails.sort_unstable();
        joined.tails.dedup();
    }
}
