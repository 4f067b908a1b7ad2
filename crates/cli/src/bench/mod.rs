//! `millpond bench`: what memory costs on this machine, beside mimalloc's and CUDA's own pool, in about a minute.
//!
//! | module | one line |
//! |---|---|
//! | `loops`, `malloc`, `programs` | what is timed: shared with the crates' benchmarks |
//! | `host_memory`, `held` | mimalloc, where it is built in |
//! | `rows` | which figures there are, and who takes turns in each |
//! | `rounds` | rounds and their spread |
//! | `figures` | what a run measured |
//! | `report` | that as JSON and text |
//! | `compare` | beside those of an earlier run |

mod compare;
mod figures;
mod host_memory;
mod loops;
// What calls an allocator of host memory cannot be had without.
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code)]
mod held;
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code)]
mod malloc;
mod programs;
mod report;
mod rounds;
mod rows;

use std::io::{self, Write};
use std::time::Duration;

use millpond::Device;
use millpond_driver::CudaConfig;
use millpond_driver::cuda::own_pool::OwnPool;
use millpond_driver::cuda::survey::survey;

use crate::args::Bench;
use crate::progress::Progress;
use crate::{Status, complain};
use loops::Outcome;

pub use compare::{Change, Compared, Ratio};
pub use figures::{Figures, Machine, Profile, Run};
pub use report::Report;
pub use rounds::Spread;
pub use rows::{Unit, Who};

/// Runs the command.
///
/// # Errors
/// Where `out` or `err` cannot be written.
pub fn run(args: &Bench, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Status> {
    let before = match args.compare.as_deref().map(|path| Ok((path, compare::read(path)?))).transpose() {
        Ok(before) => before,
        Err(refusal) => {
            let refusal: crate::recorded::Refusal = refusal;
            complain(err, &refusal.to_string())?;
            return Ok(Status::BadInput);
        }
    };
    let run = match measure(args.seconds, err)? {
        Ok(run) => run,
        Err(error) => {
            complain(err, &format!("the measurement ended early: {error}"))?;
            return Ok(Status::Found);
        }
    };
    let compared = before.map(|(path, before)| Compared::new(path, before, &run));
    let report = Report { run, compared };
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => write!(out, "{}", report.text())?,
    }
    let is_slower = report.compared.as_ref().is_some_and(Compared::is_slower);
    Ok(if is_slower { Status::Found } else { Status::Fine })
}

/// The CUDA device with its own pool.
struct Cuda {
    device: Device,
    own: OwnPool,
    name: String,
}

/// Says what will be done, and does it.
fn measure(seconds: u32, err: &mut dyn Write) -> io::Result<Outcome<Run>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, cores];
    counts.sort_unstable();
    counts.dedup();
    let mut left_out = Vec::new();
    if !cfg!(feature = "mimalloc") {
        left_out.push("mimalloc is left out: this command was built without it (feature `mimalloc`)".to_owned());
    }
    let cuda = match cuda() {
        Ok(cuda) => Some(cuda),
        Err(reason) => {
            left_out.push(format!("CUDA's own pool is left out: {reason}"));
            None
        }
    };
    let rows = rows::of_the_host(&counts).and_then(|mut rows: Vec<rows::Row<'_>>| {
        if let Some(Cuda { device, own, .. }) = &cuda {
            rows.extend(rows::of_cuda(device, own, &counts)?);
        }
        Ok(rows)
    });
    let mut rows = match rows {
        Ok(rows) => rows,
        Err(error) => return Ok(Err(error)),
    };
    let (figures, rounds, unit) = (rows.len(), rounds::ROUNDS, if seconds == 1 { "second" } else { "seconds" });
    writeln!(
        err,
        "measuring allocations with their frees, launch checks and the checker: {figures} figures in {rounds} rounds, \
         for about {seconds} {unit}; leave the machine idle"
    )?;
    for line in &left_out {
        writeln!(err, "{line}")?;
    }
    err.flush()?;
    let mut progress = Progress::new("bench", rounds::count(&rows) as u64);
    let measured = rounds::measure(&mut rows, Duration::from_secs(seconds.into()), &mut || progress.advance(1));
    progress.finish();
    let gpu = cuda.as_ref().map(|cuda| cuda.name.clone());
    Ok(measured.map(|measured| {
        let figures = rows.iter().zip(&measured).map(|(row, measured)| Figures::new(row, measured)).collect();
        Run::new(seconds, Machine { cpu: cpu(), cores, gpu }, figures, left_out)
    }))
}

/// The first CUDA device, or why there is none to measure.
fn cuda() -> Result<Cuda, String> {
    let devices = survey().and_then(|survey| survey.devices).map_err(|error| error.to_string())?;
    let facts = devices.into_iter().next().ok_or("no CUDA device is visible")?;
    let own = OwnPool::open(&CudaConfig::default()).map_err(|error| error.to_string())?;
    let device = Device::cuda(0).map_err(|error| error.to_string())?;
    Ok(Cuda { device, own, name: facts.name })
}

/// The processor's name, where Linux tells it.
fn cpu() -> String {
    let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = facts.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
