//! Frees that come too early, too often or not at all: left out, moved, added.

use millpond_core::check::{Act, Kind, Side};

use super::super::lines::{Lines, Statement};
use super::{Edits, Texts};

impl Edits<'_> {
    pub(super) fn leave_out(&self) -> Texts {
        let without = |line: u32| {
            self.made(|lines| {
                lines.remove(line);
                Some(())
            })
        };
        let is_destroyed_again = |line: u32| {
            let words = self.statement(line).words;
            line == self.line && words.first().is_some_and(|word| word == "destroy")
        };
        let is_free = |line: &u32| self.is_free(*line) || is_destroyed_again(*line) || self.finding.kind.is_advice();
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
    pub(super) fn turned(&self, first: &Side, second: &Side) -> Option<Lines> {
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

    pub(super) fn move_behind(&self) -> Texts {
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
        let Some(earlier) = earlier else { return vec![self.out_of_loop()] };
        if !self.is_free(earlier) && self.finding.earlier.as_ref().is_some_and(|side| side.act == Some(Act::Free)) {
            return Vec::new();
        }
        // Where the name means another allocation by then, the first one keeps a name of its own.
        let name = self.freed(earlier).filter(|_| self.is_free(earlier)).unwrap_or_default();
        let made = self.lines.find(|words| matches!(words, [of, "=", ..] if *of == name));
        let is_anew = made.into_iter().any(|line| (earlier..self.line).contains(&line));
        let moved = self.made(|lines| {
            let kept = lines.fresh();
            if is_anew {
                lines.replace(earlier, |words| {
                    words.iter_mut().filter(|it| **it == name).for_each(|it| *it = kept.clone())
                });
            }
            lines.move_behind(earlier, self.line);
            if is_anew {
                lines.insert(earlier, format!("{}name {name} as {kept}", self.statement(earlier).by));
            }
            Some(())
        });
        let memory = self.finding.kind == Kind::UseAfterFree && self.finding.graph.is_none();
        vec![
            self.finding.later.as_ref().and_then(|later| self.turned(later, self.earlier()?)),
            moved,
            (memory && !is_anew).then(|| dropped(earlier, self.line)).flatten(),
        ]
    }

    /// A free in a loop, of what every round uses, goes behind the loop.
    fn out_of_loop(&self) -> Option<Lines> {
        let free = self.earlier_line().filter(|line| *line >= self.line && self.is_free(*line))?;
        let end = self.lines.find(|words| *words == ["end", "repeat"]).into_iter().find(|line| *line > free)?;
        self.made(|lines| {
            lines.move_behind(free, end);
            Some(())
        })
    }

    /// What each round of a captured loop allocates, it frees; what frees it behind the loop is left out.
    pub(super) fn free_in_loop(&self) -> Option<Lines> {
        let born = self.earlier_line()?;
        let Statement { by, words } = self.statement(born);
        let [name, _, alloc, stream, ..] = &words[..] else { return None };
        if alloc != "alloc" {
            return None;
        }
        let end = self.lines.find(|words| *words == ["end", "repeat"]).into_iter().find(|line| *line > born)?;
        let later = self.lines.find(|words| matches!(words, ["free", .., of] | ["drop", of] if of == name));
        self.made(|lines| {
            later.into_iter().rev().filter(|line| *line > end).for_each(|line| lines.remove(line));
            lines.insert(end, format!("{by}free {stream} {name}"));
            Some(())
        })
    }

    /// Behind the last line that names the memory, or at the end.
    pub(super) fn free(&self) -> Texts {
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
        let rounds = self.lines.find(|words| *words == ["end", "repeat"]).into_iter().find(|line| *line > self.line);
        let places = [Some(end), last.filter(|last| *last != end), rounds.map(|line| line - 1)];
        let at = |place: u32| {
            let statements = statements.clone();
            statements.map(|statement| {
                self.made(|lines| {
                    lines.insert(place + 1, statement);
                    Some(())
                })
            })
        };
        // Its name may mean another allocation by then.
        let kept = self.made(|lines| {
            let kept = lines.fresh();
            lines.insert(end + 1, format!("{by}drop {kept}"));
            lines.insert(self.line + 1, format!("{by}name {named} as {kept}"));
            Some(())
        });
        // Memory of a copy has no name before it is given one.
        let copies = self.lines.find(|words| matches!(words, [_, "=", "clone", _])).into_iter();
        let of_copy = copies.map(|line| {
            self.made(|lines| {
                let (copy, fresh) = (self.statement(line).words.first()?.clone(), lines.fresh());
                lines.insert(end + 1, format!("{by}drop {fresh}"));
                lines.insert(line + 1, format!("{by}name {named} in {copy} as {fresh}"));
                Some(())
            })
        });
        places.into_iter().flatten().flat_map(at).chain([kept]).chain(of_copy).collect()
    }
}
