//! The checker beside the running program: what it finds is said at once, and again at the end.
//!
//! The law is [`Checker`]'s. Here places are numbers until something is found, and a finding that was said from the
//! same places before is only counted.

use std::fmt::Write;

use millpond_core::check::{Checker, Finding, Kind, Settings, Side};
use millpond_core::op::{Names, Op};
use rustc_hash::FxHashSet;

use crate::index::Index;
use crate::place::Places;
use crate::report::{self, say};

/// So many different findings are said; more are counted.
const SAID_MAX: usize = 1000;

/// The checker of a process.
#[derive(Debug)]
pub(crate) struct Judge {
    checker: Checker,
    found: Vec<Finding>,
    said: FxHashSet<String>,
    is_strict: bool,
}

impl Judge {
    /// `races`: also accesses that are not ordered with each other. `leaks`: also memory that is never freed.
    pub(crate) fn new(races: bool, leaks: bool) -> Self {
        // An early launch may wait for the one before by itself, which is not seen.
        let settings = Settings { races, leaks, advice: false, weak_order: false, threads_apart: false };
        Self { checker: Checker::new(settings), found: Vec::new(), said: FxHashSet::default(), is_strict: races }
    }

    /// Judges an operation. Whether something was found, which [`tell`](Self::tell) then says.
    #[inline]
    pub(crate) fn push(&mut self, op: &Op, names: &Names) -> bool {
        self.checker.check(op, names, &mut self.found);
        !self.found.is_empty()
    }

    /// The process ends.
    pub(crate) fn finish(&mut self, names: &Names) {
        self.checker.finish(names, &mut self.found);
    }

    /// Says what was found.
    #[cold]
    pub(crate) fn tell(&mut self, places: &mut Places, index: &Index, note: Option<&str>) {
        for mut finding in std::mem::take(&mut self.found) {
            // An event that is recorded again is no matter of lifetimes; programs do that on purpose.
            if finding.kind == Kind::EventOverwritten && !self.is_strict {
                continue;
            }
            place(&mut finding, places);
            let at = |side: &Option<Side>| side.as_ref().map(|side| side.spot.to_string()).unwrap_or_default();
            let (earlier, later) = (at(&finding.earlier), at(&finding.later));
            let name = finding.kind.name();
            let first = earlier.as_str();
            report::add(&format!("finding\t{name}\t{first}\t{later}\t{}\n", finding.sentence.replace('\n', " ")));
            if self.said.len() < SAID_MAX && self.said.insert(format!("{name} {earlier} {later}")) {
                say(&shown(&finding, places, index, note));
            }
        }
    }
}

/// Puts files and lines where numbers of places are.
fn place(finding: &mut Finding, places: &mut Places) {
    let edges = finding.missing.iter_mut().flat_map(|edge| std::iter::once(&mut edge.after).chain(&mut edge.recorded));
    let known = finding.known.iter_mut().flat_map(|it| [&mut it.newest, &mut it.recorded, &mut it.through]).flatten();
    for side in finding.earlier.iter_mut().chain(&mut finding.later).chain(edges).chain(known) {
        if let (None, Some(line)) = (&side.spot.file, side.spot.line)
            && let Some(spot) = line.checked_sub(1).and_then(|number| places.spot(number))
        {
            side.spot.file = Some(spot.file.clone());
            side.spot.line = Some(spot.line);
        }
    }
    for note in &mut finding.notes {
        *note = with_places(note, places);
    }
}

/// A note names places as `line N`.
fn with_places(note: &str, places: &mut Places) -> String {
    let mut text = String::new();
    let mut rest = note;
    while let Some(at) = rest.find("line ") {
        let (before, behind) = rest.split_at(at + "line ".len());
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = behind[..digits].parse::<u32>().ok().and_then(|line| line.checked_sub(1));
        match number.and_then(|number| places.spot(number)) {
            Some(spot) => {
                let _ = write!(text, "{}{}:{}", &before[..at], spot.file, spot.line);
            }
            None => text += &rest[..at + "line ".len() + digits],
        }
        rest = &behind[digits..];
    }
    text + rest
}

/// A finding as a person reads it.
fn shown(finding: &Finding, places: &Places, index: &Index, note: Option<&str>) -> String {
    let mut text = format!("millpond: error[{}]: {}\n", finding.kind.name(), finding.sentence);
    for side in finding.earlier.iter().chain(finding.others()).chain(&finding.later) {
        let function =
            side.spot.file.as_deref().zip(side.spot.line).and_then(|(file, line)| places.function(file, line));
        let function = function.map(|name| format!(" ({name})")).unwrap_or_default();
        let _ = writeln!(text, "  {side}{function}");
    }
    // In a graph numbers are those of the graph.
    if finding.graph.is_none()
        && let Some(subject) = &finding.subject
        && let Some(entry) = index.latest(subject.id)
    {
        let _ = writeln!(text, "  = note: {} is at {:#x}", subject.id, entry.start);
    }
    for line in finding.known_lines().iter().chain(&finding.notes).map(String::as_str).chain(note) {
        let _ = writeln!(text, "  = note: {line}");
    }
    let _ = writeln!(text, "  = help: {}", finding.help());
    text
}
