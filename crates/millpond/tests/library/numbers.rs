//! Numbers: operations have the same numbers in a refusal and in a trace, and a trace never confuses devices.

use std::path::{Path, PathBuf};

use crate::common::{Subject, makes, process, traced, visit};
use millpond::config::Trace;
use millpond::{Device, DeviceConfig, HostConfig};
use millpond_core::check::{Finding, Settings, Side};
use millpond_core::op::What;

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbers");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Numbers of devices are never used again in a trace: if they ran out, two devices would be taken for one.
#[test]
fn a_trace_that_is_full_takes_no_other_device() {
    let path = file("full.trace");
    let trace = Trace::create(&path).unwrap();
    let open = || Device::host(HostConfig::default().trace(trace.clone()));
    let first = open().unwrap();
    let (s, t) = (first.stream().unwrap(), first.stream().unwrap());
    let x = s.alloc::<u8>(&first.default_pool(), 100).unwrap();
    for _ in 1..254 {
        let other = open().unwrap();
        let stream = other.stream().unwrap();
        stream.free(stream.alloc::<u8>(&other.default_pool(), 100).unwrap()).unwrap();
    }
    let refused = open().unwrap_err();
    assert!(refused.to_string().contains("trace: the trace has had 254 devices"), "{refused}");
    t.wait(&s.record().unwrap()).unwrap();
    visit(&t, x.read()).unwrap();
    t.free(x).unwrap();
    drop((s, t, first, trace));
    assert_eq!(findings(&path), []);
}

/// The program of the next test.
#[test]
#[ignore = "run by another test"]
fn three_hundred_devices() {
    for _ in 0..300 {
        let device = Device::host(HostConfig::default()).unwrap();
        let stream = device.stream().unwrap();
        stream.free(stream.alloc::<u8>(&device.default_pool(), 100).unwrap()).unwrap();
    }
}

#[test]
fn further_devices_are_in_a_further_trace_where_the_environment_asks() {
    let path = file("further.trace");
    let program = process::test("numbers::three_hundred_devices").env("MILLPOND_TRACE", &path).output().unwrap();
    assert!(program.status.success());
    let further = file("further.trace.2");
    for (path, devices) in [(&path, 254), (&further, 46)] {
        assert_eq!((frees(path), findings(path)), (devices, vec![]), "{}", path.display());
    }
}

/// Every call of a program is counted, also a wait that adds nothing. Other order that a stream learns is not counted,
/// nor is a drop.
#[test]
fn operations_have_the_same_numbers_in_a_refusal_and_in_the_trace() {
    makes().into_iter().for_each(|make| {
        let path = file(&format!("operations-{make:?}.trace"));
        let trace = Trace::create(&path).unwrap();
        let device = Subject::with(make, DeviceConfig::default().trace(trace.clone())).device;
        let pool = device.default_pool();
        let (s, t, legacy) = (device.stream().unwrap(), device.non_blocking_stream().unwrap(), device.legacy_stream());
        for _ in 0..3 {
            visit(&s, ()).unwrap();
            visit(&legacy, ()).unwrap();
            drop(s.alloc::<u8>(&pool, 100).unwrap());
            let event = t.record().unwrap();
            s.wait(&event).unwrap();
            s.wait(&event).unwrap();
            s.synchronize().unwrap();
        }
        t.wait(&s.record().unwrap()).unwrap();
        let x = s.alloc::<u8>(&pool, 100).unwrap();
        visit(&t, ()).unwrap();
        let refused = visit(&t, x.read()).unwrap_err();
        let found = refused.violation().unwrap();
        let numbers = |found: &Finding| {
            let op = |side: &Option<Side>| side.as_ref().unwrap().op;
            (op(&found.earlier), op(&found.later), found.known.as_ref().unwrap().op)
        };
        assert_eq!(numbers(found), (Some(14), Some(6), Some(13)), "{}", refused.report());
        t.wait(&s.record().unwrap()).unwrap();
        t.free(x).unwrap();
        drop((s, t, legacy, pool, device, trace));
        let by_trace = findings(&path);
        assert_eq!((by_trace.len(), numbers(&by_trace[0])), (1, numbers(found)));
    });
}

/// Returns the number of frees in a complete trace.
fn frees(path: &Path) -> usize {
    let mut frees = 0;
    let reader = traced::read(path, |op, _| frees += usize::from(matches!(op.what, What::Free { .. })));
    assert!(reader.is_finished());
    frees
}

/// Returns the findings of a trace.
fn findings(path: &Path) -> Vec<Finding> {
    let mut findings = traced::findings(path, Settings::RECORDED, |_| true);
    findings.retain(|finding| !finding.kind.is_advice());
    findings
}
