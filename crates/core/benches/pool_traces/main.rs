//! The footprint of recorded programs in the pool, and the cost of its driver calls.
//!
//! `cargo bench -p millpond-core --bench pool_traces -- [--slack adaptive,0.01,...] [--passes N] FILE...`
//!
//! A file is gzipped: JSON lines as in PyTorch's memory history (`["a", id, bytes, stream, us]` and `["f", id, stream,
//! us]` after a header), or lines `a <id> <bytes>` and `f <id>`. Each file is played several times. What is live at the
//! end of a pass is freed there, and the host synchronises. All work completes at once. Prints one row for each file
//! and slack, with values of the first pass and of the later ones: peak reserved over peak requested, the highest of
//! all later passes; the price of the driver calls, and the moves, on average of the later passes.

mod replay;
mod trace;

use millpond_core::pool::Slack;
use replay::{Outcome, replay};
use std::process::ExitCode;
use trace::Trace;

fn main() -> ExitCode {
    let mut slacks = vec![Slack::Adaptive];
    let mut passes = 5;
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--slack" => match arguments.next().as_deref().map(parse_slacks) {
                Some(Some(list)) => slacks = list,
                _ => return refuse("--slack takes a list of numbers and `adaptive`"),
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
        for &slack in &slacks {
            row(&trace, slack, &replay(&trace, slack, passes));
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
        number => number.parse().ok().map(Slack::Fixed),
    };
    list.split(',').map(one).collect()
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
    let slack = match slack {
        Slack::Adaptive => "adaptive".into(),
        Slack::Fixed(slack) => format!("{slack}"),
    };
    println!(
        "| {} | {slack} | {:.0} | {:.4} / {:.4} | {:.0} | {:.1} / {:.1} | {share} | {} / {} | {:.0} |",
        trace.name,
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
