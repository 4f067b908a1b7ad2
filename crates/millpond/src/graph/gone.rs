//! Addresses of arenas that are gone, until no work is left that could touch them.
//!
//! Whether any is left asks every stream of the device, those included that are closed and may have work in flight.
//! The simple version asks whenever an arena goes. Here that is put off by one arena for every [`ASKED`] streams:
//! asking takes amortised constant time for each arena. Who needs memory or has waited for the device asks at once.

use millpond_core::graph::ArenaKey;
use millpond_core::units::Range;

/// With each arena that goes so many streams may be asked.
const ASKED: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GoneArenas {
    list: Vec<(ArenaKey, Vec<Range>)>,
    /// So many arenas go before the device is asked again.
    rest: usize,
}

impl GoneArenas {
    /// An arena is gone; whether the device is to be asked now.
    pub(super) fn add(&mut self, arena: ArenaKey, ranges: Vec<Range>) -> bool {
        self.list.push((arena, ranges));
        let is_due = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        is_due
    }

    /// Takes all out for a device that so many streams are asked of, if there are any.
    pub(super) fn take(&mut self, streams: usize) -> Vec<(ArenaKey, Vec<Range>)> {
        self.rest = streams / ASKED;
        std::mem::take(&mut self.list)
    }

    /// Puts back what was taken out: some work is left. Only what came meanwhile is moved.
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

    /// As where each arena is of a stream of its own, which is closed.
    #[test]
    fn many_streams_are_asked_in_proportion_to_the_arenas() {
        for arenas in [1000, 10_000, 100_000] {
            assert!(asked(arenas, |number| number) <= 2 * ASKED * arenas);
            assert!(asked(arenas, |_| arenas) <= 2 * ASKED * arenas);
        }
    }
}
