//! Findings for programs: what `--json` prints.

use std::path::Path;

use millpond_core::check::{Edit, Finding, Side};
use serde::Serialize;

use super::{Judged, Witness};
use crate::recorded::{Place, Refusal};

/// What `--json` has of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum FileReport {
    /// It was checked.
    Checked(Report),
    /// It was not.
    Refused(Refused),
}

/// A file that was not checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// The file.
    pub file: String,
    /// Why.
    pub error: Error,
}

/// Why a file was not checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Error {
    /// The line, where it is at one.
    pub line: Option<u64>,
    /// The byte, counted from 0, where it is at one.
    pub byte: Option<u64>,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub help: Option<String>,
}

impl Refused {
    /// A file that cannot be read, or is nothing to check.
    pub(super) fn new(path: &Path, refusal: &Refusal) -> Self {
        let (line, byte) = match refusal.place() {
            Place::Whole => (None, None),
            Place::Line(line) => (Some(line), None),
            Place::Byte(byte) => (None, Some(byte)),
        };
        let (reason, help) = (refusal.reason.clone(), refusal.help.clone());
        Refused { file: path.display().to_string(), error: Error { line, byte, reason, help } }
    }
}

/// One file's findings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// How many operations it has.
    pub operations: u64,
    /// Whether it is the trace of a program that was stopped: leaks are not looked for then.
    pub was_stopped: bool,
    /// Where a litmus program expects something else than was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
    /// How many violations were found.
    pub violations: u64,
    /// How many pieces of advice.
    pub advice: u64,
    /// All of them, up to a bound.
    pub findings: Vec<Found>,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// The rule's stable name.
    pub kind: &'static str,
    /// Whether it is advice only.
    pub is_advice: bool,
    /// The line that it is at.
    pub line: Option<u32>,
    /// What is wrong.
    pub sentence: String,
    /// The side that was there first.
    pub earlier: Option<Shown>,
    /// What else had to come first and does not: the newest of each further stream.
    pub others: Vec<Shown>,
    /// The side that is refused.
    pub later: Option<Shown>,
    /// What orders the two, and what else there is to say.
    pub notes: Vec<String>,
    /// What to add or change.
    pub help: String,
    /// What `--fix` adds, if edges settle it: the name of an [`Edit`](millpond_core::check::Edit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<&'static str>,
    /// The stable line of facts.
    pub facts: String,
    /// With `--witness`: a schedule that shows it, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
}

/// One side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown {
    /// What it did.
    pub verb: String,
    /// Who did it.
    pub who: String,
    /// The how many-th operation of its stream it is.
    pub op: Option<u64>,
    /// Which node of a graph.
    pub node: Option<String>,
    /// The source file; none for the program's own.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// Which round of which loop, of a litmus program: in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<String>,
}

impl Report {
    /// What was found in a file.
    pub fn new(path: &Path, judged: &Judged) -> Self {
        Report {
            file: path.display().to_string(),
            operations: judged.operations,
            was_stopped: judged.was_stopped,
            unmet: judged.unmet.clone(),
            violations: judged.violations,
            advice: judged.advice,
            findings: judged
                .findings
                .iter()
                .enumerate()
                .map(|(at, finding)| Found { witness: judged.witnesses.get(at).cloned(), ..Found::new(finding) })
                .collect(),
        }
    }
}

impl Found {
    fn new(finding: &Finding) -> Self {
        let mut notes = finding.known_lines();
        notes.extend(finding.notes.iter().cloned());
        Found {
            kind: finding.kind.name(),
            is_advice: finding.kind.is_advice(),
            line: finding.line(),
            sentence: finding.sentence.clone(),
            earlier: finding.earlier.as_ref().map(Shown::new),
            others: finding.others.iter().map(Shown::new).collect(),
            later: finding.later.as_ref().map(Shown::new),
            notes,
            help: finding.help(),
            edit: finding.edit().map(Edit::name),
            facts: finding.facts(),
            witness: None,
        }
    }
}

impl Shown {
    fn new(side: &Side) -> Self {
        Shown {
            verb: side.verb.clone(),
            who: side.who.clone(),
            op: side.op,
            node: side.node.clone(),
            file: side.spot.file.clone(),
            line: side.spot.line,
            round: side.spot.round.clone(),
        }
    }
}
