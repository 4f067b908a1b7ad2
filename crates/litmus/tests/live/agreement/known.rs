//! Programs that the judges once judged differently, with their present verdict.

use millpond_runner::{Place, Timing};

use super::{Came, judge, whole};

/// Each program with its findings: a line and a rule.
const KNOWN: &[(&str, &[&str])] = &[
    // Launches of an instance do not order those of the next one if the graph has no addresses of its own.
    (
        "set leaks off\nstream s\nstream t\ne = alloc s 256\nrecord r s\nwait t r\ngraph g\nnode n in g: alloc a 256\n\
         x = instantiate g\nlaunch x s\nrecord r s\nwait t r\ngraph h\nnode w in h: write e\n\
         node f in h after w: free a\ny = instantiate h\nlaunch y s\ndestroy y\nz = instantiate h\nlaunch z t",
        &["20 race"],
    ),
    // A synchronisation with the legacy default stream invalidates only captures of blocking streams, if there are any.
    (
        "stream l legacy\nstream s\nstream t nonblocking\nstream u nonblocking\ne = alloc u 256\ncapture s as g\n\
         capture t as h\nwrite t e\nsynchronize l\nend capture s\nend capture t\nx = instantiate h\n\
         launch x t\nfree u e",
        &["9 capture-unsupported", "13 use-before-alloc"],
    ),
    // An immediate free in a capture, of memory that was freed.
    (
        "stream s\nstream t nonblocking\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x s\nfree s a\n\
         capture t as h\nfree now a\nend capture t",
        &["9 double-free"],
    ),
    // An immediate free in a capture, of memory that no launch has allocated yet.
    (
        "stream t nonblocking\ngraph g\nnode n in g: alloc a 256\ncapture t as h\nfree now a\nend capture t\n\
         x = instantiate g",
        &["5 capture-unsupported"],
    ),
    // A failed capture: its memory is void, also if another graph names it.
    (
        "stream s\nstream t\nstream u\ncapture t as g relaxed\ncapture s as h\na = alloc t 256\nread s a\n\
         end capture s\nrecord e u\nwait t e\nend capture t\nfree u a\nx = instantiate h",
        &["10 capture-isolation"],
    ),
    // A removed alloc node: memory that earlier instances leave can still be freed, by another graph.
    ("graph g\nnode n in g: alloc a 256\nremove node n in g\ngraph h\nnode m in h: free a", &[]),
    ("graph g\nnode n in g: alloc a 256\ngraph h\nnode m in h: free a\nremove node n in g", &["5 graph-refused"]),
    (
        "graph g\nnode n in g: alloc a 256\nremove node n in g\ngraph h\nnode m in h: free a\nnode k in g: free a",
        &["6 graph-refused"],
    ),
    // A node that comes after a removed one is refused, and is in the trace.
    (
        "graph g\nnode n in g: alloc a 256\nremove node n in g\nnode m in g after n: alloc b 256\nnode k in g: empty\n\
         remove node k in g",
        &["4 graph-refused"],
    ),
    // Memory left by an earlier instance blocks the launch, even if no launch would allocate it again.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x s\n\
         node m in g after n: alloc b 256\nremove node n in g\ndestroy x\ny = instantiate g\nlaunch y s",
        &["11 unfreed-launch"],
    ),
    // Alloc nodes of symbolic graphs name memory only in those graphs and in graphs around them, made node by node.
    ("graph g symbolic\nnode n in g: alloc a 256\ngraph h\nnode m in h: free a", &["4 graph-refused"]),
    (
        "graph g symbolic\nnode n in g: alloc a 256\ngraph h\nnode c in h: child g\nremove node c in h\n\
         node m in h: write a",
        &["6 graph-refused"],
    ),
    (
        "stream s\ngraph g symbolic\nnode n in g: alloc a 256\nx = instantiate g auto-free\ncapture s as h\n\
         launch x s\nread s a\nend capture s",
        &["7 graph-refused"],
    ),
    (
        "stream s\ngraph g symbolic\nnode n in g: alloc a 256\nx = instantiate g auto-free\ncapture s as h\n\
         launch x s\nkernel s read a write a\nend capture s",
        &["7 graph-refused"],
    ),
    // Memory of a launch of the graph itself.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x s\n\
         b = take a from x\nnode m in g: read b",
        &["8 graph-refused", "9 graph-refused"],
    ),
    // If there are two reasons to refuse a free node, all judges name the same one.
    (
        "graph g\nnode n in g: alloc a 256\ngraph h\nnode m in h: free a\nnode k in h: empty\nremove node k in h\n\
         node l in h after k: free a",
        &["7 graph-refused"],
    ),
    (
        "graph g\nnode n in g: alloc a 256\nnode r in g: empty\ngraph h\nnode m in h: free a\nremove node r in g\n\
         node k in g after r: free a",
        &["7 graph-refused"],
    ),
    // A refused free node frees nothing.
    (
        "graph g\nnode n in g: alloc a 256\ngraph h\nnode k in h: empty\nremove node k in h\n\
         node m in h after k: free a\ngraph i\nnode l in i: free a",
        &["6 graph-refused"],
    ),
    // An import from a refused export is no further mistake.
    ("process q\nstream s\na = alloc s 256\nexport a as k\nq: b = import k", &["4 not-shareable"]),
    // Symbolic memory of a graph that is no longer contained in this one, or that has no alloc node there.
    (
        "stream s\ngraph g symbolic\nnode n in g: alloc a 256\ngraph h\nnode c in h: child g\nnode r in h after c: \
         read a\n\
         remove node c in h\nx = instantiate h",
        &["8 graph-refused"],
    ),
    (
        "graph g symbolic\nnode n in g: alloc a 256\nremove node n in g\ngraph h\nnode c in h: child g\n\
         node r in h after c: read a",
        &["7 graph-refused"],
    ),
    // A graph that cannot be instantiated is refused each time.
    (
        "graph g symbolic\nnode n in g: alloc a 256\ngraph h\nnode c in h: child g\nnode d in h after c: child g\n\
         x = instantiate h\ny = instantiate h\nremove node c in h\nz = instantiate h",
        &["6 graph-refused", "7 graph-refused"],
    ),
    // Graphs decide who has the free node, not instances made before.
    (
        "graph g\nnode n in g: alloc a 256\nnode f in g after n: free a\nx = instantiate g\nremove node f in g\n\
         remove node n in g\ngraph h\nnode m in h: free a",
        &[],
    ),
    (
        "graph g\nnode n in g: alloc a 256\nnode f in g after n: free a\ngraph h\nnode k in h: empty\n\
         remove node k in h\nnode m in h after k: free a",
        &["7 graph-refused"],
    ),
    // A copy has its own name for its memory, also in graphs around it.
    (
        "graph g symbolic\nnode n in g: alloc a 256\ng2 = clone g\ngraph h\nnode c in h: child g\n\
         remove node c in h\nnode d in h: child g2\nnode r in h after d: read g2.a",
        &[],
    ),
    // A graph cannot free memory that a launch of a symbolic graph left.
    (
        "set leaks off\nstream s\nstream t\ngraph g symbolic\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x t\n\
         b = take a from x\ncapture s as h\nfree s b\nend capture s",
        &["10 capture-foreign-free"],
    ),
    // An alloc node of a child is not the lifetime that another node named before.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x s\n\
         b = take a from x\ndestroy x\ngraph h\nnode m in h: read b\nnode c in h after m: child g\nfree s b\n\
         y = instantiate h",
        &["10 use-before-alloc"],
    ),
    // A use that repeats the one before, by the name under which the memory was taken.
    (
        "set leaks off\nstream s\nstream t nonblocking\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\n\
         launch x s\nb = take a from x\nwrite s b\nevent e\nrecord e s\nwait t e\nwrite s b\nfree t a",
        &["14 free-before-use"],
    ),
    // A name from before a relaunch freed and allocated the memory again.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g auto-free\nlaunch x s\n\
         b = take a from x\nlaunch x s\nread s b",
        &["9 use-after-free"],
    ),
    // The same, with latest uses of the new memory that repeat each other.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g auto-free\nlaunch x s\n\
         b = take a from x\nlaunch x s\nc = take a from x\nread s c\nread s c\nread s c\nread s b",
        &["13 use-after-free"],
    ),
    // Of two reads that must come before a free and do not, the first is named, even if it stood for an earlier one.
    (
        "stream s\nstream t nonblocking on 1\nstream u nonblocking\npool p\ngrant p to 1\na = alloc s 256 from p\n\
         query s yes\nread u a[0..256]\nsynchronize device\nread t a[128..256]\nread u a[128..256]\nfree s a",
        &["12 free-before-use"],
    ),
    // A free node for a symbolic child's memory, and that child is removed: the memory has no address.
    (
        "set leaks off\nstream s\ngraph g symbolic\nnode n in g: alloc a 256\ngraph h\nnode c in h: child g\n\
         node m in h after c: free a\nremove node c in h\nx = instantiate g\nlaunch x s\ny = instantiate h\n\
         launch y s",
        &["11 graph-refused"],
    ),
    // Of two accesses of one captured operation the first is refused first, for any reasons.
    (
        "set leaks off\nstream s\nstream t nonblocking\ngraph g symbolic\nnode n in g: alloc a 256\n\
         x = instantiate g\nb = alloc s 256\nfree s b\ncapture t as h\nlaunch x t\ncopy t a to b\n\
         end capture t",
        &["11 graph-refused"],
    ),
    // A node that named one lifetime of an output is removed: that lifetime may end.
    (
        "set leaks off\nstream s\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x s\n\
         b = take a from x\ngraph h\nnode m in h: read b[0..128]\nremove node m in h\ny = instantiate h\n\
         free s b\nlaunch y s",
        &[],
    ),
    // A node that was added to the original after the copy is not the node of the copy with the same number.
    (
        "set leaks off\nstream s\nstream t\ngraph g\nnode e in g: empty\nh = clone g\n\
         node n in h after e: alloc a 256\nx = instantiate h auto-free\nlaunch x t\nnode m in g: alloc b 256\n\
         launch x t\nwrite s a",
        &["12 use-before-alloc"],
    ),
    // A wait on a stream whose capture is invalid does not affect another capture.
    (
        "stream s\nstream t\nstream u nonblocking\ncapture s as g\nsynchronize u\ncapture t as h relaxed\n\
         record e t\nwait s e\nrecord f u\nwait t f\nend capture s\nend capture t",
        &["5 capture-unsupported", "10 capture-isolation"],
    ),
    // Parts of an alloc node's memory.
    (
        "graph g\nnode n in g: alloc a 256\nnode w in g after n: write a[0..128]\n\
         node r in g after n: read a[128..256]\nnode v in g after n: write a[100..200]\nx = instantiate g",
        &["5 race"],
    ),
    // An upload invalidates its stream's capture, and no other.
    (
        "stream s\nstream t\ngraph g\nnode n in g: empty\nx = instantiate g\ncapture s as h\ncapture t as i\n\
         upload x s\nend capture s\nend capture t",
        &["8 capture-unsupported"],
    ),
    // An instance with memory nodes is updated only from its own graph.
    (
        "graph g\nnode n in g: alloc a 256\ngraph h symbolic\nnode m in h: alloc b 256\nx = instantiate g\n\
         update x from h\nupdate x from g\ny = instantiate h",
        &["6 graph-refused"],
    ),
    // A wait for an event that was never recorded: the stream learns nothing, also not of the legacy default stream.
    (
        "stream s\nstream t\nstream l legacy\na = alloc l 256\nevent e\nwait t e\nrecord e s\nwait l e\n\
         read t a\nfree s a",
        &["10 free-before-use"],
    ),
    // Which of two unordered writes a launch names: captured nodes have a device, and are judged apart from others.
    (
        "stream s\nstream t\na = alloc s 256\ncapture s as g\nread s a[128..256]\nend capture s\ngraph h\n\
         node n in h: write a\nnode m in h after n: read a[100..200]\ngraph i\nnode c in i: child g\n\
         node d in i after c: child h\nrecord r s\nwait t r\nwrite t a\nwrite t a[128..256]\nx = instantiate i\n\
         launch x s\ny = instantiate g\nz = instantiate h",
        &["18 race"],
    ),
    // An instance comes after launches at its addresses. A graph whose alloc node was removed has none, though a child
    // has.
    (
        "set leaks off\nstream s\nstream t\ngraph g\nnode n in g: alloc a 256\nx = instantiate g\nlaunch x t\n\
         capture t as h\nread t a\nb = alloc t 256\nend capture t\ndestroy x\nremove node n in g\n\
         node c in g: child h\ny = instantiate g auto-free\nlaunch y s",
        &["16 use-before-alloc"],
    ),
    // An instance had the addresses of two graphs, and was never launched: the launches at each stay apart.
    (
        "set leaks off\nstream s\nstream t\ngraph g\nnode n in g: alloc a 256\ny = alloc t 256\nx = instantiate g\n\
         launch x t\ndestroy x\ngraph h\nnode m in h: alloc b 256\nnode c in g: child h\nz = instantiate g\ndestroy z\n\
         remove node n in g\nw = instantiate g\nlaunch w s\nwrite s y",
        &["18 use-before-alloc"],
    ),
    // A query says yes of an event that graphs wait for, too.
    (
        "set leaks off\nstream s\nstream t\na = alloc t 1024\nevent e\ngraph g\nnode w in g: wait e\n\
         node n in g: read a\nx = instantiate g\nrecord e t\nquery e yes\nlaunch x s",
        &[],
    ),
    // A wait for a destroyed event of a capture does not join it.
    (
        "stream s\nstream t\ncapture t as g thread-local\na = alloc t 256\nrecord r t\ndestroy r\nwait s r\n\
         write s a[128..256]\nend capture t",
        &["8 use-before-alloc"],
    ),
];

#[test]
fn what_they_differed_in_they_agree_on() {
    for (text, expected) in KNOWN {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        match judge(&lines, Place::Host(Timing::Fast)) {
            Came::Agreed(verdict) => {
                let found: Vec<String> = verdict.iter().map(|it| format!("{} {}", it.line, it.kind.name())).collect();
                assert_eq!(found, *expected, "{}", whole(&lines).join("\n"));
            }
            Came::Skipped(why, _) => panic!("{why}\n{text}"),
            Came::Differs(said) => panic!("{said}\n{text}"),
        }
    }
}

/// A copy of a graph that contains an older version of itself has the memory of both, which the library cannot name.
#[test]
fn a_copy_knows_the_memory_of_what_is_inside() {
    let text = "set leaks off\nstream s\ngraph g symbolic\nnode n in g: alloc a 256\nnode c in g: child g\n\
                h = clone g\nx = instantiate h auto-free\nlaunch x s\nlaunch x s";
    let findings = millpond_litmus::Program::parse(text).expect("it can be read").check();
    // Only that `g` itself has no instance is reported, at its end.
    assert!(findings.iter().all(|it| it.line().is_none()), "{findings:?}");
}
