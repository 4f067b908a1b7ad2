//! Findings that a user does not want to see: a file with a rule on each line.
//!
//! ```text
//! # The optimizer frees its workspace early; reported upstream.
//! kind=free-before-use file=optimizer.py function=step
//! kernel="at::native::fill<*, float>" allocation=kv_cache
//! ```
//!
//! A rule has patterns for some fields of a finding, and suppresses a finding if all of them match. `*` stands for any
//! text and `?` for one character. Knows no order and no rule of the checker.

use wildmatch::WildMatch;

use super::found::{Found, Shown};
use crate::life::Kind;

/// A field of a finding that a pattern is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Kind,
    File,
    Function,
    Kernel,
    Allocation,
}

/// All fields, with their names.
const FIELDS: [(&str, Field); 5] = [
    ("kind", Field::Kind),
    ("file", Field::File),
    ("function", Field::Function),
    ("kernel", Field::Kernel),
    ("allocation", Field::Allocation),
];

/// One rule.
#[derive(Clone, Debug)]
pub struct Suppression {
    /// Its line, counted from 1.
    pub line: u32,
    /// The rule as it is written.
    pub text: String,
    patterns: Vec<(Field, String)>,
}

/// The rules of a file.
#[derive(Clone, Debug, Default)]
pub struct Suppressions(Vec<Suppression>);

/// A line that is no rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct WrongSuppression {
    /// The line, counted from 1.
    pub line: u32,
    /// The mistake, and what is right.
    pub reason: String,
}

impl Suppressions {
    /// Reads the text of a file. Empty lines, and text after `#` at the start of a line, are comments.
    ///
    /// # Errors
    /// The first line that is no rule.
    pub fn parse(text: &str) -> Result<Self, WrongSuppression> {
        // Some editors put a byte order mark before the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::trim).zip(1..).filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        let rules = lines.map(|(text, line)| {
            let patterns = patterns(text).map_err(|reason| WrongSuppression { line, reason })?;
            Ok(Suppression { line, text: text.to_owned(), patterns })
        });
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the rules, in the order of the file.
    pub fn rules(&self) -> &[Suppression] {
        &self.0
    }

    /// Returns the index of the first rule that suppresses a finding.
    pub fn find(&self, found: &Found) -> Option<usize> {
        self.0.iter().position(|rule| rule.patterns.iter().all(|(field, pattern)| field.matches(pattern, found)))
    }
}

impl Found {
    /// Returns a rule that suppresses this finding: its kind, and what is known of the refused operation.
    pub fn suppression(&self) -> String {
        let mut rule = format!("kind={}", self.kind);
        let side = self.later.as_ref().or(self.earlier.as_ref());
        let file = side.and_then(|side| side.file.as_deref()).map(|file| file.rsplit('/').next().unwrap_or(file));
        let fields = [
            ("file", file),
            ("function", side.and_then(|side| side.function.as_deref())),
            ("kernel", side.and_then(|side| side.kernel.as_deref())),
            ("allocation", self.allocation.as_ref().and_then(|memory| memory.name.as_deref())),
        ];
        for (name, value) in fields {
            // No pattern can have a quotation mark: one character stands for it.
            let value = value.map(|value| value.replace('"', "?"));
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let quote = if value.contains(char::is_whitespace) { "\"" } else { "" };
                rule += &format!(" {name}={quote}{value}{quote}");
            }
        }
        rule
    }
}

impl Field {
    fn matches(self, pattern: &str, found: &Found) -> bool {
        let is = |text: &str| WildMatch::new(pattern).matches(text);
        let any = |of: fn(&Shown) -> Option<&str>| found.sides().filter_map(of).any(is);
        match self {
            Field::Kind => is(&found.kind),
            // A pattern without a folder is for files of that name in all folders.
            Field::File if !pattern.contains('/') => {
                any(|side| side.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file)))
            }
            Field::File => any(|side| side.file.as_deref()),
            Field::Function => any(|side| side.function.as_deref()),
            Field::Kernel => any(|side| side.kernel.as_deref()),
            Field::Allocation => found.allocation.iter().filter_map(|memory| memory.name.as_deref()).any(is),
        }
    }
}

/// Reads one rule: `field=pattern`, separated by blanks. A pattern with blanks is in quotation marks.
fn patterns(mut rest: &str) -> Result<Vec<(Field, String)>, String> {
    let names = || FIELDS.map(|(name, _)| name).join(", ");
    let mut patterns: Vec<(Field, String)> = Vec::new();
    while !rest.is_empty() {
        let word = rest.split(char::is_whitespace).next().unwrap_or(rest);
        let Some((name, after)) = rest.split_once('=').filter(|(name, _)| name.len() < word.len()) else {
            return Err(format!("`{word}` is not of the form field=pattern; the fields are {}", names()));
        };
        let Some(field) = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field) else {
            return Err(format!("there is no field `{name}`; the fields are {}", names()));
        };
        let (pattern, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quotation mark is not closed")?,
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        if pattern.is_empty() {
            return Err(format!("`{name}` has no pattern; `{name}=*` matches everything"));
        }
        if field == Field::Kind && !pattern.contains(['*', '?']) && Kind::from_name(pattern).is_none() {
            return Err(format!("there is no kind `{pattern}`: take it from the brackets of `error[...]`"));
        }
        if patterns.iter().any(|(known, _)| *known == field) {
            return Err(format!("`{name}` is there twice; write a line for each"));
        }
        patterns.push((field, pattern.to_owned()));
        rest = left.trim_start();
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let later = Shown {
            file: Some("/src/model/train.py".into()),
            line: Some(7),
            function: Some("Trainer.step".into()),
            ..Shown::default()
        };
        let kernel = Some("at::native::fill<4, float>".into());
        let earlier = Shown { file: Some("/src/attention.py".into()), kernel, ..Shown::default() };
        let allocation = Some(super::super::found::ShownMemory { number: 3, bytes: 8, name: Some("kv_cache".into()) });
        let (earlier, later) = (Some(earlier), Some(later));
        Found { kind: "free-before-use".into(), allocation, earlier, later, ..Found::default() }
    }

    fn suppresses(text: &str) -> bool {
        Suppressions::parse(text).unwrap().find(&found()).is_some()
    }

    #[test]
    fn a_rule_matches_if_all_its_patterns_do() {
        for rule in [
            "kind=free-before-use",
            "kind=free-* file=train.py",
            "file=/src/*/train.py function=Trainer.*",
            "file=attention.py kernel=*::native::*",
            "kernel=\"at::*<4, float>\"",
            "allocation=kv_?ache",
            "\u{feff}kind=free-before-use\r\n",
            "# a comment\n\n  file=*.py  \t kind=*  ",
        ] {
            assert!(suppresses(rule), "{rule}");
        }
        for rule in [
            "",
            "# kind=free-before-use",
            "kind=use-after-free",
            "file=rain.py",
            "file=model/train.py",
            "function=step",
            "kind=free-before-use function=Other",
            "kernel=native",
            "allocation=kv",
        ] {
            assert!(!suppresses(rule), "{rule}");
        }
    }

    #[test]
    fn the_first_matching_rule_is_named() {
        let rules = Suppressions::parse("kind=leak\n\nfile=train.py\nfile=*.py").unwrap();
        assert_eq!(rules.find(&found()), Some(1));
        assert_eq!((rules.rules()[1].line, &*rules.rules()[1].text), (3, "file=train.py"));
    }

    #[test]
    fn the_rule_for_a_finding_suppresses_it() {
        let mut found = found();
        let rule = found.suppression();
        assert_eq!(rule, "kind=free-before-use file=train.py function=Trainer.step allocation=kv_cache");
        assert!(Suppressions::parse(&rule).unwrap().find(&found).is_some());
        let later = found.later.as_mut().unwrap();
        later.function = Some("it's \"a\" = b".into());
        later.kernel = Some("f<1, 2>".into());
        assert!(Suppressions::parse(&found.suppression()).unwrap().find(&found).is_some(), "{}", found.suppression());
        assert_eq!(Found { kind: "leak".into(), ..Found::default() }.suppression(), "kind=leak");
    }

    #[test]
    fn wrong_lines_say_what_is_right() {
        let wrong = |text: &str| Suppressions::parse(text).unwrap_err().to_string();
        assert_eq!(
            wrong("kind=leak\nfil=train.py"),
            "line 2: there is no field `fil`; the fields are kind, file, function, kernel, allocation"
        );
        assert!(wrong("free-before-use").contains("`free-before-use` is not of the form field=pattern"));
        assert!(wrong("train.py kind=leak").contains("`train.py` is not of the form"));
        assert!(wrong("kind=free-befor-use").contains("there is no kind `free-befor-use`"));
        assert!(wrong("file=").contains("`file` has no pattern"));
        assert!(wrong("file=\"a b").contains("is not closed"));
        assert!(wrong("file=a file=b").contains("`file` is there twice"));
    }
}
