//! Why a command ends before it is done, and how that is said.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::Status;
use crate::refusal::Refusal;

/// Why a command ends before it is done.
#[derive(Debug)]
pub enum Stop {
    /// Its output cannot be written.
    Output(io::Error),
    /// Something is wrong: what it ends with, and what is said.
    Said(Status, String),
}

impl Stop {
    /// An argument or a file is wrong.
    pub(crate) fn bad_input(text: impl Into<String>) -> Self {
        Stop::Said(Status::BadInput, text.into())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::bad_input(refusal.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Output(error)
    }
}

impl From<serde_json::Error> for Stop {
    fn from(error: serde_json::Error) -> Self {
        Stop::Output(error.into())
    }
}

/// An error, on a line of its own.
pub(crate) fn complain(err: &mut dyn Write, text: &str) -> io::Result<()> {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    writeln!(err, "{style}error:{style:#} {text}")
}
