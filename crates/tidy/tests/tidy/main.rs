//! The project's own rules over its source tree, enforced by `cargo test`.
//!
//! This file is the rule book: it opens with the data of the rules. Each rule is a function from a [`Source`] to
//! findings, in a file for its kind. It has two tests: one that the tree keeps it, and one that a bad snippet (a
//! canary) breaks it. The rules know Rust's grammar only as far as comments, strings and braces.

mod arrows;
mod floors;
mod layers;
mod locks;
mod paths;
mod phrases;
mod published;
mod sizes;
mod source;
mod unsafety;
mod words;

use std::path::Path;

use source::{Finding, Source};

/// Folders whose modules are layered, bottom up: a module uses only the modules before it in its list.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "crates/core/src/",
        &["ids", "units", "op", "order", "life", "space", "plan", "pool", "graph", "check", "share", "trace"],
    ),
    (
        "crates/interpose/src/",
        &[
            "mode",
            "once",
            "ranks",
            "abi",
            "entry",
            "mapping",
            "ask",
            "kernel_name",
            "python",
            "place",
            "index",
            "arguments",
            "thread",
            "handles",
            "report",
            "interface",
            "judge",
            "own_file",
            "sink",
            "signals",
            "session",
            "calls",
            "capturing",
            "shake",
            "limit",
            "serve",
            "table",
            "search",
        ],
    ),
    ("crates/capi/src/", &["callers", "words", "status", "tables", "calls", "torch"]),
];

/// The floors of `crates/millpond`, bottom up: each uses only itself and the floors before it in this list. The folders
/// of one floor may use each other.
const FLOORS: &[&[&str]] = &[
    &["sync"],
    &["names"],
    &["trace"],
    &["clock"],
    &["state", "pool", "stream", "graph", "share"],
    &["operations"],
    &["api"],
];

/// The crates, each with those of ours that it may depend on. Dev-dependencies are free, except that core has only
/// `reach`, which depends on none of ours.
const CRATES: &[(&str, &[&str])] = &[
    ("reach", &[]),
    ("core", &[]),
    ("plan", &["core"]),
    ("driver", &["core"]),
    ("millpond", &["core", "driver"]),
    ("capi", &["core", "driver", "millpond"]),
    ("adaptor", &["core", "driver", "millpond"]),
    ("cudarc", &["core", "driver", "millpond", "adaptor"]),
    ("cuda-core", &["core", "driver", "millpond", "adaptor"]),
    ("litmus", &["core"]),
    ("cli", &["core", "plan", "driver", "millpond", "litmus"]),
    ("playground", &["core", "litmus", "cli"]),
    ("fakecuda", &["core", "driver"]),
    ("interpose", &["core", "driver", "millpond"]),
    ("runner", &["core", "driver", "millpond", "fakecuda"]),
    ("stress", &["core", "driver", "litmus", "millpond", "reach", "runner"]),
    ("tidy", &[]),
];

/// The folders and files of crates' `src` in which `unsafe` is allowed.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/driver/src/",
    "crates/capi/src/",
    "crates/adaptor/src/",
    "crates/cudarc/src/",
    "crates/cuda-core/src/",
    "crates/fakecuda/src/",
    "crates/interpose/src/",
    "crates/playground/src/wasm.rs",
    "crates/millpond/src/state/access.rs",
    "crates/millpond/src/stream/host_memory.rs",
    "crates/millpond/src/api/adopt.rs",
    "crates/millpond/src/pool/shell.rs",
    "crates/millpond/src/operations/scope.rs",
    "crates/runner/src/processes.rs",
    "crates/stress/src/import.rs",
    "crates/stress/src/preempt.rs",
];

/// The maximal number of columns of a line.
const COLUMNS: usize = 120;

/// Words that are forbidden in code, as whole words only.
const BANNED_IN_CODE: &[&str] = &[concat!("to", "do!"), concat!("un", "implemented!"), concat!("db", "g!")];
/// Parts of names that say nothing.
const BANNED_IN_NAMES: &[&str] = &["Manager", "Helper", "utils"];
/// Marks of unfinished work, in comments and code.
const BANNED_MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Paths of one person's machine, anywhere in a file.
const BANNED_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("../sha", "red")];

/// Private words, the field's word for each, and how often the private word occurs in the crates' `src`. That number
/// may only fall: a change that removes some updates it here.
const PRIVATE_WORDS: &[(&str, &str, usize)] = &[
    ("is over", "has completed", 0),
    ("are over", "have completed", 0),
    ("be over", "have completed", 0),
    ("was over", "had completed", 0),
    ("were over", "had completed", 0),
    ("at any price", "regardless of cost", 0),
    ("hear", "synchronise with, learn", 0),
    ("hears", "synchronises with, learns", 0),
    ("heard", "learned", 0),
    ("told", "synchronised, informed", 0),
    ("nobody", "no thread, no stream, no process", 0),
    ("somebody", "a thread, a stream, another process", 0),
    ("everybody", "all streams, all threads", 0),
];

/// Applies a rule to every `.rs` file of the tree.
fn tree(rule: impl Fn(&Source) -> Vec<Finding>) -> Vec<Finding> {
    let sources = source::read_tree(&root());
    assert!(sources.len() > 10, "the tree has only {} Rust files: looked in the wrong place?", sources.len());
    sources.iter().flat_map(rule).collect()
}

/// Returns the folder of the workspace.
fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Fails if there are findings, with one line for each.
#[track_caller]
fn assert_none(findings: Vec<Finding>) {
    let text: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "{} findings:{text}", findings.len());
}

/// Fails unless the rule finds something, with `part` in it, in a file of this path and text.
#[track_caller]
fn assert_found(rule: impl Fn(&Source) -> Vec<Finding>, path: &str, text: &str, part: &str) {
    let findings = rule(&Source::new(path, text));
    assert!(findings.iter().any(|f| f.to_string().contains(part)), "no `{part}` in {findings:?}");
}

/// Fails if the rule finds anything in a file of this path and text.
#[track_caller]
fn assert_clean(rule: impl Fn(&Source) -> Vec<Finding>, path: &str, text: &str) {
    assert_none(rule(&Source::new(path, text)));
}
