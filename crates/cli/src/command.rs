//! Arguments to subcommands.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

use crate::args::{Args, Command};
use crate::replay::Open;
use crate::{Status, attach, bench, check, devices, manual, plan, replay, view};

/// Runs the command. Colours are written as terminal codes: `out` and `err` leave them out where they do not belong.
///
/// # Errors
/// Where `out` or `err` cannot be written.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    open: Open<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Status> {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            let text = error.render();
            if error.use_stderr() {
                write!(err, "{}", text.ansi())?;
                return Ok(Status::BadInput);
            }
            write!(out, "{}", text.ansi())?;
            return Ok(Status::Fine);
        }
    };
    match &args.command {
        Command::Bench(it) => bench::run(it, out, err),
        Command::Replay(replay) => replay::run(replay, open, out, err),
        Command::Check(check) if !check.program.is_empty() => {
            let wish = attach::Wish::Check { races: check.all_races, deep: check.deep };
            attach::run(wish, &check.program, check.keep_allocator, err)
        }
        Command::Check(check) => check::run(check, out, err),
        Command::Record(record) => {
            attach::run(attach::Wish::Record(&record.output), &record.program, record.keep_allocator, err)
        }
        Command::Run(run) => {
            let (by_driver, report, check, deep) = (run.driver_pool, run.report, run.check, run.deep);
            let wish = attach::Wish::Serve { by_driver, report, check, deep };
            attach::run(wish, &run.program, run.keep_allocator, err)
        }
        Command::Plan(plan) => plan::run(plan, out, err),
        Command::View(view) => view::run(view, open, out, err),
        Command::Devices(devices) => devices::run(devices, out),
        Command::Completions { shell } => manual::completions(*shell, out),
        Command::Man { subcommand } => manual::page(subcommand.as_deref(), out, err),
    }
}
