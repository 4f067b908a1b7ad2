//! The command from arguments to output and status, with a naive pool of its own: first fit over a list.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use millpond_cli::replay::{Figures, Open, ServeError, Server, Setup};
use millpond_cli::{Status, run};
use serde_json::Value;

const CHUNK: u64 = 2 << 20;

/// A pool that is simple enough to be right: blocks at the lowest address where they fit, whole chunks below the
/// highest address in use, nothing given back before a pass ends.
#[derive(Default)]
struct Naive {
    /// First address and bytes of each live allocation.
    live: BTreeMap<u32, (u64, u64)>,
    chunks: u64,
    creates: u64,
    /// Releases everything when a pass ends.
    forgets: bool,
    /// The bytes of the device.
    limit: u64,
}

impl Server for Naive {
    fn alloc(&mut self, id: u32, bytes: u64, _: u32) -> Result<(), ServeError> {
        let mut blocks: Vec<(u64, u64)> = self.live.values().copied().collect();
        blocks.sort_unstable();
        let mut at = 0;
        for (start, length) in blocks {
            if at + bytes <= start {
                break;
            }
            at = start + length;
        }
        let needed = (at + bytes).div_ceil(CHUNK);
        if needed * CHUNK > self.limit {
            return Err(ServeError(format!("out of memory: the device has {} B", self.limit)));
        }
        self.creates += needed.saturating_sub(self.chunks);
        self.chunks = self.chunks.max(needed);
        assert!(self.live.insert(id, (at, bytes)).is_none(), "allocation {id} is served twice");
        Ok(())
    }

    fn free(&mut self, id: u32, _: u32) -> Result<(), ServeError> {
        self.live.remove(&id).map(drop).ok_or_else(|| ServeError(format!("allocation {id} is not live")))
    }

    fn address(&self, id: u32) -> u64 {
        self.live[&id].0
    }

    fn reserved_bytes(&self) -> u64 {
        self.chunks * CHUNK
    }

    fn end_of_pass(&mut self) -> Result<Figures, ServeError> {
        assert!(self.live.is_empty(), "a pass ends with everything freed");
        let figures = Figures {
            peak_reserved_bytes: self.chunks * CHUNK,
            driver_calls: BTreeMap::from([("create".to_owned(), std::mem::take(&mut self.creates))]),
        };
        if self.forgets {
            self.chunks = 0;
        }
        Ok(figures)
    }
}

fn naive(setup: &Setup) -> Naive {
    let forgets = setup.pool.release_threshold == 0;
    Naive { forgets, limit: u64::MAX, ..Naive::default() }
}

fn open(setup: &Setup) -> Result<Box<dyn Server>, ServeError> {
    Ok(Box::new(naive(setup)))
}

/// Runs the command. Returns status, output and errors, without colours.
fn command_with(open: Open<'_>, words: &[&str]) -> (Status, String, String) {
    let (mut out, mut err) = (anstream::StripStream::new(Vec::new()), anstream::StripStream::new(Vec::new()));
    let words = ["millpond"].iter().chain(words).map(OsString::from);
    let status = run(words, open, &mut out, &mut err).unwrap();
    let text = |stream: anstream::StripStream<Vec<u8>>| String::from_utf8(stream.into_inner()).unwrap();
    (status, text(out), text(err))
}

fn command(words: &[&str]) -> (Status, String, String) {
    command_with(&open, words)
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

fn json(words: &[&str]) -> Value {
    let (status, out, err) = command(&[&["replay", "--json"], words].concat());
    assert_eq!((status, err.as_str()), (Status::Fine, ""));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn one_recording_is_one_object() {
    let it = json(&[&data("ours.jsonl")]);
    assert_eq!(it["name"], "small");
    assert_eq!((&it["events"], &it["allocations"], &it["streams"]), (&4.into(), &3.into(), &2.into()));
    assert_eq!(it["peak_requested_bytes"], 1536);
    assert_eq!(it["peak_reserved_bytes"], CHUNK);
    assert_eq!(it["ratio"], CHUNK as f64 / 1536.0);
    assert!(it["ns_per_event"].as_f64().unwrap() >= 0.0);
    assert_eq!(it["driver_calls"], serde_json::json!({"create": 1}));
    assert_eq!(it["driver_calls_after_first_pass"], 0);
    assert_eq!((&it["first_pass"]["passes"], &it["later_passes"]["passes"]), (&1.into(), &4.into()));
    assert_eq!(it["recorded_run"]["peak_reserved_bytes"], 2_097_152);
}

#[test]
fn several_recordings_are_an_array_with_totals() {
    let it = json(&[&data("ours.jsonl"), &data("two_devices.pickle"), "--release-threshold", "0", "--repeat", "3"]);
    let names: Vec<_> = it["files"].as_array().unwrap().iter().map(|file| (&file["name"], &file["gpu"])).collect();
    let pickle = Value::from("two_devices");
    assert_eq!(names, [(&"small".into(), &Value::Null), (&pickle, &0.into()), (&pickle, &1.into())]);
    assert_eq!(it["totals"]["programs"], 3);
    assert_eq!(it["totals"]["events"], 4 + 4 + 2);
    assert_eq!(it["totals"]["driver_calls"]["create"], 9, "each pass of each program begins from nothing");
    assert_eq!(it["totals"]["driver_calls_after_first_pass"], 6);
    assert_eq!(it["files"][1]["skipped"]["earlier_frees"], 1);
}

#[test]
fn one_gpu_of_a_snapshot() {
    let it = json(&[&data("two_devices.pickle"), "--gpu", "1"]);
    assert_eq!((&it["gpu"], &it["events"]), (&1.into(), &2.into()));
    let (status, _, err) = command(&["replay", &data("two_devices.pickle"), "--gpu", "5"]);
    assert_eq!(status, Status::BadInput);
    assert!(err.contains("GPU 5 has no allocation in this snapshot\n  help: those that have: 0, 1"), "{err}");
}

#[test]
fn the_report_shows_both_kinds_of_passes() {
    let (status, out, err) = command(&["replay", &data("one_device_p4.pickle"), "--repeat", "3"]);
    assert_eq!((status, err.as_str()), (Status::Fine, ""));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |words: &[&str]| lines.iter().any(|line| line == words);
    assert!(out.starts_with("one_device_p4  4 events, 3 allocations, 2 streams; PyTorch memory snapshot"), "{out}");
    assert!(has(&["note:", "1", "free", "of", "memory", "from", "before", "the", "recording", "left", "out"]), "{out}");
    assert!(has(&["first", "pass", "2", "later", "passes"]), "{out}");
    assert!(has(&["peak", "requested", "1.0", "MiB", "1.0", "MiB"]), "{out}");
    assert!(has(&["peak", "reserved", "2.0", "MiB", "2.0", "MiB"]), "{out}");
    assert!(has(&["ratio", "1.999", "1.999"]), "{out}");
    assert!(has(&["driver", "calls", "a", "pass", "1", "0"]), "{out}");
    assert!(has(&["create", "(cuMemCreate)", "1", "0"]), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 120), "{out}");
}

#[test]
fn several_reports_end_with_a_table() {
    let files = [data("ours.jsonl"), data("rmm.csv"), data("plain.txt.gz")];
    let (_, out, _) = command(&["replay", &files[0], &files[1], &files[2], "--repeat", "1"]);
    let table = out.rsplit("\n\n").next().unwrap();
    let rows: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["events", "small", "rmm", "plain"]);
    assert!(!out.contains("later pass"), "there is only a first pass: {out}");
}

#[test]
fn two_recordings_are_side_by_side() {
    let (small, pickle) = (data("ours.jsonl"), data("one_device_p4.pickle"));
    let (status, out, err) = command(&["replay", &small, &pickle, "--repeat", "3"]);
    assert_eq!((status, err.as_str()), (Status::Fine, ""));
    let table = out.rsplit("\n\n").next().unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |words: &str| lines.iter().any(|line| *line == words.split(' ').collect::<Vec<_>>());
    assert!(table.starts_with("A  small (") && table.contains("\nB  one_device_p4 ("), "{out}");
    assert!(has("A first B first B / A A later B later B / A"), "{table}");
    assert!(has("peak reserved 2.0 MiB 2.0 MiB 1.000 2.0 MiB 2.0 MiB 1.000"), "{table}");
    assert!(has("create (cuMemCreate) 1 1 1.000 0 0"), "nothing is 0 times something: {table}");
    let ratio = lines.iter().find(|line| line[0] == "ratio").unwrap();
    assert_eq!(ratio[1..4], ["1365.333", "1.999", "0.001"], "{table}");
    assert!(!out.contains("first pass"), "each one's table is in that: {out}");
    assert!(out.lines().all(|line| line.chars().count() <= 120), "{out}");
    let (_, out, _) = command(&["replay", &small, &small, "--repeat", "1"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    assert!(words.join(" ").contains("A first B first B / A peak requested") && !out.contains("later"), "{out}");
}

#[test]
fn two_recordings_as_json_have_ratios() {
    let it = json(&[&data("ours.jsonl"), &data("one_device_p4.pickle"), "--repeat", "1"]);
    let (compared, files) = (&it["comparison"], &it["files"]);
    assert_eq!((&compared["first"], &compared["second"]), (&"small".into(), &"one_device_p4".into()));
    assert_eq!(compared["peak_reserved_bytes"], 1.0);
    let bytes = |at: usize| files[at]["peak_requested_bytes"].as_f64().unwrap();
    assert_eq!(compared["peak_requested_bytes"], bytes(1) / bytes(0));
    assert_eq!(compared["first_pass"]["driver_calls"], 1.0);
    assert_eq!(compared["later_passes"], Value::Null);
    let three = json(&[&data("ours.jsonl"), &data("two_devices.pickle")]);
    assert_eq!(three["comparison"], Value::Null, "two files of three programs are no pair");
}

/// If there is nothing to compare, each program has a table of its own.
#[test]
fn two_files_that_are_no_pair_have_their_tables() {
    let (status, out, err) = command(&["replay", &data("ours.jsonl"), &data("no_history.pickle")]);
    assert_eq!(status, Status::BadInput, "{err}");
    assert!(out.contains("first pass") && out.contains("peak reserved") && !out.contains("B / A"), "{out}");
    let (_, out, _) = command(&["replay", &data("ours.jsonl"), &data("two_devices.pickle")]);
    assert_eq!(out.matches("first pass").count(), 3, "{out}");
    assert!(out.rsplit("\n\n").next().unwrap().trim_start().starts_with("events"), "{out}");
}

#[test]
fn a_refused_file_does_not_keep_the_others_from_being_served() {
    let (status, out, err) = command(&["replay", &data("no_history.pickle"), &data("ours.jsonl")]);
    assert_eq!(status, Status::BadInput);
    assert!(err.starts_with("error: ") && err.contains("no_history.pickle: byte "), "{err}");
    assert!(out.starts_with("small"), "{out}");
}

#[test]
fn a_near_miss_of_a_file_is_suggested() {
    let (status, _, err) = command(&["replay", &data("our.jsonl")]);
    assert_eq!(status, Status::BadInput);
    assert!(err.contains("no such file or directory") && err.contains("did you mean `"), "{err}");
    assert!(err.contains("ours.jsonl`?"), "{err}");
}

#[test]
fn what_cannot_be_served_is_found() {
    let small = |setup: &Setup| -> Result<Box<dyn Server>, ServeError> {
        Ok(Box::new(Naive { limit: 1 << 20, ..naive(setup) }))
    };
    let (status, out, err) = command_with(&small, &["replay", &data("one_device_p4.pickle")]);
    assert_eq!((status, out.as_str()), (Status::Found, ""));
    assert!(err.contains("event 0 (allocation 0, 500 B on stream 0) was not served in pass 1: out of memory"), "{err}");
    let none = |_: &Setup| -> Result<Box<dyn Server>, ServeError> { Err(ServeError("no such device".to_owned())) };
    let (status, _, err) = command_with(&none, &["replay", &data("ours.jsonl"), "--device", "sim"]);
    assert_eq!(status, Status::Found);
    assert!(err.contains("ours.jsonl: the sim device: no such device"), "{err}");
}

#[test]
fn help_is_no_error_and_wrong_arguments_are() {
    let (status, out, err) = command(&["replay", "--help"]);
    assert_eq!((status, err.as_str()), (Status::Fine, ""));
    assert!(out.contains("Usage: millpond replay [OPTIONS] <FILE>...") && out.contains("Examples:"), "{out}");
    let words: Vec<_> = out.split_whitespace().collect();
    assert!(words.join(" ").contains("The content decides, not the name."), "{out}");
    let (status, out, err) = command(&["replay"]);
    assert_eq!((status, out.as_str()), (Status::BadInput, ""));
    assert!(err.contains("<FILE>..."), "{err}");
    assert_eq!(command(&["rply"]).0, Status::BadInput);
}
