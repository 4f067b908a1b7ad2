//! The files of a check: what the user asked for, read or tried before the program runs, and written after it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millpond_core::check::{Found, Suppressions};
use serde::Serialize;

use super::report::{Counts, Report};
use super::{Ended, counted, fresh, sarif};
use crate::output::{is_same, write_file};
use crate::refusal::{cause, shown_path};

/// The largest number of rules that are listed because they suppressed nothing.
const UNUSED_MAX: usize = 50;

/// The files that the user names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'a> {
    /// The file for JSON.
    pub json: Option<&'a Path>,
    /// The file for SARIF.
    pub sarif: Option<&'a Path>,
    /// The file for the text that would go to standard error.
    pub text: Option<&'a Path>,
    /// The file with the rules for findings that are not wanted.
    pub suppressions: Option<&'a Path>,
    /// Also print a rule for each finding.
    pub print_suppressions: bool,
}

/// The files, once it is known that they can be read and written.
#[derive(Debug, Default)]
pub(super) struct Asked {
    json: Option<PathBuf>,
    sarif: Option<PathBuf>,
    /// The file for the text.
    pub(super) text: Option<PathBuf>,
    suppressions: Option<(PathBuf, Suppressions)>,
    prints_suppressions: bool,
}

/// One finding in JSON.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    found: &'a Found,
    /// How often it was found at these places.
    count: u64,
}

/// The findings of a program, as JSON.
#[derive(Serialize)]
struct Json<'a> {
    program: Vec<String>,
    /// The program's exit status.
    status: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    violations: u64,
    suppressed: u64,
    findings: Vec<Entry<'a>>,
    coverage: Counts<'a>,
}

impl Files<'_> {
    /// Tries the files for output, and reads the suppressions.
    ///
    /// # Errors
    /// A file that cannot be read or written, named twice, or that is the program; or a line that is no rule.
    pub(super) fn open(self, program: &Path, args: &[OsString]) -> Result<Asked, String> {
        let new = |path: Option<&Path>| path.map(|path| fresh(path, "a report", program, args)).transpose();
        let suppressions = self.suppressions.map(read_suppressions).transpose()?;
        let (json, sarif, text) = (new(self.json)?, new(self.sarif)?, new(self.text)?);
        let written: Vec<&PathBuf> = json.iter().chain(&sarif).chain(&text).collect();
        for (at, path) in written.iter().enumerate() {
            let is_read = suppressions.as_ref().is_some_and(|(read, _)| is_same(read, path));
            if is_read || written[..at].iter().any(|other| will_be_same(other, path)) {
                let reason = "it is read or written already: name another file";
                return Err(format!("{}: cannot be written: {reason}", shown_path(path)));
            }
        }
        if let Some(path) = &text {
            // The program's processes append to it.
            let refuse = |error| format!("{}: cannot be written: {}", shown_path(path), cause(&error));
            File::create(path).map_err(refuse)?;
        }
        Ok(Asked { json, sarif, text, suppressions, prints_suppressions: self.print_suppressions })
    }
}

/// Returns `true` if two files that may not exist yet are the same one.
fn will_be_same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| fs::canonicalize(path.parent()?).ok();
    is_same(one, other) || one.file_name() == other.file_name() && folder(one) == folder(other)
}

fn read_suppressions(path: &Path) -> Result<(PathBuf, Suppressions), String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {}", shown_path(path), cause(&error)))?;
    let rules =
        Suppressions::parse(&text).map_err(|wrong| format!("{}:{}: {}", shown_path(path), wrong.line, wrong.reason))?;
    Ok((path.to_owned(), rules))
}

impl Asked {
    /// Writes the rules for the program's processes into a folder. Returns the file.
    pub(super) fn hand_on_rules(&self, folder: &Path) -> io::Result<Option<PathBuf>> {
        let Some((_, rules)) = &self.suppressions else { return Ok(None) };
        let file = folder.join("suppressions");
        let lines: Vec<&str> = rules.rules().iter().map(|rule| &*rule.text).collect();
        fs::write(&file, lines.join("\n"))?;
        Ok(Some(file))
    }

    /// Opens the file for the text, if there is one. The program's processes have written to it.
    pub(super) fn text(&self) -> Option<io::Result<File>> {
        self.text.as_ref().map(|path| File::options().append(true).create(true).open(path))
    }

    /// Prints what the rules suppressed, which suppressed nothing, and new rules if they are wanted.
    pub(super) fn show_rules(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        if let Some((path, rules)) = &self.suppressions {
            let mut unused = Vec::new();
            for (at, rule) in rules.rules().iter().enumerate() {
                let place = format!("{}:{}", shown_path(path), rule.line);
                match report.suppressed(at) {
                    0 => unused.push(format!("{place}: {}", rule.text)),
                    count => {
                        writeln!(out, "millpond: suppressed {}: {place}", counted(count, "violation", "violations"))?
                    }
                }
            }
            for rule in unused.iter().take(UNUSED_MAX) {
                writeln!(out, "millpond: suppressed nothing: {rule}")?;
            }
            if let Some(more @ 1..) = unused.len().checked_sub(UNUSED_MAX) {
                let more = counted(more as u64, "rule", "rules");
                writeln!(out, "millpond: suppressed nothing: ... and {more} more of {}", shown_path(path))?;
            }
        }
        if self.prints_suppressions && report.has_findings() {
            writeln!(out, "millpond: rules for --suppressions:")?;
            let mut rules: Vec<String> = report.findings().map(|(_, found)| found.suppression()).collect();
            rules.sort();
            rules.dedup();
            rules.iter().try_for_each(|rule| writeln!(out, "{rule}"))?;
        }
        Ok(())
    }

    /// Writes the files.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub(super) fn write(&self, report: &Report, program: &[OsString], ended: Ended) -> Result<(), String> {
        let program: Vec<String> = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut written = Ok(());
        if let Some(path) = &self.json {
            let rules = self.suppressions.as_ref().map_or(0, |(_, rules)| rules.rules().len());
            let (status, signal) = ended.parts();
            let json = Json {
                status,
                signal,
                violations: report.findings().map(|(count, _)| count).sum(),
                suppressed: (0..rules).map(|rule| report.suppressed(rule)).sum(),
                findings: report.findings().map(|(count, found)| Entry { found, count: *count }).collect(),
                coverage: report.counts(),
                program: program.clone(),
            };
            written = write(path, &json);
        }
        if let Some(path) = &self.sarif {
            let base = std::env::current_dir().map_err(|error| cause(&error).to_string())?;
            written = written.and(write(path, &sarif::log(report.findings(), &base, &program, ended)));
        }
        written
    }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let written = write_file(path, &[], |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    });
    written.map_err(|refusal| refusal.to_string())
}
