//! What the graphs of a device share: numbers, captures in progress, memory that launches left live.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Finding, Kind, Side, Site, Sought, Use};
use millpond_core::graph::{ArenaKey, GraphAllocId, GraphId};
use millpond_core::ids::{AllocId, StreamId};
use millpond_core::op::Memory as TracedMemory;
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::locks::{BiasedGuard, Guard, Mutex, lock};
use rustc_hash::FxHashMap;

use super::capture::Recording;
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
use crate::trace::tracer::Tracer;

/// So many spare ranges of addresses are kept.
const SPARES: usize = 16;

/// So many numbers are left to copies, and to graphs that are made at the same time.
const NUMBERS_LEFT: u32 = 1 << 24;

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
    pub(crate) next_arena: AtomicU64,
    /// The instances that there are; some are gone.
    pub(super) execs: Mutex<ranks::Table, Vec<Weak<dyn Launched>>>,
    /// Whose addresses graphs have.
    pub(super) arenas: Mutex<ranks::Table, Vec<Weak<Arena>>>,
    /// How many captures are in progress; no call looks further where there are none.
    pub(crate) open: AtomicUsize,
    pub(crate) captures: Arc<Mutex<ranks::Captures, Recording>>,
    /// Who counts them together with those of other devices.
    pub(super) counted_by: Option<Arc<str>>,
    /// What launches leave live.
    outputs: Mutex<ranks::Table, Outputs>,
    /// What captures in progress have allocated.
    captured: Mutex<ranks::GraphOutputs, CapturedMemory>,
    /// Which graph has the free node.
    grants: Mutex<ranks::Table, FxHashMap<Key, Weak<Grant>>>,
    /// Live memory of instances that are gone, for as long as the device has a handle. It refers to the device.
    orphans: Mutex<ranks::GraphOutputs, Option<FxHashMap<AllocId, Arc<Allocation>>>>,
    closing: Mutex<ranks::Table, GoneArenas>,
    /// Addresses that arenas had, and what is mapped there, for arenas to come.
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
            execs: Mutex::default(),
            arenas: Mutex::default(),
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

    /// The memory, past all frees.
    #[inline]
    pub(crate) fn memory(&self) -> Guard<'_, GraphMemory> {
        let mut memory = lock(&self.memory);
        memory.learn_frees(&self.frees);
        memory
    }

    /// Refuses where numbers run out: two graphs with one number would be one to frees of their memory.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        match self.next_graph.load(Ordering::Relaxed) {
            made if made < u32::MAX - NUMBERS_LEFT => Ok(()),
            made => Err(Invalid::NoNumbers { what: "graphs", made }.into()),
        }
    }

    pub(crate) fn next_graph(&self) -> GraphId {
        GraphId(self.next_graph.fetch_add(1, Ordering::Relaxed))
    }

    /// A new arena.
    pub(crate) fn enter_arena(&self, arena: &Arc<Arena>) {
        let mut arenas = lock(&self.arenas);
        if arenas.len() == arenas.capacity() {
            // Before it grows, and not more often.
            arenas.retain(|arena| arena.strong_count() > 0);
            let wanted = arenas.len() + 1;
            arenas.reserve(wanted);
        }
        arenas.push(Arc::downgrade(arena));
    }

    /// The memory of a life that a launch began, and that ended just now, is free after `after`. Its lock is held until
    /// that is known: the next launch must not begin another life in between.
    pub(crate) fn freed(&self, allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>, after: Frontier) {
        self.frees.push(life.range, after);
        drop(life);
        self.take_orphan(allocation);
    }

    /// An output of an instance is known by its number and its address from now on, and by its alloc node, unless its
    /// instance has addresses of its own.
    pub(crate) fn enter(&self, allocation: &Arc<Allocation>, key: Option<Key>) {
        let start = allocation.life().range.start;
        lock(&self.outputs).enter(allocation, start, key);
    }

    /// The allocation of an alloc node, if an instance has it.
    pub(crate) fn named(&self, key: Key) -> Option<Arc<Allocation>> {
        lock(&self.outputs).named(key)
    }

    /// The outputs of instances that start at an address.
    pub(super) fn outputs_at(&self, address: u64) -> Vec<Arc<Allocation>> {
        lock(&self.outputs).at(address).collect()
    }

    /// All outputs of instances.
    pub(super) fn outputs(&self) -> Vec<Arc<Allocation>> {
        lock(&self.outputs).all().collect()
    }

    /// Why memory of an alloc node that is not live cannot be used or freed.
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

    /// The allocation that a name means on a stream.
    pub(crate) fn resolve(&self, name: NodeName, later: Site) -> Result<Arc<Allocation>> {
        if name.is_symbolic() {
            // To a stream it is memory that no launch has left.
            let mut finding = Finding::symbolic(&name.graph.to_string()).at(side(self.device, later));
            finding.kind = Kind::before_alloc(later.act);
            return Err(finding.into());
        }
        let key = (name.graph, name.alloc);
        self.named(key).ok_or_else(|| self.not_live(key, later))
    }

    /// The alloc node of an output.
    pub(crate) fn key_of(&self, allocation: &Allocation) -> Option<Key> {
        lock(&self.outputs).key_of(allocation.id, allocation)
    }

    /// The allocation with this number, whichever life it has; of a capture, with the life that is meant.
    pub(crate) fn find(&self, id: AllocId, generation: u64) -> Result<Arc<Allocation>> {
        let known = lock(&self.outputs).find(id);
        let captured = || lock(&self.captured).find(id).filter(|it| it.life().generation == generation);
        known.or_else(captured).ok_or_else(|| Invalid::Stale.into())
    }

    /// A capture has allocated: the memory is known by views and by its address until the capture ends.
    pub(crate) fn enter_captured(&self, allocation: &Arc<Allocation>) {
        lock(&self.captured).enter(allocation);
    }

    /// A capture has ended: what it allocated has names of the graph from now on.
    pub(crate) fn leave_captured(&self, session: &Session) {
        let ended = lock(&self.captured).leave(session);
        // Behind the lock: the last reference to a session has the whole device with it.
        drop(ended);
    }

    /// An allocation of a capture in progress.
    pub(crate) fn find_open(&self, id: AllocId) -> Option<Arc<Allocation>> {
        lock(&self.captured).find(id)
    }

    /// What a capture has allocated at this address and not freed.
    pub(crate) fn find_captured(&self, session: &Session, address: u64) -> Option<Owned> {
        let allocation = lock(&self.captured).find_at(session, address)?;
        let generation = allocation.life().generation;
        Some(Owned { allocation, generation, address })
    }

    /// Returns the graph that has the free node for an allocation.
    pub(super) fn freed_by(&self, key: Key) -> Option<GraphId> {
        Some(lock(&self.grants).get(&key)?.upgrade()?.graph)
    }

    /// Adds the free node for an allocation to the graph of `who`, by `add`, which takes the graph that has one. Of two
    /// threads one gets it.
    pub(super) fn grant<R, E>(
        &self,
        key: Key,
        who: &Arc<Grant>,
        add: impl FnOnce(Option<GraphId>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        // Dropped behind the lock: it writes to the trace if it is the last.
        let former;
        let mut grants = lock(&self.grants);
        former = grants.get(&key).and_then(Weak::upgrade);
        let added = add(former.as_ref().map(|former| former.graph))?;
        if grants.len() == grants.capacity() {
            // Before it grows, and not more often: a graph has many free nodes.
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

    /// An instance is gone; its live outputs stay for whoever frees them by hand.
    pub(crate) fn leave(&self, outputs: impl Iterator<Item = Arc<Allocation>>) {
        let mut orphans = lock(&self.orphans);
        // Asked under that lock: who frees one of them looks for it there afterwards.
        let (live, mut gone): (Vec<_>, Vec<_>) = outputs.partition(|allocation| allocation.life().freed.is_none());
        match &mut *orphans {
            Some(orphans) => orphans.extend(live.into_iter().map(|it| (it.id, it))),
            None => gone.extend(live),
        }
        drop(orphans);
        self.end(gone);
    }

    /// No instance has these any more, and they are freed.
    fn end(&self, gone: Vec<Arc<Allocation>>) {
        let freed_of = |it: &Arc<Allocation>| {
            let life = it.life();
            // The first life begins with the first launch.
            (it.id, Arc::as_ptr(it), life.freed.now().filter(|_| life.was_launched()))
        };
        let ended: Vec<(AllocId, *const Allocation, Option<Use>)> = gone.iter().map(freed_of).collect();
        // Behind the locks: the last reference to an allocation has its arena with it.
        drop(gone);
        let mut outputs = lock(&self.outputs);
        ended.into_iter().for_each(|(id, at, freed)| outputs.end(id, at, freed));
    }

    /// The device's last handle is gone: what no handle holds is never freed.
    pub(crate) fn forget_orphans(&self) {
        let orphans = lock(&self.orphans).take();
        drop(orphans);
    }

    /// An arena is gone.
    pub(crate) fn close(&self, context: &Context, arena: ArenaKey, ranges: Vec<Range>) {
        if lock(&self.closing).add(arena, ranges) {
            self.finish_closing(context);
        }
    }

    /// Gives back what nothing uses any more. Never waits.
    pub(crate) fn finish_closing(&self, context: &Context) {
        // Taken out before the device is asked: what is closed later may still be used.
        let streams = context.in_flight.stream_indices();
        let closing = lock(&self.closing).take(streams);
        if closing.is_empty() {
            return;
        }
        // Where a launch is being made: once more with the next.
        let memory = if context.is_idle() { self.memory.try_lock() } else { None };
        let Some(mut memory) = memory else { return lock(&self.closing).put_back(closing) };
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
    pub(super) fn take_spare(&self, bytes: u64) -> Option<Range> {
        let mut spare = lock(&self.spare);
        let at = spare.iter().rposition(|range| range.bytes >= bytes)?;
        Some(spare.remove(at))
    }

    /// Lets spare addresses go that `give_back` gives back.
    pub(crate) fn trim_spare(&self, mut give_back: impl FnMut(Range) -> bool) {
        lock(&self.spare).retain(|range| !give_back(*range));
    }

    fn take_orphan(&self, allocation: &Arc<Allocation>) {
        let mut orphans = lock(&self.orphans);
        let taken = orphans.as_mut().and_then(|orphans| orphans.remove(&allocation.id));
        drop(orphans);
        if let Some(taken) = taken {
            self.end(vec![taken]);
        }
    }
}

/// An output, if a launch left it live and nothing freed it.
fn live(allocation: Arc<Allocation>) -> Option<Owned> {
    let life = allocation.life();
    let (is_live, generation, address) =
        (life.was_launched() && life.freed.is_none(), life.generation, life.range.start);
    drop(life);
    is_live.then_some(Owned { allocation, generation, address })
}

/// What a trace calls the memory of a graph that starts at `pointer` and is not live: its last life, or the alloc node
/// that never had one.
#[cold]
pub(crate) fn freed_in_graphs(context: &Context, tracer: &Tracer, pointer: u64) -> Option<TracedMemory> {
    let had_life = context.graphs.outputs_at(pointer).into_iter().find_map(|allocation| {
        let life = allocation.life();
        let is_it = life.was_launched() && life.freed.is_some() && life.range.start == pointer;
        is_it.then(|| tracer.memory(allocation.id, life.generation))
    });
    had_life.or_else(|| {
        let arenas: Vec<Arc<Arena>> = lock(&context.graphs.arenas).iter().filter_map(Weak::upgrade).collect();
        let (graph, alloc) = arenas.iter().find_map(|arena| arena.node_from(pointer))?;
        Some(tracer.alloc_node(graph, alloc))
    })
}

/// The live allocation of a graph that starts at `pointer`.
#[cold]
pub(crate) fn find_in_graphs(context: &Context, pointer: u64) -> std::result::Result<Owned, Nearest> {
    if let Some(owned) = context.graphs.outputs_at(pointer).into_iter().find_map(live) {
        return Ok(owned);
    }
    let mut nearest = Nearest::Outside { nearest: None };
    for allocation in context.graphs.outputs() {
        let life = allocation.life();
        // Before its first launch it has had no life.
        if !life.range.contains(pointer) || !life.was_launched() {
            continue;
        }
        let described = allocation.describe(&life);
        // Addresses serve again: what lives there is meant, before all that did.
        if life.freed.is_none() {
            return Err(Nearest::Inside { allocation: described, offset: pointer - life.range.start });
        }
        nearest = Nearest::Freed { allocation: described };
    }
    if nearest == (Nearest::Outside { nearest: None }) {
        let arenas: Vec<Arc<Arena>> = lock(&context.graphs.arenas).iter().filter_map(Weak::upgrade).collect();
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
