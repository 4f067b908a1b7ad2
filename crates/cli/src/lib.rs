//! The command `millpond` as a library, so that its parts can be tested and fuzzed one by one.
//!
//! | module | one line |
//! |---|---|
//! | [`args`] | what the command understands |
//! | [`attach`] | `millpond record`, `check`, `run -- PROGRAM`: any CUDA program, unchanged |
//! | [`check`] | `millpond check`: is the order of a program right |
//! | [`devices`] | `millpond devices`: what this machine has |
//! | [`plan`] | `millpond plan`: places known lifetimes |
//! | [`recorded`] | recorded programs, read from files |
//! | [`replay`] | `millpond replay`: serves them and reports |
//! | [`view`] | `millpond view`: draws them as a page |
//!
//! Without the feature `command` only [`recorded`] and [`view::litmus_page`] are here, which need no device.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "command"), allow(dead_code))]

#[cfg(feature = "command")]
pub mod args;
#[cfg(feature = "command")]
pub mod attach;
#[cfg(feature = "command")]
pub mod check;
#[cfg(feature = "command")]
pub mod devices;
#[cfg(feature = "command")]
mod manual;
mod output;
#[cfg(feature = "command")]
pub mod plan;
pub mod recorded;
#[cfg(feature = "command")]
pub mod replay;
pub mod source;
pub mod view;

#[cfg(feature = "command")]
use std::ffi::OsString;
#[cfg(feature = "command")]
use std::io::{self, Write};

#[cfg(feature = "command")]
use anstyle::{AnsiColor, Style};
#[cfg(feature = "command")]
use clap::Parser;

#[cfg(feature = "command")]
use args::{Args, Command};
#[cfg(feature = "command")]
use replay::Open;

/// What the command ends with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Status {
    /// All is well.
    Fine = 0,
    /// Something was found: a touched byte changed, or a device could not serve.
    Found = 1,
    /// An argument or a file is wrong.
    BadInput = 2,
}

/// Runs the command. Colours are written as terminal codes: `out` and `err` leave them out where they do not belong.
///
/// # Errors
/// Where `out` or `err` cannot be written.
#[cfg(feature = "command")]
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
        Command::Replay(replay) => replay::run(replay, open, out, err),
        Command::Check(check) if !check.program.is_empty() => {
            attach::run(attach::Wish::Check { races: check.all_races }, &check.program, check.keep_allocator, err)
        }
        Command::Check(check) => check::run(check, out, err),
        Command::Record(record) => {
            attach::run(attach::Wish::Record(&record.output), &record.program, record.keep_allocator, err)
        }
        Command::Run(run) => {
            let wish = attach::Wish::Serve { by_driver: run.driver_pool, report: run.report, check: run.check };
            attach::run(wish, &run.program, run.keep_allocator, err)
        }
        Command::Plan(plan) => plan::run(plan, out, err),
        Command::View(view) => view::run(view, open, out, err),
        Command::Devices(devices) => devices::run(devices, out),
        Command::Completions { shell } => manual::completions(*shell, out),
        Command::Man { subcommand } => manual::page(subcommand.as_deref(), out, err),
    }
}

/// An error, on a line of its own.
#[cfg(feature = "command")]
pub(crate) fn complain(err: &mut dyn Write, text: &str) -> io::Result<()> {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    writeln!(err, "{style}error:{style:#} {text}")
}
