//! Failing output does no harm to the program: standard error that is full or has no reader, and a trace at the limit
//! of the process's file sizes.
//!
//! Standard error and the limit belong to the whole process, so each case runs in its own process: this test binary
//! again, with the case in an environment variable.

use std::fs::File;
use std::process::{ExitStatus, Stdio};

use millpond::config::{Reporter, Violations};
use millpond::{Device, HostConfig, MIB};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::process;

const CASE: &str = "MILLPOND_OUTPUT_CASE";
const LIMIT: u64 = MIB / 4;

/// Reports a violation while it is met.
fn report() {
    let config = HostConfig::default().violations(Violations::Report(Reporter::stderr()));
    let device = Device::host(config).unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let x = stream.alloc::<u32>(&device.default_pool(), 4).unwrap();
    for _ in 0..4 {
        other.launch(x.write(), |x| x.fill(1)).unwrap();
    }
    other.synchronize().unwrap();
}

/// The environment asks for a trace where none can be created.
fn opening() {
    let device = Device::host(HostConfig::default()).unwrap();
    device.stream().unwrap().synchronize().unwrap();
    assert!(device.flush_trace().is_ok(), "it is not traced");
}

/// The trace reaches the limit inside operations, under locks.
fn full_trace() {
    let device = Device::host(HostConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    drop(stream.alloc::<u8>(&pool, 64).unwrap());
    stream.synchronize().unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum: getrlimit(Resource::Fsize).maximum }).unwrap();
    for round in 0..100_000 {
        let x = stream.alloc::<u8>(&pool, 64).unwrap();
        if round % 2 == 0 { stream.free(x).unwrap() } else { drop(x) }
    }
    device.synchronize().unwrap();
    assert_eq!(pool.statistics().used_bytes, 0);
    let error = device.flush_trace().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge, "{error}");
}

#[test]
fn in_a_process_of_its_own() {
    match std::env::var(CASE).as_deref() {
        Ok("report") => report(),
        Ok("opening") => opening(),
        Ok("full trace") => full_trace(),
        _ => {}
    }
}

fn run(case: &str, trace: Option<&str>, stderr: Stdio) -> ExitStatus {
    let mut command = process::test("output::in_a_process_of_its_own");
    command.env(CASE, case).env_remove("MILLPOND_TRACE");
    command.envs(trace.map(|trace| ("MILLPOND_TRACE", trace)));
    command.stdout(Stdio::null()).stderr(stderr).status().unwrap()
}

/// Runs a case whose standard error nobody can read.
#[track_caller]
fn check(case: &str, trace: Option<&str>) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, without_reader) = std::io::pipe().unwrap();
    drop(reader);
    for (stderr, what) in [(Stdio::from(full), "is full"), (without_reader.into(), "has no reader")] {
        let status = run(case, trace, stderr);
        assert!(status.success(), "{case}, where standard error {what}: {status}");
    }
}

#[test]
fn a_report_that_nobody_can_read_is_no_panic() {
    check("report", None);
}

#[test]
fn a_trace_that_cannot_be_opened_is_no_panic() {
    check("opening", Some("/dev/full/trace"));
}

#[test]
fn a_trace_at_the_limit_of_files_ends_there() {
    let path = std::env::temp_dir().join(format!("output-{}.trace", std::process::id()));
    check("full trace", path.to_str());
    let written = path.metadata().unwrap().len();
    std::fs::remove_file(&path).unwrap();
    assert!((LIMIT / 2..=LIMIT).contains(&written), "{written} B");
}
