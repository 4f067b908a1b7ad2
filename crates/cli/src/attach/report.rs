//! The sum of the reports of a program's processes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millpond_core::check::Found;
use serde::Serialize;

use super::served::Served;
use super::{Wish, counted};

/// The largest number of different violations that are listed. The rest is counted.
const LISTED_MAX: usize = 50;

/// The sum of all reports.
#[derive(Debug, Default)]
pub(super) struct Report {
    traces: Vec<String>,
    /// Violations by kind and both places: their count and the first one.
    findings: BTreeMap<[String; 3], (u64, Found)>,
    /// The number of violations that each rule suppressed, by its index.
    suppressed: BTreeMap<usize, u64>,
    /// The number of calls, launches, launches with an address, launches without information.
    coverage: [u64; 4],
    /// The number of calls that no operation can describe, and of unknown calls, by name.
    passed: BTreeMap<String, u64>,
    /// The number of launches with programmatic stream serialization.
    early: u64,
    processes: u64,
    /// The number of processes that ended without a report of what they had seen.
    silent: u64,
    /// The number of processes whose Python interpreter has frames that cannot be read.
    without_lines: u64,
    served: Served,
}

/// Returns the report of each process in a folder. Its file has the process's number as its name.
pub(super) fn of_processes(folder: &Path) -> impl Iterator<Item = String> {
    let is_number = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_number).collect();
    files.sort();
    files.into_iter().filter_map(|path| fs::read_to_string(path).ok())
}

/// What was seen, for JSON.
#[derive(Debug, Serialize)]
pub(super) struct Counts<'a> {
    /// The number of processes that called CUDA.
    processes: u64,
    /// The number of those that were stopped or replaced: what was seen there is not counted.
    silent_processes: u64,
    processes_without_python_lines: u64,
    /// The number of calls that were understood.
    calls: u64,
    launches: u64,
    launches_with_an_address: u64,
    launches_without_information: u64,
    /// The number of launches with programmatic stream serialization.
    early_launches: u64,
    /// The number of calls that were passed on and not understood, by name.
    not_understood: &'a BTreeMap<String, u64>,
}

impl Report {
    /// Reads all reports in a folder.
    pub(super) fn read(folder: &Path) -> Self {
        let mut report = Report::default();
        for text in of_processes(folder) {
            report.processes += 1;
            let count = |word: &str| text.lines().filter(|line| line.split('\t').next() == Some(word)).count();
            // If a process called `exec`, the reports of both of its programs may be there.
            let is_silent = count("began") > count("coverage") || count("coverage") + count("served") == 0;
            report.silent += u64::from(is_silent);
            let mut numbers = HashMap::new();
            text.lines().for_each(|line| report.add(line, &mut numbers));
        }
        report
    }

    /// Adds a line of a process's report. `numbers` are the findings by the process's numbers.
    fn add(&mut self, line: &str, numbers: &mut HashMap<String, [String; 3]>) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["trace", path] => self.traces.push(path.to_owned()),
            ["finding", count, number, found] => {
                let Ok(found) = serde_json::from_str::<Found>(found) else { return };
                numbers.insert(number.to_owned(), found.key());
                let entry = self.findings.entry(found.key()).or_insert((0, found));
                entry.0 += count.parse().unwrap_or(0);
            }
            ["again", count, number] => {
                let known = numbers.get(number).and_then(|key| self.findings.get_mut(key));
                known.into_iter().for_each(|entry| entry.0 += count.parse().unwrap_or(0));
            }
            ["suppressed", count, rule] => {
                let Ok(rule) = rule.parse() else { return };
                *self.suppressed.entry(rule).or_default() += count.parse().unwrap_or(0);
            }
            ["coverage", ref counts @ ..] => {
                for (sum, count) in self.coverage.iter_mut().zip(counts) {
                    *sum += count.parse().unwrap_or(0);
                }
            }
            ["unsupported" | "unknown", name, count] => {
                *self.passed.entry(name.to_owned()).or_default() += count.parse().unwrap_or(0);
            }
            ["early", count] => self.early += count.parse().unwrap_or(0),
            ["without-lines"] => self.without_lines += 1,
            _ => self.served.add(&fields),
        }
    }

    /// Returns `true` if no process saw a call.
    pub(super) fn saw_nothing(&self) -> bool {
        self.coverage[0] == 0 && self.silent == 0
    }

    /// Returns `true` if there are findings.
    pub(super) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Returns the violations, each with its count.
    pub(super) fn findings(&self) -> impl Iterator<Item = &(u64, Found)> {
        self.findings.values()
    }

    /// Returns the number of violations that a rule suppressed.
    pub(super) fn suppressed(&self, rule: usize) -> u64 {
        self.suppressed.get(&rule).copied().unwrap_or(0)
    }

    /// Returns the counts for JSON.
    pub(super) fn counts(&self) -> Counts<'_> {
        let [calls, launches, with_an_address, without_information] = self.coverage;
        Counts {
            processes: self.processes,
            silent_processes: self.silent,
            processes_without_python_lines: self.without_lines,
            calls,
            launches,
            launches_with_an_address: with_an_address,
            launches_without_information: without_information,
            early_launches: self.early,
            not_understood: &self.passed,
        }
    }

    /// Prints the whole report.
    pub(super) fn show(&self, wish: Wish<'_>, err: &mut dyn Write) -> io::Result<()> {
        if let Wish::Serve { report: true, by_driver, .. } = wish {
            self.served.show(by_driver, err)?;
            self.served.show_limits(err)?;
        }
        if self.processes == 0 {
            let what = match wish {
                Wish::Record(_) => "recorded",
                Wish::Check { .. } | Wish::Serve { check: true, .. } => "checked",
                Wish::Serve { .. } => return Ok(()),
            };
            return writeln!(err, "millpond: the program made no CUDA call: nothing was {what}");
        }
        match wish {
            Wish::Record(_) if self.traces.is_empty() => writeln!(err, "millpond: no trace was written")?,
            Wish::Record(_) => self.traces.iter().try_for_each(|path| writeln!(err, "millpond: trace {path}"))?,
            _ if wish.is_check() => self.show_findings(err)?,
            _ => return Ok(()),
        }
        let [calls, launches, with_address, without] = self.coverage;
        writeln!(
            err,
            "millpond: coverage: {} understood; {}, {with_address} with an address of known memory, {without} without \
             information on their arguments",
            counted(calls, "call", "calls"),
            counted(launches, "launch", "launches"),
        )?;
        for (name, count) in &self.passed {
            let times = counted(*count, "time", "times");
            writeln!(err, "millpond: coverage: passed on and not understood, {times}: {name}")?;
        }
        if self.early > 0 {
            let launches = counted(self.early, "launch", "launches");
            writeln!(
                err,
                "millpond: coverage: {launches} with programmatic stream serialization: judged as ordinary launches; \
                 an early start is not judged"
            )?;
        }
        if self.without_lines > 0 {
            let processes = counted(self.without_lines, "process", "processes");
            writeln!(
                err,
                "millpond: coverage: no lines of Python in {processes}: frames of this version or build cannot be read \
                 (those of CPython 3.11 to 3.15 can)"
            )?;
        }
        match self.silent {
            0 => Ok(()),
            silent => {
                let silent = counted(silent, "process was", "processes were");
                writeln!(err, "millpond: coverage: {silent} stopped or replaced: what was seen there is not counted")
            }
        }
    }

    fn show_findings(&self, err: &mut dyn Write) -> io::Result<()> {
        let all: u64 = self.findings.values().map(|it| it.0).sum();
        let (some, processes) = (self.findings.len(), self.processes);
        match all {
            0 => writeln!(err, "millpond: no violation in {}", counted(processes, "process", "processes"))?,
            _ => {
                let (all, some) = (counted(all, "violation", "violations"), counted(some as u64, "place", "places"));
                writeln!(err, "millpond: {all} at {some} in {}:", counted(processes, "process", "processes"))?;
            }
        }
        for ([kind, earlier, later], (count, found)) in self.findings.iter().take(LISTED_MAX) {
            let places = match (earlier.is_empty(), later.is_empty()) {
                (false, false) => format!(" ({earlier}, {later})"),
                _ => format!(" ({earlier}{later})"),
            };
            writeln!(err, "  {count} x {kind}: {}{places}", found.sentence)?;
        }
        match some.saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => writeln!(err, "  ... and at {}", counted(more as u64, "more place", "more places")),
        }
    }
}
