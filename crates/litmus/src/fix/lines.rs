//! A program's text as lines that can be changed, each with the line that it was.

use millpond_core::check::{Finding, Kind};

use crate::Refusal;
use crate::text;

/// One line.
#[derive(Clone, Debug)]
struct One {
    /// Its number in the text as it was given; none where it was put in.
    origin: Option<u32>,
    text: String,
    /// Which waits were put in together: those of one event.
    pair: u32,
}

/// The lines of a program. Numbers are counted from 1, as findings count them.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Vec<One>,
    /// The last event that was put in.
    last: u32,
    /// Those up to this one were there before the last change was tried.
    settled: u32,
}

/// A statement, taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Statement {
    /// Who does it, as it stands before it: `worker: `.
    pub(super) by: String,
    pub(super) words: Vec<String>,
}

impl Lines {
    pub(super) fn new(text: &str) -> Result<Self, Refusal> {
        text::lines(text)?;
        let one = |(at, line): (usize, &str)| One { origin: Some(at as u32 + 1), text: line.to_owned(), pair: 0 };
        let lines: Vec<One> = text.lines().enumerate().map(one).collect();
        // Names that are put in must be new.
        let taken =
            text.split(|c: char| !c.is_alphanumeric()).filter_map(|word| word.strip_prefix("fix")?.parse().ok());
        let last = taken.filter(|number: &u32| *number < 1 << 30).max().unwrap_or(0);
        Ok(Lines { lines, last, settled: last })
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| line.text.clone() + "\n").collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// How many lines open a stream.
    pub(super) fn streams(&self) -> usize {
        self.lines.iter().filter(|line| line.text.trim_start().starts_with("stream ")).count()
    }

    /// The number of a line in the text as it was given.
    pub(super) fn origin(&self, line: u32) -> Option<u32> {
        self.lines.get(line.checked_sub(1)? as usize)?.origin
    }

    pub(super) fn statement(&self, line: u32) -> Option<Statement> {
        let code = &self.lines.get(line.checked_sub(1)? as usize)?.text;
        let line = text::lines(code).ok()?.pop()?;
        let by = line.by.map_or_else(String::new, |by| format!("{by}: "));
        Some(Statement { by, words: line.words })
    }

    /// The lines with a statement like this, in order.
    pub(super) fn find(&self, is_it: impl Fn(&[&str]) -> bool) -> Vec<u32> {
        let is_line = |line: &u32| {
            let words = self.statement(*line).map_or_else(Vec::new, |statement| statement.words);
            is_it(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        (1..=self.lines.len() as u32).filter(is_line).collect()
    }

    /// A name that nothing has.
    pub(super) fn fresh(&mut self) -> String {
        self.last += 1;
        format!("fix{}", self.last)
    }

    /// Puts a statement in before a line; of the event that was made last.
    pub(super) fn insert(&mut self, before: u32, statement: String) {
        let at = (before.max(1) as usize - 1).min(self.lines.len());
        let is_inside = |line: &&One| !line.text.trim_start().starts_with("end ");
        let near = self.lines.get(at).filter(is_inside).or(self.lines.get(at.wrapping_sub(1)));
        let near = near.map_or("", |line| &line.text);
        let indent = &near[..near.len() - near.trim_start().len()];
        let line = One { origin: None, text: format!("{indent}{statement}"), pair: self.last };
        self.lines.insert(at, line);
    }

    /// Puts another statement in place of a line's.
    pub(super) fn replace(&mut self, line: u32, change: impl FnOnce(&mut Vec<String>)) {
        let Some(mut statement) = self.statement(line) else { return };
        change(&mut statement.words);
        let one = &mut self.lines[line as usize - 1];
        let indent = one.text.len() - one.text.trim_start().len();
        let (code, rest) = code_of(&one.text);
        let text = format!("{}{}{}", &code[..indent.min(code.len())], statement.by, written(&statement.words));
        one.text = if rest.is_empty() { text } else { format!("{text}  {rest}") };
    }

    pub(super) fn remove(&mut self, line: u32) {
        self.lines.remove(line as usize - 1);
    }

    /// Moves a line behind a later one.
    pub(super) fn move_behind(&mut self, line: u32, behind: u32) {
        let moved = self.lines.remove(line as usize - 1);
        let at = if line <= behind { behind - 1 } else { behind };
        self.lines.insert(at as usize, moved);
    }

    /// Moves a line before an earlier one.
    pub(super) fn move_before(&mut self, line: u32, before: u32) {
        let moved = self.lines.remove(line as usize - 1);
        self.lines.insert(before as usize - 1, moved);
    }

    /// The text without the statements of one event that the last change put in; none where all were tried.
    pub(super) fn without_one(&self, tried: &std::collections::HashSet<u32>) -> Option<(u32, Lines)> {
        let pairs = || self.lines.iter().map(|line| line.pair).filter(|pair| *pair > self.settled);
        let pair = pairs().find(|pair| !tried.contains(pair))?;
        if pairs().all(|other| other == pair) {
            return None;
        }
        let mut without = self.clone();
        without.lines.retain(|line| line.pair != pair);
        Some((pair, without))
    }

    /// The text without the last line that was put in, of those up to this one; which it is.
    pub(super) fn without_last(&self, until: u32) -> Option<(u32, Lines)> {
        let at = self.lines.iter().take(until as usize).rposition(|line| line.origin.is_none())?;
        let mut without = self.clone();
        without.lines.remove(at);
        Some((at as u32 + 1, without))
    }

    /// The change is taken: marks of what is no longer found are taken out.
    pub(super) fn settle(&mut self, findings: &[Finding]) {
        self.settled = self.last;
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
}

/// A line's statement, and what stands behind it.
fn code_of(text: &str) -> (&str, &str) {
    let code = text.find('#').unwrap_or(text.len());
    let mark = text[..code].find("!!").into_iter().chain(text[..code].find("??")).min().unwrap_or(code);
    let (code, rest) = text.split_at(mark);
    (code, rest.trim_start())
}

/// Words as a line.
fn written(words: &[String]) -> String {
    words.join(" ").replace(" : ", ": ")
}
