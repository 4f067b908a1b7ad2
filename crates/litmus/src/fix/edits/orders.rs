//! Orders that are missing, between operations and between nodes of a graph.

use millpond_core::check::{Kind, Side};
use millpond_core::ids::StreamId;

use super::super::lines::Lines;
use super::{Edits, Texts};

/// A stream that is to wait for what has to come first.
struct Wait<'a> {
    edits: &'a Edits<'a>,
    sides: &'a [&'a Side],
    waiter: String,
    /// Which thread or process the waiting line is of.
    here: String,
}

impl Wait<'_> {
    /// Waits for events that are there and that nothing records again before this.
    fn for_what_is_there(&self) -> Option<Lines> {
        self.edits.made(|lines| {
            for side in self.sides {
                let event = self.edits.recorded_behind(side)?;
                lines.fresh();
                lines.insert(self.edits.line, format!("{}wait {} {event}", self.here, self.waiter));
            }
            Some(())
        })
    }

    /// Waits for events that are recorded right before the wait, perhaps by the other process.
    fn recorded_now(&self, is_theirs: bool) -> Option<Lines> {
        self.edits.made(|lines| {
            let mut at = self.edits.line;
            for side in self.sides {
                let (event, stream) = (lines.fresh(), self.edits.stream_of(side)?);
                let by = match is_theirs {
                    true => self.edits.statement(side.spot.line?).by,
                    false => self.here.clone(),
                };
                if is_theirs {
                    lines.insert(at, format!("{by}event {event} shared"));
                    at += 1;
                }
                lines.insert(at, format!("{by}record {event} {stream}"));
                lines.insert(at + 1, format!("{}wait {} {event}", self.here, self.waiter));
                at += 2;
            }
            Some(())
        })
    }

    /// Waits for events that are recorded right behind what has to come first, which may be in the capture that the
    /// later side is in.
    fn recorded_behind_each(&self) -> Option<Lines> {
        self.edits.made(|lines| {
            let mut sides: Vec<&&Side> = self.sides.iter().collect();
            sides.sort_by_key(|side| std::cmp::Reverse(side.spot.line));
            for (at, side) in (self.edits.line..).zip(sides) {
                let (event, stream, line) = (lines.fresh(), self.edits.stream_of(side)?, side.spot.line?);
                if line >= self.edits.line {
                    return None;
                }
                lines.insert(at, format!("{}wait {} {event}", self.here, self.waiter));
                lines.insert(line + 1, format!("{}record {event} {stream}", self.edits.statement(line).by));
            }
            Some(())
        })
    }
}

impl Edits<'_> {
    pub(super) fn order(&self) -> Texts {
        let Some(later) = self.finding.later.as_ref() else { return Vec::new() };
        let missing = &self.finding.missing;
        let sides: Vec<&Side> = match missing.is_empty() {
            true => self.earlier().into_iter().collect(),
            false => missing.iter().map(|edge| &edge.after).collect(),
        };
        let is_host = |side: &Side| side.stream == Some(StreamId::HOST);
        if is_host(later) {
            let learned = self.learned_from(&sides, is_host);
            let by = self.statement(self.line).by;
            let everything = self.synchronized(&sides, &by);
            return vec![learned, everything, self.met_by_events(&sides, &by)];
        }
        if sides.iter().any(|side| is_host(side)) {
            return vec![self.learned_from(&sides, is_host)];
        }
        let Some(waiter) = self.stream_of(later) else { return Vec::new() };
        let here = self.statement(self.line).by;
        // The other process records what its own streams did.
        let by = |side: &&Side| side.spot.line.map_or_else(String::new, |line| self.statement(line).by);
        let processes = self.lines.find(|words| matches!(words, ["process", ..]));
        let is_apart = !processes.is_empty() && sides.iter().any(|side| by(side) != here);
        let waits = self.synchronized(&sides, &here);
        let wait = Wait { edits: self, sides: &sides, waiter, here };
        let mut texts = vec![wait.for_what_is_there()];
        texts.extend(is_apart.then(|| wait.recorded_now(true)));
        texts.extend([wait.recorded_now(false), wait.recorded_behind_each(), waits]);
        texts
    }

    /// The host waits for the devices of all sides.
    fn synchronized(&self, sides: &[&Side], by: &str) -> Option<Lines> {
        let mut devices: Vec<String> = sides.iter().map(|side| self.device_of(side)).collect();
        devices.sort_unstable();
        devices.dedup();
        self.made(|lines| {
            for device in &devices {
                let number = if device == "0" { String::new() } else { format!(" {device}") };
                lines.insert(self.line, format!("{by}synchronize device{number}"));
            }
            Some(())
        })
    }

    /// The event whose newest record before this line is on a side's stream, behind that side.
    fn recorded_behind(&self, side: &Side) -> Option<String> {
        let (stream, line) = (self.stream_of(side)?, side.spot.line?);
        let records = self.lines.find(|words| matches!(words, ["record", ..]));
        let records = records.into_iter().filter(|record| (line..self.line).contains(record));
        let mut newest = std::collections::BTreeMap::new();
        for record in records {
            if let [_, event, on, ..] = &self.statement(record).words[..] {
                newest.insert(event.clone(), *on == stream);
            }
        }
        newest.into_iter().find_map(|(event, is_there)| is_there.then_some(event))
    }

    /// A host comes after others: it synchronises streams, and learns from threads.
    fn learned_from(&self, sides: &[&Side], is_host: impl Fn(&Side) -> bool) -> Option<Lines> {
        let here = self.statement(self.line).by;
        self.made(|lines| {
            for side in sides {
                lines.fresh();
                let statement = match is_host(side) {
                    true => {
                        let me = here.trim_end_matches(": ");
                        let by = self.statement(side.spot.line?).by;
                        format!("{by}tell {}", if me.is_empty() { "main" } else { me })
                    }
                    false => format!("{here}synchronize {}", self.stream_of(side)?),
                };
                lines.insert(self.line, statement);
            }
            Some(())
        })
    }

    /// A host waits for events, which other processes have recorded, or record for it.
    fn met_by_events(&self, sides: &[&Side], here: &str) -> Option<Lines> {
        self.made(|lines| {
            let mut at = self.line;
            for side in sides {
                let (new, stream, by) = (lines.fresh(), self.stream_of(side)?, self.statement(side.spot.line?).by);
                let event = match self.recorded_behind(side) {
                    Some(event) => event,
                    None => {
                        lines.insert(at, format!("{by}event {new} shared"));
                        lines.insert(at + 1, format!("{by}record {new} {stream}"));
                        at += 2;
                        new
                    }
                };
                lines.insert(at, format!("{here}synchronize {event}"));
                at += 1;
            }
            Some(())
        })
    }

    /// Nodes of one graph: an edge, or in a capture the order of their streams.
    pub(super) fn edge(&self) -> Texts {
        let mut texts = Vec::new();
        if let (Some(earlier), Some(later)) = (self.earlier(), self.finding.later.as_ref())
            && let Some((from, graph, first)) = self.node(earlier)
            && let Some((to, _, second)) = self.node(later).filter(|(_, of, _)| *of == graph)
        {
            let by = self.statement(second).by;
            let edge = |from: &str, to: &str, at: u32| {
                self.made(|lines| {
                    lines.insert(at, format!("{by}edge {from} -> {to} in {graph}"));
                    Some(())
                })
            };
            let behind = first.max(second) + 1;
            let all: Vec<_> = self.finding.missing.iter().map(|edge| self.node(&edge.after)).collect();
            texts.push(self.made(|lines| {
                let behind = all.iter().flatten().map(|(.., line)| line + 1).fold(behind, u32::max);
                for (from, of, _) in all.into_iter().collect::<Option<Vec<_>>>()? {
                    lines.fresh();
                    let edge = format!("{by}edge {from} -> {to} in {graph}");
                    (of == graph).then(|| lines.insert(behind, edge))?;
                }
                Some(())
            }));
            texts.push(edge(&from, &to, behind));
            if self.finding.kind == Kind::Race {
                texts.push(edge(&to, &from, behind));
            }
            // Where an edge was removed: behind that.
            let removed = self.lines.find(|words| matches!(words, ["remove", "edge", .., of] if *of == graph));
            texts.extend(removed.last().map(|line| edge(&from, &to, line + 1)));
            texts.push(self.turned(earlier, later));
        }
        texts.extend(self.order());
        texts
    }

    /// The node that a side is in: its name, its graph and its line. It is of the outermost graph, but where both sides
    /// of the finding are in one child.
    pub(super) fn node(&self, side: &Side) -> Option<(String, String, u32)> {
        let named = |line: u32| match &self.statement(line).words[..] {
            [node, name, within, graph, ..] if node == "node" && within == "in" => {
                Some((name.clone(), graph.clone(), line))
            }
            _ => None,
        };
        let path = side.node.as_deref()?;
        let child_of = |side: &Side| Some(side.node.as_deref()?.rsplit_once('.')?.0.to_owned());
        let (earlier, later) = (self.earlier().and_then(child_of), self.finding.later.as_ref().and_then(child_of));
        let is_one_child = earlier.is_some() && earlier == later && earlier == child_of(side);
        let Some((first, _)) = path.split_once('.').filter(|_| !is_one_child) else { return named(side.spot.line?) };
        // Inside a child: the child node, which is the so many-th of its graph.
        let index: usize = first.parse().ok()?;
        let graph = self.graph()?;
        let nodes = self.lines.find(|words| matches!(words, ["node", _, "in", of, ..] if *of == graph));
        named(*nodes.get(index)?)
    }

    /// The graph that the finding is in, by the statement at which it was found.
    pub(super) fn graph(&self) -> Option<String> {
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
