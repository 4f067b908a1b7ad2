//! A Rust file split into two views: its code with comments and strings blanked, and its comments alone.
//!
//! Both views have the same lines and columns (in bytes) as the file.

use std::fmt;
use std::fs;
use std::path::Path;

/// A broken rule at a place.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// One file.
pub(crate) struct Source {
    /// The path from the workspace's folder, with `/`.
    pub(crate) path: String,
    /// The unchanged text.
    pub(crate) text: String,
    /// The text with comments and the contents of strings replaced by spaces.
    pub(crate) code: String,
    /// The text with everything except comments replaced by spaces.
    pub(crate) comments: String,
}

impl Source {
    /// Splits a file into its views.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        Self { path: path.to_owned(), text: text.to_owned(), code, comments }
    }

    /// Makes a finding at a line, counted from 1.
    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    /// Returns the lines of code, numbered from 1.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns `true` for each line (index 0 is line 1) that belongs to tests: everything in test and bench folders,
    /// files named `tests.rs`, and modules under `#[cfg(test)]`.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let whole = ["/tests/", "/benches/", "/tests.rs"].iter().any(|part| self.path.contains(part));
        let mut lines = vec![whole; self.text.lines().count()];
        let marks = ["#[cfg(test)]", "#[cfg(all(test,"].map(|mark| self.code.match_indices(mark));
        for (at, _) in marks.into_iter().flatten() {
            let Some(open) = self.code[at..].find(['{', ';']).map(|offset| at + offset) else { continue };
            let end = if self.code.as_bytes()[open] == b'{' { closing_brace(&self.code, open) } else { open };
            for line in line_of(&self.code, at)..=line_of(&self.code, end) {
                lines[line - 1] = true;
            }
        }
        lines
    }
}

/// Returns the line, counted from 1, of a byte offset.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns the offset of the brace that closes the one at `open`, in blanked code, or the end if there is none.
pub(crate) fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

/// Returns the offsets of `word` in blanked code, as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part_of_name = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !part_of_name(before) && !part_of_name(bytes.get(at + word.len()))
    })
}

/// Reads every Rust file of the workspace's crates and of the fuzz targets.
pub(crate) fn read_tree(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("crates/ is there").flatten() {
        for folder in ["src", "tests", "benches", "examples"] {
            collect(&entry.path().join(folder), &mut paths);
        }
    }
    collect(&root.join("fuzz/fuzz_targets"), &mut paths);
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).expect("a source file is UTF-8");
        let name = path.strip_prefix(root).expect("found under the root").to_string_lossy().replace('\\', "/");
        Source::new(&name, &text)
    };
    paths.iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<std::path::PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// The kind of a byte.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Text,
}

/// Returns the two views of a file.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (end, kind) = token(bytes, at);
        kinds[at..end].fill(kind);
        at = end;
    }
    let view = |keep: Kind| -> String {
        let shown = |(&byte, &kind): (&u8, &Kind)| match byte {
            b'\n' => '\n',
            _ if kind == keep && byte.is_ascii() => byte as char,
            _ => ' ',
        };
        bytes.iter().zip(&kinds).map(shown).collect()
    };
    (view(Kind::Code), view(Kind::Comment))
}

/// Returns the end and the kind of the token at `at`.
fn token(bytes: &[u8], at: usize) -> (usize, Kind) {
    let rest = &bytes[at..];
    let in_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => (at + line_length(rest), Kind::Comment),
        [b'/', b'*', ..] => (at + block_comment_length(rest), Kind::Comment),
        [b'r', b'"' | b'#', ..] if !in_name => raw_string(bytes, at, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !in_name => raw_string(bytes, at, 2),
        [b'"', ..] => (at + quoted_length(rest, b'"'), Kind::Text),
        [b'\'', b'\\', ..] => (at + quoted_length(rest, b'\''), Kind::Text),
        // A character, not a lifetime: its quote closes after one character of up to four bytes.
        [b'\'', first, ..] if *first != b'\'' => {
            let length = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if rest.get(1 + length) == Some(&b'\'') { (at + length + 2, Kind::Text) } else { (at + 1, Kind::Code) }
        }
        _ => (at + 1, Kind::Code),
    }
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Measures a raw string whose prefix (`r`, `br`) has `prefix` bytes. A raw name such as `r#type` is code.
fn raw_string(bytes: &[u8], at: usize, prefix: usize) -> (usize, Kind) {
    let hashes = bytes[at + prefix..].iter().take_while(|&&byte| byte == b'#').count();
    let open = at + prefix + hashes;
    if bytes.get(open) != Some(&b'"') {
        return (open, Kind::Code);
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
    ((open + 1 + length + close.len()).min(bytes.len()), Kind::Text)
}

#[test]
fn comments_strings_and_lifetimes_are_told_apart() {
    let text = "let a: &'a str = \"x // y\"; // b {\nlet c = r#\"un\"safe\"#; /* d /* e */ f */ '{' '\\''";
    let source = Source::new("x.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert!(source.code.contains("&'a str") && source.code.contains("let c ="));
    assert!(!source.code.contains('{') && !source.code.contains("safe") && !source.code.contains("//"));
    assert!(source.comments.contains("// b {") && source.comments.contains("f */"));
    assert!(!source.comments.contains('y'));
}

#[test]
fn test_modules_end_at_their_brace() {
    let source = Source::new("a/src/x.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n");
    assert_eq!(source.test_lines(), [false, true, true, true, true, false]);
    assert!(Source::new("a/tests/x.rs", "fn a() {}").test_lines()[0]);
}
