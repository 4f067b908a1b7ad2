//! Traces, read as a whole.

use std::path::Path;

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::op::{Op, What};
use millpond_core::trace::ops::Reader;

/// Runs `each` on the operations of a trace. The returned reader has the other facts about the trace.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Op, &Reader)) -> Reader {
    let mut reader = Reader::new();
    reader.feed(&std::fs::read(path).unwrap());
    while let Some(op) = reader.next_op().unwrap() {
        each(op, &reader);
    }
    reader
}

/// Returns a checker's findings in a complete trace, among those of its operations for which `counts` holds.
pub(crate) fn findings(path: &Path, settings: Settings, counts: impl Fn(&What) -> bool) -> Vec<Finding> {
    let (mut checker, mut findings) = (Checker::new(settings), Vec::new());
    let reader = read(path, |op, reader| {
        if counts(&op.what) {
            checker.check(&op, reader.names(), &mut findings);
        }
    });
    assert!(reader.is_finished(), "the trace is whole");
    checker.finish(reader.names(), &mut findings);
    findings
}
