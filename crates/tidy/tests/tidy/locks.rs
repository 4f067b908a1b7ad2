//! Locks must have ranks.

use crate::source::{Finding, Source, line_of, words};
use crate::{assert_clean, assert_found, assert_none, tree};

/// The crates whose locks have ranks.
const RANKED: &[&str] = &["millpond", "driver", "capi", "adaptor", "cudarc", "cuda-core", "interpose"];

/// The files that may have locks of the standard library: the ranked locks themselves, code that tests compile over a
/// scheduler of their own, and a kernel's lock, which no thread waits for.
const PLAIN: &[&str] = &[
    "crates/driver/src/biased_lock_sync.rs",
    "crates/driver/src/host/sync.rs",
    "crates/driver/src/locks.rs",
    "crates/millpond/src/stream/kernel.rs",
];

/// Finds locks of the standard library: `std::sync::Mutex`, or one in a `use` list.
fn plain(source: &Source) -> Vec<Finding> {
    let is_ranked = RANKED.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
    if !is_ranked || PLAIN.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let (is_test, code) = (source.test_lines(), &source.code);
    let named = ["Mutex", "RwLock"].into_iter().flat_map(|name| words(code, name));
    let found = named.filter_map(|at| {
        let before = code[..at].rsplit(';').next().unwrap_or_default();
        let line = line_of(code, at);
        let is_std = before.trim_start_matches(|c: char| c != 's').contains("std::sync::");
        (is_std && !is_test[line - 1]).then(|| source.finding(line, "a lock without a rank"))
    });
    found.collect()
}

#[test]
fn locks_have_ranks() {
    assert_none(tree(plain));
}

#[test]
fn a_lock_without_a_rank_is_found() {
    let path = "crates/millpond/src/clock/hosts.rs";
    let found = ":2: a lock without a rank";
    assert_found(plain, path, "//! A.\nuse std::sync::{Arc, Mutex};\n", found);
    assert_found(plain, path, "//! A.\nstatic A: std::sync::RwLock<()> = std::sync::RwLock::new(());\n", found);
    assert_clean(plain, PLAIN[0], "use std::sync::{Arc, Mutex};\n");
    assert_clean(plain, "crates/cli/src/main.rs", "use std::sync::{Arc, Mutex};\n");
    let ranked = "use std::sync::Arc;\nuse millpond_driver::locks::{Mutex, RwLock};\nstruct A(Mutex<R, ()>);\n";
    assert_clean(plain, path, ranked);
}
