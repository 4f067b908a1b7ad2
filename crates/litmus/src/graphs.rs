//! Statements about graphs: nodes and edges, captures, instances, launches.

use millpond_core::ids::{ExecId, GraphId, NodeId};
use millpond_core::op::{CaptureMode, NodeOp, What};
use smallvec::SmallVec;

use crate::Refusal;
use crate::lower::{Count, Lower, Symbol};
use crate::statements::statements;

impl Lower {
    statements! {
        /// Lowers a line about graphs.
        fn graph_statement(&mut self, words) -> (), GRAPH_STATEMENTS;
        ["graph", g] => self.new_graph(g, false);
        ["graph", g, "symbolic"] => self.new_graph(g, true);
        ["node", n, "in", g, ref rest @ ..] "[after M]: write A" => self.node(n, g, rest);
        ["edge", n, "->", m, "in", g] => {
            let (graph, from, to) = self.edge(g, n, m)?;
            self.push(What::GraphEdge { graph, from, to })
        };
        ["remove", "edge", n, "->", m, "in", g] => {
            let (graph, from, to) = self.edge(g, n, m)?;
            self.push(What::GraphEdgeRemove { graph, from, to })
        };
        ["remove", "node", n, "in", g] => {
            let graph = self.graph(g)?;
            let node = self.node_number(graph, n)?;
            self.free_names.insert((graph, n.to_owned()));
            self.push(What::GraphNodeRemove { graph, node })
        };
        [h, "=", "clone", g] => self.clone_graph(h, g);
        ["capture", s, "as", g, ref rest @ ..] "[relaxed | thread-local] [symbolic]" => self.capture(s, g, rest);
        ["capture", "mode", mode @ ("global" | "thread-local" | "relaxed")] => {
            let mode = match mode {
                "thread-local" => CaptureMode::ThreadLocal,
                "relaxed" => CaptureMode::Relaxed,
                _ => CaptureMode::Global,
            };
            self.push(What::CaptureModeExchange { mode })
        };
        ["end", "capture", s] => {
            let stream = self.stream(s)?;
            self.push(What::CaptureEnd { stream })
        };
        [x, "=", "instantiate", g] => self.instantiate(x, g, false);
        [x, "=", "instantiate", g, "auto-free"] => self.instantiate(x, g, true);
        ["launch", x, s] => {
            let (exec, stream) = (self.exec(x)?, self.stream(s)?);
            self.push(What::GraphLaunch { exec, stream })
        };
        ["upload", x, s] => {
            let (exec, stream) = (self.exec(x)?, self.stream(s)?);
            self.push(What::GraphUpload { exec, stream })
        };
        ["update", x, "from", g] => {
            let (exec, graph) = (self.exec(x)?, self.graph(g)?);
            self.push(What::ExecUpdate { exec, graph })
        };
        [b, "=", "take", a, "from", x] => {
            let (node, exec) = (self.memory(a)?, self.exec(x)?);
            let memory = self.new_memory(b)?;
            self.note_bytes_of(memory, node);
            self.push(What::Take { exec, node, memory })
        };
    }

    statements! {
        /// Lowers the work of a node.
        fn node_work(&mut self, words) -> NodeOp, NODE_WORK;
        ["alloc", a, bytes] => {
            let bytes = self.bytes(bytes)?;
            let memory = self.fresh_memory(a)?;
            self.note_bytes(memory, bytes);
            Ok(NodeOp::Alloc { memory, bytes })
        };
        ["free", a] => {
            let memory = self.memory(a)?;
            self.note_free(memory);
            Ok(NodeOp::Free(memory))
        };
        ["read" | "write", ..] "A B" => Ok(NodeOp::Kernel(self.accesses(words)?));
        ["kernel", ref rest @ ..] "read A write B" => Ok(NodeOp::Kernel(self.accesses(rest)?));
        ["copy", a, "to", b] => Ok(NodeOp::Copy(self.accesses(&["read", a, "write", b])?));
        ["fill", a] => Ok(NodeOp::Fill(self.accesses(&["write", a])?));
        ["host", ref rest @ ..] "read A write B" => Ok(NodeOp::HostFunction(self.accesses(rest)?));
        ["record", e] => Ok(NodeOp::EventRecord(self.event_to_record(e)?));
        ["wait", e] => Ok(NodeOp::EventWait(self.event(e)?));
        ["child", g] => {
            Ok(NodeOp::Child(self.graph(g)?))
        };
        ["empty"] => Ok(NodeOp::Empty);
    }

    fn edge(&self, graph: &str, from: &str, to: &str) -> Result<(GraphId, NodeId, NodeId), Refusal> {
        let graph = self.graph(graph)?;
        Ok((graph, self.node_number(graph, from)?, self.node_number(graph, to)?))
    }

    /// Nodes of a copy have the names and numbers of the original's nodes. Its memory is named after the copy, followed
    /// by the name in the original.
    fn clone_graph(&mut self, name: &str, graph: &str) -> Result<(), Refusal> {
        let graph = self.graph(graph)?;
        let copy = GraphId(self.next(Count::Graph));
        self.define(name, Symbol::Graph(copy))?;
        if let Some(nodes) = self.nodes.get(&graph).cloned() {
            self.nodes.insert(copy, nodes);
        }
        let free = self.free_names.iter().filter(|(of, _)| *of == graph);
        let free: Vec<_> = free.map(|(_, name)| (copy, name.clone())).collect();
        self.free_names.extend(free);
        self.sizes.insert(copy, self.sizes.get(&graph).copied().unwrap_or(0));
        self.push(What::GraphClone { graph, copy })?;
        for (base, node) in self.allocs.get(&graph).cloned().unwrap_or_default() {
            let called = format!("{name}.{base}");
            let memory = self.fresh_memory(&called)?;
            self.note_bytes_of(memory, node);
            self.allocs.entry(copy).or_default().push((base, memory));
            self.push(What::CopyName { graph: copy, node, memory })?;
            let name = self.names.intern(&called);
            self.push(What::SetName { memory, name })?;
        }
        Ok(())
    }

    fn new_graph(&mut self, name: &str, symbolic: bool) -> Result<(), Refusal> {
        let graph = GraphId(self.next(Count::Graph));
        self.define(name, Symbol::Graph(graph))?;
        self.push(What::GraphCreate { graph, symbolic })
    }

    fn capture(&mut self, stream: &str, name: &str, rest: &[&str]) -> Result<(), Refusal> {
        let stream = self.stream(stream)?;
        let (mut mode, mut symbolic) = (CaptureMode::Global, false);
        for word in rest {
            match *word {
                "relaxed" => mode = CaptureMode::Relaxed,
                "thread-local" => mode = CaptureMode::ThreadLocal,
                "symbolic" => symbolic = true,
                other => {
                    let help = "a capture is `relaxed`, `thread-local` or neither, and may be `symbolic`";
                    return self.refuse(format!("`{other}` is not understood here"), help);
                }
            }
        }
        self.has_captured = true;
        self.refuse_capture_beside_processes(!self.processes.is_empty())?;
        let graph = GraphId(self.next(Count::Graph));
        self.define(name, Symbol::Graph(graph))?;
        self.push(What::CaptureBegin { stream, graph, mode, symbolic })
    }

    fn instantiate(&mut self, name: &str, graph: &str, auto_free_on_launch: bool) -> Result<(), Refusal> {
        let graph = self.graph(graph)?;
        let exec = ExecId(self.next(Count::Exec));
        self.define(name, Symbol::Exec(exec))?;
        self.push(What::Instantiate { graph, exec, auto_free_on_launch })
    }

    /// `node N in G [after M ...]: write A`.
    fn node(&mut self, name: &str, graph: &str, rest: &[&str]) -> Result<(), Refusal> {
        let graph = self.graph(graph)?;
        let Some(colon) = rest.iter().position(|word| *word == ":") else {
            return self.refuse("a node without its work", "say what it does: `node N in G after M: write A`");
        };
        let after: SmallVec<[NodeId; 2]> = match &rest[..colon] {
            [] => SmallVec::new(),
            ["after", names @ ..] => {
                names.iter().map(|name| self.node_number(graph, name)).collect::<Result<_, _>>()?
            }
            other => {
                let help = "name the nodes that it comes after: `node N in G after M: write A`";
                return self.refuse(format!("`{}` is not understood here", other.join(" ")), help);
            }
        };
        let node = self.work_of_node(&rest[colon + 1..])?;
        let size = self.sizes.entry(graph).or_insert(0);
        let number = NodeId(*size);
        *size += 1;
        let is_taken = self.nodes.entry(graph).or_default().insert(name.to_owned(), number).is_some();
        if is_taken && !self.free_names.remove(&(graph, name.to_owned())) {
            let help = "take another name; what is repeated makes one node, or a graph in each round";
            return self.refuse(format!("`{name}` is a node of that graph already"), help);
        }
        if let (["alloc", memory, _], NodeOp::Alloc { memory: number, .. }) = (&rest[colon + 1..], &node) {
            self.allocs.entry(graph).or_default().push(((*memory).to_owned(), *number));
        }
        // Outside of its graph the memory has its own name, not its node's.
        let allocated = match (&rest[colon + 1..], &node) {
            (["alloc", memory, _], NodeOp::Alloc { memory: number, .. }) if *memory != name => Some((*number, *memory)),
            _ => None,
        };
        let name = self.name(name);
        self.push(What::GraphNode { graph, node: Box::new(node), after, name })?;
        if let Some((memory, called)) = allocated {
            let name = self.names.intern(called);
            self.push(What::SetName { memory, name })?;
        }
        Ok(())
    }

    fn work_of_node(&mut self, words: &[&str]) -> Result<NodeOp, Refusal> {
        match self.node_work(words)? {
            Some(work) => Ok(work),
            None => {
                let shapes: Vec<String> = Self::NODE_WORK.iter().map(|shape| format!("`{}`", shape.text())).collect();
                let help = format!("a node does one of {}", shapes.join(", "));
                self.refuse(format!("`{}` is no work of a node", words.join(" ")), help)
            }
        }
    }

    fn node_number(&self, graph: GraphId, name: &str) -> Result<NodeId, Refusal> {
        match self.nodes.get(&graph).and_then(|nodes| nodes.get(name)) {
            Some(node) => Ok(*node),
            None => self.refuse(format!("there is no node `{name}` in this graph"), "add it before, with `node`"),
        }
    }
}
