//! Programs are corrected: those of the project, and random ones.

mod files;

use std::collections::BTreeMap;

use files::corpus;
use millpond_litmus::{Fixed, Program, fix};

/// Corrects a program: what comes out is a program, is judged as is said, and nothing is left to do.
fn corrected(name: &str, text: &str) -> Fixed {
    let fixed = fix(text, &|settings| settings).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    let program = Program::parse(&fixed.text).unwrap_or_else(|refusal| panic!("{name}: {refusal}\n{}", fixed.text));
    let found: Vec<_> = program.check().iter().map(|finding| (finding.kind, finding.line())).collect();
    let left: Vec<_> = fixed.left.iter().map(|left| (left.finding.kind, left.finding.line())).collect();
    assert_eq!(found, left, "{name}\n{}", fixed.text);
    assert!(fixed.left.iter().all(|left| !left.why.is_empty()), "{name}: {:?}", fixed.left);
    let again = fix(&fixed.text, &|settings| settings).expect("it is a program");
    assert!(again.changes.is_empty(), "{name}: {:?}\n{}", again.changes, again.text);
    assert_eq!(again.text, fixed.text, "{name}");
    fixed
}

/// Those of the project that are wrong are right afterwards, but for what only their author knows.
#[test]
fn the_projects_programs_are_corrected() {
    let (mut wrong, mut left) = (0, BTreeMap::new());
    for (name, text) in corpus() {
        let program = Program::parse(&text).unwrap();
        let fixed = corrected(&name, &text);
        match program.check().is_empty() {
            true => assert_eq!(fixed.text, text, "{name} is right"),
            false => wrong += 1,
        }
        if !fixed.left.is_empty() {
            left.insert(name, fixed.left[0].finding.kind.name());
        }
    }
    println!("{wrong} programs with findings, {} with findings left: {left:#?}", left.len());
    let expected: BTreeMap<_, _> = LEFT.iter().map(|(name, kind)| (format!("{name}.litmus"), *kind)).collect();
    assert_eq!(left, expected);
}

/// An edge that is needed in one round of a loop is put into all; a loop's last word counts for what comes after it.
#[test]
fn loops_are_corrected() {
    let text = "stream s\nstream t\na = alloc s 64\nrepeat 3\n  read s a\n  write t a\nend repeat\nfree s a\n";
    let fixed = corrected("a loop", text);
    assert!(fixed.left.is_empty(), "{:?}", fixed.left);
    let expected =
        "repeat 3\n  record fix2 t\n  wait s fix2\n  read s a\n  record fix1 s\n  wait t fix1\n  write t a\nend repeat";
    assert!(fixed.text.contains(expected), "{}", fixed.text);
    // Of several waits those stay that are needed: what `t` has heard, it passes on.
    let text = "stream s\nstream t\nstream u\na = alloc s 64\nrecord e s\nwait t e\nwait u e\nread t a\nrecord f t\n\
                wait u f\nread u a\nfree s a\n";
    let fixed = corrected("readers", text);
    assert_eq!(fixed.text.matches("fix").count(), 2, "one record and one wait\n{}", fixed.text);
}

/// An event that is there already is waited for, as the help says; no second one is recorded.
#[test]
fn events_that_are_there_are_used() {
    let text = "stream s\nstream t\na = alloc s 64\nrecord e s\nwrite t a\nrecord f t\nfree s a\n";
    let fixed = corrected("events", text);
    let expected = "record e s\nwait t e\nwrite t a\nrecord f t\nwait s f\nfree s a\n";
    assert!(fixed.left.is_empty() && fixed.text.ends_with(expected), "{}", fixed.text);
    // Not one that another stream records again in between.
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

/// What was put in for one finding goes where what was done for a later one does for both.
#[test]
fn what_later_changes_stand_for_goes() {
    let fixed = corrected("moved", "stream s nonblocking\nstream t\na = alloc s 64\nfree t a\nwrite s a\n");
    assert!(fixed.left.is_empty() && !fixed.text.contains("wait"), "{}", fixed.text);
    let nodes = "node n in g: alloc a 64\nnode f in g after n: free a\nnode r in g after n f: read a\n";
    let fixed = corrected("edges", &format!("graph g\n{nodes}node w in g after n f r: write a\n"));
    assert!(fixed.left.is_empty() && fixed.text.matches("edge").count() == 1, "{}", fixed.text);
}

/// Of captures that go on at once a call comes out of all.
#[test]
fn a_call_leaves_each_capture() {
    let text = "stream s\nstream t\ncapture s as g\ncapture t as h\nsynchronize device\nend capture t\nend capture s\n";
    let fixed = corrected("captures", text);
    assert!(fixed.left.is_empty() && fixed.text.ends_with("end capture s\nsynchronize device\n"), "{}", fixed.text);
}

/// Memory of a capture keeps what its pool granted when it was allocated; a node works on a device of its own.
#[test]
fn a_grant_is_where_it_counts_and_to_the_device_that_does_the_work() {
    let streams = "stream s nonblocking\nstream u nonblocking on 1\n";
    let allocated = "a = alloc s 64 from p\n";
    let node = "record e s\nwait u e\nwrite u a\nrecord f u\nwait s f\n";
    let text = format!("{streams}pool p\ncapture s as g\n{allocated}{node}free s a\nend capture s\n");
    let fixed = corrected("a capture", &text);
    assert!(fixed.left.is_empty() && fixed.text.contains(&format!("grant p to 1\n{allocated}")), "{}", fixed.text);
    let launched = "x = instantiate g\nlaunch x s\nfree s a\n";
    let text = format!("{streams}pool p\n{allocated}capture s as g\nread s a\n{node}end capture s\n{launched}");
    let fixed = corrected("a node", &text);
    assert!(fixed.left.is_empty() && fixed.text.contains("grant p to 1\nlaunch x s\n"), "{}", fixed.text);
    let text = text.replace("pool p\n", "").replace(" from p", "");
    let fixed = corrected("a default pool", &text);
    assert!(fixed.left.is_empty() && fixed.text.contains("pool fix1\ngrant fix1 to 1\n"), "{}", fixed.text);
}

/// Two nodes inside a child get their edge in its graph.
#[test]
fn a_race_inside_a_child_is_corrected_there() {
    let text = "stream s\na = alloc s 64\ngraph g\nnode r in g: read a\nnode w in g: write a\ngraph h\n\
                node c in h: child g\nx = instantiate h\nlaunch x s\nfree s a\n";
    let fixed = corrected("a child", text);
    assert!(fixed.left.is_empty() && fixed.text.contains("node w in g: write a\nedge r -> w in g\n"), "{}", fixed.text);
}

/// An importer's thread waits for an event of the exporter's before it uses the memory itself, a new one or not.
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

/// What is wrong within a child is said once, of it or of a graph around it.
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

/// One change settles a loop that allocates in each round, and makes no leaks; what comes before its launch comes
/// behind it.
#[test]
fn memory_of_graphs_is_corrected() {
    let of = |name: &str| {
        let (_, text) = corpus().into_iter().find(|(it, _)| *it == format!("{name}.litmus")).expect("it is there");
        let Fixed { text, changes, left } = corrected(name, &text);
        assert!(left.is_empty(), "{left:?}");
        let edits: Vec<&str> = changes.iter().map(|change| change.edit.name()).collect();
        (text, edits)
    };
    let (text, edits) = of("loops/1-allocated-in-a-loop");
    assert!(text.contains("\n  write s a\n  free s a\nend repeat"), "{text}");
    assert_eq!(edits, ["free"]);
    let (text, edits) = of("zoo/24-allocation-in-a-capture");
    assert!(text.ends_with("launch x s\nfree s a\nlaunch x s\nfree s a\n"), "{text}");
    assert_eq!(edits, ["behind-launch"]);
    let (text, edits) = of("rules/clone-of-fixed-addresses");
    assert!(text.contains("name a in c as fix1") && text.ends_with("drop fix1\n"), "{text}");
    assert_eq!(edits, ["symbolic", "free"]);
}

/// A thousand readers that nothing orders before the free: an edge for each, in bounded work.
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

/// What no edit puts right, with the first rule that is left.
const LEFT: &[(&str, &str)] = &[
    // Memory that has no name any more, or not yet.
    ("rules/copy-with-its-own-name", "use-before-alloc"),
    ("rules/name-of-the-launch-before", "use-after-free"),
    ("rules/graph-internal-memory-used-outside", "use-before-alloc"),
    // A launch that does what its graph does.
    ("shapes/freed-by-another-graph-before-the-launch", "double-free"),
    // Something else is meant.
    ("rules/capture-begun-twice", "capture-state"),
    ("rules/capture-never-ended", "capture-state"),
    ("rules/captured-event-synchronized", "captured-event"),
    ("rules/captured-event-waited-for-outside", "captured-event"),
    ("rules/captures-merged", "capture-merge"),
    ("rules/edge-in-a-circle", "graph-refused"),
    ("rules/import-after-the-owners-free", "unknown-name"),
    ("rules/imported-memory-exported-on", "not-shareable"),
    ("rules/launched-after-destroy", "unknown-name"),
    ("rules/legacy-stream-captured", "capture-unsupported"),
    ("rules/copy-between-overlapping-parts", "aliased"),
    ("rules/ticket-imported-twice", "unknown-name"),
    ("shapes/capture-ended-elsewhere", "capture-state"),
    ("shapes/child-in-two-places", "graph-refused"),
    ("zoo/48-event-of-another-device", "wrong-device"),
];

/// All edges that a node lacks are one change, and the last use stands for those before it.
#[test]
fn all_edges_of_a_node_are_one_change() {
    let text = "stream s\nstream t\nstream u\ncapture s as g\na = alloc s 64\nrecord e s\nwait t e\nwait u e\n\
                read t a\nread u a\nfree s a\nrecord f t\nrecord h u\nwait s f\nwait s h\nend capture s\n";
    let fixed = corrected("readers in a capture", text);
    assert!(fixed.left.is_empty(), "{:?}", fixed.left);
    let chain = "graph g\nnode a in g: alloc a 64\nnode w in g after a: write a\nnode r in g after w: read a\n\
                 node f in g after a: free a\nx = instantiate g\n";
    let fixed = corrected("a chain", chain);
    assert!(fixed.left.is_empty() && fixed.text.contains("edge r -> f in g"), "{}", fixed.text);
    assert_eq!(fixed.text.matches("edge").count(), 1, "{}", fixed.text);
}

/// A name that means another allocation by then is kept under another one; what is destroyed twice is left out once; a
/// free in a loop goes behind it.
#[test]
fn names_and_loops_keep_their_meaning() {
    let cases = [
        ("stream s\na = alloc s 64\na = alloc s 64\nfree s a\n", "name a as fix1"),
        (
            "stream s\na = alloc s 64\nname a as b\nfree s a\na = alloc s 64\nwrite s b\nfree s a\n",
            "free s fix1\nfree s a",
        ),
        ("stream s\ndestroy s\ndestroy s\n", "stream s\ndestroy s\n"),
        ("pool p\ndestroy p\ndestroy p\n", "pool p\ndestroy p\n"),
        ("stream s\na = alloc s 64\nrepeat 2\nwrite s a\nfree s a\nend repeat\n", "write s a\nend repeat\nfree s a"),
        (
            "process q\nstream s\npool p shared\nrepeat 2\na = alloc s 64 from p\nexport a as k\nq: b = import k\n\
             end repeat\n",
            "q: drop b\ndrop a\nend repeat",
        ),
    ];
    for (text, expected) in cases {
        let fixed = corrected(text, text);
        assert!(fixed.left.is_empty() && fixed.text.contains(expected), "{:?}\n{}", fixed.left, fixed.text);
    }
}

/// A free that more nodes come beside than a line has room for is put behind all of them.
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
