//! The addresses of arenas that are gone, kept until no work is left that could use them.
//!
//! To find that out, every stream of the device is queried, also closed streams that may have work in flight. The
//! simple version does so whenever an arena is dropped. Departure: the query waits for one more arena for every
//! [`ASKED`] streams, so that it takes amortised constant time for each arena. A caller that needs memory, or that has
//! waited for the device, queries at once.

use millpond_core::graph::ArenaKey;
use millpond_core::units::Range;

/// The number of streams that may be queried for each dropped arena.
const ASKED: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GoneArenas {
    list: Vec<(ArenaKey, Vec<Range>)>,
    /// The number of arenas to drop before the device is queried again.
    rest: usize,
}

impl GoneArenas {
    /// Adds an arena that is gone. Returns `true` if the device must be queried now.
    pub(super) fn add(&mut self, arena: ArenaKey, ranges: Vec<Range>) -> bool {
        self.list.push((arena, ranges));
        let is_due = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        is_due
    }

    /// Takes all arenas out for a query of `streams` streams.
    pub(super) fn take(&mut self, streams: usize) -> Vec<(ArenaKey, Vec<Range>)> {
        self.rest = streams / ASKED;
        std::mem::take(&mut self.list)
    }

    /// Puts back what was taken out, because some work is left. Only arenas that were added meanwhile are moved.
    pub(super) fn put_back(&mut self, mut taken: Vec<(ArenaKey, Vec<Range>)>) {
        taken.append(&mut self.list);
        self.list = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arenas: usize, streams: impl Fn(usize) -> usize) -> usize {
        let (mut gone, mut asked) = (GoneArenas::default(), 0);
        for number in 0..arenas {
            if gone.add(ArenaKey(number as u64), Vec::new()) {
                asked += streams(number);
                let taken = gone.take(streams(number));
                gone.put_back(taken);
            }
        }
        assert_eq!(gone.list.len(), arenas);
        assert!(gone.list.is_sorted_by_key(|(arena, _)| *arena));
        asked
    }

    #[test]
    fn few_streams_are_asked_at_once() {
        assert_eq!(asked(1000, |_| ASKED - 1), 1000 * (ASKED - 1));
    }

    /// Each arena is of a stream of its own, which is closed.
    #[test]
    fn many_streams_are_asked_in_proportion_to_the_arenas() {
        for arenas in [1000, 10_000, 100_000] {
            assert!(asked(arenas, |number| number) <= 2 * ASKED * arenas);
            assert!(asked(arenas, |_| arenas) <= 2 * ASKED * arenas);
        }
    }
}
