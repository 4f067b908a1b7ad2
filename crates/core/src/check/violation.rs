//! What a wrong order looks like to a person: two sides, and the edge that is missing.
//!
//! Knows names, streams, operation numbers and places in the source. Says nothing about points: those are internal.

use std::fmt;

use super::kind::Kind;
use crate::ids::{AllocId, StreamId};
use crate::op::{Act, Place};
use crate::units::Bytes;

/// One operation as a person finds it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// What it does.
    pub act: Act,
    /// On which stream.
    pub stream: StreamId,
    /// The how many-th operation of that stream it is, counted from 1.
    pub op: u64,
    /// Where in the source.
    pub place: Place,
}

impl Site {
    /// An event that comes after it.
    fn event(&self) -> String {
        let Site { stream, op, place, .. } = self;
        match place {
            Place::Process(process) => {
                format!("an event that process {process} records on its {stream} at or after op {op} and exports")
            }
            _ => format!("an event recorded on {stream} at or after op {op}"),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}, op {:<5} {}", self.act.past(), self.stream, self.op, self.place)
    }
}

/// The allocation that a violation is about.
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
            Some(name) => write!(f, "`{name}` ({}, {})", self.id, Bytes(self.bytes)),
            None => write!(f, "{} ({})", self.id, Bytes(self.bytes)),
        }
    }
}

/// A wrong order, with both sides and what is missing between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule that is broken.
    pub kind: Kind,
    /// What it is about.
    pub subject: Subject,
    /// The side that was there first.
    pub earlier: Site,
    /// The newest operation of that side's stream that has to come first, too.
    pub newest: Site,
    /// What else has to come first and does not: the newest of each further stream.
    pub others: Vec<Site>,
    /// The side that is refused.
    pub later: Site,
    /// What does it where the later side is the launch of a graph: a node, or the launch itself.
    pub within: Option<String>,
    /// The last operation of the earlier side's stream that the later side's stream does come after.
    pub known: Option<u64>,
}

impl Violation {
    /// What to add to make the program right.
    pub fn help(&self) -> String {
        let later = &self.later;
        match self.kind {
            Kind::DoubleFree => "free it once".into(),
            Kind::UseAfterFree => {
                format!(
                    "free it after this {}, or allocate anew",
                    if later.act == Act::Write { "write" } else { "read" }
                )
            }
            Kind::FreeWhileImported => "let that process free its import first, and order this free after that; or \
                                        drop the buffer: its memory goes back when the last holder is done with it"
                .into(),
            _ => {
                let sides = std::iter::once(&self.newest).chain(&self.others);
                let events: Vec<String> = sides.map(|side| side.event()).collect();
                match later.stream {
                    StreamId::HOST => format!("synchronize {} before", events.join(", and ")),
                    stream => format!("make {stream} wait for {}", events.join(", and for ")),
                }
            }
        }
    }

    /// The facts as one stable line of `key=value` pairs, for programs.
    pub fn facts(&self) -> String {
        let (earlier, later) = (&self.earlier, &self.later);
        let mut facts = format!(
            "kind={} allocation={} bytes={} earlier_act={:?} earlier_stream={} earlier_op={} later_act={:?} \
             later_stream={} later_op={}",
            self.kind.name(),
            self.subject.id.0,
            self.subject.bytes,
            earlier.act,
            earlier.stream.0,
            earlier.op,
            later.act,
            later.stream.0,
            later.op
        );
        if let Some(known) = self.known {
            facts += &format!(" known_op={known}");
        }
        for other in &self.others {
            facts += &format!(" other_act={:?} other_stream={} other_op={}", other.act, other.stream.0, other.op);
        }
        facts
    }

    fn sentence(&self) -> String {
        let (earlier, later) = (&self.earlier, &self.later);
        match self.kind {
            Kind::DoubleFree => format!("{} is freed on {}, but it is freed already", self.subject, later.stream),
            Kind::UseAfterFree => {
                format!("{} is {} on {}, but it is freed already", self.subject, later.act.past(), later.stream)
            }
            Kind::FreeWhileImported => {
                let whose = match earlier.place {
                    Place::Process(process) => format!("process {process}"),
                    _ => "another process".into(),
                };
                format!("{} is freed on {} while {whose} holds it", self.subject, later.stream)
            }
            _ => {
                let whose = match earlier.place {
                    Place::Process(process) => format!(" of process {process}"),
                    _ => String::new(),
                };
                format!(
                    "{} is {} on {} with nothing ordering that after {} on {}{whose}",
                    self.subject,
                    later.act.past(),
                    later.stream,
                    earlier.act.noun(),
                    earlier.stream
                )
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence())?;
        for side in std::iter::once(&self.earlier).chain(&self.others) {
            writeln!(f, "  {side}")?;
        }
        write!(f, "  {}", self.later)?;
        match &self.within {
            Some(within) => writeln!(f, "  ({within})")?,
            None => writeln!(f)?,
        }
        if let Some(known) = self.known
            && !matches!(self.earlier.place, Place::Process(_))
        {
            let (earlier, later) = (self.earlier.stream, self.later.stream);
            match known {
                0 => writeln!(f, "  {later} comes after no operation of {earlier}")?,
                known => writeln!(f, "  {later} comes after {earlier} up to op {known} only")?,
            }
        }
        write!(f, "  help: {}", self.help())
    }
}

impl std::error::Error for Violation {}
