//! `millpond check --fix`: prints the program with the edges that its findings name, and lists what was added or left.

use std::io::Write;
use std::path::Path;

use millpond_core::check::Kind;
use millpond_litmus::{Added, Change, Fixed, Left, Program};

use super::{Source, judge, open};
use crate::args::Check as Args;
use crate::recorded::{Place, Refusal};
use crate::refusal::shown_path;
use crate::{Status, Stop};

/// Prints a litmus program with the edges that settle its findings. What was added and what is left goes to `err`.
///
/// # Errors
/// The file is not a litmus program, or `out` or `err` cannot be written.
pub(super) fn run(path: &Path, args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    let fixed = open(path).and_then(|source| match source {
        Source::Litmus { program, .. } if program.ops().is_empty() => Err(Refusal::no_statement("check")),
        Source::Litmus { text, program } => {
            let fixed = millpond_litmus::fix(&text, &|settings| args.settings(settings))?;
            Ok((fixed, not_found(&program, args)))
        }
        Source::Trace(_) => {
            Err(Refusal::new(Place::Whole, "an operation trace cannot be corrected: change the program")
                .help("without --fix each finding says what to change"))
        }
    });
    let file = shown_path(path);
    let (Fixed { text, changes, left }, not_found) = fixed.map_err(|refusal| refusal.in_file(path))?;
    out.write_all(text.as_bytes())?;
    for Change { finding, line, added } in &changes {
        let at = line.map_or_else(|| "a line that was put in".to_owned(), |line| format!("{file}:{line}"));
        let added: Vec<String> = added.iter().map(shown).collect();
        writeln!(err, "{at}: corrected {}: {}", finding.kind.name(), added.join(", "))?;
    }
    for group in left.chunk_by(|one, other| said(one) == said(other)) {
        let (kind, line, why) = said(&group[0]);
        let at = line.map_or_else(String::new, |line| format!(", now line {line}"));
        let more = if group.len() > 1 { format!(" ({} times)", group.len()) } else { String::new() };
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        writeln!(err, "{file}{at}: left {}{more}: {}{why}", kind.name(), group[0].finding.help())?;
    }
    not_found.iter().try_for_each(|unmet| writeln!(err, "{file}: {unmet}"))?;
    let is_wrong = !not_found.is_empty() || left.iter().any(|left| !left.finding.kind.is_advice());
    let (corrected, left) = (changes.len(), left.len());
    writeln!(err, "{file}: {corrected} corrected, {left} left")?;
    Ok(if is_wrong { Status::Found } else { Status::Fine })
}

/// Returns the same value for the same mistake, whatever round of a loop it is in.
fn said(left: &Left) -> (Kind, Option<u32>, Option<&str>) {
    (left.finding.kind, left.finding.line(), left.why)
}

/// Describes a line that was added or moved.
fn shown(added: &Added) -> String {
    match added.was {
        None => format!("line {} added, `{}`", added.line, added.text),
        Some(was) => format!("line {was} moved to line {}, `{}`", added.line, added.text),
    }
}

/// Returns the findings that the original program expects and that do not occur.
fn not_found(program: &Program, args: &Args) -> Vec<String> {
    let judged = match judge(&mut program.cursor(), args.settings(program.settings())) {
        Ok(judged) => judged,
        Err(never) => match never {},
    };
    program.not_found(&judged.findings)
}
