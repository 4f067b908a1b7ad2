//! What an exporter's trace says of its importers, and that the checker finds nothing wrong in it.

use std::path::Path;

use millpond::{Device, HostConfig, Trace};
use millpond_core::check::{Checker, Settings};
use millpond_core::ids::ProcessId;
use millpond_core::op::{Op, What};
use millpond_core::trace::ops::Reader;

use crate::Side;
use crate::child::Child;

#[test]
fn importers_that_come_and_go_are_in_the_trace() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share.trace");
    let trace = Trace::create(&path).unwrap();
    let config = HostConfig { trace: Some(trace.clone()), ..HostConfig::default() };
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
    let lost = ProcessId(bad.id());
    bad.kill();
    side.stream.free(second).unwrap();
    good.end();
    side.assert_empty();
    drop((side, trace));

    let mut reader = Reader::new();
    reader.feed(&std::fs::read(&path).unwrap());
    let mut ops: Vec<Op> = Vec::new();
    while let Some(op) = reader.next_op().unwrap() {
        ops.push(op);
    }
    let count = |of: &dyn Fn(&What) -> bool| ops.iter().filter(|op| of(&op.what)).count();
    assert_eq!(count(&|what| matches!(what, What::Export { .. })), 3);
    assert_eq!(count(&|what| matches!(what, What::Import { .. })), 3);
    assert_eq!(count(&|what| *what == What::ProcessEnd { process: lost }), 1);
    let (mut checker, mut findings) = (Checker::new(Settings::default()), Vec::new());
    for op in &ops {
        checker.check(op, reader.names(), &mut findings);
    }
    checker.finish(reader.names(), &mut findings);
    assert!(findings.is_empty(), "{findings:#?}");
}
