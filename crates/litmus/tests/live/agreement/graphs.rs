//! Random graphs: by capture, by node, as copies; instances and their launches.
//!
//! Depends on the program as far as it is made.

use std::fmt::Write as _;

use super::maker::{Capture, Exec, Graph, Maker, Own};

impl Maker {
    pub(crate) fn begin(&mut self) {
        let origin = self.stream();
        if self.legacy.as_ref() == Some(&origin) {
            return self.access();
        }
        if let Some(capture) = &self.capture {
            // Another one at the same time.
            if self.aside.is_some() || capture.inside.contains(&origin) || !self.random.one_in(3) {
                return self.access();
            }
            self.aside = self.capture.take();
        }
        let name = self.fresh('g');
        let mode = self.random.pick(&["", "", " relaxed", " thread-local"]);
        self.say(format!("capture {origin} as {name}{mode}"));
        let graph = Graph { name, ..Graph::default() };
        self.capture = Some(Capture { graph, inside: vec![origin.clone()], origin });
        for _ in 0..2 + self.random.below(6) {
            let inside = self.capture.as_ref().expect("it began").inside.clone();
            let own = self.capture.as_ref().expect("it began").graph.own.clone();
            let stream = self.random.pick(&inside);
            match self.random.below(12) {
                0 | 1 => {
                    let name = self.fresh('a');
                    self.say(format!("{name} = alloc {stream} 256"));
                    self.capture.as_mut().expect("it began").graph.own.push(Own { name, is_freed: false });
                }
                2..=5 if !own.is_empty() => {
                    let (own, act) = (self.random.pick(&own), self.random.pick(&["read", "write"]));
                    let part = self.part();
                    self.say(format!("{act} {stream} {}{part}", own.name));
                }
                2..=6 => {
                    if let Some(name) = self.some_memory() {
                        let act = self.random.pick(&["read", "write"]);
                        self.say(format!("{act} {stream} {name}"));
                    }
                }
                7 | 8 => {
                    let (event, to) = (self.event(), self.stream());
                    if self.legacy.as_ref() == Some(&to) && !self.random.one_in(8) {
                        continue;
                    }
                    self.say(format!("record {event} {stream}"));
                    self.say(format!("wait {to} {event}"));
                    let inside = &mut self.capture.as_mut().expect("it began").inside;
                    if !inside.contains(&to) {
                        inside.push(to);
                    }
                }
                9 if !own.is_empty() => {
                    let own = self.random.pick(&own);
                    self.say(format!("free {stream} {}", own.name));
                    let graph = &mut self.capture.as_mut().expect("it began").graph;
                    graph.own.iter_mut().filter(|it| it.name == own.name).for_each(|it| it.is_freed = true);
                }
                10 => {
                    let is_fixed = |exec: &&Exec| self.graphs.iter().any(|it| it.name == exec.graph && it.is_fixed());
                    let is_any = self.random.one_in(4);
                    let execs = self.execs.iter().filter(|exec| is_any || !is_fixed(exec));
                    let exec: Vec<_> = execs.map(|exec| exec.name.clone()).collect();
                    if !exec.is_empty() && self.random.one_in(2) {
                        let exec = self.random.pick(&exec);
                        self.say(format!("launch {exec} {stream}"));
                    }
                }
                11 => {
                    let event = self.outside_event();
                    let act = self.random.pick(&["record", "wait"]);
                    let line = match act {
                        "record" => format!("record {event} {stream} external"),
                        _ => format!("wait {stream} {event} external"),
                    };
                    self.say(line);
                }
                _ => self.access(),
            }
        }
        if !self.random.one_in(4) {
            self.end_capture();
        }
    }

    /// Returns an event that nodes record or wait for.
    fn outside_event(&mut self) -> String {
        if !self.outside_events.is_empty() && !self.random.one_in(3) {
            return self.random.pick(&self.outside_events);
        }
        let event = self.fresh('o');
        self.say(format!("event {event}"));
        self.outside_events.push(event.clone());
        event
    }

    pub(crate) fn end_capture(&mut self) {
        let Some(capture) = self.capture.take() else { return };
        for side in capture.inside.iter().filter(|side| **side != capture.origin) {
            if self.random.one_in(16) {
                continue;
            }
            let event = self.fresh('e');
            self.say(format!("record {event} {side}"));
            self.say(format!("wait {} {event}", capture.origin));
        }
        self.say(format!("end capture {}", capture.origin));
        self.graphs.push(capture.graph);
        self.capture = self.aside.take();
    }

    /// Makes a graph node by node.
    pub(crate) fn build(&mut self) {
        let name = self.fresh('g');
        let is_symbolic = self.random.one_in(8);
        self.say(format!("graph {name}{}", if is_symbolic { " symbolic" } else { "" }));
        let mut graph = Graph { name: name.clone(), is_symbolic, ..Graph::default() };
        for at in 0..1 + self.random.below(6) {
            self.add_node(&mut graph, at > 0);
            if self.random.one_in(8) {
                self.change(&mut graph);
            }
        }
        self.graphs.push(graph);
    }

    fn add_node(&mut self, graph: &mut Graph, is_linked: bool) {
        let node = self.fresh('n');
        let mut line = format!("node {node} in {}", graph.name);
        let mut after = Vec::new();
        for known in &graph.nodes {
            if after.len() < 3 && self.random.below(3) > 0 {
                after.push(known.clone());
            }
        }
        if after.is_empty() && is_linked && !self.random.one_in(3) {
            after.extend(graph.nodes.last().cloned());
        }
        if !after.is_empty() {
            write!(line, " after {}", after.join(" ")).expect("a string");
        }
        let Some(work) = self.node(graph) else { return };
        self.say(format!("{line}: {work}"));
        graph.nodes.push(node);
    }

    /// Changes an existing graph, or a copy, that was made node by node. It may have instances.
    pub(crate) fn edit_graph(&mut self) {
        let by_hand: Vec<usize> = (0..self.graphs.len()).filter(|at| !self.graphs[*at].nodes.is_empty()).collect();
        if self.several {
            return self.grant();
        }
        if by_hand.is_empty() {
            return self.build();
        }
        let at = self.random.pick(&by_hand);
        let mut graph = self.graphs[at].clone();
        for _ in 0..1 + self.random.below(3) {
            match self.random.one_in(3) {
                true => self.add_node(&mut graph, true),
                false => self.change(&mut graph),
            }
        }
        self.graphs[at] = graph;
    }

    /// Adds or removes an edge, which may exist already, or not; or removes a node.
    fn change(&mut self, graph: &mut Graph) {
        if graph.nodes.is_empty() {
            return;
        }
        let (from, to) = (self.random.pick(&graph.nodes), self.random.pick(&graph.nodes));
        if self.random.one_in(3) {
            self.say(format!("remove node {from} in {}", graph.name));
            graph.nodes.retain(|node| *node != from);
            return;
        }
        let remove = self.random.pick(&["", "remove "]);
        self.say(format!("{remove}edge {from} -> {to} in {}", graph.name));
    }

    fn node(&mut self, graph: &mut Graph) -> Option<String> {
        let act = self.random.pick(&["read", "write"]);
        Some(match self.random.below(14) {
            0..=2 => {
                let name = self.fresh('a');
                graph.own.push(Own { name: name.clone(), is_freed: false });
                format!("alloc {name} 256")
            }
            3..=6 if !graph.own.is_empty() => {
                let (own, part) = (self.random.pick(&graph.own).name, self.part());
                format!("{act} {own}{part}")
            }
            7 | 8 if graph.own.iter().any(|own| !own.is_freed) || !graph.own.is_empty() && self.random.one_in(4) => {
                let at = self.random.below(graph.own.len());
                graph.own[at].is_freed = true;
                format!("free {}", graph.own[at].name)
            }
            9 => {
                // A graph with memory is moved. Some are wrong.
                let is_any = self.random.one_in(8);
                let has_instance = |it: &Graph| it.is_child || self.execs.iter().any(|exec| exec.graph == it.name);
                let may_move = |at: &usize| is_any || !self.graphs[*at].is_fixed() || !has_instance(&self.graphs[*at]);
                let children: Vec<usize> = (0..self.graphs.len()).filter(may_move).collect();
                if children.is_empty() {
                    return None;
                }
                let child = self.random.pick(&children);
                self.graphs[child].is_child = true;
                format!("child {}", self.graphs[child].name)
            }
            10 => {
                let event = self.outside_event();
                format!("{} {event}", self.random.pick(&["record", "wait"]))
            }
            11 => "empty".into(),
            12 => {
                // This graph frees memory that another graph leaves.
                let left: Vec<String> = self.graphs.iter().flat_map(|it| &it.own).map(|own| own.name.clone()).collect();
                if left.is_empty() {
                    return None;
                }
                format!("free {}", self.random.pick(&left))
            }
            _ => {
                let memory = self.some_memory()?;
                let part = if self.random.one_in(2) { self.part() } else { "" };
                format!("{act} {memory}{part}")
            }
        })
    }

    pub(crate) fn clone_graph(&mut self) {
        let is_any = self.random.one_in(8);
        let graphs: Vec<Graph> = self.graphs.iter().filter(|it| is_any || !it.is_fixed()).cloned().collect();
        if graphs.is_empty() {
            return self.build();
        }
        let graph = self.random.pick(&graphs);
        let name = self.fresh('g');
        self.say(format!("{name} = clone {}", graph.name));
        let mut own = graph.own.clone();
        for it in &mut own {
            let base = it.name.rsplit('.').next().unwrap_or_default();
            it.name = format!("{name}.{base}");
        }
        self.graphs.push(Graph { name, own, is_child: false, ..graph });
    }

    pub(crate) fn instantiate(&mut self) {
        if self.graphs.is_empty() {
            return self.build();
        }
        let graph = self.random.pick(&self.graphs);
        // A graph with memory has one instance at a time. Some are wrong.
        if graph.is_fixed() && !self.random.one_in(8) {
            if graph.is_child {
                return self.build();
            }
            if let Some(at) = self.execs.iter().position(|exec| exec.graph == graph.name) {
                let before = self.execs.remove(at);
                self.memory.extend(before.leaves);
                self.say(format!("destroy {}", before.name));
            }
        }
        let name = self.fresh('x');
        let auto = if self.random.one_in(3) { " auto-free" } else { "" };
        self.say(format!("{name} = instantiate {}{auto}", graph.name));
        let leaves = graph.own.iter().filter(|own| !own.is_freed).map(|own| own.name.clone()).collect();
        self.execs.push(Exec { name, graph: graph.name, leaves, is_launched: false });
        if self.random.below(4) > 0 {
            self.launch();
        }
    }

    pub(crate) fn launch(&mut self) {
        if self.execs.is_empty() {
            return self.instantiate();
        }
        let (at, stream) = (self.random.below(self.execs.len()), self.stream());
        self.execs[at].is_launched = true;
        let name = self.execs[at].name.clone();
        if self.random.below(12) == 0 {
            let other = self.stream();
            self.say(format!("upload {name} {other}"));
        }
        self.say(format!("launch {name} {stream}"));
    }
}
