//! Footprint of recorded programs in the pool, and what its driver calls would cost.
//!
//! `cargo bench -p millpond-core --bench pool_traces -- [--slack adaptive,0.01,...] FILE...`
//!
//! A file is gzipped: JSON lines as PyTorch's memory history gives them (`["a", id, bytes, stream, us]` and
//! `["f", id, stream, us]` after a header), or lines `a <id> <bytes>` and `f <id>`. Each is played twice; what is live
//! at the end of a pass is freed there. All work is over at once. Prints one row a file and slack: peak reserved over
//! peak requested in the first and in the second pass, the driver calls of the second pass, and their price.

mod replay;
mod trace;

use millpond_core::pool::Slack;
use replay::{Outcome, replay};
use std::process::ExitCode;
use trace::Trace;

fn main() -> ExitCode {
    let mut slacks = vec![Slack::Adaptive];
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--slack" => match arguments.next().as_deref().map(parse_slacks) {
                Some(Some(list)) => slacks = list,
                _ => return refuse("--slack takes a list of numbers and `adaptive`"),
            },
            file => files.push(file.to_owned()),
        }
    }
    if files.is_empty() {
        eprintln!("no trace files given: nothing to measure");
        return ExitCode::SUCCESS;
    }
    println!(
        "| trace | slack | peak MiB | ratio 1 / 2 | over MiB | priced ms 1 / 2 | of its time | moves 1 / 2 | \
         ns an event |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for file in &files {
        let trace = match Trace::read(file) {
            Ok(trace) => trace,
            Err(reason) => return refuse(&format!("{file}: {reason}")),
        };
        for &slack in &slacks {
            row(&trace, slack, &replay(&trace, slack));
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

fn row(trace: &Trace, slack: Slack, passes: &[Outcome; 2]) {
    let [one, two] = passes;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let ratio = |pass: &Outcome| pass.peak_reserved as f64 / pass.peak_requested as f64;
    let share = match trace.seconds {
        Some(seconds) => format!("{:.2} %", two.priced_ns as f64 / 1e7 / seconds),
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
        ratio(two),
        mib(one.peak_reserved.max(two.peak_reserved) - one.peak_requested),
        one.priced_ns as f64 / 1e6,
        two.priced_ns as f64 / 1e6,
        one.unmaps,
        two.unmaps,
        two.wall_ns as f64 / trace.events.len() as f64,
    );
}
