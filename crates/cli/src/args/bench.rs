//! The arguments of `millpond bench`.

use std::path::PathBuf;

/// The arguments of `millpond bench`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Bench {
    /// How long to measure, about
    #[arg(
        long,
        value_name = "N", allow_negative_numbers = true, default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=3600),
    )]
    pub seconds: u32,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,

    /// Compare with the JSON of an earlier run
    ///
    /// A figure has changed where the rounds of both runs have no value in common: lowest to highest of the one lies
    /// apart from that of the other. The exit status is 1 where Millpond became slower so.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

const EXAMPLES: &str = concat!(
    "\
Examples:
  millpond bench
  millpond bench --seconds 10 --json > before.json
  millpond bench --compare before.json

Exit status: 0 all is well, 1 a figure became worse than --compare's by more than the spread, 2 bad input.

More: ",
    page!("bench")
);
