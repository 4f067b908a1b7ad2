//! How a subcommand says what is wrong.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// An error, on a line of its own.
pub(crate) fn complain(err: &mut dyn Write, text: &str) -> io::Result<()> {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    writeln!(err, "{style}error:{style:#} {text}")
}
