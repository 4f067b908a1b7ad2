//! Headers and sizes: a file opens with its purpose and stays short, so do functions and lines.

use crate::source::{Finding, Source, closing_brace, line_of, words};
use crate::{COLUMNS, FILE_LINES, FUNCTION_LINES, TEST_FUNCTION_LINES};
use crate::{assert_clean, assert_found, assert_none, tree};

/// A file opens with `//!` and a sentence.
fn header(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().next().unwrap_or("");
    let good = first.strip_prefix("//! ").is_some_and(|sentence| !sentence.trim().is_empty());
    if good { Vec::new() } else { vec![source.finding(1, "does not open with `//!` and what it is")] }
}

fn file_size(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if lines <= FILE_LINES {
        return Vec::new();
    }
    vec![source.finding(lines, format!("{lines} lines in a file; at most {FILE_LINES}"))]
}

fn line_width(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().map(|line| line.chars().count()).enumerate();
    let wide = lines.filter(|(_, columns)| *columns > COLUMNS);
    wide.map(|(index, columns)| source.finding(index + 1, format!("{columns} columns; at most {COLUMNS}"))).collect()
}

/// Each function with a body: its line and how many lines it has.
fn functions(source: &Source) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for at in words(&source.code, "fn") {
        // A `fn` type or a function without a body meets something else before a brace.
        let rest = &source.code[at + 2..];
        if !rest.trim_start().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            continue;
        }
        let Some(open) = body(rest).map(|offset| at + 2 + offset) else { continue };
        let first = line_of(&source.code, at);
        found.push((first, line_of(&source.code, closing_brace(&source.code, open)) - first + 1));
    }
    found
}

/// The offset of the brace that opens a function's body, or none for a function without one. A `;` inside
/// brackets (an array type) does not end the signature.
fn body(signature: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in signature.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn function_size(source: &Source) -> Vec<Finding> {
    let most = if source.path.contains("/src/") { FUNCTION_LINES } else { TEST_FUNCTION_LINES };
    let long = functions(source).into_iter().filter(|(_, lines)| *lines > most);
    long.map(|(line, lines)| source.finding(line, format!("{lines} lines in a function; at most {most}"))).collect()
}

#[test]
fn every_file_says_what_it_is() {
    assert_none(tree(header));
}

#[test]
fn a_file_without_a_header_is_found() {
    assert_found(header, "a.rs", "use std::fmt;\n", "does not open");
    assert_found(header, "a.rs", "//!\n", "does not open");
    assert_clean(header, "a.rs", "//! What it is.\n");
}

#[test]
fn files_are_short() {
    assert_none(tree(file_size));
}

#[test]
fn a_long_file_is_found() {
    assert_found(file_size, "a.rs", &"\n".repeat(FILE_LINES + 1), "501 lines");
    assert_clean(file_size, "a.rs", &"\n".repeat(FILE_LINES));
}

#[test]
fn lines_fit() {
    assert_none(tree(line_width));
}

#[test]
fn a_wide_line_is_found() {
    assert_found(line_width, "a.rs", &format!("\n{}", "x".repeat(COLUMNS + 1)), ":2: 121 columns");
    assert_clean(line_width, "a.rs", &"x".repeat(COLUMNS));
}

#[test]
fn functions_are_short() {
    assert_none(tree(function_size));
}

#[test]
fn a_long_function_is_found() {
    let long = format!("fn short() {{}}\nfn long(a: [u8; 2]) -> [u8; 2] {{{}}}", "\n".repeat(FUNCTION_LINES));
    assert_found(function_size, "a/src/a.rs", &long, ":2: 61 lines");
    assert_clean(function_size, "a/tests/a.rs", &long);
    let after = format!("trait T {{\nfn none(&self);\n}}{}type F = fn(u8);", "\n".repeat(FUNCTION_LINES));
    assert_clean(function_size, "a/src/a.rs", &after);
    assert_eq!(functions(&Source::new("a.rs", &long)).len(), 2);
}
