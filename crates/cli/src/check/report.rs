//! Findings as JSON, for `--json`.

use std::path::Path;

use millpond_core::check::{Edit, Finding, Side};
use serde::Serialize;

use super::{Judged, Witness};
use crate::recorded::{Place, Refusal};

/// The JSON of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum FileReport {
    /// The file was checked.
    Checked(Report),
    /// The file was not checked.
    Refused(Refused),
}

/// A file that was not checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// The file.
    pub file: String,
    /// The reason.
    pub error: Error,
}

/// The reason why a file was not checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Error {
    /// The line, if the error is at a line.
    pub line: Option<u64>,
    /// The byte, counted from 0, if the error is at a byte.
    pub byte: Option<u64>,
    /// The problem.
    pub reason: String,
    /// A way to solve it.
    pub help: Option<String>,
}

impl Refused {
    /// Describes a file that cannot be read or has nothing to check.
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
    /// The number of operations.
    pub operations: u64,
    /// `true` for the trace of a program that was stopped. Leaks are then not looked for.
    pub was_stopped: bool,
    /// The differences between a litmus program's expectations and its findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
    /// The number of violations.
    pub violations: u64,
    /// The number of pieces of advice.
    pub advice: u64,
    /// The findings, up to a bound.
    pub findings: Vec<Found>,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// The rule's stable name.
    pub kind: &'static str,
    /// `true` if it is only advice.
    pub is_advice: bool,
    /// The line of the finding.
    pub line: Option<u32>,
    /// A sentence that says what is wrong.
    pub sentence: String,
    /// The earlier operation.
    pub earlier: Option<Shown>,
    /// Further operations that had to come first and do not: the newest of each other stream.
    pub others: Vec<Shown>,
    /// The refused operation.
    pub later: Option<Shown>,
    /// Notes: what orders the two operations, and other remarks.
    pub notes: Vec<String>,
    /// The help: what to add or change.
    pub help: String,
    /// The edit that `--fix` makes, if edges settle the finding: the name of an [`Edit`](millpond_core::check::Edit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<&'static str>,
    /// The stable line of facts.
    pub facts: String,
    /// With `--witness`: a schedule that shows the finding, or the reason why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
}

/// One of the two operations of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown {
    /// The verb for what it did.
    pub verb: String,
    /// The stream or host thread that did it.
    pub who: String,
    /// Its number among the operations of its stream.
    pub op: Option<u64>,
    /// The node of a graph.
    pub node: Option<String>,
    /// The source file, or `None` for the program's own file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The round of the loop in a litmus program, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<String>,
}

impl Report {
    /// Makes the report of a checked file.
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
