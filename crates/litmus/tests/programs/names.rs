//! Findings use the program's names: events, pools, graphs and nodes by name, rounds of loops by number. What only
//! follows from another finding is not reported.

use millpond_core::check::Finding;
use millpond_litmus::Program;

fn findings(text: &str) -> Vec<Finding> {
    Program::parse(text).expect("it can be read").check()
}

/// Returns the only finding of a program.
fn found(text: &str) -> Finding {
    let mut findings = findings(text);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

#[test]
fn an_event_of_another_device_is_named_with_what_to_record_instead() {
    let text = "stream s\nstream t on 1\nevent fwd\nrecord fwd s\nwait t fwd\nrecord fwd t\n";
    let finding = found(text);
    assert_eq!(finding.sentence, "event `fwd` of device 0 is recorded on stream `t`, which is of device 1");
    assert_eq!(
        finding.help(),
        "create another event on device 1 and record that on stream `t`: event `fwd` can be recorded on streams of \
         device 0 only, while any stream may wait for it"
    );
    let created = finding.earlier.as_ref().expect("where it is created");
    assert_eq!((created.verb.as_str(), created.spot.line), ("created", Some(3)));
    let unrecorded = found("stream t on 1\nevent fwd\nrecord fwd t\n");
    assert_eq!(unrecorded.help(), "create event `fwd` on device 1 (line 2), or record it on a stream of device 0");
}

#[test]
fn bytes_that_a_copy_reads_and_writes_are_named() {
    let finding = found("stream s\na = alloc s 1024\ncopy s a[0..512] to a[256..768]\nfree s a\n");
    assert_eq!(
        finding.sentence,
        "bytes 256..512 of `a` (allocation 0, 1024 B) are read and written by one copy on stream `s`"
    );
    assert_eq!(
        finding.help(),
        "copy between bytes that do not overlap (these are 0..512 and 256..768), or through other \
         memory"
    );
}

#[test]
fn what_a_relaunch_freed_is_used_before_it() {
    let finding = found(
        "stream s nonblocking\ngraph g\nnode n1 in g: alloc out 512\nnode n2 in g after n1: write out\n\
         x = instantiate g auto-free\nlaunch x s\no1 = take out from x\nlaunch x s\nread s o1\nfree s out\n",
    );
    assert_eq!(
        finding.help(),
        "read it before the launch at line 8, which frees what the launch before left (auto free on launch), or use \
         what that launch allocated"
    );
}

#[test]
fn nodes_and_graphs_are_called_by_their_names() {
    let finding = found(
        "stream s\na = alloc s 64\ngraph g\nnode k1 in g: write a\nnode k2 in g: read a\nx = instantiate g\n\
         launch x s\nfree s a\n",
    );
    let notes = ["there is no path from kernel `k1` to kernel `k2` in graph `g` when it is instantiated (line 6)"];
    assert_eq!(finding.notes, notes);
    assert_eq!(finding.help(), "add an edge between kernel `k1` and kernel `k2`, either way");
    assert_eq!(finding.later.as_ref().expect("a later side").title(), "kernel `k2`");
    let twice = found("graph g\nnode a in g: empty\nnode b in g after a: empty\nedge a -> b in g\n");
    assert_eq!(twice.sentence, "the edge from empty node `a` to empty node `b` is there already");
    assert_eq!(twice.help(), "leave this edge out");
}

/// Memory has a name even if nothing allocated it.
#[test]
fn memory_that_nothing_allocated_is_called_by_its_name() {
    let finding = found("stream s\nread s a\na = alloc s 64\nname a as b\nfree s b\n");
    assert_eq!(finding.sentence, "`a` is read on stream `s` before it is allocated");
    let foreign = findings("stream s nonblocking\na = alloc s 64\ncapture s as g\nfree s a\nend capture s\nfree s a\n");
    assert_eq!(foreign[0].sentence, "`a` is freed in a capture, but it is not memory of a graph");
}

/// A child node is called by its own name if an edge of the graph around it is missing.
#[test]
fn a_child_node_is_called_by_its_name() {
    let finding = found(
        "set leaks off\nstream s\na = alloc s 64\ngraph c\nnode w in c: write a\ngraph g\nnode first in g: child c\n\
         node last in g: read a\nx = instantiate g\n",
    );
    assert_eq!(finding.help(), "add an edge between child graph `first` and kernel `last`, either way");
    assert_eq!(finding.earlier.as_ref().expect("a side").title(), "kernel `w` (node 0.0)");
}

#[test]
fn captured_nodes_are_called_by_their_lines() {
    let finding = findings(
        "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\ncapture s as g\nrecord f s\n\
         wait t f\nwrite s a\nread t a\nrecord j t\nwait s j\nend capture s\n",
    )
    .remove(0);
    assert_eq!(
        finding.help(),
        "make stream `t` wait, before it captures kernel node 1 (line 9), for an event that stream `s` records after \
         kernel node 0 (line 8)"
    );
}

#[test]
fn the_round_of_a_loop_is_named() {
    let text = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\n\
                repeat 3\nread t a\nwrite s a\nsynchronize s\nend repeat\n";
    let finding = findings(text).remove(0);
    let (earlier, later) = (finding.earlier.clone().expect("a side"), finding.later.clone().expect("a side"));
    assert_eq!(later.spot.to_string(), "line 9 in round 1 of the `repeat` at line 7");
    assert_eq!(earlier.spot.to_string(), "line 8 in round 1 of the `repeat` at line 7");
    let second = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\n\
                  repeat 2\nrepeat 2\nwrite s a\nrecord f s\nend repeat\nread t a\nwait t f\nrecord g t\nwait s g\n\
                  end repeat\n";
    let spots: Vec<String> = findings(second).iter().map(|it| it.spot().expect("a place").to_string()).collect();
    assert_eq!(spots[0], "line 12 in round 1 of the `repeat` at line 7");
    let inner = findings(second)[0].earlier.as_ref().expect("a side").spot.to_string();
    assert_eq!(inner, "line 9 in round 2 of the `repeat` at line 8, in round 1 of the `repeat` at line 7");
}

/// The same mistake in each round is one mistake: its key does not contain the round. Advice is given once for each
/// line.
#[test]
fn a_round_makes_no_other_mistake() {
    let text = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\n\
                repeat 3\nread t a\nwrite s a\nend repeat\n";
    let mut keys: Vec<String> = findings(text).iter().map(Finding::key).collect();
    assert_eq!(keys.len(), 3);
    keys.dedup();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(findings("stream s\nstream t\nrecord e s\nwait t e\nrepeat 3\nwait t e\nend repeat\n").len(), 1);
    let needed = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\n\
                  repeat 3\nread t a\nrecord f t\nwait s f\nend repeat\nwait s f\n";
    assert_eq!(findings(needed).iter().filter(|it| it.line() == Some(10)).count(), 0, "the line is needed in a round");
}

#[test]
fn memory_that_a_refused_graph_would_have_made_is_in_no_other_finding() {
    let refused = "stream s nonblocking\ngraph g\nnode n1 in g: alloc o 64\nnode n2 in g: write o\n";
    for rest in [
        "x = instantiate g\nlaunch x s\nread s o\nfree s o\n",
        "x = instantiate g\nlaunch x s\nb = take o from x\nread s b\nfree s b\n",
        "x = instantiate g\nlaunch x s\nhost read o\ndrop o\n",
        "x = instantiate g\nlaunch x s\ngraph h\nnode k in h: read o\ny = instantiate h\nlaunch y s\nfree s o\n",
        "graph h\nnode c in h: child g\nx = instantiate h\nlaunch x s\nread s o\nfree s o\n",
    ] {
        let found = findings(&format!("{refused}{rest}"));
        // A child has the same fault as its original.
        assert!(found.iter().all(|it| it.key() == found[0].key()), "{rest}{found:#?}");
    }
    // A refused launch, of a graph that was not refused.
    let launch = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc t 64\ngraph g\n\
                  node n1 in g: alloc o 64\nnode n2 in g after n1: kernel read a write o\nx = instantiate g\n\
                  launch x s\nread s o\nfree s o\n";
    let found = findings(launch);
    assert_eq!(found.len(), 1, "{found:#?}");
}

/// If an operation that makes a graph, a node, an instance or a pool is refused, what it would have made is void.
#[test]
fn what_a_refused_operation_would_have_made_is_in_no_other_finding() {
    let graph = "set leaks off\nstream s nonblocking\nstream t nonblocking\ngraph g\nnode n1 in g: alloc o 64\n\
                 node n2 in g after n1: write o\n";
    for rest in [
        // A copy, which has names of its own for its memory.
        "h = clone g\nx = instantiate h\nlaunch x s\nread s o\nfree s o\n",
        "h = clone g\nx = instantiate h\nlaunch x s\nread s h.o\nfree s h.o\n",
        "h = clone g\nx = instantiate h\nlaunch x s\nb = take h.o from x\nhost read b\ndrop b\n",
        "h = clone g\ngraph k\nnode c in k: child h\ny = instantiate k\nlaunch y s\nread s h.o\nfree s h.o\n",
        "h = clone g\nnode m in h: alloc p 64\nx = instantiate h\nlaunch x s\nread s p\nfree now p\n",
        "h = clone g\ngraph k\nnode c in k: read h.o\ny = instantiate k\nlaunch y s\ndestroy h\n",
        // A child node.
        "x = instantiate g\ngraph k\nnode c in k: child g\ny = instantiate k\nlaunch y s\nread s o\nfree s o\n",
        "x = instantiate g\ncapture t as k\nlaunch x t\nread t o\nend capture t\ny = instantiate k\nlaunch y s\n\
         read s o\nfree s o\n",
        // An instance.
        "capture t as k\nx = instantiate g\nend capture t\nlaunch x s\nread s o\nfree s o\n",
        "x = instantiate g\ny = instantiate g\nlaunch y s\nread s o\nfree s o\n",
        "graph e\nnode q in e: alloc w 64\nx = instantiate g\nupdate x from e\nread s w\nfree s w\n",
        // A launch.
        "x = instantiate g\ndestroy t\nlaunch x t\nread s o\nfree s o\n",
        // A capture.
        "capture s as h\ncapture s as k\nend capture s\nx = instantiate k\nlaunch x s\ndestroy k\n",
        // A pool.
        "pool p\ncapture t as k\npool q\nend capture t\npool r\na = alloc s 64 from q\nread s a\nfree s a\n\
         destroy q\n",
    ] {
        let found = findings(&format!("{graph}{rest}"));
        assert_eq!(found.len(), 1, "{rest}{found:#?}");
    }
}

/// Memory that an earlier launch made and the program freed stays freed, no matter what is refused after that.
#[test]
fn memory_that_was_freed_is_found_behind_a_refused_operation() {
    let freed = "set leaks off\nstream s nonblocking\ngraph g\nnode n1 in g: alloc o 64\nx = instantiate g\n\
                 launch x s\nfree s o\n";
    for refused in ["h = clone g\n", "graph k\nnode c in k: child g\n", "y = instantiate g\n"] {
        let found = findings(&format!("{freed}{refused}read s o\n"));
        let kinds: Vec<&str> = found.iter().map(|it| it.kind.name()).collect();
        assert_eq!(kinds, ["graph-refused", "use-after-free"], "{refused}");
    }
}

/// If the graph is corrected and launched, uses of its memory are judged.
#[test]
fn memory_of_a_mended_graph_is_judged_again() {
    let text = "stream s nonblocking\ngraph g\nnode n1 in g: alloc o 64\nnode n2 in g: write o\nx = instantiate g\n\
                edge n1 -> n2 in g\ny = instantiate g\nread s o\nlaunch y s\nfree s o\nread s o\n";
    let kinds: Vec<&str> = findings(text).iter().map(|finding| finding.kind.name()).collect();
    assert_eq!(kinds, ["use-before-alloc", "use-before-alloc", "use-after-free"]);
    // Memory from before a refused launch is freed: using it is another mistake.
    let text = "stream s nonblocking\ngraph g\nnode n in g: alloc o 64\nx = instantiate g\nlaunch x s\nlaunch x s\n\
                free s o\nwrite s o\n";
    let kinds: Vec<&str> = findings(text).iter().map(|finding| finding.kind.name()).collect();
    assert_eq!(kinds, ["unfreed-launch", "use-after-free"]);
}

/// Rounds of loops without statements count as well, so every program ends.
#[test]
fn loops_of_loops_end() {
    let text = "repeat 10000\n".repeat(6) + &"end repeat\n".repeat(6);
    let refused = Program::parse(&text).expect_err("too many rounds");
    assert!(refused.what.contains("too many words"), "{refused}");
}

#[test]
fn memory_may_have_the_name_of_a_statement() {
    for name in ["event", "stream", "pool", "free"] {
        let finding = found(&format!("stream s\n{name} = alloc s 64\nwrite s {name}\nfree s {name}\nread s {name}\n"));
        assert_eq!(finding.kind.name(), "use-after-free", "{name}");
    }
}
