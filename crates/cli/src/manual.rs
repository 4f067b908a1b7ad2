//! `millpond completions` and `millpond man`: what is known of the arguments, for shells and as pages.
//!
//! Knows the arguments' definition, and nothing of what they do.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::args::Args;
use crate::{Status, complain};

/// Writes a shell's completions.
///
/// # Errors
/// Where `out` cannot be written.
pub(crate) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> io::Result<Status> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "millpond", &mut text);
    out.write_all(&text)?;
    Ok(Status::Fine)
}

/// Writes a page in roff.
///
/// # Errors
/// Where `out` or `err` cannot be written.
pub(crate) fn page(subcommand: Option<&str>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Status> {
    let mut command = Args::command();
    command.build();
    let found = match subcommand {
        None => Some(command),
        Some(name) => command.find_subcommand(name).cloned(),
    };
    let Some(found) = found else {
        complain(
            err,
            &format!("`{}` is no subcommand\n  help: `millpond --help` lists them", subcommand.unwrap_or("")),
        )?;
        return Ok(Status::BadInput);
    };
    let source = concat!("millpond ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(found).source(source).render(out)?;
    Ok(Status::Fine)
}
