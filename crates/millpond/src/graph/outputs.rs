//! What launches leave and what captures allocate, by every name that a program has for it.
//!
//! Each look and each removal takes a time that does not depend on how much else there is. Entries whose allocation is
//! gone without notice are swept before a table grows. Numbers are given again when theirs are gone: an entry is an
//! allocation's only where it points to that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use millpond_core::check::Use;
use millpond_core::graph::{GraphAllocId, GraphId};
use millpond_core::ids::AllocId;
use rustc_hash::FxHashMap;

use crate::state::allocation::Allocation;
use crate::state::origin::Origin;
use crate::state::session::Session;

/// An alloc node of a graph of the device.
pub(super) type Key = (GraphId, GraphAllocId);

/// Of so many alloc nodes it is known where their memory was freed after all instances of them are gone.
const ENDED_KEPT: usize = 1 << 14;

/// Where memory was freed last, of alloc nodes whose instances are gone: the newest so many.
#[derive(Debug, Default)]
struct Ended {
    freed: FxHashMap<Key, Use>,
    /// The keys, oldest first.
    order: VecDeque<Key>,
}

impl Ended {
    fn add(&mut self, key: Key, free: Use) {
        if self.freed.insert(key, free).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > ENDED_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.freed.remove(&oldest);
        }
    }
}

#[derive(Debug)]
struct Output {
    allocation: Weak<Allocation>,
    /// Its address, the same for all its lives.
    start: u64,
    /// Its alloc node; none where the instance has addresses of its own.
    key: Option<Key>,
}

/// The memory of instances.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_number: FxHashMap<AllocId, Output>,
    /// What an alloc node's memory is, as long as an instance has it.
    by_key: FxHashMap<Key, AllocId>,
    by_address: BTreeSet<(u64, AllocId)>,
    ended: Ended,
}

impl Outputs {
    /// An output that starts at `start`.
    pub(super) fn enter(&mut self, allocation: &Arc<Allocation>, start: u64, key: Option<Key>) {
        if self.by_number.len() == self.by_number.capacity() {
            looked::at(self.by_number.len());
            self.by_number.retain(|_, output| output.allocation.strong_count() > 0);
            let by_number = &self.by_number;
            self.by_key.retain(|key, id| by_number.get(id).is_some_and(|output| output.key == Some(*key)));
            self.by_address.retain(|(start, id)| by_number.get(id).is_some_and(|output| output.start == *start));
        }
        let id = allocation.id;
        let output = Output { allocation: Arc::downgrade(allocation), start, key };
        if let Some(former) = self.by_number.insert(id, output) {
            self.by_address.remove(&(former.start, id));
        }
        self.by_address.insert((start, id));
        self.by_key.extend(key.map(|key| (key, id)));
    }

    pub(super) fn find(&self, id: AllocId) -> Option<Arc<Allocation>> {
        self.by_number.get(&id)?.allocation.upgrade()
    }

    pub(super) fn named(&self, key: Key) -> Option<Arc<Allocation>> {
        self.by_number.get(self.by_key.get(&key)?).filter(|output| output.key == Some(key))?.allocation.upgrade()
    }

    /// The alloc node of an output, by its number and where it is.
    pub(super) fn key_of(&self, id: AllocId, at: *const Allocation) -> Option<Key> {
        let output = self.by_number.get(&id).filter(|output| output.allocation.as_ptr() == at)?;
        output.key.filter(|key| self.by_key.get(key) == Some(&id))
    }

    /// Those that start at an address.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = Arc<Allocation>> {
        let there = self.by_address.range((address, AllocId(0))..).take_while(move |(start, _)| *start == address);
        there.inspect(|_| looked::at(1)).filter_map(|(_, id)| self.find(*id))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Allocation>> {
        looked::at(self.by_number.len());
        self.by_number.values().filter_map(|output| output.allocation.upgrade())
    }

    /// No instance has this any more; where it was freed last, if it was launched.
    pub(super) fn end(&mut self, id: AllocId, at: *const Allocation, freed: Option<Use>) {
        let key = self.key_of(id, at);
        if let (Some(key), Some(free)) = (key, freed) {
            self.ended.add(key, free);
        }
        let is_gone = |output: &Output| output.allocation.as_ptr() == at && output.allocation.strong_count() == 0;
        if let Some(output) = self.by_number.get(&id).filter(|output| is_gone(output)) {
            self.by_address.remove(&(output.start, id));
            self.by_number.remove(&id);
            key.and_then(|key| self.by_key.remove(&key));
        }
    }

    pub(super) fn ended(&self, key: Key) -> Option<Use> {
        self.ended.freed.get(&key).copied()
    }
}

/// The memory of captures in progress.
#[derive(Debug, Default)]
pub(super) struct CapturedMemory {
    by_number: FxHashMap<AllocId, Arc<Allocation>>,
    /// By capture: addresses, and what was allocated there, by its place among the capture's allocations.
    captures: FxHashMap<GraphId, BTreeMap<(u64, u32), AllocId>>,
}

impl CapturedMemory {
    pub(super) fn enter(&mut self, allocation: &Arc<Allocation>) {
        if let Origin::Captured(session) = &allocation.origin {
            let start = allocation.life().range.start;
            self.captures.entry(session.id).or_default().insert((start, allocation.index), allocation.id);
            self.by_number.insert(allocation.id, Arc::clone(allocation));
        }
    }

    pub(super) fn find(&self, id: AllocId) -> Option<Arc<Allocation>> {
        self.by_number.get(&id).cloned()
    }

    /// What a capture has allocated at an address. Addresses serve again within it: the last allocation is meant.
    pub(super) fn find_at(&self, capture: &Session, address: u64) -> Option<Arc<Allocation>> {
        let of_capture = self.captures.get(&capture.id)?;
        let (_, id) = of_capture.range((address, 0)..=(address, u32::MAX)).next_back()?;
        self.find(*id)
    }

    /// Takes out what a capture has allocated.
    pub(super) fn leave(&mut self, capture: &Session) -> Vec<Arc<Allocation>> {
        let ids = self.captures.remove(&capture.id).unwrap_or_default();
        looked::at(ids.len());
        ids.values().filter_map(|id| self.by_number.remove(id)).collect()
    }
}

/// How many entries the calling thread has looked at that were not named: for the test.
mod looked {
    #[cfg(test)]
    thread_local!(pub(super) static ENTRIES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    #[inline]
    pub(super) fn at(_entries: usize) {
        #[cfg(test)]
        ENTRIES.set(ENTRIES.get() + _entries);
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::check::Site;
    use millpond_core::ids::{ChainIndex, Point};

    use super::*;

    #[test]
    fn the_newest_frees_are_known() {
        let mut ended = Ended::default();
        let key = |graph: usize| (GraphId(graph as u32), GraphAllocId(0));
        let free =
            |seq: usize| Use { point: Point { chain: ChainIndex(0), seq: seq as u32 as _ }, site: Site::default() };
        for graph in 0..ENDED_KEPT + 3 {
            ended.add(key(graph), free(graph));
            ended.add(key(graph), free(graph + 1));
        }
        assert_eq!((ended.freed.len(), ended.order.len()), (ENDED_KEPT, ENDED_KEPT));
        assert!(!ended.freed.contains_key(&key(2)));
        assert_eq!(ended.freed.get(&key(3)), Some(&free(4)), "the last time");
    }

    /// Entries that are looked at in a program of so many outputs, and of so many allocations in a capture.
    fn looked_at(many: usize) -> usize {
        let device = crate::Device::host(crate::HostConfig::default()).unwrap();
        let (stream, pool) = (device.stream().unwrap(), device.default_pool());
        let alloc = |stream: &crate::Stream| Ok(stream.alloc::<u32>(&pool, 4)?.into_alloc_node());
        let before = looked::ENTRIES.get();
        let all: Vec<_> = (0..many)
            .map(|_| {
                let (graph, x) = stream.capture(alloc).unwrap();
                let exec = graph.instantiate(Default::default()).unwrap();
                let x = exec.launch(&stream).unwrap().take(x).unwrap();
                (graph, exec, x.into_address())
            })
            .collect();
        let addresses: Vec<u64> = all.into_iter().map(|(_, _, address)| address).collect();
        addresses.into_iter().for_each(|address| stream.free_address(address).unwrap());
        stream.begin_capture().unwrap();
        let inside: Vec<u64> = (0..many).map(|_| stream.alloc::<u32>(&pool, 4).unwrap().into_address()).collect();
        inside.into_iter().for_each(|address| stream.free_address(address).unwrap());
        drop(stream.end_capture().unwrap());
        looked::ENTRIES.get() - before
    }

    #[test]
    fn a_program_looks_at_entries_in_proportion_to_what_it_has() {
        for many in [100, 1000, 4000] {
            let looked = looked_at(many);
            assert!((many..=8 * many).contains(&looked), "{looked} entries for {many}");
        }
    }
}
