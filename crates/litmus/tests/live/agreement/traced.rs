//! Runs a program with a trace, and checks that trace.
//!
//! The harness names a buffer of its own before each line of the program, so that the operations of the trace can be
//! assigned to lines.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::check::{Checker, Settings};
use millpond_core::op::{Names, Op, Place as OpPlace, What};
use millpond_core::trace::ops::Reader;
use millpond_litmus::Program;
use millpond_runner::{Found, Place, Refusal, Trace};

use crate::is_said;

/// The prefix of the names of the harness's buffer.
const LINE: &str = "line ";

/// A file that is removed when it is dropped.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file() -> File {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("millpond-agreement-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let shared = PathBuf::from("/dev/shm");
    File(if shared.is_dir() { shared } else { std::env::temp_dir() }.join(name))
}

/// Returns the verdicts of the library and of its trace, or of the traces of all processes. The error is the reason why
/// the library cannot run the program, and the line.
pub(crate) fn run(program: &Program, place: Place) -> Result<(Found, Found), (String, u32)> {
    if !program.settings().races {
        return Err(("settings of its own".into(), 0));
    }
    let files = RefCell::new(Vec::new());
    let create = || {
        let file = file();
        let trace = Trace::create(&file.0).expect("a file");
        files.borrow_mut().push((file, trace.clone()));
        Some(trace)
    };
    let mut live = millpond_runner::run(program.ops(), place, create(), &create)
        .map_err(|stopped| (stopped.to_string(), stopped.line))?;
    let mut by_trace = Found::default();
    for (file, trace) in files.into_inner() {
        trace.flush().expect("it is written");
        let bytes = std::fs::read(&file.0).expect("it is there");
        let found = check(&bytes, Settings { unused_graphs: false, ..program.settings() });
        by_trace.verdict.extend(found.verdict);
        by_trace.numbers.extend(found.numbers);
    }
    live.verdict.retain(|it| is_said(it.kind));
    Ok((live, by_trace))
}

/// Returns the verdict on a trace, by the program's lines.
fn check(bytes: &[u8], settings: Settings) -> Found {
    let (mut reader, mut checker, mut findings) = (Reader::new(), Checker::new(settings), Vec::new());
    reader.feed(bytes);
    let line = Cell::new(0);
    while let Some(op) = reader.next_op().expect("it is not damaged") {
        if let Some(named) = named_line(&op, reader.names()) {
            line.set(named);
            continue;
        }
        let op = Op { place: OpPlace::Line(line.get()), ..op };
        checker.check(&op, reader.names(), &mut findings);
    }
    checker.finish(reader.names(), &mut findings);
    let said = findings.iter().filter(|finding| is_said(finding.kind) && finding.line() != Some(0));
    let mut found = Found::default();
    for finding in said {
        let expected = Refusal { line: finding.line().unwrap_or(0), kind: finding.kind };
        // Of several findings the library reports the first.
        found.numbers.entry(expected).or_insert(millpond_runner::numbers(finding));
        found.verdict.insert(expected);
    }
    found
}

fn named_line(op: &Op, names: &Names) -> Option<u32> {
    let What::SetName { name, .. } = &op.what else { return None };
    names.text(*name)?.strip_prefix(LINE)?.parse().ok()
}
