//! Misuse of graphs, captures and order: the programs beside this file. Each states what is refused and continues after
//! that. The checker and the library report it on every kind of device, the library with the text in `said`, and with
//! CUDA's code if CUDA refuses the call, too.
//!
//! `MILLPOND_GOLDEN=write cargo test -p millpond-litmus --test live refusals` writes that text again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::PoisonError;

use millpond_litmus::Program;
use millpond_runner::{Found, Place, Refusal, Schedule, Timing};

use crate::corpus::{CONTEXT, run};
use crate::is_said;

/// Checks that all of these places give the same answers, with the text kept for `kind`.
fn are_answered(kind: &str, places: &[Place]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/refusals");
    let files = fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("it is there").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|it| it == "litmus")).collect();
    files.sort();
    let kept = folder.join("said").join(kind).with_extension("txt");
    let then = fs::read_to_string(&kept).unwrap_or_default();
    let (mut said, is_new) = (String::new(), std::env::var_os("MILLPOND_GOLDEN").is_some_and(|it| it == "write"));
    for file in files {
        let name = file.file_stem().and_then(|it| it.to_str()).expect("a name");
        let program = Program::parse(&fs::read_to_string(&file).expect("a text")).expect("it can be read");
        assert_eq!(program.differences(&program.check()), Vec::<String>::new(), "{name}: the checker");
        let stated = program.expected().iter().filter(|it| is_said(it.kind));
        let stated: BTreeSet<_> = stated.map(|it| Refusal { line: it.line, kind: it.kind }).collect();
        let mut first = None;
        for place in places {
            let found = match run(&program, *place) {
                Ok(found) => found,
                Err(why) if why.starts_with("a second device") || why.starts_with("another GPU") => continue,
                Err(why) => panic!("{name} on {place:?}: {why}"),
            };
            assert_eq!(found.verdict, stated, "{name} on {place:?}");
            let words = words(&found);
            assert_eq!(first.get_or_insert_with(|| words.clone()), &words, "{name} on {place:?}");
        }
        // If a program needs more devices than there are, its text stays as it was.
        let was = || then.split("## ").find_map(|it| it.strip_prefix(name)?.strip_prefix('\n')?.strip_suffix('\n'));
        let words = first.unwrap_or_else(|| was().unwrap_or_default().to_owned());
        writeln!(said, "## {name}\n{words}").expect("a string");
    }
    if is_new {
        return fs::write(&kept, &said).expect("it is written");
    }
    let at = said.lines().zip(then.lines()).position(|(now, then)| now != then);
    let line = |text: &str| at.and_then(|at| text.lines().nth(at)).unwrap_or("(more or less)").to_owned();
    assert!(said == then, "{}:{at:?}\n  was {}\n  now {}", kept.display(), line(&then), line(&said));
}

/// Returns each refusal with its line, and with CUDA's code if it has one. A place in the code that ran the program is
/// `HERE`, an address `0x`.
fn words(found: &Found) -> String {
    let mut words = String::new();
    for (line, error) in &found.refused {
        writeln!(words, "{line}: {}", error.report().to_string().trim_end()).expect("a string");
        if let Some(code) = error.violation().and_then(|it| it.code) {
            writeln!(words, "  CUDA: error {code}").expect("a string");
        }
    }
    let words = without(&words, "0x", "0x", |it| it.is_ascii_hexdigit());
    without(&words, "crates/runner/src/", "HERE", |it| it.is_ascii_alphanumeric() || "_./:".contains(it))
}

/// Returns a text with each part that begins with `begin` and continues with `more` replaced by `with`.
fn without(text: &str, begin: &str, with: &str, more: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(begin);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + with + part.trim_start_matches(&more))
}

#[test]
fn are_answered_on_hosts() {
    let places = [Timing::Fast, Timing::Seeded(1), Timing::Seeded(2), Timing::Seeded(3)].map(Place::Host);
    are_answered("host", &places);
}

#[test]
fn are_answered_where_the_library_is_held_to_the_drivers_contract() {
    are_answered("checked", &[Schedule::AtOnce, Schedule::AtWait].map(Place::Checked));
}

#[test]
fn are_answered_on_cuda() {
    let _alone = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = Place::wished() {
        are_answered("cuda", &[place]);
    }
}
