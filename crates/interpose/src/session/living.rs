//! The lines of the program that made the memory which is live.

use millpond_core::op::Place;
use rustc_hash::FxHashMap;

use super::Session;
use crate::index::Kind;

impl Session {
    /// Returns the places of the program that have the most live memory of a device, with its bytes, the largest first.
    /// The places are known under a limit of memory.
    pub(crate) fn most_by_place(&mut self, device: i32, count: usize) -> Vec<(String, u64)> {
        let mut sums = FxHashMap::<u32, u64>::default();
        let living = self.index.living().filter(|it| it.is_allocated && it.kind != Kind::Host);
        for entry in living.filter(|it| self.handles.device_of(it.home) == device) {
            // The checker gets the places as lines, counted from 1.
            if let Some(Place::Line(line)) = self.made_at.get(entry.id().0 as usize) {
                *sums.entry(line.saturating_sub(1)).or_default() += entry.end - entry.start;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(number, bytes)| (std::cmp::Reverse(*bytes), *number));
        let largest = sums.into_iter().take(count);
        largest.filter_map(|(number, bytes)| Some((self.places.spot(number)?.to_string(), bytes))).collect()
    }
}
