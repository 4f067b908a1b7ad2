//! Bounds on the size of a program's graphs. Launches and copies expand children, so a few lines can stand for any
//! number of nodes.
//!
//! The sizes are computed from the operations alone and are upper bounds: every operation during a capture counts as a
//! node of the capture.

use std::collections::HashMap;

use millpond_core::ids::{ExecId, GraphId, StreamId};
use millpond_core::op::{NodeOp, What};

/// The largest number of nodes of a graph, including those of its children. Orders are looked up for each pair of
/// nodes.
pub(crate) const NODES_MAX: u64 = 10_000;
/// The largest number of nodes, accesses and pairs of records of all launches.
const LAUNCHED_MAX: u64 = 1 << 24;
/// The largest number of nodes, accesses and names of all copies and instances.
const COPIED_MAX: u64 = 1 << 20;
/// The largest number of accesses of all operations.
const ACCESSES_MAX: u64 = 1 << 19;

/// The size of a graph.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: u64,
    /// The accesses of its nodes.
    accesses: u64,
    /// An upper bound on the names that its nodes have in the graphs that it is a copy of.
    names: u64,
    /// The nodes that record events. For each of them, each launch lists what comes before it on the chains of all.
    records: u64,
}

impl Size {
    fn both(self) -> u64 {
        self.nodes + self.accesses + self.names
    }
}

/// The sizes of graphs and instances.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    graphs: HashMap<GraphId, Size>,
    execs: HashMap<ExecId, Size>,
    captures: HashMap<StreamId, GraphId>,
    launched: u64,
    copied: u64,
    accesses: u64,
}

impl Sizes {
    /// Counts the next operation. Returns a description of the bound that it exceeds, if any.
    pub(crate) fn take(&mut self, what: &What) -> Option<String> {
        let accesses = accesses(what);
        self.accesses += accesses;
        if self.accesses > ACCESSES_MAX {
            return Some(format!("operations of more than {ACCESSES_MAX} accesses"));
        }
        let of = |graph: &GraphId| self.graphs.get(graph).copied().unwrap_or_default();
        let mut added = Size { nodes: 1, accesses, ..Size::default() };
        match what {
            What::GraphNode { graph, node, .. } => {
                let mut added = if let NodeOp::Child(child) = &**node { of(child) } else { Size::default() };
                added.nodes += 1;
                added.accesses += accesses;
                added.records += u64::from(matches!(**node, NodeOp::EventRecord(_)));
                return self.grow(*graph, added);
            }
            What::GraphClone { graph, copy } => {
                let mut size = of(graph);
                size.names += size.nodes;
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
                let size = self.execs.get(exec).copied().unwrap_or_default();
                added = Size { nodes: size.nodes + 1, ..size };
                self.launched += added.both() + size.records * size.records;
                if self.launched > LAUNCHED_MAX {
                    return Some(format!("launches of more than {LAUNCHED_MAX} nodes, accesses and pairs of records"));
                }
            }
            What::EventRecord { external: true, .. } => added.records = 1,
            _ => {}
        }
        let captures: Vec<GraphId> = self.captures.values().copied().collect();
        captures.into_iter().find_map(|graph| self.grow(graph, added))
    }

    fn copy(&mut self, size: Size) -> Option<String> {
        self.copied += size.both();
        (self.copied > COPIED_MAX)
            .then(|| format!("copies and instances of more than {COPIED_MAX} nodes, accesses and names"))
    }

    fn grow(&mut self, graph: GraphId, added: Size) -> Option<String> {
        let size = self.graphs.entry(graph).or_default();
        size.nodes += added.nodes;
        size.accesses += added.accesses;
        size.names += added.names;
        size.records += added.records;
        let is_too_large = size.nodes > NODES_MAX;
        is_too_large.then(|| format!("a graph of more than {NODES_MAX} nodes, those of its children included"))
    }
}

/// Returns the number of accesses that an operation names.
fn accesses(what: &What) -> u64 {
    let named = match what {
        What::Launch { accesses, .. } | What::Copy { accesses, .. } | What::HostAccess { accesses } => accesses.len(),
        What::GraphNode { node, .. } => match &**node {
            NodeOp::Kernel(accesses)
            | NodeOp::Copy(accesses)
            | NodeOp::Fill(accesses)
            | NodeOp::HostFunction(accesses) => accesses.len(),
            _ => 0,
        },
        _ => 0,
    };
    named as u64
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
        let chain = "graph g\nnode a in g: empty\nrepeat 9000\ng = clone g\nend repeat\n";
        let refusal = Program::parse(chain).expect_err("each has the names of all before it");
        assert!(refusal.what.contains("copies and instances of more than"), "{refusal}");
    }

    #[test]
    fn few_lines_do_not_become_any_number_of_accesses() {
        let parts: String = (0..500).map(|at| format!(" a[{at}..{}]", at + 1)).collect();
        let read = format!("stream s\na = alloc s 512\nrepeat 10000\nread s{parts}\nend repeat\n");
        let node = format!("stream s\na = alloc s 512\ngraph g\nnode n in g: read{parts}\nx = instantiate g\n");
        let launched = format!("{node}repeat 10000\nlaunch x s\nlaunch x s\nlaunch x s\nlaunch x s\nend repeat\n");
        let again = format!("stream s\na = alloc s 64\nrepeat 10000\nread s{}\nend repeat\n", " a".repeat(1000));
        let mut recorded = String::from("stream s\nevent e\ngraph g0\nnode n in g0: record e\n");
        (1..12).for_each(|at| {
            let below = at - 1;
            write!(recorded, "graph g{at}\nnode a in g{at}: child g{below}\nnode b in g{at}: child g{below}\n")
                .unwrap();
        });
        recorded.push_str("x = instantiate g11\nrepeat 60\nlaunch x s\nend repeat\n");
        let wide = format!("stream s\na = alloc s 64\nwrite s{}\n", " a".repeat(5000));
        for (text, what) in [
            (read, "more than 524288 accesses"),
            (launched, "more than 16777216 nodes, accesses and pairs of records"),
            (recorded, "more than 16777216 nodes, accesses and pairs of records"),
            (again, "too many words"),
            (wide, "names too much"),
        ] {
            let refusal = Program::parse(&text).expect_err("it is too large");
            assert!(refusal.what.contains(what), "{refusal}");
        }
    }
}
