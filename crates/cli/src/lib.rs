//! The command `millpond` as a library, so that its parts can be tested and fuzzed one by one.
//!
//! | module | one line |
//! |---|---|
//! | [`args`] | what the command understands |
//! | [`plan`] | `millpond plan`: places known lifetimes |
//! | [`recorded`] | recorded programs, read from files |
//! | [`replay`] | `millpond replay`: serves them and reports |
#![forbid(unsafe_code)]

pub mod args;
pub mod plan;
pub mod recorded;
pub mod replay;

use std::ffi::OsString;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use clap::Parser;

use args::{Args, Command};
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
        Command::Plan(plan) => plan::run(plan, out, err),
    }
}

/// An error, on a line of its own.
pub(crate) fn complain(err: &mut dyn Write, text: &str) -> io::Result<()> {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    writeln!(err, "{style}error:{style:#} {text}")
}
