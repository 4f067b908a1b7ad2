//! Findings as JSON, for `--json`.

use std::path::Path;

use millpond_core::check::Found;
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
    pub findings: Vec<Entry>,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// What it says.
    #[serde(flatten)]
    pub found: Found,
    /// With `--witness`: a schedule that shows the finding, or the reason why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
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
                .map(|(at, finding)| Entry { found: Found::new(finding), witness: judged.witnesses.get(at).cloned() })
                .collect(),
        }
    }
}
