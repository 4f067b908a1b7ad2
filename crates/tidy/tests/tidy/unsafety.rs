//! `unsafe` is allowed only in some files, and each use has its reason.

use crate::UNSAFE_ALLOWED;
use crate::source::{Finding, Source, line_of, words};
use crate::{assert_clean, assert_found, assert_none, tree};

/// The number of lines above an unsafe block within which its reason must begin.
const REASON_WITHIN: usize = 10;

/// Finds `unsafe` outside the files that may have it. An unsafe function passes a promise on to its callers (its body
/// needs a block for what it does), and tests, benches and examples call such functions of the API: both are allowed.
fn place(source: &Source) -> Vec<Finding> {
    if !source.path.contains("/src/") || UNSAFE_ALLOWED.iter().any(|allowed| source.path.starts_with(allowed)) {
        return Vec::new();
    }
    let is_use = |at: &usize| words(source.code[at + "unsafe".len()..].trim_start(), "fn").next() != Some(0);
    let lines = words(&source.code, "unsafe").filter(is_use).map(|at| line_of(&source.code, at));
    lines.map(|line| source.finding(line, "`unsafe` outside the files that may have it")).collect()
}

/// Finds unsafe blocks and unsafe impls without a comment with the reason close above, or first inside.
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
