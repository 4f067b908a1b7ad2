//! Memory of graphs, in programs as a CUDA programmer would write them: each right, and with one order left out.

use super::*;

#[track_caller]
fn assert_pair(program: &str, kind: &str, mark: &str) {
    for way in ["graphs", "graphs-looked-up"] {
        let output = run(&["check"], way, &[program, "right"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{way} {program}: {said}");
        let output = run(&["check"], way, &[program, "wrong"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![kind.to_owned()], Some(1)), "{way} {program}: {said}");
        assert!(text(&output.stdout).ends_with("done\n"), "the program ran to its end");
        let place = place_of(mark);
        assert!(said.contains(&place), "{way} {program}: no {place} in {said}");
    }
}

#[test]
fn memory_of_graphs_is_judged_in_three_orders() {
    assert_pair("by-stream", "use-before-alloc", "/* a launch */");
    assert_pair("by-event", "free-before-use", "/* wrong: the reader is not waited for */");
    assert_pair("by-graph", "use-before-alloc", "/* wrong: the launch is not waited for */");
}

#[test]
fn loops_of_launches_are_judged() {
    assert_pair("auto-free", "auto-free-before-use", "/* wrong: the reader may still run */");
    assert_pair("freed-each-time", "free-before-alloc", "/* wrong: another stream frees it */");
}

#[test]
fn frees_on_other_streams_are_judged() {
    assert_pair("freed-elsewhere", "free-before-use", "/* wrong: one of the two is not waited for */");
}

#[test]
fn graphs_that_are_changed_are_judged_as_they_are() {
    assert_pair("captured-node", "use-after-free", "/* launched */");
    assert_pair("copied-node", "use-after-free", "/* launched */");
    assert_pair("updated", "use-after-free", "/* wrong: the instance was updated */");
    assert_pair("refused-change", "use-after-free", "/* launched */");
    assert_pair("changed-beside-memory", "free-before-alloc", "/* wrong: what launched it is not waited for */");
}
