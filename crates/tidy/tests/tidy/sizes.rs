//! Headers and widths: a file opens with its purpose, and its lines fit.

use crate::COLUMNS;
use crate::source::{Finding, Source};
use crate::{assert_clean, assert_found, assert_none, tree};

/// Finds a file that does not open with `//!` and a sentence.
fn header(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().next().unwrap_or("");
    let good = first.strip_prefix("//! ").is_some_and(|sentence| !sentence.trim().is_empty());
    if good { Vec::new() } else { vec![source.finding(1, "does not open with `//!` and what it is")] }
}

fn line_width(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().map(|line| line.chars().count()).enumerate();
    let wide = lines.filter(|(_, columns)| *columns > COLUMNS);
    wide.map(|(index, columns)| source.finding(index + 1, format!("{columns} columns; at most {COLUMNS}"))).collect()
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
fn lines_fit() {
    assert_none(tree(line_width));
}

#[test]
fn a_wide_line_is_found() {
    assert_found(line_width, "a.rs", &format!("\n{}", "x".repeat(COLUMNS + 1)), ":2: 121 columns");
    assert_clean(line_width, "a.rs", &"x".repeat(COLUMNS));
}
