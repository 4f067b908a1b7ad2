//! How locks are taken.

use crate::source::{Finding, Source, line_of};
use crate::{assert_clean, assert_found, assert_none, tree};

/// The library takes locks that threads sleep for by the functions of this file, which know of forked processes.
const LOCKS: &str = "crates/millpond/src/sync/locks.rs";

/// A lock of the standard library that is taken where it stands: what that gives must be unwrapped.
fn taken(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/millpond/src/") || source.path == LOCKS {
        return Vec::new();
    }
    let is_test = source.test_lines();
    let calls = [".lock()", ".read()", ".write()"];
    let found = calls.into_iter().flat_map(|call| source.code.match_indices(call)).filter_map(|(at, call)| {
        let is_unwrapped = source.code[at + call.len()..].trim_start().starts_with(".unwrap");
        let line = line_of(&source.code, at);
        (is_unwrapped && !is_test[line - 1]).then(|| source.finding(line, format!("a lock is taken outside {LOCKS}")))
    });
    found.collect()
}

#[test]
fn locks_are_taken_in_one_file() {
    assert_none(tree(taken));
}

#[test]
fn a_lock_taken_elsewhere_is_found() {
    let text = "fn a() {\n    self.one\n        .lock()\n        .unwrap_or_else(PoisonError::into_inner);\n}";
    assert_found(taken, "crates/millpond/src/clock/hosts.rs", text, ":3: a lock is taken outside");
    assert_clean(taken, LOCKS, text);
    assert_clean(taken, "crates/driver/src/cuda/apart.rs", text);
    assert_clean(taken, "crates/millpond/src/clock/hosts.rs", "fn a() { light.lock().value += 1; }");
}
