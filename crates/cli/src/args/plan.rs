//! The arguments of `millpond plan`.

use std::path::PathBuf;

use super::values::{file_to_write, parse_capacity, parse_seconds};

/// The arguments of `millpond plan`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = PLAN_EXAMPLES)]
pub struct Plan {
    /// The table of lifetimes, gzipped or not; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The capacity that must suffice, in bytes, such as 1048576 or 64MiB; without it, the smallest capacity is
    /// searched
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_capacity)]
    pub capacity: Option<u64>,

    /// The file for the table with offsets
    ///
    /// Without it the table goes to standard output and the report to standard error; with --json there is no table.
    #[arg(short, long, value_name = "FILE", value_parser = file_to_write())]
    pub output: Option<PathBuf>,

    /// Draw the plan into this file: steps to the right, bytes upwards
    #[arg(long, value_name = "FILE", value_parser = file_to_write())]
    pub svg: Option<PathBuf>,

    /// The longest time to search
    #[arg(
        long,
        value_name = "N", allow_negative_numbers = true, default_value_t = 60.0,
        value_parser = parse_seconds, conflicts_with = "quick",
    )]
    pub seconds: f64,

    /// Use first fit only, without a search
    #[arg(long)]
    pub quick: bool,

    /// Print one JSON object, with the offsets in it, and nothing else
    #[arg(long)]
    pub json: bool,
}

const PLAN_EXAMPLES: &str = concat!(
    "\
Examples:
  millpond plan instances/quilt.1048576.csv --capacity 1MiB -o offsets.csv --svg plan.svg
  millpond plan lifetimes.csv --seconds 5 > offsets.csv
  millpond plan lifetimes.csv --json | jq '[.capacity_bytes, .bound_bytes]'

Exit status: 0 all is well, 1 the capacity was not reached (the plan found is written all the same), 2 bad input.

More: ",
    page!("plan")
);
