//! The arguments of the commands that run any unmodified CUDA program.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgGroup;

use super::limit::Limits;
use super::values::file_to_write;

/// The arguments of `millpond record`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RECORD_EXAMPLES)]
pub struct Record {
    /// The file for the trace; an existing file is replaced once there is an operation to write
    #[arg(short, long, value_name = "FILE", value_parser = file_to_write())]
    pub output: PathBuf,

    /// Leave PyTorch's allocator as it is in a Python program: Millpond then sees its segments, but no tensor
    #[arg(long)]
    pub keep_allocator: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

const RECORD_EXAMPLES: &str = concat!(
    "\
Examples:
  millpond record -o run.trace -- ./program --its arguments
  millpond check run.trace

Exit status: the program's; 2 where it cannot be run so, or FILE cannot be written.

More: ",
    page!("any-program")
);

/// The arguments of `millpond run`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RUN_EXAMPLES, group = ArgGroup::new("purpose").args(["report", "limit"]).multiple(true))]
pub struct Run {
    /// Report at the end how much memory was reserved and used, and how long allocations and frees took
    #[arg(long)]
    pub report: bool,

    /// Leave memory to CUDA's own pools; --report then gives their figures, and --limit counts their memory
    #[arg(long, requires = "purpose")]
    pub driver_pool: bool,

    /// The most device memory that the program and its child processes may use together: 8GiB, 50%, or 0:8GiB,1:4GiB
    ///
    /// An amount is in bytes, or a part of the device's memory. An amount after a device's number is for that device.
    /// An allocation that would pass the limit gets CUDA's code for no memory (2). Without this option the variables
    /// CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_MEMORY_LIMIT_0, _1 ... of HAMi are read.
    #[arg(long, value_name = "AMOUNT", value_parser = Limits::parse)]
    pub limit: Option<Limits>,

    /// Also check the program, as `millpond check -- PROGRAM` does
    #[arg(long)]
    pub check: bool,

    /// With --check, record the whole stack of each call, and show the stacks of both operations with each violation
    #[arg(long, requires = "check")]
    pub deep: bool,

    /// Leave PyTorch's allocator as it is in a Python program: it then uses no stream-ordered memory
    #[arg(long)]
    pub keep_allocator: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

const RUN_EXAMPLES: &str = concat!(
    "\
Examples:
  millpond run -- ./program --its arguments
  millpond run --report -- python train.py
  millpond run --limit 8GiB -- python train.py
  millpond run --report --driver-pool -- python train.py

Exit status: the program's; 2 where it cannot be run so; with --check, 1 where something was found and it ended \
with 0.

More: ",
    page!("any-program")
);
