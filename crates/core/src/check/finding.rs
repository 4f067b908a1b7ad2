//! What the checker says of a program: one rule broken, both sides, what is known, and what to add.
//!
//! Plain data with names resolved, ready to be shown; [`Finding::facts`] is the same for programs, in a line that stays
//! stable. Knows no order.

use std::fmt;

use super::kind::Kind;
use super::violation::Subject;
use crate::ids::{GraphId, StreamId};
use crate::op::Act;

/// Where something stands, with the file by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spot {
    /// The source file, where one is named.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}"),
            (None, Some(line)) => write!(f, "line {line}"),
            _ => Ok(()),
        }
    }
}

/// One operation as a person finds it again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// What it did, for a table: `read`, `freed`, `recorded`.
    pub verb: String,
    /// What it did to memory, if it did anything to it.
    pub act: Option<Act>,
    /// Who: `stream 1`, `` `left` ``, `the host`, `node 3, kernel`.
    pub who: String,
    /// On which stream, if on one.
    pub stream: Option<StreamId>,
    /// The how many-th operation of that stream it is, counted from 1.
    pub op: Option<u64>,
    /// Which node of a graph, with the child nodes around it first: `3`, `2.1`.
    pub node: Option<String>,
    /// Where.
    pub spot: Spot,
}

impl Side {
    /// The operation in a few words: `` `left`, op 3 ``.
    pub fn title(&self) -> String {
        match self.op {
            Some(op) => format!("{}, op {op}", self.who),
            None => self.who.clone(),
        }
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
    /// What else had to come first and does not: the newest of each further stream.
    pub others: Vec<Side>,
    /// The side that is refused: the finding is *at* its place.
    pub later: Option<Side>,
    /// The graph that the sides are nodes of, if they are.
    pub graph: Option<GraphId>,
    /// What orders the two, as far as anything does.
    pub known: Option<Known>,
    /// What else there is to say.
    pub notes: Vec<String>,
    /// What to add or change.
    pub help: String,
}

impl Finding {
    /// A finding with nothing but its sentence and what to do.
    pub fn new(kind: Kind, sentence: impl Into<String>, help: impl Into<String>) -> Self {
        Finding {
            kind,
            subject: None,
            sentence: sentence.into(),
            earlier: None,
            others: Vec::new(),
            later: None,
            graph: None,
            known: None,
            notes: Vec::new(),
            help: help.into(),
        }
    }

    /// Whether it says nothing: it follows from an earlier one.
    pub(super) fn is_quiet(&self) -> bool {
        self.sentence.is_empty()
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
            (Some(0), _) => format!("{after} comes after no operation of {before}"),
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
        write!(f, "  help: {}", self.help)
    }
}

impl std::error::Error for Finding {}
