//! Random programs: the checker finds them right if and only if no schedule does damage.
//!
//! Programs are written as text, so that a difference can be read. They have streams of all roles, events (recorded
//! again, in graphs, from outside), host threads with and without an edge between them, graphs made by nodes, captures
//! with side streams, and launches with outputs. The model of the litmus crate has no clocks: all states of a program
//! are visited. In right programs each line that orders something is removed in turn, and the verdict is compared with
//! plain reachability along the model's edges.

mod programs;

use std::collections::HashSet;

use fastrand::Rng;
use millpond_core::check::Kind;
use millpond_core::op::Act;
use millpond_litmus::Program;
use millpond_litmus::model::{Effect, Model};
use programs::{Random, Shape, lines};

/// Returns `true` if the checker finds a program right, or `None` if it breaks a rule that no schedule shows.
fn is_right(program: &Program) -> Option<bool> {
    let is_harmless = |kind: Kind| kind.is_advice() || kind == Kind::Leak;
    let findings = program.check();
    let kinds: HashSet<Kind> = findings.iter().map(|it| it.kind).filter(|kind| !is_harmless(*kind)).collect();
    kinds.iter().all(|kind| kind.is_about_order()).then_some(kinds.is_empty())
}

/// Returns `true` if the model's edges alone put every access after the allocation and before the free, and order
/// conflicting ones.
fn is_ordered(model: &Model) -> bool {
    let mut before: Vec<HashSet<usize>> = Vec::new();
    for task in &model.tasks {
        let mut mine: HashSet<usize> = task.needs.iter().copied().collect();
        task.needs.iter().for_each(|need| mine.extend(&before[*need]));
        before.push(mine);
    }
    let acts = |life: usize| {
        let of = model.tasks.iter().enumerate();
        let of = of.flat_map(|(at, task)| task.effects.iter().map(move |effect| (at, *effect)));
        of.filter(move |(_, effect)| effect.life == life).collect::<Vec<_>>()
    };
    (0..model.lives.len()).all(|life| {
        let acts = acts(life);
        let births = acts.iter().filter(|it| it.1.act == Act::Allocate).map(|it| it.0).next();
        let born = |at: usize| model.lives[life].is_there || births.is_some_and(|birth| before[at].contains(&birth));
        // A lease of another process ends before the lifetime of the memory does.
        let ends = |task: usize, life: usize| model.tasks[task].effects.contains(&Effect::of_all(life, Act::Free));
        let given_back = |at: usize, lease: usize| before[at].iter().any(|&task| ends(task, lease));
        let is_held = |at: usize| !model.lives[life].leases.iter().all(|&lease| given_back(at, lease));
        acts.iter().enumerate().all(|(nth, &(at, Effect { act, part, .. }))| {
            let fine = |&(other, then): &(usize, Effect)| match (act, then.act) {
                (Act::Free, Act::Free) => false,
                (_, Act::Free) => before[other].contains(&at),
                (Act::Read, Act::Read) | (Act::Free | Act::Allocate, _) | (_, Act::Allocate) => true,
                _ if !part.overlaps(then.part) => true,
                _ => !model.races || before[other].contains(&at) || before[at].contains(&other) || other == at,
            };
            let others = acts.iter().enumerate().filter(|(it, _)| *it != nth).map(|it| it.1);
            (act == Act::Allocate || born(at)) && !(act == Act::Free && is_held(at)) && others.into_iter().all(fine)
        })
    })
}

/// Compares one program. Returns `true` if it is right, or `None` if nothing can be compared.
fn compare(lines: &[String]) -> Option<bool> {
    let text = lines.join("\n");
    let program = Program::parse(&text).ok()?;
    let said = is_right(&program)?;
    let model = Model::new(&program).ok()?;
    let all = model.explore(1 << 16)?;
    assert_eq!(said, all.damages.is_empty(), "{:?}\n{:?}\n{text}", all.damages.first(), program.check().first());
    assert_eq!(said, is_ordered(&model), "by reachability\n{:?}\n{text}", program.check().first());
    Some(said)
}

fn run(shape: Shape, seed: u64, programs: usize) -> (usize, usize) {
    let mut random = Random(Rng::with_seed(seed));
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..programs {
        match compare(&lines(&mut random, shape)) {
            Some(true) => right += 1,
            Some(false) => wrong += 1,
            None => {}
        }
    }
    println!("{shape:?}: {right} right, {wrong} wrong, {} not compared", programs - right - wrong);
    (right, wrong)
}

#[test]
fn streams_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Streams, 0x9E37_79B9_7F4A_7C15, 20_000);
    assert!(right > 2_000 && wrong > 2_000, "{right} right, {wrong} wrong");
}

#[test]
fn threads_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Threads, 0x2545_F491_4F6C_DD1D, 20_000);
    assert!(right > 1_000 && wrong > 2_000, "{right} right, {wrong} wrong");
}

#[test]
fn graphs_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Graph, 0x0123_4567_89AB_CDEF, 20_000);
    assert!(right > 1_000 && wrong > 2_000, "{right} right, {wrong} wrong");
}

#[test]
fn captures_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Capture, 0x0F1E_2D3C_4B5A_6978, 10_000);
    assert!(right > 500 && wrong > 1_000, "{right} right, {wrong} wrong");
}

#[test]
fn processes_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Processes, 0x1357_9BDF_0246_8ACE, 10_000);
    assert!(right > 300 && wrong > 1_000, "{right} right, {wrong} wrong");
}

/// Returns the line without one of its edges, for each edge: `None` if no line is left.
fn fewer_edges(line: &str) -> Vec<Option<String>> {
    let words: Vec<&str> = line.trim_start_matches("w: ").split(' ').collect();
    match words[..] {
        ["wait" | "synchronize" | "tell", ..] => vec![None],
        ["node", ..] => match line.split_once(" after ").and_then(|(head, rest)| Some((head, rest.split_once(':')?))) {
            Some((head, (after, work))) => {
                let names: Vec<&str> = after.split(' ').collect();
                let without = |at: usize| {
                    let mut left = names.clone();
                    left.remove(at);
                    let after = if left.is_empty() { String::new() } else { format!(" after {}", left.join(" ")) };
                    Some(format!("{head}{after}:{work}"))
                };
                (0..names.len()).map(without).collect()
            }
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[test]
fn an_edge_taken_away_is_missed_exactly_where_reachability_says_so() {
    for (shape, wanted) in [(Shape::Streams, 800), (Shape::Threads, 300), (Shape::Graph, 300)] {
        let mut random = Random(Rng::with_seed(0xA076_1D64_78BD_642F));
        let (mut fired, mut silent) = (0, 0);
        while fired < wanted || silent < wanted {
            let lines = lines(&mut random, shape);
            if compare(&lines) != Some(true) {
                continue;
            }
            for at in 0..lines.len() {
                for fewer in fewer_edges(&lines[at]) {
                    let mut changed = lines.clone();
                    match fewer {
                        Some(line) => changed[at] = line,
                        None => drop(changed.remove(at)),
                    }
                    match compare(&changed) {
                        Some(true) => silent += 1,
                        Some(false) => fired += 1,
                        None => {}
                    }
                }
            }
        }
        println!("{shape:?}: {fired} fired, {silent} silent");
    }
}
