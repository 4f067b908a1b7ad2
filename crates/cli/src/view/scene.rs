//! What a page shows, as data: lives of allocations, what was reserved, violations, graphs.
//!
//! Knows neither where it came from nor how it is drawn. Steps are what the program did, counted from 0: of a recording
//! its events, of an operation trace its operations. Texts are named by their place in [`Scene::strings`], of which
//! the first is empty.

/// One life of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// The step that allocated it; lives are in this order.
    pub born: u64,
    /// The step that freed it, behind `born`; none where nothing did.
    pub freed: Option<u64>,
    /// Its size; at least 1.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: u32,
    /// The stream it was freed on; its own where it was not freed.
    pub free_stream: u32,
    /// Where it starts.
    pub address: u64,
    /// What it is called.
    pub name: u32,
    /// Where it was allocated.
    pub site: u32,
    /// Where it was freed.
    pub free_site: u32,
}

/// One use of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    /// Which life; uses are in the order of lives and, within one, of steps.
    pub life: u32,
    /// The step, not before the life's birth.
    pub step: u64,
    /// The stream.
    pub stream: u32,
    /// Whether it is written.
    pub writes: bool,
}

/// Who does operations: a stream, or a host thread.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Lane {
    /// What it is called.
    pub name: String,
    /// The stream, by its place in [`Scene::streams`]; none for a host thread.
    pub stream: Option<u32>,
    /// The device of a stream.
    pub device: u32,
    /// The process.
    pub process: u32,
}

/// What an operation is, for a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OperationKind {
    /// Memory begins.
    Alloc,
    /// Memory ends.
    Free,
    /// Work that uses memory.
    Kernel,
    /// An event is recorded.
    Record,
    /// A stream waits for an event.
    Wait,
    /// A host waits, or learns that something has completed.
    Sync,
    /// A graph is launched.
    Launch,
    /// A capture begins.
    Capture,
    /// A capture ends.
    CaptureEnd,
    /// A node or an edge is put into a graph, or taken from it.
    Build,
    /// A graph is made ready for launches.
    Instantiate,
    /// Processes tell each other something.
    Tell,
    /// A stream, a pool or a process ends.
    End,
    /// Anything else.
    Other,
}

impl OperationKind {
    /// All of them, in the order of their numbers.
    pub const NAMES: [&str; 14] = [
        "alloc",
        "free",
        "kernel",
        "record",
        "wait",
        "synchronize",
        "launch",
        "capture",
        "end capture",
        "build",
        "instantiate",
        "tell",
        "end",
        "other",
    ];
}

/// One operation: the one of its step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Whose it is, by its place in [`Scene::lanes`].
    pub lane: u32,
    /// What it is.
    pub kind: OperationKind,
    /// What it is called.
    pub label: u32,
    /// Where it stands in the source.
    pub site: u32,
    /// The how many-th operation of its stream it is, counted from 1; 0 where it is none or was not done.
    pub number: u64,
    /// The drawing of the graph that it makes or launches, by its place, and 1; 0 for none.
    pub graph: u32,
    /// Whether it was refused, and so not done.
    pub is_refused: bool,
}

/// What puts two operations in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum EdgeKind {
    /// An event, from its record to a wait for it.
    Event,
    /// A host waits for a stream or an event.
    Sync,
    /// A stream's work comes after what its host thread knew when it was submitted.
    Submit,
    /// The rules of default streams.
    Default,
    /// Processes tell each other something.
    Tell,
    /// Launches of one instance come one after the other.
    Launch,
}

impl EdgeKind {
    /// All of them, in the order of their numbers.
    pub const NAMES: [&str; 6] =
        ["event", "synchronisation", "submission", "default stream", "message", "launches of one graph"];
}

/// An order between two operations of different lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// The step that comes first.
    pub from: u64,
    /// The step that comes after it; arrows are in the order of these.
    pub to: u64,
    /// What it is.
    pub kind: EdgeKind,
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Violation {
    /// The rule's stable name.
    pub kind: &'static str,
    /// The step that is refused.
    pub step: u64,
    /// The earlier step it goes against.
    pub since: Option<u64>,
    /// The steps of both sides and of whatever else has to come first.
    pub sides: Vec<u64>,
    /// The orders that are missing, from step to step, as the finding says.
    pub missing: Vec<(u64, u64)>,
    /// In one line.
    pub title: String,
    /// The whole explanation but the help.
    pub text: String,
    /// What to add or change.
    pub help: String,
    /// The help as data: the name of an edit.
    pub edit: Option<&'static str>,
    /// The lives it concerns.
    pub allocations: Vec<u32>,
    /// The drawing whose nodes it concerns, by its place.
    pub graph: Option<usize>,
}

/// What corrects a program, line by line.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Fix {
    /// The lines that change, with some around them: `+`, `-` or ` `, the line's number before, and the line. A line
    /// `...` stands for lines left out.
    pub lines: Vec<(char, u32, String)>,
    /// How many violations are corrected by it.
    pub corrected: usize,
    /// What is left, and why.
    pub left: Vec<String>,
}

/// A graph of work with a place for each node.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Drawing {
    /// What it is called.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// From node to node, by their places in `nodes`.
    pub edges: Vec<(u32, u32)>,
    /// Paths that a violation misses, likewise.
    pub missing: Vec<(u32, u32)>,
}

/// A node of a graph.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Node {
    /// `alloc`, `free`, `kernel`, `record`, `wait` or `other`.
    pub kind: &'static str,
    /// In a few words.
    pub label: String,
    /// More about it; may be empty.
    pub note: String,
    /// Where in the source; may be empty.
    pub site: String,
    /// Whether a violation is about it.
    pub bad: bool,
    /// Its place in its layer, in columns.
    pub x: f64,
    /// Its layer, from the top.
    pub y: u32,
}

/// A named part of the program's time.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Span {
    /// What it is called.
    pub name: String,
    /// The first step in it.
    pub from: u64,
    /// The first step behind it.
    pub to: u64,
    /// How long it took, in microseconds, where that is known.
    pub micros: Option<u64>,
}

/// What a page shows.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Scene {
    /// What the program is called.
    pub name: String,
    /// What a step is called: `event` or `operation`.
    pub unit: &'static str,
    /// How many steps there are.
    pub steps: u64,
    /// The streams, by what they are called.
    pub streams: Vec<String>,
    /// All texts that lives name; the first is empty.
    pub strings: Vec<String>,
    /// Allocations, in the order of their births.
    #[serde(skip)]
    pub lives: Vec<Life>,
    /// Uses of them, where they are known.
    #[serde(skip)]
    pub uses: Vec<Use>,
    /// Whether addresses are those that a pool served.
    pub placed: bool,
    /// From which step on how many bytes are reserved; empty where that is not known.
    #[serde(skip)]
    pub reserved: Vec<(u64, u64)>,
    /// The same of the recorded run's own allocator.
    #[serde(skip)]
    pub recorded: Vec<(u64, u64)>,
    /// Frames of the program's source, and stacks of them, the innermost first.
    #[serde(skip)]
    pub frames: Vec<String>,
    /// Stacks by the places of their frames; the first is empty.
    pub stacks: Vec<Vec<u32>>,
    /// The stack of each life's allocation, by its place; empty where none is known.
    #[serde(skip)]
    pub life_stacks: Vec<u32>,
    /// The time of each step in microseconds since the first, ascending; empty where it is not known.
    #[serde(skip)]
    pub times: Vec<u64>,
    /// Named parts of the program's time.
    pub spans: Vec<Span>,
    /// What the pools of the recorded run's own allocator are called; empty where they are not known.
    pub pools: Vec<String>,
    /// The pool of each life, by its place and 1; 0 where it is not known; empty where there are no pools.
    #[serde(skip)]
    pub life_pools: Vec<u32>,
    /// Who does operations; empty where only memory is known.
    pub lanes: Vec<Lane>,
    /// The operation of each step, or none.
    #[serde(skip)]
    pub operations: Vec<Operation>,
    /// Whether operations are called as they are written.
    #[serde(rename = "written")]
    pub is_written: bool,
    /// What puts them in order, but for what follows from their lanes.
    #[serde(skip)]
    pub arrows: Vec<Arrow>,
    /// What is wrong.
    #[serde(rename = "marks")]
    pub violations: Vec<Violation>,
    /// What corrects it, where that can be said.
    pub fix: Option<Fix>,
    /// Whether it was checked, so that no violation means that nothing is wrong.
    pub checked: bool,
    /// Its graphs.
    pub graphs: Vec<Drawing>,
    /// What else the head of the page tells.
    pub facts: Vec<(String, String)>,
}

impl Scene {
    /// How many allocations and frees it has.
    pub fn events(&self) -> usize {
        self.lives.len() + self.lives.iter().filter(|life| life.freed.is_some()).count()
    }

    /// The most bytes that are live at once. What is freed at a step goes before what is allocated at it.
    pub fn peak_live(&self) -> u64 {
        let mut ends: Vec<(u64, u64)> =
            self.lives.iter().filter_map(|life| life.freed.map(|end| (end, life.bytes))).collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let (mut live, mut peak) = (0_u64, 0);
        for life in &self.lives {
            while let Some((_, bytes)) = ends.next_if(|&(end, _)| end <= life.born) {
                live -= bytes;
            }
            live += life.bytes;
            peak = peak.max(live);
        }
        peak
    }
}

/// A count with its thousands apart.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
