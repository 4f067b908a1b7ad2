//! A ticket: the right to import one thing once, as 64 bytes that may be passed by any means.
//!
//! The random number in it is the right: a process that has it can claim the thing, if its user may connect. Nothing
//! else in the ticket is trusted: the exporter looks the number up. Unlike CUDA's blob of a pool's pointer it has no
//! address and no offset, so there is nothing to forge.

use std::fmt;
use std::str::FromStr;

use super::wire::{Malformed, Reader, Writer};

/// The size of a ticket in bytes, the same as CUDA's `cudaMemPoolPtrExportData`.
pub const TICKET_BYTES: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"MPTICKET");
const VERSION: u16 = 2;

/// The kind of thing that a ticket stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TicketKind {
    /// An allocation.
    Memory,
    /// An event.
    Event,
    /// A pool, for all its later allocations.
    Pool,
}

impl fmt::Display for TicketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TicketKind::Memory => "a buffer",
            TicketKind::Event => "an event",
            TicketKind::Pool => "a pool",
        })
    }
}

impl TicketKind {
    pub(super) fn code(self) -> u16 {
        match self {
            TicketKind::Memory => 1,
            TicketKind::Event => 2,
            TicketKind::Pool => 3,
        }
    }

    pub(super) fn of(code: u16) -> Result<Self, Malformed> {
        match code {
            1 => Ok(TicketKind::Memory),
            2 => Ok(TicketKind::Event),
            3 => Ok(TicketKind::Pool),
            _ => Err(Malformed::Unknown("the kind of ticket")),
        }
    }
}

/// The right to import one thing once. An export makes it, and it is valid for one import. It is a plain value that
/// can be written to a pipe ([`to_bytes`](Self::to_bytes)) or passed as text (`Display`, `FromStr`).
///
/// ```
/// use millpond_core::share::{Ticket, TicketKind};
///
/// // The same as `Buffer::export` of the library makes:
/// let ticket = Ticket { kind: TicketKind::Memory, exporter: 1, nonce: 2, bytes: 4096 };
/// assert_eq!(Ticket::from_bytes(&ticket.to_bytes()), Ok(ticket));
/// assert_eq!(ticket.to_string().parse(), Ok(ticket));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The kind of thing that it stands for.
    pub kind: TicketKind,
    /// The random number of the exporting device.
    pub exporter: u128,
    /// The random number that is the right to import.
    pub nonce: u128,
    /// The size of an allocation in bytes, for the reader's information; otherwise 0. Checked at the import.
    pub bytes: u64,
}

/// The reason why bytes are not a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The number of bytes is wrong.
    #[error("{0} B are no ticket, which has {TICKET_BYTES}")]
    Length(usize),
    /// The bytes are not a ticket, or a damaged one.
    #[error("these bytes are no ticket, or a damaged one")]
    Damaged,
    /// The ticket is of another version of Millpond.
    #[error("the ticket is of version {0}, this is version {VERSION}")]
    Version(u16),
}

impl Ticket {
    /// Returns the ticket as bytes.
    pub fn to_bytes(&self) -> [u8; TICKET_BYTES] {
        let mut writer = Writer::default();
        writer.u64(MAGIC).u16(VERSION).u16(self.kind.code()).u32(0);
        writer.u128(self.exporter).u128(self.nonce).u64(self.bytes);
        let sum = checksum(&writer.0);
        writer.u64(sum);
        writer.0.try_into().expect("the fields have 64 B together")
    }

    /// Reads a ticket from its bytes.
    ///
    /// # Errors
    /// If the bytes are not a ticket: too few, too many, damaged, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TicketError> {
        let whole: &[u8; TICKET_BYTES] = bytes.try_into().map_err(|_| TicketError::Length(bytes.len()))?;
        Self::read(whole).map_err(|_| TicketError::Damaged)?
    }

    fn read(bytes: &[u8; TICKET_BYTES]) -> Result<Result<Self, TicketError>, Malformed> {
        let mut reader = Reader(bytes);
        if reader.u64()? != MAGIC {
            return Ok(Err(TicketError::Damaged));
        }
        let version = reader.u16()?;
        if version != VERSION {
            return Ok(Err(TicketError::Version(version)));
        }
        let kind = TicketKind::of(reader.u16()?)?;
        let spare = reader.u32()?;
        let ticket = Self { kind, exporter: reader.u128()?, nonce: reader.u128()?, bytes: reader.u64()? };
        let is_whole = spare == 0 && reader.u64()? == checksum(&bytes[..TICKET_BYTES - 8]);
        Ok(if is_whole { Ok(ticket) } else { Err(TicketError::Damaged) })
    }
}

/// FNV-1a. It protects against accidents, not against forgers; the random number keeps those out.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// Shows what it stands for, but not the number that is the right.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("kind", &self.kind).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Shows all of it, as 128 hexadecimal digits. Anyone who reads them can use the ticket.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let digits = text.as_bytes();
        if digits.len() != 2 * TICKET_BYTES {
            return Err(TicketError::Length(digits.len() / 2));
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
        Self::from_bytes(&bytes.ok_or(TicketError::Damaged)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket { kind: TicketKind::Memory, exporter: 7 << 100, nonce: u128::MAX - 5, bytes: 4096 }
    }

    #[test]
    fn a_ticket_survives_every_means_of_travel() {
        for kind in [TicketKind::Memory, TicketKind::Event, TicketKind::Pool] {
            let ticket = Ticket { kind, ..ticket() };
            assert_eq!(Ticket::from_bytes(&ticket.to_bytes()), Ok(ticket));
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
    }

    #[test]
    fn a_ticket_of_another_length_is_none() {
        let bytes = ticket().to_bytes();
        for len in 0..TICKET_BYTES {
            assert_eq!(Ticket::from_bytes(&bytes[..len]), Err(TicketError::Length(len)));
        }
        assert_eq!(Ticket::from_bytes(&[&bytes[..], &[0]].concat()), Err(TicketError::Length(65)));
        assert_eq!("zz".parse::<Ticket>(), Err(TicketError::Length(1)));
        assert_eq!("z".repeat(128).parse::<Ticket>(), Err(TicketError::Damaged));
    }

    #[test]
    fn no_bit_of_a_ticket_can_be_changed() {
        for bit in 0..TICKET_BYTES * 8 {
            let mut bytes = ticket().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Ticket::from_bytes(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn debug_output_does_not_give_the_right_away() {
        let ticket = ticket();
        let nonce = format!("{:x}", ticket.nonce);
        assert!(!format!("{ticket:?}").contains(&nonce) && !format!("{ticket:?}").contains(&ticket.nonce.to_string()));
    }
}
