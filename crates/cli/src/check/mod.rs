//! `millpond check`: checks the order of programs.
//!
//! Reads litmus programs and operation traces, passes the operations to the checker one by one, and shows the findings.
//! [`millpond_core::check`] decides what is right or wrong; this module handles files, terminals and counts.

mod fix;
mod folder;
mod program;
mod render;
mod report;
mod witness;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millpond_core::check::{Checker, Finding, Settings, Spot};
use millpond_core::op::Ops;

use crate::args::Check as Args;
use crate::recorded::{Place, Refusal};
use crate::refusal::shown_path;
use crate::stop::complain;
use crate::{Status, Stop};

pub use crate::operation_trace::Trace;
pub use program::{Source, open};
pub use report::{FileReport, Refused, Report};
pub use witness::{Step, Witness};

/// The largest number of findings of a file that are shown. The rest is counted.
const SHOWN_MAX: usize = 100;
/// The largest number of findings of a file that are kept for `--json`.
const KEPT_MAX: usize = 10_000;

/// The result of checking one program.
#[derive(Debug, Default)]
pub struct Judged {
    /// The number of operations.
    pub operations: u64,
    /// The findings, up to a bound.
    pub findings: Vec<Finding>,
    /// The number of violations.
    pub violations: u64,
    /// The number of pieces of advice.
    pub advice: u64,
    /// The differences between a litmus program's expectations and its findings, in words.
    pub unmet: Vec<String>,
    /// `true` if a violation that the litmus program expects does not count as a failure.
    pub is_expected: bool,
    /// `true` for the trace of a program that was stopped. Its later operations are unknown, so memory that is live at
    /// the end is not reported as leaked.
    pub was_stopped: bool,
    /// A schedule for each finding, if requested.
    pub witnesses: Vec<Witness>,
}

/// Passes a program of any kind to the checker.
///
/// # Errors
/// The program cannot be read to its end. What was found until then is lost.
pub fn judge<O: Ops>(ops: &mut O, settings: Settings) -> Result<Judged, O::Error> {
    judge_until(ops, settings, |_| true)
}

/// As [`judge`], but findings at the end of the program count only if the program reached its end.
fn judge_until<O: Ops>(ops: &mut O, settings: Settings, is_whole: fn(&O) -> bool) -> Result<Judged, O::Error> {
    let (mut checker, mut judged, mut found) = (Checker::new(settings), Judged::default(), Vec::new());
    while let Some(op) = ops.next_op()? {
        judged.operations += 1;
        checker.check(&op, ops.names(), &mut found);
        if !found.is_empty() {
            judged.take(&mut found);
        }
    }
    match is_whole(ops) {
        true => checker.finish(ops.names(), &mut found),
        false => judged.was_stopped = true,
    }
    judged.take(&mut found);
    Ok(judged)
}

impl Judged {
    /// Returns the exit status. If the program was stopped and nothing was found, the unread rest may still be wrong.
    fn status(&self) -> Status {
        match self {
            _ if !self.unmet.is_empty() => Status::Found,
            _ if self.violations > 0 && !self.is_expected => Status::Found,
            _ if self.was_stopped => Status::BadInput,
            _ => Status::Fine,
        }
    }

    fn take(&mut self, found: &mut Vec<Finding>) {
        for finding in found.drain(..) {
            match finding.kind.is_advice() {
                true => self.advice += 1,
                false => self.violations += 1,
            }
            if self.findings.len() < KEPT_MAX {
                self.findings.push(finding);
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Fails if an input is wrong, or if `out` or `err` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    if let Some(gone) = args.gone() {
        return Err(Stop::bad_input(gone));
    }
    if args.fix {
        return match args.files().collect::<Vec<_>>()[..] {
            [file] => fix::run(file, args, out, err),
            _ => Err(Stop::bad_input("--fix corrects one program at a time: name one file")),
        };
    }
    if args.files().next().is_none() {
        let text = "nothing to check: name a file, or any CUDA program and its arguments after `--`";
        return Err(Stop::bad_input(text));
    }
    let (mut status, mut entries, mut is_folder) = (Status::Fine, Vec::new(), false);
    let mut paths: Vec<(PathBuf, Option<Refusal>)> = Vec::new();
    for path in args.files() {
        match folder::files(path) {
            Ok(files) => {
                is_folder |= files != [path.clone()];
                paths.extend(files.into_iter().map(|file| (file, None)));
            }
            Err(refusal) => paths.push((path.clone(), Some(refusal))),
        }
    }
    for (path, refusal) in paths {
        match refusal.map_or_else(|| check_file(&path, args), Err) {
            Ok((source, judged)) => {
                status = status.max(judged.status());
                match args.json.is_some() {
                    true => entries.push(FileReport::Checked(Report::new(&path, &judged))),
                    false => show(&path, &source, &judged, out)?,
                }
            }
            Err(refusal) => {
                status = status.max(Status::BadInput);
                entries.push(FileReport::Refused(Refused::new(&path, &refusal)));
                complain(err, &refusal.in_file(&path).to_string())?;
            }
        }
    }
    if args.json.is_some() {
        let text = match &entries[..] {
            [entry] if !is_folder => serde_json::to_string_pretty(entry)?,
            entries => serde_json::to_string_pretty(entries)?,
        };
        writeln!(out, "{text}")?;
    }
    Ok(status)
}

fn check_file(path: &Path, args: &Args) -> Result<(String, Judged), Refusal> {
    match judge_file(path, args)? {
        (_, judged) if judged.operations == 0 => Err(Refusal::no_operation("check")),
        judged => Ok(judged),
    }
}

fn judge_file(path: &Path, args: &Args) -> Result<(String, Judged), Refusal> {
    match open(path)? {
        Source::Litmus { program, .. } if program.ops().is_empty() => Err(Refusal::no_statement("check")),
        Source::Litmus { text, program } => {
            let mut judged = match judge(&mut program.cursor(), args.settings(program.settings())) {
                Ok(judged) => judged,
                Err(never) => match never {},
            };
            judged.is_expected = args.expect;
            if args.expect || !program.expected().is_empty() {
                judged.unmet = program.differences(&judged.findings);
            }
            if args.witness {
                judged.findings.truncate(SHOWN_MAX);
                judged.witnesses = witness::witnesses(&text, &program, &judged.findings);
            }
            Ok((text, judged))
        }
        Source::Trace(_) if args.witness => {
            Err(Refusal::new(Place::Whole, "an operation trace has no witness: it is not run again")
                .help("leave --witness out, or write what is wrong as a litmus program"))
        }
        Source::Trace(mut trace) => {
            let judged = judge_until(&mut *trace, args.settings(Settings::RECORDED), Trace::is_whole)?;
            match trace.cut() {
                Some(cut) if judged.operations == 0 => Err(cut),
                _ => Ok((String::new(), judged)),
            }
        }
    }
}

fn show(path: &Path, text: &str, judged: &Judged, out: &mut dyn Write) -> io::Result<()> {
    let mut sources = render::Sources::new(path, text);
    let folded = folded(&judged.findings);
    for (at, again) in folded.iter().take(SHOWN_MAX) {
        let finding = &judged.findings[*at];
        writeln!(out, "{}\n", sources.render(finding, *again))?;
        if let Some(witness) = judged.witnesses.get(*at).filter(|_| !finding.kind.is_advice()) {
            witness::show(witness, out)?;
        }
    }
    let said: u64 = folded.iter().take(SHOWN_MAX).map(|(_, again)| 1 + *again as u64).sum();
    let hidden = (judged.violations + judged.advice).saturating_sub(said);
    if hidden > 0 {
        writeln!(out, "... and {hidden} more")?;
    }
    for unmet in &judged.unmet {
        writeln!(out, "{}: {unmet}", shown_path(path))?;
    }
    if judged.was_stopped {
        let what = "the trace was cut: the program was stopped, and what it did last is missing";
        writeln!(out, "{}: {what}; what is there is checked, without leaks", shown_path(path))?;
    }
    writeln!(out, "{}: {}", shown_path(path), summary(judged))
}

/// Groups findings of the same rule at the same places. Returns the first of each group and the number of repetitions.
fn folded(findings: &[Finding]) -> Vec<(usize, usize)> {
    let mut folded: Vec<(usize, usize)> = Vec::new();
    let mut first: HashMap<String, usize> = HashMap::new();
    for (at, finding) in findings.iter().enumerate() {
        // Findings without a place are the same only if their sentences are.
        let is_placed = finding.spot().is_some_and(|spot| *spot != Spot::default());
        let key = finding.key() + if is_placed { "" } else { &finding.sentence };
        match first.entry(key) {
            Entry::Occupied(it) => folded[*it.get()].1 += 1,
            Entry::Vacant(it) => {
                it.insert(folded.len());
                folded.push((at, 0));
            }
        }
    }
    folded
}

/// Summarises in one line how much was read and what was found.
fn summary(judged: &Judged) -> String {
    let some = |count: u64, one: &str, many: &str| match count {
        0 => format!("no {many}"),
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let operations = some(judged.operations, "operation", "operations");
    let violations = some(judged.violations, "violation", "violations");
    let advice = match judged.advice {
        0 => String::new(),
        advice => format!(", {}", some(advice, "piece of advice", "pieces of advice")),
    };
    let expected = if judged.is_expected && judged.unmet.is_empty() { ", as expected" } else { "" };
    format!("{operations}, {violations}{advice}{expected}")
}
