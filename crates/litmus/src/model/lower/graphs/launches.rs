//! Launches become tasks: one that begins the launch, one for each node, and one that ends it.

use std::collections::{BTreeSet, HashMap};

use millpond_core::ids::{EventId, ExecId, GraphId};
use millpond_core::op::{Access, Act, Memory};

use super::{Exec, Node, Work};
use crate::model::lower::{Lower, Stands};
use crate::model::{Effect, Task};

/// A launch that is being lowered.
struct Launch {
    line: u32,
    /// The lives that the launch gives the graph's own memory.
    own: HashMap<Memory, usize>,
    records: Vec<(EventId, usize)>,
    waits: Vec<(EventId, usize)>,
}

impl Lower<'_> {
    /// Launches each instance that was never launched, and each graph without an instance, once. This shows what is
    /// wrong with them.
    pub(in crate::model::lower) fn launch_what_is_left(&mut self) {
        let mut graphs: Vec<GraphId> = self.graphs.iter().filter(|(_, it)| !it.is_run).map(|(id, _)| *id).collect();
        let mut execs: Vec<ExecId> = self.execs.iter().filter(|(_, it)| !it.is_run).map(|(id, _)| *id).collect();
        graphs.sort_unstable();
        execs.sort_unstable();
        let of_graphs = graphs.iter().map(|graph| self.graphs[graph].nodes.clone());
        let left: Vec<_> = of_graphs.chain(execs.iter().map(|exec| self.execs[exec].nodes.clone())).collect();
        self.line = 0;
        for nodes in left {
            self.launch_graph(Vec::new(), "a launch".into(), Exec::new(nodes, Vec::new(), false));
        }
    }

    /// Returns the ends of the launches that must come before the next launch of an instance.
    pub(super) fn launches_before(&self, exec: &Exec) -> Vec<usize> {
        let before = exec.at.iter().filter_map(|graph| Some(self.addresses.get(graph)?.0));
        before.chain(exec.last).collect()
    }

    pub(super) fn launch_graph(&mut self, mut needs: Vec<usize>, who: String, mut exec: Exec) -> Exec {
        let line = self.line;
        needs.extend(self.launches_before(&exec));
        // The outputs of the launch before that were not freed since.
        let freed = |life: &usize| self.model.lives[*life].users.iter().any(|task| self.frees(*task, *life));
        let left: Vec<usize> = exec.outputs.iter().map(|(_, life)| *life).filter(|life| !freed(life)).collect();
        let frees = left.into_iter().filter(|_| exec.auto_free).map(|life| Effect::of_all(life, Act::Free));
        let effects = frees.collect();
        let is_hidden = line == 0;
        let begin = self.push(Task { needs, effects, who: who.clone(), is_hidden, ..Task::default() });
        let mut launch = Launch { line, own: HashMap::new(), records: Vec::new(), waits: Vec::new() };
        let mut ends = self.run_nodes(&exec.nodes, &mut launch, &[begin], &who);
        exec.outputs = std::mem::take(&mut launch.own).into_iter().collect();
        exec.outputs.sort_unstable_by_key(|(_, life)| *life);
        ends.push(begin);
        let end = self.push(Task { needs: ends, who, is_hidden: true, ..Task::default() });
        exec.last = Some(end);
        for graph in &exec.at {
            self.addresses.insert(*graph, (end, exec.outputs.clone()));
        }
        self.order_events(&launch);
        exec
    }

    /// Orders the event nodes of a launch. A wait node waits for the work that its event holds before the launch,
    /// unless a record node that does not come after the wait may overwrite the event. After the launch the event holds
    /// the last of its records, or, if several may be the last, the work before all of these.
    fn order_events(&mut self, launch: &Launch) {
        for (event, wait) in &launch.waits {
            let own = |(of, record): &(EventId, usize)| of == event && !self.up_to(*record).contains(wait);
            if let Some(Stands::Task(record)) = self.events.get(event)
                && !launch.records.iter().any(own)
            {
                let (record, needs) = (*record, &mut self.model.tasks[*wait].needs);
                needs.push(record);
                needs.sort_unstable();
                needs.dedup();
            }
        }
        for (event, _) in &launch.records {
            let all: Vec<usize> = launch.records.iter().filter(|it| it.0 == *event).map(|it| it.1).collect();
            let is_last = |record: &&usize| all.iter().all(|it| it == *record || !self.up_to(*it).contains(*record));
            let last: Vec<BTreeSet<usize>> = all.iter().filter(is_last).map(|record| self.up_to(*record)).collect();
            let common = |task: &usize| last.iter().all(|before| before.contains(task));
            let needs: Vec<usize> = last[0].iter().copied().filter(common).collect();
            let held = match last.len() {
                1 => needs[needs.len() - 1],
                _ => self.push(Task { needs, is_hidden: true, ..Task::default() }),
            };
            self.events.insert(*event, Stands::Task(held));
        }
    }

    /// Returns a task and all tasks that come before it.
    fn up_to(&self, task: usize) -> BTreeSet<usize> {
        let (mut open, mut seen) = (vec![task], BTreeSet::new());
        while let Some(at) = open.pop() {
            if seen.insert(at) {
                open.extend(&self.model.tasks[at].needs);
            }
        }
        seen
    }

    fn frees(&self, task: usize, life: usize) -> bool {
        self.model.tasks[task].effects.contains(&Effect::of_all(life, Act::Free))
    }

    /// Appends the nodes of a graph. Returns the last tasks of the graph.
    fn run_nodes(&mut self, nodes: &[Node], launch: &mut Launch, roots: &[usize], who: &str) -> Vec<usize> {
        for node in nodes.iter().filter(|node| !node.is_removed) {
            if let Work::Alloc(memory) = node.work {
                let life = self.new_life(memory, false);
                launch.own.insert(memory, life);
                self.latest.insert(memory, life);
            }
        }
        let mut over: Vec<Option<Vec<usize>>> = vec![None; nodes.len()];
        // Edges may lead from later nodes to earlier ones, so look for a ready node again and again.
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

    fn run_node(&mut self, node: &Node, launch: &mut Launch, needs: Vec<usize>, who: &str, at: usize) -> Vec<usize> {
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
            Work::Record(_) | Work::Wait(_) => Vec::new(),
        };
        let who = format!("{who}, node {at}");
        let (line, from) = (node.line, Some(launch.line).filter(|line| *line > 0));
        let task = self.push(Task { needs, effects, line, launch: from, who, is_hidden: false });
        match node.work {
            Work::Record(event) => launch.records.push((event, task)),
            Work::Wait(event) => launch.waits.push((event, task)),
            _ => {}
        }
        vec![task]
    }

    fn node_effect(&mut self, launch: &Launch, memory: Memory, act: Act) -> Vec<Effect> {
        match launch.own.get(&memory) {
            Some(&life) => vec![Effect::of_all(life, act)],
            None => self.effect(memory, act),
        }
    }
}

/// Returns the memory of the alloc nodes among some nodes and in their children.
pub(super) fn allocs(nodes: &[Node]) -> Vec<Memory> {
    let of = |node: &Node| match &node.work {
        Work::Alloc(memory) => vec![*memory],
        Work::Child(nodes) => allocs(nodes),
        _ => Vec::new(),
    };
    nodes.iter().flat_map(of).collect()
}
