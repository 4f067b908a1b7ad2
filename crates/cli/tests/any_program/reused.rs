//! Destroyed things whose address or handle is used again: `reused.c`. Calls that act at once while a stream is
//! captured: `unsafe.c`.

use super::*;

#[track_caller]
fn assert_right(programs: &[&str]) {
    assert_right_of("reused", programs);
}

#[track_caller]
pub(super) fn assert_right_of(file: &str, programs: &[&str]) {
    let ways = [file.to_owned(), format!("{file}-looked-up")];
    for (way, program) in ways.iter().flat_map(|way| programs.iter().map(move |program| (way, program))) {
        let output = run(&["check"], way, &[program]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{way} {program}: {said}");
        assert_eq!(text(&output.stdout), "done\n", "{way} {program}: {said}");
    }
}

#[track_caller]
fn assert_wrong(program: &str, expected: &[&str], mark: &str) {
    assert_wrong_of("reused", program, expected, mark);
}

#[track_caller]
pub(super) fn assert_wrong_of(file: &str, program: &str, expected: &[&str], mark: &str) {
    for way in [file.to_owned(), format!("{file}-looked-up")] {
        let output = run(&["check"], &way, &[program, "wrong"]);
        let said = text(&output.stderr);
        assert_eq!(kinds(&output), expected, "{way} {program}: {said}");
        assert_eq!(text(&output.stdout), "done\n", "{way} {program}: {said}");
        let place = place_of(mark);
        assert!(said.contains(&place), "{way} {program}: no {place} in {said}");
    }
}

#[test]
fn memory_of_the_host_at_addresses_that_a_device_had_is_no_freed_memory() {
    assert_right(&["host-side", "host-argument", "host-structure", "host-node", "host-of-context"]);
}

#[test]
fn a_trace_has_no_freed_memory_where_the_host_has_its_own() {
    for program in ["host-side", "host-argument"] {
        let trace = PLACE.join(format!("reused-{program}.trace"));
        run(&["record", "-o", trace.to_str().unwrap()], "reused", &[program]);
        let (said, status) = check(&trace);
        assert_eq!(status, Some(0), "{said}");
    }
}

#[test]
fn freed_memory_that_nothing_else_has_is_used_after_its_free() {
    assert_wrong("reserved", &["use-after-free"], "/* a launch */");
    assert_wrong("unmapped", &["use-after-free"], "/* a launch */");
    assert_wrong("kept", &["use-after-free"], "/* wrong: kept */");
}

#[test]
fn two_numbers_side_by_side_are_no_address() {
    assert_right(&["numbers-beside"]);
    assert_wrong("numbers-beside", &["use-after-free"], "/* freed before the numbers */");
}

#[test]
fn a_structure_filled_in_part_counts_in_a_node_as_in_a_launch() {
    assert_right(&["captured-structure", "structure-node", "structure-beside", "structure-later"]);
    assert_wrong("captured-structure", &["use-after-free"], "/* the structure */");
    assert_wrong("structure-node", &["use-after-free"], "/* a structure node */");
    assert_wrong("structure-beside", &["use-after-free"], "/* the structure */");
    assert_wrong("structure-later", &["free-before-use"], "/* wrong: the graph is not waited for */");
}

#[test]
fn what_a_failed_capture_had_is_gone() {
    assert_right(&["failed-capture", "failed-fork", "origin-destroyed", "failed-unfollowed"]);
    assert_wrong("failed-capture", &["free-before-alloc"], "/* wrong: after a failed capture */");
    assert_wrong("failed-unfollowed", &["free-before-alloc"], "/* wrong: captured after one that is not followed */");
}

#[test]
fn handles_that_are_given_out_again_are_others() {
    let programs = [
        "stream-again",
        "event-again",
        "graph-again",
        "exec-again",
        "function-again",
        "context-again",
        "pool-again",
        "reset",
    ];
    assert_right(&programs);
    assert_wrong("stream-again", &["use-before-alloc"], "/* wrong: another stream */");
    assert_wrong("event-again", &["use-before-alloc"], "/* wrong: another event */");
    assert_wrong("graph-again", &["use-before-alloc"], "/* launched */");
    assert_wrong("exec-again", &["use-before-alloc"], "/* wrong: another instance */");
    assert_wrong("function-again", &["use-after-free"], "/* wrong: another function */");
    assert_wrong("context-again", &["use-before-alloc"], "/* wrong: of another context */");
    assert_wrong("reset", &["use-before-alloc"], "/* wrong: after a reset */");
}

const UNSAFE: [(&str, &str); 13] = [
    ("watched", "/* wrong: an event beside */"),
    ("watched-relaxed", "/* wrong: an event beside */"),
    ("waits", "/* wrong: a stream beside */"),
    ("queries", "/* wrong: another stream is asked */"),
    ("waits-for-event", "/* wrong: an event is waited for */"),
    ("pinned", "/* wrong: pinned */"),
    ("unpinned", "/* wrong: unpinned */"),
    ("device-memory", "/* wrong: device memory */"),
    ("device-memory-freed", "/* wrong: device memory is freed */"),
    ("pool-made", "/* wrong: a pool */"),
    ("instantiated", "/* wrong: an instance */"),
    ("captured", "/* wrong: the stream itself */"),
    ("first-only", "/* wrong: the first */"),
];

#[test]
fn calls_that_a_capture_refuses_are_found() {
    for (program, mark) in UNSAFE {
        assert_wrong_of("unsafe", program, &["capture-unsupported"], mark);
    }
}

#[test]
fn calls_that_a_capture_allows_are_right() {
    assert_right_of("unsafe", &UNSAFE.map(|(program, _)| program));
    assert_right_of("unsafe", &["waited-before"]);
}

#[test]
fn a_trace_of_calls_that_a_capture_refuses_has_the_same_verdict() {
    for (program, _) in UNSAFE {
        for (wrong, expected) in [("", Some(0)), ("wrong", Some(1))] {
            let trace = PLACE.join(format!("unsafe-{program}{wrong}.trace"));
            run(&["record", "-o", trace.to_str().unwrap()], "unsafe", &[program, wrong]);
            let (said, status) = check(&trace);
            assert_eq!(status, expected, "{program} {wrong}: {said}");
        }
    }
}
