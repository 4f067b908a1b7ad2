//! A stream's cache of the blocks that it freed last, which it may use again without the pool.
//!
//! The simple version is a map from size to a stack of any height. That was measured to cost 1 to 40 % of footprint
//! on recorded programs: a block in a cache can neither merge nor serve a smaller request, and the block that is
//! placed elsewhere instead is in the way later. So the cache holds only the [`PLACES`] blocks freed last: enough for
//! a loop that allocates and frees, and too few to shape the heap. There is no table of sizes to look up, and a take
//! or a put costs a few nanoseconds. A large block is cached only in such a loop: its size was requested last, and
//! the large block freed before it had the same size. On a miss the stream first drains its cache into the heap.
//!
//! Depends on sizes only. It is part of its stream's state, behind that stream's lock.
//!
//! Invariants: of blocks of one size, the one put last is taken first; except for large blocks, no block falls out
//! while there is room.

use crate::units::MIB;

/// The number of blocks that it holds at most.
const PLACES: usize = 4;
/// A block with more bytes is large: keeping it from the heap costs memory.
const LARGE: u64 = MIB;

/// The blocks freed last, taken by exact size, last in, first out.
#[derive(Debug)]
pub struct StreamCache<T> {
    /// The place used by the last put. The places form a ring.
    top: u32,
    served: u64,
    /// The size requested last, and the size of the large block put last.
    asked: u64,
    large: u64,
    /// The size in each place. 0 is not a size of a block: the place is empty.
    sizes: [u64; PLACES],
    items: [Option<T>; PLACES],
}

impl<T> Default for StreamCache<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> StreamCache<T> {
    /// Makes an empty cache.
    pub fn new() -> Self {
        let (sizes, items) = ([0; PLACES], std::array::from_fn(|_| None));
        Self { top: 0, served: 0, asked: 0, large: 0, sizes, items }
    }

    /// Returns the number of blocks in the cache.
    pub fn len(&self) -> usize {
        self.sizes.iter().filter(|&&bytes| bytes != 0).count()
    }

    /// Returns `true` if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the block of exactly `bytes` that was put last.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Option<T> {
        self.asked = bytes;
        let top = self.top as usize % PLACES;
        if self.sizes[top] != bytes {
            return self.take_older(bytes);
        }
        self.top = ((top + PLACES - 1) % PLACES) as u32;
        self.take_from(top)
    }

    /// Takes a block other than the one that was put last of all.
    #[inline(never)]
    fn take_older(&mut self, bytes: u64) -> Option<T> {
        let place = |back| (self.top as usize + PLACES - back) % PLACES;
        let at = (1..PLACES).map(place).find(|&place| self.sizes[place] == bytes)?;
        self.take_from(at)
    }

    #[inline(always)]
    fn take_from(&mut self, place: usize) -> Option<T> {
        let item = self.items[place].take()?;
        self.sizes[place] = 0;
        self.served += 1;
        Some(item)
    }

    /// Puts a block of `bytes`, not 0.
    ///
    /// # Errors
    /// The block that goes back to the pool: the oldest one, if there is no room any more, or this one, if it is
    /// large and not in a loop.
    #[inline(always)]
    pub fn put(&mut self, bytes: u64, item: T) -> Result<(), T> {
        debug_assert_ne!(bytes, 0, "no block is empty");
        if bytes > LARGE && (std::mem::replace(&mut self.large, bytes), self.asked) != (bytes, bytes) {
            return Err(item);
        }
        let place = Self::after(self.top);
        if self.sizes[place] != 0 {
            return self.make_room_and_put(bytes, item);
        }
        self.put_in(place, bytes, item);
        Ok(())
    }

    #[inline(always)]
    fn put_in(&mut self, place: usize, bytes: u64, item: T) {
        self.top = place as u32;
        self.sizes[place] = bytes;
        // The place is empty. Forget the result of `replace`, so that nothing just written is read again, which is
        // slow.
        std::mem::forget(self.items[place].replace(item));
    }

    /// Makes room in the place to put to, which is occupied: closes gaps if another place is empty, otherwise drops
    /// the oldest block out.
    #[inline(never)]
    fn make_room_and_put(&mut self, bytes: u64, item: T) -> Result<(), T> {
        let oldest = match self.sizes.contains(&0) {
            true => {
                self.close_gaps();
                None
            }
            false => self.items[Self::after(self.top)].take(),
        };
        self.put_in(Self::after(self.top), bytes, item);
        oldest.map_or(Ok(()), Err)
    }

    /// Returns the place after another one.
    #[inline]
    fn after(place: u32) -> usize {
        (place as usize + 1) % PLACES
    }

    /// Closes the gaps between blocks, so that none falls out while there is room.
    #[cold]
    fn close_gaps(&mut self) {
        // Oldest first, then without the empty places.
        self.items.rotate_left(self.top as usize + 1);
        self.sizes.rotate_left(self.top as usize + 1);
        let mut end = 0;
        for place in 0..PLACES {
            if self.sizes[place] != 0 {
                self.items.swap(end, place);
                self.sizes.swap(end, place);
                end += 1;
            }
        }
        self.top = ((end + PLACES - 1) % PLACES) as u32;
    }

    /// Removes all blocks.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.items.iter_mut().zip(&mut self.sizes).filter_map(|(item, bytes)| {
            *bytes = 0;
            item.take()
        })
    }

    /// Returns the number of blocks taken since the last call of this.
    pub fn count_served(&mut self) -> u64 {
        std::mem::take(&mut self.served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_put_is_taken_first_by_exact_size() {
        let mut cache = StreamCache::new();
        for item in 0..4 {
            cache.put(512 + 512 * (item % 2), item).unwrap();
        }
        assert_eq!(cache.take(1024), Some(3));
        assert_eq!(cache.take(512), Some(2));
        assert_eq!(cache.take(2048), None);
        assert_eq!(cache.take(1024), Some(1));
        assert_eq!((cache.len(), cache.count_served()), (1, 3));
        assert_eq!(cache.drain().collect::<Vec<_>>(), [0]);
        assert!(cache.is_empty());
    }

    #[test]
    fn it_agrees_with_a_list_and_drops_only_the_oldest_of_a_full_cache() {
        let (mut cache, mut twin) = (StreamCache::new(), Vec::<(u64, u64)>::new());
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for item in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let bytes = (random >> 8) % 5 * 512 + 512;
            if random.is_multiple_of(2) {
                let oldest = (twin.len() == PLACES).then(|| twin.remove(0).1);
                twin.push((bytes, item));
                assert_eq!(cache.put(bytes, item).err(), oldest);
            } else {
                let last = twin.iter().rposition(|kept| kept.0 == bytes);
                assert_eq!(cache.take(bytes), last.map(|at| twin.remove(at).1));
            }
            assert_eq!(cache.len(), twin.len());
        }
    }

    #[test]
    fn a_large_block_rests_only_in_a_loop() {
        let mut cache = StreamCache::new();
        assert_eq!((cache.take(2 * MIB), cache.put(2 * MIB, 0)), (None, Err(0)));
        assert_eq!((cache.take(2 * MIB), cache.put(2 * MIB, 1)), (None, Ok(())), "the second time around");
        assert_eq!((cache.take(2 * MIB), cache.put(2 * MIB, 2)), (Some(1), Ok(())));
        assert_eq!((cache.take(2 * MIB), cache.take(512)), (Some(2), None));
        assert_eq!(cache.put(2 * MIB, 3), Err(3), "another was asked for in between");
        assert_eq!((cache.take(4 * MIB), cache.put(4 * MIB, 4)), (None, Err(4)), "another size");
        assert_eq!(cache.put(MIB, 5), Ok(()), "not large");
    }

    #[test]
    fn nothing_is_lost_when_it_is_full() {
        let mut cache = StreamCache::new();
        let mut out = Vec::new();
        for item in 0..1000u64 {
            out.extend(cache.put((item % 7 + 1) * 512, item).err());
            if item % 3 == 0 {
                out.extend(cache.take((item % 5 + 1) * 512));
            }
        }
        assert_eq!(cache.len(), 1000 - out.len());
        out.extend(cache.drain());
        out.sort_unstable();
        assert_eq!(out, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_drain_left_is_there_still() {
        let mut cache = StreamCache::new();
        for item in 0..4 {
            cache.put(512, item).unwrap();
        }
        let first = cache.drain().next().unwrap();
        assert_eq!(cache.len(), 3);
        let mut all: Vec<_> = cache.drain().chain([first]).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
    }
}
