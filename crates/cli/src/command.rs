//! Parses the arguments and runs the subcommand.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{ColorChoice, Parser, ValueEnum};

use crate::args::{Args, Command, Limits};
use crate::replay::Open;
use crate::stop::{Stop, complain};
use crate::{Status, attach, check, devices, forgotten, manual, plan, replay, view};

/// Runs the command. Colours are written as terminal codes; `out` and `err` remove them where colours are not wanted.
/// Streams of `anstream` that are created at the first write follow `--color`.
///
/// # Errors
/// `out` or `err` cannot be written.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    open: Open<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Status> {
    let words: Vec<OsString> = args.into_iter().collect();
    match perform(&words, open, out, err) {
        Ok(status) => Ok(status),
        Err(Stop::Output(error)) => Err(error),
        Err(Stop::Said(status, text)) => complain(err, &text).map(|()| status),
    }
}

fn perform(words: &[OsString], open: Open<'_>, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            colour(color_of(words));
            let text = error.render();
            if !error.use_stderr() {
                write!(out, "{}", text.ansi())?;
                return Ok(Status::Fine);
            }
            if let Some(said) = forgotten::gone(words).map(str::to_owned).or_else(|| forgotten::dashes(words)) {
                return Err(Stop::bad_input(said));
            }
            write!(err, "{}", text.ansi())?;
            return Ok(Status::BadInput);
        }
    };
    colour(args.color);
    match &args.command {
        Command::Replay(replay) => replay::run(replay, open, out, err),
        Command::Check(check) if !check.program.is_empty() => {
            let (races, deep, require_calls) = (check.all_races, check.deep, check.require_calls);
            let files = check.report_files().map_err(Stop::bad_input)?;
            let wish = attach::Wish::Check { races, deep, require_calls, files };
            attach::run(wish, &check.program, check.keep_allocator, err)
        }
        Command::Check(check) => match forgotten::dashes(words) {
            Some(said) => Err(Stop::bad_input(said)),
            None => check::run(check, out, err),
        },
        Command::Record(record) => {
            attach::run(attach::Wish::Record(&record.output), &record.program, record.keep_allocator, err)
        }
        Command::Run(run) => {
            let (by_driver, report, check, deep) = (run.driver_pool, run.report, run.check, run.deep);
            // Inside of another `run --limit`, HAMi's variables are the environment of that one, and its limit stays.
            let is_limited = std::env::var_os("MILLPOND_INTERPOSE_LIMIT").is_some();
            let hami = || match is_limited {
                true => Ok(None),
                false => Limits::of_hami(std::env::vars_os()).map_err(Stop::bad_input),
            };
            let limit = run.limit.clone().map_or_else(hami, |limit| Ok(Some(limit)))?;
            let wish = attach::Wish::Serve { by_driver, report, check, deep, limit: limit.as_ref() };
            attach::run(wish, &run.program, run.keep_allocator, err)
        }
        Command::Shake(shake) => attach::shake::run(shake, err),
        Command::Plan(plan) => plan::run(plan, out, err),
        Command::View(view) => view::run(view, open, out, err),
        Command::Devices(devices) => devices::run(devices, out),
        Command::Completions { shell } => manual::completions(*shell, out),
        Command::Man { subcommand } => manual::page(subcommand.as_deref(), out),
    }
}

/// Sets the colour choice of all `anstream` streams that are created from now on.
fn colour(choice: ColorChoice) {
    let choice = match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

/// Returns the value of `--color` in a command line that asks for help or is wrong, to colour the answer.
fn color_of(words: &[OsString]) -> ColorChoice {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--").collect();
    let given = words.iter().enumerate().filter_map(|(at, word)| match word.strip_prefix("--color")? {
        "" => words.get(at + 1).map(|next| &**next),
        value => value.strip_prefix('='),
    });
    given.filter_map(|value| ColorChoice::from_str(value, false).ok()).next_back().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colours_of_wrong_words_are_as_asked() {
        let of = |words: &[&str]| color_of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["millpond", "chekc", "--color", "never"]), ColorChoice::Never);
        assert_eq!(of(&["millpond", "--color=always", "chekc"]), ColorChoice::Always);
        assert_eq!(of(&["millpond", "--color"]), ColorChoice::Auto);
        assert_eq!(of(&["millpond", "--color=blue", "--colors=never"]), ColorChoice::Auto);
        assert_eq!(of(&["millpond", "check", "--", "ls", "--color=never"]), ColorChoice::Auto);
    }
}
