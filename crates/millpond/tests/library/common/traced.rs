//! Traces, read whole.

use std::path::Path;

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::op::{Op, What};
use millpond_core::trace::ops::Reader;

/// Goes through the operations of a trace; whatever else there is to say of it, the reader knows.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Op, &Reader)) -> Reader {
    let mut reader = Reader::new();
    reader.feed(&std::fs::read(path).unwrap());
    while let Some(op) = reader.next_op().unwrap() {
        each(op, &reader);
    }
    reader
}

/// What a checker finds in a trace that is whole, given those of its operations that count.
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
