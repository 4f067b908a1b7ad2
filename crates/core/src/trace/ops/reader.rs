//! Reads a trace: takes bytes as they come, and returns operations.
//!
//! It holds at most one frame. The caller provides the bytes; the reader reports the offset of any damage.

use super::bytes::Cursor;
use super::frame::{Damage, FRAME_HEAD, HEADER, Head, MAGIC, Reason, read_header};
use super::place::take_place;
use super::state::{In, Last, Taken};
use super::table;
use super::writer::{HOST, PLACE};
use crate::ids::HostId;
use crate::op::{Names, Op, Place};

/// A reader of a trace.
///
/// ```
/// use millpond_core::op::{Names, Op, What};
/// use millpond_core::trace::ops::{Reader, Writer};
///
/// let mut writer = Writer::new();
/// let op = Op { host: Default::default(), place: Default::default(), what: What::DeviceSynchronize {} };
/// writer.push(&op, &Names::new());
/// let trace = writer.finish();
///
/// let mut reader = Reader::new();
/// for bytes in trace.chunks(10) {
///     reader.feed(bytes); // then take what it has
///     while let Some(read) = reader.next_op()? {
///         assert_eq!(read, op);
///     }
/// }
/// reader.end()?; // nothing is left over
/// assert!(reader.is_finished()); // and nothing is missing
/// # Ok::<(), millpond_core::trace::ops::Damage>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    /// Bytes that were fed and are still needed.
    bytes: Vec<u8>,
    /// The position in them of the next read.
    at: usize,
    /// The number of bytes of the trace before them.
    offset: u64,
    state: State,
    /// `true` if the last frame was the end frame, which says that nothing is missing.
    is_finished: bool,
    last: Last,
    known: Taken,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The header has not been read.
    Header,
    /// A frame begins next.
    Between,
    /// Within a complete frame: where it ends, and the number of operations left.
    Within { end: usize, ops: u32 },
    /// The trace is damaged.
    Damaged(Damage),
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Makes a reader at the beginning of a trace.
    pub fn new() -> Self {
        let (last, known) = (Last::new(), Taken::default());
        Self { bytes: Vec::new(), at: 0, offset: 0, state: State::Header, is_finished: false, last, known }
    }

    /// Takes the next bytes of the trace. Feed at most a few frames at a time, because the bytes are kept until they
    /// are read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 && !matches!(self.state, State::Within { .. }) {
            self.bytes.drain(..self.at);
            self.offset += self.at as u64;
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next operation, or `None` if more bytes are needed first or the trace has ended.
    ///
    /// # Errors
    /// If the trace is damaged. Later calls return the same error.
    #[inline]
    pub fn next_op(&mut self) -> Result<Option<Op>, Damage> {
        if let State::Within { end, ops } = self.state
            && ops > 0
        {
            return self.read(end, ops).map(Some);
        }
        self.next_frame()
    }

    /// Returns the texts that the operations so far refer to.
    pub fn names(&self) -> &Names {
        &self.known.names
    }

    /// Returns `true` if the trace ends with the end frame: everything was written and closed, so that nothing is
    /// missing. An incomplete frame after it makes this `false`.
    pub fn is_finished(&self) -> bool {
        self.is_finished && self.at == self.bytes.len()
    }

    /// Ends the input: no more bytes come.
    ///
    /// # Errors
    /// [`Reason::Cut`] if the bytes end in the middle of a frame, or the damage found before. A trace that ends
    /// between two frames without the end frame is not an error: the program that wrote it was stopped.
    pub fn end(&self) -> Result<(), Damage> {
        match self.state {
            State::Damaged(damage) => Err(damage),
            State::Header if !MAGIC.starts_with(&self.bytes[..self.bytes.len().min(MAGIC.len())]) => {
                Err(Damage { offset: 0, reason: Reason::NotATrace })
            }
            State::Header => Err(self.damage(self.at, Reason::Cut)),
            State::Between if self.at < self.bytes.len() => Err(self.damage(self.at, Reason::Cut)),
            _ => Ok(()),
        }
    }

    /// Reads one operation of a frame.
    #[inline]
    fn read(&mut self, end: usize, ops: u32) -> Result<Op, Damage> {
        let cursor = Cursor::new(&self.bytes[..end], self.at);
        let mut from = In { bytes: cursor, last: &mut self.last, known: &mut self.known };
        match read_op(&mut from) {
            Ok(op) => {
                self.at = from.bytes.at();
                self.state = State::Within { end, ops: ops - 1 };
                Ok(op)
            }
            Err(reason) => {
                let at = from.bytes.at();
                Err(self.fail(at, reason))
            }
        }
    }

    /// Goes on to the next frame that has an operation, as far as there are bytes.
    #[cold]
    fn next_frame(&mut self) -> Result<Option<Op>, Damage> {
        loop {
            let behind = &self.bytes[self.at..];
            match self.state {
                State::Within { end, ops: 0 } if self.at == end => self.state = State::Between,
                State::Within { ops: 0, .. } => return Err(self.fail(self.at, Reason::Count)),
                State::Within { end, ops } => return self.read(end, ops).map(Some),
                State::Header => {
                    let Some(header) = behind.first_chunk::<HEADER>() else { return Ok(None) };
                    match read_header(header) {
                        Ok(()) => (self.state, self.at) = (State::Between, HEADER),
                        Err(reason) => return Err(self.fail(self.at, reason)),
                    }
                }
                State::Between => {
                    let Some(head) = behind.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
                    let head = match Head::read(head) {
                        Ok(head) => head,
                        Err(reason) => return Err(self.fail(self.at, reason)),
                    };
                    let Some(frame) = behind.get(..FRAME_HEAD + head.bytes) else { return Ok(None) };
                    if !head.matches(frame) {
                        return Err(self.fail(self.at, Reason::Checksum));
                    }
                    self.begin(head)?;
                }
                State::Damaged(damage) => return Err(damage),
            }
        }
    }

    /// Begins a complete frame.
    fn begin(&mut self, head: Head) -> Result<(), Damage> {
        if head.is_end && (head.bytes, head.ops) != (0, 0) {
            return Err(self.fail(self.at, Reason::Count));
        }
        self.at += FRAME_HEAD;
        self.last = Last::new();
        self.is_finished = head.is_end;
        self.state = State::Within { end: self.at + head.bytes, ops: head.ops };
        Ok(())
    }

    fn damage(&self, at: usize, reason: Reason) -> Damage {
        Damage { offset: self.offset + at as u64, reason }
    }

    #[cold]
    fn fail(&mut self, at: usize, reason: Reason) -> Damage {
        let damage = self.damage(at, reason);
        self.state = State::Damaged(damage);
        damage
    }
}

#[inline]
fn read_op(from: &mut In<'_, '_>) -> Result<Op, Reason> {
    let code = from.bytes.byte().ok_or(Reason::Short)?;
    if code & HOST != 0 {
        from.last.host = HostId(from.small()?);
    }
    let place = if code & PLACE != 0 { take_place(from)? } else { Place::Unknown };
    let what = table::take(code & !(HOST | PLACE), from)?;
    Ok(Op { host: from.last.host, place, what })
}
