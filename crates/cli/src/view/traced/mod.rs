//! A scene from an operation trace or a litmus program: lives, uses, graphs, and the checker's findings.
//!
//! A trace has no addresses, because order does not depend on them. Lives get addresses here, by best fit, so that the
//! picture is about as high as the live memory. Operations on memory whose allocation is not in the trace are ignored;
//! the checker reports them.

mod graphs;
#[cfg(feature = "command")]
mod read;

use std::collections::HashMap;

use millpond_core::check::{Checker, Effects, Finding, Settings};
use millpond_core::ids::{AllocId, ExecId, GraphId, StreamId};
use millpond_core::op::{Act, Memory, Name, Names, Op, Place, What};
use millpond_core::plan::Holes;
use millpond_core::units::Bytes;
use millpond_litmus::{Program, statement};

use crate::refusal::Refusal;

use super::fix;
use super::graphs::{Exec, Graph, Owned, drawing};
use super::order::{self, Order};
use super::scene::{Operation, OperationKind, Scene, grouped};

#[cfg(feature = "command")]
pub(super) use read::read;

/// The largest number of operations that are shown one by one.
const OPERATIONS_MAX: u64 = 1 << 22;
/// The largest number of nodes of a drawn graph, and the largest number of drawn graphs.
const NODES_MAX: usize = 5000;
const GRAPHS_MAX: usize = 200;

/// Makes the scene of a litmus program.
fn litmus(name: &str, text: &str, program: &Program) -> Scene {
    let mut builder = Builder { is_small: true, ..Builder::new(program.settings()) };
    builder.statements = text.lines().map(|line| builder.number(statement(line))).collect();
    program.ops().iter().for_each(|op| builder.step(op, program.names()));
    let mut scene = builder.finish(name.to_owned(), program.names(), true);
    scene.is_written = true;
    scene.fix = fix::fix(text, program, &scene.violations);
    scene
}

/// Makes the scene of a litmus program's text. `name` is the program's name.
pub(super) fn litmus_text(name: &str, text: &str) -> Result<Scene, Refusal> {
    match Program::parse(text)? {
        program if program.ops().is_empty() => Err(Refusal::no_statement("show")),
        program => Ok(litmus(name, text, &program)),
    }
}

/// Builds a scene from operations.
pub(super) struct Builder {
    pub(super) scene: Scene,
    pub(super) checker: Checker,
    pub(super) found: Vec<Finding>,
    pub(super) numbers: HashMap<String, u32>,
    /// The numbers of source places, by file and line.
    pub(super) places: HashMap<(Option<Name>, u32), u32>,
    pub(super) streams: HashMap<StreamId, u32>,
    pub(super) lives: HashMap<Memory, u32>,
    /// The newest life of each allocation, without those that the current operation begins. A finding is about earlier
    /// memory, if there is any.
    pub(super) latest: HashMap<AllocId, u32>,
    /// The lives that the current operation begins.
    pub(super) begun: Vec<(AllocId, u32)>,
    /// The addresses of lives: the program has none.
    pub(super) room: Holes,
    pub(super) nodes: HashMap<Memory, Owned>,
    /// `true` if memory that is live only during a launch is shown.
    pub(super) is_small: bool,
    pub(super) graphs: Vec<(GraphId, Graph)>,
    pub(super) execs: HashMap<ExecId, Exec>,
    pub(super) hidden_violations: u64,
    pub(super) order: Order,
    /// `true` if there are too many operations to show one by one.
    is_too_long: bool,
    /// The step of the last access or free of each life by a host, by kind of access.
    pub(super) host_acts: HashMap<(u32, Act), u64>,
    /// The statements of a litmus program, by line.
    statements: Vec<u32>,
    /// The number of operations, including those that the page does not show.
    operations: u64,
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
            begun: Vec::new(),
            room: Holes::default(),
            nodes: HashMap::new(),
            is_small: false,
            graphs: Vec::new(),
            execs: HashMap::new(),
            hidden_violations: 0,
            order: Order::default(),
            is_too_long: false,
            host_acts: HashMap::new(),
            statements: Vec::new(),
            operations: 0,
        }
    }

    fn step(&mut self, op: &Op, names: &Names) {
        let (effects, is_done) = self.checker.check_with_effects(op, names, &mut self.found);
        self.operations += 1;
        self.order.prepare(op, &effects);
        let node = effects.captured.as_ref().and_then(|captured| Some((captured, self.captured(&op.what)?)));
        match node {
            // Captured memory begins to live at the launches of its graph.
            Some((to, (node, name))) => self.node((op, names), (to.graph, &to.after), &node, name, is_done),
            None => {
                self.memory(op, names, is_done);
                self.graph(op, names, is_done);
            }
        }
        let kind = order::kind_of(&op.what).or_else(|| (!self.found.is_empty()).then_some(OperationKind::Other));
        if let Some(kind) = kind {
            self.place_operation((op, names), kind, &effects, is_done);
        }
        if !self.found.is_empty() {
            self.mark(true);
        }
        self.latest.extend(self.begun.drain(..));
        self.scene.steps += u64::from(kind.is_some());
    }

    /// Places an operation on its lane.
    fn place_operation(&mut self, (op, names): (&Op, &Names), kind: OperationKind, effects: &Effects, is_done: bool) {
        self.is_too_long |= self.scene.steps >= OPERATIONS_MAX;
        if self.is_too_long {
            return;
        }
        let stream = order::stream_of(&op.what);
        let captured = effects.captured.as_ref().filter(|_| stream.is_some()).map(|captured| captured.graph);
        let graph = self.graph_of(&op.what).or(captured);
        let operation = Operation {
            lane: self.order.lane(op),
            kind,
            label: self.label(op, names, graph),
            site: self.place(op.place, names),
            number: if is_done && stream.is_some() { effects.number } else { 0 },
            graph: graph.map_or(0, |graph| graph.0.saturating_add(1)),
            is_refused: !is_done,
        };
        self.order.push(op, operation, effects);
    }

    /// Returns the label of an operation: its statement, or else a word or two.
    fn label(&mut self, op: &Op, names: &Names, graph: Option<GraphId>) -> u32 {
        let line = op.place.line().map_or(0, |line| line as usize);
        if let Some(&statement) = line.checked_sub(1).and_then(|line| self.statements.get(line)) {
            return statement;
        }
        match &op.what {
            What::Launch { name, .. } | What::GraphNode { name, .. } => self.name(names, *name),
            What::EventRecord { event, .. }
            | What::EventWait { event, .. }
            | What::EventSynchronize { event }
            | What::EventQuery { event, .. } => self.number(&event.to_string()),
            What::StreamSynchronize { stream } | What::StreamQuery { stream, .. } => {
                let stream = self.stream(*stream) as usize;
                self.number(&self.scene.streams[stream].clone())
            }
            What::SynchronizeDevice { device } => self.number(&device.to_string()),
            What::DeviceSynchronize => self.number("all streams"),
            _ => graph.map_or(0, |graph| self.number(&graph.to_string())),
        }
    }

    /// Returns the graph that an operation makes or launches.
    fn graph_of(&self, what: &What) -> Option<GraphId> {
        match what {
            What::CaptureBegin { graph, .. }
            | What::CaptureToGraph { graph, .. }
            | What::GraphNode { graph, .. }
            | What::GraphEdge { graph, .. }
            | What::GraphEdgeRemove { graph, .. }
            | What::GraphNodeRemove { graph, .. }
            | What::Instantiate { graph, .. }
            | What::ExecUpdate { graph, .. } => Some(*graph),
            What::GraphLaunch { exec, .. } | What::GraphUpload { exec, .. } => Some(self.execs.get(exec)?.graph),
            _ => None,
        }
    }

    fn finish(mut self, name: String, names: &Names, is_whole: bool) -> Scene {
        if is_whole {
            self.checker.finish(names, &mut self.found);
            self.mark(false);
        }
        self.finish_order();
        let shown = self.shown_operations();
        let streams = self.streams.keys().filter(|stream| **stream != StreamId::HOST).count();
        let mut scene = self.scene;
        scene.name = name;
        scene.uses.sort_unstable();
        let drawn = self.graphs.into_iter().filter(|(_, graph)| (1..=NODES_MAX).contains(&graph.nodes.len()));
        let drawn: Vec<(GraphId, Graph)> = drawn.take(GRAPHS_MAX).collect();
        // Until here violations and operations refer to graphs by their numbers.
        let places: HashMap<u32, usize> = drawn.iter().enumerate().map(|(place, (id, _))| (id.0, place)).collect();
        let place = |number: usize| places.get(&(number as u32)).copied();
        scene.violations.iter_mut().for_each(|mark| mark.graph = mark.graph.and_then(place));
        for operation in scene.operations.iter_mut().filter(|operation| operation.graph > 0) {
            operation.graph = place(operation.graph as usize - 1).map_or(0, |place| place as u32 + 1);
        }
        scene.graphs = drawn.into_iter().map(|(id, graph)| drawing(id, graph)).collect();
        let fact = |key: &str, value: String| (key.to_owned(), value);
        scene.facts = vec![
            fact("operations", shown),
            fact("allocations", grouped(scene.lives.len() as u64)),
            fact("streams", streams.to_string()),
            fact("most live", Bytes(scene.peak_live()).to_string()),
            fact("violations", grouped(scene.violations.len() as u64 + self.hidden_violations)),
        ];
        scene
    }

    /// Returns the number of operations, and how many of them are drawn.
    fn shown_operations(&self) -> String {
        match self.scene.operations.len() as u64 {
            drawn if drawn > 0 && drawn < self.operations => {
                format!("{} drawn of {}", grouped(drawn), grouped(self.operations))
            }
            _ => grouped(self.operations),
        }
    }

    /// Adds the lanes to the scene, unless there are too many operations.
    fn finish_order(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        if self.is_too_long {
            let shown = format!("more than {}: no lanes", grouped(OPERATIONS_MAX));
            self.scene.facts.push(("order".to_owned(), shown));
            return;
        }
        for id in order.lanes.iter().filter_map(|lane| lane.stream).collect::<Vec<_>>() {
            self.stream(StreamId(id));
        }
        order.finish(&|id| {
            let place = self.streams[&id];
            (self.scene.streams[place as usize].clone(), place)
        });
        (self.scene.lanes, self.scene.operations, self.scene.arrows) = (order.lanes, order.operations, order.arrows);
    }

    // Names.

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
            Place::Line(line) | Place::Round { line, .. } => (None, line),
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
}
