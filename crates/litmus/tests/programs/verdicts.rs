//! Programs that once got a wrong verdict: wrong ones that passed, right ones that were refused, wrong advice.
//!
//! A finding is behind `/`, with its line. There is no other finding, not even advice.

use millpond_litmus::Program;

use crate::rows;

const PROGRAMS: &[(&str, &str)] = &[
    (
        "A dropped buffer's free node is the only one of all graphs",
        "stream s / capture s as G / a = alloc s 64 / drop a / end capture s / capture s as H / \
         free s a !! double-free / end capture s / x = instantiate G / launch x s / destroy H",
    ),
    (
        "A graph with a free node is there as long as a capture has it as a child",
        "stream s / graph G / node n in G: alloc a 64 / graph H symbolic / node f in H: free a / y = instantiate H / \
         capture s as K / launch y s / destroy y / destroy H / graph J / node g in J: free a !! double-free / \
         end capture s",
    ),
    (
        "A symbolic graph stays symbolic where only another graph has it",
        "stream s / graph G symbolic / node n in G: alloc a 64 / graph H symbolic / node c in H: child G / \
         destroy G / capture s as K / write s a !! graph-refused / end capture s",
    ),
    (
        "A launch uses nothing that it frees itself",
        "stream s / graph G symbolic / node n in G: alloc a 64 / node k in G after n: write a / \
         x = instantiate G auto-free / launch x s / b = take a from x / graph H symbolic / \
         node m in H: alloc c 64 / node l in H after m: write b / update x from H / launch x s !! use-after-free / \
         free s b",
    ),
    (
        "A refused node names no life",
        "stream s / graph G / node n in G: alloc a 64 / x = instantiate G / launch x s / b = take a from x / \
         graph H / node c in H: copy b[0..32] to b[16..48] !! aliased / node k in H: write a / y = instantiate H / \
         launch y s / free s b / launch x s / launch y s / free s a",
    ),
    (
        "An import that a graph reads is freed beside that launch",
        "process P / pool p shared / event e shared / stream s / a = alloc s 64 from p / record e s / \
         export a as k / P: stream q / P: stream r / P: b = import k / P: graph g / \
         P: node n in g: read b / P: x = instantiate g / P: wait q e / P: launch x q / \
         P: free r b !! free-before-use / drop a",
    ),
    (
        "The legacy streams of two processes are two",
        "process P / pool p shared / P: stream m legacy / stream l legacy / a = alloc l 64 from p / \
         write l a / export a as k / P: b = import k / P: read m b !! use-before-alloc / P: free m b / \
         free l a !! free-before-use",
    ),
    (
        "Of two records of a graph none is known to be the last",
        "stream s / stream t nonblocking / event e / b = alloc s 64 / graph g / node a in g: record e / \
         node w in g: write b / node r in g after w: record e / x = instantiate g / launch x s / wait t e / \
         free t b !! free-before-use / drop b",
    ),
    (
        "Of two records of a graph none is known to be the last, in the other order",
        "stream s / stream t nonblocking / event e / b = alloc s 64 / graph g / node w in g: write b / \
         node r in g after w: record e / node a in g: record e / x = instantiate g / launch x s / wait t e / \
         free t b !! free-before-use / drop b",
    ),
    (
        "A graph may record an event before it waits for it",
        "stream s / stream t nonblocking / event e / b = alloc t 64 / write t b / record e t / graph g / \
         node a in g: record e / node w in g: wait e / node r in g after w: read b / x = instantiate g / \
         launch x s !! use-before-alloc / drop b",
    ),
    (
        "A capture forbids a synchronisation of the device in each mode",
        "thread w / stream s / capture s as g relaxed / synchronize device !! capture-unsupported / \
         end capture s / capture s as h thread-local / \
         w: synchronize device !! capture-unsupported / end capture s",
    ),
    (
        "A capture forbids unsafe calls of all devices",
        "thread w / stream s / stream t on 1 / capture s as g / w: synchronize t !! capture-unsupported / \
         end capture s / capture s as h / w: query t yes !! capture-unsupported / end capture s / \
         capture s as i / synchronize device 1 / end capture s / capture s as j thread-local / \
         w: synchronize t / synchronize t !! capture-unsupported / end capture s",
    ),
    (
        "What a launch of an instance that was updated from a copy allocates is the copy's",
        "stream s / graph g symbolic / node n1 in g: alloc m 64 / node n2 in g after n1: write m / c = clone g / \
         x = instantiate g auto-free / launch x s / update x from c / write s m / launch x s / \
         write s m !! use-after-free / free s c.m",
    ),
    (
        "What an instance left before its update is used by the original's name, what it left since by the copy's",
        "stream s / graph g symbolic / node n1 in g: alloc m 64 / node n2 in g after n1: write m / c = clone g / \
         x = instantiate g auto-free / launch x s / update x from c / write s m / launch x s / write s c.m / \
         free s c.m",
    ),
    (
        "A programmatic event orders nothing in a capture",
        "set leaks off / stream s / stream t / capture s as g / a = alloc s 64 / write s a / record e s progress / \
         wait t e / free t a !! free-before-alloc / record f t / wait s f / end capture s / \
         x = instantiate g / launch x s",
    ),
    (
        "A device is synchronised of which a stream joined a capture of another",
        "stream s / stream u on 1 / capture s as g / record e s / wait u e / \
         synchronize device 1 !! capture-unsupported / record f u / wait s f / end capture s",
    ),
    (
        "The legacy stream of another device joins no capture",
        "stream s nonblocking / stream l legacy on 1 / a = alloc now 64 / capture s as g / read s a / record e s / \
         wait l e !! capture-unsupported / end capture s / free now a",
    ),
    (
        "The event of a capture that has ended is waited for in another",
        "stream s / stream t / capture s as g / record e s / end capture s / capture t as h / \
         wait t e !! captured-event / end capture t",
    ),
    (
        "A launch of a graph replaces a record that is never waited for",
        "stream s nonblocking / stream t nonblocking / stream u nonblocking / event e / a = alloc s 64 / \
         b = alloc t 64 / record e s / graph g / node w in g: write b / node r in g after w: record e / \
         x = instantiate g / launch x t / wait u e / free u b / free s a",
    ),
    (
        "A node captured on another device's stream uses memory that its pool does not let that device use",
        "stream s nonblocking / stream u nonblocking on 1 / a = alloc s 64 / b = alloc u 64 / record d u / \
         wait s d / capture s as g / read s a / record e s / wait u e / kernel u read b[0..8] write a / record f u / \
         wait s f / end capture s / x = instantiate g / launch x s !! no-access / free s a / free s b",
    ),
    (
        "A stream that a capture began on is destroyed, and the capture goes on no longer",
        "stream s / stream l legacy / a = alloc now 64 / capture s as g !! capture-state / m = alloc s 64 / \
         destroy s / write l a / synchronize device / free now a / free now a !! double-free / \
         x = instantiate g / free l m !! free-before-alloc",
    ),
    (
        "A stream is destroyed that a capture has to join",
        "stream s / stream t / a = alloc now 64 / capture s as g / record e s / wait t e / read t a / destroy t / \
         end capture s !! capture-unjoined / free now a",
    ),
    (
        "A node on another device's stream uses memory of its capture whose pool does not let that device in",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / grant p to 1 read / capture s as g / \
         a = alloc s 64 / b = alloc s 64 from p / record e s / wait u e / read u a !! no-access / read u b / \
         write u b !! no-access / record f u / wait s f / free s a / free s b / end capture s",
    ),
    (
        "A kernel of many accesses reads bytes that it writes, a copy must not",
        "stream s / a = alloc s 64 / kernel s read a[0..4] a[4..8] a[8..12] a[12..16] a[16..20] a[20..24] a[24..28] \
         a[28..32] a[32..36] write a[36..40] / \
         kernel s read a[0..4] a[4..8] a[8..12] a[12..16] a[16..20] a[20..24] a[24..28] a[28..32] a[32..36] \
         write a[35..40] / kernel s read a[0..4] write a[3..5] / copy s a[0..4] to a[3..7] !! aliased / free s a",
    ),
    (
        "An event of one process is synchronised with by another",
        "process P / event e / pool p shared / stream s / a = alloc s 64 from p / record e s / \
         export a as k / P: b = import k / P: synchronize e !! not-shareable / \
         P: host read b !! use-before-alloc / P: free now b / drop a",
    ),
    (
        "An event of one process is queried by another",
        "process P / event e / pool p shared / stream s / a = alloc s 64 from p / record e s / \
         export a as k / P: b = import k / P: query e yes !! not-shareable / \
         P: host read b !! use-before-alloc / P: free now b / drop a",
    ),
    (
        "A graph waits for the event of another process",
        "process P / pool p shared / stream s / event e / a = alloc s 1024 from p / graph g / \
         node n in g: record e / x = instantiate g / launch x s / export a as k / P: stream q / \
         P: b = import k / P: graph h / P: node w in h: wait e !! not-shareable / \
         P: node r in h after w: read b / P: y = instantiate h / P: launch y q / P: free q b / drop a",
    ),
    (
        "A graph records the event of another device",
        "stream s / event e on 1 / graph g / node n in g: record e / x = instantiate g / \
         launch x s !! wrong-device",
    ),
    (
        "A record that a graph waited for is not lost",
        "stream s nonblocking / stream t nonblocking / stream u nonblocking / stream v nonblocking / \
         a = alloc s 64 / record e s / graph g / node w in g: wait e / node r in g after w: read a / \
         x = instantiate g / launch x t / b = alloc u 64 / record e u / wait v e / read v b / drop a / \
         drop b",
    ),
    (
        "A record that a copy of the event was waited for is not lost",
        "stream s nonblocking / stream t nonblocking / stream u nonblocking / stream v nonblocking / \
         a = alloc s 64 / record e s / event f holds e / wait t f / read t a / b = alloc u 64 / \
         record e u / wait v e / read v b / drop a / drop b",
    ),
    ("The legacy stream has two names", "stream l legacy / a = alloc l 64 / stream m legacy / read m a / free m a"),
    (
        "The legacy streams of two processes order each their own",
        "process P / stream s / stream l legacy / P: stream m legacy / a = alloc s 64 / read l a / \
         free s a",
    ),
    (
        "A drop in a capture comes after a child that uses the memory",
        "stream s / stream t / capture s as g relaxed / a = alloc s 64 / graph h / node r in h: write a / \
         x = instantiate h / record e s / wait t e / launch x t / drop a / record f t / wait s f / \
         end capture s / y = instantiate g / launch y s",
    ),
    (
        "A wait of the legacy stream is one that others come after",
        "stream s / stream u / stream l legacy / a = alloc s 64 / record e s / wait l e / read u a / \
         free u a",
    ),
    (
        "A stream of another device joins a capture",
        "stream s nonblocking / stream t nonblocking on 1 / a = alloc now 64 / capture s as g / read s a / \
         record e s / wait t e / read t a / record f t / wait s f / end capture s / x = instantiate g / \
         launch x s / synchronize s / free now a",
    ),
    (
        "A graph does its work on the device that it was captured on, whose memory it uses",
        "stream s nonblocking / stream u nonblocking on 1 / a = alloc s 64 / record d s / wait u d / \
         capture s as g / read s a / end capture s / x = instantiate g / launch x u / record e u / wait s e / free s a",
    ),
    (
        "A node captured on another device's stream uses memory that is granted to that device",
        "stream s nonblocking / stream u nonblocking on 1 / pool p / grant p to 1 / a = alloc s 64 from p / \
         capture s as g / read s a / record e s / wait u e / write u a / record f u / wait s f / end capture s / \
         x = instantiate g / launch x s / free s a",
    ),
    (
        "A stream that has joined a capture and was joined is destroyed",
        "stream s nonblocking / stream t / stream l legacy / a = alloc now 64 / capture s as g / read s a / \
         record e s / wait t e / read t a / record f t / wait s f / destroy t / write l a / end capture s / \
         x = instantiate g / synchronize l / launch x s / synchronize device / free now a",
    ),
    (
        "A device without a stream in a capture is synchronised",
        "stream s / stream u on 1 / stream v on 2 / capture s as g / record e s / wait u e / \
         synchronize device 2 / record f u / wait s f ?? redundant-wait / end capture s",
    ),
    (
        "A record of a graph that was waited for is recorded again by another",
        "stream s nonblocking / stream t nonblocking / stream u nonblocking / event e / a = alloc s 64 / \
         b = alloc t 64 / record e s / wait t e / graph g / node w in g: write b / \
         node r in g after w: record e / x = instantiate g / launch x t / wait u e / free u b / free s a",
    ),
    (
        "The last of two records of a graph comes after the other",
        "stream s / stream t nonblocking / event e / b = alloc s 64 / graph g / node a in g: record e / \
         node w in g after a: write b / node r in g after w: record e / x = instantiate g / launch x s / wait t e / \
         free t b",
    ),
    (
        "What both records of a graph come after is ordered",
        "stream s / stream t nonblocking / event e / b = alloc s 64 / graph g / node w in g: write b / \
         node r in g after w: record e / node q in g after w: record e / x = instantiate g / launch x s / wait t e / \
         free t b",
    ),
    (
        "An update shows nodes that the instance did not",
        "stream s / stream t nonblocking / event e / a = alloc s 64 / b = alloc s 64 / graph g / \
         node p in g: read a / node n in g: read b[64..64] / node r in g after p n: record e / \
         node q in g after r: read a / graph h / node p in h: read a / node n in h: read b / \
         node r in h after p n: record e / node q in h after r: read a / x = instantiate g / update x from h / \
         launch x s / wait t e / write t b / synchronize device / free s a / free s b",
    ),
    (
        "A capture does not keep another device from being synchronised",
        "stream s / stream t on 1 / a = alloc s 64 / capture s as g relaxed / read s a / synchronize device 1 / \
         end capture s / x = instantiate g / launch x s / free s a",
    ),
    (
        "A thread's default stream has two names",
        "stream k per-thread / stream l per-thread / a = alloc l 64 / write k a / free l a",
    ),
];

#[test]
fn each_program_gets_its_verdict() {
    let mut wrong = Vec::new();
    for (title, program) in PROGRAMS.iter().chain(rows::DEVICES).chain(rows::PROCESSES) {
        let text: Vec<&str> = program.split(" / ").collect();
        let program = Program::parse(&text.join("\n")).unwrap_or_else(|refusal| panic!("{title}: {refusal}"));
        let findings = program.check();
        wrong.extend(program.differences(&findings).into_iter().map(|it| format!("{title}: {it}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_of_a_process_know_the_same() {
    refuses(&[
        ("set threads apart", 1, "`set threads apart` is not a statement any more"),
        ("thread w / tell w", 2, "`w` is of this process"),
        ("thread w / w: tell main", 2, "`main` is of this process"),
    ]);
}

/// A launch with programmatic stream serialization is an ordinary one, and there is no statement for it.
#[test]
fn early_launches_are_no_statements() {
    refuses(&[
        ("set early trusted", 1, "`set early trusted` is not a statement any more"),
        ("stream s / a = alloc s 64 / kernel s read a early", 3, "`early` is not a word of a kernel any more"),
        ("stream s / a = alloc s 64 / kernel s read a early named k", 3, "`early` is not a word of a kernel any more"),
    ]);
    assert!(
        Program::parse("stream s\nearly = alloc s 64\nkernel s read early\nfree s early").unwrap().check().is_empty()
    );
}

/// A process has one thread and does not end. With several processes, none captures.
#[test]
fn processes_have_one_thread_no_end_and_no_captures() {
    refuses(&[
        ("process P / thread T in P", 2, "`thread T in P` is not a statement any more"),
        ("process P / destroy P", 2, "`P` cannot be destroyed"),
        ("process P / destroy main", 2, "`main` cannot be destroyed"),
        ("stream s / process P / capture s as g", 3, "a program of several processes captures nothing"),
        ("stream s / capture s as g / end capture s / process P", 4, "a program of several processes captures nothing"),
        ("process P / P: stream s / P: capture s as g", 3, "a program of several processes captures nothing"),
    ]);
}

/// Checks that reading each program is refused, with the line that the refusal names.
fn refuses(programs: &[(&str, u32, &str)]) {
    for (program, line, what) in programs {
        let text: Vec<&str> = program.split(" / ").collect();
        let refusal = Program::parse(&text.join("\n")).expect_err(program);
        assert!(refusal.to_string().contains(&format!("line {line}: {what}")), "{program}: {refusal}");
    }
}
