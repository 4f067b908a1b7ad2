//! Random programs of two or three processes: memory is exported and imported, used on both sides, and returned.
//!
//! Depends on the language, on no verdict. The library cannot see what one process tells another without an event,
//! except for what a ticket contains. So there is a `tell` after each export and nowhere else.

use crate::mutated::Random;

/// A process of the program that is being made.
struct Process {
    /// The prefix of its lines.
    by: &'static str,
    streams: Vec<String>,
    memory: Vec<String>,
}

struct Maker {
    random: Random,
    lines: Vec<String>,
    processes: Vec<Process>,
    tickets: Vec<String>,
    next: usize,
}

/// Makes a program of about so many statements.
pub(crate) fn program(seed: u64) -> Vec<String> {
    let mut maker =
        Maker { random: Random::new(seed), lines: Vec::new(), processes: Vec::new(), tickets: Vec::new(), next: 0 };
    maker.begin();
    for _ in 0..4 + maker.random.below(14) {
        maker.statement();
    }
    maker.lines
}

impl Maker {
    fn begin(&mut self) {
        let names: &[(&str, &str)] =
            if self.random.one_in(3) { &[("", ""), ("q", "q: "), ("r", "r: ")] } else { &[("", ""), ("q", "q: ")] };
        self.lines.push("set leaks off".into());
        for (name, _) in &names[1..] {
            self.lines.push(format!("process {name}"));
        }
        for (_, by) in names {
            self.processes.push(Process { by, streams: Vec::new(), memory: Vec::new() });
            for _ in 0..1 + self.random.below(2) {
                let stream = self.fresh('s');
                self.lines.push(format!("{by}stream {stream}"));
                self.processes.last_mut().expect("it is there").streams.push(stream);
            }
        }
        self.lines.push("pool p shared".into());
        self.alloc();
        self.lend(0);
    }

    fn fresh(&mut self, letter: char) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    fn stream(&mut self, process: usize) -> String {
        self.random.pick(&self.processes[process].streams)
    }

    fn say(&mut self, process: usize, line: String) {
        self.lines.push(format!("{}{line}", self.processes[process].by));
    }

    /// The first process allocates, sometimes from a pool that is not shareable.
    fn alloc(&mut self) {
        let (name, stream) = (self.fresh('a'), self.stream(0));
        let from = if self.random.one_in(12) { "" } else { " from p" };
        self.say(0, format!("{name} = alloc {stream} 256{from}"));
        if self.random.one_in(2) {
            self.say(0, format!("write {stream} {name}"));
        }
        if self.random.one_in(3) {
            self.say(0, format!("synchronize {stream}"));
        }
        self.processes[0].memory.push(name);
    }

    /// Memory is exported to another process, which imports it at once.
    fn lend(&mut self, from: usize) {
        if self.processes.len() == 1 {
            return;
        }
        let to = (from + 1 + self.random.below(self.processes.len() - 1)) % self.processes.len();
        let Some(name) = self.some_memory(from) else { return };
        let (ticket, import) = (self.fresh('k'), self.fresh('a'));
        let who = self.processes[to].by.trim_end_matches(": ");
        self.say(from, format!("export {name} as {ticket}"));
        // The ticket alone gives the same order.
        if self.random.one_in(2) {
            self.say(from, format!("tell {}", if who.is_empty() { "main" } else { who }));
        }
        if self.random.one_in(2) {
            self.edge(from, to);
        }
        self.say(to, format!("{import} = import {ticket}"));
        self.processes[to].memory.push(import);
        self.tickets.push(ticket);
    }

    fn some_memory(&mut self, process: usize) -> Option<String> {
        let memory = &self.processes[process].memory;
        (!memory.is_empty()).then(|| self.random.pick(memory))
    }

    /// Makes a stream come after another, of the same or another process.
    fn edge(&mut self, from: usize, to: usize) {
        let (event, first, second) = (self.fresh('e'), self.stream(from), self.stream(to));
        if from != to {
            self.say(from, format!("event {event} shared"));
        }
        self.say(from, format!("record {event} {first}"));
        self.say(to, format!("wait {second} {event}"));
    }

    fn statement(&mut self) {
        let process = self.random.below(self.processes.len());
        match self.random.below(24) {
            0 => self.alloc(),
            1 | 2 => self.lend(0),
            3 if self.random.one_in(4) => self.lend(process),
            4 if self.random.one_in(2) => {
                let (ticket, import) = (self.random.pick(&self.tickets), self.fresh('a'));
                self.say(process, format!("{import} = import {ticket}"));
                self.processes[process].memory.push(import);
            }
            5..=10 => {
                let to = self.random.below(self.processes.len());
                self.edge(process, to);
            }
            11 | 12 => {
                let stream = self.stream(process);
                let what = self.random.pick(&["device".to_owned(), stream]);
                self.say(process, format!("synchronize {what}"));
            }
            13..=17 => self.free(process),
            _ => self.access(process),
        }
    }

    fn access(&mut self, process: usize) {
        let Some(name) = self.some_memory(process) else { return };
        let (act, stream) = (self.random.pick(&["read", "read", "write"]), self.stream(process));
        self.say(process, format!("{act} {stream} {name}"));
    }

    fn free(&mut self, process: usize) {
        let Some(name) = self.some_memory(process) else { return };
        let stream = self.stream(process);
        match self.random.below(6) {
            // If its owner is not told, it depends on timing if the owner learns of it in time.
            end @ (0 | 1) => {
                self.say(process, format!("{} {name}", ["free now", "drop"][end]));
                if process > 0 {
                    self.say(process, "tell main".into());
                }
            }
            _ => self.say(process, format!("free {stream} {name}")),
        }
        // Later lines may name it again, as wrong programs do.
        if !self.random.one_in(5) {
            self.processes[process].memory.retain(|it| *it != name);
        }
    }
}
