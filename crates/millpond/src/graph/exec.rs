//! An instance of a graph: its program, its lanes, its outputs (CUDA: `cudaGraphExec_t`).
//!
//! It has the graph as it was when the instance was made. `launch.rs` has the launch.
//!
//! Invariant **no-overlap**: launches of one instance, and of earlier instances at its addresses, run one after the
//! other.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use millpond_core::check::{Act, Finding, Place};
use millpond_core::graph::{
    Addressing, ArenaKey, Asked, Draft, Exec as CoreExec, GraphAllocId, GraphId, Lanes, Memory, Refusal,
};
use millpond_core::ids::StreamId;
use millpond_core::units::Range;
use millpond_driver::locks::{Biased, RwLock, lock, read, write};
use millpond_driver::{Driver, Label, RawStream, StreamFlags, process};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::body::Body;
use super::build::Graph;
use super::events::Events;
use super::family::Family;
use super::found::{Found, Founds, LastActs, Output, Outside, Whose};
use super::grant::Grant;
use super::holder::Claim;
use super::last::Last;
use super::native_nodes::{is_native, native_of};
use super::program::Program;
use super::traced::TracedExec;
use crate::graph::arena::Arena;
use crate::names::error::{Error, Invalid, Result};
use crate::names::shadow;
use crate::pool::shell::TRIES;
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::named::MemAllocNode;
use crate::state::origin::Origin;
use crate::stream::native::Native;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// The settings of an instantiation.
///
/// ```
/// # use millpond::graph::Instantiate;
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, pool) = (device.stream()?, device.default_pool());
/// let (graph, x) = stream.capture(|s| Ok(s.alloc::<u32>(&pool, 4)?.into_alloc_node()))?;
/// let exec = graph.instantiate(Instantiate::new().auto_free_on_launch(true))?;
/// let first = exec.launch(&stream)?.take(x)?;
/// let second = exec.launch(&stream)?.take(x)?; // frees the first
/// assert!(stream.memset(first.write(), 0).is_err());
/// stream.free(second)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Instantiate {
    /// Each launch first frees the memory that earlier launches left live. The free is at the point of the launch, and
    /// is checked like any free (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`). Dropping the instance frees
    /// nothing.
    pub auto_free_on_launch: bool,
}

impl Instantiate {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self { auto_free_on_launch: false }
    }

    /// Sets [`auto_free_on_launch`](Self#structfield.auto_free_on_launch).
    #[must_use]
    pub const fn auto_free_on_launch(mut self, is_on: bool) -> Self {
        self.auto_free_on_launch = is_on;
        self
    }
}

/// An instance of a graph, which can be launched repeatedly. Clones name the same instance.
///
/// Dropping it frees no memory that a launch left live, and work in flight still runs.
///
/// ```
/// # use millpond::graph::Instantiate;
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, pool) = (device.stream()?, device.default_pool());
/// let x = stream.alloc::<u32>(&pool, 4)?;
/// stream.memset(x.write(), 0)?;
/// let (graph, ()) = stream.capture(|s| {
///     let scratch = s.alloc::<u32>(&pool, 4)?;
///     s.launch((x.write(), scratch.write()), |(x, _)| x.iter_mut().for_each(|x| *x += 1))
/// })?;
/// let exec = graph.instantiate(Instantiate::default())?;
/// for _ in 0..3 {
///     exec.launch(&stream)?;
/// }
/// assert_eq!(stream.copy_to_host(x.read())?, [3; 4]);
/// stream.free(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GraphExec {
    pub(crate) shared: Arc<Instance>,
}

/// The parts of an instance that an update does not replace.
pub(crate) struct Instance {
    pub(crate) context: Arc<Context>,
    auto_free: bool,
    /// Its nodes. Locked for reading while they are launched: no launch runs nodes that an update has replaced.
    pub(crate) present: RwLock<ranks::Instance, Arc<ExecShared>>,
    _claim: Arc<Claim>,
}

/// The nodes of an instance, and all that launches of them need.
pub(crate) struct ExecShared {
    pub(crate) context: Arc<Context>,
    /// A number that no other instance of the process has.
    pub(crate) number: u64,
    /// Empty if the instance is a graph of the device's own.
    pub(crate) program: Arc<Program>,
    pub(crate) native: Option<Native>,
    /// The graph that it was made from. It becomes a child if a capturing stream launches the instance.
    pub(crate) body: Arc<Body>,
    pub(crate) lanes: Vec<RawStream>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) outsides: Vec<Outside>,
    /// The memory that launches use and leave live, if it is the same for all of them.
    pub(crate) found: Option<Founds>,
    /// The arenas that it uses, and their numbers.
    pub(crate) arenas: Vec<Arc<Arena>>,
    pub(crate) arena_keys: Vec<ArenaKey>,
    /// The addresses of all its allocations, sorted and disjoint.
    pub(crate) cover: Vec<Range>,
    /// The addresses of its symbolic allocations, and the range that it has for them.
    placed: FxHashMap<(GraphId, GraphAllocId), u64>,
    room: Option<Room>,
    pub(crate) events: Option<Events>,
    pub(crate) auto_free: bool,
    /// Its name in a trace.
    pub(crate) traced: Option<Arc<TracedExec>>,
    pub(crate) run: Biased<ranks::Run, Run>,
    _grants: Vec<Arc<Grant>>,
}

/// The addresses that one instance has for its symbolic allocations.
#[derive(Debug)]
struct Room {
    arena: Arc<Arena>,
    range: Range,
}

impl Room {
    /// Returns addresses for `bytes`, if any are needed. They are those of the replaced instance, if that has enough.
    fn of(context: &Arc<Context>, bytes: u64, old: Option<&ExecShared>) -> Result<Option<Self>> {
        let room = match old.and_then(|old| old.room.as_ref()) {
            _ if bytes == 0 => return Ok(None),
            Some(Room { arena, range }) if range.bytes >= bytes => Room { arena: Arc::clone(arena), range: *range },
            _ => {
                let arena = Arena::new(context);
                let range = arena.reserve(bytes)?;
                Room { arena, range }
            }
        };
        Ok(Some(room))
    }
}

/// The state that changes from launch to launch.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The end of the last launch, for an instance without arenas. With arenas the graph memory has it.
    pub(crate) last: Option<Last>,
    /// The place of the next launch's nodes in the order, if a launch is not a single point.
    pub(crate) lanes: Lanes,
    /// Room for the events between the lanes of a launch.
    pub(crate) raw_events: Vec<millpond_driver::RawEvent>,
    /// `true` once the device has everything that launches need.
    pub(crate) is_ready: bool,
    /// The latest launch: its stream, and its number among the operations of that stream.
    pub(crate) launched: Option<(StreamId, u64)>,
}

impl ExecShared {
    /// Returns the end of the last launch, or of a launch that came after it.
    fn last(&self) -> Option<Last> {
        let in_arenas = self.arena_keys.first().and_then(|arena| self.context.graphs.memory().last(*arena).cloned());
        in_arenas.or_else(|| self.run.lock().last.clone())
    }

    /// Makes what launches need on the device, once. The memory that the graph names exists: a graph with memory of its
    /// own is made ready by its first upload or launch.
    #[cold]
    pub(crate) fn make_ready(&self, run: &mut Run) -> Result<()> {
        match &self.native {
            Some(native) => native.make(&self.context)?,
            None => self.program.prepare(&self.context)?,
        }
        run.is_ready = true;
        Ok(())
    }

    /// Does the same ahead of the first launch, if it is possible yet. Otherwise the first launch does it: memory from
    /// outside the graph exists once the launch has been checked, and a device refuses nodes of memory that does not
    /// exist.
    #[cold]
    pub(crate) fn make_ready_ahead(&self, run: &mut Run) -> Result<()> {
        if !self.finds_outside() {
            return Ok(());
        }
        match self.make_ready(run) {
            // Another thread may free that memory at this moment.
            Err(error) if self.outsides.is_empty() || matches!(error, Error::DeviceLost { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}

impl ExecShared {
    /// Opens the streams of all lanes but the first. The drop of the instance closes them.
    fn open_lanes(&mut self) -> Result<()> {
        for lane in 1..self.program.lanes {
            let label =
                Label { numbers: (0, lane as u32), title: |_, lane| format!("lane {lane} of a graph's launch") };
            let flags = StreamFlags { label, ..StreamFlags::default() };
            self.lanes.push(self.context.driver.open_stream(flags)?);
        }
        Ok(())
    }
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl GraphExec {
    fn new(body: &Arc<Body>, settings: Instantiate, place: Place) -> Result<Self> {
        process::refuse_forked()?;
        let made = || {
            body.context.graphs.refuse_unsafe("instantiate")?;
            let (draft, claim) = (draft(body)?, body.held_by.claim(&body.core, place)?);
            Ok((ExecShared::make(draft, body, settings, None)?, claim))
        };
        let made = made().inspect_err(|error| {
            Tracer::refused(body.context.tracer.as_ref(), error, |tracer| {
                tracer.exec(body.core.id(), settings.auto_free_on_launch, true);
            });
        });
        let (exec, claim) = made?;
        let (context, auto_free) = (Arc::clone(&body.context), settings.auto_free_on_launch);
        Ok(Self { shared: Arc::new(Instance { context, auto_free, present: RwLock::new(exec), _claim: claim }) })
    }
}

impl ExecShared {
    /// Makes the nodes of an instance. If they replace others, they take over the addresses and the live memory of
    /// those.
    fn make(draft: Draft, body: &Arc<Body>, settings: Instantiate, old: Option<&ExecShared>) -> Result<Arc<Self>> {
        let context = &body.context;
        let family = Family::of(body);
        let room = Room::of(context, draft.room(), old)?;
        let core = draft.instantiate(room.as_ref().map_or(0, |room| room.range.start), settings.auto_free_on_launch);
        if let Some(pin) = core.outdated() {
            return Err(Finding::made_anew(&pin.id.to_string()).into());
        }
        context.alloc_numbers.check()?;
        let is_native = is_native(context, &core);
        let program = Arc::new(if is_native { Program::default() } else { Program::new(context, &core, body)? });
        let outputs = outputs(context, &core, &family, room.as_ref(), old);
        let outsides = outsides(&core, &family);
        let arenas = arenas(context, &core, &family, room.as_ref());
        let native = is_native.then(|| native_of(context, &core, body, &arenas));
        let grants = family.grants();
        let mut shared = ExecShared {
            context: Arc::clone(context),
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            program,
            native,
            body: Arc::clone(body),
            lanes: Vec::new(),
            found: Found::always(&outputs, &outsides),
            outputs,
            outsides,
            arena_keys: arenas.iter().map(|arena| arena.key).collect(),
            arenas,
            cover: core.addresses(),
            placed: placed(&core, &family),
            room,
            events: None,
            auto_free: settings.auto_free_on_launch,
            traced: None,
            run: Biased::default(),
            _grants: grants,
        };
        shared.open_lanes()?;
        if let Some((events, lanes)) = Events::new(context, core, &shared.program) {
            shared.events = Some(events);
            shared.run.get_mut().lanes = lanes;
        }
        if let Some(tracer) = &context.tracer {
            shared.traced = Some(match old.and_then(|old| old.traced.as_ref()) {
                Some(exec) => Arc::clone(exec),
                None => tracer.exec(body.core.id(), settings.auto_free_on_launch, false),
            });
        }
        if shared.arenas.is_empty() && !shared.outsides.iter().any(|it| matches!(it.whose, Whose::Node(..))) {
            shared.make_ready_ahead(&mut shared.run.lock())?;
        }
        let shared = Arc::new(shared);
        lock(&context.graphs.execs).add(&shared);
        Ok(shared)
    }
}

impl GraphExec {
    /// Takes the work of the nodes over from a graph of the same shape (CUDA: `cudaGraphExecUpdate`): kernels, copies,
    /// memsets, host functions and the memory that they use. If the memory nodes have fixed addresses, that must be the
    /// graph from which the instance was made. With symbolic addresses it is any graph whose memory nodes are alike,
    /// and the memory keeps its addresses. Live memory stays live. Earlier launches still come first. All clones of
    /// this handle have the new nodes.
    ///
    /// # Errors
    /// A violation: the first node that differs in its edges, its kind or its memory; or one of two different graphs
    /// has memory nodes with fixed addresses; or as for [`Graph::instantiate`]. The graph is of another device. The
    /// instance is unchanged.
    pub fn update(&self, graph: &Graph) -> Result<()> {
        process::refuse_forked()?;
        let mut present = write(&self.shared.present);
        present.body.check_device(graph.body.context.number, || "the graph".into())?;
        let new = present.updated(graph);
        if let (Some(tracer), Some(exec)) = (&graph.body.context.tracer, &present.traced)
            && new.as_ref().err().is_none_or(Error::is_verdict)
        {
            shadow::judged(new.as_ref().err(), || tracer.exec_updated(exec, graph.body.core.id()));
        }
        let new = new?;
        new.run.lock().last = present.last();
        // Dropped after the lock is released: the drop of values that a kernel owns may call the device.
        let former = std::mem::replace(&mut *present, new);
        drop(present);
        drop(former);
        Ok(())
    }

    /// Returns the address of an alloc node's memory in this instance: the node's own address, or, if that is symbolic,
    /// the address that was found when the instance was made. Returns `None` if the node is not of this instance's
    /// graph or allocates nothing. If a symbolic graph is contained twice, the address is that of one of the two.
    pub fn address_of<T: Pod>(&self, node: MemAllocNode<T>) -> Option<u64> {
        let name = node.name.filter(|name| name.device == self.shared.context.number)?;
        let present = read(&self.shared.present);
        match name.is_symbolic() {
            true => present.placed.get(&(name.graph, name.alloc)).copied(),
            false => present.cover.iter().any(|range| range.contains(name.address)).then_some(name.address),
        }
    }

    /// Returns `true` if launches free the memory that earlier launches left live.
    pub fn auto_free_on_launch(&self) -> bool {
        self.shared.auto_free
    }
}

impl ExecShared {
    /// Makes the nodes that replace these ones in an update.
    fn updated(&self, graph: &Graph) -> Result<Arc<Self>> {
        let (old, new) = (&self.body, draft(&graph.body)?);
        if old.core.id() != graph.body.core.id() {
            old.check_copy(Asked::Updated)?;
            graph.body.check_copy(Asked::Update)?;
        }
        draft(old)?.instantiate(0, false).check_update(&new).map_err(|it| Finding::of_update(&it))?;
        let settings = Instantiate { auto_free_on_launch: self.auto_free };
        Self::make(new, &graph.body, settings, Some(self))
    }
}

impl Graph {
    /// Checks the graph and makes an instance of it that can be launched (CUDA: `cudaGraphInstantiate`).
    ///
    /// # Errors
    /// A violation, with each wrong pair of nodes and the missing edge. A violation if the graph has memory nodes with
    /// fixed addresses, and is a child graph or has an instance (CUDA: `cudaErrorNotSupported`); an instance exists as
    /// long as a [`GraphExec`] or a [`Launch`](crate::graph::Launch) of it.
    /// [`Invalid::GraphTooLarge`](crate::error::Invalid::GraphTooLarge). A capture forbids it
    /// ([`begin_capture_in`](crate::Stream::begin_capture_in)), and is then invalid.
    #[track_caller]
    pub fn instantiate(&self, settings: Instantiate) -> Result<GraphExec> {
        GraphExec::new(&self.body, settings, Place::Source(Location::caller()))
    }
}

/// The error text for allocations larger than the address space.
const TOO_LARGE: &str = "the allocations of the graph are more than there are addresses";
/// The error text for more than four million nodes, or an order that takes more than 1 GiB.
const TOO_MANY_NODES: &str = "the graph has too many nodes, its children's included, or too many that do not come \
                              after one another: make several graphs of it";

/// Returns the checked graph.
fn draft(body: &Body) -> Result<Draft> {
    let refused = |refusal| match refusal {
        Refusal::Faults(faults) => body.wrong(&faults),
        Refusal::TooManyNodes => Invalid::GraphTooLarge(TOO_MANY_NODES).into(),
        Refusal::TooLarge => Invalid::GraphTooLarge(TOO_LARGE).into(),
        other => Finding::of_draft(&other).into(),
    };
    Draft::new(&body.core).map_err(refused)
}

fn outputs(
    context: &Arc<Context>,
    core: &CoreExec,
    family: &Family<'_>,
    room: Option<&Room>,
    old: Option<&ExecShared>,
) -> Vec<Output> {
    let make = |alloc: GraphAllocId, range: Range, arena: &Arc<Arena>| {
        let number = context.alloc_numbers.take();
        let allocation = Allocation::new(number, alloc.0, context.number, Origin::Graph(Arc::clone(arena)));
        allocation.life().range = range;
        Arc::new(allocation)
    };
    let output = |id: &GraphAllocId| {
        let flat = &core.allocs()[id.index()];
        let (graph, alloc) = (flat.graph, flat.alloc);
        let range = flat.range.expect("an instance has all its addresses");
        let body = family.one_of(graph);
        let allocation = match room.filter(|_| body.core.addressing() == Addressing::Symbolic) {
            // Each instance has its own allocation. One that replaces another instance has that one's.
            Some(room) => {
                let kept = old.and_then(|old| old.outputs.iter().find(|it| it.range == range));
                kept.map(|kept| Arc::clone(&kept.allocation)).unwrap_or_else(|| {
                    let allocation = make(alloc, range, &room.arena);
                    context.graphs.enter(&allocation, None);
                    allocation
                })
            }
            None => context.graphs.named((graph, alloc)).unwrap_or_else(|| {
                let allocation = make(alloc, range, &body.arena);
                context.graphs.enter(&allocation, Some((graph, alloc)));
                allocation
            }),
        };
        let node = flat.node.expect("an output has its alloc node");
        let last_acts = last_acts_of(core, Memory::Own(*id));
        let name = core.nodes()[node.index()].label.name.clone();
        Output { graph, alloc, bytes: flat.bytes, range, allocation, node, name, last_acts }
    };
    core.outputs().iter().map(output).collect()
}

/// Returns the last uses of some memory that launches leave. Its allocation is excluded.
fn last_acts_of(core: &CoreExec, memory: Memory) -> LastActs {
    let last_acts = core.summary().last_acts.iter().filter(|last| last.memory == memory && last.act != Act::Allocate);
    last_acts.copied().collect()
}

/// Returns the acts on memory from outside the graph: the summary's demands, with one entry for each piece of memory.
fn outsides(core: &CoreExec, family: &Family<'_>) -> Vec<Outside> {
    let mut places: FxHashMap<Memory, usize> = FxHashMap::default();
    let mut outsides: Vec<Outside> = Vec::new();
    for (order, demand) in core.summary().demands.iter().enumerate() {
        let (whose, lives): (Whose, SmallVec<[u64; 1]>) = match demand.memory {
            Memory::Own(_) => continue,
            Memory::Foreign { graph, alloc } => {
                let pins = core.pins_of(graph, alloc);
                (Whose::Node(graph, alloc), pins.iter().map(|pin| pin.generation).collect())
            }
            Memory::External { id, generation } => (Whose::Held(Arc::clone(family.held(id))), smallvec![generation]),
        };
        let at = *places.entry(demand.memory).or_insert_with(|| {
            let last_acts = last_acts_of(core, demand.memory);
            let (demands, orders, sites) = Default::default();
            outsides.push(Outside { whose, lives, demands, orders, sites, last_acts });
            outsides.len() - 1
        });
        outsides[at].orders.push(order as u32);
        let sites = demand.nodes.iter().map(|(node, _)| core.nodes()[node.index()].site(demand.act));
        outsides[at].sites.push(sites.collect());
        outsides[at].demands.push(demand.clone());
    }
    outsides
}

/// Returns the arenas that the instance uses. From now on launches in them need memory for its granules, too.
fn arenas(context: &Context, core: &CoreExec, family: &Family<'_>, room: Option<&Room>) -> Vec<Arc<Arena>> {
    type Cover = Vec<(Range, bool)>;
    let mut arenas: Vec<(Arc<Arena>, Cover)> = Vec::new();
    arenas.extend(room.map(|room| (Arc::clone(&room.arena), Vec::new())));
    for body in family.bodies() {
        if !arenas.iter().any(|(arena, _)| Arc::ptr_eq(arena, &body.arena)) {
            arenas.push((Arc::clone(&body.arena), Vec::new()));
        }
    }
    arenas.sort_by_key(|(arena, _)| arena.key);
    for (range, is_output) in core.cover() {
        let (_, cover) = arenas.iter_mut().find(|(arena, _)| arena.contains(range)).expect("an arena has its ranges");
        cover.push((range, is_output));
    }
    arenas.retain(|(_, cover)| !cover.is_empty());
    let mut memory = context.graphs.memory();
    arenas.iter().for_each(|(arena, cover)| memory.backing.enroll(arena.key, cover));
    arenas.into_iter().map(|(arena, _)| arena).collect()
}

/// Returns the addresses of the symbolic allocations.
fn placed(core: &CoreExec, family: &Family<'_>) -> FxHashMap<(GraphId, GraphAllocId), u64> {
    let placed = core.allocs().iter().filter(|it| it.node.is_some() && family.is_symbolic(it.graph));
    placed.filter_map(|it| Some(((it.graph, it.alloc), it.range?.start))).collect()
}

impl Drop for ExecShared {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        let driver = &*self.context.driver;
        for lane in &self.lanes {
            // Work in flight still runs. If the device refuses all tries, the lane stays open.
            let _ = (0..TRIES).find(|_| driver.close_stream(*lane).is_ok());
        }
        let run = self.run.get_mut();
        let mut chains = self.context.chains.open();
        std::mem::take(&mut run.lanes).close().for_each(|last| chains.indices().close(last));
        drop(chains);
        self.found = None;
        let outputs = std::mem::take(&mut self.outputs);
        self.context.graphs.leave(outputs.into_iter().map(|output| output.allocation));
    }
}
