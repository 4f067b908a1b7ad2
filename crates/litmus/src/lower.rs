//! Lowers statements to operations: numbers names and threads, and unrolls loops.
//!
//! Checks only that names have the right kind. A program that uses memory before its allocation is still a program; the
//! checker judges it. Invariant **bounded**: no text becomes more than [`OPS_MAX`] operations, or larger graphs than
//! `bounds.rs` allows.

pub(crate) mod symbols;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use millpond_core::check::Settings;
use millpond_core::ids::{
    AllocId, DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, ProcessId, StreamId, TicketId,
};
use millpond_core::op::{Memory, Name, Names, Op, Place, What};

use crate::bounds::Sizes;
use crate::statements::Shape;
use crate::text::{Line, most_like};
use crate::{Expected, Program, Refusal};

/// The largest number of operations of a program.
pub(crate) const OPS_MAX: usize = 200_000;
/// The largest number of words of all lines. Lines of loops count in each round.
pub(crate) const WORDS_MAX: usize = 1 << 22;
/// The largest number of rounds of a loop, and of nested loops.
pub(crate) const ROUNDS_MAX: u64 = 10_000;
pub(crate) const DEPTH_MAX: usize = 8;

/// The thing that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Symbol {
    Stream(StreamId),
    Event(EventId),
    Memory(Memory),
    Pool(PoolId),
    Graph(GraphId),
    Exec(ExecId),
    Ticket(TicketId),
    Host(HostId),
}

impl Symbol {
    fn noun(self) -> &'static str {
        match self {
            Symbol::Stream(_) => "a stream",
            Symbol::Event(_) => "an event",
            Symbol::Memory(_) => "memory",
            Symbol::Pool(_) => "a pool",
            Symbol::Graph(_) => "a graph",
            Symbol::Exec(_) => "an instance",
            Symbol::Ticket(_) => "a ticket",
            Symbol::Host(_) => "a thread",
        }
    }
}

/// The kind of thing that a counter numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Count {
    Stream,
    Event,
    Memory,
    Pool,
    Graph,
    Exec,
    Ticket,
    Host,
}

/// A program that is being built.
#[derive(Default)]
pub(crate) struct Lower {
    pub(crate) names: Names,
    pub(crate) settings: Settings,
    /// The nodes of each graph that was built by hand, by name.
    pub(crate) nodes: HashMap<GraphId, HashMap<String, NodeId>>,
    /// The memory of each graph's alloc nodes: its name in the graph that was built by hand, and its number.
    pub(crate) allocs: HashMap<GraphId, Vec<(String, Memory)>>,
    /// The names of removed nodes, which may be used again.
    pub(crate) free_names: HashSet<(GraphId, String)>,
    /// The number of nodes of each graph.
    pub(crate) sizes: HashMap<GraphId, u32>,
    bounds: Sizes,
    ops: Vec<Op>,
    words: usize,
    symbols: HashMap<String, Symbol>,
    /// The process that made the thing of this name, if only that process may use it.
    owners: HashMap<String, ProcessId>,
    /// The process of each thread. Threads that are not here are of the first process.
    pub(crate) processes: HashMap<HostId, ProcessId>,
    /// `true` once a stream was captured.
    pub(crate) has_captured: bool,
    /// The default streams that have names: the legacy stream of each process and device, and those of threads.
    pub(crate) defaults: HashMap<(ProcessId, DeviceId, Option<HostId>), StreamId>,
    counts: HashMap<Count, u32>,
    /// The names that some line gives to memory. They may be used before that line.
    promised: HashSet<String>,
    freed: HashSet<Memory>,
    /// The name of memory, by its number.
    called: HashMap<AllocId, String>,
    /// The size of memory, if it is known here. `offers` has the sizes of exported memory.
    bytes: HashMap<Memory, u64>,
    pub(crate) offers: HashMap<TicketId, u64>,
    pub(crate) host: HostId,
    line: u32,
    /// The loops around the line, from the outermost: the round, and the first line of each.
    rounds: Vec<(u64, u32)>,
    /// `rounds` in words, once an operation has needed them.
    round: Option<Name>,
}

/// Lowers lines to a program.
pub(crate) fn lower(lines: &[Line]) -> Result<Program, Refusal> {
    let mut lower = Lower {
        // Number 0 is the legacy default stream, and for hosts the main thread.
        symbols: HashMap::from([("main".to_owned(), Symbol::Host(HostId(0)))]),
        counts: HashMap::from([(Count::Stream, 1), (Count::Host, 1)]),
        promised: promised(lines),
        ..Lower::default()
    };
    lower.block(lines, 0..lines.len())?;
    let expected: BTreeSet<Expected> =
        lines.iter().flat_map(|line| line.expected.iter().map(|&kind| Expected { line: line.number, kind })).collect();
    let Lower { ops, names, settings, called, .. } = lower;
    Ok(Program { ops, names, settings, expected, called })
}

/// Returns the names that any line gives to memory.
fn promised(lines: &[Line]) -> HashSet<String> {
    let mut promised = HashSet::new();
    for line in lines {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words[..] {
            [name, "=", "alloc" | "import" | "take", ..] => promised.insert(name.to_owned()),
            ["node", .., "alloc", name, _] => promised.insert(name.to_owned()),
            _ => false,
        };
    }
    promised
}

impl Lower {
    fn block(&mut self, lines: &[Line], range: Range<usize>) -> Result<(), Refusal> {
        let mut at = range.start;
        while at < range.end {
            let line = &lines[at];
            self.line = line.number;
            self.take_words(line)?;
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            match words[..] {
                ["repeat", times] => {
                    let end = closing(lines, at, range.end)?;
                    for round in 1..=self.count(times, 1..=ROUNDS_MAX)? {
                        self.take_words(line)?;
                        self.rounds.push((round, line.number));
                        self.round = None;
                        self.block(lines, at + 1..end)?;
                        self.rounds.pop();
                    }
                    (self.round, at) = (None, end);
                }
                ["end", "repeat"] => return self.refuse("`end repeat` without a `repeat`", "begin with `repeat 3`"),
                _ => {
                    self.host = match &line.by {
                        Some(name) => self.host(name)?,
                        None => HostId(0),
                    };
                    self.statement(&line.text, &words)?;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Counts the words of a line. Lines of loops count in each round.
    fn take_words(&mut self, line: &Line) -> Result<(), Refusal> {
        self.words += line.words.len();
        match self.words > WORDS_MAX {
            true => self.refuse("the program has too many words", format!("at most {WORDS_MAX} are read")),
            false => Ok(()),
        }
    }

    fn place(&mut self) -> Place {
        let line = self.line;
        if self.rounds.is_empty() {
            return Place::Line(line);
        }
        let (names, rounds) = (&mut self.names, &self.rounds);
        let round = *self.round.get_or_insert_with(|| {
            let inwards = rounds.iter().rev();
            let rounds: Vec<String> =
                inwards.map(|(round, line)| format!("round {round} of the `repeat` at line {line}")).collect();
            names.intern(&rounds.join(", in "))
        });
        Place::Round { line, round }
    }

    fn statement(&mut self, text: &str, words: &[&str]) -> Result<(), Refusal> {
        // Lines with `=` come first: `event = alloc s 4` gives memory the name `event`.
        for family in [Self::memory_statement, Self::graph_statement, Self::stream_statement] {
            if family(self, words)?.is_some() {
                return Ok(());
            }
        }
        self.misunderstood(text, words)
    }

    fn misunderstood(&self, text: &str, words: &[&str]) -> Result<(), Refusal> {
        let gone = match words {
            ["set", "threads", _] => "what one thread has synchronised with counts for all threads of its process",
            ["thread", _, "in", _] => "a process has one thread, which has its name",
            ["set", "early", _] => "a launch with programmatic stream serialization is judged as an ordinary one",
            _ => "",
        };
        if !gone.is_empty() {
            return self.refuse(format!("`{text}` is not a statement any more"), format!("leave it out: {gone}"));
        }
        // The verb follows the name that the statement defines.
        let verb = match words {
            [_, "=", verb, ..] | [verb, ..] => *verb,
            [] => "",
        };
        let help = match (reads(verb), nearest(verb)) {
            (Some(reads), _) => format!("such a line reads {reads}"),
            (None, Some(meant)) => match reads(meant) {
                Some(reads) => format!("did you mean `{meant}`? Such a line reads {reads}"),
                None => format!("did you mean `{meant}`?"),
            },
            (None, None) => "docs/litmus.md has all statements".to_owned(),
        };
        self.refuse(format!("`{text}` is not a statement"), help)
    }

    /// Appends an operation of the line's thread.
    pub(crate) fn push(&mut self, what: What) -> Result<(), Refusal> {
        self.push_by(self.host, what)
    }

    /// Appends an operation of any thread.
    pub(crate) fn push_by(&mut self, host: HostId, what: What) -> Result<(), Refusal> {
        if self.ops.len() >= OPS_MAX {
            return self.refuse("the program has too many operations", format!("at most {OPS_MAX} are read"));
        }
        if let Some(what) = self.bounds.take(&what) {
            return self.refuse(what, "a litmus program is small: take fewer nodes, or launch them less often");
        }
        let place = self.place();
        self.ops.push(Op { host, place, what });
        Ok(())
    }

    pub(crate) fn refuse<T>(&self, what: impl Into<String>, help: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::new(self.line, what, help))
    }

    /// Returns the next number of a kind.
    pub(crate) fn next(&mut self, count: Count) -> u32 {
        let next = self.counts.entry(count).or_insert(0);
        *next += 1;
        *next - 1
    }

    /// Parses a number within bounds.
    pub(crate) fn count(&self, word: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, Refusal> {
        match word.parse::<u64>() {
            Ok(count) if bounds.contains(&count) => Ok(count),
            _ => {
                let help = format!("give a number from {} to {}", bounds.start(), bounds.end());
                self.refuse(format!("`{word}` is no such number"), help)
            }
        }
    }
}

/// Returns the line that ends a loop.
fn closing(lines: &[Line], open: usize, end: usize) -> Result<usize, Refusal> {
    let mut depth = 0;
    for (at, line) in lines.iter().enumerate().take(end).skip(open) {
        match line.words.first().map(String::as_str) {
            Some("repeat") => depth += 1,
            Some("end") if line.words.get(1).is_some_and(|word| word == "repeat") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at);
        }
        if depth > DEPTH_MAX {
            let help = format!("nest at most {DEPTH_MAX}");
            return Err(Refusal::new(line.number, "loops are nested too deeply", help));
        }
    }
    Err(Refusal::new(lines[open].number, "a `repeat` without its end", "end it with `end repeat`"))
}

/// Returns the shapes of all statements. Loops are expanded before statements are read.
pub(crate) fn shapes() -> impl Iterator<Item = &'static Shape> {
    const LOOPS: &[Shape] =
        &[Shape { words: &["\"repeat\"", "3"], rest: "" }, Shape { words: &["\"end\"", "\"repeat\""], rest: "" }];
    [Lower::STREAM_STATEMENTS, Lower::MEMORY_STATEMENTS, Lower::GRAPH_STATEMENTS, LOOPS].into_iter().flatten()
}

/// Returns the shapes of lines with this verb as text, if there are any.
fn reads(verb: &str) -> Option<String> {
    let texts: Vec<String> =
        shapes().filter(|shape| shape.is_of(verb)).map(|shape| format!("`{}`", shape.text())).collect();
    Some(texts.join(" or ")).filter(|texts| !texts.is_empty())
}

/// Returns the word of a statement that is most similar to this one, if any is similar enough.
fn nearest(word: &str) -> Option<&'static str> {
    let texts = shapes().flat_map(|shape| shape.words).flat_map(|word| word.split('"').skip(1).step_by(2));
    let rests = shapes().flat_map(|shape| shape.rest.split_whitespace());
    let is_word = |it: &&str| it.len() > 2 && it.bytes().all(|byte| byte.is_ascii_lowercase());
    most_like(word, texts.chain(rests).filter(is_word))
}
