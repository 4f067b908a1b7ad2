//! Bytes, addresses and ranges. Addresses are added in this file only.
//!
//! Depends on integers only. Sums that could pass the end of the address space are checked.

use std::fmt;

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;
/// 1024 GiB.
pub const TIB: u64 = 1 << 40;
const PIB: u64 = 1 << 50;
const EIB: u64 = 1 << 60;

/// Rounds `bytes` up to a multiple of `to`, a power of two. Returns `None` if the result exceeds `u64::MAX`.
#[inline]
pub const fn round_up(bytes: u64, to: u64) -> Option<u64> {
    debug_assert!(to.is_power_of_two());
    match bytes.checked_add(to - 1) {
        Some(sum) => Some(sum & !(to - 1)),
        None => None,
    }
}

/// Rounds `bytes` down to a multiple of `to`, a power of two.
#[inline]
pub const fn round_down(bytes: u64, to: u64) -> u64 {
    debug_assert!(to.is_power_of_two());
    bytes & !(to - 1)
}

/// The addresses from `start` to `start + bytes`, without the latter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Range {
    /// Makes the range of `bytes` bytes from `start`.
    ///
    /// # Panics
    /// In debug builds, if the range passes the end of the address space.
    #[inline]
    pub const fn new(start: u64, bytes: u64) -> Self {
        debug_assert!(start.checked_add(bytes).is_some());
        Self { start, bytes }
    }

    /// Makes the range from `start` up to `end`.
    #[inline]
    pub const fn between(start: u64, end: u64) -> Self {
        debug_assert!(start <= end);
        Self { start, bytes: end - start }
    }

    /// Returns the first address after the range.
    #[inline]
    pub const fn end(self) -> u64 {
        self.start + self.bytes
    }

    /// Returns `true` if the range has no bytes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Returns the distance from `address` to the nearest byte of the range, 0 if the range contains it.
    pub fn distance(&self, address: u64) -> u64 {
        let above = address.checked_sub(self.end()).map_or(0, |beyond| beyond + 1);
        self.start.saturating_sub(address).max(above)
    }

    /// Returns `true` if `address` lies in the range.
    #[inline]
    pub const fn contains(self, address: u64) -> bool {
        address >= self.start && address - self.start < self.bytes
    }

    /// Returns `true` if the two ranges have a byte in common.
    #[inline]
    pub const fn overlaps(self, other: Range) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Returns the bytes that both ranges have, an empty range if there are none.
    #[inline]
    pub fn intersection(self, other: Range) -> Range {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        Range { start, bytes: end.saturating_sub(start) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end())
    }
}

/// A number of bytes, displayed for humans: `1536 B`, `2.00 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            // Sizes that exceed `u64` saturate to this value.
            u64::MAX => return f.write_str("16 EiB or more"),
            EIB.. => (EIB, "EiB"),
            PIB.. => (PIB, "PiB"),
            TIB.. => (TIB, "TiB"),
            GIB.. => (GIB, "GiB"),
            MIB.. => (MIB, "MiB"),
            n if n >= 4 * KIB => (KIB, "KiB"),
            n => return write!(f, "{n} B"),
        };
        write!(f, "{:.2} {name}", self.0 as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_checked() {
        assert_eq!(round_up(513, 512), Some(1024));
        assert_eq!(round_up(0, 512), Some(0));
        assert_eq!(round_up(u64::MAX - 5, 512), None);
        assert_eq!(round_down(1023, 512), 512);
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_they_have() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!(shown(4095), "4095 B");
        assert_eq!(shown(4096), "4.00 KiB");
        assert_eq!(shown(3 * TIB / 2), "1.50 TiB");
        assert_eq!(shown(u64::MAX / 1024), "16.00 PiB");
        assert_eq!(shown(u64::MAX - 511), "16.00 EiB");
        assert_eq!(shown(u64::MAX), "16 EiB or more");
    }

    #[test]
    fn ranges_meet_where_they_share_a_byte() {
        let a = Range::new(0, 10);
        assert!(a.overlaps(Range::new(9, 1)));
        assert!(!a.overlaps(Range::new(10, 1)));
        assert_eq!(a.intersection(Range::new(5, 10)), Range::new(5, 5));
        assert!(a.intersection(Range::new(20, 1)).is_empty());
    }

    #[test]
    fn bytes_read_well() {
        assert_eq!(Bytes(1536).to_string(), "1536 B");
        assert_eq!(Bytes(2 * MIB).to_string(), "2.00 MiB");
    }
}
