//! Litmus programs: small texts about streams, memory and graphs, with the verdict that each must get.
//!
//! A program is read into the operations that [`op`](millpond_core::op) knows, with line numbers for places; whoever
//! judges programs (the checker, the library on a device) takes those. The language is described line by line in
//! `docs/litmus.md`; the programs of the project are in `litmus/`.
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
//! | file | one law |
//! |---|---|
//! | `text` | lines, words and expectations |
//! | `lower` | names, and statements that become operations |
//! | `bounds` | how large graphs become |
//! | `statements` | how a table of statements is written |
//! | `streams`, `memory`, `graphs` | the statements, in tables |
//! | `fix/` | the edges that findings name are put into a program |
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

/// So many characters of a message are shown of its beginning and of its end, where it is longer: its words are there.
const SHOWN_FIRST: usize = 400;
const SHOWN_LAST: usize = 100;

/// Why a text is not a program: the line, what is wrong with it, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The line, counted from 1.
    pub line: u32,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl Refusal {
    fn new(line: u32, what: impl Into<String>, help: impl Into<String>) -> Self {
        Refusal { line, what: shown(&what.into()), help: shown(&help.into()) }
    }
}

/// What quotes a hostile text must neither reach the terminal as it is nor fill it.
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

/// What a line says of itself: a rule that is broken there (`!!`), or advice (`??`).
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
    /// Reads a program.
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn parse(text: &str) -> Result<Program, Refusal> {
        lower::lower(&text::lines(text)?)
    }

    /// A program of these operations, which expects nothing.
    pub fn of(ops: Vec<Op>) -> Program {
        let (names, settings, expected, called) = Default::default();
        Program { ops, names, settings, expected, called }
    }

    /// Its operations, in order; loops are unrolled.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The texts that the operations name.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// What the program asks to be looked for.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// What it expects, advice too.
    pub fn expected(&self) -> &BTreeSet<Expected> {
        &self.expected
    }

    /// Whether it expects to be found right.
    pub fn is_right(&self) -> bool {
        self.expected.iter().all(|it| it.kind.is_advice())
    }

    /// What the checker says of it.
    pub fn check(&self) -> Vec<Finding> {
        let (mut checker, mut findings) = (Checker::new(self.settings), Vec::new());
        for op in &self.ops {
            checker.check(op, &self.names, &mut findings);
        }
        checker.finish(&self.names, &mut findings);
        findings
    }

    /// Where findings and expectations differ, in words; nothing where the program got the verdict that it expects.
    /// Advice counts where the program expects any.
    pub fn differences(&self, findings: &[Finding]) -> Vec<String> {
        let with_advice = self.expected.iter().any(|it| it.kind.is_advice());
        let found = found(findings);
        let extra = found.difference(&self.expected).filter(|it| with_advice || !it.kind.is_advice());
        let extra = extra.map(|it| format!("line {}: {} was found and is not expected", it.line, it.kind.name()));
        self.not_found(findings).into_iter().chain(extra).collect()
    }

    /// What is expected and is not among the findings, a sentence each.
    pub fn not_found(&self, findings: &[Finding]) -> Vec<String> {
        let found = found(findings);
        let missed = self.expected.difference(&found);
        missed.map(|it| format!("line {}: {} was not found", it.line, it.kind.name())).collect()
    }

    /// The operations one by one, for whoever reads programs of any kind.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { program: self, at: 0 }
    }
}

fn found(findings: &[Finding]) -> BTreeSet<Expected> {
    let line = |finding: &Finding| finding.line().unwrap_or(0);
    findings.iter().map(|finding| Expected { line: line(finding), kind: finding.kind }).collect()
}

/// A litmus program, operation by operation.
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
