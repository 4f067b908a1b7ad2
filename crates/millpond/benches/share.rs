//! Time of sharing memory between processes on the host device: export, import, free of an import.
//!
//! Run with `cargo bench -p millpond --bench share`. The importer is another process, this program again. A time is the
//! median of the rounds. Import is from the call to a buffer that kernels can use.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use millpond::config::Slack;
use millpond::share::Ticket;
use millpond::{Buffer, Device, HostConfig, MIB, PoolConfig, Result};

const ROUNDS: usize = 51;
/// Selects the importer's role.
const ROLE: &str = "MILLPOND_BENCH_IMPORTER";

fn main() -> Result<()> {
    if std::env::var_os(ROLE).is_some() {
        return importer();
    }
    if std::env::args().any(|arg| arg == "--test") {
        return Ok(());
    }
    println!("{:<44} {:>9} {:>9} {:>9} {:>9}", "", "export us", "import us", "both us", "free us");
    measure("4 KiB", 4096, Slack::Adaptive, false)?;
    measure("256 MiB, chunks of 2 MiB", 256 * MIB, Slack::Adaptive, false)?;
    measure("256 MiB, chunks of 2 MiB, pool imported", 256 * MIB, Slack::Adaptive, true)?;
    measure("256 MiB, slack 1: chunks of 32 MiB", 256 * MIB, Slack::Fixed(1.0), false)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the microseconds of a call, and its result.
fn time<R>(act: impl FnOnce() -> Result<R>) -> Result<(f64, R)> {
    let start = Instant::now();
    let done = act()?;
    Ok((start.elapsed().as_secs_f64() * 1e6, done))
}

fn measure(what: &str, bytes: u64, slack: Slack, keeps_pool: bool) -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let pool = device.pool(PoolConfig::default().shareable(true).slack(slack))?;
    let stream = device.stream()?;
    let buffer = stream.alloc::<u8>(&pool, bytes as usize)?;
    stream.synchronize()?;
    let pool_ticket = if keeps_pool { pool.export()?.to_string() } else { "-".into() };
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    let spawned = command.env(ROLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("another process");
    let times = rounds(&mut child, &buffer, &pool_ticket);
    child.wait().expect("it ends");
    let times = times?;
    let [export, import, free] = [0, 1, 2].map(|column| median(times.iter().map(|times| times[column]).collect()));
    let both = median(times.iter().map(|times| times[0] + times[1]).collect());
    println!("{what:<44} {export:>9.1} {import:>9.1} {both:>9.1} {free:>9.1}");
    Ok(())
}

/// Returns the microseconds of the export, the import and the free in each round.
fn rounds(child: &mut Child, buffer: &Buffer<u8>, pool_ticket: &str) -> Result<Vec<[f64; 3]>> {
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    writeln!(input, "{pool_ticket}").expect("it listens");
    let round = |_| {
        let (export, ticket) = time(|| buffer.export())?;
        writeln!(input, "{ticket}").expect("it listens");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        let times: Vec<f64> = line.split_whitespace().map(|time| time.parse().expect("a time")).collect();
        Ok([export, times[0], times[1]])
    };
    (0..ROUNDS).map(round).collect()
}

fn importer() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let mut lines = std::io::stdin().lines().map(|line| line.expect("text"));
    let pool = lines.next().filter(|line| line != "-");
    let pool = pool.map(|ticket| device.import_pool(&ticket.parse()?)).transpose()?;
    for line in lines {
        let ticket: Ticket = line.parse()?;
        // SAFETY: nothing uses it.
        let (import, buffer) = time(|| unsafe { device.import::<u8>(&ticket) })?;
        let (free, ()) = time(|| free(&stream, buffer))?;
        println!("{import} {free}");
    }
    drop(pool);
    Ok(())
}

fn free(stream: &millpond::Stream, buffer: Buffer<u8>) -> Result<()> {
    stream.free(buffer)?;
    stream.synchronize()
}
