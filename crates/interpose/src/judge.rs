//! The checker beside the running program: findings are printed at once, and again at the end.
//!
//! The rules are [`Checker`]'s. Here places are numbers until something is found. A finding that was printed from the
//! same places before is only counted. A mistake that a loop makes a million times takes a thousand short lines of the
//! report. A finding that a rule of the user suppresses is only
//! counted.

use std::fmt::Write;

use millpond_core::check::{Act, Checker, Finding, Found, Settings, Side, Suppressions};
use millpond_core::ids::StreamId;
use millpond_core::op::{Names, Op, Place};
use rustc_hash::FxHashMap;

use crate::arguments::Ahead;
use crate::handles::Handles;
use crate::index::Index;
use crate::place::Places;
use crate::place::launches::Launches;
use crate::{interface, mode, report};

/// At most this many different findings are printed. Further ones are counted as one.
const SAID_MAX: usize = 1000;

/// So often the command gets each finding as it happens, for the tests of a suite that all make it. Then it gets the
/// count each time that it has doubled.
const EACH_MAX: u64 = 1000;

/// A finding that was met before.
#[derive(Debug)]
struct Said {
    /// Its number in the report.
    number: usize,
    /// What it says, as JSON, until the command has it. Empty if it is suppressed.
    found: String,
    /// The rule that suppresses it.
    rule: Option<usize>,
    count: u64,
    /// The part of `count` that the command knows of.
    reported: u64,
}

impl Said {
    fn report(&mut self) {
        let new = self.count - std::mem::replace(&mut self.reported, self.count);
        match self.rule {
            _ if new == 0 => {}
            Some(rule) => report::add(&format!("suppressed\t{new}\t{rule}\n")),
            None if self.found.is_empty() => report::add(&format!("again\t{new}\t{}\n", self.number)),
            None => {
                let found = std::mem::take(&mut self.found);
                report::add(&format!("finding\t{new}\t{}\t{found}\n", self.number));
            }
        }
    }
}

/// What findings are described by.
pub(crate) struct About<'a> {
    pub(crate) places: &'a mut Places,
    pub(crate) index: &'a Index,
    pub(crate) launches: &'a Launches,
    pub(crate) handles: &'a Handles,
    /// The place of each allocation, by its number.
    pub(crate) made_at: &'a [Place],
    pub(crate) names: &'a Names,
    /// Text that is added to the findings of the current call.
    pub(crate) note: Option<&'a str>,
}

/// The operations that the command delays. Only findings are reported of which a side is one of these, or comes later
/// on its stream.
#[derive(Debug, Default)]
struct Sought {
    /// Their streams, and their numbers as the checker counts them.
    from: Vec<(StreamId, u64)>,
    /// The operations of each stream: as the checker counts them, and as the command names them.
    points: FxHashMap<StreamId, Vec<(u64, [u32; 2])>>,
}

/// The checker of a process.
#[derive(Debug)]
pub(crate) struct Judge {
    checker: Checker,
    found: Vec<Finding>,
    /// By kind and places.
    said: FxHashMap<String, Said>,
    suppressions: &'static Suppressions,
    /// Where the command delays operations: which.
    sought: Option<Sought>,
}

impl Judge {
    /// `races`: also looks for accesses that are not ordered with each other. `leaks`: also looks for memory that is
    /// never freed.
    pub(crate) fn new(races: bool, leaks: bool, suppressions: &'static Suppressions) -> Self {
        let settings = Settings { races, leaks, advice: false, ..Settings::RECORDED };
        let checker = Checker::new(settings);
        let sought = mode::shaking().map(|_| Sought::default());
        Self { checker, found: Vec::new(), said: FxHashMap::default(), suppressions, sought }
    }

    /// Notes how the command names the next operation on a stream, and whether it is delayed. Returns its number.
    pub(crate) fn count(&mut self, stream: StreamId, point: [u32; 2], is_delayed: bool) -> u64 {
        let op = self.checker.operations(stream).unwrap_or(0) + 1;
        if let Some(sought) = &mut self.sought {
            sought.points.entry(stream).or_default().push((op, point));
            if is_delayed {
                sought.from.push((stream, op));
            }
        }
        op
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
    pub(crate) fn find_rest(&mut self, about: About<'_>) {
        self.checker.finish(about.names, &mut self.found);
        self.tell(about);
    }

    /// Reports all counts to the command.
    pub(crate) fn report(&mut self) {
        self.said.values_mut().for_each(Said::report);
    }

    /// Prints the new findings.
    #[cold]
    pub(crate) fn tell(&mut self, mut about: About<'_>) {
        for mut finding in std::mem::take(&mut self.found) {
            if self.sought.as_ref().is_some_and(|sought| !sought.is_in(&finding)) {
                continue;
            }
            // The earlier side: what comes later should wait for it.
            let point = finding.earlier.as_ref().and_then(|side| self.sought.as_ref()?.point(side));
            let numbers: Vec<_> = sides(&finding).map(number).collect();
            place(&mut finding, about.places);
            let mut key = finding.key();
            if !self.suppressions.rules().is_empty() {
                key += &about.told_apart(&finding, &numbers);
            }
            if !self.said.contains_key(&key) {
                let found = about.describe(&finding, &numbers);
                let rule = self.suppressions.find(&found);
                let found = match rule {
                    Some(_) => String::new(),
                    None if self.said.len() < SAID_MAX => {
                        report::say(shown(&finding, &found));
                        if let Some([stream, number]) = point {
                            report::add(&format!("earlier\t{stream}\t{number}\n"));
                        }
                        as_json(&found)
                    }
                    None => {
                        key = "more\t\t".to_owned();
                        let sentence = "further places, which are not listed".to_owned();
                        as_json(&Found { kind: "more".to_owned(), sentence, ..Found::default() })
                    }
                };
                let number = self.said.len();
                self.said.entry(key.clone()).or_insert(Said { number, found, rule, count: 0, reported: 0 });
            }
            if let Some(said) = self.said.get_mut(&key) {
                said.count += 1;
                if said.count <= EACH_MAX || said.count.is_power_of_two() {
                    said.report();
                }
            }
        }
    }
}

impl Sought {
    fn is_in(&self, finding: &Finding) -> bool {
        let mut ops = sides(finding).filter_map(|side| side.stream.zip(side.op));
        ops.any(|(stream, op)| self.from.iter().any(|from| from.0 == stream && from.1 <= op))
    }

    /// Returns the operation of a side, as the command names it.
    fn point(&self, side: &Side) -> Option<[u32; 2]> {
        let (points, op) = (self.points.get(&side.stream?)?, side.op?);
        // A stream that was destroyed may have had this number before: the newest counts.
        points.iter().rev().find(|point| point.0 == op).map(|point| point.1)
    }
}

impl About<'_> {
    /// Returns what rules look at beside the places: findings at the same lines may differ in it.
    fn told_apart(&self, finding: &Finding, numbers: &[Option<u32>]) -> String {
        let name = finding.subject.as_ref().and_then(|subject| subject.name.clone());
        let kernels = numbers.iter().flatten().filter_map(|number| self.launches.at(*number));
        kernels.fold(format!("\t{}", name.unwrap_or_default()), |key, kernel| key + &format!("\t{}", kernel.0))
    }

    /// Returns what a finding says, and what is known of its operations beside their lines. `numbers` are the numbers
    /// of their places.
    fn describe(&mut self, finding: &Finding, numbers: &[Option<u32>]) -> Found {
        let mut found = Found::new(finding);
        found.sentence = with_places(&found.sentence, self.places);
        found.help = with_places(&found.help, self.places);
        for ((side, number), of) in found.sides_mut().zip(numbers).zip(sides(finding)) {
            let at = side.file.as_deref().zip(side.line);
            side.function = at.and_then(|(file, line)| self.places.function(file, line)).map(str::to_owned);
            let Some(number) = *number else { continue };
            let is_use = matches!(of.act, Some(Act::Read | Act::Write));
            let kernel = self.launches.at(number).filter(|_| is_use).and_then(|name| self.names.text(name));
            side.kernel = kernel.map(|name| name.to_string());
            side.stack = self.places.frames(number);
        }
        // The numbers of a finding in a graph are the graph's, not the index's.
        if finding.graph.is_none()
            && let Some(subject) = &finding.subject
            && let Some(entry) = self.index.latest(subject.id)
        {
            // If the allocation is one of the sides, its place is there.
            let is_side = sides(finding).any(|side| side.act == Some(Act::Allocate));
            let place = self.made_at.get(subject.id.0 as usize).filter(|_| !is_side);
            let made = place.and_then(|place| self.places.spot(number_of(*place)?));
            let made = made.map(|spot| format!(", allocated at {spot}")).unwrap_or_default();
            found.notes.insert(0, format!("{} is at {:#x}{made}", subject.id, entry.start));
        }
        found.notes.extend(self.note.map(str::to_owned));
        found.notes.extend(self.streams(finding));
        let is_python = found.later.iter().filter_map(|side| side.file.as_deref()).any(|file| file.ends_with(".py"));
        found.calls = interface::calls(finding, is_python);
        found
    }

    /// Says which streams of the program the numbers of a finding mean.
    fn streams(&mut self, finding: &Finding) -> Vec<String> {
        let mut streams: Vec<StreamId> = sides(finding).filter_map(|side| side.stream).collect();
        streams.sort();
        streams.dedup();
        let described = streams.into_iter().filter(|stream| *stream != StreamId::HOST).filter_map(|stream| {
            let (known_as, place) = self.handles.described(stream)?;
            let made = number_of(place).and_then(|number| self.places.spot(number));
            let made = made.map(|spot| format!(", created at {spot}"));
            Some(format!("{stream} is {known_as}{}", made.unwrap_or_default()))
        });
        described.collect()
    }
}

/// Returns a finding as one line of JSON.
fn as_json(found: &Found) -> String {
    serde_json::to_string(found).unwrap_or_default()
}

/// Returns the sides of a finding, in the order in which they are printed.
fn sides(finding: &Finding) -> impl Iterator<Item = &Side> {
    finding.earlier.iter().chain(&finding.others).chain(&finding.later)
}

/// Returns the number of a side's place. In place of a file, the checker has it as a line.
fn number(side: &Side) -> Option<u32> {
    side.spot.line.filter(|_| side.spot.file.is_none())?.checked_sub(1)
}

/// Returns the number of an operation's place.
fn number_of(place: Place) -> Option<u32> {
    match place {
        Place::Line(line) => line.checked_sub(1),
        _ => None,
    }
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

/// Replaces the places in a text, which has them as `line N`.
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
fn shown(finding: &Finding, found: &Found) -> String {
    let mut text = format!("millpond: error[{}]: {}\n", found.kind, found.sentence);
    for (side, more) in sides(finding).zip(found.sides()) {
        let function = more.function.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let kernel = more.kernel.as_ref().map(|name| format!(", kernel {name}"));
        let _ = writeln!(text, "  {side}{function}{}", kernel.unwrap_or_default());
        more.stack.iter().for_each(|frame| text.extend(["    at ", frame, "\n"]));
    }
    for line in &found.notes {
        let _ = writeln!(text, "  = note: {line}");
    }
    let _ = write!(text, "  = help: {}", found.help);
    let _ = found.calls.iter().try_for_each(|calls| write!(text, "\n  = help: {calls}"));
    text
}
