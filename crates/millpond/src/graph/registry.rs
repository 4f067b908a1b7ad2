//! What the graphs of a device share: numbers, captures in progress, memory that launches left live.
//!
//! Knows allocations by the alloc node they are of; streams not at all.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Side, Sought, Use};
use millpond_core::graph::{ArenaKey, GraphAllocId, GraphId};
use millpond_core::ids::{AllocId, StreamId};
use millpond_core::units::Range;
use millpond_driver::locks::{Guard, Mutex, lock};
use rustc_hash::FxHashMap;

use super::grant::Grant;
use super::memory::{Frees, GraphMemory};
use super::recording::Recording;
use crate::names::error::{Invalid, Nearest, Result};
use crate::names::graph_error::GraphError;
use crate::names::stream_names::side;
use crate::state::context::Context;
use crate::state::device::{Allocation, Arena, Owned, Session};
use crate::state::named::NodeName;
use crate::state::parts::Captured;
use crate::sync::ranks;

/// So many spare ranges of addresses are kept.
const SPARES: usize = 16;

/// Of so many alloc nodes it is known where their memory was freed after all instances of them are gone.
const ENDED_KEPT: usize = 1 << 14;

/// An alloc node of a graph of the device.
type Key = (GraphId, GraphAllocId);

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

/// An instance, as a refusal asks it.
pub(super) trait Launched: Send + Sync {
    /// The node that did that to an allocation, if this instance's latest launch is that operation of that stream.
    fn node_of(&self, graphs: &Graphs, launch: (StreamId, u64), act: Act, sought: Sought) -> Option<Side>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// The number of their device.
    device: u32,
    memory: Mutex<ranks::GraphMemory, GraphMemory>,
    pub(crate) frees: Frees,
    next_graph: AtomicU32,
    pub(crate) next_arena: AtomicU32,
    /// The instances that there are; some are gone.
    pub(super) execs: Mutex<ranks::Execs, Vec<Weak<dyn Launched>>>,
    /// Whose addresses graphs have.
    pub(super) arenas: Mutex<ranks::Arenas, Vec<Weak<Arena>>>,
    /// How many captures are in progress; no call looks further where there are none.
    pub(crate) open: AtomicUsize,
    pub(crate) captures: Mutex<ranks::Captures, Recording>,
    /// What launches leave live, by alloc node.
    names: Mutex<ranks::OutputNames, FxHashMap<Key, Weak<Allocation>>>,
    /// Where it was freed last, of alloc nodes that an instance which is gone had.
    ended: Mutex<ranks::OutputsEnded, Ended>,
    /// The same by the number of the allocation.
    pub(super) numbers: Mutex<ranks::OutputNumbers, FxHashMap<AllocId, Weak<Allocation>>>,
    /// What captures in progress have allocated.
    captured: Mutex<ranks::Captured, FxHashMap<AllocId, Arc<Allocation>>>,
    /// Which graph has the free node.
    grants: Mutex<ranks::FreeNodes, FxHashMap<Key, Weak<Grant>>>,
    /// Live memory of instances that are gone, for as long as the device has a handle. It refers to the device.
    orphans: Mutex<ranks::Orphans, Option<Vec<Arc<Allocation>>>>,
    /// Addresses of arenas that are gone, until no work is left.
    closing: Mutex<ranks::ClosingArenas, Vec<(ArenaKey, Vec<Range>)>>,
    /// Addresses that arenas had, and what is mapped there, for arenas to come.
    spare: Mutex<ranks::SpareRanges, Vec<Range>>,
}

impl Graphs {
    pub(crate) fn new(device: u32, granularity: u64) -> Self {
        Self {
            device,
            memory: Mutex::new(GraphMemory::new(granularity)),
            frees: Frees::default(),
            next_graph: AtomicU32::default(),
            next_arena: AtomicU32::default(),
            execs: Mutex::default(),
            arenas: Mutex::default(),
            open: AtomicUsize::default(),
            captures: Mutex::new(Recording::new(device)),
            names: Mutex::default(),
            ended: Mutex::default(),
            numbers: Mutex::default(),
            captured: Mutex::default(),
            grants: Mutex::default(),
            orphans: Mutex::new(Some(Vec::new())),
            closing: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// The memory, past all frees.
    #[inline]
    pub(crate) fn memory(&self) -> Guard<'_, GraphMemory> {
        let mut memory = lock(&self.memory);
        memory.learn_frees(&self.frees);
        memory
    }

    pub(crate) fn next_graph(&self) -> GraphId {
        GraphId(self.next_graph.fetch_add(1, Ordering::Relaxed))
    }

    /// A new arena.
    pub(crate) fn enter_arena(&self, arena: &Arc<Arena>) {
        let mut arenas = lock(&self.arenas);
        arenas.retain(|arena| arena.strong_count() > 0);
        arenas.push(Arc::downgrade(arena));
    }

    /// An output of an instance is known by its alloc node from now on.
    pub(crate) fn enter(&self, key: Key, allocation: &Arc<Allocation>) {
        lock(&self.names).insert(key, Arc::downgrade(allocation));
        self.enter_number(allocation);
    }

    /// An output with addresses of its own instance is known by its number and its address from now on.
    pub(crate) fn enter_number(&self, allocation: &Arc<Allocation>) {
        lock(&self.numbers).insert(allocation.id, Arc::downgrade(allocation));
    }

    /// The allocation of an alloc node, if an instance has it.
    pub(crate) fn named(&self, key: Key) -> Option<Arc<Allocation>> {
        lock(&self.names).get(&key).and_then(Weak::upgrade)
    }

    /// Why memory of an alloc node that is not live cannot be used or freed.
    #[cold]
    pub(crate) fn not_live(&self, key: Key, act: Act) -> GraphError {
        let freed = lock(&self.ended).freed.get(&key).map(|free| free.site);
        GraphError::NotLive { graph: key.0, act, freed: freed.map(|free| Box::new(side(self.device, free))) }
    }

    /// The allocation that a name means on a stream.
    pub(crate) fn resolve(&self, name: NodeName, act: Act) -> Result<Arc<Allocation>> {
        if name.is_symbolic() {
            return Err(GraphError::Symbolic(name.graph).into());
        }
        let key = (name.graph, name.alloc);
        self.named(key).ok_or_else(|| self.not_live(key, act).into())
    }

    /// The alloc node of an output.
    pub(crate) fn key_of(&self, allocation: &Arc<Allocation>) -> Option<Key> {
        let is_it = |other: &Weak<Allocation>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(allocation));
        lock(&self.names).iter().find(|(_, other)| is_it(other)).map(|(key, _)| *key)
    }

    /// The allocation with this number, whichever life it has; of a capture, with the life that is meant.
    pub(crate) fn find(&self, id: AllocId, generation: u64) -> Result<Arc<Allocation>> {
        let known = lock(&self.numbers).get(&id).and_then(Weak::upgrade);
        let captured = || lock(&self.captured).get(&id).cloned().filter(|it| it.life().generation == generation);
        known.or_else(captured).ok_or_else(|| Invalid::Stale.into())
    }

    /// A capture has allocated: the memory is known by views and by its address until the capture ends.
    pub(crate) fn enter_captured(&self, allocation: &Arc<Allocation>) {
        lock(&self.captured).insert(allocation.id, Arc::clone(allocation));
    }

    /// A capture has ended: what it allocated has names of the graph from now on.
    pub(crate) fn leave_captured(&self, session: &Session) {
        let mut captured = lock(&self.captured);
        let ended: Vec<_> = captured.extract_if(|_, it| it.is_of(session)).collect();
        drop(captured);
        // Behind the lock: the last reference to a session has the whole device with it.
        drop(ended);
    }

    /// What a capture has allocated at this address and not freed.
    pub(crate) fn find_captured(&self, session: &Session, address: u64) -> Option<Owned> {
        let captured = lock(&self.captured);
        // Addresses serve again within a capture: the one allocated last is meant.
        let found = captured.values().filter(|it| it.is_of(session) && it.life().range.start == address);
        let allocation = Arc::clone(found.max_by_key(|it| it.index)?);
        drop(captured);
        let generation = allocation.life().generation;
        Some(Owned { allocation, generation, address })
    }

    /// Refuses where another graph has a free node for the allocation; its own graph is another one to all but itself.
    pub(crate) fn check_grant(
        &self,
        graph: GraphId,
        alloc: GraphAllocId,
        who: &Grant,
    ) -> std::result::Result<(), GraphError> {
        match lock(&self.grants).get(&(graph, alloc)).and_then(Weak::upgrade) {
            Some(other) if other.graph != who.graph => Err(GraphError::FreedByOther { by: other.graph }),
            _ => Ok(()),
        }
    }

    /// The other graph that has a free node for an allocation.
    pub(crate) fn freed_by_other(&self, (graph, alloc): Key) -> Option<GraphId> {
        let by = lock(&self.grants).get(&(graph, alloc))?.upgrade()?.graph;
        (by != graph).then_some(by)
    }

    pub(crate) fn grant(&self, graph: GraphId, alloc: GraphAllocId, who: &Arc<Grant>) {
        let mut grants = lock(&self.grants);
        if grants.len() == grants.capacity() {
            // Before it grows, and not more often: a graph has many free nodes.
            grants.retain(|_, grant| grant.strong_count() > 0);
        }
        grants.insert((graph, alloc), Arc::downgrade(who));
    }

    pub(crate) fn withdraw(&self, graph: GraphId, alloc: GraphAllocId, who: &Arc<Grant>) {
        let mut grants = lock(&self.grants);
        let granted = grants.get(&(graph, alloc)).and_then(Weak::upgrade);
        if granted.is_some_and(|grant| grant.graph == who.graph) {
            grants.remove(&(graph, alloc));
        }
    }

    /// An instance is gone; its live outputs stay for whoever frees them by hand.
    pub(crate) fn leave(&self, outputs: impl Iterator<Item = Arc<Allocation>>) {
        let mut orphans = lock(&self.orphans);
        // Asked under that lock: who frees one of them looks for it there afterwards.
        let (live, mut gone): (Vec<_>, Vec<_>) = outputs.partition(|allocation| allocation.life().freed.is_none());
        match &mut *orphans {
            Some(orphans) => orphans.extend(live),
            None => gone.extend(live),
        }
        drop(orphans);
        self.end(gone);
        lock(&self.numbers).retain(|_, allocation| allocation.strong_count() > 0);
    }

    /// No instance has these any more, and they are freed.
    fn end(&self, gone: Vec<Arc<Allocation>>) {
        let freed_of = |it: &Arc<Allocation>| {
            let life = it.life();
            // The first life begins with the first launch.
            life.freed.now().filter(|_| life.was_launched()).map(|free| (Arc::as_ptr(it), free))
        };
        let freed: FxHashMap<*const Allocation, Use> = gone.iter().filter_map(freed_of).collect();
        // Behind the locks: the last reference to an allocation has its arena with it.
        drop(gone);
        let (mut names, mut ended) = (lock(&self.names), lock(&self.ended));
        names.retain(|key, named| {
            if let Some(free) = freed.get(&named.as_ptr()) {
                ended.add(*key, *free);
            }
            named.strong_count() > 0
        });
    }

    /// The device's last handle is gone: what no handle holds is never freed.
    pub(crate) fn forget_orphans(&self) {
        let orphans = lock(&self.orphans).take();
        drop(orphans);
    }

    /// An arena is gone.
    pub(crate) fn close(&self, arena: ArenaKey, ranges: Vec<Range>) {
        lock(&self.closing).push((arena, ranges));
    }

    /// Gives back what nothing uses any more. Never waits.
    pub(crate) fn finish_closing(&self, context: &Context) {
        let closing = std::mem::take(&mut *lock(&self.closing));
        if closing.is_empty() {
            return;
        }
        if !context.is_idle() {
            lock(&self.closing).extend(closing);
            return;
        }
        // Where a launch is being made: once more with the next.
        let Some(mut memory) = self.memory.try_lock() else { return lock(&self.closing).extend(closing) };
        memory.learn_frees(&self.frees);
        let mut spare = lock(&self.spare);
        for (arena, ranges) in closing {
            memory.retire(arena);
            spare.extend(ranges);
            context.memory_came_back();
        }
        // The oldest go. What the system refuses stays.
        let mut many = spare.len().saturating_sub(SPARES);
        spare.retain(|range| {
            let goes = many > 0 && memory.give_back(context, *range);
            many -= usize::from(goes);
            !goes
        });
    }

    /// Spare addresses for at least `bytes`, if there are some: those that served last.
    pub(crate) fn take_spare(&self, bytes: u64) -> Option<Range> {
        let mut spare = lock(&self.spare);
        let at = spare.iter().rposition(|range| range.bytes >= bytes)?;
        Some(spare.remove(at))
    }

    /// Lets spare addresses go that `give_back` gives back.
    pub(crate) fn trim_spare(&self, mut give_back: impl FnMut(Range) -> bool) {
        lock(&self.spare).retain(|range| !give_back(*range));
    }

    pub(super) fn take_orphan(&self, allocation: &Arc<Allocation>) {
        let mut orphans = lock(&self.orphans);
        let taken = orphans.as_mut().and_then(|orphans| {
            let at = orphans.iter().position(|orphan| Arc::ptr_eq(orphan, allocation))?;
            Some(orphans.swap_remove(at))
        });
        drop(orphans);
        if let Some(taken) = taken {
            self.end(vec![taken]);
        }
    }
}

impl Context {
    /// The graphs of the device, as this floor knows them.
    #[inline]
    pub(crate) fn graphs(&self) -> &Graphs {
        let any: &dyn Any = &*self.graphs;
        any.downcast_ref().expect("a device is opened with the graphs of this floor")
    }
}

impl Captured<Context> for Graphs {
    /// An allocation of a capture that goes on.
    fn find_open(&self, id: AllocId) -> Option<Arc<Allocation>> {
        lock(&self.captured).get(&id).cloned()
    }
}

/// The live allocation of a graph that starts at `pointer`.
#[cold]
pub(crate) fn find_in_graphs(context: &Context, pointer: u64) -> std::result::Result<Owned, Nearest> {
    let all: Vec<_> = lock(&context.graphs().numbers).values().filter_map(Weak::upgrade).collect();
    let mut nearest = Nearest::Outside { nearest: None };
    for allocation in all {
        let life = allocation.life();
        // Before its first launch it has had no life.
        if !life.range.contains(pointer) || !life.was_launched() {
            continue;
        }
        if life.freed.is_none() && life.range.start == pointer {
            let generation = life.generation;
            drop(life);
            return Ok(Owned { allocation, generation, address: pointer });
        }
        let described = allocation.describe(&life);
        // Addresses serve again: what lives there is meant, before all that did.
        if life.freed.is_none() {
            return Err(Nearest::Inside { allocation: described, offset: pointer - life.range.start });
        }
        nearest = Nearest::Freed { allocation: described };
    }
    if nearest == (Nearest::Outside { nearest: None }) {
        let arenas: Vec<Arc<Arena>> = lock(&context.graphs().arenas).iter().filter_map(Weak::upgrade).collect();
        if let Some(found) = arenas.iter().find_map(|arena| arena.node_at(pointer)) {
            nearest = found;
        }
    }
    Err(nearest)
}

#[cfg(test)]
mod tests {
    use millpond_core::check::Site;
    use millpond_core::ids::{Point, Slot};

    use super::*;

    #[test]
    fn the_newest_frees_are_known() {
        let mut ended = Ended::default();
        let key = |graph: usize| (GraphId(graph as u32), GraphAllocId(0));
        let free = |seq: usize| Use { point: Point { slot: Slot(0), seq: seq as u32 as _ }, site: Site::default() };
        for graph in 0..ENDED_KEPT + 3 {
            ended.add(key(graph), free(graph));
            ended.add(key(graph), free(graph + 1));
        }
        assert_eq!((ended.freed.len(), ended.order.len()), (ENDED_KEPT, ENDED_KEPT));
        assert!(!ended.freed.contains_key(&key(2)));
        assert_eq!(ended.freed.get(&key(3)), Some(&free(4)), "the last time");
    }
}
