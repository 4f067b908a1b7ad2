//! The header of a trace, its frames, and the errors in either.
//!
//! | bytes | of the header |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`VERSION`] |
//!
//! | bytes | of a frame |
//! |---|---|
//! | 4 | `ops` and a line feed; in the end frame, which has no operations, `end` and a line feed |
//! | 4 | number of bytes of operations that follow |
//! | 4 | number of these operations |
//! | 4 | CRC-32 (as in zip) of the 12 bytes before and of the operations |
//! | | the operations |
//!
//! Numbers are little-endian.

use std::fmt;

/// The first bytes of a trace: they are not text, and any conversion of line ends changes them.
pub const MAGIC: [u8; 8] = *b"\x89mptr\r\n\x1a";

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;

/// The most bytes of operations in a frame, 256 MiB: enough for one launch with the longest list of accesses. Most
/// frames have 64 KiB.
pub const FRAME_BYTES_MAX: usize = 1 << 28;

/// The number of bytes of the header.
pub(super) const HEADER: usize = 12;
/// The number of bytes of a frame before its operations.
pub(super) const FRAME_HEAD: usize = 16;

const OPS: [u8; 4] = *b"ops\n";
const END: [u8; 4] = *b"end\n";

/// An error in a trace. All operations returned before it are right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Damage {
    /// The offset of the error in the trace. For an error of a whole frame, the offset of the frame.
    pub offset: u64,
    /// The kind of error.
    pub reason: Reason,
}

/// The kinds of errors in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The trace does not begin with [`MAGIC`].
    NotATrace,
    /// The trace has another version.
    Version(u32),
    /// The trace ends in the middle of a frame: the program was stopped there, or the copy was cut.
    Cut,
    /// No frame begins here.
    NoFrame,
    /// The head of a frame has more bytes than the maximum.
    TooLarge(u32),
    /// The checksum of a frame is wrong.
    Checksum,
    /// The operations of a frame end in the middle of one.
    Short,
    /// A frame has another number of operations than its head says.
    Count,
    /// The code of an operation is unknown.
    Code(u8),
    /// An operation that only earlier versions wrote.
    Former(&'static str),
    /// A field has a value that is not possible.
    Field,
    /// A text is not UTF-8.
    Text,
    /// A text or place is used before it is given.
    Unknown(u64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotATrace => f.write_str("not an operation trace"),
            Reason::Version(version) => write!(f, "a trace of version {version}; version {VERSION} is known"),
            Reason::Cut => f.write_str("the trace ends in the middle of a frame"),
            Reason::NoFrame => f.write_str("no frame begins here"),
            Reason::TooLarge(bytes) => write!(f, "a frame of {bytes} bytes; {FRAME_BYTES_MAX} are the most"),
            Reason::Checksum => f.write_str("the frame's checksum is wrong"),
            Reason::Short => f.write_str("the frame ends in the middle of an operation"),
            Reason::Count => f.write_str("the frame has other operations than it says"),
            Reason::Code(code) => write!(f, "no operation has the code {code}"),
            Reason::Former(what) => {
                write!(
                    f,
                    "{what} is an operation of an earlier version, and not read any more: record the program again"
                )
            }
            Reason::Field => f.write_str("a field has a value that it cannot have"),
            Reason::Text => f.write_str("a text is not UTF-8"),
            Reason::Unknown(number) => write!(f, "number {number} is used before its text or place is given"),
        }
    }
}

/// Returns the header.
pub(super) fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Reads the header.
pub(super) fn read_header(bytes: &[u8; HEADER]) -> Result<(), Reason> {
    if bytes[..8] != MAGIC {
        return Err(Reason::NotATrace);
    }
    match number(bytes, 8) {
        VERSION => Ok(()),
        other => Err(Reason::Version(other)),
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// `true` if it is the end frame: everything was closed here.
    pub(super) is_end: bool,
    /// The number of bytes of operations.
    pub(super) bytes: usize,
    /// The number of operations.
    pub(super) ops: u32,
    checksum: u32,
}

impl Head {
    /// Reads a head.
    pub(super) fn read(head: &[u8; FRAME_HEAD]) -> Result<Self, Reason> {
        let is_end = match &head[..4] {
            tag if tag == OPS => false,
            tag if tag == END => true,
            _ => return Err(Reason::NoFrame),
        };
        let bytes = number(head, 4);
        if bytes as usize > FRAME_BYTES_MAX {
            return Err(Reason::TooLarge(bytes));
        }
        Ok(Self { is_end, bytes: bytes as usize, ops: number(head, 8), checksum: number(head, 12) })
    }

    /// Returns `true` if `frame`, with its head, has the right checksum.
    pub(super) fn matches(&self, frame: &[u8]) -> bool {
        checksum(frame) == self.checksum
    }
}

/// Fills in the head of a frame. `frame` begins with room for the head, and its operations follow.
pub(super) fn seal(frame: &mut [u8], ops: u32, is_end: bool) {
    let bytes = (frame.len() - FRAME_HEAD) as u32;
    frame[..4].copy_from_slice(if is_end { &END } else { &OPS });
    frame[4..8].copy_from_slice(&bytes.to_le_bytes());
    frame[8..12].copy_from_slice(&ops.to_le_bytes());
    let checksum = checksum(frame).to_le_bytes();
    frame[12..FRAME_HEAD].copy_from_slice(&checksum);
}

/// Returns the checksum of a frame, without the bytes of the checksum itself.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..12]);
    hasher.update(&frame[FRAME_HEAD..]);
    hasher.finalize()
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}
