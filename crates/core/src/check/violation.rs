//! What a wrong order looks like to a person: two sides, and the edge that is missing.
//!
//! Knows names, streams, operation numbers and places in the source. Says nothing about points: those are internal.

use std::fmt;
use std::panic::Location;

use crate::ids::{AllocId, StreamId};
use crate::units::Bytes;

/// What an operation does to an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Act {
    /// Allocates it.
    #[default]
    Allocate,
    /// Reads it.
    Read,
    /// Writes it.
    Write,
    /// Frees it.
    Free,
}

impl Act {
    /// In the past, for a table: `read`, `freed`.
    fn past(self) -> &'static str {
        match self {
            Act::Allocate => "allocated",
            Act::Read => "read",
            Act::Write => "written",
            Act::Free => "freed",
        }
    }

    /// As a thing: `the read`.
    fn noun(self) -> &'static str {
        match self {
            Act::Allocate => "its allocation",
            Act::Read => "a read",
            Act::Write => "a write",
            Act::Free => "its free",
        }
    }
}

/// Where an operation stands in the program's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// Not known.
    #[default]
    Unknown,
    /// The caller's line.
    Source(&'static Location<'static>),
    /// A line of a recorded program.
    Line(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unknown => Ok(()),
            Place::Source(location) => write!(f, "{}:{}", location.file(), location.line()),
            Place::Line(line) => write!(f, "line {line}"),
        }
    }
}

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

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}, op {:<5} {}", self.act.past(), self.stream, self.op, self.place)
    }
}

/// Which rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// An access is not ordered after the allocation.
    UseBeforeAlloc,
    /// An access comes after the free, or nothing puts it before.
    UseAfterFree,
    /// A free is not ordered after the allocation.
    FreeBeforeAlloc,
    /// A free is not ordered after an access.
    FreeBeforeUse,
    /// Two accesses, one of them a write, are not ordered.
    Race,
    /// The allocation is freed already.
    DoubleFree,
}

impl Kind {
    /// A stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::UseBeforeAlloc => "use-before-alloc",
            Kind::UseAfterFree => "use-after-free",
            Kind::FreeBeforeAlloc => "free-before-alloc",
            Kind::FreeBeforeUse => "free-before-use",
            Kind::Race => "race",
            Kind::DoubleFree => "double-free",
        }
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
    /// The side that is refused.
    pub later: Site,
    /// The last operation of the earlier side's stream that the later side's stream does come after.
    pub known: Option<u64>,
}

impl Violation {
    /// What to add to make the program right.
    pub fn help(&self) -> String {
        let (earlier, later) = (&self.earlier, &self.later);
        match self.kind {
            Kind::DoubleFree => "free it once".into(),
            Kind::UseAfterFree => {
                format!(
                    "free it after this {}, or allocate anew",
                    if later.act == Act::Write { "write" } else { "read" }
                )
            }
            _ => format!(
                "make {} wait for an event recorded on {} at or after op {}",
                later.stream, earlier.stream, earlier.op
            ),
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
        facts
    }

    fn sentence(&self) -> String {
        let (earlier, later) = (&self.earlier, &self.later);
        match self.kind {
            Kind::DoubleFree => format!("{} is freed on {}, but it is freed already", self.subject, later.stream),
            Kind::UseAfterFree => {
                format!("{} is {} on {}, but it is freed already", self.subject, later.act.past(), later.stream)
            }
            _ => format!(
                "{} is {} on {} with nothing ordering that after {} on {}",
                self.subject,
                later.act.past(),
                later.stream,
                earlier.act.noun(),
                earlier.stream
            ),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence())?;
        writeln!(f, "  {}", self.earlier)?;
        writeln!(f, "  {}", self.later)?;
        if let Some(known) = self.known {
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
