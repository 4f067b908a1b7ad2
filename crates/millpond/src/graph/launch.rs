//! A launch: one point of a stream, checked as a whole, then submitted.
//!
//! The steps, in this order: every use of memory from outside the graph, and every free of what earlier launches left,
//! is checked against what the stream knows (`check.rs`); memory is bound, nearly always by finding that it is bound
//! already; the program is submitted; uses, frees and new lifetimes are recorded at the launch's one point. If anything
//! is refused, nothing has been enqueued. Locks are taken in this order: the stream's, the instance's, the graph
//! memory's, those of all allocations in the order of their numbers, those of listed frees and of the driver.
//!
//! The cost of a launch depends on the outside memory and the outputs, not on the graph. An output that stays live from
//! launch to launch, freed by one launch and made by the next, keeps its memory at no cost.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Launched, Use};
use millpond_core::graph::{Asked, LastAct, Standing};
use millpond_core::ids::{Point, StreamId};
use millpond_core::order::{Base, Chain, Knows};
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::locks::{lock, read};
use millpond_driver::{Driver, process};
use smallvec::SmallVec;

use super::check::{Launching, Lives};
use super::events::{Events, standing};
use super::exec::{ExecShared, GraphExec, Run};
use super::found::{Found, Founds, Output, Role};
use super::last::{Last, Lasts};
use super::memory::{GraphMemory, Stopped, follow, wait};
use super::submit::Submitted;
use crate::clock::device_event::DeviceEvent;
use crate::clock::hosts;
use crate::clock::progress::LaunchEnd;
use crate::names::count::Count;
use crate::names::error::{Invalid, Result};
use crate::pool::shell::TRIES;
use crate::state::allocation::{Owned, site};
use crate::state::named::MemAllocNode;
use crate::state::stream::{Mode, State, StreamShared};
use crate::stream::buffer::Buffer;
use crate::stream::external::traced_in_order;
use crate::stream::handle::Stream;
use crate::stream::report::Noted;
use crate::trace::tracer::Tracer;

/// One launch of a graph, and the memory that it leaves live. Dropping this frees nothing: memory that is not taken
/// stays live until it is freed by other means.
///
/// ```
/// # fn main() -> millpond::Result<()> {
/// # let device = millpond::Device::host(Default::default())?;
/// # let (stream, pool) = (device.stream()?, device.default_pool());
/// stream.begin_capture()?;
/// let x = stream.alloc::<u32>(&pool, 4)?;
/// stream.launch(x.write(), |x| x.fill(7))?;
/// let node = x.into_alloc_node(); // not freed in the graph: each launch leaves it live
/// let exec = stream.end_capture()?.instantiate(Default::default())?;
///
/// let x = exec.launch(&stream)?.take(node)?; // a buffer like any other from here on
/// assert_eq!(stream.copy_to_host(x.read())?, [7; 4]);
/// stream.free(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Launch {
    /// The nodes of the launch, and their instance, if they have outputs. The instance is dropped last: it holds the
    /// addresses as long as its nodes exist.
    launched: Option<(Arc<ExecShared>, GraphExec)>,
    begun: Begun,
}

/// The generation of each output's lifetime, once; 0 for none. Empty for a launch into a capturing stream, which is a
/// node.
type Begun = SmallVec<[Cell<u64>; 4]>;

impl Launch {
    /// Returns this launch's allocation of an alloc node as an ordinary buffer. It is live from the launch on. It is
    /// freed like any other buffer, or by another graph's free node, or by the next launch of a graph with auto-free.
    ///
    /// # Errors
    /// The node is of another graph, or its graph frees it; the allocation was taken before.
    pub fn take<T: Pod>(&self, node: MemAllocNode<T>) -> Result<Buffer<T>> {
        process::refuse_forked()?;
        let Some(name) = node.name else {
            return match node.count.bytes() {
                0 => Ok(Buffer::new(None, node.count)),
                _ => Err(Invalid::NoOutput.into()),
            };
        };
        let exec = self.exec().filter(|exec| name.device == exec.context.number);
        let is_it = |output: &Output| (output.graph, output.alloc) == (name.graph, name.alloc);
        let found = exec.and_then(|exec| Some((exec, exec.outputs.iter().position(is_it)?)));
        let (exec, at) = found.ok_or(Invalid::NoOutput)?;
        debug_assert!(node.count.bytes() <= exec.outputs[at].bytes, "a name of an alloc node names one size");
        Ok(Buffer::new(Some(self.take_output(exec, at)?), node.count))
    }

    /// Returns all memory that this launch leaves live and that was not taken, as bytes: for programs that know memory
    /// by its address.
    pub fn take_all(&self) -> Vec<Buffer<u8>> {
        let Some(exec) = self.exec().filter(|_| !process::is_forked()) else {
            return Vec::new();
        };
        let take = |(at, output): (usize, &Output)| {
            let count = Count::of_bytes(output.bytes)?;
            Some(Buffer::new(Some(self.take_output(exec, at).ok()?), count))
        };
        exec.outputs.iter().enumerate().filter_map(take).collect()
    }

    fn exec(&self) -> Option<&ExecShared> {
        self.launched.as_ref().map(|(exec, _)| &**exec)
    }

    /// Returns an output of the instance as this launch left it. An output can be taken once.
    fn take_output(&self, exec: &ExecShared, at: usize) -> Result<Owned> {
        let generation = self.begun.get(at).map_or(0, Cell::take);
        if generation == 0 {
            return Err(Invalid::Taken.into());
        }
        let output = &exec.outputs[at];
        let allocation = Arc::clone(&output.allocation);
        let life = allocation.life();
        if !life.is_live(generation) {
            return Err(Invalid::Taken.into());
        }
        drop(life);
        Ok(Owned { allocation, generation, address: output.range.start })
    }
}

impl GraphExec {
    /// Launches the graph at this point of `stream` (CUDA: `cudaGraphLaunch`). It runs after the earlier launches of
    /// the instance, on any stream. If the stream captures, the graph becomes a child node.
    ///
    /// If memory must be moved away from addresses of the graph that an earlier launch still uses, the call waits for
    /// that launch. It does not wait for memory that other work in flight holds.
    ///
    /// # Errors
    /// If a launch is refused, nothing is enqueued. The device has no memory left, after everything that pools and
    /// graphs keep idle was given back ([`DriverError::OutOfMemory`](millpond_driver::DriverError::OutOfMemory) in
    /// [`Error::Driver`](crate::Error::Driver)). A violation, with both sides: memory of an earlier launch is not
    /// freed; a use or free of memory from outside the graph is in a wrong order; an auto-free would come too early.
    /// The memory of another graph is not live.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> Result<Launch> {
        let caller = Location::caller();
        let (context, shared) = (&self.shared.context, &*stream.shared);
        self.check_device(shared)?;
        process::refuse_forked()?;
        context.share.settle();
        let once = |noted: &mut Noted| {
            // Dropped after the locks are released: these may be the last references by then.
            let mut named = None;
            let exec = read(&self.shared.present);
            let mut state = shared.state.lock();
            let begun = match shared.enter(&mut state)? {
                Mode::Capturing => state.counted(shared.capture_launch(&exec, caller))?,
                Mode::Live => {
                    let found = match &exec.found {
                        Some(found) => found,
                        None => named.insert(exec.find()?),
                    };
                    exec.launch(shared, &mut state, &mut exec.run.lock(), found, (caller, noted))?
                }
            };
            let launched = (!exec.outputs.is_empty()).then(|| (Arc::clone(&exec), self.clone()));
            Ok(Launch { launched, begun })
        };
        let (mut known, mut was_retried) = (false, false);
        loop {
            let mut noted = Noted::default();
            match once(&mut noted) {
                Ok(launch) => return Ok(launch),
                Err(Stopped::Blocked(blocked)) => wait(context, &blocked)?,
                Err(Stopped::Refused(_)) if noted == Noted::Anew => {}
                Err(Stopped::Refused(mut error)) => {
                    if noted == Noted::Later {
                        shared.note_refused(&error, |tracer| {
                            read(&self.shared.present).note_refused(tracer, shared.id, caller);
                        });
                    }
                    if !shared.add_missing_waits(&mut error, &mut known)
                        && !context.makes_room(&error, &mut was_retried)
                    {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Refuses a stream of another device.
    fn check_device(&self, stream: &StreamShared) -> Result<()> {
        let context = &self.shared.context;
        if context.number == stream.context.number {
            return Ok(());
        }
        let (what, with) = (format!("a graph of {}", context.name()), stream.titled());
        Err(Invalid::OtherDevice { what, with }.into())
    }

    /// Binds the graph's memory ahead of a launch on `stream`, so that the launch needs no mapping (CUDA:
    /// `cudaGraphUpload`). It may have to wait, as a [`launch`](Self::launch) may.
    ///
    /// # Errors
    /// No memory is left; the device refused; the stream is captured, and its capture is then invalid.
    #[track_caller]
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let (context, caller) = (&self.shared.context, Location::caller());
        let mut was_retried = false;
        loop {
            match self.upload_once(stream, caller) {
                Ok(()) => return Ok(()),
                Err(Stopped::Blocked(blocked)) => wait(context, &blocked)?,
                Err(Stopped::Refused(error)) if context.makes_room(&error, &mut was_retried) => {}
                Err(Stopped::Refused(error)) => {
                    if let Some(exec) = &read(&self.shared.present).traced {
                        let shared = &stream.shared;
                        shared.note_refused(&error, |tracer| tracer.upload(exec, shared.id, caller));
                    }
                    return Err(error);
                }
            }
        }
    }

    fn upload_once(&self, stream: &Stream, caller: &'static Location<'static>) -> std::result::Result<(), Stopped> {
        let shared = &*stream.shared;
        self.check_device(shared)?;
        let exec = read(&self.shared.present);
        let mut state = shared.state.lock();
        if shared.enter(&mut state)? == Mode::Capturing {
            let refused = exec.context.graphs.refuse_captured(shared.id, "upload");
            return Err(refused.err().unwrap_or(Invalid::Uncapturable { call: "upload" }.into()).into());
        }
        let mut run = exec.run.lock();
        let mut memory = exec.context.graphs.memory();
        for last in exec.before(&state, &run, Some(&*memory)) {
            last.before(shared, &mut state)?;
        }
        let waits = memory.bind(&exec.context, &exec.arena_keys, &state.chain)?;
        follow(&exec.context, shared.raw, &waits)?;
        // The binding counts as a use at this point: the next user of the memory comes after it.
        let point = state.chain.submit();
        memory.backing.uploaded(&exec.arena_keys, point);
        let ready = if run.is_ready { Ok(()) } else { exec.make_ready_ahead(&mut run) };
        let uploaded = ready.and_then(|()| match &exec.native {
            Some(native) if run.is_ready => native.upload(shared.raw),
            _ => Ok(()),
        });
        let base = exec.events.as_ref().map(|_| hosts::base());
        exec.end(shared, &mut state, &mut run, base.as_ref(), Some(&mut memory));
        drop(memory);
        if let (Some(tracer), Some(traced)) = (&exec.context.tracer, &exec.traced) {
            tracer.upload(traced, shared.id, caller);
        }
        shared.leave(&mut state);
        Ok(uploaded?)
    }
}

/// A submitted launch, to be recorded.
struct Made<'k, K> {
    at: Use,
    /// The order that its stream knew before.
    knew: &'k K,
    /// `false` if the driver took only a part of it. Then no lifetime begins, and no memory from outside is freed.
    is_whole: bool,
}

impl ExecShared {
    /// Returns the earlier launches that the stream must wait for, because it does not come after them yet. This is
    /// CUDA's own rule, and it keeps addresses to one launch at a time.
    fn before(&self, state: &State, run: &Run, memory: Option<&GraphMemory>) -> Lasts {
        let mut before = Lasts::new();
        let mut add = |last: &Last| {
            if !state.chain.knows_of(&last.snapshot) {
                before.push(last.clone());
            }
        };
        run.last.iter().for_each(&mut add);
        if let Some(memory) = memory {
            self.arena_keys.iter().filter_map(|arena| memory.last(*arena)).for_each(add);
        }
        before
    }

    /// Checks, submits and records the launch.
    fn launch(
        &self,
        shared: &StreamShared,
        state: &mut State,
        run: &mut Run,
        founds: &Founds,
        (caller, noted): (&'static Location<'static>, &mut Noted),
    ) -> std::result::Result<Begun, Stopped> {
        let found = &founds.list;
        let _order = self.events.as_ref().and_then(|_| traced_in_order(&self.context));
        let waited = self.events.as_ref().map(Events::waited).unwrap_or_default();
        // Locked until the launch is recorded: otherwise another thread's launch would take the bound memory for idle.
        let mut memory = (!self.arenas.is_empty()).then(|| self.context.graphs.memory());
        let before = self.before(state, run, memory.as_deref());
        let launching = Launching { shared, caller, before, waited };
        let mut lives = Lives::new();
        let settled = self.settle(founds, &mut lives, &launching, state, memory.as_deref_mut());
        let waits = settled.inspect_err(|stopped| {
            if let Stopped::Refused(error) = stopped {
                *noted = shared.refused_here(state, error, |tracer| self.note_refused(tracer, shared.id, caller));
            }
        })?;
        for last in &launching.before {
            last.before(shared, state)?;
        }
        debug_assert!(self.before(state, run, memory.as_deref()).is_empty(), "no-overlap: it comes after all before");
        follow(&self.context, shared.raw, &waits)?;
        if !run.is_ready {
            self.make_ready(run)?;
        }
        let inside = self.events.as_ref().map(|events| (events, state.chain.snapshot(), hosts::base()));
        let (recorded, refused) = match self.submit(shared, run, &launching.waited) {
            Submitted::Whole(recorded) => (Some(recorded), None),
            // The submitted part runs, and is recorded.
            Submitted::Part(error) => (None, Some(error)),
            Submitted::Nothing(error) => return Err(error.into()),
        };
        let point = match &inside {
            Some((events, knew, base)) => {
                let waits = events.waits(&launching.waited);
                if let Some(recorded) = recorded {
                    events.record(&run.lanes, knew, base, &waits, recorded);
                }
                run.lanes.pass(&mut state.chain, base, &waits)
            }
            None => state.chain.submit(),
        };
        let at = Use { point, site: site(Act::Write, shared.id, state.op(), caller) };
        run.launched = Some((at.site.stream, at.site.op));
        let is_whole = refused.is_none();
        let memory_of = memory.as_deref_mut();
        let begun = match &inside {
            Some((_, knew, _)) => self.keep(found, &mut lives, &Made { at, knew, is_whole }, run, memory_of),
            None => self.keep(found, &mut lives, &Made { at, knew: &state.chain, is_whole }, run, memory_of),
        };
        if let (Some(tracer), Some(exec)) = (&self.context.tracer, &self.traced) {
            let lives = self.outputs.iter().zip(&begun).filter(|(_, life)| life.get() != 0);
            let left = lives.map(|(it, life)| (it.graph, it.alloc, it.allocation.id, life.get()));
            tracer.graph_launch(exec, shared.id, left, caller);
            if !is_whole {
                // A launch that was submitted only in part leaves no output.
                self.outputs.iter().for_each(|it| tracer.captured_drop(it.graph, it.alloc));
            }
        }
        lives.clear();
        self.end(shared, state, run, inside.as_ref().map(|(_, _, base)| base), memory.as_deref_mut());
        drop(memory);
        shared.leave(state);
        Ok(refused.map_or(Ok(begun), Err)?)
    }

    /// Traces a refused launch, which leaves nothing live.
    fn note_refused(&self, tracer: &Tracer, stream: StreamId, caller: &'static Location<'static>) {
        if let Some(traced) = &self.traced {
            tracer.graph_launch(traced, stream, std::iter::empty(), caller);
        }
    }

    /// Checks the launch, and binds its addresses to memory. Returns the points that the memory must wait for.
    #[inline]
    fn settle<'f>(
        &self,
        founds: &'f Founds,
        lives: &mut Lives<'f>,
        launching: &Launching<'_>,
        state: &mut State,
        memory: Option<&mut GraphMemory>,
    ) -> std::result::Result<Frontier, Stopped> {
        let found = &founds.list;
        let Some(held) = memory else {
            self.lock_lives(found, lives, None);
            self.check(founds, lives, launching, state, None)?;
            return Ok(Frontier::EMPTY);
        };
        self.lock_lives(found, lives, Some(held));
        self.check(founds, lives, launching, state, Some(held))?;
        let hot = |who: &Standing<'_, Chain>| held.settled(&self.context, &self.arena_keys, who);
        if let Some(settled) = standing(&state.chain, &launching.before, None, None, hot) {
            return Ok(settled);
        }
        // The bind may take memory from pools, whose locks come before these. So the launch is checked again
        // afterwards.
        lives.clear();
        let cold = |who: &Standing<'_, Chain>| held.bind(&self.context, &self.arena_keys, who);
        let waits = standing(&state.chain, &launching.before, None, None, cold)?;
        self.lock_lives(found, lives, Some(held));
        self.check(founds, lives, launching, state, Some(held))?;
        Ok(waits)
    }

    /// Records what a launch does: uses and frees of memory from outside the graph, the ends of lifetimes by auto-free,
    /// new lifetimes.
    fn keep(
        &self,
        found: &[Found],
        lives: &mut Lives<'_>,
        made: &Made<'_, impl Knows>,
        run: &Run,
        memory: Option<&mut GraphMemory>,
    ) -> Begun {
        let Made { at, knew, is_whole } = *made;
        let (lanes, point) = (&run.lanes, at.point);
        let launched =
            Launched { whole: at, point: |node| self.events.as_ref().and_then(|events| events.point(lanes, node)) };
        if found.is_empty() {
            self.keep_memory(point, &[], &[], memory);
            return Begun::new();
        }
        let mut freed: SmallVec<[(Range, Point); 2]> = SmallVec::new();
        let mut anew: SmallVec<[Range; 2]> = SmallVec::new();
        let begun: Begun = SmallVec::from_elem(Cell::new(0), self.outputs.len());
        for (found, life) in found.iter().zip(lives) {
            match found.role {
                Role::Output(index) => {
                    let output = &self.outputs[index];
                    let was_live = life.freed.is_none();
                    if was_live {
                        life.freed.end(launched.by_itself(Act::Free));
                    }
                    if !is_whole {
                        freed.extend(was_live.then_some((output.range, point)));
                        continue;
                    }
                    if !was_live {
                        anew.push(output.range);
                    }
                    life.begin(output.bytes, launched.by(output.node, Act::Allocate));
                    (life.range, life.name) = (output.range, output.name.clone());
                    for last in &output.last_acts {
                        launched.leave(last, |used| life.history.add_use(used, last.part, knew));
                    }
                    begun[index].set(life.generation);
                }
                Role::Outside(index) => {
                    for last in &self.outsides[index].last_acts {
                        // If the launch was submitted only in part, its free is recorded as a write.
                        let act = if last.act == Act::Free && !is_whole { Act::Write } else { last.act };
                        let last = LastAct { act, ..*last };
                        let left = launched.leave(&last, |used| life.history.add_use(used, last.part, knew));
                        if let Some(free) = left {
                            life.freed.end(free);
                            freed.push((life.range, free.point));
                        }
                    }
                }
            }
        }
        self.keep_memory(point, &freed, &anew, memory);
        begun
    }

    /// Records the addresses that a launch freed, and those of its own that hold new memory.
    #[inline]
    fn keep_memory(&self, at: Point, freed: &[(Range, Point)], anew: &[Range], memory: Option<&mut GraphMemory>) {
        match memory {
            Some(memory) => memory.launched(&self.arena_keys, at, freed, anew),
            None => freed.iter().for_each(|(range, point)| self.context.graphs.frees.push(*range, (*point).into())),
        }
        if !freed.is_empty() {
            self.context.memory_came_back();
        }
    }

    /// Keeps the end of this launch, for the next one.
    fn end(
        &self,
        shared: &StreamShared,
        state: &mut State,
        run: &mut Run,
        base: Option<&Arc<Base>>,
        memory: Option<&mut GraphMemory>,
    ) {
        let mut raw = None;
        if self.native.is_none() {
            // If no event can be recorded in all tries, a stream that comes after the launch has one recorded when it
            // waits.
            raw = (0..TRIES).find_map(|_| self.context.driver.record(shared.raw).ok());
        }
        if let (Some(raw), None, true) = (raw, &self.events, self.arenas.is_empty()) {
            return Last::put_recorded(&mut run.last, shared, state, raw);
        }
        let event = raw.map(|raw| Arc::new(DeviceEvent::new(raw, &self.context.driver)));
        if let (Some(events), Some(base)) = (&self.events, base) {
            events.launched(&mut run.lanes, base, &LaunchEnd::of(event.as_ref(), &shared.progress));
        }
        if let Some(memory) = memory {
            self.arena_keys.iter().for_each(|it| Last::put(memory.last_mut(*it), shared, state, event.as_ref()));
        }
        if self.arenas.is_empty() {
            Last::put(&mut run.last, shared, state, event.as_ref());
        }
    }
}

impl StreamShared {
    /// Adds a child node, for a launch into a capturing stream.
    #[cold]
    fn capture_launch(&self, exec: &ExecShared, caller: &'static Location<'static>) -> Result<Begun> {
        let place = millpond_core::check::Place::Source(caller);
        lock(&self.context.graphs.captures).operate(self.id, place, |adding| {
            exec.body.check_copy(Asked::Captured)?;
            let node = adding.graph.body.add_child(adding.tails, &exec.body, place)?;
            if let (Some(tracer), Some(exec)) = (adding.graph.session.tracer(), &exec.traced) {
                tracer.graph_launch(exec, self.id, std::iter::empty(), caller);
            }
            Ok((node, SmallVec::new()))
        })
    }
}
