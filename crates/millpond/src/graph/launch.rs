//! A launch: one point of a stream, checked as a whole, then submitted lane by lane.
//!
//! In this order: every use of outside memory, and every free of what earlier launches left, is checked against what
//! the stream knows; memory is bound, nearly always by finding that it is; the program is submitted; uses, frees and
//! new lives are recorded at the launch's one point. If anything is refused, nothing has been enqueued. Locks: the
//! stream's, the exec's, the binding, all allocations' in the order of their numbers, the memory's.
//!
//! What a launch asks follows the outside memory and the outputs, not the graph.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Fault, Use};
use millpond_core::graph::{Lanes, LaunchRefused, NodeSite, Standing};
use millpond_core::ids::Point;
use millpond_core::order::{Base, Chain, Knows, Snapshot};
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::{Driver, LightGuard};
use smallvec::SmallVec;

use super::error::GraphError;
use super::events::{Events, Waited, standing};
use super::exec::{ExecShared, GraphExec, Output, Outside, Run, Whose, use_of};
use super::last::{Last, Lasts};
use super::memory::{bind, follow, settled};
use super::node::MemAllocNode;
use super::submit::{Submitted, TRIES};
use crate::allocation::{Allocation, Life, Owned, freed_fault, site};
use crate::buffer::Buffer;
use crate::context::lock;
use crate::error::{Error, Invalid, Result};
use crate::event::Mark;
use crate::stream::{Mode, State, Stream, StreamShared};

/// One launch of a graph, and the memory that it leaves live.
#[derive(Debug)]
#[must_use = "what a launch leaves live is taken from here; else it stays live until it is freed by other means"]
pub struct Launch {
    exec: Arc<ExecShared>,
    /// For each output its life, once.
    lives: Lives,
}

type Lives = SmallVec<[Cell<Option<u64>>; 2]>;

impl Launch {
    /// This launch's allocation of an alloc node, as an ordinary buffer: it exists from the launch on, and is freed
    /// like any other, or by another graph's free node, or by the next launch of a graph that frees by itself.
    ///
    /// # Errors
    /// The node is of another graph, or its graph frees it; it was taken before.
    pub fn take<T: Pod>(&self, node: MemAllocNode<T>) -> Result<Buffer<T>> {
        let Some(name) = node.name else {
            return if node.len * size_of::<T>() == 0 {
                Ok(Buffer::new(None, node.len))
            } else {
                Err(GraphError::NoOutput.into())
            };
        };
        let is_it = |output: &Output| (output.graph, output.alloc) == (name.graph, name.alloc);
        let is_here = name.device == self.exec.context.number;
        let at = self.exec.outputs.iter().position(is_it).filter(|_| is_here).ok_or(GraphError::NoOutput)?;
        // A launch into a capturing stream is a node: it has no lives.
        let generation = self.lives.get(at).and_then(Cell::take).ok_or(GraphError::Taken)?;
        let output = &self.exec.outputs[at];
        let allocation = Arc::clone(&output.allocation);
        let life = allocation.life();
        if life.generation != generation || life.freed.is_some() {
            return Err(GraphError::Taken.into());
        }
        drop(life);
        Ok(Buffer::new(Some(Owned { allocation, generation, address: output.range.start }), node.len))
    }
}

impl GraphExec {
    /// Launches the graph at this point of `stream` (CUDA: `cudaGraphLaunch`). It runs after the exec's launches
    /// before, on whichever streams those were. Where the stream captures, the graph becomes a child node.
    ///
    /// # Errors
    /// Nothing is enqueued where a launch is refused: memory of an earlier launch is not freed
    /// ([`GraphError::Unfreed`]); a violation, with both sides, for memory that the graph uses or frees, and for what a
    /// graph that frees by itself would free too early; another graph's memory is not live.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> Result<Launch> {
        let caller = Location::caller();
        let (exec, shared) = (&*self.shared, &*stream.owner.shared);
        if exec.context.number != shared.context.number {
            return Err(Invalid::OtherDevice { what: "a graph".into(), with: shared.id.to_string() }.into());
        }
        exec.context.settle_shares();
        let once = || {
            let mut state = shared.state.lock();
            match shared.enter(&mut state)? {
                Mode::Capturing => shared.capture_launch(exec, caller),
                Mode::Live => {
                    // What the host was told of other devices that use this one's memory counts as well.
                    shared.hear_abroad(&mut state);
                    exec.launch(shared, &mut state, &mut lock(&exec.run), caller)
                }
            }
        };
        let lives = loop {
            match once() {
                Err(error) if shared.mend(&error) => {}
                launched => break launched?,
            }
        };
        Ok(Launch { exec: Arc::clone(&self.shared), lives })
    }

    /// Binds the graph's memory ahead of a launch on `stream`, so that the launch has no mapping to do
    /// (CUDA: `cudaGraphUpload`).
    ///
    /// # Errors
    /// No memory is left; the device refused.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let (exec, shared) = (&*self.shared, &*stream.owner.shared);
        if exec.context.number != shared.context.number {
            return Err(Invalid::OtherDevice { what: "a graph".into(), with: shared.id.to_string() }.into());
        }
        let mut state = shared.state.lock();
        if shared.enter(&mut state)? == Mode::Capturing {
            return Err(super::error::CaptureError::Uncapturable { call: "upload" }.into());
        }
        let mut run = lock(&exec.run);
        for last in exec.before(&state, &run) {
            last.before(shared, &mut state)?;
        }
        let (waits, bound) = bind(&exec.context, &exec.arena_keys, &state.chain)?;
        follow(&exec.context, shared.raw, &waits)?;
        // The binding counts as a use at this point: who takes the memory comes after it.
        let point = state.chain.submit();
        if !exec.arena_keys.is_empty() {
            lock(&exec.context.graphs.memory).backing.uploaded(&exec.arena_keys, point);
        }
        let ready = if run.is_ready { Ok(()) } else { exec.make_ready(&mut run) };
        drop(bound);
        let uploaded = ready.and_then(|()| exec.native.as_ref().map_or(Ok(()), |native| native.upload(shared.raw)));
        exec.end(shared, &mut state, &mut run, &exec.context.hosts.base());
        shared.leave(&mut state);
        uploaded
    }
}

/// An allocation that a launch has to do with.
struct Found<'e> {
    allocation: Arc<Allocation>,
    role: Role<'e>,
}

/// What it is to the launch.
#[derive(Clone, Copy)]
enum Role<'e> {
    /// What it leaves live, by its place among the outputs.
    Output(usize),
    /// What it uses or frees; which life, where one is meant.
    Outside { outside: &'e Outside, generation: Option<u64> },
}

/// A launch that is being made.
struct Launching<'a> {
    shared: &'a StreamShared,
    caller: &'static Location<'static>,
    /// Launches before, as far as the stream does not come after them yet.
    before: Lasts,
    /// What the wait nodes wait for.
    waited: Waited,
}

impl ExecShared {
    /// The launches before that the stream does not come after yet, and will: CUDA's own rule, and what keeps addresses
    /// to one launch at a time.
    fn before(&self, state: &State, run: &Run) -> Lasts {
        let mut before = Lasts::new();
        let is_news = |last: &&Last| !state.chain.knows_of(&last.snapshot);
        before.extend(run.last.as_ref().filter(is_news).cloned());
        for arena in &self.arenas {
            before.extend(lock(&arena.last).as_ref().filter(is_news).cloned());
        }
        before
    }

    /// Checks, submits, records.
    fn launch(
        &self,
        shared: &StreamShared,
        state: &mut State,
        run: &mut Run,
        caller: &'static Location<'static>,
    ) -> Result<Lives> {
        let found = self.find()?;
        let waited = self.events.as_ref().map(Events::waited).unwrap_or_default();
        let launching = Launching { shared, caller, before: self.before(state, run), waited };
        // Kept until the launch is known to use its memory: else another thread's launch takes that for idle.
        let mut binding = (!self.arenas.is_empty()).then(|| lock(&self.context.graphs.binding));
        let mut lives = lives_of(&found);
        self.check(&found, &lives, &launching, state)?;
        let mut waits = Frontier::EMPTY;
        if !self.arenas.is_empty() {
            let hot = |who: &Standing<'_, Chain>| settled(&self.context, &self.arena_keys, who);
            let cold = |who: &Standing<'_, Chain>| bind(&self.context, &self.arena_keys, who);
            waits = match standing(&state.chain, &launching.before, None, None, hot) {
                Some(waits) => waits,
                None => {
                    // Binding may wait for the device, and must not under these locks. What was right is asked again.
                    drop(lives);
                    drop(binding);
                    let (waits, bound) = standing(&state.chain, &launching.before, None, None, cold)?;
                    binding = Some(bound);
                    lives = lives_of(&found);
                    self.check(&found, &lives, &launching, state)?;
                    waits
                }
            };
        }
        for last in &launching.before {
            last.before(shared, state)?;
        }
        follow(&self.context, shared.raw, &waits)?;
        if !run.is_ready {
            self.make_ready(run)?;
        }
        let base = self.context.hosts.base();
        let knew = self.events.as_ref().map(|_| state.chain.snapshot());
        let (marks, refused) = match self.submit(shared.raw, run, &launching.waited) {
            Submitted::Whole(marks) => (Some(marks), None),
            // What was submitted runs, and is recorded.
            Submitted::Part(error) => (None, Some(error)),
            Submitted::Nothing(error) => return Err(error),
        };
        if let (Some(events), Some(knew)) = (&self.events, &knew) {
            if let Some(marks) = marks {
                events.record(&run.lanes, knew, &base, &launching.waited, marks);
            }
            let ends: SmallVec<[Snapshot; 2]> = run.lanes.ends(&base).collect();
            for snapshot in ends.iter().chain(launching.waited.iter().flatten().map(|(snapshot, _)| snapshot)) {
                state.chain.wait(snapshot);
            }
        }
        let point = state.chain.submit();
        let at = Use { point, site: site(Act::Write, shared.id, state.op(), caller) };
        let is_whole = refused.is_none();
        let generations = match &knew {
            Some(knew) => self.keep(&found, &mut lives, at, knew, &run.lanes, is_whole),
            None => self.keep(&found, &mut lives, at, &state.chain, &run.lanes, is_whole),
        };
        drop(binding);
        if let (Some(tracer), Some(exec)) = (&self.context.tracer, self.traced) {
            let lives = self.outputs.iter().zip(&generations);
            let left = lives.filter_map(|(it, life)| Some((it.graph, it.alloc, it.allocation.id, life.get()?)));
            tracer.graph_launch(exec, shared.id, left, caller);
        }
        drop(lives);
        self.end(shared, state, run, &base);
        shared.leave(state);
        refused.map_or(Ok(generations), Err)
    }

    /// Records what a launch does: uses and frees of outside memory, the end of lives that it frees by itself, new
    /// lives. Of one that the driver took in part only nothing begins and nothing of the outside is freed.
    fn keep(
        &self,
        found: &[Found<'_>],
        lives: &mut [LightGuard<'_, Life>],
        at: Use,
        knew: &impl Knows,
        lanes: &Lanes,
        is_whole: bool,
    ) -> Lives {
        let mut freed: SmallVec<[(Range, Point); 2]> = SmallVec::new();
        let mut made: SmallVec<[Range; 2]> = SmallVec::new();
        let node_point = |node| self.events.as_ref().and_then(|events| events.point(lanes, node));
        let by = |node, act| use_of(Use { point: node_point(node).unwrap_or(at.point), ..at }, act);
        let mut generations = SmallVec::from_elem(Cell::new(None), self.outputs.len());
        for (found, life) in found.iter().zip(lives) {
            match found.role {
                Role::Output(index) => {
                    let output = &self.outputs[index];
                    if life.freed.is_none() {
                        life.freed = Some(use_of(at, Act::Free));
                        freed.push((output.range, at.point));
                    }
                    if is_whole {
                        life.begin(output.bytes, by(output.node, Act::Allocate));
                        (life.range, life.name) = (output.range, output.name.clone());
                        made.push(output.range);
                        // Where the launch is one point, birth and uses are that.
                        let marks = output.marks.iter().filter(|_| !lanes.is_empty());
                        marks.for_each(|(node, act)| life.history.add_use(by(*node, *act), knew));
                        generations[index] = Cell::new(Some(life.generation));
                    }
                }
                Role::Outside { outside, .. } => {
                    for &(node, act) in &outside.marks {
                        if act == Act::Free && is_whole {
                            let free = by(node, act);
                            life.freed = Some(free);
                            freed.push((life.range, free.point));
                        } else {
                            // A free that is not to be was a use, as far as anybody can tell.
                            life.history.add_use(by(node, if act == Act::Free { Act::Write } else { act }), knew);
                        }
                    }
                }
            }
        }
        self.context.graph_memory_launched(&self.arena_keys, at.point, &freed, &made);
        generations
    }

    /// All allocations that this launch has to do with, by number.
    fn find(&self) -> Result<SmallVec<[Found<'_>; 4]>> {
        let mut found: SmallVec<[Found<'_>; 4]> = SmallVec::new();
        for outside in &self.outsides {
            let (allocation, generation) = match &outside.whose {
                Whose::Life(allocation, generation) => (Arc::clone(allocation), Some(*generation)),
                Whose::Node(graph, alloc) => {
                    let named = self.context.graphs.named((*graph, *alloc));
                    (named.ok_or(GraphError::NotLive(*graph))?, None)
                }
            };
            found.push(Found { allocation, role: Role::Outside { outside, generation } });
        }
        let output =
            |(index, it): (usize, &Output)| Found { allocation: Arc::clone(&it.allocation), role: Role::Output(index) };
        found.extend(self.outputs.iter().enumerate().map(output));
        found.sort_by_key(|found| found.allocation.id);
        let same = |pair: &[Found<'_>]| pair[0].allocation.id == pair[1].allocation.id;
        match found.windows(2).any(same) {
            // Two lives of one allocation, one of which is over; or a life by its name and by its node.
            true => Err(Invalid::Stale.into()),
            false => Ok(found),
        }
    }

    /// Whether the launch may do what it does; nothing is enqueued where it may not.
    fn check(
        &self,
        found: &[Found<'_>],
        lives: &[LightGuard<'_, Life>],
        launching: &Launching<'_>,
        state: &State,
    ) -> Result<()> {
        let Launching { shared, caller, before, waited } = launching;
        let is_unfreed = |(found, life): &(&Found<'_>, &LightGuard<'_, Life>)| {
            matches!(found.role, Role::Output(_)) && life.freed.is_none()
        };
        let mut unfreed = found.iter().zip(lives).filter(is_unfreed);
        if !self.auto_free
            && let Some((found, _)) = unfreed.next()
            && let Role::Output(index) = found.role
        {
            let Output { alloc, name, .. } = &self.outputs[index];
            let (alloc, name, count) = (*alloc, name.clone(), 1 + unfreed.count());
            return Err(GraphError::Unfreed(LaunchRefused::Unfreed { alloc, name, count }).into());
        }
        self.check_addresses(found, lives)?;
        let events = self.events.as_ref().map(|events| (events, waited));
        let free = |life: &Life| standing(&state.chain, before, None, None, |who| life.history.check_free(who));
        for (found, life) in found.iter().zip(lives) {
            let checked = match found.role {
                Role::Output(_) if life.freed.is_some() => continue,
                Role::Output(_) => free(life).map_err(|fault| Wrong { act: Act::Free, fault, site: None }),
                Role::Outside { outside, generation } => outside
                    .check_live(generation, &found.allocation, life)?
                    .and_then(|()| outside.check(life, &state.chain, before, events)),
            };
            if let Err(Wrong { act, fault, site: node }) = checked {
                let later = site(act, shared.id, state.op() + 1, caller);
                let subject = found.allocation.subject(life);
                return Err(within(shared.refuse(state, &found.allocation, subject, fault, later), node));
            }
        }
        Ok(())
    }

    /// Refuses where an allocation of a clone's launch, or of a second instance's, lies at this one's addresses.
    fn check_addresses(&self, found: &[Found<'_>], lives: &[LightGuard<'_, Life>]) -> Result<()> {
        if self.arenas.is_empty() {
            return Ok(());
        }
        let is_own = |range: &Range| {
            found.iter().zip(lives).any(|(found, life)| {
                matches!(found.role, Role::Output(index) if self.outputs[index].range == *range) && life.freed.is_none()
            })
        };
        let memory = lock(&self.context.graphs.memory);
        for &arena in &self.arena_keys {
            let foreign = memory.backing.unfreed(arena).iter().filter(|range| !is_own(range));
            let mut taken = foreign.filter(|range| self.cover.iter().any(|own| own.overlaps(**range)));
            if let Some(range) = taken.next() {
                return Err(GraphError::AddressesTaken { address: range.start }.into());
            }
        }
        Ok(())
    }

    /// Keeps the end of this launch, for the next.
    fn end(&self, shared: &StreamShared, state: &mut State, run: &mut Run, base: &Arc<Base>) {
        let mut mark = None;
        if self.native.is_none() {
            // Where no mark can be had, time and again, the device is lost, and nothing runs any more.
            let Some(raw) = (0..TRIES).find_map(|_| self.context.driver.mark(shared.raw).ok()) else {
                return run.lanes.advance();
            };
            let made = mark.insert(Arc::new(Mark::new(raw, &self.context.driver)));
            if let Some(events) = &self.events {
                events.launched(&mut run.lanes, base, made);
            }
        }
        let last = Last::of(shared, state, mark);
        for arena in &self.arenas {
            *lock(&arena.last) = Some(last.clone());
        }
        run.last = Some(last);
    }
}

/// What is wrong with an act on memory, and the node that does it; none where the launch frees by itself.
struct Wrong<'e> {
    act: Act,
    fault: Fault,
    site: Option<&'e NodeSite>,
}

type Checked<'e> = std::result::Result<(), Wrong<'e>>;

/// Says which part of the launch is refused.
#[cold]
fn within(refused: Error, node: Option<&NodeSite>) -> Error {
    match refused {
        Error::Violation(mut violation) => {
            violation.within = Some(node.map_or_else(|| "auto free on launch".into(), NodeSite::describe));
            Error::Violation(violation)
        }
        other => other,
    }
}

impl Outside {
    /// Whether the memory is there, in the life that is meant.
    fn check_live(&self, generation: Option<u64>, allocation: &Allocation, life: &Life) -> Result<Checked<'_>> {
        if generation.is_some_and(|generation| life.generation != generation) {
            let node = self.sites.first().map(NodeSite::describe).unwrap_or_default();
            return Err(GraphError::Outlived { node, allocation: allocation.id.to_string() }.into());
        }
        let Some(free) = life.freed else { return Ok(Ok(())) };
        match &self.whose {
            Whose::Node(graph, _) if life.generation == 0 || self.frees() => Err(GraphError::NotLive(*graph).into()),
            _ => {
                let act = self.demands.first().map_or(Act::Free, |demand| demand.act);
                Ok(Err(Wrong { act, fault: freed_fault(free, act), site: self.sites.first() }))
            }
        }
    }

    /// Whether a launch may do what it does to it.
    fn check(
        &self,
        life: &Life,
        stream: &impl Knows,
        before: &[Last],
        events: Option<(&Events, &Waited)>,
    ) -> Checked<'_> {
        self.demands.iter().zip(&self.sites).try_for_each(|(demand, site)| {
            let checked = standing(stream, before, events, Some(demand), |who| match demand.act {
                Act::Free => life.history.check_free(who),
                act => life.history.check_use(act, who, !demand.may_share),
            });
            checked.map_err(|fault| Wrong { act: demand.act, fault, site: Some(site) })
        })
    }
}

fn lives_of<'f>(found: &'f [Found<'_>]) -> SmallVec<[LightGuard<'f, Life>; 4]> {
    found.iter().map(|it| it.allocation.life()).collect()
}

impl StreamShared {
    /// A launch into a capturing stream is a child node.
    #[cold]
    fn capture_launch(&self, exec: &ExecShared, caller: &'static Location<'static>) -> Result<Lives> {
        lock(&self.context.graphs.captures).operate(self.id, |adding| {
            let place = millpond_core::check::Place::Source(caller);
            Ok((adding.body.add_child(adding.tails, &exec.body, place)?, SmallVec::new()))
        })
    }
}
