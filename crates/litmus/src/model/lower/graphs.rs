//! Nodes, captures and launches become tasks.
//!
//! A launch is a task that begins it, one for each node and one that ends it. Launches of one instance, and of all
//! that have its addresses, come one after the other whatever their streams.

use std::collections::HashMap;

use millpond_core::ids::{EventId, GraphId, StreamId};
use millpond_core::op::{Access, Act, Memory, NodeOp, What};

use super::memory::Named;
use super::{Lower, Stands};
use crate::model::{Effect, Task, TooMuch};

/// What a node does.
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
    /// Memory of the graph's own has another name.
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
    family: Option<GraphId>,
    /// Whether an instance of it was launched, or it is a part of another graph.
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
    graph: GraphId,
    nodes: Vec<Node>,
    family: Option<GraphId>,
    auto_free: bool,
    last: Option<usize>,
    outputs: Vec<usize>,
}

/// One launch in the making.
struct Launch {
    line: u32,
    /// The lives that it gives memory of its own.
    own: HashMap<Memory, usize>,
    records: Vec<(EventId, usize)>,
}

impl Lower<'_> {
    pub(super) fn graph_step(&mut self, what: &What) -> Result<(), TooMuch> {
        match *what {
            What::GraphCreate { graph, symbolic } => {
                let family = (!symbolic).then_some(graph);
                self.graphs.insert(graph, Graph { family, ..Graph::default() });
            }
            What::GraphNode { graph, ref node, ref after, .. } => {
                let work = self.work(node);
                let after = after.iter().map(|node| node.index()).collect();
                self.add_node(graph, work, after);
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
                let family = (!symbolic).then_some(graph);
                self.graphs.insert(graph, Graph { family, ..Graph::default() });
                self.captures.insert(stream, Captured { graph, tails: Vec::new(), is_origin: true });
            }
            What::CaptureEnd { stream } => {
                if let Some(ended) = self.captures.get(&stream).map(|it| it.graph) {
                    self.captures.retain(|_, it| it.graph != ended);
                }
            }
            What::Instantiate { graph, exec, auto_free_on_launch: auto_free } => {
                let Graph { nodes, family, .. } = self.graphs.get(&graph).cloned().unwrap_or_default();
                let family = family.filter(|_| nodes.iter().any(has_allocs));
                self.execs.insert(exec, Exec { graph, nodes, family, auto_free, last: None, outputs: Vec::new() });
            }
            What::GraphUpload { .. } => return Err(TooMuch("an instance is uploaded".into())),
            What::GraphLaunch { exec, stream } => {
                let Some(found) = self.execs.get(&exec).cloned() else { return Ok(()) };
                self.graphs.entry(found.graph).or_default().is_run = true;
                match self.captures.contains_key(&stream) {
                    true => self.capture(stream, Work::Child(found.nodes)),
                    false => {
                        let (needs, who) = (self.needs(stream), self.who(stream));
                        let launched = self.launch_graph(needs, who, found);
                        self.streams.get_mut(&stream).expect("it was entered").last = launched.last;
                        self.execs.insert(exec, launched);
                    }
                }
            }
            What::Take { node, memory, .. } => {
                let life = self.life(node);
                self.named.insert(memory, Named::Life(life));
            }
            What::ExecUpdate { exec, graph } => {
                let nodes = self.graphs.get(&graph).map_or_else(Vec::new, |graph| graph.nodes.clone());
                self.graphs.entry(graph).or_default().is_run = true;
                let Some(exec) = self.execs.get_mut(&exec) else { return Ok(()) };
                if nodes.iter().chain(&exec.nodes).any(has_allocs) {
                    return Err(TooMuch("an instance with memory of its own is updated".into()));
                }
                exec.nodes = nodes;
            }
            _ => {}
        }
        Ok(())
    }

    fn work(&mut self, node: &NodeOp) -> Work {
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
                Work::Child(child.nodes.clone())
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

    /// The next node of a captured stream.
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

    /// A drop of memory of a capture that goes on: a free node after all nodes that use it.
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

    /// A stream waits for an event of a capture: it is captured, too, from then on.
    pub(super) fn join(&mut self, stream: StreamId, graph: GraphId, tails: Vec<usize>) {
        if !self.captures.values().any(|it| it.graph == graph) {
            return;
        }
        let joined = self.captures.entry(stream).or_insert(Captured { graph, tails: Vec::new(), is_origin: false });
        joined.tails.extend(tails);
        joined.tails.sort_unstable();
        joined.tails.dedup();
    }

    /// A graph that was never launched is launched once, to show what is wrong with it.
    pub(super) fn launch_what_is_left(&mut self) {
        let mut left: Vec<GraphId> = self.graphs.iter().filter(|(_, it)| !it.is_run).map(|(id, _)| *id).collect();
        left.sort_unstable();
        self.line = 0;
        for graph in left {
            let nodes = self.graphs[&graph].nodes.clone();
            let exec = Exec { graph, nodes, family: None, auto_free: false, last: None, outputs: Vec::new() };
            self.launch_graph(Vec::new(), "a launch".into(), exec);
        }
    }

    fn launch_graph(&mut self, mut needs: Vec<usize>, who: String, mut exec: Exec) -> Exec {
        let line = self.line;
        needs.extend(exec.last);
        needs.extend(exec.family.and_then(|family| self.families.get(&family)));
        // What the launch before left, and was not freed since.
        let freed = |life: &usize| self.model.lives[*life].users.iter().any(|task| self.frees(*task, *life));
        let left: Vec<usize> = exec.outputs.iter().filter(|life| !freed(life)).copied().collect();
        let frees = left.into_iter().filter(|_| exec.auto_free).map(|life| Effect::of_all(life, Act::Free));
        let effects = frees.collect();
        let is_hidden = line == 0;
        let begin = self.push(Task { needs, effects, who: who.clone(), is_hidden, ..Task::default() });
        let mut launch = Launch { line, own: HashMap::new(), records: Vec::new() };
        let before = self.model.lives.len();
        let mut ends = self.run_nodes(&exec.nodes, &mut launch, &[begin], &who);
        exec.outputs = (before..self.model.lives.len()).filter(|it| launch.own.values().any(|own| own == it)).collect();
        ends.push(begin);
        let end = self.push(Task { needs: ends, who, is_hidden: true, ..Task::default() });
        exec.last = Some(end);
        if let Some(family) = exec.family {
            self.families.insert(family, end);
        }
        for (event, record) in launch.records {
            self.events.insert(event, Stands::Task(record));
        }
        exec
    }

    fn frees(&self, task: usize, life: usize) -> bool {
        self.model.tasks[task].effects.contains(&Effect::of_all(life, Act::Free))
    }

    /// Appends the nodes of a graph; what the graph completes with.
    fn run_nodes(&mut self, nodes: &[Node], launch: &mut Launch, roots: &[usize], who: &str) -> Vec<usize> {
        for node in nodes.iter().filter(|node| !node.is_removed) {
            if let Work::Alloc(memory) = node.work {
                let life = self.new_life(memory, false);
                launch.own.insert(memory, life);
                self.latest.insert(memory, life);
            }
        }
        let mut over: Vec<Option<Vec<usize>>> = vec![None; nodes.len()];
        // Edges may lead from later nodes to earlier ones: again and again, what is ready.
        loop {
            let ready = |at: &usize| {
                let after = |it: &usize| over.get(*it).is_some_and(Option::is_some);
                over[*at].is_none() && !nodes[*at].is_removed && nodes[*at].after.iter().all(after)
            };
            let Some(at) = (0..nodes.len()).find(ready) else { break };
            let needs = nodes[at].after.iter().flat_map(|it| over[*it].iter().flatten().copied());
            let needs: Vec<usize> = needs.chain(roots.iter().copied()).collect();
            over[at] = Some(self.run_node(&nodes[at], launch, needs, who, at));
        }
        over.into_iter().flatten().flatten().collect()
    }

    fn run_node(
        &mut self,
        node: &Node,
        launch: &mut Launch,
        mut needs: Vec<usize>,
        who: &str,
        at: usize,
    ) -> Vec<usize> {
        let effects = match &node.work {
            Work::Child(nodes) => {
                let mut ends = self.run_nodes(nodes, launch, &needs, who);
                ends.extend(needs);
                return ends;
            }
            Work::Uses(uses) => {
                let of = |access: &Access| {
                    let (effects, part) = (self.node_effect(launch, access.memory, access.act), access.part);
                    effects.into_iter().map(move |effect| Effect { part, ..effect })
                };
                uses.iter().flat_map(of).collect()
            }
            Work::Alloc(memory) => vec![Effect::of_all(launch.own[memory], Act::Allocate)],
            Work::Free(memory) => self.node_effect(launch, *memory, Act::Free),
            Work::Record(_) => Vec::new(),
            Work::Wait(event) => {
                // A record of the same launch before it has overwritten what the event held.
                let own = |(of, task): &(EventId, usize)| of == event && self.comes_after(&needs, *task);
                if let Some(Stands::Task(record)) = self.events.get(event)
                    && !launch.records.iter().any(own)
                {
                    needs.push(*record);
                }
                Vec::new()
            }
        };
        let who = format!("{who}, node {at}");
        let (line, from) = (node.line, Some(launch.line).filter(|line| *line > 0));
        let task = self.push(Task { needs, effects, line, launch: from, who, is_hidden: false });
        if let Work::Record(event) = node.work {
            launch.records.push((event, task));
        }
        vec![task]
    }

    /// Whether one of some tasks is, or comes after, another one.
    fn comes_after(&self, tasks: &[usize], task: usize) -> bool {
        let (mut open, mut seen) = (tasks.to_vec(), Vec::new());
        while let Some(at) = open.pop() {
            if at == task {
                return true;
            }
            if at > task && !seen.contains(&at) {
                seen.push(at);
                open.extend(&self.model.tasks[at].needs);
            }
        }
        false
    }

    fn node_effect(&mut self, launch: &Launch, memory: Memory, act: Act) -> Vec<Effect> {
        match launch.own.get(&memory) {
            Some(&life) => vec![Effect::of_all(life, act)],
            None => self.effect(memory, act),
        }
    }
}

fn has_allocs(node: &Node) -> bool {
    match &node.work {
        Work::Alloc(_) => true,
        Work::Child(nodes) => nodes.iter().any(has_allocs),
        _ => false,
    }
}
