//! `millpond plan`: reads lifetimes, plans their placement, verifies the plan, writes it and reports.
//!
//! This module has the clock and the files; [`millpond_plan`] makes all decisions.
//! Invariant **verified**: no offset is written before [`millpond_plan::verify`] has accepted the plan.

mod instance;
mod progress;
mod report;
mod svg;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use millpond_plan::{Budget, Effort, Outcome, Plan, Progress, solve, verify};

use crate::args::Plan as Args;
use crate::output::write_file;
use crate::recorded::{Refusal, csv};
use crate::refusal::shown_path;
use crate::{Status, Stop};

pub use instance::{Instance, Row, read, read_file};
pub use report::Report;

/// Runs the command.
///
/// # Errors
/// Fails if an input is wrong, or if `out` or `err` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    let instance = read_file(&args.file)?;
    for note in &instance.notes {
        writeln!(err, "note: {}: {note}", shown_path(&args.file))?;
    }
    let began = Instant::now();
    let outcome = place(&instance, args, began + Duration::from_secs_f64(args.seconds));
    let report = Report::new(args, &instance, &outcome, began.elapsed());
    if let Err(fault) = verify(&instance.problem, &outcome.plan) {
        let text = format!("{}: the plan is wrong, and was not written: {fault}", shown_path(&args.file));
        return Err(Stop::Said(Status::Found, text));
    }
    write_files(args, &instance, &outcome)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else if args.output.is_some() {
        write!(out, "{}", report.text())?;
    } else {
        write_offsets(out, &instance, &outcome.plan)?;
        out.flush()?;
        write!(err, "{}", report.text())?;
    }
    Ok(if report.reached() { Status::Fine } else { Status::Found })
}

/// Solves until `end`, and shows the progress on a terminal.
fn place(instance: &Instance, args: &Args, end: Instant) -> Outcome {
    let mut sign = progress::Sign::new();
    let mut watch = |progress: &Progress| {
        sign.show(progress);
        Instant::now() < end
    };
    let effort = if args.quick { Effort::Quick } else { Effort::Search(Budget::steps(u64::MAX).watched(&mut watch)) };
    let outcome = solve(&instance.problem, args.capacity, effort);
    sign.finish();
    outcome
}

/// Writes the requested files.
fn write_files(args: &Args, instance: &Instance, outcome: &Outcome) -> Result<(), Refusal> {
    if let Some(path) = &args.output {
        write_file(path, &[&args.file], |file| write_offsets(file, instance, &outcome.plan))?;
    }
    if let Some(path) = &args.svg {
        let others: Vec<_> = [args.file.as_path()].into_iter().chain(args.output.as_deref()).collect();
        write_file(path, &others, |file| svg::write(file, instance, outcome, args.capacity))?;
    }
    Ok(())
}

/// Writes the rows of the instance, each with its offset.
fn write_offsets(out: &mut dyn Write, instance: &Instance, plan: &Plan) -> io::Result<()> {
    let aligned = instance.rows.iter().any(|row| row.buffer.alignment != 1);
    writeln!(out, "id,lower,upper,size,{}offset", if aligned { "alignment," } else { "" })?;
    for (row, offset) in instance.rows.iter().zip(&plan.offsets) {
        write!(out, "{},{},{},{},", csv::field(&row.id), row.life.lower, row.life.upper, row.buffer.bytes)?;
        if aligned {
            write!(out, "{},", row.buffer.alignment)?;
        }
        writeln!(out, "{offset}")?;
    }
    Ok(())
}
