//! Findings as plain texts: for JSON, for other formats of reports, and for suppressions.
//!
//! Knows what a finding says; no order and no rule. With the feature `serde` both ends of a report read and write it.

use super::edit::Edit;
use super::finding::{Finding, Side, file_and_line};

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Found {
    /// The rule's stable name.
    pub kind: String,
    /// `true` if it is only advice.
    pub is_advice: bool,
    /// The line of the finding.
    pub line: Option<u32>,
    /// A sentence that says what is wrong.
    pub sentence: String,
    /// The allocation concerned, if there is one.
    pub allocation: Option<ShownMemory>,
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
    /// The calls of the program's own interface that do what the help says.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub calls: Option<String>,
    /// The edit that `--fix` makes, if edges settle the finding: the name of an [`Edit`].
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub edit: Option<String>,
    /// The stable line of facts.
    pub facts: String,
}

/// The allocation of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShownMemory {
    /// Its number.
    pub number: u64,
    /// Its size in bytes, as requested.
    pub bytes: u64,
    /// The program's name for it, if it has one.
    pub name: Option<String>,
}

/// One of the operations of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub round: Option<String>,
    /// The function that has the line, if it is known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub function: Option<String>,
    /// The kernel that it launched, if it is known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub kernel: Option<String>,
    /// The frames of the call, innermost first, if they were kept.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub stack: Vec<String>,
}

impl Found {
    /// Returns what a finding says.
    pub fn new(finding: &Finding) -> Self {
        let mut notes = finding.known_lines();
        notes.extend(finding.notes.iter().cloned());
        Found {
            kind: finding.kind.name().to_owned(),
            is_advice: finding.kind.is_advice(),
            line: finding.line(),
            sentence: finding.sentence.clone(),
            allocation: finding.subject.as_ref().map(|subject| ShownMemory {
                number: u64::from(subject.id.0),
                bytes: subject.bytes,
                name: subject.name.clone(),
            }),
            earlier: finding.earlier.as_ref().map(Shown::new),
            others: finding.others.iter().map(Shown::new).collect(),
            later: finding.later.as_ref().map(Shown::new),
            notes,
            help: finding.help(),
            calls: None,
            edit: finding.edit().map(Edit::name).map(str::to_owned),
            facts: finding.facts(),
        }
    }

    /// Returns the operations, in the order in which they are shown.
    pub fn sides(&self) -> impl Iterator<Item = &Shown> {
        self.earlier.iter().chain(&self.others).chain(&self.later)
    }

    /// As [`sides`](Self::sides), to change them.
    pub fn sides_mut(&mut self) -> impl Iterator<Item = &mut Shown> {
        self.earlier.iter_mut().chain(&mut self.others).chain(&mut self.later)
    }

    /// Returns the rule and both places, which are the same if the same mistake is made again.
    pub fn key(&self) -> [String; 3] {
        let at = |side: &Option<Shown>| side.as_ref().map(Shown::spot).unwrap_or_default();
        [self.kind.clone(), at(&self.earlier), at(&self.later)]
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
            ..Shown::default()
        }
    }

    /// Returns the file and the line. Empty if they are not known.
    pub fn spot(&self) -> String {
        file_and_line(self.file.as_deref(), self.line)
    }
}
