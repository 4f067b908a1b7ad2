//! Random litmus programs over everything in the language that the threads of one process can do.
//!
//! Names are right (nothing is used that was never made). Orders are random, with edges between streams likely enough
//! that many programs are right. Depends on the language, on no verdict.

use crate::mutated::Random;

/// A graph's own memory.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) name: String,
    pub(crate) is_freed: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) own: Vec<Own>,
    pub(crate) is_symbolic: bool,
    /// `true` if it is a child of another graph.
    pub(crate) is_child: bool,
}

impl Graph {
    /// Returns `true` if it has memory with fixed addresses.
    pub(crate) fn is_fixed(&self) -> bool {
        !self.is_symbolic && !self.own.is_empty()
    }
}

pub(crate) struct Exec {
    pub(crate) name: String,
    pub(crate) graph: String,
    /// The outputs of its launches.
    pub(crate) leaves: Vec<String>,
    pub(crate) is_launched: bool,
}

pub(crate) struct Capture {
    pub(crate) graph: Graph,
    pub(crate) origin: String,
    /// The streams that take part.
    pub(crate) inside: Vec<String>,
}

/// A program that is being made.
pub(crate) struct Maker {
    pub(crate) random: Random,
    pub(crate) lines: Vec<String>,
    pub(crate) streams: Vec<String>,
    /// The legacy stream, which cannot be captured.
    pub(crate) legacy: Option<String>,
    pub(crate) pools: Vec<String>,
    /// The events recorded on any stream, outside of captures.
    pub(crate) events: Vec<String>,
    pub(crate) outside_events: Vec<String>,
    pub(crate) memory: Vec<String>,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) execs: Vec<Exec>,
    pub(crate) capture: Option<Capture>,
    /// The capture that began before it, and is still in progress.
    pub(crate) aside: Option<Capture>,
    /// `true` if streams are of two devices. Then there are no graphs, because those are of one device.
    pub(crate) several: bool,
    /// `true` if there is a second host thread.
    has_thread: bool,
    pub(crate) next: usize,
}

/// Makes a program of about so many statements.
pub(crate) fn program(seed: u64) -> Vec<String> {
    made(Maker::new(Random::new(seed), true))
}

/// As [`program`], with one host thread and one device.
pub(crate) fn of_one_thread(seed: u64) -> Vec<String> {
    made(Maker::new(Random::new(seed), false))
}

fn made(mut maker: Maker) -> Vec<String> {
    let statements = 4 + maker.random.below(20);
    for _ in 0..statements {
        maker.statement();
    }
    while maker.capture.is_some() {
        maker.end_capture();
    }
    maker.lines
}

impl Maker {
    fn new(mut random: Random, is_wide: bool) -> Self {
        let mut lines = vec!["set leaks off".to_owned(), "stream s0".to_owned()];
        let mut streams = vec!["s0".to_owned()];
        let mut legacy = None;
        let several = is_wide && random.one_in(6);
        for at in 1..2 + random.below(3) {
            if several && (at == 1 || random.one_in(2)) {
                lines.push(format!("stream s{at}{} on 1", random.pick(&["", " nonblocking"])));
                streams.push(format!("s{at}"));
                continue;
            }
            let role = random.pick(&["", "", " nonblocking", " nonblocking", " per-thread", " legacy"]);
            if role == " legacy" {
                if legacy.is_some() {
                    continue;
                }
                legacy = Some(format!("s{at}"));
            }
            if role == " per-thread" && lines.iter().any(|line| line.ends_with(role)) {
                continue;
            }
            lines.push(format!("stream s{at}{role}"));
            streams.push(format!("s{at}"));
        }
        // On CUDA another thread cannot name a thread's default stream.
        let has_default = lines.iter().any(|line| line.ends_with(" per-thread"));
        let has_thread = is_wide && random.one_in(if has_default { 12 } else { 4 });
        if has_thread {
            lines.push("thread other".to_owned());
        }
        let (pools, events, outside_events, memory, graphs, execs) = Default::default();
        Self {
            random,
            lines,
            streams,
            legacy,
            pools,
            events,
            outside_events,
            memory,
            graphs,
            execs,
            capture: None,
            aside: None,
            several,
            has_thread,
            next: 0,
        }
    }

    /// Adds a line, of the main thread or of another thread if there is one.
    pub(crate) fn say(&mut self, line: String) {
        let by = if self.has_thread && self.random.one_in(3) { "other: " } else { "" };
        self.lines.push(format!("{by}{line}"));
    }

    pub(crate) fn fresh(&mut self, letter: char) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    pub(crate) fn stream(&mut self) -> String {
        self.random.pick(&self.streams)
    }

    /// Makes one stream come after another.
    fn edge(&mut self) {
        let (from, to) = (self.stream(), self.stream());
        let event = self.event();
        self.say(format!("record {event} {from}"));
        if self.random.one_in(8) {
            self.statement();
        }
        self.say(format!("wait {to} {event}"));
        if let Some(capture) = &mut self.capture
            && capture.inside.contains(&from)
            && !capture.inside.contains(&to)
        {
            capture.inside.push(to);
        }
    }

    /// Returns an event to record: a new one or, sometimes, an old one.
    pub(crate) fn event(&mut self) -> String {
        if !self.events.is_empty() && self.random.one_in(4) {
            return self.random.pick(&self.events);
        }
        let event = self.fresh('e');
        if !self.several {
            self.say(format!("event {event}"));
        }
        self.events.push(event.clone());
        event
    }

    /// Returns memory that may be named now: the program's, and outputs of graphs.
    pub(crate) fn some_memory(&mut self) -> Option<String> {
        let mut names = self.memory.clone();
        for exec in self.execs.iter().filter(|exec| exec.is_launched) {
            names.extend(exec.leaves.iter().cloned());
        }
        if let Some(capture) = &self.capture {
            names.extend(capture.graph.own.iter().map(|own| own.name.clone()));
        }
        (!names.is_empty()).then(|| self.random.pick(&names))
    }

    fn statement(&mut self) {
        match self.random.below(42) {
            0..=4 => self.alloc(),
            5..=13 => self.access(),
            14..=19 => self.edge(),
            20..=22 => self.free(),
            23 | 24 => self.host(),
            25 => {
                let (event, stream) = (self.event(), self.stream());
                self.say(format!("record {event} {stream}"));
            }
            26 if !self.events.is_empty() => {
                let (event, stream) = (self.random.pick(&self.events), self.stream());
                self.say(format!("wait {stream} {event}"));
            }
            27..=37 if self.several => self.grant(),
            27 | 28 => self.begin(),
            29 | 30 if self.capture.is_some() => self.end_capture(),
            // If kernels are not closures, nodes are not added during a capture.
            29..=31 if self.capture.is_none() || self.random.one_in(4) => self.build(),
            32 => self.clone_graph(),
            33 | 34 => self.instantiate(),
            35..=37 => self.launch(),
            38 => self.take_or_update(),
            39 => self.destroy(),
            40 | 41 => self.edit_graph(),
            _ => {}
        }
    }

    /// Grants the other device access to a pool, or revokes it; or allocates memory of such a pool.
    pub(crate) fn grant(&mut self) {
        let Some(pool) = self.pools.first().cloned() else {
            let (pool, name) = (self.fresh('p'), self.fresh('a'));
            self.say(format!("pool {pool}"));
            self.say(format!("grant {pool} to 1"));
            self.say(format!("{name} = alloc s0 256 from {pool}"));
            self.pools.push(pool);
            return self.memory.push(name);
        };
        match self.random.below(5) {
            4 => self.say(format!("revoke {pool} from 1")),
            0 => self.say(format!("grant {pool} to 1 read")),
            1 => self.say(format!("grant {pool} to 1")),
            _ => {
                let name = self.fresh('a');
                self.say(format!("{name} = alloc s0 256 from {pool}"));
                self.memory.push(name);
            }
        }
    }

    pub(crate) fn alloc(&mut self) {
        if self.memory.len() > 3 && !self.random.one_in(8) {
            return self.access();
        }
        let name = self.fresh('a');
        let stream = self.stream();
        // Pools that a program makes are of the first device.
        let from = match self.random.below(8) {
            _ if self.several && stream != "s0" => String::new(),
            0 if self.pools.is_empty() => {
                let pool = self.fresh('p');
                self.say(format!("pool {pool}"));
                self.pools.push(pool.clone());
                format!(" from {pool}")
            }
            0 => format!(" from {}", self.random.pick(&self.pools)),
            _ => String::new(),
        };
        match self.random.below(12) {
            // The library has no such call for a capture to refuse.
            0 if !self.several && self.capture.is_none() => self.say(format!("{name} = alloc now 256")),
            _ => self.say(format!("{name} = alloc {stream} 256{from}")),
        }
        match &mut self.capture {
            Some(capture) if capture.inside.contains(&stream) => {
                capture.graph.own.push(Own { name, is_freed: false });
            }
            _ => self.memory.push(name),
        }
    }

    pub(crate) fn access(&mut self) {
        let Some(first) = self.some_memory() else { return self.alloc() };
        let stream = self.stream();
        let other = self.some_memory().filter(|other| *other != first);
        let line = match (self.random.below(8), other) {
            (0..=2, _) => format!("read {stream} {first}{}", self.part()),
            (3..=5, _) | (_, None) => format!("write {stream} {first}{}", self.part()),
            (6, Some(other)) => format!("copy {stream} {first} to {other}"),
            (_, Some(other)) if self.random.one_in(2) => {
                format!("kernel {stream} read {first}{} write {other}{}", self.part(), self.part())
            }
            _ => format!("kernel {stream} read {first}{} write {first}{}", self.part(), self.part()),
        };
        self.say(line);
    }

    /// Returns nothing, or bytes of memory; two of these may overlap.
    pub(crate) fn part(&mut self) -> &'static str {
        match self.random.below(12) {
            0..=1 => "[0..128]",
            2..=3 => "[128..256]",
            4 => "[100..200]",
            5 => "[255..256]",
            6 => "[200..200]",
            7 => "[0..256]",
            _ => "",
        }
    }

    fn free(&mut self) {
        let Some(name) = self.some_memory() else { return self.alloc() };
        let stream = self.stream();
        match self.random.below(10) {
            0 => self.say(format!("free now {name}")),
            1 if self.memory.contains(&name) && self.capture.is_none() => self.say(format!("drop {name}")),
            _ => self.say(format!("free {stream} {name}")),
        }
        // Later lines may name it again, as wrong programs do.
        if !self.random.one_in(6) {
            self.memory.retain(|it| *it != name);
            if let Some(capture) = &mut self.capture {
                capture.graph.own.iter_mut().filter(|own| own.name == name).for_each(|own| own.is_freed = true);
            }
        }
    }

    fn host(&mut self) {
        let stream = self.stream();
        match self.random.below(8) {
            0 | 1 => self.say(format!("synchronize {stream}")),
            2 if self.several && self.random.one_in(2) => self.say("synchronize device 1".into()),
            2 => self.say("synchronize device".into()),
            3 if !self.events.is_empty() => {
                let event = self.random.pick(&self.events);
                self.say(format!("synchronize {event}"));
            }
            4 => self.say(format!("query {stream} yes")),
            // To the library it is a launch and a synchronisation, which a capture may forbid.
            _ if self.capture.is_some() => self.access(),
            _ => {
                let Some(name) = self.some_memory() else { return };
                let act = self.random.pick(&["read", "write"]);
                let part = self.part();
                self.say(format!("host {act} {name}{part}"));
            }
        }
    }

    fn take_or_update(&mut self) {
        let launched: Vec<usize> = (0..self.execs.len())
            .filter(|at| self.execs[*at].is_launched && !self.execs[*at].leaves.is_empty())
            .collect();
        if !launched.is_empty() && self.random.one_in(2) {
            let at = self.random.pick(&launched);
            let from = self.random.pick(&self.execs[at].leaves);
            let (name, exec) = (self.fresh('a'), self.execs[at].name.clone());
            self.say(format!("{name} = take {from} from {exec}"));
            self.memory.push(name);
        } else if !self.execs.is_empty() && !self.graphs.is_empty() {
            let at = self.random.below(self.execs.len());
            let graph = match self.random.below(3) {
                0 => self.random.pick(&self.graphs).name,
                _ => self.execs[at].graph.clone(),
            };
            let name = self.execs[at].name.clone();
            self.say(format!("update {name} from {graph}"));
        }
    }

    fn destroy(&mut self) {
        match self.random.below(4) {
            0 if self.streams.len() > 2 => {
                let at = 1 + self.random.below(self.streams.len() - 1);
                // Only the checker finds a capture that is thereby abandoned, as with a leak.
                let mut captures: Vec<_> = self.capture.iter_mut().chain(&mut self.aside).collect();
                if captures.iter().any(|capture| capture.origin == self.streams[at]) {
                    return;
                }
                let stream = self.streams.remove(at);
                captures.iter_mut().for_each(|capture| capture.inside.retain(|inside| *inside != stream));
                self.legacy = self.legacy.take().filter(|legacy| *legacy != stream);
                self.say(format!("destroy {stream}"));
            }
            1 if !self.execs.is_empty() => {
                let at = self.random.below(self.execs.len());
                let exec = self.execs.remove(at);
                self.memory.extend(exec.leaves);
                self.say(format!("destroy {}", exec.name));
            }
            // A graph without an instance is judged when it is destroyed, and none can be made during a capture.
            2 if !self.graphs.is_empty() && self.capture.is_none() => {
                let at = self.random.below(self.graphs.len());
                let graph = self.graphs.remove(at);
                self.say(format!("destroy {}", graph.name));
            }
            3 if !self.events.is_empty() => {
                let at = self.random.below(self.events.len());
                let event = self.events.remove(at);
                self.say(format!("destroy {event}"));
            }
            _ => self.edge(),
        }
    }
}
