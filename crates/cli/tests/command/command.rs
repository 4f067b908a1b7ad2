//! The command itself, as a process, with the library behind it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn millpond(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond")).args(words).output().expect("the command starts")
}

fn path(name: &str) -> String {
    let here: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).into();
    here.join(name).display().to_string()
}

fn figures(words: &[&str]) -> Value {
    let output = millpond(&[&["replay", "--json"], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

#[test]
fn a_program_of_five_streams_is_served_on_both_devices() {
    for device in ["host", "sim"] {
        let it = figures(&[&path("tests/files/traces/multistream.jsonl.gz"), "--device", device, "--repeat", "3"]);
        assert_eq!((&it["device"], &it["streams"], &it["passes"]), (&device.into(), &5.into(), &3.into()));
        assert_eq!(it["peak_requested_bytes"], 2_278_842_400_u64);
        let ratio = it["ratio"].as_f64().unwrap();
        assert!((1.0..1.2).contains(&ratio), "{device}: reserved {ratio} times what was requested");
        let creates = |pass: &str| it[pass]["driver_calls"]["create"].as_u64().unwrap_or(0);
        assert!(creates("first_pass") > 0 && creates("first_pass") > creates("later_passes") / 2, "{it:#}");
    }
}

#[test]
fn a_loop_stays_as_tight_as_it_began() {
    let it = figures(&[&path("tests/files/traces/resnet_train.jsonl.gz"), "--device", "sim", "--repeat", "8"]);
    let ratio = |pass: &str| it[pass]["ratio"].as_f64().unwrap();
    let (first, later) = (ratio("first_pass"), ratio("later_passes"));
    assert!(first < 1.025 && later < 1.026, "{first} in the first pass, then up to {later}");
}

#[test]
fn what_the_default_keeps_is_not_made_again() {
    let file = path("tests/data/ours.jsonl");
    assert_eq!(figures(&[&file])["later_passes"]["driver_calls"]["create"], Value::Null);
    let from_nothing = figures(&[&file, "--release-threshold", "0", "--repeat", "3"]);
    assert_eq!(from_nothing["first_pass"]["driver_calls"]["create"], 1);
    assert_eq!(from_nothing["later_passes"]["driver_calls"]["create"], 2);
}

#[test]
fn status_tells_bad_input_and_errors_go_to_standard_error() {
    for (words, part) in [
        (vec!["replay", "no/such/file"], "no/such/file: cannot be opened: no such file or directory"),
        (vec!["replay", &path("tests/data/make.py")], "make.py: none of the known formats"),
        (vec!["replay", "x", "--device", "moon"], "[possible values: host, sim]"),
        (vec!["replay", "x", "--touch"], "unexpected argument '--touch'"),
    ] {
        let output = millpond(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: ") && error.contains(part), "{error}");
        assert!(!error.contains('\x1b'), "no colours where there is no terminal");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn who_stops_reading_gets_the_same_status() {
    let wrong = path("tests/files/litmus/measured/2-free-before-use.litmus");
    for _ in 0..20 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        let mut child = command.args(["check", &wrong]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

/// A bug report can contain the commit.
#[test]
fn the_version_names_the_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_millpond")).arg("-V").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(concat!("millpond ", env!("CARGO_PKG_VERSION"))), "{text}");
    let git = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output();
    let is_repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cli/build.rs").exists();
    if let Some(git) = git.ok().filter(|it| it.status.success() && is_repository) {
        let commit = String::from_utf8(git.stdout).unwrap();
        assert!(text.contains(&format!("({})", commit.trim())), "{text} is not of {commit}");
    }
}

#[test]
fn no_device_serves_more_than_it_has() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("more-than-a-device-has.txt");
    std::fs::write(&file, "a 0 1099511627776\na 1 1048576\nf 0\nf 1\n").unwrap();
    for device in ["host", "sim"] {
        let output = millpond(&["replay", "--device", device, &file.display().to_string()]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{device}: {text}");
        assert!(
            text.contains("event 1 (allocation 1, 1.00 MiB on stream 0) was not served in pass 1: out of"),
            "{text}"
        );
        assert!(
            text.contains("the device has 1.00 TiB") && !text.contains("serve.rs"),
            "the program's own places: {text}"
        );
    }
}
