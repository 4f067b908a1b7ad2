//! What an edit is in a text: one or more ways to write it, the most likely first. Which of them puts a finding right,
//! whoever asks tries.

use millpond_core::check::{Edit, Finding, Side};

mod frees;
mod orders;

use super::lines::{Lines, Statement};

/// The texts that an edit could become, each with the edit that it is: where a help names two, the other one is last.
pub(super) fn candidates(lines: &Lines, finding: &Finding, edit: Edit) -> Vec<(Edit, Lines)> {
    let Some(line) = finding.line() else { return Vec::new() };
    let it = Edits { lines, finding, line };
    let texts = match edit {
        Edit::Order => it.order(),
        Edit::Edge => it.edge(),
        Edit::LeaveOut => it.leave_out(),
        Edit::MoveBehind => it.move_behind(),
        Edit::BehindLaunch => it.behind_launch(),
        Edit::Free => it.free(),
        Edit::OutsideCapture => it.outside_capture(),
        Edit::External => vec![it.with_word(line, "external")],
        Edit::Internal => vec![it.without_word(line, "external")],
        Edit::AutoFree => it.auto_free(),
        Edit::Symbolic => it.symbolic(),
        Edit::Shareable => it.shareable(),
        Edit::Grant => it.grant(),
        _ => Vec::new(),
    };
    let other = if edit == Edit::AutoFree { it.free_in_loop() } else { None };
    let texts = texts.into_iter().flatten().map(|lines| (edit, lines));
    texts.chain(other.map(|lines| (Edit::Free, lines))).collect()
}

/// Whether a finding is at the launch of a graph.
pub(super) fn is_launch(lines: &Lines, finding: &Finding) -> bool {
    let statement = finding.line().and_then(|line| lines.statement(line));
    statement.is_some_and(|statement| statement.words.first().is_some_and(|word| word == "launch"))
}

/// So many launches are tried for one operation to come behind.
const LAUNCHES_TRIED: usize = 4;

/// So many captures are tried for one operation to come out of, to either side.
const CAPTURES_TRIED: usize = 4;

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
        // The nearest first: of captures that go on at once the last begun, or the first ended, may not be all.
        let (mut behind, mut before) = (behind.take(CAPTURES_TRIED), before.take(CAPTURES_TRIED));
        (0..CAPTURES_TRIED).flat_map(|_| [behind.next(), before.next()]).flatten().collect()
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

    /// The nearest launches first.
    fn behind_launch(&self) -> Texts {
        let launches = self.lines.find(|words| matches!(words, ["launch", ..])).into_iter();
        let behind = |launch: u32| {
            self.made(|lines| {
                lines.move_behind(self.line, launch);
                Some(())
            })
        };
        launches.filter(|launch| *launch > self.line).take(LAUNCHES_TRIED).map(behind).collect()
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

    fn shareable(&self) -> Texts {
        let made = self.lines.find(|words| matches!(words, ["pool" | "event", _]));
        let mut texts: Texts = made.into_iter().map(|line| self.with_word(line, "shared")).collect();
        // Memory of the default pool.
        let name = self.statement(self.line).words.get(1).cloned().unwrap_or_default();
        let born = self.lines.find(|words| matches!(words, [of, "=", "alloc", _, _] if *of == name));
        texts.extend(born.iter().rfind(|line| **line < self.line).map(|line| {
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

    /// Before the use, or the allocation, a pool lets the device in whose work it is; for memory of a default pool one
    /// is made that does.
    fn grant(&self) -> Texts {
        let pools = self.lines.find(|words| matches!(words, ["pool", ..]));
        let grant = |device: &str, line: u32, at: Option<u32>| {
            self.made(|lines| {
                let (at, pool) = (at?, self.statement(line).words.get(1)?.clone());
                lines.insert(at, format!("{}grant {pool} to {device}", self.statement(at).by));
                Some(())
            })
        };
        let own_pool = |device: &str| {
            self.made(|lines| {
                let born = self.earlier_line()?;
                let (by, pool) = (self.statement(born).by, lines.fresh());
                if !matches!(&self.statement(born).words[..], [_, of, alloc, _, _] if of == "=" && alloc == "alloc") {
                    return None;
                }
                lines.replace(born, |words| words.extend(["from".to_owned(), pool.clone()]));
                lines.insert(born, format!("{by}grant {pool} to {device}"));
                lines.insert(born, format!("{by}pool {pool}"));
                Some(())
            })
        };
        let mut texts = Vec::new();
        for device in self.devices() {
            for at in [Some(self.line), self.earlier_line()] {
                texts.extend(pools.iter().map(|line| grant(&device, *line, at)));
            }
            texts.push(own_pool(&device));
        }
        texts
    }

    /// The devices whose work may be meant: that of the later side's stream; at a launch, whose nodes may do it on
    /// others, those that the program names, too.
    fn devices(&self) -> Vec<String> {
        let user = self.finding.later.as_ref().and_then(|side| self.stream_of(side));
        let made = self.lines.find(|words| matches!(words, ["stream", name, ..] if Some(*name) == user.as_deref()));
        let device = |line: &u32| {
            let words = self.statement(*line).words;
            let on = words.iter().position(|word| word == "on").and_then(|at| words.get(at + 1).cloned());
            on.unwrap_or_else(|| "0".to_owned())
        };
        let mut devices = vec![made.first().map_or_else(|| "0".to_owned(), device)];
        if is_launch(self.lines, self.finding) {
            for other in self.lines.find(|words| matches!(words, ["stream", ..])).iter().map(device) {
                if !devices.contains(&other) {
                    devices.push(other);
                }
            }
        }
        devices
    }
}
