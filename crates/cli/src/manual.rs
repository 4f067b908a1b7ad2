//! `millpond completions` and `millpond man`: shell completions and manual pages, made from the arguments' definition.
//!
//! Uses only the definition, and runs no subcommand.

use std::io::Write;

use clap::CommandFactory;

use crate::args::Args;
use crate::{Status, Stop};

/// Writes the completion script of a shell.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<Status, Stop> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "millpond", &mut text);
    out.write_all(&text)?;
    Ok(Status::Fine)
}

/// Writes a manual page in roff.
///
/// # Errors
/// There is no such subcommand, or `out` cannot be written.
pub(crate) fn page(subcommand: Option<&str>, out: &mut dyn Write) -> Result<Status, Stop> {
    let mut command = Args::command();
    command.build();
    let found = match subcommand {
        None => command,
        Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| {
            Stop::bad_input(format!("`{name}` is not a subcommand\n  help: `millpond --help` lists them"))
        })?,
    };
    let source = concat!("millpond ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(found).source(source).render(out)?;
    Ok(Status::Fine)
}
