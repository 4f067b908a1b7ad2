//! An exporter's trace has the uses of its importers, and the checker finds nothing wrong in it.

use std::path::Path;

use millpond::config::Trace;
use millpond::{Device, HostConfig};
use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::op::{Op, What};
use millpond_core::trace::ops::Reader;

use super::child::Child;
use super::{Side, eventually, fill, import};

#[test]
fn importers_that_come_and_go_are_in_the_trace() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share.trace");
    let trace = Trace::create(&path).unwrap();
    let config = HostConfig::default().trace(trace.clone());
    let side = Side::of(Device::host(config).unwrap());
    let (mut good, mut bad) = (Child::new(), Child::new());
    let (first, second, third) = (side.filled(1000, 1), side.filled(1000, 2), side.filled(1000, 3));
    good.must(format!("import x {}", first.export().unwrap()));
    good.must("fill x 7");
    bad.must(format!("import x {}", second.export().unwrap()));
    bad.must(format!("import y {}", third.export().unwrap()));
    good.must("free x");
    good.must("sync");
    side.stream.free(first).unwrap();
    drop(third);
    bad.kill();
    side.stream.free(second).unwrap();
    good.end();
    side.assert_empty();
    drop((side, trace));

    let (ops, findings) = read(&path);
    let count = |of: &dyn Fn(&What) -> bool| ops.iter().filter(|op| of(&op.what)).count();
    assert_eq!(count(&|what| matches!(what, What::Export { .. })), 3);
    assert_eq!(count(&|what| matches!(what, What::Import { .. })), 3);
    assert_eq!(count(&|what| matches!(what, What::Drop { .. })), 4, "three holds end, and one buffer is dropped");
    assert!(findings.is_empty(), "{findings:#?}");
}

/// The owner repeats its free while an importer returns the memory or is killed. The trace has as many wrong frees as
/// were refused, because the end of the lease is in it before the free that it allows.
#[test]
fn what_a_holds_end_allows_comes_after_it_in_the_trace() {
    for is_killed in [false, true] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("share-end-{is_killed}.trace"));
        let trace = Trace::create(&path).unwrap();
        let side = Side::of(Device::host(HostConfig::default().trace(trace.clone())).unwrap());
        let mut refusals = 0;
        for _ in 0..20 {
            let mut child = Child::new();
            let mut buffer = side.filled(1000, 1);
            child.must(format!("import x {}", buffer.export().unwrap()));
            std::thread::scope(|scope| {
                scope.spawn(|| match is_killed {
                    true => child.kill(),
                    false => {
                        child.must("free x");
                        child.must("sync");
                        child.end();
                    }
                });
                while let Err(refused) = side.stream.free(buffer) {
                    buffer = refused.buffer;
                    refusals += 1;
                }
            });
        }
        side.assert_empty();
        drop((side, trace));
        let (_, findings) = read(&path);
        assert_eq!(findings.len(), refusals, "killed: {is_killed}");
    }
}

#[test]
fn an_importers_trace_is_right_by_itself() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share-import.trace");
    let trace = Trace::create(&path).unwrap();
    let config = HostConfig::default().trace(trace.clone());
    let (there, here) = (Side::new(), Side::of(Device::host(config).unwrap()));
    let buffer = there.stream.alloc::<u32>(&there.pool, 1000).unwrap();
    for is_dropped in [false, true] {
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        let event = there.stream.record().unwrap().export().unwrap();
        here.stream.wait(&here.device.import_event(&event).unwrap()).unwrap();
        fill(&here.stream, &imported, 1).unwrap();
        match is_dropped {
            true => drop(imported),
            false => here.stream.free(imported).unwrap(),
        }
    }
    here.device.synchronize().unwrap();
    there.stream.free(buffer).unwrap();
    drop((here, trace));
    eventually("the trace is closed", || read(&path).0.len() > 5);
    let (ops, findings) = read(&path);
    assert_eq!(ops.iter().filter(|op| matches!(op.what, What::AllocNow { bytes: 4000, .. })).count(), 2);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Returns the operations of a trace, and the checker's findings in them.
fn read(path: &Path) -> (Vec<Op>, Vec<Finding>) {
    let mut reader = Reader::new();
    reader.feed(&std::fs::read(path).unwrap());
    let mut ops: Vec<Op> = Vec::new();
    while let Some(op) = reader.next_op().unwrap() {
        ops.push(op);
    }
    let (mut checker, mut findings) = (Checker::new(Settings::RECORDED), Vec::new());
    for op in &ops {
        checker.check(op, reader.names(), &mut findings);
    }
    checker.finish(reader.names(), &mut findings);
    (ops, findings)
}
