//! Where `unsafe` may stand, and that each use says why it is right.

use crate::UNSAFE_ALLOWED;
use crate::source::{Finding, Source, line_of, words};
use crate::{assert_clean, assert_found, assert_none, tree};

/// How many lines above an unsafe block its reason may begin.
const REASON_WITHIN: usize = 10;

/// `unsafe` stands only where it may. A function that is declared unsafe only hands a promise on (what it does with it
/// needs a block), and tests, benches and examples call such functions of the API: both are free.
fn place(source: &Source) -> Vec<Finding> {
    if !source.path.contains("/src/") || UNSAFE_ALLOWED.iter().any(|allowed| source.path.starts_with(allowed)) {
        return Vec::new();
    }
    let is_use = |at: &usize| words(source.code[at + "unsafe".len()..].trim_start(), "fn").next() != Some(0);
    let lines = words(&source.code, "unsafe").filter(is_use).map(|at| line_of(&source.code, at));
    lines.map(|line| source.finding(line, "`unsafe` outside the files that may have it")).collect()
}

/// Every unsafe block and unsafe impl has a comment with its reason close above, or first thing inside.
fn reason(source: &Source) -> Vec<Finding> {
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut findings = Vec::new();
    for at in words(&source.code, "unsafe") {
        let rest = source.code[at + "unsafe".len()..].trim_start();
        if !rest.starts_with('{') && words(rest, "impl").next() != Some(0) {
            continue;
        }
        let line = line_of(&source.code, at);
        let near = &comments[line.saturating_sub(1 + REASON_WITHIN)..(line + 1).min(comments.len())];
        if !near.iter().any(|comment| comment.contains("SAFETY:")) {
            findings.push(source.finding(line, "`unsafe` without a SAFETY comment near it"));
        }
    }
    findings
}

#[test]
fn unsafe_stands_where_it_may() {
    assert_none(tree(place));
}

#[test]
fn a_stray_unsafe_is_found() {
    let text = "fn a() {\n    unsafe { b() }\n}";
    assert_found(place, "crates/core/src/pool/heap.rs", text, ":2: `unsafe` outside");
    assert_found(place, "crates/millpond/src/stream/handle.rs", "unsafe impl Send for A {}", ":1: `unsafe` outside");
    assert_clean(place, "crates/millpond/src/stream/handle.rs", "pub unsafe fn a() {}");
    assert_clean(place, "crates/driver/src/host/memory.rs", text);
    assert_clean(place, "crates/core/src/lib.rs", "#![forbid(unsafe_code)] // no unsafe\n");
}

#[test]
fn unsafe_says_why() {
    assert_none(tree(reason));
}

#[test]
fn an_unsafe_without_a_reason_is_found() {
    assert_found(reason, "a.rs", "unsafe { b() }", "without a SAFETY");
    assert_found(reason, "a.rs", "unsafe impl Send for A {}", "without a SAFETY");
    assert_clean(reason, "a.rs", "// SAFETY: mapped-first\nunsafe { b() }");
    assert_clean(reason, "a.rs", "unsafe fn a();");
}
