//! Findings: the broken rule, both sides, the order that exists between them, and what to add.
//!
//! Refusals of the library and verdicts of the checker are the same findings. Plain data with resolved names, ready to
//! be shown. [`Finding::facts`] is the same for programs, as one line with a stable format. Knows no order.

use std::fmt;

use crate::ids::{AllocId, GraphId, Point, StreamId};
use crate::life::{Fault, Kind, Site};
use crate::op::{Act, Names, Place, Quoted};
use crate::units::Bytes;

/// The number of notes at which other findings of the same operation add no more.
const NOTES_MAX: usize = 8;

/// The allocation that a finding is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// Its number on its device.
    pub id: AllocId,
    /// Its size in bytes, as requested.
    pub bytes: u64,
    /// The program's name for it, if it has one.
    pub name: Option<String>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} ({}, {})", Quoted(name), self.id, Bytes(self.bytes)),
            None => write!(f, "{} ({})", self.id, Bytes(self.bytes)),
        }
    }
}

/// Returns a file and a line as text. Empty if neither is known.
pub(super) fn file_and_line(file: Option<&str>, line: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.to_owned(),
        (None, Some(line)) => format!("line {line}"),
        (None, None) => String::new(),
    }
}

/// A place in the source, with the name of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spot {
    /// The source file, if it is known.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// The round of a loop, if the program has loops: `` round 2 of the `repeat` at line 7 ``.
    pub round: Option<String>,
}

impl Spot {
    /// Makes a spot from a place, with the name of its file.
    pub fn new(place: Place, names: &Names) -> Self {
        let (file, round) = (place.file(names), place.round(names));
        Spot { file: file.map(str::to_owned), line: place.line(), round: round.map(str::to_owned) }
    }

    /// Returns the file and the line, without the round of a loop. The result is the same if the same mistake is made
    /// again.
    pub fn in_any_round(&self) -> String {
        file_and_line(self.file.as_deref(), self.line)
    }

    /// Returns the spot in brackets, to append to a text. Empty if the spot is not known.
    pub(super) fn in_brackets(&self) -> String {
        match self.to_string() {
            spot if spot.is_empty() => spot,
            spot => format!(" ({spot})"),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_any_round())?;
        self.round.iter().try_for_each(|round| write!(f, " in {round}"))
    }
}

/// One operation, described so that a person can find it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// The verb, for a table: `read`, `freed`, `recorded`.
    pub verb: String,
    /// The act on memory, if there was one.
    pub act: Option<Act>,
    /// The party: `stream 1`, `` `left` ``, `the host`, `kernel node 3`.
    pub who: String,
    /// The stream, if the operation is on one.
    pub stream: Option<StreamId>,
    /// The number of the operation in that stream, counted from 1.
    pub op: Option<u64>,
    /// The number of the node in its graph, after those of the child nodes that contain it: `3`, `2.1`.
    pub node: Option<String>,
    /// The process that did it, if it is another one. Streams and numbers are then those of that process, and places
    /// are not known.
    pub process: Option<u32>,
    /// For the launch of a graph: the node that does it.
    pub within: Option<Box<Side>>,
    /// The place in the source.
    pub spot: Spot,
}

impl Side {
    /// Describes the act of an operation on memory. `who` is the name of its stream.
    pub fn new(site: Site, who: String, names: &Names) -> Self {
        let process = match site.place {
            Place::Process(process) => Some(process),
            _ => None,
        };
        Side {
            verb: site.act.past().to_owned(),
            act: Some(site.act),
            who: process.map_or_else(|| who.clone(), |process| format!("{who} of process {process}")),
            stream: Some(site.stream),
            op: Some(site.op).filter(|op| *op > 0 && site.stream != StreamId::HOST),
            node: None,
            process,
            within: None,
            spot: Spot::new(site.place, names),
        }
    }

    /// Returns the act on memory as a noun with its article: `a read`.
    pub fn noun(&self) -> &'static str {
        self.act.map_or("something", Act::noun)
    }

    /// As [`noun`](Self::noun), without the article.
    pub(super) fn name(&self) -> &'static str {
        let noun = self.noun();
        noun.split_once(' ').map_or(noun, |(_, name)| name)
    }

    /// Returns the party with its preposition: `on stream 1`, `by the host`.
    pub fn by(&self) -> String {
        let preposition = if self.is_host() { "by" } else { "on" };
        format!("{preposition} {}", self.who)
    }

    /// Returns `true` if the host itself did it.
    pub(super) fn is_host(&self) -> bool {
        self.stream == Some(StreamId::HOST)
    }

    /// Returns the operation in a few words: `` `left`, op 3 ``, followed by the node of a launch.
    pub fn title(&self) -> String {
        let op = self.op.map(|op| format!(", op {op}")).unwrap_or_default();
        let Some(node) = &self.within else { return format!("{}{op}", self.who) };
        format!("{}{op}: {}{}", self.who, node.who, node.spot.in_brackets())
    }

    fn facts(&self, prefix: &str, facts: &mut String) {
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                *facts += &format!(" {prefix}_{key}={value}");
            }
        };
        add("act", self.act.map(|act| format!("{act:?}")));
        add(
            "stream",
            self.stream.map(|stream| if stream == StreamId::HOST { "host".into() } else { stream.0.to_string() }),
        );
        add("op", self.op.map(|op| op.to_string()));
        add("node", self.node.clone());
        add("file", self.spot.file.as_ref().map(|file| file.replace(char::is_whitespace, "_")));
        add("line", self.spot.line.map(|line| line.to_string()));
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{:<10} {}", self.verb, self.title());
        match self.spot.to_string() {
            spot if spot.is_empty() => f.write_str(&line),
            spot => write!(f, "{line:<34} {spot}"),
        }
    }
}

/// For a program without a table of names: its streams are named by their numbers.
impl From<Site> for Side {
    fn from(site: Site) -> Self {
        Side::new(site, site.stream.to_string(), &Names::default())
    }
}

/// A missing edge: an operation that the later side has to come after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The operation to wait for: the newest of its stream that has to come first, or an operation that already comes
    /// after it.
    pub after: Side,
    /// The record of an event that comes after that operation, if there is one already.
    pub recorded: Option<Side>,
    /// The place where its stream was destroyed, if it was. The event has to be recorded before that.
    pub destroyed: Option<Spot>,
    /// The point of that operation, if an event can provide the edge.
    pub(super) point: Option<Point>,
}

impl Edge {
    /// Makes an edge from an operation whose stream is live, without its point.
    pub fn after(after: Side) -> Self {
        Edge { after, recorded: None, destroyed: None, point: None }
    }

    /// As [`after`](Self::after), with the point of the operation.
    pub fn of(after: Side, point: Point) -> Self {
        // An event of a stream does not provide the order after acts of the host or of other processes.
        let point = Some(point).filter(|_| !after.is_host() && after.process.is_none());
        Edge { point, ..Self::after(after) }
    }

    /// Returns the point that has to come first, if an event can provide the edge.
    pub fn point(&self) -> Option<Point> {
        self.point
    }

    /// Merges another edge of the same stream into this one: the newer edge stands for both. Returns `false` if the
    /// other edge is of another stream.
    fn absorb(&mut self, other: &Edge) -> bool {
        let of = |edge: &Edge| (edge.after.stream, edge.after.process, edge.point.map(|point| point.chain));
        let is_same = of(self) == of(other);
        if is_same && self.after.op < other.after.op {
            *self = other.clone();
        }
        is_same
    }

    /// Returns the advice that adds the edge. `later` is its other end.
    fn help(&self, later: &Side) -> String {
        let (before, after) = (&self.after, &later.who);
        let at = before.spot.in_brackets();
        let op = before.op.map(|op| format!(" at or after op {op}")).unwrap_or_default();
        let destroyed = |spot: &Spot| format!(", before that stream is destroyed{}", spot.in_brackets());
        let until = self.destroyed.as_ref().map(destroyed).unwrap_or_default();
        let event = match (before.process, before.stream) {
            (Some(process), Some(stream)) => {
                format!("an event that process {process} records on its {stream}{op} and exports")
            }
            _ => format!("an event recorded on {}{op}{at}{until}", before.who),
        };
        match &self.recorded {
            _ if before.is_host() => format!("let {after} learn of it first: pass a message"),
            _ if later.is_host() && before.process.is_some() => format!("synchronize {event} before"),
            _ if later.is_host() && self.destroyed.is_some() => "synchronize the device before".to_owned(),
            _ if later.is_host() => {
                format!("synchronize {}, or an event recorded on it{op}{at}, before", before.who)
            }
            Some(record) if !record.spot.to_string().is_empty() => {
                let (title, spot) = (record.title(), &record.spot);
                format!("make {after} wait for the event that is recorded already by {title} ({spot})")
            }
            _ => format!("make {after} wait for {event}"),
        }
    }
}

/// The order that exists between the two sides: how far the later one comes after the earlier one's stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The newest operation of the earlier side's stream that the later side comes after, counted from 1, or 0 if there
    /// is none. `None` if it is too long ago to tell.
    pub op: Option<u64>,
    /// That operation.
    pub newest: Option<Side>,
    /// The record that gave this order.
    pub recorded: Option<Side>,
    /// The wait or synchronisation that gave this order.
    pub through: Option<Side>,
}

/// One finding: see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The broken rule.
    pub kind: Kind,
    /// The allocation concerned, if there is one.
    pub subject: Option<Subject>,
    /// The mistake, in one sentence.
    pub sentence: String,
    /// The earlier side.
    pub earlier: Option<Side>,
    /// The other operations that have to come first and do not: the newest of each further stream.
    pub others: Vec<Side>,
    /// The missing edges, as few as settle the finding: a party that comes after all of them comes after everything
    /// that it must come after. Empty if no edge would make the program right.
    pub missing: Vec<Edge>,
    /// The later side, which is refused: the finding is *at* its place.
    pub later: Option<Side>,
    /// The graph, if the sides are its nodes.
    pub graph: Option<GraphId>,
    /// CUDA's error code, if CUDA refuses the call, too.
    pub code: Option<u32>,
    /// The other findings about the same graph.
    pub also: Vec<Finding>,
    /// The order that exists between the two sides, if there is any.
    pub known: Option<Known>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The change to make, if no edge is missing: see [`help`](Self::help).
    pub(super) advice: String,
    /// The points of the earlier side and of the others, if they are known, and the bytes.
    pub(super) met: Option<Box<Fault>>,
}

impl Finding {
    /// Makes a finding that has only its sentence and its advice.
    pub fn new(kind: Kind, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding {
            kind,
            subject: None,
            sentence: sentence.into(),
            earlier: None,
            others: Vec::new(),
            missing: Vec::new(),
            later: None,
            graph: None,
            code: None,
            also: Vec::new(),
            known: None,
            notes: Vec::new(),
            advice: advice.into(),
            met: None,
        }
    }

    /// Returns the finding with this later side.
    #[must_use]
    pub fn at(mut self, later: Side) -> Self {
        self.later = Some(later);
        self
    }

    /// Returns the finding with this advice in place of its own: the call of the program's own interface.
    #[must_use]
    pub fn advised(mut self, advice: String) -> Self {
        self.advice = advice;
        self
    }

    /// Returns the finding about this memory.
    #[must_use]
    pub fn of(mut self, subject: Subject) -> Self {
        self.subject = Some(subject);
        self
    }

    /// Adds the missing edges of another finding of the same operation, so that the help settles both.
    pub fn join(&mut self, other: &Finding) {
        if self.missing.is_empty() || other.missing.is_empty() {
            return;
        }
        for edge in &other.missing {
            if !self.missing.iter_mut().any(|known| known.absorb(edge)) {
                self.missing.push(edge.clone());
            }
        }
        let note = format!("also, {}", other.sentence);
        if other.sentence != self.sentence && self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns `true` if the finding follows from an earlier one and is not reported.
    pub(super) fn is_quiet(&self) -> bool {
        self.sentence.is_empty()
    }

    /// Returns what to add or change to make the program right.
    pub fn help(&self) -> String {
        match &self.later {
            // If the sides are nodes, the advice has the edges.
            Some(later) if !self.missing.is_empty() && self.graph.is_none() => {
                let edges: Vec<String> = self.missing.iter().map(|edge| edge.help(later)).collect();
                edges.join("; ")
            }
            _ => self.advice.clone(),
        }
    }

    /// Returns all places that the finding names.
    pub fn spots_mut(&mut self) -> impl Iterator<Item = &mut Spot> {
        let (mut sides, mut spots): (Vec<&mut Side>, Vec<&mut Spot>) = Default::default();
        for edge in &mut self.missing {
            sides.push(&mut edge.after);
            sides.extend(&mut edge.recorded);
            spots.extend(&mut edge.destroyed);
        }
        let known = self.known.iter_mut().flat_map(|it| [&mut it.newest, &mut it.recorded, &mut it.through]).flatten();
        sides.extend(self.earlier.iter_mut().chain(&mut self.others).chain(&mut self.later).chain(known));
        let places = sides.into_iter().flat_map(|Side { spot, within, .. }| {
            let inside = within.iter_mut().map(|node| &mut node.spot);
            std::iter::once(spot).chain(inside)
        });
        places.chain(spots)
    }

    /// Returns the rule and both places, which are the same if the same mistake is made again.
    pub fn key(&self) -> String {
        let at = |side: &Option<Side>| side.as_ref().map(|side| side.spot.in_any_round()).unwrap_or_default();
        format!("{}\t{}\t{}", self.kind.name(), at(&self.earlier), at(&self.later))
    }

    /// Returns the place of the finding: the later side's, or that of the only side.
    pub fn spot(&self) -> Option<&Spot> {
        self.later.as_ref().or(self.earlier.as_ref()).map(|side| &side.spot)
    }

    /// Returns the line of the finding.
    pub fn line(&self) -> Option<u32> {
        self.spot()?.line
    }

    /// Returns the facts as one stable line of `key=value` pairs, for programs.
    pub fn facts(&self) -> String {
        let mut facts = format!("kind={}", self.kind.name());
        if let Some(subject) = &self.subject {
            facts += &format!(" allocation={} bytes={}", subject.id.0, subject.bytes);
        }
        if let Some(graph) = &self.graph {
            facts += &format!(" graph={}", graph.0);
        }
        if let Some(earlier) = &self.earlier {
            earlier.facts("earlier", &mut facts);
        }
        for other in &self.others {
            other.facts("other", &mut facts);
        }
        if let Some(later) = &self.later {
            later.facts("later", &mut facts);
        }
        if let Some(known) = &self.known {
            if let Some(op) = known.op {
                facts += &format!(" known_op={op}");
            }
            if let Some(through) = &known.through {
                through.facts("through", &mut facts);
            }
        }
        facts
    }

    /// Returns the order that exists between the two sides, in sentences: how far it goes, and the synchronisation that
    /// gave it.
    pub fn known_lines(&self) -> Vec<String> {
        let (Some(known), Some(earlier), Some(later)) = (&self.known, &self.earlier, &self.later) else {
            return Vec::new();
        };
        let (before, after) = (&earlier.who, &later.who);
        let mut lines = vec![match (known.op, &known.newest) {
            (Some(0), _) => format!("{after} never waits for {before}"),
            (Some(op), Some(side)) if !side.spot.to_string().is_empty() => {
                format!("{after} comes after {before} up to op {op} only ({} at {})", side.verb, side.spot)
            }
            (Some(op), _) => format!("{after} comes after {before} up to op {op} only"),
            (None, _) => format!("{after} comes after early operations of {before} only"),
        }];
        if let Some(through) = &known.through {
            let at = |side: &Side| match side.spot.to_string() {
                spot if spot.is_empty() => side.title(),
                spot => format!("{}, {spot}", side.title()),
            };
            let record = known.recorded.as_ref().map(|side| format!(" for the record of {}", at(side)));
            lines.push(format!("it knows that by: {} by {}{}", through.verb, at(through), record.unwrap_or_default()));
        }
        lines
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence)?;
        for side in self.earlier.iter().chain(&self.others).chain(&self.later) {
            writeln!(f, "  {side}")?;
        }
        for line in self.known_lines().iter().chain(&self.notes) {
            writeln!(f, "  {line}")?;
        }
        write!(f, "  help: {}", self.help())
    }
}

impl std::error::Error for Finding {}
