//! What an edit is in a text: one or more ways to write it, the most likely first. Which of them puts a finding right,
//! whoever asks tries.

use millpond_core::check::{Act, Edit, Finding, Kind, Side};
use millpond_core::ids::StreamId;

use super::lines::{Lines, Statement};

/// The texts that an edit could become.
pub(super) fn candidates(lines: &Lines, finding: &Finding, edit: Edit) -> Vec<Lines> {
    let Some(line) = finding.line() else { return Vec::new() };
    let it = Edits { lines, finding, line };
    let texts = match edit {
        Edit::Order => it.order(),
        Edit::Edge => it.edge(),
        Edit::LeaveOut => it.leave_out(),
        Edit::MoveBehind => it.move_behind(),
        Edit::Free => it.free(),
        Edit::OutsideCapture => it.outside_capture(),
        Edit::External => vec![it.with_word(line, "external")],
        Edit::Internal => vec![it.without_word(line, "external")],
        Edit::NotEarly => vec![it.without_word(line, "early")],
        Edit::AutoFree => it.auto_free(),
        Edit::Symbolic => it.symbolic(),
        Edit::OwnEvent => it.own_event(),
        Edit::Shareable => it.shareable(),
        Edit::Grant => it.grant(),
        _ => Vec::new(),
    };
    texts.into_iter().flatten().collect()
}

struct Edits<'a> {
    lines: &'a Lines,
    finding: &'a Finding,
    /// Where the finding is.
    line: u32,
}

type Texts = Vec<Option<Lines>>;

impl Edits<'_> {
    fn earlier(&self) -> Option<&Side> {
        self.finding.earlier.as_ref()
    }

    fn earlier_line(&self) -> Option<u32> {
        self.earlier()?.spot.line
    }

    fn statement(&self, line: u32) -> Statement {
        self.lines.statement(line).unwrap_or_default()
    }

    /// The stream of a side, by its name: as it is called, or the one that its line names.
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

    /// A change of a copy.
    fn made(&self, change: impl FnOnce(&mut Lines) -> Option<()>) -> Option<Lines> {
        let mut lines = self.lines.clone();
        change(&mut lines)?;
        Some(lines)
    }

    fn order(&self) -> Texts {
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
            let everything = self.made(|lines| {
                lines.insert(self.line, format!("{by}synchronize device"));
                Some(())
            });
            return vec![learned, everything];
        }
        if sides.iter().any(|side| is_host(side)) {
            return vec![self.learned_from(&sides, is_host)];
        }
        let Some(waiter) = self.stream_of(later) else { return Vec::new() };
        let here = self.statement(self.line).by;
        // An event that is recorded right before the wait; one that the other process records; one that is recorded
        // right behind what has to come first, which may be in the capture that the later side is in.
        let now = |is_theirs: bool| {
            self.made(|lines| {
                let mut at = self.line;
                for side in &sides {
                    let (event, stream) = (lines.fresh(), self.stream_of(side)?);
                    let by = match is_theirs {
                        true => self.statement(side.spot.line?).by,
                        false => here.clone(),
                    };
                    if is_theirs {
                        lines.insert(at, format!("{by}event {event} shared"));
                        at += 1;
                    }
                    lines.insert(at, format!("{by}record {event} {stream}"));
                    lines.insert(at + 1, format!("{here}wait {waiter} {event}"));
                    at += 2;
                }
                Some(())
            })
        };
        let behind = self.made(|lines| {
            let mut sides: Vec<&&Side> = sides.iter().collect();
            sides.sort_by_key(|side| std::cmp::Reverse(side.spot.line));
            for (at, side) in (self.line..).zip(sides) {
                let (event, stream, line) = (lines.fresh(), self.stream_of(side)?, side.spot.line?);
                if line >= self.line {
                    return None;
                }
                lines.insert(at, format!("{here}wait {waiter} {event}"));
                lines.insert(line + 1, format!("{}record {event} {stream}", self.statement(line).by));
            }
            Some(())
        });
        // The other process records what its own streams did.
        let by = |side: &&Side| side.spot.line.map_or_else(String::new, |line| self.statement(line).by);
        let processes = self.lines.find(|words| matches!(words, ["process", ..]));
        let is_apart = !processes.is_empty() && sides.iter().any(|side| by(side) != here);
        let waits = self.made(|lines| {
            lines.insert(self.line, format!("{here}synchronize device"));
            Some(())
        });
        match is_apart {
            true => vec![now(true), now(false), behind, waits],
            false => vec![now(false), behind, waits],
        }
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

    /// Nodes of one graph: an edge, or in a capture the order of their streams.
    fn edge(&self) -> Texts {
        let mut texts = Vec::new();
        if let (Some(earlier), Some(later)) = (self.earlier(), self.finding.later.as_ref())
            && let Some((from, graph, first)) = self.node(earlier)
            && let Some((to, _, second)) = self.node(later).filter(|(_, of, _)| *of == graph)
        {
            let edge = |from: &str, to: &str, at: u32| {
                self.made(|lines| {
                    let by = self.statement(second).by;
                    lines.insert(at, format!("{by}edge {from} -> {to} in {graph}"));
                    Some(())
                })
            };
            let behind = first.max(second) + 1;
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

    /// The node of the outermost graph that a side is in: its name, its graph and its line.
    fn node(&self, side: &Side) -> Option<(String, String, u32)> {
        let named = |line: u32| match &self.statement(line).words[..] {
            [node, name, within, graph, ..] if node == "node" && within == "in" => {
                Some((name.clone(), graph.clone(), line))
            }
            _ => None,
        };
        let path = side.node.as_deref()?;
        let Some((first, _)) = path.split_once('.') else { return named(side.spot.line?) };
        // Inside a child: the child node, which is the so many-th of its graph.
        let index: usize = first.parse().ok()?;
        let graph = self.graph()?;
        let nodes = self.lines.find(|words| matches!(words, ["node", _, "in", of, ..] if *of == graph));
        named(*nodes.get(index)?)
    }

    /// The graph that the finding is in, by the statement at which it was found.
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

    fn leave_out(&self) -> Texts {
        let without = |line: u32| {
            self.made(|lines| {
                lines.remove(line);
                Some(())
            })
        };
        let is_free = |line: &u32| self.is_free(*line) || self.finding.kind.is_advice();
        let lines = [Some(self.line), self.earlier_line()];
        let lines: Vec<u32> = lines.into_iter().flatten().filter(is_free).collect();
        // A node that others come after stays, and does nothing.
        let empty = |line: &u32| {
            self.made(|lines| {
                let colon = self.statement(*line).words.iter().position(|word| word == ":")?;
                lines.replace(*line, |words| words.splice(colon + 1.., ["empty".to_owned()]).for_each(drop));
                Some(())
            })
        };
        lines.iter().map(|line| without(*line)).chain(lines.iter().map(empty)).collect()
    }

    fn is_free(&self, line: u32) -> bool {
        let words = self.statement(line).words;
        words.first().is_some_and(|word| word == "free" || word == "drop")
            || words.iter().any(|word| word == ":") && words.iter().any(|word| word == "free")
    }

    /// The name of the memory that a statement frees.
    fn freed(&self, line: u32) -> Option<String> {
        self.statement(line).words.last().cloned()
    }

    /// In a graph: `first` comes before `second`, and not after it.
    fn turned(&self, first: &Side, second: &Side) -> Option<Lines> {
        let (first, graph, at) = self.node(first)?;
        let (second, _, behind) = self.node(second).filter(|(_, of, _)| *of == graph)?;
        self.made(|lines| {
            lines.replace(at, |words| {
                let colon = words.iter().position(|word| word == ":").unwrap_or(words.len());
                let after: Vec<String> = words.drain(4.min(colon)..colon).filter(|it| *it != second).collect();
                let is_none = after.iter().all(|word| word == "after");
                words.splice(4..4, if is_none { Vec::new() } else { after });
            });
            lines.insert(at.max(behind) + 1, format!("edge {first} -> {second} in {graph}"));
            Some(())
        })
    }

    fn move_behind(&self) -> Texts {
        let dropped = |line: u32, at: u32| {
            self.made(|lines| {
                let name = self.freed(line)?;
                lines.insert(at + 1, format!("{}drop {name}", self.statement(line).by));
                lines.remove(line);
                Some(())
            })
        };
        if self.finding.kind == Kind::FreeWhileImported {
            return vec![dropped(self.line, self.line)];
        }
        let words = self.statement(self.line).words;
        let destroyed = || {
            let is_it = |line: &[&str]| matches!(line, ["destroy", name] if words.iter().any(|word| word == name));
            self.lines.find(is_it).into_iter().rfind(|line| *line < self.line)
        };
        let earlier = self.earlier_line().filter(|line| *line < self.line).or_else(destroyed);
        let Some(earlier) = earlier else { return Vec::new() };
        if !self.is_free(earlier) && self.finding.earlier.as_ref().is_some_and(|side| side.act == Some(Act::Free)) {
            return Vec::new();
        }
        let moved = self.made(|lines| {
            lines.move_behind(earlier, self.line);
            Some(())
        });
        let memory = self.finding.kind == Kind::UseAfterFree && self.finding.graph.is_none();
        vec![
            self.finding.later.as_ref().and_then(|later| self.turned(later, self.earlier()?)),
            moved,
            memory.then(|| dropped(earlier, self.line)).flatten(),
        ]
    }

    /// Behind the last line that names the memory, or at the end.
    fn free(&self) -> Texts {
        let Statement { by, words } = self.statement(self.line);
        let Some(name) = words.first().cloned() else { return Vec::new() };
        let named = match words.iter().position(|word| word == "alloc") {
            // The memory of a node.
            Some(at) if words[0] == "node" => words.get(at + 1).cloned().unwrap_or(name),
            _ => name,
        };
        let is_it =
            |word: &str| word == named || word.strip_prefix(named.as_str()).is_some_and(|it| it.starts_with('['));
        let last = self.lines.find(|words| words.iter().any(|word| is_it(word))).last().copied();
        let end = self.lines.len() as u32;
        let statements = [format!("{by}drop {named}"), format!("{by}free now {named}")];
        let places = [Some(end), last.filter(|last| *last != end)];
        let at = |place: u32| {
            let statements = statements.clone();
            statements.map(|statement| {
                self.made(|lines| {
                    lines.insert(place + 1, statement);
                    Some(())
                })
            })
        };
        places.into_iter().flatten().flat_map(at).collect()
    }

    fn outside_capture(&self) -> Texts {
        let behind = self.lines.find(|words| matches!(words, ["end", "capture", _])).into_iter();
        let before = self.lines.find(|words| matches!(words, ["capture", _, "as", ..])).into_iter();
        let behind = behind.filter(|line| *line > self.line).map(|line| {
            self.made(|lines| {
                lines.move_behind(self.line, line);
                Some(())
            })
        });
        let before = before.rev().filter(|line| *line < self.line).map(|line| {
            self.made(|lines| {
                lines.move_before(self.line, line);
                Some(())
            })
        });
        behind.take(1).chain(before.take(1)).collect()
    }

    fn with_word(&self, line: u32, word: &str) -> Option<Lines> {
        self.made(|lines| {
            lines.replace(line, |words| words.push(word.to_owned()));
            Some(())
        })
    }

    fn without_word(&self, line: u32, word: &str) -> Option<Lines> {
        self.made(|lines| {
            lines.replace(line, |words| words.retain(|it| it != word));
            Some(())
        })
    }

    /// The instance that is launched here frees by itself.
    fn auto_free(&self) -> Texts {
        let words = self.statement(self.line).words;
        let [launch, exec, ..] = &words[..] else { return Vec::new() };
        let made = self.lines.find(|words| matches!(words, [name, "=", "instantiate", _] if name == exec));
        match launch == "launch" {
            true => made.into_iter().map(|line| self.with_word(line, "auto-free")).collect(),
            false => Vec::new(),
        }
    }

    /// One graph after the other; or all.
    fn symbolic(&self) -> Texts {
        let made = self
            .lines
            .find(|words| matches!(words, ["graph", ..] | ["capture", _, "as", ..]) && !words.contains(&"symbolic"));
        let one = made.iter().map(|line| self.with_word(*line, "symbolic"));
        let all = self.made(|lines| {
            made.iter().for_each(|line| lines.replace(*line, |words| words.push("symbolic".to_owned())));
            Some(())
        });
        one.chain([all]).collect()
    }

    /// The first record is of an event of its own, for which whoever waits for the second one waits as well.
    fn own_event(&self) -> Texts {
        let Some(first) = self.earlier_line() else { return Vec::new() };
        let words = self.statement(first).words;
        let Some(event) = words.get(1).cloned() else { return Vec::new() };
        let waits = self.lines.find(|words| matches!(words, ["wait", _, of, ..] if *of == event));
        let own = |wait: u32| {
            self.made(|lines| {
                let fresh = lines.fresh();
                let Statement { by, words } = self.statement(wait);
                let stream = words.get(1)?;
                lines.insert(wait, format!("{by}wait {stream} {fresh}"));
                lines.replace(first, |words| words[1] = fresh.clone());
                Some(())
            })
        };
        waits.into_iter().filter(|wait| *wait > self.line).map(own).collect()
    }

    fn shareable(&self) -> Texts {
        let made = self.lines.find(|words| matches!(words, ["pool" | "event", _]));
        let mut texts: Texts = made.into_iter().map(|line| self.with_word(line, "shared")).collect();
        // Memory of the default pool.
        let name = self.statement(self.line).words.get(1).cloned().unwrap_or_default();
        let born = self.lines.find(|words| matches!(words, [of, "=", "alloc", _, _] if *of == name));
        texts.extend(born.last().map(|line| {
            self.made(|lines| {
                let pool = lines.fresh();
                lines.replace(*line, |words| words.extend(["from".to_owned(), pool.clone()]));
                lines.insert(*line, format!("{}pool {pool} shared", self.statement(*line).by));
                Some(())
            })
        }));
        // An event that is made by its first record.
        let words = self.statement(self.line).words;
        if let [what, a, b, ..] = &words[..] {
            let event = if what == "wait" { b } else { a };
            let recorded = self.lines.find(|words| matches!(words, ["record", of, ..] if of == event));
            texts.extend(recorded.first().map(|line| {
                self.made(|lines| {
                    lines.insert(*line, format!("{}event {event} shared", self.statement(*line).by));
                    Some(())
                })
            }));
        }
        texts
    }

    /// Before the use, a pool lets the device in whose stream it is; memory of a default pool is of one that does.
    fn grant(&self) -> Texts {
        let user = self.finding.later.as_ref().and_then(|side| self.stream_of(side));
        let made = self.lines.find(|words| matches!(words, ["stream", name, ..] if Some(*name) == user.as_deref()));
        let words = made.first().map_or_else(Vec::new, |line| self.statement(*line).words);
        let device = match words.iter().position(|word| word == "on") {
            Some(at) => words[at + 1].clone(),
            None => "0".to_owned(),
        };
        let grant = |line: u32| {
            self.made(|lines| {
                let pool = self.statement(line).words.get(1)?.clone();
                lines.insert(self.line, format!("{}grant {pool} to {device}", self.statement(self.line).by));
                Some(())
            })
        };
        let own_pool = self.made(|lines| {
            let born = self.earlier_line()?;
            let (by, pool) = (self.statement(born).by, lines.fresh());
            if !matches!(&self.statement(born).words[..], [_, of, alloc, _, _] if of == "=" && alloc == "alloc") {
                return None;
            }
            lines.replace(born, |words| words.extend(["from".to_owned(), pool.clone()]));
            lines.insert(born, format!("{by}grant {pool} to {device}"));
            lines.insert(born, format!("{by}pool {pool}"));
            Some(())
        });
        let granted = self.lines.find(|words| matches!(words, ["pool", ..])).into_iter().map(grant);
        granted.chain([own_pool]).collect()
    }
}
