//! One program, three judges: the checker of litmus programs, the library while it runs, and the checker on the trace
//! that the library wrote. Their verdicts are the same, line by line.
//!
//! Programs are random, and are reduced if the judges differ. `AGREEMENT_PROGRAMS` sets their number, `AGREEMENT_SEED`
//! the seed. `AGREEMENT_PROGRAM` is the number of one program, as a run prints it. `AGREEMENT_FILE` is a program to be
//! judged a hundred times.

mod corrected;
mod graphs;
mod known;
mod maker;
mod processes;
mod traced;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::check::{Checker, Kind, Settings};
use millpond_litmus::Program;
use millpond_runner::{Found, Numbers, Place, Refusal, Schedule, Timing};

use crate::{is_said, mutated};

type Verdict = BTreeSet<Refusal>;

/// The result for a program.
enum Came {
    Agreed(Verdict),
    /// It is not a program, or the library cannot run it, because of this line; 0 if no line is the reason.
    Skipped(String, u32),
    Differs(String),
}

fn words(verdict: &Verdict) -> String {
    let said: Vec<String> = verdict.iter().map(|it| format!("{} {}", it.line, it.kind.name())).collect();
    if said.is_empty() { "right".into() } else { said.join(", ") }
}

/// Returns the program with an end for every capture and an instance for every graph, so that all of them are judged.
fn whole(lines: &[String]) -> Vec<String> {
    completed(lines).into_iter().map(|(line, _)| line).collect()
}

/// Returns the same as [`whole`], with `true` for each added line.
fn completed(lines: &[String]) -> Vec<(String, bool)> {
    let (mut whole, mut open) = (Vec::new(), Vec::new());
    let mut captures: Vec<(&str, &str)> = Vec::new();
    let instantiate = |graph: &str, at: usize| (format!("whole{at} = instantiate {graph}"), true);
    for line in lines {
        let statement = line.strip_prefix("other: ").unwrap_or(line);
        let by = &line[..line.len() - statement.len()];
        let words: Vec<&str> = statement.split([' ', ':']).collect();
        // It may have moved. Its nodes are then judged with the graph around it.
        if let [.., "child", child] = words[..] {
            open.retain(|it| *it != child);
        }
        match words[..] {
            ["capture", stream, "as", ..] if captures.iter().all(|(_, it)| *it != stream) => {
                captures.push((by, stream))
            }
            ["end", "capture", stream] => captures.retain(|it| *it != (by, stream)),
            _ => {}
        }
        match words[..] {
            ["graph", graph, ..] | [graph, "=", "clone", _] | ["capture", _, "as", graph, ..] => {
                // From now on its name is another graph's.
                if open.contains(&graph) {
                    whole.push(instantiate(graph, whole.len()));
                } else {
                    open.push(graph);
                }
            }
            ["node", _, "in", graph, ..] if !open.contains(&graph) => open.push(graph),
            // A capture may refuse it.
            [_, "=", "instantiate", graph, ..] if captures.is_empty() => open.retain(|it| *it != graph),
            ["edge", .., graph] | ["remove", .., graph] if !open.contains(&graph) => open.push(graph),
            ["destroy", graph] if open.contains(&graph) => {
                whole.push(instantiate(graph, whole.len()));
                open.retain(|it| *it != graph);
            }
            _ => {}
        }
        whole.push((line.clone(), false));
    }
    whole.extend(captures.into_iter().map(|(by, stream)| (format!("{by}end capture {stream}"), true)));
    for graph in open {
        whole.push(instantiate(graph, whole.len()));
    }
    whole
}

fn judge(lines: &[String], place: Place) -> Came {
    judge_as_it_is(&whole(lines), place)
}

fn judge_as_it_is(lines: &[String], place: Place) -> Came {
    let program = match Program::parse(&lines.join("\n")) {
        Ok(program) => program,
        Err(refusal) => return Came::Skipped(format!("parse: {}", refusal.what), refusal.line),
    };
    // The text of a panic is in the verdict.
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let (mut checker, mut findings) =
            (Checker::new(Settings { unused_graphs: false, ..program.settings() }), Vec::new());
        for op in program.ops() {
            checker.check(op, program.names(), &mut findings);
        }
        checker.finish(program.names(), &mut findings);
        let said = findings.iter().filter(|finding| is_said(finding.kind));
        let by_litmus: Verdict =
            said.map(|finding| Refusal { line: finding.line().unwrap_or(0), kind: finding.kind }).collect();
        traced::run(&program, place).map(|(live, by_trace)| (by_litmus, live, by_trace))
    }));
    let (by_litmus, live, by_trace) = match judged {
        Ok(Ok(verdicts)) => verdicts,
        Ok(Err((why, line))) => return Came::Skipped(why, line),
        Err(payload) => {
            let what = payload.downcast_ref::<String>().cloned();
            let what = what.or(payload.downcast_ref::<&str>().map(|what| (*what).to_owned()));
            return Came::Differs(format!("panic: {}", what.unwrap_or_default()));
        }
    };
    let has_processes = lines.iter().any(|line| line.starts_with("process "));
    let numbers = (!has_processes).then(|| miscounted(&live, &by_trace)).flatten();
    let (live, by_trace) = (live.verdict, by_trace.verdict);
    let is_traced = if has_processes { follows(&by_trace, &live) } else { live == by_trace };
    if let Some(miscounted) = numbers.filter(|_| is_traced && by_litmus == live) {
        return Came::Differs(miscounted);
    }
    match by_litmus == live && is_traced {
        true => Came::Agreed(live),
        false => Came::Differs(format!(
            "litmus: {}\n  live:   {}\n  trace:  {}",
            words(&by_litmus),
            words(&live),
            words(&by_trace)
        )),
    }
}

/// Returns a violation whose operations have other numbers in the trace. The trace may know one side further: by waits
/// that add nothing, for which the library takes no position.
fn miscounted(live: &Found, by_trace: &Found) -> Option<String> {
    live.numbers.iter().find_map(|(at, live)| {
        let differ = |at: usize, traced: &Numbers| {
            live[at].zip(traced[at]).is_some_and(|(live, traced)| if at < 2 { live != traced } else { live > traced })
        };
        let traced = by_trace.numbers.get(at).filter(|traced| (0..3).any(|at| differ(at, traced)))?;
        Some(format!("{} {}: operations {live:?} live, {traced:?} in the trace", at.line, at.kind.name()))
    })
}

/// A difference that did not occur again.
const NOT_AGAIN: &str = "not again";

/// Returns `true` if a trace finds nothing that the library did not. A process's trace does not have the operations of
/// other processes, so it may accept what the library refused. What comes after that may be wrong there.
fn follows(by_trace: &Verdict, live: &Verdict) -> bool {
    let passed = live.difference(by_trace).map(|it| it.line).min();
    by_trace.difference(live).all(|it| passed.is_some_and(|line| line <= it.line))
}

/// Removes lines as long as the judges still differ.
fn shrink(mut lines: Vec<String>, place: Place) -> Vec<String> {
    let mut at = lines.len();
    while at > 0 {
        at -= 1;
        let mut fewer = lines.clone();
        fewer.remove(at);
        if matches!(judge(&fewer, place), Came::Differs(_)) {
            lines = fewer;
            at = lines.len().min(at + 3);
        }
    }
    lines
}

/// Removes the lines of a program that are not statements of it, or that the library cannot run. Without them it is a
/// program like any other. Returns the reasons, and the result then.
fn ask(lines: &mut Vec<String>, place: Place) -> (Vec<String>, Came) {
    let mut left_out = Vec::new();
    loop {
        let came = judge(lines, place);
        let Came::Skipped(why, line @ 1..) = &came else { return (left_out, came) };
        let (whole, at) = (completed(lines), *line as usize - 1);
        if whole[at].1 {
            return (left_out, came);
        }
        left_out.push(why.clone());
        lines.remove(whole[..at].iter().filter(|(_, is_added)| !is_added).count());
    }
}

#[derive(Default)]
struct Count {
    right: u64,
    wrong: u64,
    /// The programs of which no line was removed.
    as_made: u64,
    lines: u64,
    /// The reasons to remove lines.
    left_out: BTreeMap<String, u64>,
    /// The reasons not to compare programs.
    skipped: BTreeMap<String, u64>,
    /// The smallest program for each kind of difference: its number, its lines, and the verdicts.
    differ: BTreeMap<String, (u64, Vec<String>, String)>,
}

fn said(lines: &[String], place: Place) -> String {
    match judge(lines, place) {
        Came::Differs(said) => said,
        _ => NOT_AGAIN.into(),
    }
}

/// Judges the programs of these numbers on `threads` threads. `place` returns where each one runs.
fn run(threads: usize, numbers: Range<u64>, differing: usize, place: impl Fn(u64) -> Place + Sync) -> Count {
    let made = |number| program(number, place(number));
    run_those(threads, numbers, differing, &place, made)
}

/// As [`run`], with the programs that `program` makes.
fn run_those(
    threads: usize,
    numbers: Range<u64>,
    differing: usize,
    place: impl Fn(u64) -> Place + Sync,
    program: impl Fn(u64) -> Vec<String> + Sync,
) -> Count {
    let (next, count) = (AtomicU64::new(numbers.start), Mutex::new(Count::default()));
    let one = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end || count.lock().unwrap().differ.len() >= differing {
                return;
            }
            let place = place(number);
            let mut lines = program(number);
            let made = lines.len() as u64;
            let (left_out, came) = ask(&mut lines, place);
            let small = match &came {
                Came::Differs(_) => Some(shrink(lines, place)),
                _ => None,
            };
            let mut count = count.lock().unwrap();
            count.lines += made;
            count.as_made += u64::from(left_out.is_empty() && matches!(came, Came::Agreed(_)));
            for why in left_out {
                *count.left_out.entry(why).or_default() += 1;
            }
            match came {
                Came::Agreed(verdict) if verdict.is_empty() => count.right += 1,
                Came::Agreed(_) => count.wrong += 1,
                Came::Skipped(why, _) => *count.skipped.entry(why).or_default() += 1,
                Came::Differs(first) => {
                    let small = small.expect("it was made smaller");
                    let said = match said(&small, place) {
                        again if again == NOT_AGAIN => format!("{NOT_AGAIN}; the first time: {first}"),
                        said => said,
                    };
                    let way: String = said.chars().filter(|it| !it.is_ascii_digit()).collect();
                    let known = count.differ.entry(way).or_insert((number, small.clone(), said.clone()));
                    if small.len() < known.1.len() {
                        *known = (number, small, said);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(one))));
    count.into_inner().unwrap()
}

/// One program in eight has several processes, if devices of this process can stand for them.
fn program(number: u64, place: Place) -> Vec<String> {
    match number % 8 {
        7 if matches!(place, Place::Host(_)) => processes::program(number),
        _ => maker::program(number),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

/// Prints the results. Asserts that all programs agree, and that enough were compared: percentages of all, of right and
/// of wrong ones, and of those of which no line was removed.
fn finish(count: &Count, programs: u64, least: [u64; 4]) {
    let skipped: u64 = count.skipped.values().sum();
    println!("{} right, {} wrong, {skipped} not compared: {:#?}", count.right, count.wrong, count.skipped);
    let left_out: u64 = count.left_out.values().sum();
    println!(
        "{} as they were made; of {} lines {left_out} left out: {:#?}",
        count.as_made, count.lines, count.left_out
    );
    for (number, lines, said) in count.differ.values() {
        println!("\n# program {number}\n{}\n  {said}", whole(lines).join("\n"));
    }
    assert!(count.differ.is_empty(), "{} programs got different verdicts", count.differ.len());
    let (right, wrong) = (count.right, count.wrong);
    let found = [right + wrong, right, wrong, count.as_made];
    let is_enough = found.iter().zip(least).all(|(found, least)| found * 100 >= programs * least);
    assert!(is_enough, "{right} right, {wrong} wrong, {} as they were made", count.as_made);
}

/// Judges one program repeatedly, and prints the results.
fn again(file: &str) {
    let text = std::fs::read_to_string(file).expect("a program");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut ways: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0..100 {
        let said = match judge(&lines, Place::Host(timing(number))) {
            Came::Agreed(verdict) => format!("they agree: {}", words(&verdict)),
            Came::Skipped(why, _) => why,
            Came::Differs(said) => said,
        };
        *ways.entry(said).or_default() += 1;
    }
    ways.iter().for_each(|(said, times)| println!("{times} times: {said}"));
}

fn timing(number: u64) -> Timing {
    match number % 32 {
        0 => Timing::Sleepy(number),
        1..16 => Timing::Seeded(number),
        _ => Timing::Fast,
    }
}

#[test]
fn the_checker_the_library_and_its_trace_agree() {
    if let Ok(file) = std::env::var("AGREEMENT_FILE") {
        return again(&file);
    }
    let place = |number| Place::Host(timing(number));
    if let Some(one) = number("AGREEMENT_PROGRAM") {
        return finish(&run(1, one..one + 1, 1, place), 1, [0; 4]);
    }
    let programs = number("AGREEMENT_PROGRAMS").unwrap_or(20_000);
    let first = number("AGREEMENT_SEED").unwrap_or(1) << 32;
    let differing = number("AGREEMENT_DIFFERING").unwrap_or(8) as usize;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    finish(&run(threads, first..first + programs, differing, place), programs, [95, 10, 40, 60]);
}

#[test]
fn and_of_programs_that_nobody_meant() {
    let programs = number("AGREEMENT_PROGRAMS").unwrap_or(10_000);
    let first = number("AGREEMENT_SEED").unwrap_or(1) << 32;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mutated = mutated::Mutated::new();
    let said = (first..).map(|number| mutated.program(number)).filter(|lines| can_be_said(lines));
    let said: Vec<_> = said.take(programs as usize).collect();
    let place = |number| Place::Host(timing(number));
    let made = |number| said[number as usize].clone();
    finish(&run_those(threads, 0..programs, 8, place, made), programs, [95, 30, 30, 60]);
}

/// Returns `true` if the library's types allow all of it, and each name means one thing. If a name is given again, its
/// meaning depends on what was refused. Several processes and devices have makers of their own.
fn can_be_said(lines: &[String]) -> bool {
    use Kind::{ExternalOutsideCapture, NotShareable, PoolAfterDestroy, StreamAfterDestroy, UnknownName};
    const UNSAID: [Kind; 5] = [ExternalOutsideCapture, NotShareable, PoolAfterDestroy, StreamAfterDestroy, UnknownName];
    let (mut names, mut pools) = (BTreeSet::new(), BTreeSet::new());
    let is_plain = lines.iter().all(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [.., name, "=", "alloc", _, _] | [.., name, "=", "alloc", _, _, "from", _] => names.insert(name),
            ["node", _, .., "alloc", name, _] => names.insert(name),
            ["pool", name, ..] => pools.insert(name),
            // The device decides if an address of its memory means anything later.
            ["destroy", name] => !pools.contains(name),
            // In each round the names mean other things. The library's threads have the global mode.
            [.., "capture", "mode", _]
            | ["repeat", ..]
            | ["process", ..]
            | [.., "on", _]
            | [.., "on", _, "nonblocking"] => false,
            _ => true,
        }
    });
    let Ok(program) = Program::parse(&whole(lines).join("\n")) else { return false };
    is_plain && program.check().iter().all(|finding| !UNSAID.contains(&finding.kind))
}

#[test]
fn and_of_misuse_of_all_kinds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/refusals");
    let files = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it is there").path());
    for file in files.filter(|file| file.extension().is_some_and(|it| it == "litmus")) {
        let lines = mutated::statements(&std::fs::read_to_string(&file).expect("a text"));
        match judge_as_it_is(&lines, Place::Host(Timing::Fast)) {
            Came::Agreed(verdict) => assert!(!verdict.is_empty(), "{}", file.display()),
            Came::Skipped(said, line) => panic!("{}: {said}: {}", file.display(), lines[line as usize - 1]),
            Came::Differs(said) => panic!("{}: {said}", file.display()),
        }
    }
}

#[test]
fn and_where_the_library_is_held_to_the_drivers_contract() {
    let schedule = |number| if number % 2 == 0 { Schedule::AtOnce } else { Schedule::AtWait };
    let programs = 2_000;
    let count = run(2, (5 << 32)..(5 << 32) + programs, 8, |number| Place::Checked(schedule(number)));
    finish(&count, programs, [95, 8, 32, 40]);
}

/// One after the other: programs of one context refuse each other's captures through the legacy stream.
#[test]
fn and_on_cuda() {
    if let Some(place) = Place::wished() {
        let programs = 2_000;
        let count = run(1, (2 << 32)..(2 << 32) + programs, 8, |_| place);
        // Nodes that read are not compared there.
        finish(&count, programs, [95, 8, 32, 40]);
    }
}
