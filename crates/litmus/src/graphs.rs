//! Statements about graphs: nodes and edges, captures, instances, launches.

use millpond_core::ids::{ExecId, GraphId, NodeId};
use millpond_core::op::{CaptureMode, NodeOp, What};
use smallvec::SmallVec;

use crate::Refusal;
use crate::lower::{Count, Lower, Symbol};

impl Lower {
    /// Whether the words are such a statement; it is done then.
    pub(crate) fn graph_statement(&mut self, words: &[&str]) -> Result<bool, Refusal> {
        match *words {
            ["graph", name] => self.new_graph(name, false)?,
            ["graph", name, "symbolic"] => self.new_graph(name, true)?,
            ["node", name, "in", graph, ref rest @ ..] => self.node(name, graph, rest)?,
            ["edge", from, "->", to, "in", graph] => {
                let graph = self.graph(graph)?;
                let (from, to) = (self.node_number(graph, from)?, self.node_number(graph, to)?);
                self.push(What::GraphEdge { graph, from, to })?;
            }
            ["remove", "edge", from, "->", to, "in", graph] => {
                let graph = self.graph(graph)?;
                let (from, to) = (self.node_number(graph, from)?, self.node_number(graph, to)?);
                self.push(What::GraphEdgeRemove { graph, from, to })?;
            }
            ["remove", "node", name, "in", graph] => {
                let graph = self.graph(graph)?;
                let node = self.node_number(graph, name)?;
                self.free_names.insert((graph, (*name).to_owned()));
                self.push(What::GraphNodeRemove { graph, node })?;
            }
            [name, "=", "clone", graph] => self.clone_graph(name, graph)?,
            ["name", node, "in", graph, "as", name] => {
                let (node, graph) = (self.memory(node)?, self.graph(graph)?);
                let memory = self.fresh_memory(name)?;
                self.note_bytes_of(memory, node);
                self.push(What::CopyName { graph, node, memory })?;
                let name = self.names.intern(name);
                self.push(What::SetName { memory, name })?;
            }
            ["capture", stream, "as", graph, ref rest @ ..] => self.capture(stream, graph, rest)?,
            ["end", "capture", stream] => {
                let stream = self.stream(stream)?;
                self.push(What::CaptureEnd { stream })?;
            }
            [name, "=", "instantiate", graph] => self.instantiate(name, graph, false)?,
            [name, "=", "instantiate", graph, "auto-free"] => self.instantiate(name, graph, true)?,
            ["launch", exec, stream] => {
                let (exec, stream) = (self.exec(exec)?, self.stream(stream)?);
                self.push(What::GraphLaunch { exec, stream })?;
            }
            ["upload", exec, stream] => {
                let (exec, stream) = (self.exec(exec)?, self.stream(stream)?);
                self.push(What::GraphUpload { exec, stream })?;
            }
            ["update", exec, "from", graph] => {
                let (exec, graph) = (self.exec(exec)?, self.graph(graph)?);
                self.push(What::ExecUpdate { exec, graph })?;
            }
            [name, "=", "take", node, "from", exec] => {
                let (node, exec) = (self.memory(node)?, self.exec(exec)?);
                let memory = self.new_memory(name)?;
                self.note_bytes_of(memory, node);
                self.push(What::Take { exec, node, memory })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Nodes of a copy have the names and numbers that they have in the original.
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
        self.push(What::GraphClone { graph, copy })
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
        // Outside of its graph the memory is known by its own name, not by its node's.
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
        Ok(match *words {
            ["alloc", name, bytes] => {
                let bytes = self.bytes(bytes)?;
                let memory = self.fresh_memory(name)?;
                self.note_bytes(memory, bytes);
                NodeOp::Alloc { memory, bytes }
            }
            ["free", name] => {
                let memory = self.memory(name)?;
                self.note_free(memory);
                NodeOp::Free(memory)
            }
            ["read" | "write", ..] => NodeOp::Kernel(self.accesses(words)?),
            ["kernel", ref rest @ ..] => NodeOp::Kernel(self.accesses(rest)?),
            ["copy", from, "to", to] => NodeOp::Copy(self.accesses(&["read", from, "write", to])?),
            ["host", ref rest @ ..] => NodeOp::HostFunction(self.accesses(rest)?),
            ["fill", name] => NodeOp::Fill(self.accesses(&["write", name])?),
            ["empty"] => NodeOp::Empty,
            ["record", event] => {
                if self.symbol(event).is_none() {
                    let number = millpond_core::ids::EventId(self.next(Count::Event));
                    self.define(event, Symbol::Event(number))?;
                }
                NodeOp::EventRecord(self.event(event)?)
            }
            ["wait", event] => NodeOp::EventWait(self.event(event)?),
            ["child", graph] => NodeOp::Child(self.graph(graph)?),
            ref other => {
                let help = "a node does one of: alloc A 1024, free A, read A, write A, kernel read A write B, \
                            copy A to B, fill A, host read A, record E, wait E, child G, empty";
                return self.refuse(format!("`{}` is no work of a node", other.join(" ")), help);
            }
        })
    }

    fn node_number(&self, graph: GraphId, name: &str) -> Result<NodeId, Refusal> {
        match self.nodes.get(&graph).and_then(|nodes| nodes.get(name)) {
            Some(node) => Ok(*node),
            None => self.refuse(format!("there is no node `{name}` in this graph"), "add it before, with `node`"),
        }
    }
}
