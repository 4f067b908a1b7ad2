//! Numbers as bytes: little-endian base-128 varints, and signed differences folded into them.
//!
//! Depends on no format. A varint has at most 10 bytes; one that exceeds 64 bits is refused.

/// Appends a number. For a short one, as nearly all are, the capacity is checked only once.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    let seven = |shift: u32| (number >> shift) as u8 & 127;
    match number {
        0..0x80 => out.push(number as u8),
        0x80..0x4000 => out.extend_from_slice(&[seven(0) | 128, seven(7)]),
        0x4000..0x20_0000 => out.extend_from_slice(&[seven(0) | 128, seven(7) | 128, seven(14)]),
        _ => put_long(out, number),
    }
}

/// Returns a number of at most 28 bits as the first bytes of an array, and the count of these bytes; the other bytes
/// are 0. Nothing branches on the count.
#[inline]
pub(super) fn short(number: u32) -> ([u8; 8], usize) {
    const MORE: [u32; 4] = [0, 0x80, 0x80_80, 0x80_80_80];
    let more = usize::from(number > 0x7f) + usize::from(number > 0x3fff) + usize::from(number > 0x1f_ffff);
    let seven = |shift: u32| (number & 127 << shift) << (shift / 7);
    let bytes = seven(0) | seven(7) | seven(14) | seven(21) | MORE[more];
    (u64::from(bytes).to_le_bytes(), more + 1)
}

fn put_long(out: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Encodes small differences of either sign as small numbers: 0, -1, 1, -2, ...
#[inline]
pub(super) fn fold(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Returns the difference that [`fold`] encoded.
#[inline]
pub(super) fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// A position in a slice of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the number of bytes before the position.
    #[inline]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes after the position.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns the next byte, if there is one.
    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Returns the next number, if there is one of at most 64 bits.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.byte()? {
            byte @ 0..128 => Some(u64::from(byte)),
            byte => self.long_number(byte),
        }
    }

    fn long_number(&mut self, first: u8) -> Option<u64> {
        let mut number = u64::from(first & 127);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 127);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    /// Returns the next `count` bytes, if there are that many.
    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let taken = self.bytes[self.at..].get(..count)?;
        self.at += count;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [
            0,
            1,
            127,
            128,
            300,
            16_383,
            16_384,
            (1 << 21) - 1,
            1 << 21,
            (1 << 28) - 1,
            1 << 28,
            u64::from(u32::MAX),
            1 << 62,
            u64::MAX - 1,
            u64::MAX,
        ];
        let mut out = Vec::new();
        numbers.iter().for_each(|&number| put_number(&mut out, number));
        let mut cursor = Cursor::new(&out, 0);
        assert_eq!(numbers.map(|_| cursor.number()), numbers.map(Some));
        assert_eq!((cursor.left(), cursor.number()), (0, None));
        for number in numbers.iter().filter_map(|number| u32::try_from(*number).ok()).filter(|it| *it < 1 << 28) {
            let (mut whole, (bytes, count)) = (Vec::new(), short(number));
            put_number(&mut whole, u64::from(number));
            assert!(bytes[..count] == whole && bytes[count..].iter().all(|byte| *byte == 0), "{number}");
        }
        for difference in [0, -1, 1, 77, i64::MIN, i64::MAX] {
            assert_eq!(unfold(fold(difference)), difference);
        }
        assert_eq!([fold(0), fold(-1), fold(1)], [0, 1, 2]);
    }

    #[test]
    fn numbers_that_pass_64_bits_are_refused() {
        let mut ten = [0xff; 10];
        ten[9] = 2;
        assert_eq!(Cursor::new(&ten, 0).number(), None);
        ten[9] = 1;
        assert_eq!(Cursor::new(&ten, 0).number(), Some(u64::MAX));
        assert_eq!(Cursor::new(&[0xff; 11], 0).number(), None);
        assert_eq!(Cursor::new(&[0x80], 0).number(), None);
    }
}
