//! Host time of the checker: a launch with three declared accesses, and operations of a whole program.
//!
//! Run with `cargo bench -p millpond-core --bench check`. The workloads are those of `common/programs.rs`.

#[path = "common/programs.rs"]
mod programs;

use std::time::Instant;

use programs::{Judge, OPERATIONS, launches, mix};

/// The number of passes over the programs.
const ROUNDS: usize = 50;
const REPEATS: usize = 7;

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!("{:<12} {:>8} {:>12} {:>12}", "workload", "streams", "min ns/op", "median");
    for (name, make) in [("launches", launches as fn(u32) -> _), ("mix", mix)] {
        for streams in [1, 64, 1024] {
            let run = |_| {
                let mut judge = Judge::new(make(streams));
                let start = Instant::now();
                (0..ROUNDS).for_each(|_| judge.pass().expect("a right program"));
                start.elapsed().as_nanos() as f64 / (OPERATIONS * ROUNDS) as f64
            };
            let mut times: Vec<f64> = (0..REPEATS).map(run).collect();
            times.sort_by(f64::total_cmp);
            println!("{name:<12} {streams:>8} {:>12.1} {:>12.1}", times[0], times[REPEATS / 2]);
        }
    }
}
