//! The reason why a command ends early, and its error message.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::Status;
use crate::refusal::Refusal;

/// The reason why a command ends early.
#[derive(Debug)]
pub enum Stop {
    /// The output cannot be written.
    Output(io::Error),
    /// Something is wrong: the exit status and the message.
    Said(Status, String),
}

impl Stop {
    /// Makes the stop for a wrong argument or file.
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

/// Prints an error on a line of its own.
pub(crate) fn complain(err: &mut dyn Write, text: &str) -> io::Result<()> {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    writeln!(err, "{style}error:{style:#} {text}")
}
