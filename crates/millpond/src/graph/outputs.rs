//! The memory that launches leave live and captures allocate, by every name that a program has for it.
//!
//! Each lookup and each removal takes a time that does not depend on the number of entries. Entries whose allocation
//! was dropped without notice are removed before a table grows. Numbers of dropped allocations are reused: an entry is
//! an allocation's only if it points to that allocation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use millpond_core::check::Use;
use millpond_core::graph::{GraphAllocId, GraphId};
use millpond_core::ids::AllocId;
use rustc_hash::FxHashMap;

use crate::state::allocation::Allocation;
use crate::state::origin::Origin;
use crate::state::session::Session;

/// The name of an alloc node of a graph of the device.
pub(super) type Key = (GraphId, GraphAllocId);

/// The number of alloc nodes whose last free is known after all their instances are gone.
const ENDED_KEPT: usize = 1 << 14;

/// The last free of alloc nodes' memory whose instances are gone: the newest [`ENDED_KEPT`] of them.
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
    /// Its address, the same for all its lifetimes.
    start: u64,
    /// Its alloc node. `None` if the instance has addresses of its own.
    key: Option<Key>,
}

/// The memory of instances.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_number: FxHashMap<AllocId, Output>,
    /// The allocation of an alloc node, as long as an instance has it.
    by_key: FxHashMap<Key, AllocId>,
    by_address: BTreeSet<(u64, AllocId)>,
    ended: Ended,
}

impl Outputs {
    /// Adds an output whose memory starts at `start`.
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

    /// Returns the alloc node of an output, by the number and the pointer of its allocation.
    pub(super) fn key_of(&self, id: AllocId, at: *const Allocation) -> Option<Key> {
        let output = self.by_number.get(&id).filter(|output| output.allocation.as_ptr() == at)?;
        output.key.filter(|key| self.by_key.get(key) == Some(&id))
    }

    /// Returns the outputs that start at an address.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = Arc<Allocation>> {
        let there = self.by_address.range((address, AllocId(0))..).take_while(move |(start, _)| *start == address);
        there.inspect(|_| looked::at(1)).filter_map(|(_, id)| self.find(*id))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Allocation>> {
        looked::at(self.by_number.len());
        self.by_number.values().filter_map(|output| output.allocation.upgrade())
    }

    /// Removes an output that no instance has any more. `freed` is its last free, if it was launched.
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
    /// For each capture, its allocations by their address and their number in the capture.
    captures: FxHashMap<GraphId, BTreeMap<(u64, u32), AllocId>>,
}

impl CapturedMemory {
    /// Adds an allocation whose memory starts at `start`.
    pub(super) fn enter(&mut self, allocation: &Arc<Allocation>, start: u64) {
        if let Origin::Captured(session) = &allocation.origin {
            self.captures.entry(session.id).or_default().insert((start, allocation.index), allocation.id);
            self.by_number.insert(allocation.id, Arc::clone(allocation));
        }
    }

    pub(super) fn find(&self, id: AllocId) -> Option<Arc<Allocation>> {
        self.by_number.get(&id).cloned()
    }

    /// Returns a capture's allocation at an address. Addresses are reused in a capture: the last allocation is
    /// returned.
    pub(super) fn find_at(&self, capture: &Session, address: u64) -> Option<Arc<Allocation>> {
        let of_capture = self.captures.get(&capture.id)?;
        let (_, id) = of_capture.range((address, 0)..=(address, u32::MAX)).next_back()?;
        self.find(*id)
    }

    /// Removes the allocations of a capture, and returns them.
    pub(super) fn leave(&mut self, capture: &Session) -> Vec<Arc<Allocation>> {
        let ids = self.captures.remove(&capture.id).unwrap_or_default();
        looked::at(ids.len());
        ids.values().filter_map(|id| self.by_number.remove(id)).collect()
    }
}

/// Counts, for the tests, the entries that the calling thread examined without a name for them.
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

    /// Returns the entries examined in a program with so many outputs, and so many allocations in a capture.
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
