//! The destination of operations: a trace, or the checker.
//!
//! A trace is opened with the first operation, so that a program that only asks for devices leaves none. It is written
//! in frames small enough that a crash loses little. The handler of fatal signals writes the rest.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use millpond_core::op::{Names, Op, What};
use millpond_core::trace::ops::Writer;
use millpond_driver::output::say;

use crate::arguments::Ahead;
use crate::judge::Judge;
use crate::own_file::OwnFile;
use crate::report;

/// The most operations in a frame.
const FRAME_OPS: u32 = 512;

/// The destination of operations.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A trace.
    Trace(Box<Trace>),
    /// The checker.
    Judge(Box<Judge>),
}

impl Sink {
    /// Returns the array of what is known of memory, by number, for prefetching. A trace has none.
    #[inline]
    pub(crate) fn ahead(&self) -> Ahead {
        match self {
            Sink::Trace(_) => Ahead { first: std::ptr::from_ref(self).cast(), step: 0 },
            Sink::Judge(judge) => judge.ahead(),
        }
    }

    /// Takes an operation. Calls `tell` if something was found.
    #[inline]
    pub(crate) fn push(&mut self, op: &Op, names: &Names, tell: impl FnOnce(&mut Judge)) {
        match self {
            Sink::Trace(trace) => trace.push(op, names),
            Sink::Judge(judge) => {
                if judge.push(op, names) {
                    tell(judge);
                }
            }
        }
    }
}

/// Ends a trace: nothing more is written to it.
fn end(file: &mut Option<OwnFile>, why: &dyn Display) {
    if file.take().is_some() {
        say(format_args!("millpond: the trace ends here: {why}"));
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace {
    writer: Writer,
    /// The path that was asked for.
    wanted: PathBuf,
    file: Option<OwnFile>,
    is_open: bool,
    ops: u32,
    /// `true` while the process ends: no later call writes the rest.
    is_ending: bool,
    /// `true` if the end is written, and nothing came after it.
    is_finished: bool,
}

impl Trace {
    /// Returns a trace for a file. If the file exists, it is another process's, and this trace gets its process's
    /// number in its name.
    pub(crate) fn new(wanted: PathBuf) -> Self {
        Self { writer: Writer::new(), wanted, file: None, is_open: false, ops: 0, is_ending: false, is_finished: false }
    }

    /// Adds an operation.
    #[inline]
    pub(crate) fn push(&mut self, op: &Op, names: &Names) {
        if !self.is_open {
            self.open();
        }
        self.writer.push(op, names);
        self.ops += 1;
        self.is_finished = false;
        let is_wait = matches!(
            op.what,
            What::StreamSynchronize { .. } | What::EventSynchronize { .. } | What::SynchronizeDevice { .. }
        );
        if self.ops >= FRAME_OPS || self.is_ending || is_wait || self.writer.is_full() {
            self.write();
        }
    }

    #[cold]
    fn open(&mut self) {
        self.is_open = true;
        let numbered = |count: u32| {
            let mut name = self.wanted.clone().into_os_string();
            name.push(format!(".{}", std::process::id()));
            if count > 0 {
                name.push(format!(".{count}"));
            }
            PathBuf::from(name)
        };
        let names = std::iter::once(self.wanted.clone()).chain((0..1000).map(numbered));
        let mut tried = Err(io::ErrorKind::AlreadyExists.into());
        for name in names {
            tried = OwnFile::create(&name).map(|file| (name, file));
            if !matches!(&tried, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        match tried {
            Ok((name, file)) => {
                self.file = Some(file);
                report::add(&format!("trace\t{}\n", name.display()));
            }
            Err(error) => {
                let path = self.wanted.display();
                say(format_args!("millpond: the trace {path} cannot be written: {error}; nothing is recorded"));
            }
        }
    }

    #[cold]
    fn write(&mut self) {
        self.ops = 0;
        self.is_finished = self.is_ending;
        let Self { writer, file, .. } = self;
        writer.write_to(self.is_ending, |bytes| {
            let Some(open) = file else { return };
            if let Err(error) = open.write(bytes) {
                end(file, &error);
            }
        });
    }

    /// Ends the trace here, without the statement that it is complete.
    pub(crate) fn end_here(&mut self, why: &str) {
        self.write();
        end(&mut self.file, &why);
    }

    /// Writes everything, and that the trace is complete: the process ends.
    pub(crate) fn finish(&mut self) {
        self.is_ending = true;
        self.write_rest();
    }

    /// Writes everything, and that the trace is complete: another program replaces this one. If that fails, the trace
    /// goes on.
    pub(crate) fn leave(&mut self) {
        let was_ending = std::mem::replace(&mut self.is_ending, true);
        self.write_rest();
        self.is_ending = was_ending;
    }

    fn write_rest(&mut self) {
        if self.is_open && !self.is_finished {
            self.write();
        }
    }

    /// Writes what there is, without allocating: the process crashes.
    pub(crate) fn save(&mut self) {
        let Some(file) = &mut self.file else { return };
        // If it cannot be written, it is lost.
        let _ = file.write_if_there(self.writer.seal_in_place());
    }
}
