//! The footprint of recorded programs in the pool, and the cost of its driver calls.
//!
//! `cargo bench -p millpond-core --bench pool_traces -- [--slack adaptive,pressure,0.01,...] [--device TIMES]
//! [--passes N] FILE...`
//!
//! A file is gzipped: JSON lines as in PyTorch's memory history (`["a", id, bytes, stream, us]` and `["f", id, stream,
//! us]` after a header), or lines `a <id> <bytes>` and `f <id>`. Each file is played several times. What is live at the
//! end of a pass is freed there, and the host synchronises. All work completes at once. Prints one row for each file
//! and slack, with values of the first pass and of the later ones: peak reserved over peak requested, the highest of
//! all later passes; the price of the driver calls, and the moves, on average of the later passes. The device has
//! 139 GiB, or with `--device` so many times the trace's peak; a trace that does not fit has a row that says so.

mod replay;
mod trace;

use millpond_core::pool::Slack;
use millpond_core::units::GIB;
use replay::{Outcome, replay};
use std::process::ExitCode;
use trace::Trace;

/// The bytes of an H200.
const DEVICE: u64 = 139 * GIB;

fn main() -> ExitCode {
    let mut slacks = vec![Slack::Adaptive];
    let (mut passes, mut times) = (5, None);
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--slack" => match arguments.next().as_deref().map(parse_slacks) {
                Some(Some(list)) => slacks = list,
                _ => return refuse("--slack takes a list of numbers, `adaptive` and `pressure`"),
            },
            "--device" => match arguments.next().map(|number| number.parse()) {
                Some(Ok(number)) => times = Some(number),
                _ => return refuse("--device takes a multiple of the trace's peak"),
            },
            "--passes" => match arguments.next().map(|number| number.parse()) {
                Some(Ok(number)) if number > 1 => passes = number,
                _ => return refuse("--passes takes a number from 2 on"),
            },
            file => files.push(file.to_owned()),
        }
    }
    if files.is_empty() {
        eprintln!("no trace files given: nothing to measure");
        return ExitCode::SUCCESS;
    }
    println!(
        "| trace | slack | peak MiB | ratio first / later | over MiB | priced ms first / later | of its time | \
         moves first / later | ns an event |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for file in &files {
        let trace = match Trace::read(file) {
            Ok(trace) => trace,
            Err(reason) => return refuse(&format!("{file}: {reason}")),
        };
        let device = times.map_or(DEVICE, |times: f64| (trace.peak() as f64 * times) as u64);
        for &slack in &slacks {
            match replay(&trace, slack, device, passes) {
                Some(passes) => row(&trace, slack, &passes),
                None => println!("| {} | {} | out of memory |", trace.name, name(slack)),
            }
        }
    }
    ExitCode::SUCCESS
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(2)
}

fn parse_slacks(list: &str) -> Option<Vec<Slack>> {
    let one = |word: &str| match word {
        "adaptive" => Some(Slack::Adaptive),
        "pressure" => Some(Slack::Pressure),
        number => number.parse().ok().map(Slack::Fixed),
    };
    list.split(',').map(one).collect()
}

fn name(slack: Slack) -> String {
    match slack {
        Slack::Adaptive => "adaptive".into(),
        Slack::Pressure => "pressure".into(),
        Slack::Fixed(slack) => format!("{slack}"),
    }
}

fn row(trace: &Trace, slack: Slack, passes: &[Outcome]) {
    let [one, later @ ..] = passes else { return };
    let mean = |part: fn(&Outcome) -> u64| later.iter().map(part).sum::<u64>() / later.len() as u64;
    let highest = later.iter().max_by_key(|pass| pass.peak_reserved).unwrap_or(one);
    let (priced_ns, unmaps, wall_ns) =
        (mean(|pass| pass.priced_ns), mean(|pass| pass.unmaps), mean(|pass| pass.wall_ns));
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let ratio = |pass: &Outcome| pass.peak_reserved as f64 / pass.peak_requested as f64;
    let share = match trace.seconds {
        Some(seconds) => format!("{:.2} %", priced_ns as f64 / 1e7 / seconds),
        None => "-".into(),
    };
    println!(
        "| {} | {} | {:.0} | {:.4} / {:.4} | {:.0} | {:.1} / {:.1} | {share} | {} / {} | {:.0} |",
        trace.name,
        name(slack),
        mib(one.peak_requested),
        ratio(one),
        ratio(highest),
        mib(one.peak_reserved.max(highest.peak_reserved) - one.peak_requested),
        one.priced_ns as f64 / 1e6,
        priced_ns as f64 / 1e6,
        one.unmaps,
        unmaps,
        wall_ns as f64 / trace.events.len() as f64,
    );
}
