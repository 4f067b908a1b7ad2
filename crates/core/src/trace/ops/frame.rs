//! The header of a trace, the frames it is made of, and what can be wrong with either.
//!
//! | bytes | of the header |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`VERSION`] |
//!
//! | bytes | of a frame |
//! |---|---|
//! | 4 | `ops` and a line feed; `end` and a line feed where everything is closed, in a frame without operations |
//! | 4 | how many bytes of operations follow |
//! | 4 | how many operations they are |
//! | 4 | CRC-32 (as in zip) of the 12 bytes before and of the operations |
//! | | the operations |
//!
//! Numbers are little-endian.

use std::fmt;

/// How a trace begins: not text, and changed by whatever changes line ends.
pub const MAGIC: [u8; 8] = *b"\x89mptr\r\n\x1a";

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;

/// No frame has more bytes of operations, 256 MiB: one launch of all accesses that a list can have fits. Most have
/// 64 KiB.
pub const FRAME_BYTES_MAX: usize = 1 << 28;

/// Bytes of the header.
pub(super) const HEADER: usize = 12;
/// Bytes of a frame before its operations.
pub(super) const FRAME_HEAD: usize = 16;

const OPS: [u8; 4] = *b"ops\n";
const END: [u8; 4] = *b"end\n";

/// What is wrong with a trace, and where. All operations that were given out before are right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Damage {
    /// The byte, counted from 0: of a frame's own damage where the frame begins.
    pub offset: u64,
    /// What is wrong there.
    pub reason: Reason,
}

/// What can be wrong with a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It does not begin as a trace does.
    NotATrace,
    /// It is of another version.
    Version(u32),
    /// It ends in the middle of a frame: the program was stopped there, or the copy was.
    Cut,
    /// No frame begins here.
    NoFrame,
    /// A frame claims more bytes than any has.
    TooLarge(u32),
    /// A frame has not the checksum that it should have.
    Checksum,
    /// The operations of a frame end in the middle of one.
    Short,
    /// A frame has other operations than it says.
    Count,
    /// An operation has a code that is not known.
    Code(u8),
    /// An operation is one that only earlier versions wrote.
    Former(&'static str),
    /// A field has a value that it cannot have.
    Field,
    /// A text is no UTF-8.
    Text,
    /// A text or place is named before it is given.
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

/// The header.
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

/// The beginning of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Whether it says that everything was closed here.
    pub(super) is_end: bool,
    /// Bytes of operations.
    pub(super) bytes: usize,
    /// How many operations.
    pub(super) ops: u32,
    checksum: u32,
}

impl Head {
    /// Reads it.
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

    /// Whether `frame`, from its head on, has its checksum.
    pub(super) fn matches(&self, frame: &[u8]) -> bool {
        checksum(frame) == self.checksum
    }
}

/// Fills in the head of a frame whose operations are there; `frame` begins with room for the head.
pub(super) fn seal(frame: &mut [u8], ops: u32, is_end: bool) {
    let bytes = (frame.len() - FRAME_HEAD) as u32;
    frame[..4].copy_from_slice(if is_end { &END } else { &OPS });
    frame[4..8].copy_from_slice(&bytes.to_le_bytes());
    frame[8..12].copy_from_slice(&ops.to_le_bytes());
    let checksum = checksum(frame).to_le_bytes();
    frame[12..FRAME_HEAD].copy_from_slice(&checksum);
}

/// The checksum of a frame, the place of the checksum itself left out.
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
