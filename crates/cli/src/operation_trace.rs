//! Operation traces from any source of bytes, read operation by operation.

use std::fmt;
use std::io::{BufRead, ErrorKind, Read};

use millpond_core::op::{Names, Op, Ops};
use millpond_core::trace::ops::{Damage, Reader, Reason};

use crate::refusal::{Place, Refusal};

/// The number of bytes to read at a time.
const CHUNK: usize = 1 << 16;

/// An operation trace, read piece by piece. A trace that ends in the middle of a record comes from a program that was
/// stopped while it wrote. What was written before is still valid.
pub struct Trace<R = Box<dyn BufRead>> {
    reader: Reader,
    source: R,
    buffer: Vec<u8>,
    cut: Option<Damage>,
}

impl<R> Trace<R> {
    /// Starts at the beginning of a source.
    pub(crate) fn new(source: R) -> Self {
        Self { reader: Reader::new(), source, buffer: vec![0; CHUNK], cut: None }
    }

    /// Returns `true` if the program closed the trace. A program that was stopped did more than the trace has.
    pub fn is_whole(&self) -> bool {
        self.reader.is_finished()
    }

    /// Returns the place where the trace is cut, once all of it was read.
    pub(crate) fn cut(&self) -> Option<Refusal> {
        self.cut.map(damaged)
    }
}

impl<R> fmt::Debug for Trace<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl<R: Read> Ops for Trace<R> {
    type Error = Refusal;

    fn next_op(&mut self) -> Result<Option<Op>, Refusal> {
        loop {
            if let Some(op) = self.reader.next_op().map_err(damaged)? {
                return Ok(Some(op));
            }
            match self.source.read(&mut self.buffer) {
                Ok(0) => {
                    self.cut = self.reader.end().err();
                    return match self.cut {
                        Some(damage) if damage.reason != Reason::Cut => Err(damaged(damage)),
                        _ => Ok(None),
                    };
                }
                Ok(read) => self.reader.feed(&self.buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Refusal::from_read(Place::Whole, &error)),
            }
        }
    }

    fn names(&self) -> &Names {
        self.reader.names()
    }
}

fn damaged(damage: Damage) -> Refusal {
    Refusal::new(Place::Byte(damage.offset), damage.to_string()).help("copy the file, or trace the program, again")
}
