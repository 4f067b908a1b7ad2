//! The programs, as text: streams, threads, graphs, captures, processes.

use fastrand::Rng;

pub(crate) struct Random(pub(crate) Rng);

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

/// The kinds of programs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shape {
    Streams,
    Threads,
    Graph,
    Capture,
    Processes,
}

const MEMORY: [&str; 2] = ["a", "b"];
const EVENTS: [&str; 3] = ["e", "f", "h"];

/// Returns one more statement of a program. `live` has the memory that is allocated (1) or freed (2).
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
            let part = random.pick(&["", "", "[0..40]", "[39..64]", "[40..64]"]);
            if random.one_in(8) { format!("host {act} {name}") } else { format!("{act} {stream} {name}{part}") }
        }
        6..=8 => format!("record {event} {stream}"),
        9 if random.one_in(4) => format!("query {stream} {}", random.pick(&["yes", "no"])),
        9 => format!("synchronize {stream}"),
        10 => format!("synchronize {event}"),
        11 if random.one_in(3) => "synchronize device".into(),
        _ => format!("wait {stream} {event}"),
    }
}

fn streams_program(random: &mut Random, has_thread: bool) -> Vec<String> {
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
    if has_thread {
        lines.push("thread w".into());
    }
    let mut live = [0; 2];
    for _ in 0..6 + random.below(7) {
        let by = if has_thread && random.one_in(2) { "w: " } else { "" };
        lines.push(format!("{by}{}", statement(random, &streams, &mut live)));
    }
    lines
}

/// Returns an operation for a node of a graph. Memory `m` is the graph's own.
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
            // Before the graph is made, the memory that it names is not freed, and there is no other memory.
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

/// Makes a program with memory of one process that another imports, uses and returns.
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

pub(crate) fn lines(random: &mut Random, shape: Shape) -> Vec<String> {
    match shape {
        Shape::Processes => processes_program(random),
        Shape::Streams => streams_program(random, false),
        Shape::Threads => streams_program(random, true),
        Shape::Graph => graph_program(random),
        Shape::Capture => capture_program(random),
    }
}
