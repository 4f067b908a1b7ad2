//! A scene from an operation trace or a litmus program: lives, uses, graphs, and what the checker says of it all.
//!
//! A trace has no addresses, as order does not depend on them: lives get places of their own here, best fit, so that
//! the picture is about as high as the memory that was live. What a trace says of memory that it never saw made is
//! passed over; the checker tells.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::ids::{AllocId, ExecId, GraphId, StreamId};
use millpond_core::op::{Access, Act, Memory, Name, Names, Op, Place, What};
use millpond_core::trace::ops::{MAGIC, Reader, Reason};
use millpond_core::units::Bytes;
use millpond_litmus::Program;

use crate::recorded::{self, Place as At, Refusal};

use super::ALLOCATIONS_MAX;
use super::addresses::Places;
use super::captured::Captures;
use super::graphs::{Exec, Graph, Owned, drawing};
use super::scene::{Life, Mark, Scene, Touch, grouped};

/// How many bytes of a trace are read at a time.
const CHUNK: usize = 1 << 16;
/// More uses than these are not shown.
const TOUCHES_MAX: usize = 1 << 22;
/// More violations than these are not shown.
const MARKS_MAX: usize = 1000;
/// Larger graphs are not drawn, and no more of them.
const NODES_MAX: usize = 5000;
const GRAPHS_MAX: usize = 200;
/// The longest litmus program, in bytes.
const LITMUS_MAX: u64 = 1 << 20;

/// The scene of a litmus program.
fn litmus(path: &Path, program: &Program) -> Scene {
    let mut builder = Builder { is_small: true, ..Builder::new(program.settings()) };
    program.ops().iter().for_each(|op| builder.step(op, program.names()));
    builder.finish(recorded::file_stem(path), program.names(), true)
}

/// The litmus program in a file that is no trace, if it is one; a file that is called one is read as nothing else.
fn read_litmus(path: &Path, source: impl Read) -> Result<Option<Scene>, Refusal> {
    let mut bytes = Vec::new();
    let unreadable = |error: std::io::Error| Refusal::from_read(At::Whole, &error).in_file(path);
    source.take(LITMUS_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let is_called = path.extension().is_some_and(|it| it == "litmus");
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LITMUS_MAX);
    match text.map(|text| Program::parse(&text)) {
        Some(Ok(program)) if program.ops().is_empty() => Err(nothing().in_file(path)),
        Some(Ok(program)) => Ok(Some(litmus(path, &program))),
        Some(Err(refusal)) if is_called => {
            Err(Refusal::new(At::Line(refusal.line.into()), refusal.what).help(refusal.help).in_file(path))
        }
        _ => Ok(None),
    }
}

/// For a program without an operation.
fn nothing() -> Refusal {
    let help = "a program that opens no device, or was stopped before it had written anything, leaves such a trace";
    Refusal::new(At::Whole, "no operation is in it: there is nothing to show").help(help)
}

/// The scene of a file, with what there is to note; none where it is neither an operation trace nor a litmus program.
///
/// # Errors
/// Where the trace is damaged, or too long for a page.
pub(super) fn read(path: &Path) -> Result<Option<(Scene, Option<String>)>, Refusal> {
    let mut source = recorded::open_unzipped(path).map_err(|refusal| refusal.in_file(path))?;
    let unreadable = |error: std::io::Error| Refusal::from_read(At::Whole, &error).in_file(path);
    let head = source.fill_buf().map_err(unreadable)?;
    if head.is_empty() || !head.starts_with(&MAGIC[..MAGIC.len().min(head.len())]) {
        return Ok(read_litmus(path, source)?.map(|scene| (scene, None)));
    }
    let (mut reader, mut builder) = (Reader::new(), Builder::new(Settings::default()));
    let mut buffer = vec![0; CHUNK];
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
    if builder.scene.steps == 0 {
        return Err(nothing().in_file(path));
    }
    let note = (is_cut || !reader.is_finished())
        .then(|| "the program was stopped while it was traced: what it had flushed is drawn".to_owned());
    let name = recorded::file_stem(path);
    Ok(Some((builder.finish(name, reader.names(), reader.is_finished()), note)))
}

/// Goes through the operations.
pub(super) struct Builder {
    pub(super) scene: Scene,
    pub(super) checker: Checker,
    pub(super) found: Vec<Finding>,
    pub(super) numbers: HashMap<String, u32>,
    /// By file and line.
    pub(super) places: HashMap<(Option<Name>, u32), u32>,
    pub(super) streams: HashMap<StreamId, u32>,
    pub(super) lives: HashMap<Memory, u32>,
    pub(super) latest: HashMap<AllocId, u32>,
    pub(super) room: Places,
    pub(super) nodes: HashMap<Memory, Owned>,
    pub(super) captures: Captures,
    /// Whether what lives within a launch only is shown.
    pub(super) is_small: bool,
    pub(super) graphs: Vec<(GraphId, Graph)>,
    pub(super) execs: HashMap<ExecId, Exec>,
    pub(super) hidden_marks: u64,
}

impl Builder {
    fn new(settings: Settings) -> Self {
        Self {
            scene: Scene { unit: "operation", checked: true, strings: vec![String::new()], ..Scene::default() },
            checker: Checker::new(settings),
            found: Vec::new(),
            numbers: HashMap::from([(String::new(), 0)]),
            places: HashMap::new(),
            streams: HashMap::new(),
            lives: HashMap::new(),
            latest: HashMap::new(),
            room: Places::default(),
            nodes: HashMap::new(),
            captures: Captures::default(),
            is_small: false,
            graphs: Vec::new(),
            execs: HashMap::new(),
            hidden_marks: 0,
        }
    }

    fn step(&mut self, op: &Op, names: &Names) {
        match self.captures.turn(op) {
            None => self.draw(op, names),
            Some(None) => {}
            Some(Some(what)) => self.draw(&Op { what, ..*op }, names),
        }
        self.checker.check(op, names, &mut self.found);
        if !self.found.is_empty() {
            self.mark();
        }
        self.scene.steps += 1;
    }

    fn draw(&mut self, op: &Op, names: &Names) {
        self.memory(op, names);
        self.graph(op, names);
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
        let drawn: Vec<(GraphId, Graph)> = drawn.take(GRAPHS_MAX).collect();
        // So far a mark names the graph by its number.
        let place = |number: usize| drawn.iter().position(|(id, _)| id.index() == number);
        scene.marks.iter_mut().for_each(|mark| mark.graph = mark.graph.and_then(place));
        scene.graphs = drawn.into_iter().map(|(id, graph)| drawing(id, graph)).collect();
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
                if let Some(Owned { graph, node, .. }) = self.nodes.get(memory) {
                    let (graph, node, called) = (*graph, *node, self.scene.strings[text as usize].clone());
                    if let Some(node) = self.find(graph).and_then(|graph| graph.nodes.get_mut(node)) {
                        node.label = format!("alloc {called}");
                    }
                    self.nodes.entry(*memory).and_modify(|owned| owned.name = called);
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

    pub(super) fn begin(
        &mut self,
        op: &Op,
        names: &Names,
        memory: Memory,
        stream: u32,
        bytes: u64,
        name: Option<Name>,
    ) {
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

    pub(super) fn end_life(&mut self, number: u32, site: u32, stream: Option<u32>) {
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

    pub(super) fn stream(&mut self, stream: StreamId) -> u32 {
        let streams = &mut self.scene.streams;
        *self.streams.entry(stream).or_insert_with(|| {
            streams.push(stream.to_string());
            streams.len() as u32 - 1
        })
    }

    pub(super) fn name(&mut self, names: &Names, name: Option<Name>) -> u32 {
        name.and_then(|name| names.text(name)).map_or(0, |text| self.number(&text.clone()))
    }

    pub(super) fn place(&mut self, place: Place, names: &Names) -> u32 {
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

    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.scene.strings.len() as u32;
        self.scene.strings.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
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
            self.mark_nodes(&finding);
            let life = finding.subject.as_ref().and_then(|subject| self.latest.get(&subject.id).copied());
            let sides = finding.earlier.iter().chain(&finding.others).chain(&finding.later).map(ToString::to_string);
            let mut lines: Vec<String> = sides.chain(finding.known_lines()).chain(finding.notes.clone()).collect();
            lines.push(format!("help: {}", finding.help()));
            self.scene.marks.push(Mark {
                step: self.scene.steps,
                since: life.map(|life| self.scene.lives[life as usize].born),
                title: finding.sentence.clone(),
                text: lines.join("\n"),
                allocations: life.into_iter().collect(),
                graph: finding.graph.map(GraphId::index),
            });
        }
    }
}
