//! The state that the graphs of a device share: numbers, captures in progress, memory that launches left live.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::{Finding, Kind, Site, Use};
use millpond_core::graph::{ArenaKey, GraphAllocId, GraphId};
use millpond_core::ids::AllocId;
use millpond_core::op::Memory as TracedMemory;
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::locks::{BiasedGuard, Guard, Mutex, lock};
use rustc_hash::FxHashMap;

use super::capture::Recording;
use super::exec::ExecShared;
use super::gone::GoneArenas;
use super::grant::Grant;
use super::memory::{Frees, GraphMemory};
use super::outputs::{CapturedMemory, Key, Outputs};
use crate::graph::arena::Arena;
use crate::names::error::{Error, Invalid, Nearest, Result};
use crate::names::stream_names::side;
use crate::state::allocation::{Allocation, Life, Owned};
use crate::state::context::Context;
use crate::state::named::NodeName;
use crate::state::session::Session;
use crate::sync::ranks;
use crate::sync::weak_list::WeakList;
use crate::trace::tracer::Tracer;

/// The most spare ranges of addresses.
const SPARES: usize = 16;

/// The numbers left for copies, and for graphs that are made at the same time.
const NUMBERS_LEFT: u32 = 1 << 24;

/// See the module.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// The number of their device.
    device: u32,
    memory: Mutex<ranks::GraphMemory, GraphMemory>,
    pub(crate) frees: Frees,
    next_graph: AtomicU32,
    pub(crate) next_arena: AtomicU64,
    /// The instances.
    pub(super) execs: Mutex<ranks::Table, WeakList<ExecShared>>,
    /// The arenas of the graphs.
    pub(super) arenas: Mutex<ranks::Table, WeakList<Arena>>,
    /// The number of captures in progress. If it is 0, no call looks further.
    pub(crate) open: AtomicUsize,
    pub(crate) captures: Arc<Mutex<ranks::Captures, Recording>>,
    /// The name of the counter that counts them together with those of other devices, if there is one.
    pub(super) counted_by: Option<Arc<str>>,
    /// The memory that launches leave live.
    outputs: Mutex<ranks::Table, Outputs>,
    /// The allocations of captures in progress.
    captured: Mutex<ranks::Table, CapturedMemory>,
    /// The graph that has the free node of each allocation.
    grants: Mutex<ranks::Table, FxHashMap<Key, Weak<Grant>>>,
    /// Live memory of instances that are gone, as long as the device has a handle. It refers to the device.
    orphans: Mutex<ranks::Table, Option<FxHashMap<AllocId, Arc<Allocation>>>>,
    closing: Mutex<ranks::Table, GoneArenas>,
    /// Addresses of former arenas, with the memory that is mapped there, for new arenas.
    spare: Mutex<ranks::Table, Vec<Range>>,
}

impl Graphs {
    pub(crate) fn new(device: u32, granularity: u64, counts_captures: Option<&str>) -> Self {
        Self {
            device,
            memory: Mutex::new(GraphMemory::new(granularity)),
            frees: Frees::default(),
            next_graph: AtomicU32::default(),
            next_arena: AtomicU64::default(),
            execs: Mutex::new(WeakList::new()),
            arenas: Mutex::new(WeakList::new()),
            open: AtomicUsize::default(),
            captures: Arc::new(Mutex::new(Recording::new(device))),
            counted_by: counts_captures.map(Arc::from),
            outputs: Mutex::default(),
            captured: Mutex::default(),
            grants: Mutex::default(),
            orphans: Mutex::new(Some(FxHashMap::default())),
            closing: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Locks the graph memory, which first learns of all frees.
    #[inline]
    pub(crate) fn memory(&self) -> Guard<'_, GraphMemory> {
        let mut memory = lock(&self.memory);
        memory.learn_frees(&self.frees);
        memory
    }

    /// Refuses a new graph if numbers run out. Two graphs with one number would be taken for one when their memory is
    /// freed.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        match self.next_graph.load(Ordering::Relaxed) {
            made if made < u32::MAX - NUMBERS_LEFT => Ok(()),
            made => Err(Invalid::NoNumbers { what: "graphs", made }.into()),
        }
    }

    pub(crate) fn next_graph(&self) -> GraphId {
        GraphId(self.next_graph.fetch_add(1, Ordering::Relaxed))
    }

    /// Records that the memory of a lifetime that a launch began, and that ended just now, is free after `after`. The
    /// lifetime is locked until that is recorded: the next launch must not begin another one in between.
    pub(crate) fn freed(&self, allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, after: Frontier) {
        self.frees.push(life.range, after);
        drop(life);
        self.take_orphan(allocation.id);
    }

    /// Adds an output of an instance, by its number and its address. It is known by its alloc node too, unless its
    /// instance has addresses of its own.
    pub(crate) fn enter(&self, allocation: &Arc<Allocation>, key: Option<Key>) {
        let start = allocation.life().range.start;
        lock(&self.outputs).enter(allocation, start, key);
    }

    /// Returns the allocation of an alloc node, if an instance has it.
    pub(crate) fn named(&self, key: Key) -> Option<Arc<Allocation>> {
        lock(&self.outputs).named(key)
    }

    /// Returns the outputs of instances that start at an address.
    pub(super) fn outputs_at(&self, address: u64) -> Vec<Arc<Allocation>> {
        lock(&self.outputs).at(address).collect()
    }

    /// Returns all outputs of instances.
    pub(super) fn outputs(&self) -> Vec<Arc<Allocation>> {
        lock(&self.outputs).all().collect()
    }

    /// Makes the error for a use or free of an alloc node's memory that is not live.
    #[cold]
    pub(crate) fn not_live(&self, key: Key, later: Site) -> Error {
        let freed = lock(&self.outputs).ended(key);
        let freed = freed.map(|free| side(self.device, free.site));
        let (node, later) = (format!("memory of an alloc node of {}", key.0), (later.act, side(self.device, later)));
        match (freed, later) {
            (Some(freed), (_, later)) => Finding::after_free_of(&node, Some(freed), later).into(),
            (None, (act, later)) => {
                let is_freed_again = self.freed_by(key) == Some(key.0);
                Finding::not_launched(&node, act, &later.by(), is_freed_again).at(later).into()
            }
        }
    }

    /// Returns `true` if the memory of the alloc node at an address was launched and freed, and its instance is gone.
    #[cold]
    pub(crate) fn was_freed(&self, address: u64) -> bool {
        self.node_from(address).is_some_and(|key| lock(&self.outputs).ended(key).is_some())
    }

    /// Returns the last alloc node whose memory starts at an address, if its graph or an instance of it exists.
    #[cold]
    pub(crate) fn node_from(&self, address: u64) -> Option<Key> {
        let arenas = lock(&self.arenas).live();
        arenas.iter().find_map(|arena| arena.node_from(address))
    }

    /// Returns the allocation that a name means on a stream.
    pub(crate) fn resolve(&self, name: NodeName, later: Site) -> Result<Arc<Allocation>> {
        if name.is_symbolic() {
            // For a stream it is memory that no launch has left live.
            let mut finding = Finding::symbolic(&name.graph.to_string()).at(side(self.device, later));
            finding.kind = Kind::before_alloc(later.act);
            return Err(finding.into());
        }
        let key = (name.graph, name.alloc);
        self.named(key).ok_or_else(|| self.not_live(key, later))
    }

    /// Returns the alloc node of an output.
    pub(crate) fn key_of(&self, allocation: &Allocation) -> Option<Key> {
        lock(&self.outputs).key_of(allocation.id, allocation)
    }

    /// Returns the allocation with this number, in any lifetime; of a capture, only in the lifetime `generation`.
    pub(crate) fn find(&self, id: AllocId, generation: u64) -> Result<Arc<Allocation>> {
        let known = lock(&self.outputs).find(id);
        let captured = || self.find_open(id).filter(|it| it.life().generation == generation);
        known.or_else(captured).ok_or_else(|| Invalid::Stale.into())
    }

    /// Adds an allocation of a capture. Views and its address name the memory until the capture ends.
    pub(crate) fn enter_captured(&self, allocation: &Arc<Allocation>) {
        let start = allocation.life().range.start;
        lock(&self.captured).enter(allocation, start);
    }

    /// Removes the allocations of a capture that has ended. From now on the graph's names are used.
    pub(crate) fn leave_captured(&self, session: &Session) {
        let ended = lock(&self.captured).leave(session);
        // Dropped after the lock is released: the last reference to a session drops the whole device.
        drop(ended);
    }

    /// Returns an allocation of a capture in progress.
    pub(crate) fn find_open(&self, id: AllocId) -> Option<Arc<Allocation>> {
        lock(&self.captured).find(id)
    }

    /// Returns the last allocation at this address in a capture.
    pub(crate) fn find_captured(&self, session: &Session, address: u64) -> Option<Owned> {
        let allocation = lock(&self.captured).find_at(session, address)?;
        let generation = allocation.life().generation;
        Some(Owned { allocation, generation, address })
    }

    /// Returns the graph that has the free node for an allocation.
    pub(super) fn freed_by(&self, key: Key) -> Option<GraphId> {
        Some(lock(&self.grants).get(&key)?.upgrade()?.graph)
    }

    /// Adds the free node for an allocation to the graph of `who`, by calling `add` with the graph that has a free node
    /// already. If two threads call this, only one of them gets the free node.
    pub(super) fn grant<R, E>(
        &self,
        key: Key,
        who: &Arc<Grant>,
        add: impl FnOnce(Option<GraphId>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        // Dropped after the lock is released: the last reference writes to the trace.
        let former;
        let mut grants = lock(&self.grants);
        former = grants.get(&key).and_then(Weak::upgrade);
        let added = add(former.as_ref().map(|former| former.graph))?;
        if grants.len() == grants.capacity() {
            // Swept only before it grows, because a graph has many free nodes.
            grants.retain(|_, grant| grant.strong_count() > 0);
        }
        grants.insert(key, Arc::downgrade(who));
        Ok(added)
    }

    pub(crate) fn withdraw(&self, graph: GraphId, alloc: GraphAllocId, who: &Arc<Grant>) {
        let mut grants = lock(&self.grants);
        let granted = grants.get(&(graph, alloc)).and_then(Weak::upgrade);
        if granted.is_some_and(|grant| grant.graph == who.graph) {
            grants.remove(&(graph, alloc));
        }
    }

    /// Removes an instance that is gone. Its live outputs stay for an explicit free.
    pub(crate) fn leave(&self, outputs: impl Iterator<Item = Arc<Allocation>>) {
        let (live, mut gone): (Vec<_>, Vec<_>) = outputs.partition(|allocation| allocation.life().freed.is_none());
        let ids: Vec<AllocId> = live.iter().map(|it| it.id).collect();
        match &mut *lock(&self.orphans) {
            Some(orphans) => orphans.extend(live.into_iter().map(|it| (it.id, it))),
            None => gone.extend(live),
        }
        self.end(gone);
        // A thread that frees an output from now on takes it out of the list. What was freed since the first look is
        // taken out here.
        ids.into_iter().for_each(|id| self.take_orphan(id));
    }

    /// Removes freed allocations that no instance has any more.
    fn end(&self, gone: Vec<Arc<Allocation>>) {
        let freed_of = |it: &Arc<Allocation>| {
            let life = it.life();
            // The first lifetime begins with the first launch.
            (it.id, Arc::as_ptr(it), life.freed.now().filter(|_| life.was_launched()))
        };
        let ended: Vec<(AllocId, *const Allocation, Option<Use>)> = gone.iter().map(freed_of).collect();
        // Dropped before the table is locked: the last reference to an allocation drops its arena.
        drop(gone);
        let mut outputs = lock(&self.outputs);
        ended.into_iter().for_each(|(id, at, freed)| outputs.end(id, at, freed));
    }

    /// Drops what is left when the device's last handle is gone: memory that no handle holds is never freed.
    pub(crate) fn forget_orphans(&self) {
        let orphans = lock(&self.orphans).take();
        drop(orphans);
    }

    /// Adds an arena that is gone.
    pub(crate) fn close(&self, context: &Context, arena: ArenaKey, ranges: Vec<Range>) {
        if lock(&self.closing).add(arena, ranges) {
            self.finish_closing(context);
        }
    }

    /// Gives back addresses that nothing uses any more. Never waits.
    pub(crate) fn finish_closing(&self, context: &Context) {
        // Taken out before the device is queried: arenas that are closed later may still be in use.
        let streams = context.in_flight.stream_indices();
        let closing = lock(&self.closing).take(streams);
        if closing.is_empty() {
            return;
        }
        // If a launch is in progress, this is tried again with the next arena.
        let memory = if context.is_idle() { self.memory.try_lock() } else { None };
        let Some(mut memory) = memory else { return lock(&self.closing).put_back(closing) };
        memory.learn_frees(&self.frees);
        let mut spare = lock(&self.spare);
        for (arena, ranges) in closing {
            memory.retire(arena);
            spare.extend(ranges);
            context.memory_came_back();
        }
        // The oldest ranges are given back first. Those that the system refuses stay.
        let mut many = spare.len().saturating_sub(SPARES);
        spare.retain(|range| {
            let goes = many > 0 && memory.give_back(context, *range);
            many -= usize::from(goes);
            !goes
        });
    }

    /// Returns spare addresses for at least `bytes`, if there are any: those that were used last.
    pub(super) fn take_spare(&self, bytes: u64) -> Option<Range> {
        let mut spare = lock(&self.spare);
        let at = spare.iter().rposition(|range| range.bytes >= bytes)?;
        Some(spare.remove(at))
    }

    /// Drops the spare addresses that `give_back` gives back.
    pub(crate) fn trim_spare(&self, mut give_back: impl FnMut(Range) -> bool) {
        lock(&self.spare).retain(|range| !give_back(*range));
    }

    /// Removes an output from the list of live ones, if it is there and is freed.
    fn take_orphan(&self, id: AllocId) {
        let found = lock(&self.orphans).as_ref().and_then(|orphans| orphans.get(&id).cloned());
        let Some(found) = found else { return };
        // Under its lock, because a launch of another instance may begin another lifetime.
        let life = found.life();
        let taken = match life.freed.is_none() {
            true => None,
            false => lock(&self.orphans).as_mut().and_then(|orphans| orphans.remove(&id)),
        };
        drop(life);
        drop(found);
        taken.into_iter().for_each(|taken| self.end(vec![taken]));
    }
}

/// Returns an output if a launch left it live and nothing freed it.
fn live(allocation: Arc<Allocation>) -> Option<Owned> {
    let life = allocation.life();
    let (is_live, generation, address) =
        (life.was_launched() && life.freed.is_none(), life.generation, life.range.start);
    drop(life);
    is_live.then_some(Owned { allocation, generation, address })
}

/// Returns the name in a trace of a graph's memory that starts at `pointer` and is not live: its last lifetime, or the
/// alloc node that never had one.
#[cold]
pub(crate) fn freed_in_graphs(context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory> {
    let had_life = context.graphs.outputs_at(pointer).into_iter().find_map(|allocation| {
        let life = allocation.life();
        let is_it = life.was_launched() && life.freed.is_some() && life.range.start == pointer;
        is_it.then(|| tracer.memory(allocation.id, life.generation))
    });
    had_life.or_else(|| {
        let (graph, alloc) = context.graphs.node_from(pointer)?;
        Some(tracer.alloc_node(graph, alloc))
    })
}

/// Returns the live allocation of a graph that starts at `pointer`.
#[cold]
pub(crate) fn find_in_graphs(context: &Context, pointer: u64) -> std::result::Result<Owned, Nearest> {
    if let Some(owned) = context.graphs.outputs_at(pointer).into_iter().find_map(live) {
        return Ok(owned);
    }
    let mut nearest = Nearest::Outside { nearest: None };
    for allocation in context.graphs.outputs() {
        let life = allocation.life();
        // Before its first launch it has had no lifetime.
        if !life.range.contains(pointer) || !life.was_launched() {
            continue;
        }
        let described = allocation.describe(&life);
        // Addresses are reused: live memory is meant before memory that was live earlier.
        if life.freed.is_none() {
            return Err(Nearest::Inside { allocation: described, offset: pointer - life.range.start });
        }
        nearest = Nearest::Freed { allocation: described };
    }
    if nearest == (Nearest::Outside { nearest: None }) {
        let arenas = lock(&context.graphs.arenas).live();
        if let Some(found) = arenas.iter().find_map(|arena| arena.node_at(pointer)) {
            nearest = found;
        }
    }
    Err(nearest)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::NUMBERS_LEFT;
    use crate::{Device, HostConfig};

    #[test]
    fn graphs_are_refused_where_numbers_run_out() {
        let device = Device::host(HostConfig::default()).unwrap();
        let stream = device.stream().unwrap();
        device.context().graphs.next_graph.store(u32::MAX - NUMBERS_LEFT - 1, Ordering::Relaxed);
        let _last = device.graph().unwrap();
        let refusals = [
            device.graph().map(drop).unwrap_err(),
            device.symbolic_graph().map(drop).unwrap_err(),
            stream.begin_capture().unwrap_err(),
        ];
        for refused in refusals {
            assert!(refused.to_string().contains("no numbers left for graphs"), "{refused}");
        }
        assert!(!stream.is_capturing().unwrap());
        stream.synchronize().unwrap();
    }
}
