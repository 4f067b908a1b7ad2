//! A stream's own store of blocks just freed: served again without the pool.
//!
//! The simple version is a map from size to a stack. Departure: a fixed table of small rings; a size has one ring, by
//! a multiplication, and shares it with other sizes. Taking looks at no more than [`DEPTH`] places, putting at one, so
//! both take a few nanoseconds; the table is bounded by construction, and what it has no room for goes to the pool.
//!
//! Knows sizes only. It lives in its stream's state, behind that stream's lock.
//!
//! Invariant: of one size, what was put last is taken first.

/// Rings, as a power of two.
const RINGS: u32 = 5;
/// Places of a ring.
const DEPTH: usize = 8;

/// Blocks by exact size, last in first out: at most 256.
#[derive(Debug)]
pub struct Shelf<T> {
    rings: Box<[Ring<T>; 1 << RINGS]>,
    kept: usize,
    served: u64,
}

#[derive(Debug)]
struct Ring<T> {
    /// The place put to last.
    top: u8,
    /// 0 is no size of a block: the place is empty.
    sizes: [u64; DEPTH],
    items: [Option<T>; DEPTH],
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Shelf<T> {
    /// An empty shelf.
    pub fn new() -> Self {
        let ring = |_| Ring { top: 0, sizes: [0; DEPTH], items: std::array::from_fn(|_| None) };
        Self { rings: Box::new(std::array::from_fn(ring)), kept: 0, served: 0 }
    }

    /// How many blocks lie on it.
    pub fn len(&self) -> usize {
        self.kept
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// The block of exactly `bytes` that was put last.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Option<T> {
        let ring = &mut self.rings[ring_of(bytes)];
        for back in 0..DEPTH {
            let place = (ring.top as usize + DEPTH - back) % DEPTH;
            if ring.sizes[place] == bytes {
                ring.sizes[place] = 0;
                if back == 0 {
                    ring.top = ((place + DEPTH - 1) % DEPTH) as u8;
                }
                self.kept -= 1;
                self.served += 1;
                return ring.items[place].take();
            }
        }
        None
    }

    /// Puts a block of `bytes`, not 0.
    ///
    /// # Errors
    /// The block that lay longest in its place, which has no room any more: it goes back to the pool.
    #[inline]
    pub fn put(&mut self, bytes: u64, item: T) -> Result<(), T> {
        debug_assert_ne!(bytes, 0, "no block is empty");
        let ring = &mut self.rings[ring_of(bytes)];
        ring.top = (ring.top + 1) % DEPTH as u8;
        let place = ring.top as usize;
        ring.sizes[place] = bytes;
        match ring.items[place].replace(item) {
            Some(oldest) => Err(oldest),
            None => {
                self.kept += 1;
                Ok(())
            }
        }
    }

    /// Takes everything off.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.kept = 0;
        self.rings.iter_mut().flat_map(|ring| {
            ring.sizes = [0; DEPTH];
            ring.items.iter_mut().filter_map(Option::take)
        })
    }

    /// How many blocks were taken since this was asked last.
    pub fn count_served(&mut self) -> u64 {
        std::mem::take(&mut self.served)
    }
}

#[inline]
fn ring_of(bytes: u64) -> usize {
    ((bytes >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RINGS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_put_is_taken_first_by_exact_size() {
        let mut shelf = Shelf::new();
        for item in 0..4 {
            shelf.put(512 + 512 * (item % 2), item).unwrap();
        }
        assert_eq!(shelf.take(1024), Some(3));
        assert_eq!(shelf.take(512), Some(2));
        assert_eq!(shelf.take(2048), None);
        assert_eq!(shelf.take(1024), Some(1));
        assert_eq!((shelf.len(), shelf.count_served()), (1, 3));
        assert_eq!(shelf.drain().collect::<Vec<_>>(), [0]);
        assert!(shelf.is_empty());
    }

    #[test]
    fn nothing_is_lost_when_it_is_full() {
        let mut shelf = Shelf::new();
        let mut out = Vec::new();
        for item in 0..1000u64 {
            out.extend(shelf.put((item % 7 + 1) * 512, item).err());
            if item % 3 == 0 {
                out.extend(shelf.take((item % 5 + 1) * 512));
            }
        }
        assert_eq!(shelf.len(), 1000 - out.len());
        out.extend(shelf.drain());
        out.sort_unstable();
        assert_eq!(out, (0..1000).collect::<Vec<_>>());
    }
}
