//! How large a program's graphs become: children are put in place, so that few lines can mean any number of nodes.
//!
//! Counts by operations alone, and rather too many: whatever is done while a capture goes on counts as a node of it.

use std::collections::HashMap;

use millpond_core::ids::{ExecId, GraphId, StreamId};
use millpond_core::op::{NodeOp, What};

/// The most nodes of a graph, those of its children included. What orders them is looked up for each pair.
const NODES_MAX: u64 = 10_000;
/// The most nodes of all launches.
const LAUNCHED_MAX: u64 = 1 << 24;
/// The most nodes of all copies and instances.
const COPIED_MAX: u64 = 1 << 20;

/// The sizes of graphs and instances.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    graphs: HashMap<GraphId, u64>,
    execs: HashMap<ExecId, u64>,
    captures: HashMap<StreamId, GraphId>,
    launched: u64,
    copied: u64,
}

impl Sizes {
    /// Takes the next operation; what is too large, if something is.
    pub(crate) fn take(&mut self, what: &What) -> Option<String> {
        let of = |graph: &GraphId| self.graphs.get(graph).copied().unwrap_or(0);
        let mut added = 1;
        match what {
            What::GraphNode { graph, node, .. } => {
                let child = if let NodeOp::Child(child) = &**node { of(child) } else { 0 };
                return self.grow(*graph, child + 1);
            }
            What::GraphClone { graph, copy } => {
                let size = of(graph);
                self.graphs.insert(*copy, size);
                return self.copy(size);
            }
            What::Instantiate { graph, exec, .. } | What::ExecUpdate { exec, graph } => {
                let size = of(graph);
                self.execs.insert(*exec, size);
                return self.copy(size);
            }
            What::CaptureBegin { stream, graph, .. } => {
                self.captures.insert(*stream, *graph);
            }
            What::CaptureEnd { stream } => {
                self.captures.remove(stream);
            }
            What::GraphLaunch { exec, .. } => {
                added += self.execs.get(exec).copied().unwrap_or(0);
                self.launched += added;
                if self.launched > LAUNCHED_MAX {
                    return Some(format!("launches of more than {LAUNCHED_MAX} nodes"));
                }
            }
            _ => {}
        }
        let captures: Vec<GraphId> = self.captures.values().copied().collect();
        captures.into_iter().find_map(|graph| self.grow(graph, added))
    }

    fn copy(&mut self, nodes: u64) -> Option<String> {
        self.copied += nodes;
        (self.copied > COPIED_MAX).then(|| format!("copies and instances of more than {COPIED_MAX} nodes"))
    }

    fn grow(&mut self, graph: GraphId, nodes: u64) -> Option<String> {
        let size = self.graphs.entry(graph).or_default();
        *size += nodes;
        (*size > NODES_MAX).then(|| format!("a graph of more than {NODES_MAX} nodes, those of its children included"))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::Program;

    #[test]
    fn few_lines_do_not_become_any_number_of_nodes() {
        let mut built = String::from("stream s\ngraph g0\nnode n in g0: empty\n");
        let mut captured = String::from("stream s\ncapture s as g0\nread s\nend capture s\nx0 = instantiate g0\n");
        for depth in 1..40 {
            let below = depth - 1;
            writeln!(built, "graph g{depth}\nnode n in g{depth}: child g{below}\nnode m in g{depth}: child g{below}")
                .unwrap();
            writeln!(captured, "capture s as g{depth}\nlaunch x{below} s\nlaunch x{below} s").unwrap();
            writeln!(captured, "end capture s\nx{depth} = instantiate g{depth}").unwrap();
        }
        let captured = captured.replace("read s\n", "a = alloc s 64\nfree s a\n");
        for text in [built, captured] {
            let refusal = Program::parse(&text).expect_err("it is too large");
            assert!(refusal.what.contains("more than 10000 nodes"), "{refusal}");
        }
        let mut copies = String::from("graph g\n");
        (0..9_000).for_each(|at| writeln!(copies, "node n{at} in g: empty").unwrap());
        (0..1_000).for_each(|at| writeln!(copies, "h{at} = clone g").unwrap());
        let refusal = Program::parse(&copies).expect_err("they are too large");
        assert!(refusal.what.contains("copies and instances of more than"), "{refusal}");
    }
}
