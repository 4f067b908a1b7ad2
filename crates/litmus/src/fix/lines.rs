//! The lines of a program's text, into which edges are written. Each line knows its original number.

use millpond_core::check::{Finding, Kind};

use crate::Refusal;
use crate::text;

/// A line of the text.
#[derive(Clone, Debug)]
struct One {
    /// Its number in the original text; `None` for an inserted line.
    origin: Option<u32>,
    text: String,
    /// The change that put it here, counted from 1; 0 for a line at its original place.
    change: u32,
}

/// The lines of a program. Numbers are counted from 1, as in findings.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Vec<One>,
    /// The number of the last inserted event.
    last: u32,
    /// The number of changes taken so far. A change that is tried has the next number.
    change: u32,
}

/// A line that a change inserted or moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Added {
    /// Its number in the corrected text.
    pub line: u32,
    /// The statement.
    pub text: String,
    /// Its number in the original text, if it was moved up from there.
    pub was: Option<u32>,
}

/// A statement, split into its parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Statement {
    /// The prefix that names its thread or process, such as `worker: `.
    pub(super) by: String,
    pub(super) words: Vec<String>,
}

impl Lines {
    pub(super) fn new(text: &str) -> Result<Self, Refusal> {
        text::lines(text)?;
        let one = |(at, line): (usize, &str)| One { origin: Some(at as u32 + 1), text: line.to_owned(), change: 0 };
        // Inserted names must be new.
        let taken =
            text.split(|c: char| !c.is_alphanumeric()).filter_map(|word| word.strip_prefix("fix")?.parse().ok());
        let last = taken.filter(|number: &u32| *number < 1 << 30).max().unwrap_or(0);
        Ok(Lines { lines: text.lines().enumerate().map(one).collect(), last, change: 0 })
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| line.text.clone() + "\n").collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the number of lines that open a stream.
    pub(super) fn streams(&self) -> usize {
        self.lines.iter().filter(|line| line.text.trim_start().starts_with("stream ")).count()
    }

    /// Returns the number of a line in the original text.
    pub(super) fn origin(&self, line: u32) -> Option<u32> {
        self.lines.get(line.checked_sub(1)? as usize)?.origin
    }

    /// Returns `true` if a change inserted or moved the line.
    pub(super) fn is_added(&self, line: u32) -> bool {
        self.lines.get(line.wrapping_sub(1) as usize).is_some_and(|line| line.change > 0)
    }

    pub(super) fn statement(&self, line: u32) -> Option<Statement> {
        let code = &self.lines.get(line.checked_sub(1)? as usize)?.text;
        let line = text::lines(code).ok()?.pop()?;
        let by = line.by.map_or_else(String::new, |by| format!("{by}: "));
        Some(Statement { by, words: line.words })
    }

    /// Returns the lines whose statement satisfies `is_it`, in order.
    pub(super) fn find(&self, is_it: impl Fn(&[&str]) -> bool) -> Vec<u32> {
        let is_line = |line: &u32| {
            let words = self.statement(*line).map_or_else(Vec::new, |statement| statement.words);
            is_it(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        (1..=self.lines.len() as u32).filter(is_line).collect()
    }

    /// Returns an unused name.
    pub(super) fn fresh(&mut self) -> String {
        self.last += 1;
        format!("fix{}", self.last)
    }

    /// Inserts a statement before a line.
    pub(super) fn insert(&mut self, before: u32, statement: &str) {
        let at = (before.max(1) as usize - 1).min(self.lines.len());
        let is_inside = |line: &&One| !line.text.trim_start().starts_with("end ");
        let near = self.lines.get(at).filter(is_inside).or(self.lines.get(at.wrapping_sub(1)));
        let near = near.map_or("", |line| &line.text);
        let indent = &near[..near.len() - near.trim_start().len()];
        let text = format!("{indent}{statement}");
        self.lines.insert(at, One { origin: None, text, change: self.change + 1 });
    }

    /// As [`insert`](Self::insert), but if the same statement is further down, moves that one here.
    pub(super) fn bring(&mut self, before: u32, statement: &str) {
        let further = self.lines.iter().enumerate().skip(before as usize - 1);
        let known = further.filter(|(_, line)| text::statement(&line.text) == statement).map(|(at, _)| at).next();
        let known = known.map(|at| self.lines.remove(at));
        self.insert(before, statement);
        if let Some(One { origin, text, .. }) = known {
            let put_in = &mut self.lines[before as usize - 1];
            (put_in.origin, put_in.text) = (origin, text);
        }
    }

    /// Accepts the change that was tried, and removes the `!!` and `??` of findings that are gone.
    pub(super) fn settle(&mut self, findings: &[Finding]) {
        self.change += 1;
        for (at, line) in self.lines.iter_mut().enumerate() {
            let Some(mark) = line.text.find("!!").into_iter().chain(line.text.find("??")).min() else { continue };
            let (code, comment) = line.text.split_at(line.text.find('#').unwrap_or(line.text.len()));
            let Some((code, _)) = code.split_at_checked(mark) else { continue };
            let expected =
                text::lines(&line.text).ok().and_then(|mut all| all.pop()).map_or(Vec::new(), |it| it.expected);
            let is_found = |kind: &&Kind| {
                findings.iter().any(|finding| finding.kind == **kind && finding.line() == Some(at as u32 + 1))
            };
            let kept: Vec<&Kind> = expected.iter().filter(is_found).collect();
            if kept.len() == expected.len() {
                continue;
            }
            let marks = |sign: &str, is_advice: bool| match kept.iter().filter(|it| it.is_advice() == is_advice) {
                kinds if kinds.clone().next().is_none() => String::new(),
                kinds => kinds.fold(format!("  {sign}"), |text, kind| format!("{text} {}", kind.name())),
            };
            let text = format!("{}{}{}", code.trim_end(), marks("!!", false), marks("??", true));
            line.text = if comment.is_empty() { text } else { format!("{text}  {comment}") };
        }
    }

    /// Returns the lines of a change, by its number, counted from 1.
    pub(super) fn added(&self, change: u32) -> Vec<Added> {
        let lines = self.lines.iter().enumerate().filter(|(_, line)| line.change == change);
        let added = lines.map(|(at, line)| {
            let text = text::statement(&line.text).to_owned();
            Added { line: at as u32 + 1, text, was: line.origin }
        });
        added.collect()
    }
}
