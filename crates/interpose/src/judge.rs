//! The checker beside the running program: findings are printed at once, and again at the end.
//!
//! The rules are [`Checker`]'s. Here places are numbers until something is found. A finding that was printed from the
//! same places before is only counted. The command gets the count each time that it has doubled, and at the end. So a
//! mistake that a loop makes a million times takes twenty lines.

use std::fmt::Write;

use millpond_core::check::{Checker, Finding, Settings, Side};
use millpond_core::op::{Names, Op};
use millpond_driver::output::say;
use rustc_hash::FxHashMap;

use crate::arguments::Ahead;
use crate::index::Index;
use crate::place::Places;
use crate::report;

/// At most this many different findings are printed. Further ones are counted as one.
const SAID_MAX: usize = 1000;

/// A finding that was printed.
#[derive(Debug)]
struct Said {
    /// Its two places and its sentence at the first time, in the command's format.
    fields: String,
    count: u64,
    /// The part of `count` that the command knows of.
    reported: u64,
}

impl Said {
    fn report(&mut self) {
        if self.count > self.reported {
            report::add(&format!("finding\t{}\t{}\n", self.count - self.reported, self.fields));
            self.reported = self.count;
        }
    }
}

/// The checker of a process.
#[derive(Debug)]
pub(crate) struct Judge {
    checker: Checker,
    found: Vec<Finding>,
    /// By kind and places.
    said: FxHashMap<String, Said>,
}

impl Judge {
    /// `races`: also looks for accesses that are not ordered with each other. `leaks`: also looks for memory that is
    /// never freed.
    pub(crate) fn new(races: bool, leaks: bool) -> Self {
        let settings = Settings { races, leaks, advice: false, ..Settings::RECORDED };
        Self { checker: Checker::new(settings), found: Vec::new(), said: FxHashMap::default() }
    }

    /// Judges an operation. Returns `true` if something was found, which [`tell`](Self::tell) then prints.
    #[inline]
    pub(crate) fn push(&mut self, op: &Op, names: &Names) -> bool {
        self.checker.check(op, names, &mut self.found);
        !self.found.is_empty()
    }

    /// Returns the array of what is known of memory, by number, for prefetching.
    #[inline]
    pub(crate) fn ahead(&self) -> Ahead {
        let (first, step) = self.checker.places();
        Ahead { first, step }
    }

    /// Prints what can be found only at the process's end.
    pub(crate) fn find_rest(&mut self, names: &Names, places: &mut Places, index: &Index) {
        self.checker.finish(names, &mut self.found);
        self.tell(places, index, None);
    }

    /// Reports all counts to the command.
    pub(crate) fn report(&mut self) {
        self.said.values_mut().for_each(Said::report);
    }

    /// Prints the new findings.
    #[cold]
    pub(crate) fn tell(&mut self, places: &mut Places, index: &Index, note: Option<&str>) {
        for mut finding in std::mem::take(&mut self.found) {
            let stacks = Stacks::of(&finding, places);
            place(&mut finding, places);
            let mut key = finding.key();
            if !self.said.contains_key(&key) {
                let sentence = match self.said.len() < SAID_MAX {
                    true => {
                        say(shown(&finding, places, index, note, &stacks));
                        finding.sentence.replace(['\n', '\t'], " ")
                    }
                    false => {
                        key = "more\t\t".to_owned();
                        "further places, which are not listed".to_owned()
                    }
                };
                let fields = format!("{key}\t{sentence}");
                self.said.entry(key.clone()).or_insert(Said { fields, count: 0, reported: 0 });
            }
            if let Some(said) = self.said.get_mut(&key) {
                said.count += 1;
                if said.count.is_power_of_two() {
                    said.report();
                }
            }
        }
    }
}

/// The frames of each side of a finding, if stacks are kept.
struct Stacks(Vec<Vec<String>>);

impl Stacks {
    fn of(finding: &Finding, places: &mut Places) -> Self {
        let number = |side: &Side| side.spot.line.filter(|_| side.spot.file.is_none())?.checked_sub(1);
        Self(sides(finding).map(|side| number(side).map_or(Vec::new(), |number| places.frames(number))).collect())
    }
}

/// Returns the sides of a finding, in the order in which they are printed.
fn sides(finding: &Finding) -> impl Iterator<Item = &Side> {
    finding.earlier.iter().chain(&finding.others).chain(&finding.later)
}

/// Replaces the numbers of places by files and lines.
fn place(finding: &mut Finding, places: &mut Places) {
    for known in finding.spots_mut() {
        if let (None, Some(line)) = (&known.file, known.line)
            && let Some(spot) = line.checked_sub(1).and_then(|number| places.spot(number))
        {
            known.file = Some(spot.file.clone());
            known.line = spot.line;
        }
    }
    for note in &mut finding.notes {
        *note = with_places(note, places);
    }
}

/// Replaces the places in a note, which has them as `line N`.
fn with_places(note: &str, places: &mut Places) -> String {
    let mut text = String::new();
    let mut rest = note;
    while let Some(at) = rest.find("line ") {
        let (before, behind) = rest.split_at(at + "line ".len());
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = behind[..digits].parse::<u32>().ok().and_then(|line| line.checked_sub(1));
        match number.and_then(|number| places.spot(number)) {
            Some(spot) => {
                let _ = write!(text, "{}{}", &before[..at], spot.file);
                if let Some(line) = spot.line {
                    let _ = write!(text, ":{line}");
                }
            }
            None => text += &rest[..at + "line ".len() + digits],
        }
        rest = &behind[digits..];
    }
    text + rest
}

/// Returns a finding as the text that is printed.
fn shown(finding: &Finding, places: &Places, index: &Index, note: Option<&str>, stacks: &Stacks) -> String {
    let mut text = format!("millpond: error[{}]: {}\n", finding.kind.name(), finding.sentence);
    for (side, frames) in sides(finding).zip(&stacks.0) {
        let function =
            side.spot.file.as_deref().zip(side.spot.line).and_then(|(file, line)| places.function(file, line));
        let function = function.map(|name| format!(" ({name})")).unwrap_or_default();
        let _ = writeln!(text, "  {side}{function}");
        frames.iter().for_each(|frame| text.extend(["    at ", frame, "\n"]));
    }
    // The numbers of a finding in a graph are the graph's, not the index's.
    if finding.graph.is_none()
        && let Some(subject) = &finding.subject
        && let Some(entry) = index.latest(subject.id)
    {
        let _ = writeln!(text, "  = note: {} is at {:#x}", subject.id, entry.start);
    }
    for line in finding.known_lines().iter().chain(&finding.notes).map(String::as_str).chain(note) {
        let _ = writeln!(text, "  = note: {line}");
    }
    let _ = write!(text, "  = help: {}", finding.help());
    text
}
