//! Methods of a floor above: none is called.
//!
//! A type of a lower floor may have methods on a higher one, which paths do not show (`floors.rs`). They are known by
//! their names here: a call names a function that is written only on floors above.

use std::collections::BTreeMap;

use crate::FLOORS;
use crate::arrows::module_of;
use crate::source::{Finding, Source, closing_brace, line_of, words};
use crate::{assert_none, root, source};

/// Names that floors above give to functions of their own, and that stand for those of the standard library, of core or
/// of the driver on the floors below.
const ELSEWHERE: &[&str] = &["add_use", "begin_capture", "end_capture", "forget", "is_captured", "let_in"];

/// The floor of a file of the library, counted from the ground, and its code without tests.
fn of_floor(source: &Source) -> Option<(usize, String)> {
    let (crate_name, module) = module_of(&source.path)?;
    let floor = FLOORS.iter().position(|folder| module.first().is_some_and(|first| first == folder))?;
    let lines = source.code.lines().zip(source.test_lines());
    let code = lines.map(|(line, is_test)| if is_test { "\n".into() } else { format!("{line}\n") });
    (crate_name == "millpond").then(|| (floor, code.collect()))
}

/// The name that begins at a byte offset.
fn name_at(code: &str, at: usize) -> &str {
    let rest = &code[at..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    &rest[..end]
}

/// The names behind a keyword.
fn behind<'c>(code: &'c str, keyword: &'c str) -> impl Iterator<Item = &'c str> {
    let at = words(code, keyword).map(move |at| at + keyword.len()).filter(|at| code[*at..].starts_with(' '));
    at.map(|at| name_at(code, at + 1))
}

/// The types that a file defines.
fn types(code: &str) -> impl Iterator<Item = &str> {
    ["struct", "enum", "type"].into_iter().flat_map(|keyword| behind(code, keyword))
}

/// The inherent methods that a file gives to types, each with its type.
fn methods(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for at in words(code, "impl").filter(|at| *at == 0 || code[..*at].ends_with('\n')) {
        let Some(open) = code[at..].find('{').map(|offset| at + offset) else { continue };
        let head = code[at + "impl".len()..open].trim_start();
        // Behind the parameters of the block itself.
        let head = if head.starts_with('<') { &head[closing_angle(head)..] } else { head }.trim_start();
        if head.contains(" for ") {
            continue;
        }
        let body = &code[open..closing_brace(code, open)];
        found.extend(behind(body, "fn").map(|name| (name_at(head, 0), name)));
    }
    found
}

/// Where the angle bracket that opens a text is closed.
fn closing_angle(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// What a file calls by `.name(`, `::name(` or with types in between, and where.
fn called(code: &str) -> Vec<(usize, &str)> {
    let starts = [".", "::"].iter().flat_map(|mark| code.match_indices(mark).map(|(at, mark)| at + mark.len()));
    let calls = starts.filter_map(|at| {
        let name = name_at(code, at);
        let rest = code[at + name.len()..].trim_start();
        (!name.is_empty() && (rest.starts_with('(') || rest.starts_with("::<"))).then_some((at, name))
    });
    calls.collect()
}

/// Calls of methods that a type of their floor or of one below has on floors above only; `elsewhere` are names that
/// others have, too.
fn upward<'s>(sources: impl Iterator<Item = &'s Source>, elsewhere: &[&str]) -> Vec<Finding> {
    let files: Vec<_> = sources.filter_map(|source| Some((source, of_floor(source)?))).collect();
    let mut home = BTreeMap::<&str, usize>::new();
    for (_, (floor, code)) in &files {
        types(code).for_each(|name| _ = home.entry(name).and_modify(|it| *it = (*it).min(*floor)).or_insert(*floor));
    }
    // Where a method is written for the first time, and where its type is.
    let mut lowest = BTreeMap::<&str, (usize, usize)>::new();
    for (_, (floor, code)) in &files {
        for (of, name) in methods(code) {
            let at = (*floor, home.get(of).copied().unwrap_or(*floor));
            lowest.entry(name).and_modify(|it| *it = (*it).min(at)).or_insert(at);
        }
    }
    let mut found = Vec::new();
    for (source, (floor, code)) in &files {
        for (at, name) in called(code).into_iter().filter(|(_, name)| !elsewhere.contains(name)) {
            let above = lowest.get(name).filter(|(defined, of)| defined > floor && of <= floor);
            if let Some((above, _)) = above {
                found.push(source.finding(line_of(code, at), format!("`{name}` is of the floor `{}`", FLOORS[*above])));
            }
        }
    }
    found
}

#[test]
fn floors_call_no_method_of_those_above() {
    assert_none(upward(source::read_tree(&root()).iter(), ELSEWHERE));
}

#[test]
fn a_method_of_a_floor_above_is_found() {
    let sources = [
        Source::new(
            "crates/millpond/src/state/a.rs",
            "struct A;\nfn f(a: A) { a.above(); a.own(); b.len(); A::made::<u8>(1) }",
        ),
        Source::new(
            "crates/millpond/src/state/b.rs",
            "impl A { fn own(&self) {} }\n#[cfg(test)]\nmod tests { fn g() { a.above() } }",
        ),
        Source::new(
            "crates/millpond/src/graph/c.rs",
            "impl A { fn above(&self) { self.own() } fn len(&self) {} fn made<T>(_: T) {} }",
        ),
        Source::new("crates/core/src/d.rs", "fn f() { a.above() }"),
    ];
    let found: Vec<String> = upward(sources.iter(), &["len"]).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/millpond/src/state/a.rs:2: `above` is of the floor `graph`",
            "crates/millpond/src/state/a.rs:2: `made` is of the floor `graph`",
        ]
    );
}
