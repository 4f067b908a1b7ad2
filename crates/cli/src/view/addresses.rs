//! Removes unused addresses, so that a picture shows only used ones.
//!
//! A pool's virtual range is far larger than the used part. Ranges that no life ever used are removed if they are at
//! least [`GAP`] long. A *seam* is the place where such a range was.

use millpond_core::units::{MIB, Range, round_up};

/// Addresses that are aligned to this many bytes keep their alignment as offsets.
const GRAIN: u64 = 512;

/// The smallest gap that is removed, in bytes.
const GAP: u64 = 2 * MIB;

/// Maps addresses to offsets without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Packed {
    /// Pairs of an offset and its address, both ascending. After each pair both advance by the same amount.
    pub(super) seams: Vec<(u64, u64)>,
    /// The end of the last range, as an offset.
    pub(super) height: u64,
}

impl Packed {
    /// Packs the addresses of some ranges.
    pub(super) fn of(ranges: impl Iterator<Item = Range>) -> Self {
        let mut ranges: Vec<Range> = ranges.collect();
        ranges.sort_unstable();
        let mut packed = Self::default();
        let mut end = None;
        for range in ranges {
            match end {
                Some(end) if range.start < end || range.start - end < GAP => {}
                _ => {
                    let offset = match (packed.seams.last(), end) {
                        (Some(&(offset, address)), Some(end)) => {
                            offset + round_up(end - address, GRAIN).unwrap_or(end - address)
                        }
                        _ => 0,
                    };
                    packed.seams.push((offset, range.start));
                }
            }
            end = end.max(Some(range.end()));
        }
        if let Some(end) = end {
            packed.height = packed.offset(end);
        }
        packed
    }

    /// Returns the largest power of two, up to [`GRAIN`], that divides the offsets of all these addresses.
    pub(super) fn grain(&self, addresses: impl Iterator<Item = u64>) -> u64 {
        let bits = addresses.fold(GRAIN, |bits, address| bits | self.offset(address));
        1 << bits.trailing_zeros()
    }

    /// Returns the offset of an address that is in one of the ranges or at the end of one.
    pub(super) fn offset(&self, address: u64) -> u64 {
        let behind = self.seams.partition_point(|&(_, start)| start <= address);
        match behind.checked_sub(1).map(|at| self.seams[at]) {
            Some((offset, start)) => offset + (address - start),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_gaps_are_closed_and_small_ones_stay() {
        let packed = Packed::of(
            [Range::new(100 * MIB, MIB), Range::new(0x1000, 0x1000), Range::new(0x3000, 500), Range::new(101 * MIB, 7)]
                .into_iter(),
        );
        assert_eq!(packed.seams, [(0, 0x1000), (0x2200, 100 * MIB)]);
        assert_eq!((packed.offset(0x1000), packed.offset(0x3000)), (0, 0x2000));
        assert_eq!(packed.offset(100 * MIB + 5), 0x2205);
        assert_eq!(packed.height, 0x2200 + MIB + 7);
        let grain = |addresses: &[u64]| packed.grain(addresses.iter().copied());
        assert_eq!((grain(&[0x1000, 100 * MIB]), grain(&[0x1000, 0x1030]), grain(&[])), (512, 16, 512));
    }

    #[test]
    fn ranges_within_others_do_not_shorten_them() {
        let packed = Packed::of([Range::new(0, 100 * MIB), Range::new(8, 8), Range::new(99 * MIB, MIB)].into_iter());
        assert_eq!((packed.seams.len(), packed.height), (1, 100 * MIB));
        assert_eq!(Packed::of(std::iter::empty()), Packed::default());
    }
}
