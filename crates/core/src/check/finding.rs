//! What is wrong with a program: one rule broken, both sides, what is known, and what to add.
//!
//! Refused calls of the library and the checker's verdicts are the same. Plain data with names resolved, ready to be
//! shown; [`Finding::facts`] is the same for programs, in a line that stays stable. Knows no order.

use std::fmt;

use crate::ids::{AllocId, GraphId, Point, StreamId};
use crate::life::{Fault, Kind, Site};
use crate::op::{Act, Names, Place, Quoted};
use crate::units::Bytes;

/// No more notes are added to a finding by others of the same operation.
const NOTES_MAX: usize = 8;

/// The allocation that a finding is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// Its number on its device.
    pub id: AllocId,
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// What the program calls it, if it said so.
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

/// Where something stands, with the file by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spot {
    /// The source file, where one is named.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// Which round of which loop, of a program that has loops: `` round 2 of the `repeat` at line 7 ``.
    pub round: Option<String>,
}

impl Spot {
    /// A place, with the file by its name.
    pub fn new(place: Place, names: &Names) -> Self {
        let (file, round) = (place.file(names), place.round(names));
        Spot { file: file.map(str::to_owned), line: place.line(), round: round.map(str::to_owned) }
    }

    /// The file and the line, of whatever round of a loop: the same for the same mistake made again.
    pub fn in_any_round(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, Some(line)) => format!("line {line}"),
            (None, None) => String::new(),
        }
    }

    /// Behind what stands there; nothing where it is not known.
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

/// One operation as a person finds it again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// What it did, for a table: `read`, `freed`, `recorded`.
    pub verb: String,
    /// What it did to memory, if it did anything to it.
    pub act: Option<Act>,
    /// Who: `stream 1`, `` `left` ``, `the host`, `kernel node 3`.
    pub who: String,
    /// On which stream, if on one.
    pub stream: Option<StreamId>,
    /// The how many-th operation of that stream it is, counted from 1.
    pub op: Option<u64>,
    /// Which node of a graph, with the child nodes around it first: `3`, `2.1`.
    pub node: Option<String>,
    /// The process that did it, where that is another one: streams and numbers are its own, and places are not known.
    pub process: Option<u32>,
    /// Of a launch of a graph: the node that does it.
    pub within: Option<Box<Side>>,
    /// Where.
    pub spot: Spot,
}

impl Side {
    /// What an operation does to memory: `who` is what its stream is called.
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

    /// What it did to memory, as a thing: `a read`.
    pub fn noun(&self) -> &'static str {
        self.act.map_or("something", Act::noun)
    }

    /// As [`noun`](Self::noun), without its article.
    pub(super) fn name(&self) -> &'static str {
        let noun = self.noun();
        noun.split_once(' ').map_or(noun, |(_, name)| name)
    }

    /// Who, in a sentence: `on stream 1`, `by the host`.
    pub fn by(&self) -> String {
        let preposition = if self.is_host() { "by" } else { "on" };
        format!("{preposition} {}", self.who)
    }

    /// Whether the host itself did it.
    pub(super) fn is_host(&self) -> bool {
        self.stream == Some(StreamId::HOST)
    }

    /// The operation in a few words: `` `left`, op 3 ``, and the node of a launch behind it.
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

/// Of a program without a table of names: its streams are called by their numbers.
impl From<Site> for Side {
    fn from(site: Site) -> Self {
        Side::new(site, site.stream.to_string(), &Names::default())
    }
}

/// An order that is missing: what the later side has to come after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The operation that has to come first: the newest of its stream that does, or one that comes after all that does.
    pub after: Side,
    /// The record of an event that comes after that, where there is one already.
    pub recorded: Option<Side>,
    /// Where its stream was destroyed, if it was: the event has to be recorded before.
    pub destroyed: Option<Spot>,
    /// Where that stands in the order, if an event can bring it.
    pub(super) point: Option<Point>,
}

impl Edge {
    /// One that an event of the operation's stream brings, which lives.
    pub fn after(after: Side) -> Self {
        Edge { after, recorded: None, destroyed: None, point: None }
    }

    /// As [`after`](Self::after), where it is known which point that is.
    pub fn of(after: Side, point: Point) -> Self {
        // What the host does, and other processes, is settled by other means than an event of a stream.
        let point = Some(point).filter(|_| !after.is_host() && after.process.is_none());
        Edge { point, ..Self::after(after) }
    }

    /// The point that has to come first, if an event can bring it.
    pub fn point(&self) -> Option<Point> {
        self.point
    }

    /// Takes another one in, if it is of the same stream: the newer of both stands for the other.
    fn absorb(&mut self, other: &Edge) -> bool {
        let of = |edge: &Edge| (edge.after.stream, edge.after.process, edge.point.map(|point| point.chain));
        let is_same = of(self) == of(other);
        if is_same && self.after.op < other.after.op {
            *self = other.clone();
        }
        is_same
    }

    /// What brings it, where `later` is the other end.
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

/// How far the later side comes after the earlier one's stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The newest operation of the earlier side's stream that it comes after, counted from 1; 0 where there is none.
    /// None where that is too long ago to tell.
    pub op: Option<u64>,
    /// That operation.
    pub newest: Option<Side>,
    /// The record that made it known.
    pub recorded: Option<Side>,
    /// The wait or synchronisation that made it known.
    pub through: Option<Side>,
}

/// One finding: see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub kind: Kind,
    /// The allocation that it is about, if it is about one.
    pub subject: Option<Subject>,
    /// What is wrong, in one sentence.
    pub sentence: String,
    /// The side that was there first.
    pub earlier: Option<Side>,
    /// What else has to come first and does not: the newest of each further stream.
    pub others: Vec<Side>,
    /// The orders that are missing, as few as settle it: whoever comes after all of these comes after everything that
    /// it must. Empty where an order would not put it right.
    pub missing: Vec<Edge>,
    /// The side that is refused: the finding is *at* its place.
    pub later: Option<Side>,
    /// The graph that the sides are nodes of, if they are.
    pub graph: Option<GraphId>,
    /// The number of CUDA's error for it, where CUDA refuses the call, too.
    pub code: Option<u32>,
    /// What else is wrong with the same graph.
    pub also: Vec<Finding>,
    /// What orders the two, as far as anything does.
    pub known: Option<Known>,
    /// What else there is to say.
    pub notes: Vec<String>,
    /// What to change, where no order is missing: see [`help`](Self::help).
    pub(super) advice: String,
    /// Where the earlier side and the others stand in the order, as far as that is known, and the bytes.
    pub(super) met: Option<Box<Fault>>,
}

impl Finding {
    /// A finding with nothing but its sentence and what to do.
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

    /// The same, refused there.
    #[must_use]
    pub fn at(mut self, later: Side) -> Self {
        self.later = Some(later);
        self
    }

    /// The same, with this help in place of its own: the call of the program's own interface.
    #[must_use]
    pub fn advised(mut self, advice: String) -> Self {
        self.advice = advice.into();
        self
    }

    /// The same, about this memory.
    #[must_use]
    pub fn of(mut self, subject: Subject) -> Self {
        self.subject = Some(subject);
        self
    }

    /// The same operation is wrong for another reason as well: what else has to come first is added, so that the help
    /// settles both.
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

    /// Whether it says nothing: it follows from an earlier one.
    pub(super) fn is_quiet(&self) -> bool {
        self.sentence.is_empty()
    }

    /// What to add or change to make the program right.
    pub fn help(&self) -> String {
        match &self.later {
            // Of nodes the advice has the edges.
            Some(later) if !self.missing.is_empty() && self.graph.is_none() => {
                let edges: Vec<String> = self.missing.iter().map(|edge| edge.help(later)).collect();
                edges.join("; ")
            }
            _ => self.advice.clone(),
        }
    }

    /// All places that it names.
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

    /// What it has in common with the same mistake made again: the rule and both places.
    pub fn key(&self) -> String {
        let at = |side: &Option<Side>| side.as_ref().map(|side| side.spot.in_any_round()).unwrap_or_default();
        format!("{}\t{}\t{}", self.kind.name(), at(&self.earlier), at(&self.later))
    }

    /// The place that the finding is at: the later side's, or the only one's.
    pub fn spot(&self) -> Option<&Spot> {
        self.later.as_ref().or(self.earlier.as_ref()).map(|side| &side.spot)
    }

    /// The line that the finding is at.
    pub fn line(&self) -> Option<u32> {
        self.spot()?.line
    }

    /// The facts as one stable line of `key=value` pairs, for programs.
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

    /// What orders the two sides, in sentences: how far, and by which synchronisation.
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
