//! Random programs: the checker finds them right exactly where no schedule does damage.
//!
//! Programs are written as text, so that a difference can be read. They have streams of all roles, events (recorded
//! again, in graphs, from outside), host threads with and without an edge between them, graphs by hand, captures with
//! side streams, and launches with memory that they leave. The model of the litmus crate has no clocks: all states of a
//! program are visited. Of right programs each line that orders something is taken away in turn, and the verdict is
//! compared with plain reachability along the model's edges.

use std::collections::HashSet;

use fastrand::Rng;
use millpond_core::check::Kind;
use millpond_core::op::Act;
use millpond_litmus::Program;
use millpond_litmus::model::{Effect, Model};

struct Random(Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// What kind of programs are made.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    Streams,
    Threads,
    Graph,
    Capture,
    Processes,
    Early,
}

const MEMORY: [&str; 2] = ["a", "b"];
const EVENTS: [&str; 3] = ["e", "f", "h"];

/// One statement of a program that goes on; `live` says which memory is allocated (1) or freed (2).
fn statement(random: &mut Random, streams: &[&str], live: &mut [u8; 2]) -> String {
    let (at, stream) = (random.below(2), random.pick(streams));
    let (name, event) = (MEMORY[at], random.pick(&EVENTS));
    match random.below(14) {
        _ if live[at] == 0 => {
            live[at] = 1;
            format!("{name} = alloc {stream} 64")
        }
        0 | 1 if live[at] == 1 => {
            live[at] = 2;
            match random.below(6) {
                0 => format!("free now {name}"),
                1 => format!("drop {name}"),
                _ => format!("free {stream} {name}"),
            }
        }
        2..=5 if live[at] == 1 || random.one_in(8) => {
            let act = random.pick(&["read", "write"]);
            if random.one_in(8) { format!("host {act} {name}") } else { format!("{act} {stream} {name}") }
        }
        6..=8 => format!("record {event} {stream}"),
        9 if random.one_in(4) => format!("query {stream} {}", random.pick(&["yes", "no"])),
        9 => format!("synchronize {stream}"),
        10 => format!("synchronize {event}"),
        11 if random.one_in(3) => "synchronize device".into(),
        _ => format!("wait {stream} {event}"),
    }
}

fn streams_program(random: &mut Random, apart: bool) -> Vec<String> {
    let mut lines: Vec<String> = vec!["set leaks off".into()];
    lines.push(if random.one_in(2) { "set races off".into() } else { "set races on".into() });
    let mut streams = vec!["s", "t"];
    lines.push("stream s".into());
    lines.push(if random.one_in(2) { "stream t nonblocking".into() } else { "stream t".into() });
    if random.one_in(3) {
        streams.push("u");
        lines.push(if random.one_in(2) { "stream u legacy".into() } else { "stream u".into() });
    }
    lines.extend(EVENTS.map(|event| format!("event {event}")));
    if apart {
        lines.push("set threads apart".into());
        lines.push("thread w".into());
    }
    let mut live = [0; 2];
    for _ in 0..6 + random.below(7) {
        let by = if apart && random.one_in(2) { "w: " } else { "" };
        lines.push(match apart && random.one_in(6) {
            true => (if by.is_empty() { "tell w" } else { "w: tell main" }).into(),
            false => format!("{by}{}", statement(random, &streams, &mut live)),
        });
    }
    lines
}

/// What a node of a graph may do; memory `m` is the graph's own.
fn node(random: &mut Random, freed: &mut bool) -> String {
    match random.below(10) {
        0 if !*freed => {
            *freed = true;
            "free m".into()
        }
        0..=3 => format!("{} m", random.pick(&["read", "write"])),
        4..=6 => format!("{} a", random.pick(&["read", "write"])),
        7 => format!("record {}", random.pick(&EVENTS)),
        8 => format!("wait {}", random.pick(&EVENTS)),
        _ => "empty".into(),
    }
}

fn graph_program(random: &mut Random) -> Vec<String> {
    let mut lines: Vec<String> = vec!["set leaks off".into(), "stream s".into(), "stream t nonblocking".into()];
    lines.push(if random.one_in(2) { "set races off".into() } else { "set races on".into() });
    lines.extend(EVENTS.map(|event| format!("event {event}")));
    lines.push("a = alloc s 64".into());
    let streams = ["s", "t"];
    let mut live = [1, 2];
    let mut some = |random: &mut Random, lines: &mut Vec<String>, most: usize| {
        for _ in 0..random.below(most) {
            let line = statement(random, &streams, &mut live);
            // Memory that a graph names is not freed before it is made, and there is no other.
            if ![" b", "free", "drop"].iter().any(|part| line.contains(part)) {
                lines.push(line);
            }
        }
    };
    some(random, &mut lines, 4);
    lines.push("graph g".into());
    lines.push("node n0 in g: alloc m 64".into());
    let mut freed = false;
    let nodes = 2 + random.below(3);
    for at in 1..=nodes {
        let mut after: Vec<String> = (0..at).filter(|_| !random.one_in(3)).map(|it| format!("n{it}")).collect();
        if after.len() > 2 {
            after.drain(..after.len() - 2);
        }
        let after = if after.is_empty() { String::new() } else { format!(" after {}", after.join(" ")) };
        lines.push(format!("node n{at} in g{after}: {}", node(random, &mut freed)));
    }
    let auto = !freed && random.one_in(2);
    lines.push(format!("x = instantiate g{}", if auto { " auto-free" } else { "" }));
    for _ in 0..1 + random.below(2) {
        lines.push(format!("launch x {}", random.pick(&streams)));
        some(random, &mut lines, 4);
        if !freed {
            if random.one_in(2) {
                lines.push(format!("read {} m", random.pick(&streams)));
            }
            if !auto {
                lines.push(format!("free {} m", random.pick(&streams)));
            }
        }
    }
    if random.one_in(2) {
        lines.push(format!("free {} a", random.pick(&streams)));
    }
    lines
}

fn capture_program(random: &mut Random) -> Vec<String> {
    let mut lines: Vec<String> = vec!["set leaks off".into(), "stream s".into(), "stream t".into(), "stream u".into()];
    lines.push("a = alloc s 64".into());
    lines.push(if random.one_in(2) { "record o s" } else { "synchronize s" }.into());
    lines.push("capture s as g".into());
    lines.push("m = alloc s 64".into());
    lines.push("record e s".into());
    lines.push("wait t e".into());
    let mut freed = false;
    for _ in 0..3 + random.below(4) {
        let stream = random.pick(&["s", "t"]);
        lines.push(match random.below(7) {
            0 if !freed => {
                freed = true;
                format!("free {stream} m")
            }
            1 => format!("record {} {stream}", random.pick(&["e", "f"])),
            2 => format!("wait {stream} e"),
            3 | 4 => format!("{} {stream} m", random.pick(&["read", "write"])),
            _ => format!("{} {stream} a", random.pick(&["read", "write"])),
        });
    }
    lines.push("record j t".into());
    lines.push("wait s j".into());
    if !freed {
        lines.push("free s m".into());
    }
    lines.push("end capture s".into());
    lines.push("x = instantiate g".into());
    for _ in 0..2 {
        let stream = random.pick(&["s", "u"]);
        if stream == "u" && random.one_in(2) {
            lines.push("record q s".into());
            lines.push("wait u q".into());
        }
        lines.push(format!("launch x {stream}"));
    }
    lines.push(format!("read {} a", random.pick(&["s", "t", "u"])));
    lines.push(format!("free {} a", random.pick(&["s", "u"])));
    lines
}

/// Memory of one process that another takes, uses and gives back.
fn processes_program(random: &mut Random) -> Vec<String> {
    let head = "process p;stream s;p: stream t;event e shared;p: event f shared;pool q shared;a = alloc s 64 from q";
    let mut lines: Vec<String> = head.split(';').map(str::to_owned).collect();
    lines.extend(["export a as k", "set leaks off", "record e s"].map(str::to_owned));
    if !random.one_in(3) {
        lines.push("p: wait t e".into());
    }
    lines.push("p: b = import k".into());
    let mut is_held = true;
    for _ in 0..3 + random.below(5) {
        lines.push(match random.below(9) {
            0 | 1 => format!("{} s a", random.pick(&["read", "write"])),
            2 | 3 if is_held => format!("p: {} t b", random.pick(&["read", "write"])),
            4 if is_held => {
                is_held = false;
                random.pick(&["p: free t b", "p: free t b", "p: free now b"]).into()
            }
            5 => random.pick(&["record e s", "p: record f t"]).into(),
            6 => random.pick(&["p: wait t e", "wait s f"]).into(),
            7 => random.pick(&["synchronize s", "p: synchronize t", "synchronize f"]).into(),
            _ => random.pick(&["p: record f t", "wait s f"]).into(),
        });
    }
    if is_held && !random.one_in(4) {
        lines.push("p: free t b".into());
    }
    if !random.one_in(3) {
        lines.push("p: record f t".into());
        lines.push("wait s f".into());
    }
    lines.push("free s a".into());
    lines
}

/// Launches that may start before the one before them is over.
fn early_program(random: &mut Random) -> Vec<String> {
    let mut lines: Vec<String> = ["stream s", "stream t", "set leaks off"].map(str::to_owned).into();
    lines.extend(["a = alloc s 64", "b = alloc s 64", "record e s", "wait t e"].map(str::to_owned));
    for _ in 0..3 + random.below(5) {
        let stream = random.pick(&["s", "s", "t"]);
        let (memory, act) = (random.pick(&MEMORY), random.pick(&["read", "write"]));
        lines.push(match random.below(8) {
            0 => format!("record e {stream}"),
            1 => format!("wait {stream} e"),
            2..=4 => format!("kernel {stream} {act} {memory} early"),
            _ => format!("{act} {stream} {memory}"),
        });
    }
    lines
}

fn lines(random: &mut Random, shape: Shape) -> Vec<String> {
    match shape {
        Shape::Processes => processes_program(random),
        Shape::Early => early_program(random),
        Shape::Streams => streams_program(random, false),
        Shape::Threads => streams_program(random, true),
        Shape::Graph => graph_program(random),
        Shape::Capture => capture_program(random),
    }
}

/// Whether the checker finds a program right; none where it breaks a rule that no schedule shows.
fn is_right(program: &Program) -> Option<bool> {
    let is_harmless = |kind: Kind| kind.is_advice() || matches!(kind, Kind::EventOverwritten | Kind::Leak);
    let findings = program.check();
    let kinds: HashSet<Kind> = findings.iter().map(|it| it.kind).filter(|kind| !is_harmless(*kind)).collect();
    kinds.iter().all(|kind| kind.is_about_order()).then_some(kinds.is_empty())
}

/// Whether the model's edges alone put every access after the birth and before the free, and conflicting ones apart.
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
        of.filter(move |(_, effect)| effect.life == life).map(|(at, effect)| (at, effect.act)).collect::<Vec<_>>()
    };
    (0..model.lives.len()).all(|life| {
        let acts = acts(life);
        let births = acts.iter().filter(|it| it.1 == Act::Allocate).map(|it| it.0).next();
        let born = |at: usize| model.lives[life].is_there || births.is_some_and(|birth| before[at].contains(&birth));
        // What another process holds ends before it does.
        let ends = |task: usize, life: usize| model.tasks[task].effects.contains(&Effect::of_all(life, Act::Free));
        let given_back = |at: usize, lease: usize| before[at].iter().any(|&task| ends(task, lease));
        let is_held = |at: usize| !model.lives[life].leases.iter().all(|&lease| given_back(at, lease));
        acts.iter().enumerate().all(|(nth, &(at, act))| {
            let fine = |&(other, then): &(usize, Act)| match (act, then) {
                (Act::Free, Act::Free) => false,
                (_, Act::Free) => before[other].contains(&at),
                (Act::Read, Act::Read) | (Act::Free | Act::Allocate, _) | (_, Act::Allocate) => true,
                _ => !model.races || before[other].contains(&at) || before[at].contains(&other) || other == at,
            };
            let others = acts.iter().enumerate().filter(|(it, _)| *it != nth).map(|it| it.1);
            (act == Act::Allocate || born(at)) && !(act == Act::Free && is_held(at)) && others.into_iter().all(fine)
        })
    })
}

/// Compares one program; whether it is right, or none where there is nothing to compare.
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

#[test]
fn early_launches_are_right_exactly_where_no_schedule_does_damage() {
    let (right, wrong) = run(Shape::Early, 0x7654_3210_FEDC_BA98, 10_000);
    assert!(right > 300 && wrong > 1_000, "{right} right, {wrong} wrong");
}

/// A line without one of its edges: none where it has none.
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
