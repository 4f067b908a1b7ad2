//! Operation traces of any source of bytes, operation by operation.

use std::fmt;
use std::io::{BufRead, ErrorKind, Read};

use millpond_core::op::{Names, Op, Ops};
use millpond_core::trace::ops::{Damage, Reader, Reason};

use crate::refusal::{Place, Refusal};

/// How many bytes are read at a time.
const CHUNK: usize = 1 << 16;

/// An operation trace, read piece by piece. Where it ends in the middle of something the program was stopped while it
/// wrote: what it had written before is right.
pub struct Trace<R = Box<dyn BufRead>> {
    reader: Reader,
    source: R,
    buffer: Vec<u8>,
    cut: Option<Damage>,
}

impl<R> Trace<R> {
    /// From the beginning of a source.
    pub(crate) fn new(source: R) -> Self {
        Self { reader: Reader::new(), source, buffer: vec![0; CHUNK], cut: None }
    }

    /// Whether the program closed the trace: one that was stopped has done more than what is there.
    pub fn is_whole(&self) -> bool {
        self.reader.is_finished()
    }

    /// Where it ends in the middle, once all was read.
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
