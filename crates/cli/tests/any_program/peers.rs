//! Memory of one device that another uses, frees of the wrong kind, and copies onto themselves: `peers.c`.

use super::reused::{assert_right_of, assert_wrong_of};
use super::*;

#[test]
fn memory_of_a_peer_is_used_with_access() {
    assert_right_of("peers", &["kernel", "after", "direction", "captured", "reached"]);
    for program in ["kernel", "after", "direction"] {
        assert_wrong_of("peers", program, &["no-access"], "/* a launch */");
    }
    assert_wrong_of("peers", "captured", &["no-access"], "/* launched there */");
}

#[test]
fn a_trace_says_who_has_access() {
    for (program, wrong, status) in [("kernel", None, 0), ("kernel", Some("wrong"), 1), ("reached", None, 0)] {
        let trace = PLACE.join(format!("peers-{program}-{status}.trace"));
        let words: Vec<&str> = [program].into_iter().chain(wrong).collect();
        run(&["record", "-o", trace.to_str().unwrap()], "peers", &words);
        let (said, found) = check(&trace);
        assert_eq!(found, Some(status), "{said}");
    }
}

#[test]
fn memory_is_freed_as_what_it_is() {
    assert_right_of("peers", &["pinned", "freed"]);
    assert_wrong_of("peers", "pinned", &["double-free"], "/* wrong: pinned on a stream */");
    assert_wrong_of("peers", "freed", &["free-before-alloc"; 2], "/* wrong: as a device's */");
}

#[test]
fn a_copy_onto_itself_is_found() {
    assert_right_of("peers", &["onto-itself"]);
    assert_wrong_of("peers", "onto-itself", &["aliased"], "/* wrong: onto itself */");
}
