//! The edges that findings name are added to programs: those of the project, and random ones.

use std::collections::BTreeMap;

use crate::files::corpus;
use millpond_litmus::{Added, Fixed, Program, fix};

/// Adds edges to a program. Checks that the result is a program, that it is judged as reported, that it has the
/// reported additions, and that nothing is left to do.
fn corrected(name: &str, text: &str) -> Fixed {
    let fixed = fix(text, &|settings| settings).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    let program = Program::parse(&fixed.text).unwrap_or_else(|refusal| panic!("{name}: {refusal}\n{}", fixed.text));
    let found: Vec<_> = program.check().iter().map(|finding| (finding.kind, finding.line())).collect();
    let left: Vec<_> = fixed.left.iter().map(|left| (left.finding.kind, left.finding.line())).collect();
    assert_eq!(found, left, "{name}\n{}", fixed.text);
    let lines: Vec<&str> = fixed.text.lines().map(millpond_litmus::statement).collect();
    let added: Vec<&Added> = fixed.changes.iter().flat_map(|change| &change.added).collect();
    assert!(fixed.changes.iter().all(|change| !change.added.is_empty()), "{name}: {:?}", fixed.changes);
    assert!(added.iter().all(|it| lines[it.line as usize - 1] == it.text), "{name}: {added:?}\n{}", fixed.text);
    let put_in = added.iter().filter(|it| it.was.is_none()).count();
    assert_eq!(lines.len(), text.lines().count() + put_in, "{name}: nothing else is changed\n{}", fixed.text);
    let again = fix(&fixed.text, &|settings| settings).expect("it is a program");
    assert!(again.changes.is_empty(), "{name}: {:?}\n{}", again.changes, again.text);
    assert_eq!(again.text, fixed.text, "{name}");
    fixed
}

/// The project's programs are left without any finding that names edges.
#[test]
fn the_projects_programs_get_their_edges() {
    let (mut wrong, mut right, mut unsettled) = (0, 0, BTreeMap::new());
    for (name, text) in corpus() {
        let program = Program::parse(&text).unwrap();
        let fixed = corrected(&name, &text);
        if program.check().is_empty() {
            assert_eq!(fixed.text, text, "{name} is right");
            continue;
        }
        wrong += 1;
        right += usize::from(fixed.left.is_empty());
        for left in fixed.left {
            assert!(!left.finding.help().is_empty(), "{name}: {:?}", left.finding);
            assert_eq!(left.finding.edit().is_some(), left.why.is_some(), "{name}: {:?}", left.finding);
            if left.why.is_some() {
                unsettled.entry(name.clone()).or_insert(left.finding.kind.name());
            }
        }
    }
    println!("{wrong} programs with findings, {right} right afterwards");
    let expected: BTreeMap<_, _> = UNSETTLED.iter().map(|(name, kind)| (format!("{name}.litmus"), *kind)).collect();
    assert_eq!(unsettled, expected);
    assert!(right > 40, "{right} of {wrong}");
}

/// A mistake that no edge corrects stays as it is: its advice says what to do.
#[test]
fn what_is_no_edge_is_left_with_its_help() {
    for (text, help) in [
        ("stream s\na = alloc s 64\n", "free it after its last use"),
        ("stream s\na = alloc s 64\nfree s a\nfree s a\n", "free it once"),
        ("stream s\na = alloc s 64\nfree s a\nread s a\n", "free it after this read, or allocate anew"),
        ("stream s\ndestroy s\ndestroy s\n", "destroy it once"),
    ] {
        let fixed = corrected(text, text);
        assert_eq!((fixed.text.as_str(), fixed.left.len()), (text, 1), "{:?}", fixed.left);
        assert_eq!((fixed.left[0].finding.help().as_str(), fixed.left[0].why), (help, None));
    }
}

/// An edge that comes too late is moved, because the graph would otherwise have it twice.
#[test]
fn an_edge_that_comes_too_late_is_moved() {
    let begin = "stream s\na = alloc s 64\ngraph g\nnode k1 in g: write a\nnode k2 in g: read a\n";
    let fixed = corrected("late", &format!("{begin}x = instantiate g\nedge k1 -> k2 in g\nlaunch x s\nfree s a\n"));
    assert_eq!(fixed.text, format!("{begin}edge k1 -> k2 in g\nx = instantiate g\nlaunch x s\nfree s a\n"));
    assert!(fixed.left.is_empty(), "{:?}", fixed.left);
    let moved = Added { line: 6, text: "edge k1 -> k2 in g".into(), was: Some(7) };
    assert_eq!(fixed.changes[0].added, [moved]);
    // An edge that was removed is added after its removal.
    let removed = "edge k1 -> k2 in g\nremove edge k1 -> k2 in g\n";
    let fixed = corrected("removed", &format!("{begin}{removed}x = instantiate g\nlaunch x s\nfree s a\n"));
    assert!(fixed.left.is_empty() && fixed.text.contains(&format!("{removed}edge k1 -> k2 in g\nx")), "{}", fixed.text);
}

/// An edge that is needed in one round of a loop is added to all rounds. Lines after the loop come after its last
/// round.
#[test]
fn loops_are_corrected() {
    let text = "stream s\nstream t\na = alloc s 64\nrepeat 3\n  read s a\n  write t a\nend repeat\nfree s a\n";
    let fixed = corrected("a loop", text);
    assert!(fixed.left.is_empty(), "{:?}", fixed.left);
    let expected =
        "repeat 3\n  record fix2 t\n  wait s fix2\n  read s a\n  record fix1 s\n  wait t fix1\n  write t a\nend repeat";
    assert!(fixed.text.contains(expected), "{}", fixed.text);
    // Of several waits, the needed ones stay: `t` passes on what it waited for.
    let text = "stream s\nstream t\nstream u\na = alloc s 64\nrecord e s\nwait t e\nwait u e\nread t a\nrecord f t\n\
                wait u f\nread u a\nfree s a\n";
    let fixed = corrected("readers", text);
    assert_eq!(fixed.text.matches("fix").count(), 2, "one record and one wait\n{}", fixed.text);
}

/// An existing event is used, as the advice says. No second one is recorded.
#[test]
fn events_that_are_there_are_used() {
    let text = "stream s\nstream t\na = alloc s 64\nrecord e s\nwrite t a\nrecord f t\nfree s a\n";
    let fixed = corrected("events", text);
    let expected = "record e s\nwait t e\nwrite t a\nrecord f t\nwait s f\nfree s a\n";
    assert!(fixed.left.is_empty() && fixed.text.ends_with(expected), "{}", fixed.text);
    // But not one that another stream records again in between.
    let text = "stream s\nstream t\nstream u\na = alloc s 64\nrecord e s\nrecord e u\nwrite t a\nwait s e\n";
    assert!(corrected("recorded again", text).text.contains("record fix1 s\nwait t fix1\nwrite t a"));
}

/// Each record of an event that the next one replaces gets an event of its own.
#[test]
fn an_event_of_three_streams_becomes_three() {
    let text = "stream s\nstream t\nstream u\nstream v\na = alloc s 64\nb = alloc t 64\nc = alloc u 64\n\
                record e s\nrecord e t\nrecord e u\nwait v e\nkernel v read a b c\nrecord f v\nwait s f\n\
                wait t f\nwait u f\nfree s a\nfree t b\nfree u c\n";
    let fixed = corrected("one event", text);
    assert!(fixed.left.is_empty(), "{:?}\n{}", fixed.left, fixed.text);
    assert_eq!(fixed.text.matches("wait v").count(), 3, "{}", fixed.text);
}

/// Two nodes inside a child get their edge in the child's graph.
#[test]
fn a_race_inside_a_child_is_corrected_there() {
    let text = "stream s\na = alloc s 64\ngraph g\nnode r in g: read a\nnode w in g: write a\ngraph h\n\
                node c in h: child g\nx = instantiate h\nlaunch x s\nfree s a\n";
    let fixed = corrected("a child", text);
    assert!(fixed.left.is_empty() && fixed.text.contains("node w in g: write a\nedge r -> w in g\n"), "{}", fixed.text);
}

/// An importer's thread waits for an event of the exporter, an existing one or a new one, before it uses the memory
/// itself.
#[test]
fn the_host_of_an_importer_waits_for_an_event() {
    for (event, record) in [("event e shared\n", "record e s\n"), ("", "")] {
        let text = format!(
            "process P\npool p shared\nstream s\n{event}a = alloc s 64 from p\n{record}export a as k\n\
             P: b = import k\nP: host write b\nP: free now b\nP: tell main\nfree s a\n"
        );
        let fixed = corrected("an importer", &text);
        assert!(fixed.left.is_empty() && fixed.text.contains("P: synchronize "), "{:?}\n{}", fixed.left, fixed.text);
    }
}

/// A mistake in a child is reported once, for it or for a graph around it.
#[test]
fn a_fault_in_a_child_is_found_once() {
    let child = "stream s\na = alloc s 64\ngraph g\nnode r in g: read a\nnode w in g: write a\n";
    let around = "graph h\nnode c in h: child g\ny = instantiate h\n";
    for text in [
        format!("{child}{around}free s a\n"),
        format!("{child}x = instantiate g\n{around}launch y s\nfree s a\n"),
        format!("{child}{around}x = instantiate g\nlaunch x s\nk = clone h\nfree s a\n"),
    ] {
        let found = Program::parse(&text).expect("a program").check();
        assert_eq!(found.len(), 1, "{text}");
        assert!(corrected("a child", &text).left.is_empty());
    }
}

/// A thousand readers that are not ordered before the free: an edge for each, in bounded work.
#[test]
fn many_sides_are_corrected() {
    let streams = 0..1000;
    let opened: String = streams.clone().map(|at| format!("stream t{at}\n")).collect();
    let read: String = streams.map(|at| format!("wait t{at} e\nread t{at} a\n")).collect();
    let text = format!("stream s\n{opened}a = alloc s 64\nrecord e s\n{read}free s a\n");
    let fixed = fix(&text, &|settings| settings).expect("a program");
    assert!(fixed.left.is_empty(), "{:?}", fixed.left);
    assert_eq!(fixed.text.matches("wait s fix").count(), 1000);
}

/// Findings whose edges cannot be written, with the first kind of each program.
const UNSETTLED: &[(&str, &str)] = &[];

/// All missing edges of a node are one change, and the last use stands for the uses before it.
#[test]
fn all_edges_of_a_node_are_one_change() {
    let text = "stream s\nstream t\nstream u\ncapture s as g\na = alloc s 64\nrecord e s\nwait t e\nwait u e\n\
                read t a\nread u a\nfree s a\nrecord f t\nrecord h u\nwait s f\nwait s h\nend capture s\n";
    let fixed = corrected("readers in a capture", text);
    assert!(fixed.left.iter().all(|left| left.finding.kind.is_advice()), "{:?}", fixed.left);
    assert_eq!(fixed.changes.len(), 1);
    let chain = "graph g\nnode a in g: alloc a 64\nnode w in g after a: write a\nnode r in g after w: read a\n\
                 node f in g after a: free a\nx = instantiate g\n";
    let fixed = corrected("a chain", chain);
    assert!(fixed.left.is_empty() && fixed.text.contains("edge r -> f in g"), "{}", fixed.text);
    assert_eq!(fixed.text.matches("edge").count(), 1, "{}", fixed.text);
}

/// A free with more unordered nodes than fit in one line is put after all of them.
#[test]
fn a_hundred_readers_are_waited_for_at_once() {
    let readers: String = (0..100).map(|at| format!("node r{at} in g after n: read a\n")).collect();
    let begin = "graph g\nstream s\nnode n in g: alloc a 64\n";
    let text = format!("{begin}{readers}node f in g after n: free a\nx = instantiate g\nlaunch x s\n");
    let fixed = millpond_litmus::fix(&text, &|settings| settings).unwrap();
    assert!(fixed.left.is_empty() && fixed.changes.len() == 1, "{:?}", fixed.left);
    let fixed = millpond_litmus::fix_within(&text, &|settings| settings, 0).unwrap();
    assert_eq!((fixed.text, fixed.left.len()), (text, 1), "no step is left for it");
}
