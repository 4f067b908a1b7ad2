//! `millpond bench` as a process: without CUDA, with one that is made up, and beside an earlier run.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

const NOWHERE: (&str, &str) = ("MILLPOND_LIBCUDA", "/nowhere/libcuda.so.1");

fn bench(words: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    let words = [&["bench", "--seconds", "1"], words].concat();
    command.args(words).envs(settings.iter().copied()).output().expect("the command starts")
}

fn figures(settings: &[(&str, &str)]) -> Value {
    let output = bench(&["--json"], settings);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the output is JSON and nothing else")
}

/// The three numbers, in order.
fn spread(value: &Value) -> [f64; 3] {
    let it = ["min", "median", "max"].map(|name| value[name].as_f64().unwrap_or_else(|| panic!("no {name}: {value}")));
    assert!(it[0] > 0.0 && it[0] <= it[1] && it[1] <= it[2], "{it:?}");
    it
}

fn written(name: &str, value: &Value) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}-{name}.json", std::process::id()));
    std::fs::write(&path, value.to_string()).expect("it is written");
    path.display().to_string()
}

/// Each round compares what took turns in it: the ratio's spread is around that of the figures.
#[test]
fn host_figures_are_beside_those_of_mimalloc() {
    let report = figures(&[NOWHERE]);
    let rows = report["rows"].as_array().unwrap();
    let named = |name: &str| rows.iter().filter(|row| row["name"].as_str().unwrap().contains(name)).count();
    assert_eq!((named("one stream"), named("another stream"), named("launch check"), named("on 64")), (1, 1, 1, 2));
    assert!(named("1 thread") == 1 && named("2 threads") == 1);
    assert_eq!((&report["rounds"], &report["seconds"]), (&15.into(), &1.into()));
    for row in rows {
        let [low, _, high] = spread(&row["millpond"]);
        assert!(row["cuda"].is_null() && row["over_cuda"].is_null());
        let has_malloc = cfg!(feature = "mimalloc") && row["name"].as_str().unwrap().starts_with("alloc + free");
        assert_eq!((row["mimalloc"].is_object(), row["over_mimalloc"].is_object()), (has_malloc, has_malloc), "{row}");
        if has_malloc {
            let [fast, _, slow] = spread(&row["mimalloc"]);
            let [least, _, most] = spread(&row["over_mimalloc"]);
            assert!(least >= low / slow * 0.999 && most <= high / fast * 1.001, "{row}");
        }
        let unit = if row["name"].as_str().unwrap().starts_with("check") { "M operations/s" } else { "ns" };
        assert_eq!(row["unit"], unit);
    }
    let left_out = report["left_out"].as_array().unwrap();
    let line = left_out.last().unwrap().as_str().unwrap();
    assert!(line.starts_with("CUDA's own pool is left out: ") && line.contains("/nowhere/libcuda.so.1"), "{line}");
}

#[test]
fn it_says_first_what_it_does_and_then_shows_a_table() {
    let output = bench(&[], &[NOWHERE]);
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("measuring ") && said.contains("in 15 rounds, for about 1 second"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("CUDA's own pool is left out")).count(), 1, "{said}");
    assert!(text.starts_with("millpond ") && text.contains("sim: alloc + free, one stream"), "{text}");
    let check = text.lines().find(|line| line.contains("check, launches")).unwrap();
    assert!(check.contains(" M op/s") && check.contains(" to "), "{text}");
}

#[test]
fn a_cuda_device_is_measured_beside_its_own_pool() {
    let library = fakecuda::library().display().to_string();
    let report = figures(&[("MILLPOND_LIBCUDA", &library)]);
    assert_eq!(report["machine"]["gpu"], "fakecuda 0");
    let rows: Vec<_> = report["rows"].as_array().unwrap().iter().filter(|row| row["device"] == "cuda 0").collect();
    assert!(rows.len() >= 4, "{report}");
    for row in rows {
        for it in [&row["millpond"], &row["cuda"], &row["over_cuda"]] {
            spread(it);
        }
        assert!(row["mimalloc"].is_null());
    }
    let none = figures(&[("MILLPOND_LIBCUDA", &library), ("FAKECUDA_DEVICES", "0")]);
    let left_out = none["left_out"].as_array().unwrap().last().unwrap();
    assert_eq!(left_out, "CUDA's own pool is left out: no CUDA device is visible");
}

#[test]
fn a_device_that_fails_ends_it() {
    let library = fakecuda::library().display().to_string();
    let output = bench(&[], &[("MILLPOND_LIBCUDA", &library), ("FAKECUDA_FAIL", "cuMemAllocAsync@100=719")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{error}");
    assert!(error.contains("error: the measurement ended early: ") && error.contains("LAUNCH_FAILED"), "{error}");
}

/// Multiplies all of Millpond's figures.
fn scaled(report: &Value, factor: f64) -> Value {
    let mut report = report.clone();
    for row in report["rows"].as_array_mut().unwrap() {
        // Of a rate, more is faster.
        let factor = if row["unit"] == "ns" { factor } else { 1.0 / factor };
        for name in ["min", "median", "max"] {
            row["millpond"][name] = json!(row["millpond"][name].as_f64().unwrap() * factor);
        }
    }
    report
}

#[test]
fn what_changed_by_more_than_the_spread_is_said() {
    let report = figures(&[NOWHERE]);
    let (slow, fast) = (written("slow", &scaled(&report, 1e4)), written("fast", &scaled(&report, 1e-4)));
    let output = bench(&["--compare", &slow], &[NOWHERE]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let rows = report["rows"].as_array().unwrap().len();
    assert_eq!(text.lines().filter(|line| line.ends_with("0.00  faster")).count(), rows, "{text}");
    let output = bench(&["--compare", &fast, "--json"], &[NOWHERE]);
    assert_eq!(output.status.code(), Some(1));
    let compared = serde_json::from_slice::<Value>(&output.stdout).unwrap()["compared"].clone();
    assert_eq!(compared["is_same_machine"], true);
    let all = compared["rows"].as_array().unwrap();
    let ours: Vec<_> = all.iter().filter(|row| row["who"] == "millpond").collect();
    assert_eq!(ours.len(), rows);
    assert!(ours.iter().all(|row| row["change"] == "slower" && row["ratio"].as_f64().unwrap() > 10.0), "{compared:#}");
    [slow, fast].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn figures_of_one_run_alone_are_named() {
    let mut report = figures(&[NOWHERE]);
    report["rows"][0]["name"] = "of\u{1b}[31m old".into();
    report["machine"]["cores"] = 4096.into();
    let path = written("old", &report);
    let output = bench(&["--compare", &path], &[NOWHERE]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("another machine or build: ") && text.contains("4096 threads"), "{text}");
    assert!(text.contains("sim: alloc + free, one stream: only in this run"), "{text}");
    assert!(text.contains("old: only in the earlier run") && !text.contains('\u{1b}'), "{text}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn wrong_input_is_refused_before_anything_is_measured() {
    let report = json!({
        "version": "1", "profile": "release", "machine": {"cpu": "a", "cores": 1, "gpu": null}, "seconds": 1,
        "rounds": 1, "left_out": [], "rows": [{
            "name": "row", "device": "sim", "unit": "ns", "millpond": {"min": 2.0, "median": 1.0, "max": 3.0},
            "mimalloc": null, "cuda": null, "over_mimalloc": null, "over_cuda": null,
        }],
    });
    let (odd, other) = (written("odd", &report), written("other", &json!({"files": []})));
    let list = written("list", &json!([]));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (words, part) in [
        (["--seconds", "0"], "0 is not in 1..=3600"),
        (["--compare", "no/such/file"], "no/such/file: cannot be opened"),
        (["--compare", manifest], "not the figures of `millpond bench`"),
        (["--compare", &other], "missing field `version`"),
        (["--compare", &list], "JSON, but no object"),
        (["--compare", &odd], "`row` has figures that nothing measures"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_millpond")).arg("bench").args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert!(error.starts_with("error: ") && error.contains(part), "{error}");
        assert!(!error.contains("measuring"), "{error}");
    }
    [odd, other, list].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
}
