//! Floors of a crate's folders, and circles of files: no arrow goes up, and there are no circles.

use std::collections::BTreeSet;

use crate::arrows::{Arrows, Module, of_snippets, text};
use crate::{CRATES, FLOORS, root, source};

/// Returns the floor of a file, counted from the ground.
fn floor(floors: &[&[&str]], module: &Module) -> Option<usize> {
    floors.iter().position(|folders| folders.contains(&module[0].as_str()))
}

/// Returns the arrows that go up, as `from -> to`, and the files without a floor.
fn upward(floors: &[&[&str]], arrows: &Arrows) -> (BTreeSet<String>, Vec<String>) {
    let homeless = arrows.of.keys().filter(|module| floor(floors, module).is_none()).map(text).collect();
    let mut found = BTreeSet::new();
    for (from, used) in &arrows.of {
        for to in used.keys().filter(|to| floor(floors, to) > floor(floors, from)) {
            found.insert(format!("{} -> {}", text(from), text(to)));
        }
    }
    (found, homeless)
}

/// Returns `true` if all files of a circle are on one floor that has several folders.
fn is_of_shared_floor(crate_name: &str, circle: &BTreeSet<String>) -> bool {
    let folders: BTreeSet<&str> = circle.iter().filter_map(|file| file.split('/').next()).collect();
    let is_home = |floor: &&&[&str]| floor.len() > 1 && folders.iter().all(|folder| floor.contains(folder));
    crate_name == "millpond" && FLOORS.iter().any(|floor| is_home(&floor))
}

fn arrows_of(crate_name: &str) -> Arrows {
    let sources = source::read_tree(&root());
    Arrows::of_crate(crate_name, sources.iter())
}

#[test]
fn floors_use_those_below() {
    let arrows = arrows_of("millpond");
    let (found, homeless) = upward(FLOORS, &arrows);
    assert!(arrows.count() > 300, "only {} arrows: are paths still read?", arrows.count());
    assert_eq!(homeless, [""; 0], "a file belongs to a floor");
    println!("millpond: {} arrows", arrows.count());
    assert!(found.is_empty(), "a floor above it is used: {found:#?}");
}

#[test]
fn files_use_each_other_in_no_circle() {
    let mut found = Vec::new();
    for (crate_name, _) in CRATES {
        let circles =
            arrows_of(crate_name).circles().into_iter().filter(|circle| !is_of_shared_floor(crate_name, circle));
        found.extend(circles.map(|circle| format!("{crate_name}: {}", Vec::from_iter(circle).join(" "))));
    }
    assert!(found.is_empty(), "in a circle: {found:#?}");
}

#[test]
fn an_arrow_that_goes_up_is_found() {
    let floors: &[&[&str]] = &[&["low"], &["high", "beside"]];
    let arrows = of_snippets(&[
        ("lib.rs", "mod low;\nmod high;\nmod beside;\nmod other;"),
        ("low/a.rs", "use crate::high::B;"),
        ("high/b.rs", "use crate::low::a::A;\nuse crate::beside::C;\nstruct B;"),
        ("beside.rs", "use crate::high::B;\nstruct C;"),
        ("high/mod.rs", "pub(crate) mod b;\npub(crate) use b::B;"),
        ("other.rs", ""),
    ]);
    let (found, homeless) = upward(floors, &arrows);
    assert_eq!(Vec::from_iter(found), ["low/a -> high/b"]);
    assert_eq!(homeless, ["other"]);
}

#[test]
fn a_circle_is_found() {
    let parent = ("a/mod.rs", "mod one;\nmod two;\nuse one::f;\nuse crate::b::g;");
    let lib = ("lib.rs", "mod a;\nmod b;");
    let kept = [lib, parent, ("a/one.rs", "use super::X;"), ("a/two.rs", "use super::one::f;"), ("b.rs", "")];
    assert!(of_snippets(&kept).circles().is_empty(), "a parent and its own children are no circle");
    let siblings = [lib, parent, ("a/one.rs", "use super::two::h;"), ("a/two.rs", "use super::one::f;"), ("b.rs", "")];
    let circle = |parts: &[&str]| BTreeSet::from_iter(parts.iter().map(|part| (*part).to_owned()));
    assert_eq!(of_snippets(&siblings).circles(), [circle(&["a/one", "a/two"])]);
    let around = [lib, parent, ("a/one.rs", ""), ("a/two.rs", ""), ("b.rs", "fn g() { crate::a::X::new() }")];
    assert_eq!(of_snippets(&around).circles(), [circle(&["a", "b"])]);
    let past_child = [lib, parent, ("a/one.rs", "use crate::b::g;"), ("a/two.rs", ""), ("b.rs", "use crate::a::X;")];
    assert_eq!(of_snippets(&past_child).circles(), [circle(&["a", "a/one", "b"])]);
}
