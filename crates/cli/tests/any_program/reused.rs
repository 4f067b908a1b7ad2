//! What is gone, and whose address or handle something else has by now: `reused.c`.

use super::*;

const WAYS: [&str; 2] = ["reused", "reused-looked-up"];

#[track_caller]
fn assert_right(programs: &[&str]) {
    for (way, program) in WAYS.iter().flat_map(|way| programs.iter().map(move |program| (way, program))) {
        let output = run(&["check"], way, &[program]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{way} {program}: {said}");
        assert_eq!(text(&output.stdout), "done\n", "{way} {program}: {said}");
    }
}

#[track_caller]
fn assert_wrong(program: &str, expected: &[&str], mark: &str) {
    for way in WAYS {
        let output = run(&["check"], way, &[program, "wrong"]);
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
