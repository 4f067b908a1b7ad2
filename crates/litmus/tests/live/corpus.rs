//! The litmus programs on the library itself, on the host device and on CUDA: the same verdicts at the same lines.
//!
//! Work really runs: on the host device each launch writes or sums the bytes that it declares; on CUDA it fills what it
//! writes. `MILLPOND_TEST_DEVICE=cuda` runs the programs on a GPU. Programs with something that the library's types
//! exclude (an event recorded again, a stream used after its end, other processes) are not run here. The tests below
//! assert how many run.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_litmus::Program;
use millpond_runner::{Found, Place, Refusal, Schedule, Timing};

use crate::files::corpus;
use crate::is_said;

/// Programs that the library deliberately judges differently from CUDA. For another graph's free node it checks only
/// that no third graph frees the owner's memory. The launch of that graph is refused later, because the memory is not
/// live. A query of the legacy default stream is an operation there, a real barrier. The library does not report
/// captures that are never ended.
const OTHERWISE: &[&str] = &[
    "freed-by-owner-then-another.litmus",
    "query-of-the-legacy-stream-that-says-no.litmus",
    "capture-never-ended.litmus",
];

pub(crate) fn run(program: &Program, place: Place) -> Result<Found, String> {
    match program.settings().races {
        true => millpond_runner::run(program.ops(), place, None, &|| None).map_err(|why| why.to_string()),
        false => Err("settings of its own".into()),
    }
}

/// Runs every program that can be run there. Each gets the verdicts that it states.
fn verdicts_are_as_stated(place: Place, at_least: usize) {
    let (mut ran, mut wrong, mut skipped) = (0, Vec::new(), Vec::new());
    for (name, text) in corpus() {
        let program = Program::parse(&text).expect("it can be read");
        match run(&program, place) {
            Ok(_) if OTHERWISE.iter().any(|it| name.ends_with(it)) => skipped.push(format!("{name}: judged otherwise")),
            Err(why) => skipped.push(format!("{name}: {why}")),
            Ok(found) => {
                ran += 1;
                let expected = program.expected().iter().filter(|it| is_said(it.kind));
                let expected: BTreeSet<Refusal> = expected.map(|it| Refusal { line: it.line, kind: it.kind }).collect();
                let found = found.verdict;
                if found != expected {
                    wrong.push(format!("{name}: expected {expected:?}\n  found {found:?}"));
                }
            }
        }
    }
    println!("{ran} programs ran on {place:?}; not: {skipped:#?}");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran >= at_least, "only {ran} programs ran");
}

#[test]
fn the_library_gives_the_verdicts_of_the_checker() {
    verdicts_are_as_stated(Place::Host(Timing::Fast), 180);
}

#[test]
fn and_on_a_device_that_holds_the_library_to_the_drivers_contract() {
    verdicts_are_as_stated(Place::Checked(Schedule::AtOnce), 200);
    verdicts_are_as_stated(Place::Checked(Schedule::AtWait), 200);
}

/// Programs of one context refuse each other's captures through the legacy stream, so they run one after the other.
pub(crate) static CONTEXT: Mutex<()> = Mutex::new(());

#[test]
fn and_on_cuda() {
    let _alone = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = Place::wished() {
        // Some need a second GPU.
        verdicts_are_as_stated(place, if matches!(place, Place::Cuda) { 180 } else { 190 });
    }
}

/// Runs every program that can be run with each timing. All verdicts equal those of the first run.
fn same_verdicts(timings: impl Fn() -> Vec<Timing>) -> usize {
    let mut ran = 0;
    for (name, text) in corpus() {
        let program = Program::parse(&text).expect("it can be read");
        let Ok(first) = run(&program, Place::Host(Timing::Fast)) else { continue };
        for timing in timings() {
            // The device answers a query. If the program needs the answer no, this run may not give it.
            let Ok(found) = run(&program, Place::Host(timing)) else { continue };
            ran += 1;
            // The numbers of operations are not compared: kernels that sleep are added in between.
            assert_eq!(found.verdict, first.verdict, "{name}, {timing:?}");
        }
    }
    ran
}

#[test]
fn verdicts_are_the_same_under_a_thousand_seeds() {
    let ran = same_verdicts(|| (0..1000).map(Timing::Seeded).collect());
    assert!(ran >= 180_000, "only {ran} runs");
}

#[test]
fn verdicts_are_the_same_whatever_sleeps() {
    let ran = same_verdicts(|| (0..10).map(Timing::Sleepy).collect());
    assert!(ran >= 1_800, "only {ran} runs");
}

/// Returns the number of mappings of this process.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").expect("this is Linux").lines().count()
}

#[test]
fn every_device_goes_with_its_last_handle() {
    // The handles are dropped while work that nobody waited for is in flight.
    let mut kept = Vec::new();
    for (name, text) in corpus() {
        let program = Program::parse(&text).expect("it can be read");
        if run(&program, Place::Host(Timing::Seeded(0))).is_err() {
            continue;
        }
        let before = mappings();
        (0..200).for_each(|seed| drop(run(&program, Place::Host(Timing::Seeded(seed)))));
        // Other tests of this process have devices, too, but fewer. Threads that share memory end a little later.
        let end = Instant::now() + Duration::from_secs(20);
        while mappings() > before + 150 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        if mappings() > before + 150 {
            kept.push(name);
        }
    }
    assert!(kept.is_empty(), "{kept:#?}");
}
