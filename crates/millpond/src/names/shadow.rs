//! A checker that checks each operation as the library decides it, and that reports where the two differ.
//!
//! For tests, in builds with debug assertions: differences are appended to the file that `MILLPOND_SHADOW` names.
//! Each thread that opens devices has its own checker for them. Later differences may follow from the first one, so
//! only the first one is written.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::op::{Names, Op, What};

/// The environment variable that asks for it.
const VARIABLE: &str = "MILLPOND_SHADOW";

thread_local! {
    /// The library's reason for refusing the operation being written, if it is refused.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A checker that runs beside the library.
pub(crate) struct Shadow {
    checker: Checker,
    findings: Vec<Finding>,
    steps: u64,
    is_over: bool,
    file: PathBuf,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Runs `write` for an operation. If there is an error, notes that the operation was refused.
pub(crate) fn judged<R>(error: Option<&impl Display>, write: impl FnOnce() -> R) -> R {
    let Some(error) = error.filter(|_| cfg!(debug_assertions)) else { return write() };
    let say = |said| REFUSED.try_with(|refused| refused.replace(said)).unwrap_or_default();
    let before = say(Some(error.to_string()));
    let written = write();
    say(before);
    written
}

impl Shadow {
    /// Returns a shadow if the environment asks for one.
    pub(crate) fn of_environment() -> Option<Box<Shadow>> {
        let file = PathBuf::from(std::env::var_os(VARIABLE).filter(|_| cfg!(debug_assertions))?);
        let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
        let (checker, findings) = (Checker::new(settings), Vec::new());
        Some(Box::new(Shadow { checker, findings, steps: 0, is_over: false, file }))
    }

    /// Checks the next operation.
    pub(crate) fn step(&mut self, op: &Op, names: &Names) {
        if self.is_over {
            return;
        }
        self.steps += 1;
        self.findings.clear();
        let is_done = self.checker.check(op, names, &mut self.findings);
        // Something that is made for an operation and ends with it is not what was refused.
        let is_beside = matches!(
            op.what,
            What::EventCreate { .. } | What::EventCopy { .. } | What::EventDestroy { .. } | What::ExecDestroy { .. }
        );
        let is_done = is_done || is_beside;
        let refused = REFUSED.try_with(|refused| refused.borrow().clone()).unwrap_or_default();
        let refused = refused.filter(|_| !is_beside);
        if is_done == refused.is_none() {
            return;
        }
        self.is_over = true;
        let thread = std::thread::current();
        let (test, step) = (thread.name().unwrap_or("a thread").to_owned(), self.steps);
        let found = self
            .findings
            .first()
            .map_or_else(|| "refused, quietly".to_owned(), |it| format!("{}: {it}", it.kind.name()));
        let checker = if is_done { "done".to_owned() } else { found };
        let place = op.place.describe(names);
        let text = format!(
            "== {test}: step {step} at {place}\n{:?}\nlibrary: {}\nchecker: {checker}\n",
            op.what,
            refused.as_deref().unwrap_or("done"),
        );
        let opened = File::options().append(true).create(true).open(&self.file);
        if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes())) {
            millpond_driver::output::say(format_args!("millpond: {}: {error}\n{text}", self.file.display()));
        }
    }
}
