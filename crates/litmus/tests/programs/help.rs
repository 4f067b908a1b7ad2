//! The advice if several operations have to come first: as few edges as are enough, and only edges that can be made.

use millpond_litmus::Program;

/// Returns the advice of the only finding of a program.
fn help(text: &str) -> String {
    let findings = Program::parse(text).expect("it can be read").check();
    let [finding] = &findings[..] else { panic!("one finding, not {}", findings.len()) };
    finding.help()
}

const BEGIN: &str = "set leaks off\nstream s nonblocking\nstream t nonblocking\nstream u nonblocking\n\
                     a = alloc s 64\nwrite s a\nrecord e s\nwait t e\nread t a\n";

/// Returns BEGIN, a fourth stream, and the given lines.
fn after(rest: &str) -> String {
    format!("{BEGIN}stream v nonblocking\nwait v e\nread v a\n{rest}")
}

#[test]
fn a_reader_that_comes_after_the_writer_stands_for_it() {
    assert_eq!(
        help(&format!("{BEGIN}destroy e\nfree u a")),
        "make stream `u` wait for an event recorded on stream `t` at or after op 2 (line 9)"
    );
}

#[test]
fn a_stream_that_comes_after_all_readers_stands_for_them() {
    let joined = "stream w nonblocking\nrecord f t\nwait w f\nrecord f v\nwait w f\ndestroy e\ndestroy f\nfree u a";
    assert_eq!(
        help(&after(joined)),
        "make stream `u` wait for an event recorded on stream `w` at or after op 2 (line 17)"
    );
}

#[test]
fn an_event_that_brings_all_is_taken() {
    let recorded = "record f t\nwait v f\nrecord g v\ndestroy e\nfree u a";
    assert_eq!(
        help(&after(recorded)),
        "make stream `u` wait for the event that is recorded already by stream `v`, op 4 (line 15)"
    );
}

#[test]
fn readers_that_nobody_comes_after_are_named_each() {
    assert_eq!(
        help(&after("destroy e\nfree s a")),
        "make stream `s` wait for an event recorded on stream `t` at or after op 2 (line 9); \
         make stream `s` wait for an event recorded on stream `v` at or after op 2 (line 12)"
    );
}

#[test]
fn a_stream_that_is_destroyed_records_before() {
    assert_eq!(
        help(&after("destroy e\nrecord f v\nwait s f\ndestroy f\ndestroy t\nfree s a")),
        "make stream `s` wait for an event recorded on stream `t` at or after op 2 (line 9), before that stream is \
         destroyed (line 17)"
    );
    let heir = "record f t\nwait v f\ndestroy e\ndestroy f\ndestroy t\nfree s a";
    assert_eq!(
        help(&after(heir)),
        "make stream `s` wait for an event recorded on stream `v` at or after op 3 (line 14)",
        "another one comes after it"
    );
    assert_eq!(help(&after("destroy e\ndestroy t\nsynchronize v\nfree now a")), "synchronize the device before");
}

#[test]
fn all_accesses_of_an_operation_are_settled_at_once() {
    let text = "set leaks off\nstream s nonblocking\nstream t nonblocking\nstream u nonblocking\n\
                a = alloc s 64\nb = alloc t 64\nkernel u read a write b";
    assert_eq!(
        help(text),
        "make stream `u` wait for an event recorded on stream `s` at or after op 1 (line 5); \
         make stream `u` wait for an event recorded on stream `t` at or after op 1 (line 6)"
    );
    let graph = format!(
        "{}graph g\nnode k in g: kernel read a write b\nx = instantiate g\nlaunch x u",
        &text[..text.find("kernel").unwrap()]
    );
    assert!(help(&graph).contains("stream `s`") && help(&graph).contains("stream `t`"), "{}", help(&graph));
}

#[test]
fn memory_of_the_outside_has_its_name_in_graphs() {
    let text = "set leaks off\nstream s\na = alloc s 64\ngraph g\nnode p in g: write a\nnode q in g: read a\n\
                x = instantiate g";
    let findings = Program::parse(text).expect("it can be read").check();
    assert_eq!(
        findings[0].sentence,
        "`a` (allocation 0, 64 B) is read by kernel `q` and written by kernel `p` with no path between them"
    );
    assert_eq!(findings[0].subject.as_ref().unwrap().name.as_deref(), Some("a"));
}

/// Returns the first side of the only finding of a program.
fn first_side(text: &str) -> String {
    let findings = Program::parse(text).expect("it can be read").check();
    let [finding] = &findings[..] else { panic!("one finding, not {}", findings.len()) };
    finding.earlier.as_ref().expect("a first side").title()
}

const LAUNCHED: &str = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\n\
                        wait t e\ndestroy e\ngraph c\nnode w in c: write a\ngraph g\nnode n in g: alloc b 64\n\
                        node k in g: child c\nx = instantiate g\nlaunch x s\n";

#[test]
fn the_node_of_a_launch_before_is_named() {
    assert_eq!(first_side(&format!("{LAUNCHED}read t a")), "stream `s`, op 3: kernel `w` (node 1.0) (line 9)");
    assert_eq!(first_side(&format!("{LAUNCHED}read t b")), "stream `s`, op 3: mem alloc `n` (line 11)");
    let freed = "graph h\nnode f in h: free b\ny = instantiate h\nlaunch y s\nread s b";
    assert_eq!(first_side(&format!("{LAUNCHED}{freed}")), "stream `s`, op 4: mem free `f` (line 16)");
}

#[test]
fn what_a_launch_freed_by_itself_is_said_to_be() {
    let relaunched =
        "graph g\nnode n in g: alloc a 64\nx = instantiate g auto-free\nlaunch x s\nb = take a from x\nlaunch x s";
    assert_eq!(
        first_side(&format!("set leaks off\nstream s\n{relaunched}\nread s b")),
        "stream `s`, op 2: auto free on launch"
    );
}

#[test]
fn the_node_of_a_launch_is_not_named_where_the_instance_has_others_now() {
    assert_eq!(first_side(&format!("{LAUNCHED}free s b\nupdate x from g\nread t a")), "stream `s`, op 3");
}

/// A launch needs the grant that the work of its device needs, and the finding names the node.
#[test]
fn a_launch_on_another_device_needs_access() {
    let text = "pool p\nstream s\nstream t on 1\na = alloc s 64 from p\ngraph g\nnode n in g: write a\n\
                x = instantiate g\nrecord e s\nwait t e\nlaunch x t\nrecord f t\nwait s f\nfree s a\n";
    assert_eq!(help(text), "grant device 1 access to pool `p` first, to write it");
    let findings = Program::parse(text).expect("it can be read").check();
    assert!(findings[0].to_string().contains("kernel `n`"), "{}", findings[0]);
    let granted = text.replace("launch x t", "grant p to 1\nlaunch x t");
    assert_eq!(Program::parse(&granted).expect("it can be read").check(), []);
}

/// Of several captures, the finding names the one that forbids the call, and none of another device.
#[test]
fn the_capture_is_named_that_is_in_the_way() {
    for (program, line) in [
        ("stream s / stream t / capture s as g relaxed / capture t as h / b = alloc now 64", Some(4)),
        ("stream s nonblocking / stream t / stream l legacy / capture s as g / capture t as h / record e l", Some(5)),
        ("stream s / stream u on 1 / capture s as g / capture u as h / synchronize device 1", Some(4)),
        ("thread T / stream s / stream t / capture s as g / T: capture t as h / end capture t", Some(5)),
        ("stream s nonblocking / stream l legacy / capture s as g / capture l as h", None),
        ("stream s / stream t / capture s as g / end capture t", None),
    ] {
        let text: Vec<&str> = program.split(" / ").collect();
        let findings = Program::parse(&format!("set leaks off\n{}", text.join("\n"))).unwrap().check();
        let [finding] = &findings[..] else { panic!("{program}: {findings:?}") };
        let begun = finding.earlier.as_ref().and_then(|side| side.spot.line);
        assert_eq!(begun.map(|begun| begun - 1), line, "{program}: {finding}");
        if let Some(stream) = line.and_then(|line| text[line as usize - 1].split("capture ").nth(1)) {
            let stream = format!("stream `{}`", stream.split(' ').next().unwrap());
            assert!(finding.to_string().matches(&stream).count() > 0, "{program}: {finding}");
        }
    }
}

/// A query that returns yes orders like a synchronisation, but is not called one.
#[test]
fn a_query_in_a_capture_is_called_one() {
    for (asked, called) in [("query s yes", "queried"), ("query s no", "queried"), ("synchronize s", "synchronized")] {
        let text = format!("stream s\ncapture s as g\n{asked}\nend capture s\n");
        let findings = Program::parse(&text).expect("it can be read").check();
        assert!(findings[0].to_string().contains(&format!("a stream is {called} while")), "{}", findings[0]);
    }
}

/// Things that a process made exist only there.
#[test]
fn a_name_of_another_process_is_refused() {
    let begin = "process q\nstream s\nq: stream t\na = alloc s 64\ngraph g\nx = instantiate g\n";
    for line in
        ["q: read t a", "q: write s a", "q: launch x t", "q: destroy s", "t = alloc t 64", "q: y = instantiate g"]
    {
        let refusal = Program::parse(&format!("{begin}{line}\n")).expect_err("it is another's").to_string();
        assert!(refusal.contains("is another process's") && refusal.starts_with("line 7"), "{line}: {refusal}");
    }
}

/// A name can be used once in a process, and a node's name until the node is removed.
#[test]
fn names_are_taken_once() {
    let refusal = |text: &str| Program::parse(text).unwrap_err().to_string();
    let taken = refusal("process q\nstream s\nq: stream s");
    assert!(taken.starts_with("line 3") && taken.contains("another process's already"), "{taken}");
    let taken = refusal("graph g\nnode m in g: empty\nnode m in g: empty");
    assert!(taken.starts_with("line 3") && taken.contains("a node of that graph already"), "{taken}");
    let again = "graph g\nnode m in g: empty\nremove node m in g\nh = clone g\nnode m in g: empty\nnode m in h: empty";
    assert!(Program::parse(again).is_ok());
}

/// The finding names the missing nodes of a launch by their numbers, and what is known of the launching stream.
#[test]
fn the_nodes_of_a_launch_that_are_missing_are_named() {
    const BEGINNING: &str = "stream s / stream t nonblocking / event e / a = alloc s 64 / record e s / graph h";
    for (nodes, end, expected, known) in [
        ("node c in h: read a / node d in h: read a / node r in h after c: record e", "free t a", "1", 2),
        ("node c in h: read a / node d in h: read a / node r in h: record e", "free t a", "0 1", 2),
        (
            "node c in h: write a[0..32] / node d in h: write a[32..64] / node r in h after c: record e",
            "write t a",
            "1",
            2,
        ),
        ("node c in h: write a[0..32] / node d in h: write a[32..64]", "write t a[40..48]", "1", 2),
        ("node c in h: write a[0..32] / node d in h: write a[32..64]", "write t a[8..16]", "0", 2),
        (
            "graph g / node n in g: read a / graph k / node z in k: read a / node c in h: child g / \
             node d in h: child k / node r in h: record e",
            "free t a",
            "0.0 1.0",
            2,
        ),
    ] {
        let program = format!("{BEGINNING} / {nodes} / x = instantiate h / launch x s / wait t e / {end} / drop a");
        let text: Vec<&str> = program.split(" / ").collect();
        let findings = Program::parse(&text.join("\n")).unwrap().check();
        let finding = findings.first().unwrap_or_else(|| panic!("{program}: nothing"));
        let sides = finding.earlier.iter().chain(&finding.others);
        let named: Vec<&str> = sides.filter_map(|side| side.node.as_deref()).collect();
        assert_eq!(named.join(" "), expected, "{program}");
        assert_eq!(finding.known.as_ref().and_then(|known| known.op), Some(known), "{program}");
    }
}

/// Only the latest record counts. The first one is named if a side that comes after the wait misses it.
#[test]
fn a_record_that_was_replaced_is_named_beside_what_is_missing() {
    let text = "stream s nonblocking\nstream t nonblocking\nstream u nonblocking\na = alloc s 64\nwrite s a\n\
                record e s\nrecord e t\nwait u e\nread u a\nfree s a";
    let notes = |text: &str| {
        let findings = Program::parse(text).expect("it can be read").check();
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        finding.notes.join("\n")
    };
    let note = "an event was recorded on stream `s` (line 6), and again on stream `t` (line 7): the wait of stream `u` \
                (line 8) is for the second record only";
    assert!(notes(text).contains(note), "{}", notes(text));
    // If the first record does not cover the work either, it is not mentioned.
    let other = text.replace("record e s", "record e t").replace("record e t\nrecord e t", "record e t");
    assert!(!notes(&other).contains("second record"), "{}", notes(&other));
}
