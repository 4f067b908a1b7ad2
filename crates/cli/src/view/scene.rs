//! The content of a page, as data: lives of allocations, reserved bytes, violations and graphs.
//!
//! Independent of the source of the data and of the drawing. Steps are the program's actions, counted from 0: the
//! events of a recording, or the operations of an operation trace. Texts are referred to by their index in
//! [`Scene::strings`], of which the first is empty.

/// One life of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// The step that allocated it; lives are in this order.
    pub born: u64,
    /// The step that freed it, after `born`; `None` if nothing did.
    pub freed: Option<u64>,
    /// Its size; at least 1.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: u32,
    /// The stream it was freed on, or the one it was allocated on if it was not freed.
    pub free_stream: u32,
    /// Its address.
    pub address: u64,
    /// Its name.
    pub name: u32,
    /// The source place of its allocation.
    pub site: u32,
    /// The source place of its free.
    pub free_site: u32,
}

/// One use of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Use {
    /// The life. Uses are sorted by life and, within one, by step.
    pub life: u32,
    /// The step, not before the life's birth.
    pub step: u64,
    /// The stream.
    pub stream: u32,
    /// `true` if the memory is written.
    pub writes: bool,
}

/// The stream or host thread that does operations.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// The stream, as an index in [`Scene::streams`]; `None` for a host thread.
    pub stream: Option<u32>,
    /// The device of a stream.
    pub device: u32,
    /// The process.
    pub process: u32,
}

/// The kind of an operation, for a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OperationKind {
    /// Memory is allocated.
    Alloc,
    /// Memory is freed.
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
    /// A stream or a pool is destroyed.
    End,
    /// Anything else.
    Other,
}

impl OperationKind {
    /// The names of all kinds, in the order of their numbers.
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

/// The operation of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its lane, as an index in [`Scene::lanes`].
    pub lane: u32,
    /// Its kind.
    pub kind: OperationKind,
    /// Its label.
    pub label: u32,
    /// Its place in the source.
    pub site: u32,
    /// Its number in its stream, counted from 1; 0 if it is not an operation of a stream or was not done.
    pub number: u64,
    /// The drawing of the graph that it makes or launches: its index plus 1, or 0 for none.
    pub graph: u32,
    /// `true` if it was refused, and so not done.
    pub is_refused: bool,
}

/// The kind of an order between two operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum EdgeKind {
    /// An event, from its record to a wait for it.
    Event,
    /// A host waits for a stream or an event.
    Sync,
    /// Work on a stream comes after what its host thread knew when it submitted the work.
    Submit,
    /// The rules of default streams.
    Default,
    /// Processes tell each other something.
    Tell,
    /// Launches of an instance come one after the other.
    Launch,
}

impl EdgeKind {
    /// The names of all kinds, in the order of their numbers.
    pub const NAMES: [&str; 6] =
        ["event", "synchronisation", "submission", "default stream", "message", "launches of one graph"];
}

/// An order between two operations of different lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// The step that comes first.
    pub from: u64,
    /// The step that comes after it. Arrows are sorted by this step.
    pub to: u64,
    /// Its kind.
    pub kind: EdgeKind,
}

/// A violation.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Violation {
    /// The rule's stable name.
    pub kind: &'static str,
    /// The refused step.
    pub step: u64,
    /// The earlier step that it conflicts with.
    pub since: Option<u64>,
    /// The steps of both sides and of all other operations that have to come first.
    pub sides: Vec<u64>,
    /// The missing edges of the finding, from step to step.
    pub missing: Vec<(u64, u64)>,
    /// The finding in one line.
    pub title: String,
    /// The whole explanation without the help.
    pub text: String,
    /// The help: what to add or change.
    pub help: String,
    /// The help as data: the name of an edit.
    pub edit: Option<&'static str>,
    /// The lives that it concerns.
    pub allocations: Vec<u32>,
    /// The drawing whose nodes it concerns, as an index.
    pub graph: Option<usize>,
}

/// The correction of a program, line by line.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Fix {
    /// The changed lines, with some unchanged lines around them: `+`, `-` or ` `, the line's number before the change,
    /// and the line. A line `...` stands for lines left out.
    pub lines: Vec<(char, u32, String)>,
    /// The number of violations that it corrects.
    pub corrected: usize,
    /// The findings that are left, with their help.
    pub left: Vec<String>,
}

/// A graph with a position for each node.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Drawing {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// The edges, from node to node, as indexes in `nodes`.
    pub edges: Vec<(u32, u32)>,
    /// Missing paths of a violation, as indexes in `nodes`.
    pub missing: Vec<(u32, u32)>,
}

/// A node of a graph.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Node {
    /// `alloc`, `free`, `kernel`, `record`, `wait` or `other`.
    pub kind: &'static str,
    /// A description in a few words.
    pub label: String,
    /// More details; may be empty.
    pub note: String,
    /// Its place in the source; may be empty.
    pub site: String,
    /// `true` if a violation is about it.
    pub bad: bool,
    /// Its position in its layer, in columns.
    pub x: f64,
    /// Its layer, counted from the top.
    pub y: u32,
}

/// A named part of the program's run.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// The first step in it.
    pub from: u64,
    /// The first step after it.
    pub to: u64,
    /// Its duration in microseconds, if it is known.
    pub micros: Option<u64>,
}

/// The content of a page.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Scene {
    /// The program's name.
    pub name: String,
    /// The word for a step: `event` or `operation`.
    pub unit: &'static str,
    /// The number of steps.
    pub steps: u64,
    /// The names of the streams.
    pub streams: Vec<String>,
    /// All texts that lives, operations and frames use; the first is empty.
    pub strings: Vec<String>,
    /// The lives of allocations, in the order of their births.
    #[serde(skip)]
    pub lives: Vec<Life>,
    /// The uses of the allocations, if they are known.
    #[serde(skip)]
    pub uses: Vec<Use>,
    /// `true` if the addresses come from a pool that served the program.
    pub placed: bool,
    /// The reserved bytes, each with the step from which on they apply; empty if they are unknown.
    #[serde(skip)]
    pub reserved: Vec<(u64, u64)>,
    /// The same for the recorded run's own allocator.
    #[serde(skip)]
    pub recorded: Vec<(u64, u64)>,
    /// The frames of the program's source.
    #[serde(skip)]
    pub frames: Vec<String>,
    /// The stacks, as lists of indexes of frames, the innermost first; the first stack is empty.
    pub stacks: Vec<Vec<u32>>,
    /// The stack of each life's allocation, as an index; empty if none is known.
    #[serde(skip)]
    pub life_stacks: Vec<u32>,
    /// The time of each step in microseconds since the first, ascending; empty if the times are unknown.
    #[serde(skip)]
    pub times: Vec<u64>,
    /// Named parts of the program's run.
    pub spans: Vec<Span>,
    /// The names of the pools of the recorded run's own allocator; empty if they are unknown.
    pub pools: Vec<String>,
    /// The pool of each life: its index plus 1, or 0 if it is unknown. Empty if there are no pools.
    #[serde(skip)]
    pub life_pools: Vec<u32>,
    /// The streams and host threads that do operations; empty if only memory is known.
    pub lanes: Vec<Lane>,
    /// The operation of each step; empty if there are none.
    #[serde(skip)]
    pub operations: Vec<Operation>,
    /// `true` if operations are labelled with their statements.
    #[serde(rename = "written")]
    pub is_written: bool,
    /// The edges between operations, without those that follow from their lanes.
    #[serde(skip)]
    pub arrows: Vec<Arrow>,
    /// The violations.
    #[serde(rename = "marks")]
    pub violations: Vec<Violation>,
    /// The correction, if there is one.
    pub fix: Option<Fix>,
    /// `true` if the program was checked, so that no violation means that nothing is wrong.
    pub checked: bool,
    /// The graphs.
    pub graphs: Vec<Drawing>,
    /// Other facts for the head of the page.
    pub facts: Vec<(String, String)>,
}

impl Scene {
    /// Returns the number of allocations and frees.
    pub fn events(&self) -> usize {
        self.lives.len() + self.lives.iter().filter(|life| life.freed.is_some()).count()
    }

    /// Returns the peak of the live bytes. Frees at a step count before allocations at it.
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

/// Formats a count with its thousands separated.
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
