//! A scene from an operation trace: lives, uses, graphs, and what the checker says of it all.
//!
//! A trace has no addresses, as order does not depend on them: lives get places of their own here, best fit, so that
//! the picture is about as high as the memory that was live. What a trace says of memory that it never saw made is
//! passed over; the checker tells.

use std::collections::HashMap;
use std::path::Path;

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::ids::{AllocId, ExecId, GraphId, StreamId};
use millpond_core::op::{Access, Act, Memory, Name, Names, NodeOp, Op, Place, What};
use millpond_core::trace::ops::{MAGIC, Reader, Reason};
use millpond_core::units::Bytes;

use crate::recorded::{self, Place as At, Refusal};

use super::ALLOCATIONS_MAX;
use super::addresses::Places;
use super::layout::layered;
use super::scene::{Drawing, Life, Mark, Node, Scene, Touch, grouped};

/// How many bytes of a trace are read at a time.
const CHUNK: usize = 1 << 16;
/// More uses than these are not shown.
const TOUCHES_MAX: usize = 1 << 22;
/// More violations than these are not shown.
const MARKS_MAX: usize = 1000;
/// Larger graphs are not drawn, and no more of them.
const NODES_MAX: usize = 5000;
const GRAPHS_MAX: usize = 200;

/// The scene of a file, with what there is to note; none where it is no operation trace.
///
/// # Errors
/// Where the trace is damaged, or too long for a page.
pub(super) fn read(path: &Path) -> Result<Option<(Scene, Option<String>)>, Refusal> {
    let mut source = recorded::open_unzipped(path).map_err(|refusal| refusal.in_file(path))?;
    let unreadable = |error: std::io::Error| Refusal::from_read(At::Whole, &error).in_file(path);
    let head = source.fill_buf().map_err(unreadable)?;
    if head.is_empty() || !head.starts_with(&MAGIC[..MAGIC.len().min(head.len())]) {
        return Ok(None);
    }
    let (mut reader, mut builder, mut buffer) = (Reader::new(), Builder::new(), vec![0; CHUNK]);
    let mut damage = loop {
        match reader.next_op() {
            Ok(Some(op)) => builder.step(&op, reader.names()),
            Ok(None) => match source.read(&mut buffer).map_err(unreadable)? {
                0 => break reader.end().err(),
                read => reader.feed(&buffer[..read]),
            },
            Err(damage) => break Some(damage),
        }
        if builder.scene.lives.len() > ALLOCATIONS_MAX {
            let reason = format!("more than {ALLOCATIONS_MAX} allocations, which is the most that a page shows");
            return Err(Refusal::new(At::Whole, reason).help("trace a shorter run").in_file(path));
        }
    };
    let is_cut = damage.take_if(|damage| damage.reason == Reason::Cut && builder.scene.steps > 0).is_some();
    if let Some(damage) = damage {
        let refusal = Refusal::new(At::Byte(damage.offset), damage.to_string());
        return Err(refusal.help("copy the file, or trace the program, again").in_file(path));
    }
    let note = (is_cut || !reader.is_finished())
        .then(|| "the program was stopped while it was traced: what it had flushed is drawn".to_owned());
    let name = recorded::file_stem(path);
    Ok(Some((builder.finish(name, reader.names(), reader.is_finished()), note)))
}

/// A graph in the making.
#[derive(Clone, Default)]
struct Graph {
    nodes: Vec<Node>,
    edges: Vec<(u32, u32)>,
}

/// An instance.
struct Exec {
    auto_free: bool,
    /// The stream of its last launch, and what that left.
    stream: u32,
    left: Vec<u32>,
}

/// Goes through the operations.
struct Builder {
    scene: Scene,
    checker: Checker,
    found: Vec<Finding>,
    numbers: HashMap<String, u32>,
    /// By file and line.
    places: HashMap<(Option<Name>, u32), u32>,
    streams: HashMap<StreamId, u32>,
    lives: HashMap<Memory, u32>,
    latest: HashMap<AllocId, u32>,
    room: Places,
    /// Of alloc nodes: their sizes, and what their memory is called in its graph.
    nodes: HashMap<Memory, (u64, String)>,
    graphs: Vec<(GraphId, Graph)>,
    execs: HashMap<ExecId, Exec>,
    hidden_marks: u64,
}

impl Builder {
    fn new() -> Self {
        Self {
            scene: Scene { unit: "operation", checked: true, strings: vec![String::new()], ..Scene::default() },
            checker: Checker::new(Settings::default()),
            found: Vec::new(),
            numbers: HashMap::from([(String::new(), 0)]),
            places: HashMap::new(),
            streams: HashMap::new(),
            lives: HashMap::new(),
            latest: HashMap::new(),
            room: Places::default(),
            nodes: HashMap::new(),
            graphs: Vec::new(),
            execs: HashMap::new(),
            hidden_marks: 0,
        }
    }

    fn step(&mut self, op: &Op, names: &Names) {
        self.memory(op, names);
        self.graph(op, names);
        self.checker.check(op, names, &mut self.found);
        if !self.found.is_empty() {
            self.mark();
        }
        self.scene.steps += 1;
    }

    fn finish(mut self, name: String, names: &Names, is_whole: bool) -> Scene {
        if is_whole {
            self.checker.finish(names, &mut self.found);
            self.mark();
        }
        let mut scene = self.scene;
        scene.name = name;
        scene.touches.sort_unstable();
        let drawn = self.graphs.into_iter().filter(|(_, graph)| (1..=NODES_MAX).contains(&graph.nodes.len()));
        scene.graphs = drawn.take(GRAPHS_MAX).map(|(id, graph)| drawing(id, graph)).collect();
        let fact = |key: &str, value: String| (key.to_owned(), value);
        scene.facts = vec![
            fact("operations", grouped(scene.steps)),
            fact("allocations", grouped(scene.lives.len() as u64)),
            fact("streams", scene.streams.len().to_string()),
            fact("most live", Bytes(scene.peak_live()).to_string()),
            fact("violations", grouped(scene.marks.len() as u64 + self.hidden_marks)),
        ];
        scene
    }

    // Memory.

    fn memory(&mut self, op: &Op, names: &Names) {
        match &op.what {
            What::StreamCreate { stream, .. } => {
                self.stream(*stream);
            }
            What::StreamName { stream, name } => {
                let number = self.stream(*stream) as usize;
                if let Some(text) = names.text(*name) {
                    self.scene.streams[number] = text.to_string();
                }
            }
            What::Alloc { memory, stream, bytes, name, .. } => {
                let stream = self.stream(*stream);
                self.begin(op, names, *memory, stream, *bytes, *name);
            }
            What::AllocNow { memory, bytes, name, .. } => {
                let host = self.stream(StreamId::HOST);
                self.begin(op, names, *memory, host, *bytes, *name);
            }
            What::SetName { memory, name } => {
                let text = self.name(names, Some(*name));
                if let Some(life) = self.life(*memory) {
                    life.name = text;
                }
            }
            What::Free { memory, stream } => {
                let stream = self.stream(*stream);
                self.end(op, names, *memory, Some(stream));
            }
            What::FreeNow { memory } => {
                let host = self.stream(StreamId::HOST);
                self.end(op, names, *memory, Some(host));
            }
            What::Drop { memory } => self.end(op, names, *memory, None),
            What::Launch { stream, accesses, .. } => {
                let stream = self.stream(*stream);
                self.touch(accesses, stream);
            }
            What::HostAccess { accesses } => {
                let host = self.stream(StreamId::HOST);
                self.touch(accesses, host);
            }
            _ => {}
        }
    }

    fn life(&mut self, memory: Memory) -> Option<&mut Life> {
        let life = *self.lives.get(&memory)?;
        Some(&mut self.scene.lives[life as usize])
    }

    fn begin(&mut self, op: &Op, names: &Names, memory: Memory, stream: u32, bytes: u64, name: Option<Name>) {
        let bytes = bytes.clamp(1, 1 << 47);
        let life = Life {
            born: self.scene.steps,
            freed: None,
            bytes,
            stream,
            free_stream: stream,
            address: self.room.take(bytes),
            name: self.name(names, name),
            site: self.place(op.place, names),
            free_site: 0,
        };
        let number = self.scene.lives.len() as u32;
        self.scene.lives.push(life);
        self.lives.insert(memory, number);
        self.latest.insert(memory.id, number);
    }

    fn end(&mut self, op: &Op, names: &Names, memory: Memory, stream: Option<u32>) {
        let site = self.place(op.place, names);
        if let Some(number) = self.lives.remove(&memory) {
            self.end_life(number, site, stream);
        }
    }

    fn end_life(&mut self, number: u32, site: u32, stream: Option<u32>) {
        let life = &mut self.scene.lives[number as usize];
        if life.freed.is_none() {
            life.freed = Some(self.scene.steps.max(life.born + 1));
            (life.free_stream, life.free_site) = (stream.unwrap_or(life.stream), site);
            self.room.give(life.address, life.bytes);
        }
    }

    fn touch(&mut self, accesses: &[Access], stream: u32) {
        for access in accesses {
            if let Some(&life) = self.lives.get(&access.memory)
                && self.scene.touches.len() < TOUCHES_MAX
            {
                let (step, writes) = (self.scene.steps, access.act != Act::Read);
                self.scene.touches.push(Touch { life, step, stream, writes });
            }
        }
    }

    fn stream(&mut self, stream: StreamId) -> u32 {
        let streams = &mut self.scene.streams;
        *self.streams.entry(stream).or_insert_with(|| {
            streams.push(stream.to_string());
            streams.len() as u32 - 1
        })
    }

    fn name(&mut self, names: &Names, name: Option<Name>) -> u32 {
        name.and_then(|name| names.text(name)).map_or(0, |text| self.number(&text.clone()))
    }

    fn place(&mut self, place: Place, names: &Names) -> u32 {
        let key = match place {
            Place::File { file, line } => (Some(file), line),
            Place::Line(line) => (None, line),
            Place::Unknown | Place::Process(_) | Place::Source(_) => return 0,
        };
        if let Some(&number) = self.places.get(&key) {
            return number;
        }
        let number = self.number(&place.describe(names));
        self.places.insert(key, number);
        number
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.scene.strings.len() as u32;
        self.scene.strings.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    // Graphs.

    fn graph(&mut self, op: &Op, names: &Names) {
        match &op.what {
            What::GraphCreate { graph, .. } => self.graphs.push((*graph, Graph::default())),
            What::GraphClone { graph, copy } => {
                let original = self.find(*graph).cloned().unwrap_or_default();
                self.graphs.push((*copy, original));
            }
            What::GraphNode { graph, node, after, name } => {
                if let NodeOp::Alloc { memory, bytes } = **node {
                    let made =
                        self.find(*graph).map_or(0, |graph| graph.nodes.iter().filter(|it| it.kind == "alloc").count());
                    self.nodes.insert(memory, (bytes, format!("m{made}")));
                }
                let (kind, mut label, note) = describe(node, &|memory| self.called(memory));
                if let Some(text) = name.and_then(|name| names.text(name)) {
                    label = format!("{label} {text}");
                }
                let site = op.place.describe(names);
                let Some(graph) = self.find(*graph) else { return };
                let number = graph.nodes.len() as u32;
                graph.nodes.push(Node { kind, label, note, site, ..Node::default() });
                graph.edges.extend(after.iter().map(|before| (before.0, number)));
            }
            What::GraphEdge { graph, from, to } => {
                if let Some(graph) = self.find(*graph) {
                    graph.edges.push((from.0, to.0));
                }
            }
            What::GraphEdgeRemove { graph, from, to } => {
                if let Some(graph) = self.find(*graph) {
                    graph.edges.retain(|edge| *edge != (from.0, to.0));
                }
            }
            What::GraphNodeRemove { graph, node } => {
                if let Some(graph) = self.find(*graph) {
                    graph.edges.retain(|(from, to)| *from != node.0 && *to != node.0);
                    if let Some(removed) = graph.nodes.get_mut(node.index()) {
                        removed.note = "removed".to_owned();
                    }
                }
            }
            What::Instantiate { exec, auto_free_on_launch, .. } => {
                self.execs.insert(*exec, Exec { auto_free: *auto_free_on_launch, stream: 0, left: Vec::new() });
            }
            What::GraphLaunch { exec, stream } => self.launch(op, names, *exec, *stream),
            What::Take { exec, node, memory } => self.take(op, names, *exec, *node, *memory),
            _ => {}
        }
    }

    /// What memory is called in a graph: its own by its place there, other memory by its name or number.
    fn called(&self, memory: Memory) -> String {
        if let Some((_, name)) = self.nodes.get(&memory) {
            return name.clone();
        }
        let life = self.lives.get(&memory).map(|&life| self.scene.lives[life as usize].name);
        match life.map(|name| &self.scene.strings[name as usize]) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => memory.id.to_string(),
        }
    }

    fn find(&mut self, graph: GraphId) -> Option<&mut Graph> {
        // Mostly the one that was made last.
        self.graphs.iter_mut().rev().find(|(id, _)| *id == graph).map(|(_, graph)| graph)
    }

    fn launch(&mut self, op: &Op, names: &Names, exec: ExecId, stream: StreamId) {
        let (stream, site) = (self.stream(stream), self.place(op.place, names));
        let Some(exec) = self.execs.get_mut(&exec) else { return };
        exec.stream = stream;
        let left = std::mem::take(&mut exec.left);
        if exec.auto_free {
            left.into_iter().for_each(|life| self.end_life(life, site, Some(stream)));
        }
    }

    fn take(&mut self, op: &Op, names: &Names, exec: ExecId, node: Memory, memory: Memory) {
        let Some(&(bytes, _)) = self.nodes.get(&node) else { return };
        let stream = self.execs.get(&exec).map_or(0, |exec| exec.stream);
        self.begin(op, names, memory, stream, bytes, None);
        if let Some(exec) = self.execs.get_mut(&exec) {
            exec.left.push(self.scene.lives.len() as u32 - 1);
        }
    }

    // Findings.

    /// Marks what was found at this step.
    fn mark(&mut self) {
        for finding in std::mem::take(&mut self.found) {
            if finding.kind.is_advice() {
                continue;
            }
            if self.scene.marks.len() == MARKS_MAX {
                self.hidden_marks += 1;
                continue;
            }
            let life = finding.subject.as_ref().and_then(|subject| self.latest.get(&subject.id).copied());
            let sides = [&finding.earlier, &finding.later].into_iter().flatten().map(ToString::to_string);
            let mut lines: Vec<String> = sides.chain(finding.known_lines()).chain(finding.notes.clone()).collect();
            lines.push(format!("help: {}", finding.help));
            self.scene.marks.push(Mark {
                step: self.scene.steps,
                since: life.map(|life| self.scene.lives[life as usize].born),
                title: finding.sentence.clone(),
                text: lines.join("\n"),
                allocations: life.into_iter().collect(),
            });
        }
    }
}

/// What a node is, in words.
fn describe(node: &NodeOp, called: &dyn Fn(Memory) -> String) -> (&'static str, String, String) {
    let uses = |accesses: &[Access]| {
        let list = |writes: bool| {
            let those = accesses.iter().filter(|access| (access.act != Act::Read) == writes);
            those.map(|access| called(access.memory)).collect::<Vec<_>>().join(", ")
        };
        let parts = [("reads", list(false)), ("writes", list(true))];
        let shown = parts.iter().filter(|(_, list)| !list.is_empty()).map(|(verb, list)| format!("{verb} {list}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    match node {
        NodeOp::Kernel(accesses) => ("kernel", "kernel".to_owned(), uses(accesses)),
        NodeOp::Copy(accesses) => ("kernel", "copy".to_owned(), uses(accesses)),
        NodeOp::Fill(accesses) => ("kernel", "fill".to_owned(), uses(accesses)),
        NodeOp::HostFunction(accesses) => ("kernel", "host function".to_owned(), uses(accesses)),
        NodeOp::Empty => ("other", "empty".to_owned(), String::new()),
        NodeOp::EventRecord(event) => ("record", "record".to_owned(), event.to_string()),
        NodeOp::EventWait(event) => ("wait", "wait".to_owned(), event.to_string()),
        NodeOp::Alloc { memory, bytes } => ("alloc", format!("alloc {}", called(*memory)), Bytes(*bytes).to_string()),
        NodeOp::Free(memory) => ("free", format!("free {}", called(*memory)), String::new()),
        NodeOp::Child(graph) => ("other", graph.to_string(), String::new()),
    }
}

fn drawing(id: GraphId, graph: Graph) -> Drawing {
    let Graph { mut nodes, mut edges } = graph;
    edges.retain(|(from, to)| (*from.max(to) as usize) < nodes.len());
    let places = layered(nodes.len(), &edges);
    for (node, (x, y)) in nodes.iter_mut().zip(places) {
        (node.x, node.y) = (x, y);
    }
    Drawing { name: id.to_string(), nodes, edges }
}
