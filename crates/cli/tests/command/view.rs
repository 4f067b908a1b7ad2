//! `millpond view` from arguments to the page: one file, everything in it, no network access.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::read::DeflateDecoder;
use millpond_core::check::Side;
use millpond_litmus::Program;
use serde_json::Value;

fn millpond(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond")).arg("view").args(words).output().expect("the command starts")
}

fn path(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string()
}

/// Returns a path for a file of these tests.
fn to(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("view");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Returns the page of a file.
fn page(name: &str) -> String {
    let output = millpond(&[name]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the content of the page's script with this id.
fn script<'p>(page: &'p str, id: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("<script id=\"{id}\"")).unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    rest.split_once("</script>").unwrap().0
}

fn meta(page: &str) -> Value {
    serde_json::from_str(script(page, "meta")).unwrap()
}

/// Returns all numbers of the page's columns.
fn numbers(page: &str) -> Vec<u64> {
    let mut bytes = Vec::new();
    let packed = BASE64_STANDARD.decode(script(page, "data")).unwrap();
    DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0, 0);
    for byte in bytes {
        number |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            numbers.push(std::mem::take(&mut number));
            shift = 0;
        }
    }
    assert_eq!(shift, 0, "the last number is whole");
    numbers
}

#[test]
fn a_page_holds_every_event_of_a_training() {
    let page = page(&path("tests/files/traces/gpt2_train.jsonl.gz"));
    let (meta, numbers) = (meta(&page), numbers(&page));
    assert_eq!((&meta["events"], &meta["steps"], &meta["allocations"]), (&68571.into(), &68571.into(), &34287.into()));
    let (lives, changes) = (34287, meta["reserved"].as_u64().unwrap() as usize);
    assert_eq!(numbers.len(), 9 * lives + 2 * changes, "nine columns of lives, two of what is reserved");
    let lasts = &numbers[lives..2 * lives];
    assert_eq!(lives + lasts.iter().filter(|&&steps| steps > 0).count(), 68571);

    // The bytes live at each step, from the columns alone: their maximum is the recording's.
    let sizes: Vec<u64> = meta["sizes"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
    let mut change = vec![0_i64; 68571];
    let mut born = 0;
    for life in 0..lives {
        born += numbers[life];
        let bytes = sizes[numbers[2 * lives + life] as usize] as i64;
        change[born as usize] += bytes;
        if lasts[life] > 0 {
            change[(born + lasts[life]) as usize] -= bytes;
        }
    }
    let mut live = 0;
    let peak = change.iter().map(|bytes| {
        live += bytes;
        live
    });
    assert_eq!(peak.max(), Some(12_293_635_680));
}

#[test]
fn a_page_asks_nothing_of_the_network() {
    // The only address in it is the name of a format.
    let page = page(&path("tests/data/ours.jsonl")).replace("\"http://www.w3.org/2000/svg\"", "");
    for part in ["http:", "https:", "src=", "url(", "@import", "<link", "fetch(", "import(", "XMLHttpRequest"] {
        assert!(!page.contains(part), "{part}");
    }
    for mark in ["@TITLE@", "@STYLE@", "@META@", "@DATA@", "@SCRIPT@"] {
        assert!(!page.contains(mark), "{mark}");
    }
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn every_format_is_drawn() {
    for (file, events) in [("ours.jsonl.gz", 4), ("rmm.csv", 5), ("plain.txt", 4), ("one_device_p4.pickle", 4)] {
        let page = page(&path(&format!("tests/data/{file}")));
        let meta = meta(&page);
        assert_eq!(meta["events"], meta["steps"], "{file}");
        assert_eq!(meta["events"], events, "{file}");
        assert!(!numbers(&page).is_empty());
    }
}

#[test]
fn words_of_a_recording_stay_words() {
    let file = to("evil.jsonl");
    std::fs::write(&file, "{\"name\": \"</script><b>&\"}\n[\"a\",0,512,0]\n").unwrap();
    let page = page(&file.display().to_string());
    assert_eq!(page.matches("</script>").count(), 3, "the page's own");
    assert!(page.contains("<title>&lt;/script>&lt;b>&amp;"));
    assert_eq!(meta(&page)["name"], "</script><b>&");
}

#[test]
fn a_page_is_written_where_it_is_to_go() {
    let file = to("page.html");
    let output = millpond(&[&path("tests/data/two_devices.pickle"), "-o", &file.display().to_string()]);
    let (text, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains(": 4 events drawn, "), "{text}");
    assert!(notes.starts_with("note: ") && notes.contains("--gpu N chooses another"), "{notes}");
    assert!(meta(&std::fs::read_to_string(&file).unwrap())["events"].as_u64() > Some(0));
}

#[test]
fn a_page_goes_to_standard_output_by_its_name() {
    let output = millpond(&[&path("tests/data/ours.jsonl"), "-o", "-"]);
    assert!(output.status.success() && output.stdout.starts_with(b"<!"), "{output:?}");
    assert!(!std::path::Path::new("-").exists());
}

#[test]
fn bad_input_is_refused_and_nothing_is_written() {
    let page = to("never.html");
    let to = page.display().to_string();
    for (words, part) in [
        (vec!["no/such/file", "-o", &to], "no/such/file: cannot be opened"),
        (vec![&path("tests/data/make.py"), "-o", &to], "make.py: none of the known formats"),
        (vec![&path("tests/data/two_devices.pickle"), "--gpu", "9", "-o", &to], "that GPU has no allocation"),
        (vec![&path("tests/data/ours.jsonl"), "-o", "no/such/folder/x.html"], "cannot be written"),
        (vec!["-o", &to], "<FILE>"),
    ] {
        let output = millpond(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: ") && error.contains(part), "{error}");
        assert!(output.stdout.is_empty() && !page.exists());
    }
}

/// Makes the trace of a program with a graph and, because the library would refuse it, a made-up free without order.
fn trace(name: &str) -> PathBuf {
    use millpond::config::Trace;
    use millpond::{Device, HostConfig};
    use millpond_core::ids::{DeviceId, HostId, PoolId, StreamId};
    use millpond_core::op::{Memory, Op, Place, StreamRole, Trust, What};
    use millpond_core::trace::ops::{Reader, Writer};

    let path = to(name);
    let trace = Trace::create(&path).unwrap();
    let config = HostConfig::default().trace(trace.clone());
    let device = Device::host(config).unwrap();
    let (pool, stream) = (device.default_pool(), device.stream().unwrap());
    let x = stream.alloc::<u8>(&pool, 1 << 20).unwrap();
    x.set_name("weights");
    let (graph, ()) = stream
        .capture(|s| {
            let scratch = s.alloc::<u8>(&pool, 512)?;
            s.launch((x.read(), scratch.write()), |_| ())
        })
        .unwrap();
    let exec = graph.instantiate(Default::default()).unwrap();
    let _ = exec.launch(&stream).unwrap();
    stream.free(x).unwrap();
    drop((stream, pool, graph, exec, device, trace));

    // The same again, with two more streams and a free without order.
    let (mut reader, mut writer) = (Reader::new(), Writer::new());
    reader.feed(&std::fs::read(&path).unwrap());
    while let Some(op) = reader.next_op().unwrap() {
        writer.push(&op, reader.names());
    }
    let mut bytes = writer.seal();
    let mut push = |what| {
        writer.push(&Op { host: HostId(0), place: Place::Line(7), what }, reader.names());
    };
    let (left, right, memory) = (StreamId(70), StreamId(71), Memory::first(77));
    let (role, device) = (StreamRole::NonBlocking, DeviceId(0));
    push(What::StreamCreate { stream: left, role, device });
    push(What::StreamCreate { stream: right, role, device });
    push(What::PoolCreate { pool: PoolId(7), exportable: false, device: None });
    push(What::Alloc { memory, pool: PoolId(7), stream: left, bytes: 4096, name: None });
    push(What::Free { memory, stream: right, trust: Trust::None });
    bytes.extend(writer.finish());
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_trace_is_drawn_with_its_graphs_and_violations() {
    let file = trace("drawn.trace");
    let page = page(&file.display().to_string());
    let meta = meta(&page);
    assert_eq!((&meta["name"], &meta["allocations"], &meta["events"]), (&"drawn".into(), &2.into(), &4.into()));
    assert!(meta["strings"].as_array().unwrap().contains(&"weights".into()));
    let [mark] = &meta["marks"].as_array().unwrap()[..] else { panic!("{:#}", meta["marks"]) };
    assert_eq!(mark["allocations"], serde_json::json!([1]));
    assert!(mark["help"].as_str().unwrap().starts_with("make stream 71 wait for an event"), "{mark:#}");
    assert_eq!((&mark["kind"], &mark["edit"]), (&"free-before-alloc".into(), &"order".into()));
    let [graph] = &meta["graphs"].as_array().unwrap()[..] else { panic!("{:#}", meta["graphs"]) };
    let layers: Vec<_> = graph["nodes"].as_array().unwrap().iter().map(|node| node["y"].as_u64().unwrap()).collect();
    // The free of dropped memory comes after its last use.
    let edges = serde_json::json!([[0, 1], [1, 2]]);
    assert_eq!((layers, &graph["edges"]), (vec![0, 1, 2], &edges));
}

#[test]
fn a_litmus_program_is_drawn_with_what_is_wrong_with_its_graph() {
    let page = page(&path("tests/files/litmus/measured/4-free-node.litmus"));
    let meta = meta(&page);
    let [graph] = &meta["graphs"].as_array().unwrap()[..] else { panic!("{:#}", meta["graphs"]) };
    let bad: Vec<_> = graph["nodes"].as_array().unwrap().iter().map(|node| node["bad"].as_bool().unwrap()).collect();
    assert_eq!((bad, &graph["missing"]), (vec![false, true, true], &serde_json::json!([[1, 2]])));
    assert_eq!((&graph["nodes"][0]["label"], &meta["marks"][0]["graph"]), (&"alloc a".into(), &0.into()));
}

#[test]
fn captured_work_is_drawn_as_a_graph_and_what_launches_leave_as_blocks() {
    let meta = meta(&page(&path("tests/files/litmus/loops/5-events-in-the-capture.litmus")));
    let graph = &meta["graphs"][0];
    let (nodes, edges) = (graph["nodes"].as_array().unwrap(), graph["edges"].as_array().unwrap());
    assert_eq!((nodes.len(), edges.len()), (6, 5), "alloc, write and free, twice, one after the other: {graph:#}");
    let meta = self::meta(&page(&path("tests/files/litmus/measured/7-auto-free-under-a-reader.litmus")));
    assert_eq!((&meta["allocations"], &meta["events"]), (&2.into(), &3.into()));
    assert_eq!(meta["marks"][0]["allocations"], serde_json::json!([0]), "what the launch frees, not what it makes");
}

/// The head counts the streams of the program, and says where its count differs from the list of operations.
#[test]
fn the_head_counts_what_the_page_shows() {
    let file = to("counts.litmus");
    let text = "stream s\nstream t\nh = alloc host 64\na = alloc s 64\nwrite s a\nsynchronize s\nhost write h\n\
        record made s\nwait t made\nfree s a\nfree now h\n";
    std::fs::write(&file, text).unwrap();
    let meta = meta(&page(&file.display().to_string()));
    let fact = |key: &str| {
        let facts = meta["facts"].as_array().unwrap();
        facts.iter().find(|it| it[0] == key).map(|it| it[1].as_str().unwrap().to_owned())
    };
    assert_eq!(fact("streams").as_deref(), Some("2"), "the host is none: {:#}", meta["streams"]);
    let drawn = meta["operations"].as_u64().unwrap();
    let said = fact("operations").unwrap();
    assert!(said.starts_with(&format!("{drawn} drawn of ")), "{said}");
}

#[test]
fn a_litmus_program_that_is_none_is_refused_with_its_line() {
    let file = to("wrong.litmus");
    std::fs::write(&file, "stream s\nfry s\n").unwrap();
    let output = millpond(&[&file.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("wrong.litmus: line 2: `fry s` is not a statement"), "{error}");
}

#[test]
fn a_cut_trace_is_drawn_as_far_as_it_is_whole_and_a_damaged_one_refused() {
    let file = trace("cut.trace");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let output = millpond(&[&file.display().to_string()]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("note: "), "{output:?}");
    let mut damaged = whole;
    damaged[60] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let output = millpond(&[&file.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("cut.trace: byte 12: the frame's checksum is wrong"), "{error}");
}

/// An operation of a page: its line, its lane, and its number in its stream.
struct Shown {
    line: u32,
    lane: String,
    number: u64,
}

fn operations(meta: &Value, numbers: &[u64]) -> Vec<Shown> {
    let count = |key: &str| meta[key].as_u64().unwrap() as usize;
    let (lives, uses, all) = (count("allocations"), count("uses"), count("operations"));
    let uses = if uses > 0 { lives + 3 * uses } else { 0 };
    let column = |at: usize| &numbers[9 * lives + 2 * count("reserved") + uses + at * all..][..all];
    let line = |site: u64| meta["strings"][site as usize].as_str()?.strip_prefix("line ")?.parse().ok();
    let shown = |at: usize| Shown {
        line: line(column(3)[at]).expect("a line"),
        lane: meta["lanes"][column(0)[at] as usize]["name"].as_str().unwrap().to_owned(),
        number: column(4)[at],
    };
    (0..all).map(shown).collect()
}

/// Returns the arrows of a page: the lines of both operations, and the kind of order.
fn arrows(meta: &Value, numbers: &[u64]) -> Vec<(u32, u32, String)> {
    let count = |key: &str| meta[key].as_u64().unwrap() as usize;
    let (lives, uses, all) = (count("allocations"), count("uses"), count("arrows"));
    let before = 9 * lives + 2 * count("reserved") + if uses > 0 { lives + 3 * uses } else { 0 };
    let column = |at: usize| &numbers[before + 7 * count("operations") + at * all..][..all];
    let (operations, mut to) = (operations(meta, numbers), 0);
    let line = |step: u64| operations[step as usize].line;
    let arrow = |at: usize| {
        to += column(0)[at];
        let kind = meta["ties"][column(2)[at] as usize].as_str().unwrap().to_owned();
        (line(to - column(1)[at]), line(to), kind)
    };
    (0..all).map(arrow).collect()
}

/// Arrows are exactly the checker's order: there is none for calls that order nothing.
#[test]
fn arrows_are_the_waits_of_the_checker() {
    let drawn = |name: &str, text: &str| {
        let file = to(name);
        std::fs::write(&file, text).unwrap();
        let page = page(&file.display().to_string());
        arrows(&meta(&page), &numbers(&page))
    };
    let arrow = |from: u32, to: u32, kind: &str| (from, to, kind.to_owned());
    // The second wait is needless but still one arrow. The second synchronisation learns nothing.
    let text = "stream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\nwait t e\n\
        synchronize t\nsynchronize t\nfree s a\n";
    let expected =
        [arrow(4, 5, "event"), arrow(4, 6, "event"), arrow(6, 7, "synchronisation"), arrow(7, 9, "submission")];
    assert_eq!(drawn("waits.litmus", text), expected);
    let text = "stream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s progress\nwait t e\nfree s a\n";
    assert_eq!(drawn("progress.litmus", text), [], "an event that does not stand for the end of work");
    // A synchronisation of the legacy default stream is also one of the streams that it waits for.
    let text = "stream l legacy\nstream s\na = alloc s 64\nsynchronize l\nwrite l a\nfree s a\n";
    let expected = [arrow(3, 4, "synchronisation"), arrow(4, 5, "submission"), arrow(5, 6, "default stream")];
    let found: Vec<_> = drawn("legacy.litmus", text);
    assert!(expected.iter().all(|arrow| found.contains(arrow)), "{found:?}");
    let text = "stream s nonblocking\nstream t nonblocking\ngraph g\nnode n in g: empty\nx = instantiate g\n\
        launch x s\nlaunch x t\n";
    assert_eq!(drawn("launches.litmus", text), [arrow(6, 7, "launches of one graph")]);
}

/// Returns `true` if an operation is a side: by its stream and number if it has one, else by its line. A node of a
/// child graph is shown where the child is, because an edge can be added there.
fn is_side(shown: &Shown, side: &Side) -> bool {
    if side.node.as_ref().is_some_and(|node| node.contains('.')) {
        return true;
    }
    match side.op.filter(|_| side.node.is_none() && shown.number > 0) {
        Some(op) => op == shown.number && side.who.contains(shown.lane.split(" of process").next().unwrap()),
        None => side.spot.line == Some(shown.line),
    }
}

/// The missing edges of a page are exactly those of the findings, in all programs of the project.
#[test]
fn missing_edges_are_those_of_the_findings() {
    let (mut programs, mut edges) = (0, 0);
    let folders = std::fs::read_dir(path("tests/files/litmus")).unwrap().flatten().filter(|it| it.path().is_dir());
    for file in folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten()) {
        let program = Program::parse(&std::fs::read_to_string(file.path()).unwrap()).unwrap();
        let wrong: Vec<_> = program.check().into_iter().filter(|it| !it.kind.is_advice()).collect();
        if wrong.is_empty() {
            continue;
        }
        let page = page(&file.path().display().to_string());
        let (meta, at) = (meta(&page), file.path().display().to_string());
        let numbers = numbers(&page);
        let (shown, marks) = (operations(&meta, &numbers), meta["marks"].as_array().unwrap().clone());
        let born = |life: &Value| numbers[..=life.as_u64().unwrap() as usize].iter().sum::<u64>();
        assert_eq!(marks.len(), wrong.len(), "{at}");
        for (mark, finding) in marks.iter().zip(wrong) {
            // The memory that lacks an order existed before both operations.
            if let (Some(life), Some(from)) = (mark["allocations"].get(0), mark["missing"][0][0].as_u64()) {
                assert!(born(life) <= from, "{at}: the life that is marked began after the edge: {mark:#}");
            }
            let drawn: Vec<[&Shown; 2]> = mark["missing"]
                .as_array()
                .unwrap()
                .iter()
                .map(|edge| [0, 1].map(|end| &shown[edge[end].as_u64().unwrap() as usize]))
                .collect();
            let before: Vec<&Side> = finding.missing.iter().map(|edge| &edge.after).collect();
            assert_eq!(drawn.len(), before.len(), "{at}: {finding}");
            let later = finding.later.as_ref();
            for ([from, to], before) in drawn.into_iter().zip(before) {
                let later = later.expect("an edge has two ends");
                let is_so = is_side(from, before) && is_side(to, later);
                // If the order of two nodes is missing, a page draws it as the program made them.
                let is_turned = finding.graph.is_some() && is_side(to, before) && is_side(from, later);
                assert!(is_so || is_turned, "{at}: from line {} to line {}: {finding}", from.line, to.line);
                edges += 1;
            }
        }
        programs += 1;
    }
    assert!(programs > 60 && edges > 60, "{programs} programs, {edges} edges");
}

/// The corrected program is on its page if finding it takes no longer than drawing.
#[test]
fn a_fix_is_shown_of_small_programs_only() {
    for (name, count, is_shown) in [("few.litmus", 2, true), ("many.litmus", 1000, false)] {
        let one = |at: usize| format!("a{at} = alloc s 64\nwrite t a{at}\nfree s a{at}\n");
        let text: String = (0..count).map(one).collect();
        let file = to(name);
        std::fs::write(&file, format!("stream s\nstream t\n{text}")).unwrap();
        let meta = meta(&page(&file.display().to_string()));
        assert_eq!((meta["marks"].as_array().unwrap().len(), meta["fix"].is_object()), (count, is_shown), "{name}");
        if is_shown {
            assert!(meta["fix"]["left"].as_array().unwrap().is_empty(), "{:#}", meta["fix"]);
        }
    }
}

#[test]
fn nothing_to_show_makes_no_page() {
    let whole = std::fs::read(trace("bare.trace")).unwrap();
    for (name, content) in [("bare.trace", &whole[..12]), ("nothing.litmus", &b"# nothing\n"[..])] {
        let file = to(name);
        std::fs::write(&file, content).unwrap();
        let output = millpond(&[&file.display().to_string()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains("nothing to show"), "{name}: {error}");
    }
}

/// A browser that writes down what it should open.
#[test]
fn a_page_is_opened_where_that_is_asked() {
    use std::os::unix::fs::PermissionsExt;
    let (browser, opened) = (to("browser"), to("opened"));
    let _ = std::fs::remove_file(&opened);
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" >{}\n", opened.display())).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = |words: &[&str], browser: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command.args(["view", "--open"]).args(words).env("BROWSER", browser).env("TMPDIR", env!("CARGO_TARGET_TMPDIR"));
        command.output().unwrap()
    };
    let page = || std::fs::read_to_string(&opened).unwrap().trim_end().to_owned();
    let file = to("opened.html");
    let output = open(&[&path("tests/data/ours.jsonl"), "-o", &file.display().to_string()], &browser);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("open it"), "{output:?}");
    assert_eq!(page(), file.display().to_string());
    let output = open(&[&path("tests/data/ours.jsonl")], &browser);
    assert!(output.status.success(), "{output:?}");
    let (page, said) = (page(), String::from_utf8(output.stdout).unwrap());
    assert!(page.ends_with("/ours.html") && said.starts_with(&format!("{page}: 4 events drawn")), "{page} {said}");
    let folder = Path::new(&page).parent().unwrap();
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "it is the user's alone");
    std::fs::remove_dir_all(folder).unwrap();
    let output = open(&[&path("tests/data/ours.jsonl"), "-o", &file.display().to_string()], Path::new("/no/browser"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("opened.html: /no/browser cannot open it"), "{error}");
}
