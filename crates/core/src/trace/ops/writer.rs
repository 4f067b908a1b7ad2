//! Makes a trace: operations in, frames of bytes out.
//!
//! It fills one frame; whoever owns it writes the sealed frames where they are to be kept, and so decides how much a
//! crash can lose.

use super::bytes::put_number;
use super::frame::{FRAME_HEAD, header, seal};
use super::place::put_place;
use super::state::{Last, Out, Written};
use super::table;
use crate::op::{Names, Op, Place};

/// A set bit of an operation's code: a host thread follows, other than the one before.
pub(super) const HOST: u8 = 0x40;
/// A set bit of an operation's code: a place follows.
pub(super) const PLACE: u8 = 0x80;

/// A frame is due when it has so many bytes, 64 KiB.
const FRAME_BYTES: usize = 1 << 16;

/// Makes a trace.
#[derive(Debug)]
pub struct Writer {
    /// The header, while no frame has left, then the frame that is filled, with room for its head.
    frame: Vec<u8>,
    /// Where in that the frame begins.
    begin: usize,
    ops: u32,
    last: Last,
    known: Written,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Begins a trace.
    pub fn new() -> Self {
        let mut frame = Vec::with_capacity(FRAME_BYTES + 1024);
        frame.extend_from_slice(&header());
        let begin = frame.len();
        frame.resize(begin + FRAME_HEAD, 0);
        Self { frame, begin, ops: 0, last: Last::new(), known: Written::default() }
    }

    /// Adds an operation. `names` is the table that its names are of, the same for all operations of a trace. Texts of
    /// more than 4096 bytes are cut, lists of more than 16 777 216 accesses too: a frame must have room.
    #[inline]
    pub fn push(&mut self, op: &Op, names: &Names) {
        let mut code = table::code(&op.what);
        if op.host != self.last.host {
            code |= HOST;
        }
        if op.place != Place::Unknown {
            code |= PLACE;
        }
        self.frame.push(code);
        if op.host != self.last.host {
            put_number(&mut self.frame, u64::from(op.host.0));
            self.last.host = op.host;
        }
        let mut out = Out { bytes: &mut self.frame, last: &mut self.last, names, known: &mut self.known };
        put_place(&mut out, &op.place);
        table::put(&op.what, &mut out);
        self.ops += 1;
    }

    /// Whether a frame is due: then [`seal`](Self::seal) it.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frame.len() >= FRAME_BYTES
    }

    /// Bytes that a crash would lose now.
    pub fn pending(&self) -> usize {
        if self.ops == 0 { 0 } else { self.frame.len() - self.begin }
    }

    /// Closes the frame that is filled, and hands out its bytes: they go to the end of the trace. Empty where there is
    /// nothing new.
    pub fn seal(&mut self) -> Vec<u8> {
        if self.ops == 0 && self.begin == 0 {
            return Vec::new();
        }
        self.close(false)
    }

    /// As [`seal`](Self::seal), with the mark that nothing is missing: everything that the program had is closed. More
    /// may follow all the same.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut bytes = self.seal();
        bytes.append(&mut self.close(true));
        bytes
    }

    /// As [`seal`](Self::seal), and as [`finish`](Self::finish) where nothing is missing; the bytes are handed to `put`
    /// where they lie. It takes no memory.
    pub fn write_to(&mut self, is_finished: bool, mut put: impl FnMut(&[u8])) {
        if self.ops > 0 || self.begin > 0 {
            self.close_to(false, &mut put);
        }
        if is_finished {
            self.close_to(true, &mut put);
        }
    }

    fn close_to(&mut self, is_end: bool, put: &mut impl FnMut(&[u8])) {
        seal(&mut self.frame[self.begin..], self.ops, is_end);
        put(&self.frame);
        // There is room for the head.
        self.frame.clear();
        self.frame.resize(FRAME_HEAD, 0);
        (self.begin, self.ops, self.last) = (0, 0, Last::new());
    }

    /// As [`seal`](Self::seal), and a frame in any case: what was finished goes on, and is not whole before it is
    /// finished again.
    pub fn reopen(&mut self) -> Vec<u8> {
        self.close(false)
    }

    /// Closes the frame that is filled where it lies, and takes no memory for it: for the handler of a fatal signal.
    /// These bytes go to the end of the trace, and nothing may be added any more.
    pub fn seal_in_place(&mut self) -> &[u8] {
        seal(&mut self.frame[self.begin..], self.ops, false);
        &self.frame
    }

    fn close(&mut self, is_end: bool) -> Vec<u8> {
        let mut next = Vec::with_capacity(FRAME_BYTES + 1024);
        next.resize(FRAME_HEAD, 0);
        let mut bytes = std::mem::replace(&mut self.frame, next);
        seal(&mut bytes[self.begin..], self.ops, is_end);
        (self.begin, self.ops, self.last) = (0, 0, Last::new());
        bytes
    }
}
