//! `millpond check`: the exit status, the output, and the refusals.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use millpond_cli::Status;
use millpond_core::ids::{DeviceId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, Memory, Names, Op, Place, StreamRole, Trust, What};
use millpond_core::trace::ops::Writer;

fn run(args: &[&str]) -> (Status, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["millpond", "check"].iter().chain(args).map(OsString::from);
    let open: millpond_cli::replay::Open<'_> = &|_| unreachable!("no device is opened");
    let status = millpond_cli::run(args, open, &mut out, &mut err).unwrap();
    let text = |bytes: Vec<u8>| anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string();
    (status, text(out), text(err))
}

fn litmus(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/litmus").join(name).display().to_string()
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("millpond-check-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_violation_is_explained_from_both_sides() {
    let (status, out, err) = run(&[&litmus("measured/2-free-before-use.litmus")]);
    assert_eq!((status, err.as_str()), (Status::Found, ""));
    for part in [
        "error[free-before-use]: `a`",
        "free s a",
        "write t a",
        "never waits for stream `t`",
        "help: make stream `s` wait for an event recorded on stream `t` at or after op",
        "6 operations".replace('6', "9").as_str(),
    ] {
        assert!(out.contains(part), "no `{part}` in\n{out}");
    }
}

#[test]
fn what_a_loop_does_wrong_each_time_is_shown_once() {
    let text = "stream s\nstream t\nrepeat 50\n  a = alloc s 64\n  write t a\n  free s a\nend repeat\nfree s a\n";
    let program = file("loop.litmus", text.as_bytes());
    let (status, out, _) = run(&[program.to_str().unwrap()]);
    assert_eq!((status, out.matches("error[use-before-alloc]").count()), (Status::Found, 1), "{out}");
    assert!(out.contains("found 49 times more at the same places"), "{out}");
    assert_eq!(out.matches("error[double-free]").count(), 1, "{out}");
    assert!(out.contains("51 violations") && !out.contains("... and"), "{out}");
}

#[test]
fn a_right_program_is_fine_and_advice_is_no_violation() {
    let (status, out, _) = run(&[&litmus("measured/9-hand-over.litmus")]);
    assert_eq!(status, Status::Fine);
    assert!(out.contains("no violations"), "{out}");
    let (status, out, _) = run(&[&litmus("rules/redundant-wait.litmus")]);
    assert_eq!(status, Status::Fine);
    assert!(out.contains("advice[redundant-wait]"), "{out}");
    let (_, out, _) = run(&["--no-advice", &litmus("rules/redundant-wait.litmus")]);
    assert!(!out.contains("redundant-wait]"), "{out}");
}

#[test]
fn a_program_is_corrected() {
    let wrong = litmus("measured/2-free-before-use.litmus");
    let (status, out, err) = run(&["--fix", &wrong]);
    assert_eq!(status, Status::Fine, "{err}");
    assert!(out.contains("record fix1 t\nwait s fix1\nfree s a\n"), "{out}");
    let added = "line 8 added, `record fix1 t`, line 9 added, `wait s fix1`";
    assert!(err.contains(&format!("{wrong}:8: corrected free-before-use: {added}")), "{err}");
    let right = file("corrected.litmus", out.as_bytes());
    let (status, out, _) = run(&[right.to_str().unwrap()]);
    assert!(status == Status::Fine && out.contains("no violations"), "{out}");
    // A right program stays as it is, and the output says that it is right.
    let (status, out, err) = run(&["--fix", right.to_str().unwrap()]);
    assert_eq!((status, out.as_bytes()), (Status::Fine, &fs::read(&right).unwrap()[..]));
    assert!(err.contains("0 corrected, 0 left"), "{err}");
    let (status, out, err) = run(&["--fix", &litmus("rules/captures-merged.litmus")]);
    assert_eq!(status, Status::Found);
    assert!(
        out.contains("capture-merge") && err.contains("left capture-merge: join streams of one capture only"),
        "{out}{err}"
    );
    // An expected finding that is missing gives the same status as without `--fix`.
    let unmet = file("unmet.litmus", b"stream s\na = alloc s 64\nfree s a  !! leak\n");
    let (status, _, err) = run(&["--fix", unmet.to_str().unwrap()]);
    assert!(status == Status::Found && err.contains("line 3: leak was not found"), "{err}");
    fs::remove_file(unmet).unwrap();
    let (status, _, err) = run(&["--fix", &wrong, &wrong]);
    assert!(status == Status::BadInput && err.contains("one program at a time"), "{err}");
    fs::remove_file(right).unwrap();
}

#[test]
fn a_witness_is_a_schedule_that_does_the_damage() {
    let (status, out, err) = run(&["--witness", &litmus("measured/2-free-before-use.litmus")]);
    assert_eq!((status, err.as_str()), (Status::Found, ""));
    let at = |part: &str| out.rfind(part).unwrap_or_else(|| panic!("no `{part}` in\n{out}"));
    let order =
        [at("witness: a device may"), at("line 8  s  free s a"), at("line 7  t  write t a"), at("^ `a` is freed")];
    assert!(order.is_sorted(), "{out}");
    let (_, out, _) = run(&["--witness", &litmus("rules/leak.litmus")]);
    assert!(out.contains("witness: no schedule shows this"), "{out}");
    let witness = |name: &str| {
        let (_, out, _) = run(&["--witness", "--json", &litmus(name)]);
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["findings"][0]["witness"].clone()
    };
    assert_eq!(witness("rules/leak.litmus")["is"], "none");
    let lines = |shown: &serde_json::Value| -> Vec<u64> {
        shown["steps"].as_array().unwrap().iter().map(|step| step["line"].as_u64().unwrap()).collect()
    };
    assert_eq!(lines(&witness("measured/2-free-before-use.litmus")), [4, 5, 6, 8, 7], "what both sides need");
    let late =
        file("late.litmus", b"stream s\nstream t\nb = alloc t 8\na = alloc s 64\nwrite t a  !! use-before-alloc\n");
    let (_, out, _) = run(&["--witness", "--json", late.to_str().unwrap()]);
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    let use_of_poison = out["findings"].as_array().unwrap().iter().find(|it| it["line"] == 5).unwrap();
    assert_eq!(lines(&use_of_poison["witness"]), [3, 5], "before the allocation of line 4");
    fs::remove_file(late).unwrap();
    let shown = witness("zoo/20-one-read-event.litmus");
    assert_eq!(shown["is"], "schedule");
    assert_eq!(shown["steps"].as_array().unwrap().last().unwrap()["line"], 10);
}

#[test]
fn every_wrong_order_of_the_corpus_has_a_witness() {
    let (mut shown, mut folders) = (0, vec![litmus("")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path().display().to_string()) {
            if Path::new(&path).is_dir() {
                folders.push(path);
                continue;
            }
            let (status, out, _) = run(&["--witness", "--json", &path]);
            assert_ne!(status, Status::BadInput, "{path}");
            let report: serde_json::Value = serde_json::from_str(&out).unwrap();
            for finding in report["findings"].as_array().unwrap() {
                let kind = millpond_core::check::Kind::from_name(finding["kind"].as_str().unwrap()).unwrap();
                if kind.is_about_order() {
                    shown += 1;
                    assert_eq!(finding["witness"]["is"], "schedule", "{path}: {finding}");
                }
            }
        }
    }
    assert!(shown >= 60, "only {shown}");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_line() {
    let path = file("bad.litmus", b"stream s\nfree s\n");
    let (status, _, err) = run(&[path.to_str().unwrap()]);
    assert_eq!(status, Status::BadInput);
    assert!(err.contains("line 2") && err.contains("such a line reads") && err.contains("or `free S A`"), "{err}");
    let path = file("bad.bin", b"\0\xff\0");
    assert!(run(&[path.to_str().unwrap()]).2.contains("neither a litmus program"), "binary");
    let (status, _, err) = run(&["no/such/file"]);
    assert_eq!(status, Status::BadInput);
    assert!(err.contains("cannot be opened"), "{err}");
}

#[test]
fn json_has_the_facts() {
    let (status, out, _) = run(&["--json", &litmus("measured/3-free-on-another-stream.litmus")]);
    assert_eq!(status, Status::Found);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let found = &report["findings"][0];
    assert_eq!((report["violations"].as_u64(), found["kind"].as_str()), (Some(1), Some("free-before-use")));
    assert_eq!((found["line"].as_u64(), found["earlier"]["line"].as_u64()), (Some(8), Some(6)));
    let facts = found["facts"].as_str().unwrap();
    assert!(facts.starts_with("kind=free-before-use allocation=0 bytes=1024 earlier_act=Write"), "{facts}");
    let (_, out, _) =
        run(&["--json", &litmus("measured/1-use-before-alloc.litmus"), &litmus("measured/9-hand-over.litmus")]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap().as_array().map(Vec::len), Some(2));
}

#[test]
fn a_trace_is_checked_like_a_text() {
    let mut names = Names::new();
    let (source, name) = (names.intern("src/no_such_file.rs"), names.intern("total"));
    let (left, right) = (StreamId(1), StreamId(2));
    let at = |line, what| Op { host: HostId(0), place: Place::File { file: source, line }, what };
    let create = |stream| What::StreamCreate { stream, role: StreamRole::Blocking, device: DeviceId(0) };
    let memory = Memory::first(7);
    let accesses = [Access::whole(memory, Act::Read)].into_iter().collect();
    let ops = [
        at(1, create(left)),
        at(2, create(right)),
        at(3, What::Alloc { memory, pool: PoolId(0), stream: left, bytes: 4, name: Some(name) }),
        at(4, What::Launch { stream: right, accesses, trust: Trust::None, name: None }),
        at(5, What::Free { memory, stream: left, trust: Trust::None }),
    ];
    let mut writer = Writer::new();
    ops.iter().for_each(|op| writer.push(op, &names));
    let bytes = writer.finish();
    let path = file("a.trace", &bytes);
    let (status, out, err) = run(&[path.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (Status::Found, ""));
    for part in ["error[use-before-alloc]: `total`", "src/no_such_file.rs:4", "src/no_such_file.rs:3", "5 operations"] {
        assert!(out.contains(part), "no `{part}` in\n{out}");
    }
    // The trace of a program that was stopped: the end is missing, or a frame is truncated. Complete frames count.
    for cut in [16, 20] {
        let path = file("cut.trace", &bytes[..bytes.len() - cut]);
        let (status, out, err) = run(&[path.to_str().unwrap()]);
        match cut {
            16 => assert_eq!((status, out.contains("the trace was cut")), (Status::Found, true), "{out}{err}"),
            _ => assert_eq!(status, Status::BadInput, "nothing is whole: {out}{err}"),
        }
    }
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    let path = file("damaged.trace", &damaged);
    let (status, _, err) = run(&[path.to_str().unwrap()]);
    assert_eq!(status, Status::BadInput, "{err}");
    assert!(err.contains("damaged.trace: byte 12: the frame's checksum is wrong"), "{err}");
}

/// Older traces could distinguish the threads of a process: a wait of one thread counts for all, told or not.
#[test]
fn a_trace_of_threads_that_were_told_apart_is_of_one_process() {
    let (memory, s, t) = (Memory::first(7), StreamId(1), StreamId(2));
    let create = |stream| What::StreamCreate { stream, role: StreamRole::NonBlocking, device: DeviceId(0) };
    let accesses = [Access::whole(memory, Act::Write)].into_iter().collect();
    let (main, known, other, third) = (HostId(1), HostId(u32::MAX), HostId(2), HostId(3));
    let mut writer = Writer::new();
    for (host, what) in [
        (main, create(s)),
        (main, create(t)),
        (main, What::Alloc { memory, pool: PoolId(0), stream: s, bytes: 4, name: None }),
        (main, What::Tell { to: known }),
        (main, What::StreamSynchronize { stream: s }),
        (known, What::Tell { to: other }),
        (other, What::Launch { stream: t, accesses, trust: Trust::None, name: None }),
        (third, What::StreamSynchronize { stream: t }),
        (main, What::FreeNow { memory }),
    ] {
        writer.push(&Op { host, place: Place::Unknown, what }, &Names::new());
    }
    let path = file("told.trace", &writer.finish());
    let (status, out, err) = run(&[path.to_str().unwrap()]);
    assert_eq!((status, err.as_str()), (Status::Fine, ""), "{out}");
}

#[test]
fn an_option_that_is_gone_says_what_holds_now() {
    for option in ["--threads-apart", "--trust-early"] {
        let (status, out, err) = run(&[option, &litmus("measured/9-hand-over.litmus")]);
        assert_eq!((status, out.as_str()), (Status::BadInput, ""));
        assert!(err.contains(&format!("{option} is not an option any more")), "{err}");
        assert!(err.contains("leave it out"), "{err}");
    }
}

#[test]
fn a_trace_that_was_cut_is_never_fine() {
    let mut writer = Writer::new();
    let what = What::StreamCreate { stream: StreamId(1), role: StreamRole::Blocking, device: DeviceId(0) };
    writer.push(&Op { host: HostId(0), place: Place::Unknown, what }, &Names::new());
    let bytes = writer.finish();
    let path = file("right.trace", &bytes);
    assert_eq!(run(&[path.to_str().unwrap()]).0, Status::Fine);
    let path = file("right-and-cut.trace", &bytes[..bytes.len() - 16]);
    let (status, out, _) = run(&[path.to_str().unwrap()]);
    assert_eq!(status, Status::BadInput);
    assert!(out.contains("the trace was cut") && out.contains("1 operation, no violations"), "{out}");
    let (status, out, _) = run(&["--json", path.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &report["was_stopped"]), (Status::BadInput, &true.into()));
}

#[test]
fn nothing_to_check_is_not_all_well() {
    let (bare, closed) = (Writer::new().seal(), Writer::new().finish());
    for (name, content) in [("empty", &b""[..]), ("comment", b"# nothing\n"), ("bare", &bare), ("closed", &closed)] {
        let path = file(name, content);
        let (status, out, err) = run(&[path.to_str().unwrap()]);
        assert_eq!(status, Status::BadInput, "{name}: {out}{err}");
        assert!(err.contains("nothing to check"), "{name}: {err}");
    }
}

#[test]
fn what_a_litmus_program_expects_is_compared() {
    let text = b"stream s\na = alloc s 64   !! free-before-use\nfree s a\n";
    let path = file("unmet.litmus", text);
    let (status, out, _) = run(&[path.to_str().unwrap()]);
    assert_eq!(status, Status::Found);
    assert!(out.contains("line 2: free-before-use was not found"), "{out}");
    let (_, out, _) = run(&["--json", path.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["unmet"].as_array().map(Vec::len), Some(1));
    let text = b"stream s\na = alloc s 64\nfree s a\nfree s a   !! race\n";
    let (status, out, _) = run(&[file("other.litmus", text).to_str().unwrap()]);
    assert_eq!(status, Status::Found);
    assert!(out.contains("line 4: race was not found") && out.contains("line 4: double-free was found"), "{out}");
}

#[test]
fn what_is_expected_is_right_where_that_is_asked() {
    let expect = |name: &str, text: &str| {
        let path = file(name, text.as_bytes());
        let found = run(&["--expect", path.to_str().unwrap()]);
        fs::remove_file(path).unwrap();
        found
    };
    let met = "stream s\na = alloc s 64\nfree s a\nfree s a   !! double-free\n";
    let (status, out, _) = expect("met.litmus", met);
    assert_eq!(status, Status::Fine, "{out}");
    assert!(out.contains("1 violation, as expected"), "{out}");
    for (name, text, part) in [
        ("missing.litmus", "stream s\na = alloc s 64   !! leak\nfree s a\n", "leak was not found"),
        ("none.litmus", "stream s\na = alloc s 64\nfree s a\nfree s a\n", "double-free was found and is not expected"),
        ("more.litmus", &met.replace("free s a\n", "read s a\nfree s a\nfree s a\n"), "line 5: double-free was found"),
    ] {
        let (status, out, _) = expect(name, text);
        assert!(status == Status::Found && out.contains(part) && !out.contains("as expected"), "{name}: {out}");
    }
    let (status, out, _) = expect("right.litmus", "stream s\na = alloc s 64\nfree s a\n");
    assert_eq!((status, out.contains("no violations, as expected")), (Status::Fine, true), "{out}");
    let path = file("as-before.litmus", met.as_bytes());
    assert_eq!(run(&[path.to_str().unwrap()]).0, Status::Found, "without --expect as ever");
}

/// A file that is not checked is in the array all the same, at its position.
#[test]
fn json_has_the_files_that_are_refused() {
    let broken = file("broken.litmus", b"stream s\nfre s a\n");
    let (broken, right) = (broken.to_str().unwrap(), litmus("measured/9-hand-over.litmus"));
    let (status, out, _) = run(&["--json", "no/such/file", broken, &right]);
    assert_eq!(status, Status::BadInput);
    let entries: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(entries.as_array().map(Vec::len), Some(3), "{out}");
    assert_eq!((entries[0]["file"].as_str(), &entries[0]["error"]["line"]), (Some("no/such/file"), &().into()));
    assert!(entries[0]["error"]["reason"].as_str().unwrap().contains("cannot be opened"), "{out}");
    assert_eq!((entries[1]["file"].as_str(), entries[1]["error"]["line"].as_u64()), (Some(broken), Some(2)));
    assert!(entries[1]["error"]["help"].is_string() && entries[1].get("findings").is_none(), "{out}");
    assert_eq!((entries[2]["file"].as_str(), entries[2]["violations"].as_u64()), (Some(right.as_str()), Some(0)));
    let (_, out, _) = run(&["--json", broken]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["error"]["line"].as_u64(), Some(2));
}

/// The label of each side has the round of its loop.
#[test]
fn rounds_of_loops_are_shown() {
    let text = "set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 64\nrecord e s\nwait t e\n\
                repeat 2\nread t a\nsynchronize s\nwrite s a\nend repeat\n";
    let program = file("rounds.litmus", text.as_bytes());
    let (_, out, _) = run(&[program.to_str().unwrap()]);
    assert!(out.contains("written: stream `s`, op 3, in round 1 of the `repeat` at line 7"), "{out}");
    let (_, out, _) = run(&["--json", program.to_str().unwrap()]);
    let found = serde_json::from_str::<serde_json::Value>(&out).unwrap()["findings"][0].clone();
    assert_eq!(found["later"]["round"].as_str(), Some("round 1 of the `repeat` at line 7"), "{out}");
}

#[test]
fn of_a_folder_all_programs_are_checked() {
    let folder = std::env::temp_dir().join(format!("millpond-check-folder-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("in/.hidden")).unwrap();
    let right = "stream s\na = alloc s 64\nfree s a\n";
    fs::write(folder.join("in/b.litmus"), right).unwrap();
    fs::write(folder.join("a.litmus"), right.replace("free", "read")).unwrap();
    fs::write(folder.join("in/.hidden/c.litmus"), "no program\n").unwrap();
    fs::write(folder.join("README.md"), "stream s\n").unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("in/round")).unwrap();
    let mut writer = Writer::new();
    let what = What::StreamCreate { stream: StreamId(1), role: StreamRole::Blocking, device: DeviceId(0) };
    writer.push(&Op { host: HostId(0), place: Place::Unknown, what }, &Names::new());
    fs::write(folder.join("in/a-trace"), writer.finish()).unwrap();
    let name = folder.to_str().unwrap();
    let (status, out, err) = run(&[name]);
    assert_eq!((status, err.as_str()), (Status::Found, ""));
    let said: Vec<_> = out.lines().filter_map(|line| line.strip_prefix(&format!("{name}/"))).collect();
    assert_eq!(
        said,
        [
            "a.litmus: 4 operations, 1 violation",
            "in/a-trace: 1 operation, no violations",
            "in/b.litmus: 4 operations, no violations"
        ],
        "{out}"
    );
    let (_, out, _) = run(&["--json", name]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap().as_array().map(Vec::len), Some(3));
    let (_, out, _) = run(&["--json", &format!("{name}/in/.hidden/../../a.litmus")]);
    assert!(out.starts_with('{'), "of a file its own: {out}");
    fs::remove_file(folder.join("a.litmus")).unwrap();
    fs::remove_dir_all(folder.join("in")).unwrap();
    let (status, _, err) = run(&[name]);
    assert!(status == Status::BadInput && err.contains("no litmus program and no operation trace is in it"), "{err}");
    fs::remove_dir_all(&folder).unwrap();
    let (status, _, err) = run(&["--fix", &litmus("measured")]);
    assert!(status == Status::BadInput && err.contains("a directory, not a file"), "{err}");
}
