//! Findings as text for terminals: the program's lines with both operations marked, what orders them, and what to add.
//!
//! Uses only texts and terminal codes. If the source is not available, only the place is shown.

use crate::refusal::shown_path;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use millpond_core::check::{Finding, Side};
use millpond_litmus::statement;

/// The largest source file that is read for its lines, in bytes.
const SOURCE_MAX: u64 = 4 << 20;

/// The source texts that findings refer to. Each is read once.
#[derive(Debug)]
pub(super) struct Sources {
    program: String,
    texts: HashMap<String, Option<String>>,
}

impl Sources {
    /// Starts with the program's own file. `text` is empty if the file has no lines.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        let program = shown_path(path);
        let text = (!text.is_empty()).then(|| text.to_owned());
        Sources { texts: HashMap::from([(program.clone(), text)]), program }
    }

    /// Renders one finding with terminal codes. `again` is the number of repetitions at the same places.
    pub(super) fn render(&mut self, finding: &Finding, again: usize) -> String {
        let sides: Vec<(&Side, AnnotationKind)> = match (&finding.later, &finding.earlier) {
            (Some(later), earlier) => {
                let earlier = earlier.iter().chain(&finding.others).map(|side| (side, AnnotationKind::Context));
                std::iter::once((later, AnnotationKind::Primary)).chain(earlier).collect()
            }
            (None, earlier) => earlier.iter().map(|side| (side, AnnotationKind::Primary)).collect(),
        };
        for (side, _) in &sides {
            self.read(self.file(side));
        }
        let level = if finding.kind.is_advice() { Level::HELP.with_name("advice") } else { Level::ERROR };
        let title = level.primary_title(finding.sentence.as_str()).id(finding.kind.name());
        let mut group = Group::with_title(title);
        let mut shown: Vec<String> = Vec::new();
        for (side, _) in &sides {
            let file = self.file(side);
            if !shown.contains(&file) {
                group = self.add_file(group, &file, &sides);
                shown.push(file);
            }
        }
        for line in finding.known_lines().into_iter().chain(finding.notes.clone()) {
            group = group.element(Level::NOTE.message(line));
        }
        if again > 0 {
            let times = if again == 1 { "once".to_owned() } else { format!("{again} times") };
            group = group.element(Level::NOTE.message(format!("found {times} more at the same places")));
        }
        group = group.element(Level::HELP.message(finding.help()));
        Renderer::styled().render(&[group])
    }

    fn file(&self, side: &Side) -> String {
        side.spot.file.clone().unwrap_or_else(|| self.program.clone())
    }

    fn read(&mut self, file: String) {
        if self.texts.contains_key(&file) {
            return;
        }
        let is_small = fs::metadata(&file).is_ok_and(|it| it.is_file() && it.len() <= SOURCE_MAX);
        let text = is_small.then(|| fs::read_to_string(&file).ok()).flatten();
        self.texts.insert(file, text);
    }

    /// Adds the sides in one file: with its lines if they are available, else with the file's name and line numbers.
    fn add_file<'a>(&self, mut group: Group<'a>, file: &str, sides: &[(&Side, AnnotationKind)]) -> Group<'a> {
        let here = sides.iter().filter(|(side, _)| self.file(side) == file);
        let text = self.texts.get(file).and_then(Option::as_deref);
        let mut snippet = text.map(|text| Snippet::source(text.to_owned()).path(file.to_owned()).fold(true));
        for (side, kind) in here {
            let span = text.zip(side.spot.line).and_then(|(text, line)| span(text, line));
            let round = side.spot.round.as_ref().map(|round| format!(", in {round}")).unwrap_or_default();
            let label = format!("{}: {}{round}", side.verb, side.title());
            match (snippet.take(), span) {
                (Some(it), Some(span)) => snippet = Some(it.annotation(kind.span(span).label(label))),
                (it, _) => {
                    snippet = it;
                    let origin = Origin::path(file.to_owned());
                    let origin = match side.spot.line {
                        Some(line) => origin.line(line as usize),
                        None => origin,
                    };
                    group = group.element(origin).element(Level::NOTE.message(label));
                }
            }
        }
        match snippet {
            Some(snippet) => group.element(snippet),
            None => group,
        }
    }
}

/// Returns the byte range of a line's statement in a text.
fn span(text: &str, line: u32) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for (at, content) in text.split('\n').enumerate() {
        if at + 1 == line as usize {
            let code = statement(content);
            let from = start + content.len() - content.trim_start().len();
            return (!code.is_empty()).then_some(from..from + code.len());
        }
        start += content.len() + 1;
    }
    None
}
