//! Makes a trace: takes operations, and returns frames of bytes.
//!
//! It fills one frame. Its owner writes the finished frames to the file, and so decides how much a crash can lose.

use super::bytes::put_number;
use super::frame::{FRAME_HEAD, header, seal};
use super::place::put_place;
use super::state::{Last, Out, Written};
use super::table;
use crate::op::{Names, Op, Place};

/// A bit of an operation's code: a host thread follows, because it differs from the one before.
pub(super) const HOST: u8 = 0x40;
/// A bit of an operation's code: a place follows.
pub(super) const PLACE: u8 = 0x80;

/// The number of bytes at which a frame is due, 64 KiB.
const FRAME_BYTES: usize = 1 << 16;

/// A writer of a trace.
#[derive(Debug)]
pub struct Writer {
    /// The header, until the first frame has left, then the frame being filled, with room for its head.
    frame: Vec<u8>,
    /// The offset of that frame.
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
    /// Makes the writer of a new trace.
    pub fn new() -> Self {
        let mut frame = Vec::with_capacity(FRAME_BYTES + 1024);
        frame.extend_from_slice(&header());
        let begin = frame.len();
        frame.resize(begin + FRAME_HEAD, 0);
        Self { frame, begin, ops: 0, last: Last::new(), known: Written::default() }
    }

    /// Adds an operation. `names` is the table of its names, which must be the same for all operations of a trace.
    /// Texts of more than 4096 bytes and lists of more than 16 777 216 accesses are cut, because a frame must have
    /// room for them.
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

    /// Returns `true` if a frame is due. [`seal`](Self::seal) it then.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frame.len() >= FRAME_BYTES
    }

    /// Returns the number of bytes that a crash would lose now.
    pub fn pending(&self) -> usize {
        if self.ops == 0 { 0 } else { self.frame.len() - self.begin }
    }

    /// Closes the frame being filled and returns its bytes, which belong at the end of the trace. Returns nothing if
    /// nothing is new.
    pub fn seal(&mut self) -> Vec<u8> {
        if self.ops == 0 && self.begin == 0 {
            return Vec::new();
        }
        self.close(false)
    }

    /// As [`seal`](Self::seal), followed by the end frame: everything that the program had is closed, and nothing is
    /// missing. More frames may follow all the same.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut bytes = self.seal();
        bytes.append(&mut self.close(true));
        bytes
    }

    /// As [`seal`](Self::seal), and with `is_finished` as [`finish`](Self::finish). The bytes are passed to `put`
    /// without a copy. Allocates no memory.
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

    /// As [`seal`](Self::seal), but always makes a frame, so that a finished trace goes on: it is not complete before
    /// it is finished again.
    pub fn reopen(&mut self) -> Vec<u8> {
        self.close(false)
    }

    /// Closes the frame being filled in place, without allocating memory, for the handler of a fatal signal. The
    /// bytes belong at the end of the trace, and nothing may be added any more.
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
