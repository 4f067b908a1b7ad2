//! `millpond replay`: reads recordings, lets a server serve them, and reports.
//!
//! Files are read and served one after the other. A refused file is reported, and the others are still served. This
//! module knows the server only as a [`Server`].

mod all;
mod compare;
mod passes;
mod report;
mod server;

use std::io::{self, Write};
use std::path::Path;

use crate::args::Replay;
use crate::progress::Progress;
use crate::recorded::{Place, Recorded, Refusal};
use crate::refusal::shown_path;
use crate::source;
use crate::stop::complain;
use crate::{Status, Stop};

pub use all::Totals;
pub use compare::{Comparison, PassRatios};
pub use report::Report;
pub use server::{Figures, Open, ServeError, Server, Setup};

/// Runs the command.
///
/// # Errors
/// Fails if an input is wrong, or if `out` or `err` cannot be written.
pub fn run(args: &Replay, open: Open<'_>, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    // The tables of two recordings are merged into one, which is printed at the end.
    let is_pair = args.files.len() == 2;
    let mut status = Status::Fine;
    let (mut reports, mut counts): (Vec<Report>, Vec<usize>) = Default::default();
    for file in &args.files {
        let found = match read(file, args.gpu) {
            Ok(found) => found,
            Err(refusal) => {
                complain(err, &refusal.to_string())?;
                status = status.max(Status::BadInput);
                continue;
            }
        };
        let before = reports.len();
        for recorded in found {
            match serve(args, open, file, &recorded) {
                Ok(report) => {
                    if !args.json {
                        let gap = if reports.is_empty() { "" } else { "\n" };
                        write!(out, "{gap}{}", report.head())?;
                        if !is_pair {
                            write!(out, "{}", report.tail())?;
                        }
                        out.flush()?;
                    }
                    reports.push(report);
                }
                Err(reason) => {
                    complain(err, &format!("{}: {reason}", shown_path(file)))?;
                    status = status.max(Status::Found);
                }
            }
        }
        counts.push(reports.len() - before);
    }
    finish(args, &reports, &counts, out)?;
    Ok(status)
}

/// Prints the summary of all programs. `counts` has the number of served programs of each file.
fn finish(args: &Replay, reports: &[Report], counts: &[usize], out: &mut dyn Write) -> io::Result<()> {
    // A file that was refused, or that has several programs, cannot be compared.
    let pair = match (reports, counts) {
        ([first, second], [1, 1]) => Some((first, second)),
        _ => None,
    };
    if args.json {
        let json = match reports {
            [only] if args.files.len() == 1 => serde_json::to_string_pretty(only)?,
            _ => {
                let comparison = pair.map(|(first, second)| Comparison::of(first, second));
                serde_json::to_string_pretty(&all::All::of(reports, comparison))?
            }
        };
        return writeln!(out, "{json}");
    }
    if let Some((first, second)) = pair {
        return write!(out, "\n{}", compare::text(first, second));
    }
    if args.files.len() == 2 {
        for report in reports {
            write!(out, "\n{}{}", report.title(), report.tail())?;
        }
    }
    if reports.len() > 1 {
        write!(out, "\n{}", report::summary(reports))?;
    }
    Ok(())
}

/// Returns the programs of a file, or those of one GPU.
fn read(file: &Path, gpu: Option<u32>) -> Result<Vec<Recorded>, Refusal> {
    let mut found = source::read_file(file)?;
    let Some(gpu) = gpu else { return Ok(found) };
    let known: Vec<String> = found.iter().filter_map(|recorded| recorded.gpu).map(|gpu| gpu.to_string()).collect();
    if known.is_empty() {
        return Err(Refusal::no_gpus().in_file(file));
    }
    found.retain(|recorded| recorded.gpu.is_none_or(|of| of == gpu));
    if found.is_empty() {
        let refusal = Refusal::new(Place::Whole, format!("GPU {gpu} has no allocation in this snapshot"));
        return Err(refusal.help(format!("those that have: {}", known.join(", "))).in_file(file));
    }
    Ok(found)
}

/// Serves one program and measures it.
fn serve(args: &Replay, open: Open<'_>, file: &Path, recorded: &Recorded) -> Result<Report, String> {
    let program = &recorded.program;
    let mut server = Setup::new(args.device, &args.pool, program).open(open)?;
    let mut progress = Progress::new(&program.name, program.events.len() as u64 * u64::from(args.repeat));
    let served = passes::serve(program, &mut *server, args.repeat, &mut |events| progress.advance(events));
    progress.finish();
    let passes = served.map_err(|failure| failure.to_string())?;
    Ok(Report::new(file, recorded, args.device, &passes))
}
