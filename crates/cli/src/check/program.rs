//! Programs to check, read from files: litmus programs and operation traces. The content decides, not the name.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;

use millpond_core::op::{Names, Op, Ops};
use millpond_core::trace::ops::{Damage, Reader, Reason};
use millpond_litmus::{Program, Refusal};

use crate::recorded;
use crate::source::{Kind, Opened};

/// How many bytes of a trace are read at a time.
const CHUNK: usize = 1 << 16;
/// The longest litmus program, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// Why a file is no program.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unreadable {
    /// It cannot be opened or read.
    File(recorded::Refusal),
    /// It breaks off or breaks while it is read.
    Read(io::Error),
    /// It is no litmus program.
    Litmus(Refusal),
    /// It is a trace, and damaged.
    Trace(Damage),
    /// It is neither.
    Neither,
    /// It has no operation.
    Nothing,
    /// A schedule is asked for, and it is a trace.
    NoWitness,
    /// A correction is asked for, and it is a trace.
    NoFix,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::File(refusal) => refusal.fmt(f),
            Unreadable::Read(error) => write!(f, "cannot be read: {error}"),
            Unreadable::Litmus(Refusal { line, what, help }) => write!(f, "line {line}: {what}\n  help: {help}"),
            Unreadable::Trace(damage) => {
                write!(f, "byte {}: {damage}\n  help: copy the file, or trace the program, again", damage.offset)
            }
            Unreadable::Nothing => f.write_str(
                "no operation is in it: there is nothing to check\n  help: a program that opens no device, or was \
                 stopped before it had written anything, leaves such a trace",
            ),
            Unreadable::NoWitness => f.write_str(
                "an operation trace has no witness: it is not run again\n  help: leave --witness out, or write what is \
                 wrong as a litmus program",
            ),
            Unreadable::NoFix => f.write_str(
                "an operation trace cannot be corrected: change the program\n  help: without --fix each finding says \
                 what to change; --json has it as `edit`",
            ),
            Unreadable::Neither => f.write_str(
                "neither a litmus program (text of at most 1 MiB) nor an operation trace\n  help: docs/litmus.md and \
                 docs/formats.md describe both",
            ),
        }
    }
}

impl std::error::Error for Unreadable {}

impl From<Damage> for Unreadable {
    fn from(damage: Damage) -> Self {
        Unreadable::Trace(damage)
    }
}

/// A program that was opened.
#[derive(Debug)]
pub enum Source {
    /// A litmus program, with its text.
    Litmus {
        /// As it stands in the file.
        text: String,
        /// As it was understood.
        program: Program,
    },
    /// A trace, read as it is checked.
    Trace(Box<Trace>),
}

/// Opens a program; a gzipped one, too.
///
/// # Errors
/// Where it is none, with the line and the reason.
pub fn open(path: &Path) -> Result<Source, Unreadable> {
    let opened = Opened::open(path).map_err(Unreadable::File)?;
    let kind = opened.kind();
    if let (Kind::Recording | Kind::Table, Some(refusal)) = (kind, opened.refuse("check")) {
        return Err(Unreadable::File(refusal));
    }
    if opened.is_empty() {
        let refusal = recorded::Refusal::new(recorded::Place::Whole, "the file is empty: there is nothing to check");
        return Err(Unreadable::File(refusal.help("write a litmus program, or record a trace with `millpond record`")));
    }
    let source = opened.unzipped().map_err(Unreadable::File)?;
    if kind == Kind::Trace {
        return Ok(Source::Trace(Box::new(Trace { reader: Reader::new(), source, buffer: vec![0; CHUNK], read: 0 })));
    }
    let mut bytes = Vec::new();
    source.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(Unreadable::Read)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) if text.len() as u64 <= TEXT_MAX && !text.contains('\0') => text,
        _ => return Err(Unreadable::Neither),
    };
    match Program::parse(&text) {
        Ok(program) => Ok(Source::Litmus { text, program }),
        Err(refusal) => Err(Unreadable::Litmus(refusal)),
    }
}

/// An operation trace, read piece by piece.
pub struct Trace {
    reader: Reader,
    source: Box<dyn BufRead>,
    buffer: Vec<u8>,
    /// How many operations were read.
    read: u64,
}

impl Trace {
    /// Whether the program closed the trace: one that was stopped has done more than what is there.
    pub fn is_whole(&self) -> bool {
        self.reader.is_finished()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl Ops for Trace {
    type Error = Unreadable;

    fn next_op(&mut self) -> Result<Option<Op>, Unreadable> {
        loop {
            if let Some(op) = self.reader.next_op()? {
                self.read += 1;
                return Ok(Some(op));
            }
            match self.source.read(&mut self.buffer) {
                Ok(0) => {
                    return match self.reader.end() {
                        // The program was stopped while it wrote: what it had written before is right.
                        Err(damage) if damage.reason == Reason::Cut && self.read > 0 => Ok(None),
                        end => Ok(end.map(|()| None)?),
                    };
                }
                Ok(read) => self.reader.feed(&self.buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unreadable::Read(error)),
            }
        }
    }

    fn names(&self) -> &Names {
        self.reader.names()
    }
}
