//! Words that are forbidden in the tree: unfinished work, hidden panics, empty names, paths of one machine.

use crate::source::{Finding, Source, words};
use crate::{BANNED_IN_CODE, BANNED_IN_NAMES, BANNED_MARKS, BANNED_PATHS};
use crate::{assert_clean, assert_found, assert_none, tree};

/// Finds unfinished work and hidden panics in code.
fn code(source: &Source) -> Vec<Finding> {
    let tests = source.test_lines();
    let mut findings = Vec::new();
    for (line, code) in source.code_lines() {
        for word in BANNED_IN_CODE.iter().filter(|word| words(code, word).next().is_some()) {
            findings.push(source.finding(line, format!("`{word}`")));
        }
        if code.contains(".unwrap()") && !tests[line - 1] {
            findings.push(source.finding(line, "`.unwrap()`: `expect` names the invariant, or it is an error"));
        }
    }
    findings
}

/// Finds names that say nothing.
fn names(source: &Source) -> Vec<Finding> {
    let found = |code: &str| BANNED_IN_NAMES.iter().find(|word| code.contains(**word));
    let lines = source.code_lines().filter_map(|(line, code)| found(code).map(|word| (line, word)));
    let mut findings: Vec<_> = lines.map(|(line, word)| source.finding(line, format!("`{word}` in a name"))).collect();
    if let Some(word) = found(&source.path) {
        findings.push(source.finding(1, format!("`{word}` in the file's name")));
    }
    findings
}

/// Finds marks of unfinished work.
fn marks(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        for mark in BANNED_MARKS {
            if words(code, mark).next().is_some() || words(comment, mark).next().is_some() {
                findings.push(source.finding(index + 1, format!("`{mark}`: do it, or leave it unsaid")));
            }
        }
    }
    findings
}

/// Finds paths of one machine.
fn paths(source: &Source) -> Vec<Finding> {
    let found = |line: &str| BANNED_PATHS.iter().find(|path| line.contains(**path));
    let lines = source.text.lines().enumerate();
    let bad = lines.filter_map(|(index, line)| found(line).map(|path| (index + 1, path)));
    bad.map(|(line, path)| source.finding(line, format!("`{path}` is a path of one machine"))).collect()
}

/// Finds characters outside ASCII. Source is ASCII, so that it reads the same everywhere; others are escaped.
fn ascii(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    let bad = lines.filter(|(_, line)| !line.is_ascii());
    bad.map(|(index, _)| source.finding(index + 1, "not ASCII: write `\\u{..}`")).collect()
}

#[test]
fn nothing_is_unfinished() {
    assert_none(tree(code));
    assert_none(tree(marks));
}

#[test]
fn unfinished_work_is_found() {
    let call = concat!("to", "do!()");
    assert_found(code, "a/src/a.rs", &format!("fn a() {{\n    {call}\n}}"), concat!("`to", "do!`"));
    assert_clean(code, "a/src/a.rs", &format!("fn a() {{ \"{call}\" }}"));
    let mark = concat!("TO", "DO");
    assert_found(marks, "a.rs", &format!("\n// {mark}: later\n"), ":2:");
    assert_clean(marks, "a.rs", &format!("fn a() {{ \"{mark}\" }}"));
}

#[test]
fn a_hidden_panic_is_found_outside_tests() {
    assert_found(code, "a/src/a.rs", "fn a() { b().unwrap() }", "unwrap");
    assert_clean(code, "a/src/a.rs", "#[cfg(test)]\nmod tests { fn a() { b().unwrap() } }");
    assert_clean(code, "a/src/a/tests.rs", "fn a() { b().unwrap() }");
}

#[test]
fn names_say_something() {
    assert_none(tree(names));
}

#[test]
fn an_empty_name_is_found() {
    assert_found(names, "a.rs", concat!("struct PoolMan", "ager;"), "in a name");
    assert_found(names, concat!("src/ut", "ils.rs"), "", "in the file's name");
}

#[test]
fn no_file_knows_a_machine() {
    assert_none(tree(paths));
}

#[test]
fn a_path_of_a_machine_is_found() {
    assert_found(paths, "a.rs", concat!("// see /ho", "me/someone/notes"), "one machine");
}

#[test]
fn source_is_ascii() {
    assert_none(tree(ascii));
}

#[test]
fn a_foreign_character_is_found() {
    assert_found(ascii, "a.rs", "//! a\n// \u{2264}", ":2: not ASCII");
}
