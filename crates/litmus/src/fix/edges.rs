//! Writes the edges that a finding names into a text, in one or more ways, the most likely first. The caller tries
//! which of them settles the finding.

use std::collections::BTreeMap;

use millpond_core::check::{Edit, Finding, Kind, Side};
use millpond_core::ids::StreamId;

use super::lines::{Lines, Statement};

/// Returns the texts with the edges of a finding, one for each way to write them.
pub(super) fn candidates(lines: &Lines, finding: &Finding, edit: Edit) -> Vec<Lines> {
    let (Some(line), Some(later)) = (finding.line(), finding.later.as_ref()) else { return Vec::new() };
    let sides: Vec<&Side> = match finding.missing.is_empty() {
        true => finding.earlier.iter().collect(),
        false => finding.missing.iter().map(|edge| &edge.after).collect(),
    };
    let it = Edges { lines, finding, later, line, sides };
    let between_nodes = if edit == Edit::Edge { it.between_nodes() } else { Vec::new() };
    between_nodes.into_iter().chain(it.between_streams()).flatten().collect()
}

type Texts = Vec<Option<Lines>>;

/// The edges of a finding; see the module.
struct Edges<'a> {
    lines: &'a Lines,
    finding: &'a Finding,
    later: &'a Side,
    /// The line of the finding.
    line: u32,
    /// The operations that have to come first.
    sides: Vec<&'a Side>,
}

impl Edges<'_> {
    fn statement(&self, line: u32) -> Statement {
        self.lines.statement(line).unwrap_or_default()
    }

    /// Returns a changed copy of the lines.
    fn made(&self, change: impl FnOnce(&mut Lines) -> Option<()>) -> Option<Lines> {
        let mut lines = self.lines.clone();
        change(&mut lines)?;
        Some(lines)
    }

    /// Returns the name of a side's stream: the one that the finding gives, or the one that its line names.
    fn stream_of(&self, side: &Side) -> Option<String> {
        if let Some(name) = side.who.strip_prefix("stream `") {
            return Some(name.trim_end_matches('`').to_owned());
        }
        let Statement { words, .. } = self.lines.statement(side.spot.line?)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["read" | "write" | "free" | "kernel" | "copy" | "wait", stream, ..]
            | ["record" | "launch", _, stream, ..]
            | [_, "=", "alloc", stream, ..] => Some(stream.to_owned()),
            _ => None,
        }
    }

    fn between_streams(&self) -> Texts {
        let is_host = |side: &Side| side.stream == Some(StreamId::HOST);
        let here = self.statement(self.line).by;
        if is_host(self.later) {
            let everything = self.made(|lines| {
                lines.insert(self.line, &format!("{here}synchronize device"));
                Some(())
            });
            return vec![self.learned_from(&here, is_host), everything, self.met_by_events(&here)];
        }
        if self.sides.iter().any(|side| is_host(side)) {
            return vec![self.learned_from(&here, is_host)];
        }
        let Some(waiter) = self.stream_of(self.later) else { return Vec::new() };
        // The other process records the work of its own streams.
        let by = |side: &&Side| side.spot.line.map_or_else(String::new, |line| self.statement(line).by);
        let processes = self.lines.find(|words| matches!(words, ["process", ..]));
        let is_apart = !processes.is_empty() && self.sides.iter().any(|side| by(side) != here);
        let wait = Wait { edges: self, waiter, here };
        let mut texts = vec![wait.for_what_is_there()];
        texts.extend(is_apart.then(|| wait.recorded_now(true)));
        texts.extend([wait.recorded_now(false), wait.recorded_behind_each()]);
        texts
    }

    /// Returns an event whose newest record before this line is on the side's stream and after the side.
    fn recorded_behind(&self, side: &Side) -> Option<String> {
        let (stream, line) = (self.stream_of(side)?, side.spot.line?);
        let records = self.lines.find(|words| matches!(words, ["record", ..]));
        let records = records.into_iter().filter(|record| (line..self.line).contains(record));
        let mut newest = BTreeMap::new();
        for record in records {
            if let [_, event, on, ..] = &self.statement(record).words[..] {
                newest.insert(event.clone(), *on == stream);
            }
        }
        newest.into_iter().find_map(|(event, is_there)| is_there.then_some(event))
    }

    /// Lets a host come after others: it synchronises streams, and learns from threads.
    fn learned_from(&self, here: &str, is_host: impl Fn(&Side) -> bool) -> Option<Lines> {
        self.made(|lines| {
            for side in &self.sides {
                let statement = match is_host(side) {
                    true => {
                        let me = here.trim_end_matches(": ");
                        let by = self.statement(side.spot.line?).by;
                        format!("{by}tell {}", if me.is_empty() { "main" } else { me })
                    }
                    false => format!("{here}synchronize {}", self.stream_of(side)?),
                };
                lines.insert(self.line, &statement);
            }
            Some(())
        })
    }

    /// Lets a host wait for events that other processes have recorded, or now record for it.
    fn met_by_events(&self, here: &str) -> Option<Lines> {
        self.made(|lines| {
            let mut at = self.line;
            for side in &self.sides {
                let (stream, by) = (self.stream_of(side)?, self.statement(side.spot.line?).by);
                let event = match self.recorded_behind(side) {
                    Some(event) => event,
                    None => {
                        let new = lines.fresh();
                        lines.insert(at, &format!("{by}event {new} shared"));
                        lines.insert(at + 1, &format!("{by}record {new} {stream}"));
                        at += 2;
                        new
                    }
                };
                lines.insert(at, &format!("{here}synchronize {event}"));
                at += 1;
            }
            Some(())
        })
    }

    /// Adds an edge from each node that has to come first. If two nodes may be in either order, also returns the text
    /// with the opposite edge.
    fn between_nodes(&self) -> Texts {
        let Some((to, graph, second)) = self.node(self.later) else { return Vec::new() };
        let nodes: Option<Vec<_>> = self.sides.iter().map(|side| self.node(side)).collect();
        let Some(nodes) = nodes.filter(|nodes| nodes.iter().all(|(_, of, _)| *of == graph)) else { return Vec::new() };
        let last = nodes.iter().map(|(.., line)| *line).fold(second, u32::max);
        let (by, at) = (self.statement(second).by, self.end_of(&graph, last));
        let edges = |ends: &[(&str, &str)]| {
            self.made(|lines| {
                for (from, to) in ends {
                    lines.bring(at, &format!("{by}edge {from} -> {to} in {graph}"));
                }
                Some(())
            })
        };
        let all: Vec<(&str, &str)> = nodes.iter().map(|(from, ..)| (from.as_str(), to.as_str())).collect();
        let turned = match all[..] {
            [(from, to)] if self.finding.kind == Kind::Race => edges(&[(to, from)]),
            _ => None,
        };
        vec![edges(&all), turned]
    }

    /// Returns the line after the last change of a graph that follows line `after` and comes before the next
    /// instantiation or other copy of the graph.
    fn end_of(&self, graph: &str, after: u32) -> u32 {
        let copied = self.lines.find(|words| match *words {
            [_, "=", "instantiate" | "clone", of, ..] | ["update", _, "from", of] | ["destroy", of] => of == graph,
            [.., "child", of] => of == graph,
            _ => false,
        });
        let until = copied.into_iter().find(|line| *line > after).unwrap_or(u32::MAX);
        let changed = self.lines.find(|words| match *words {
            ["node", _, "in", of, ..] | ["edge" | "remove", .., of] => of == graph,
            _ => false,
        });
        changed.into_iter().rfind(|line| *line < until).unwrap_or(after).max(after) + 1
    }

    /// Returns the node of a side: its name, its graph and its line. It is the node of the outermost graph, unless both
    /// sides of the finding are in the same child.
    fn node(&self, side: &Side) -> Option<(String, String, u32)> {
        let named = |line: u32| match &self.statement(line).words[..] {
            [node, name, within, graph, ..] if node == "node" && within == "in" => {
                Some((name.clone(), graph.clone(), line))
            }
            _ => None,
        };
        let path = side.node.as_deref()?;
        let child_of = |side: &Side| Some(side.node.as_deref()?.rsplit_once('.')?.0.to_owned());
        let (earlier, later) = (self.finding.earlier.as_ref().and_then(child_of), child_of(self.later));
        let is_one_child = earlier.is_some() && earlier == later && earlier == child_of(side);
        let Some((first, _)) = path.split_once('.').filter(|_| !is_one_child) else { return named(side.spot.line?) };
        // Inside a child: take the child node, whose index in its graph is the path's first number.
        let index: usize = first.parse().ok()?;
        let graph = self.graph()?;
        let nodes = self.lines.find(|words| matches!(words, ["node", _, "in", of, ..] if *of == graph));
        named(*nodes.get(index)?)
    }

    /// Returns the graph of the finding, from the statement that creates it.
    fn graph(&self) -> Option<String> {
        let index = self.finding.graph?.0 as usize;
        let made =
            self.lines.find(|words| matches!(words, ["graph", ..] | ["capture", _, "as", ..] | [_, "=", "clone", _]));
        let words = self.statement(*made.get(index)?).words;
        match &words[..] {
            [graph, name, ..] if graph == "graph" => Some(name.clone()),
            [_, _, _, name, ..] => Some(name.clone()),
            _ => None,
        }
    }
}

/// A stream that is to wait for the operations that have to come first.
struct Wait<'a> {
    edges: &'a Edges<'a>,
    waiter: String,
    /// The prefix of the waiting line: its thread or process.
    here: String,
}

impl Wait<'_> {
    fn wait_for(&self, event: &str) -> String {
        format!("{}wait {} {event}", self.here, self.waiter)
    }

    /// Waits for events that exist and that no line before this one records again.
    fn for_what_is_there(&self) -> Option<Lines> {
        self.edges.made(|lines| {
            for side in &self.edges.sides {
                let event = self.edges.recorded_behind(side)?;
                lines.insert(self.edges.line, &self.wait_for(&event));
            }
            Some(())
        })
    }

    /// Waits for events that are recorded just before the wait; with `is_theirs`, by the other process.
    fn recorded_now(&self, is_theirs: bool) -> Option<Lines> {
        self.edges.made(|lines| {
            let mut at = self.edges.line;
            for side in &self.edges.sides {
                let (event, stream) = (lines.fresh(), self.edges.stream_of(side)?);
                let by = match is_theirs {
                    true => self.edges.statement(side.spot.line?).by,
                    false => self.here.clone(),
                };
                if is_theirs {
                    lines.insert(at, &format!("{by}event {event} shared"));
                    at += 1;
                }
                lines.insert(at, &format!("{by}record {event} {stream}"));
                lines.insert(at + 1, &self.wait_for(&event));
                at += 2;
            }
            Some(())
        })
    }

    /// Waits for events that are recorded just after the operations that have to come first. These may be in the same
    /// capture as the later side.
    fn recorded_behind_each(&self) -> Option<Lines> {
        self.edges.made(|lines| {
            let mut sides = self.edges.sides.clone();
            sides.sort_by_key(|side| std::cmp::Reverse(side.spot.line));
            for (at, side) in (self.edges.line..).zip(sides) {
                let (event, stream, line) = (lines.fresh(), self.edges.stream_of(side)?, side.spot.line?);
                if line >= self.edges.line {
                    return None;
                }
                lines.insert(at, &self.wait_for(&event));
                lines.insert(line + 1, &format!("{}record {event} {stream}", self.edges.statement(line).by));
            }
            Some(())
        })
    }
}
