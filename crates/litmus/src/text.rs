//! Splits the text of a litmus program into lines, words and the expectations of each line.
//!
//! Does not know any statement. Blank lines and comments are removed; line numbers stay.

use millpond_core::check::Kind;

use crate::Refusal;

/// The longest text that is read, in bytes. Litmus programs are small.
pub(crate) const TEXT_MAX: usize = 1 << 20;

/// A line that is not blank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Counted from 1.
    pub(crate) number: u32,
    /// The thread or process that does it, as in `worker: free left a`.
    pub(crate) by: Option<String>,
    /// The statement, without comments and expectations.
    pub(crate) text: String,
    /// The words. Punctuation with a meaning is a word of its own.
    pub(crate) words: Vec<String>,
    /// The findings that are expected here.
    pub(crate) expected: Vec<Kind>,
}

/// Returns the statement of a line, without blanks, comments and expectations around it.
pub fn statement(line: &str) -> &str {
    let end = ["!!", "??", "#"].iter().filter_map(|mark| line.find(mark)).min().unwrap_or(line.len());
    line[..end].trim()
}

/// Splits a text into lines.
pub(crate) fn lines(text: &str) -> Result<Vec<Line>, Refusal> {
    if text.len() > TEXT_MAX {
        let what = format!("the text has {} bytes", text.len());
        return Err(Refusal::new(1, what, format!("at most {TEXT_MAX} are read as a litmus program")));
    }
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at as u32 + 1;
        let code = line.split('#').next().unwrap_or("");
        let mark = code.find("!!").into_iter().chain(code.find("??")).min().unwrap_or(code.len());
        let (code, marks) = code.split_at(mark);
        let expected = expectations(number, marks)?;
        let mut words = words(code);
        let by = match words.get(1).map(String::as_str) {
            Some(":") if words[0] != "node" => {
                let by = words[0].clone();
                words.drain(..2);
                Some(by)
            }
            _ => None,
        };
        if words.is_empty() && (by.is_some() || !expected.is_empty()) {
            return Err(Refusal::new(
                number,
                "a mark without a statement",
                "put `!!` behind the statement it is about",
            ));
        }
        if !words.is_empty() {
            lines.push(Line { number, by, text: code.trim().to_owned(), words, expected });
        }
    }
    Ok(lines)
}

/// Parses the kinds after `!!` and `??`.
fn expectations(line: u32, marks: &str) -> Result<Vec<Kind>, Refusal> {
    let mut expected = Vec::new();
    let (mut wants_advice, mut is_named) = (false, true);
    let spaced = marks.replace("!!", " !! ").replace("??", " ?? ").replace(',', " ");
    for word in spaced.split_whitespace() {
        is_named = !matches!(word, "!!" | "??");
        match word {
            "!!" => wants_advice = false,
            "??" => wants_advice = true,
            name => match Kind::from_name(name) {
                Some(kind) if kind.is_advice() == wants_advice => expected.push(kind),
                Some(_) if wants_advice => {
                    return Err(Refusal::new(line, format!("`{name}` is a violation"), "mark it with `!!`"));
                }
                Some(_) => return Err(Refusal::new(line, format!("`{name}` is advice"), "mark it with `??`")),
                None => {
                    let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
                    let help = match most_like(name, known.iter().copied()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => "rules are `race`, `leak`, `use-after-free` and more: docs/litmus.md lists them".into(),
                    };
                    return Err(Refusal::new(line, format!("there is no rule `{name}`"), help));
                }
            },
        }
    }
    if !is_named || (expected.is_empty() && !marks.is_empty()) {
        return Err(Refusal::new(line, "a mark without a rule", "name the rule: `!! race`"));
    }
    Ok(expected)
}

/// Splits a line at blanks and commas. `=`, `:` and `->` are words of their own.
fn words(code: &str) -> Vec<String> {
    let spaced = code.replace("->", " -> ").replace('=', " = ").replace(':', " : ");
    let words = spaced.split(|c: char| c.is_whitespace() || c == ',');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns the most similar word, if any is similar enough.
pub(crate) fn most_like<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let alike = words.map(|it| (strsim::jaro_winkler(it, word), it)).max_by(|a, b| a.0.total_cmp(&b.0));
    alike.filter(|(likeness, _)| *likeness > 0.85).map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Line {
        lines(text).unwrap().remove(0)
    }

    #[test]
    fn a_line_is_words_and_what_it_expects() {
        let line = one("worker: a=alloc left 1024, b  !! leak, race ?? redundant-wait # why");
        assert_eq!(line.by.as_deref(), Some("worker"));
        assert_eq!(line.words, ["a", "=", "alloc", "left", "1024", "b"]);
        assert_eq!(line.expected, [Kind::Leak, Kind::Race, Kind::RedundantWait]);
        assert_eq!(one("\n\n edge a->b in g").words, ["edge", "a", "->", "b", "in", "g"]);
        assert_eq!(one("\n\n edge a->b in g").number, 3);
    }

    /// Text of a hostile program is escaped and shortened before it reaches the terminal.
    #[test]
    fn what_is_quoted_is_visible_and_short() {
        let refused = |text: &str| crate::Program::parse(text).unwrap_err().to_string();
        let escaped = refused("foo\u{1b}[31m bar\u{202e}");
        let commas = refused("Rust, in = which");
        assert!(commas.contains("`Rust, in = which` is not a statement"), "{commas}");
        assert!(escaped.contains("`foo\\u{1b}[31m bar\\u{202e}` is not a statement"), "{escaped}");
        let named = refused("stream a\u{1b}b");
        assert!(named.contains("`a\\u{1b}b` cannot be a name"), "{named}");
        let long = refused(&"x".repeat(100_000));
        assert!(long.len() < 1000 && long.contains("xx` is not a statement"), "{} bytes", long.len());
    }

    #[test]
    fn marks_are_checked() {
        assert!(lines("free s a !! no-such-rule").unwrap_err().help.contains("docs/litmus.md"));
        assert!(lines("free s a !! leak !!").unwrap_err().what.contains("without a rule"));
        assert!(lines("free s a !! redundant-wait").unwrap_err().what.contains("advice"));
        assert!(lines("free s a ?? leak").unwrap_err().what.contains("violation"));
        assert!(lines("free s a !!").unwrap_err().what.contains("without a rule"));
        assert!(lines("!! leak").unwrap_err().what.contains("without a statement"));
        assert_eq!(lines("# nothing\n\n").unwrap(), []);
    }
}
