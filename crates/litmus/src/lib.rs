//! Litmus programs: small texts about streams, memory and graphs, with the verdict that each must get.
//!
//! A program is parsed into the operations of [`op`](millpond_core::op), with line numbers as places. The checker, or
//! the library on a device, takes these operations. `docs/litmus.md` describes the language line by line; the project's
//! programs are in `litmus/`.
//!
//! ```
//! use millpond_litmus::Program;
//!
//! let program = Program::parse("
//!     stream left
//!     stream right
//!     a = alloc left 1024
//!     write right a          !! use-before-alloc
//!     free left a
//! ")?;
//! let findings = program.check();
//! assert_eq!(findings.len(), 1);
//! assert!(program.differences(&findings).is_empty());
//! # Ok::<(), millpond_litmus::Refusal>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `text` | lines, words and expectations |
//! | `lower` | names, and statements that become operations |
//! | `bounds` | the sizes of graphs |
//! | `statements` | the macro for tables of statements |
//! | `streams`, `memory`, `graphs` | the statements, in tables |
//! | `fix/` | adds the edges that findings name to a program |
//! | `model/` | a program as a device may run it: all schedules |
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bounds;
mod fix;
mod graphs;
mod lower;
mod memory;
pub mod model;
mod statements;
mod streams;
mod text;

pub use fix::{Added, Change, Fixed, Left, fix, fix_within};
pub use text::statement;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;

use millpond_core::check::{Checker, Finding, Kind, Settings};
use millpond_core::ids::AllocId;
use millpond_core::op::{Names, Op, Ops, Visible};

/// A longer message is shortened to its first and last characters, which have the words.
const SHOWN_FIRST: usize = 400;
const SHOWN_LAST: usize = 100;

/// The reason why a text is not a program: the line, the problem and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The line, counted from 1.
    pub line: u32,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub help: String,
}

impl Refusal {
    fn new(line: u32, what: impl Into<String>, help: impl Into<String>) -> Self {
        Refusal { line, what: shown(&what.into()), help: shown(&help.into()) }
    }
}

/// Makes quoted text of a hostile program visible and short, so that it can neither control the terminal nor fill it.
fn shown(text: &str) -> String {
    let shown = Visible(text).to_string();
    let at = |place: usize| shown.char_indices().nth(place).map(|(at, _)| at);
    let count = shown.chars().count();
    match (at(SHOWN_FIRST), at(count.saturating_sub(SHOWN_LAST))) {
        (Some(first), Some(last)) if first < last => format!("{}...{}", &shown[..first], &shown[last..]),
        _ => shown,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.help)
    }
}

impl std::error::Error for Refusal {}

/// The expectation of a line: a rule that is broken there (`!!`), or advice (`??`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Expected {
    /// The line, counted from 1.
    pub line: u32,
    /// The rule.
    pub kind: Kind,
}

/// A litmus program.
#[derive(Clone, Debug)]
pub struct Program {
    ops: Vec<Op>,
    names: Names,
    settings: Settings,
    expected: BTreeSet<Expected>,
    called: HashMap<AllocId, String>,
}

impl Program {
    /// Parses a program.
    ///
    /// # Errors
    /// The refusal of the first line that is not valid.
    pub fn parse(text: &str) -> Result<Program, Refusal> {
        lower::lower(&text::lines(text)?)
    }

    /// Makes a program of these operations. It expects nothing.
    pub fn of(ops: Vec<Op>) -> Program {
        let (names, settings, expected, called) = Default::default();
        Program { ops, names, settings, expected, called }
    }

    /// Returns the operations, in order. Loops are unrolled.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the texts that the operations refer to.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the program's settings for the checker.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns the expectations, including advice.
    pub fn expected(&self) -> &BTreeSet<Expected> {
        &self.expected
    }

    /// Returns `true` if it expects no violation.
    pub fn is_right(&self) -> bool {
        self.expected.iter().all(|it| it.kind.is_advice())
    }

    /// Checks the program and returns the findings.
    pub fn check(&self) -> Vec<Finding> {
        let (mut checker, mut findings) = (Checker::new(self.settings), Vec::new());
        for op in &self.ops {
            checker.check(op, &self.names, &mut findings);
        }
        checker.finish(&self.names, &mut findings);
        findings
    }

    /// Describes the differences between findings and expectations; empty if the program got the verdict that it
    /// expects. Advice is compared only if the program expects any.
    pub fn differences(&self, findings: &[Finding]) -> Vec<String> {
        let with_advice = self.expected.iter().any(|it| it.kind.is_advice());
        let found = found(findings);
        let extra = found.difference(&self.expected).filter(|it| with_advice || !it.kind.is_advice());
        let extra = extra.map(|it| format!("line {}: {} was found and is not expected", it.line, it.kind.name()));
        self.not_found(findings).into_iter().chain(extra).collect()
    }

    /// Describes each expectation that is not among the findings, in a sentence.
    pub fn not_found(&self, findings: &[Finding]) -> Vec<String> {
        let found = found(findings);
        let missed = self.expected.difference(&found);
        missed.map(|it| format!("line {}: {} was not found", it.line, it.kind.name())).collect()
    }

    /// Returns the operations one by one, for readers of programs of any kind.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { program: self, at: 0 }
    }
}

fn found(findings: &[Finding]) -> BTreeSet<Expected> {
    let line = |finding: &Finding| finding.line().unwrap_or(0);
    findings.iter().map(|finding| Expected { line: line(finding), kind: finding.kind }).collect()
}

/// Reads a litmus program operation by operation.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    program: &'a Program,
    at: usize,
}

impl Ops for Cursor<'_> {
    type Error = Infallible;

    fn next_op(&mut self) -> Result<Option<Op>, Infallible> {
        let op = self.program.ops.get(self.at).cloned();
        self.at += 1;
        Ok(op)
    }

    fn names(&self) -> &Names {
        &self.program.names
    }
}
