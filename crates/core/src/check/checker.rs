//! The checker of whole programs: judges operations one by one and reports what is wrong.
//!
//! A refused operation is not done, as in the library. Later operations are judged as if it had not been there, and
//! memory that it named is not reported as a leak, too. A verdict depends on the operations and on nothing else: no
//! clock, no address, no thread (*timing-blind*). The state grows with what is live, not with the number of operations
//! (see `timeline.rs`, `lives.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::effects::{Captured, Effects};
use super::finding::{Finding, Spot};
use super::graph_state::{Graphs, Lender, LetIn};
use super::lives::{Lives, Named};
use super::timeline::{Learned, Ring, StreamIndex, Timeline};
use crate::graph::CapturedEvent;
use crate::ids::{ChainIndex, DeviceId, EventId, HostId, Point, PoolId, ProcessId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, Names, NodeOp, Op, Place, Reach, What};
use crate::order::Snapshot;

/// The kinds of findings to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Reports two unordered accesses to the same bytes, one of them a write, except those of launches that are
    /// [trusted](crate::op::Trust).
    pub races: bool,
    /// Reports memory that is never freed and captures that never end.
    pub leaks: bool,
    /// Gives advice.
    pub advice: bool,
    /// Reports faults of graphs from which the program makes no instance. No launch runs them.
    pub unused_graphs: bool,
}

impl Settings {
    /// All kinds that concern a program that was recorded.
    pub const RECORDED: Self = Settings { races: true, leaks: true, advice: true, unused_graphs: false };
}

impl Default for Settings {
    fn default() -> Self {
        Settings { unused_graphs: true, ..Settings::RECORDED }
    }
}

/// The finding that a step is refused with.
pub(super) type Refused = Box<Finding>;
pub(super) type Step<T = ()> = Result<T, Refused>;

/// Makes a refusal that follows from an earlier one and is not reported again.
#[cold]
pub(super) fn quiet() -> Refused {
    Box::new(Finding::new(Kind::UnknownName, "", ""))
}

/// The current operation, with the names of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) op: &'a Op,
    pub(super) names: &'a Names,
}

/// The number of places for which advice is remembered. Advice is given once for a place.
const ADVISED: usize = 4096;
/// The number of lines of needed waits that are remembered. A program that reaches it gets no advice to leave waits
/// out.
const NEEDED: usize = 1 << 16;

/// The number of [`Replaced`] waits that are remembered.
pub(super) const LOST: usize = 64;

/// A record of an event: the position of its stream, and whether anything waited for it.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
    pub(super) is_waited: bool,
    pub(super) lost: Option<Box<Lost>>,
}

impl Recorded {
    /// Makes a record that replaces the event's record `before`. That one is lost, unless something waited for it, or
    /// the new record comes after it or belongs to the same launch.
    fn new(snapshot: Snapshot, site: Site, before: Option<Recorded>) -> Self {
        let lost = match before {
            Some(old) if old.is_waited => None,
            Some(old) if old.site == site || snapshot.covers(old.snapshot.point()) => old.lost,
            Some(old) => Some(Box::new(Lost { snapshot: old.snapshot, site: old.site })),
            None => None,
        };
        Recorded { snapshot, site, is_waited: false, lost }
    }
}

/// A record that was replaced before anything waited for it.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
}

/// A wait for a record that had replaced one that nothing waited for.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    /// The record that nothing waited for.
    pub(super) lost: Lost,
    /// The record that replaced it.
    pub(super) by: Site,
    /// The wait for the second record.
    pub(super) wait: Site,
    /// The last point of the waiting stream after the wait.
    pub(super) waited_at: Point,
}

/// The present state of an event.
#[derive(Clone, Debug, Default)]
pub(super) enum Stands {
    /// Never recorded.
    #[default]
    Nothing,
    /// Recorded on a stream.
    Recorded(Recorded),
    /// Recorded in a capture.
    Captured(CapturedEvent),
    /// A record that orders nothing.
    Progress(Site),
}

/// The creation of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Created {
    pub(super) device: DeviceId,
    pub(super) process: ProcessId,
    /// `true` if other processes may use it.
    pub(super) is_shared: bool,
    pub(super) place: Place,
}

/// An event of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// `None` if it was never created.
    pub(super) created: Option<Created>,
    pub(super) stands: Stands,
}

impl Event {
    /// Returns `true` if a process may use the event.
    pub(super) fn is_for(&self, process: ProcessId) -> bool {
        self.created.is_none_or(|created| created.process == process || created.is_shared)
    }

    /// Notes that a stream or a launch waits for the event's record, which is then not lost.
    pub(super) fn waited(&mut self) {
        if let Stands::Recorded(recorded) = &mut self.stands {
            recorded.is_waited = true;
        }
    }

    /// Replaces the event's record.
    pub(super) fn record(&mut self, snapshot: Snapshot, site: Site) {
        let before = match std::mem::take(&mut self.stands) {
            Stands::Recorded(recorded) => Some(recorded),
            _ => None,
        };
        self.stands = Stands::Recorded(Recorded::new(snapshot, site, before));
    }
}

/// The checker: see the module.
#[derive(Debug, Default)]
pub struct Checker {
    pub(super) settings: Settings,
    pub(super) time: Timeline,
    pub(super) lives: Lives,
    pub(super) events: FxHashMap<EventId, Event>,
    /// The last waits for a record that had replaced one that nothing waited for.
    pub(super) lost: Ring<Replaced, LOST>,
    /// The live pools. `true` if the pool's memory can be exported to other processes.
    pools: FxHashMap<PoolId, bool>,
    /// The range of the numbers of created pools. Default pools, which no operation creates, have lower numbers.
    pools_made: Range<u32>,
    /// The access of other devices to memory of a pool or a device.
    pub(super) reach: FxHashMap<Lender, LetIn>,
    /// The last uses of a pool's memory by another device: for each chain the newest read and the newest write.
    pub(super) foreign: FxHashMap<(PoolId, DeviceId), BTreeMap<(ChainIndex, bool), Use>>,
    pub(super) graphs: Graphs,
    advised: FxHashSet<(Kind, String)>,
    /// Advice to leave a wait out, with the line of the wait. It is given at the end, if no execution of that line
    /// needed the wait.
    doubtful: Vec<(Place, Finding)>,
    /// The lines of waits that some execution needed.
    needed: FxHashSet<Place>,
    /// Findings beside the one that the operation is refused with.
    pub(super) more: Vec<Finding>,
}

impl Checker {
    /// Makes a checker for a program that has not begun.
    pub fn new(settings: Settings) -> Self {
        Checker { settings, ..Checker::default() }
    }

    /// Judges the next operation, and does it if it is right. Appends what is wrong to `findings`. Returns `false` if
    /// the operation is not done: it is refused, or it follows from a refused one. `names` is the table of names that
    /// the operations refer to.
    #[inline]
    pub fn check(&mut self, op: &Op, names: &Names, findings: &mut Vec<Finding>) -> bool {
        let done = self.perform(Call { op, names });
        let is_done = done.is_ok();
        if let Err(refused) = done
            && !refused.is_quiet()
        {
            findings.push(*refused);
        }
        if !self.more.is_empty() {
            findings.append(&mut self.more);
        }
        is_done
    }

    /// As [`check`](Self::check). Also returns the effects of the operation, and `true` if it is done.
    pub fn check_with_effects(&mut self, op: &Op, names: &Names, findings: &mut Vec<Finding>) -> (Effects, bool) {
        let stream = op.what.stream();
        let before = stream.and_then(|stream| self.capture_of(stream));
        self.time.asked.ask();
        let is_done = self.check(op, names, findings);
        let mut effects = self.time.asked.take();
        let now = || stream.and_then(|stream| self.capture_of(stream));
        effects.captured = effects.captured.or(before).or_else(now);
        if let Some(stream) = stream.and_then(|stream| self.time.stream(stream)) {
            effects.point = Some(stream.chain.last()).filter(|_| !self.graphs.is_captured(stream.kept.id));
            effects.number = stream.kept.ops;
            effects.device = Some(stream.kept.device);
        }
        (effects, is_done)
    }

    /// Returns the capture that a stream is in.
    fn capture_of(&self, stream: StreamId) -> Option<Captured> {
        let captures = &self.graphs.captures;
        Some(Captured { graph: self.graphs.captured_on(stream)?.graph.id(), after: captures.tails(stream)?.to_vec() })
    }

    /// Judges an operation and does it.
    #[inline]
    fn perform(&mut self, call: Call<'_>) -> Step {
        let Call { op, .. } = call;
        let is_plain_launch = matches!(op.what, What::Launch { .. }) && !self.graphs.is_capturing();
        if !is_plain_launch && self.lives.is_any_behind() {
            self.write_back(&op.what);
        }
        let done = match self.graphs.is_capturing() {
            true => self.refuse_while_capturing(call).and_then(|()| self.perform_kind(&op.what, call)),
            false => self.perform_kind(&op.what, call),
        };
        done.map_err(|refused| self.refuse(call, refused))
    }

    /// Completes a refusal: names the nodes of launches, reduces the missing edges, and marks what the operation would
    /// have made as void.
    #[cold]
    pub(super) fn refuse(&mut self, call: Call<'_>, mut refused: Refused) -> Refused {
        refused.name_nodes(|side, sought| self.node_of(call, side, sought));
        if !refused.missing.is_empty() && refused.graph.is_none() {
            refused.missing = self.few_edges(call, std::mem::take(&mut refused.missing));
        }
        self.make_void(&call.op.what);
        refused
    }

    /// Returns the number of operations of a stream so far, as findings count them. Returns `None` if the stream is not
    /// live.
    pub fn operations(&self, stream: StreamId) -> Option<u64> {
        self.time.stream(stream).map(|stream| stream.kept.ops)
    }

    /// Returns the address of the table entry of the first memory number, and the distance in bytes from one entry to
    /// the next, for callers that prefetch entries. The address is valid for no access.
    #[inline]
    pub fn places(&self) -> (*const u8, usize) {
        self.lives.names.places()
    }

    /// Writes back the histories that an operation may look at, so that they are not behind (*written-back*). Launches
    /// and copies do that themselves.
    fn write_back(&mut self, what: &What) {
        let is_capturing = self.graphs.is_capturing();
        match what {
            What::Launch { .. }
            | What::Copy { .. }
            | What::Alloc { .. }
            | What::EventRecord { .. }
            | What::EventWait { .. }
                if !is_capturing => {}
            What::Free { memory, .. } if !is_capturing => self.lives.write_back(*memory),
            _ => self.lives.write_all_back(),
        }
    }

    /// Marks what a refused operation would have made as void, so that later uses of it are not reported.
    #[cold]
    fn make_void(&mut self, what: &What) {
        match *what {
            What::Alloc { memory, .. }
            | What::AllocNow { memory, .. }
            | What::Import { memory, .. }
            | What::Take { memory, .. } => self.lives.name(memory, Named::Void),
            What::FreeNow { memory } => self.doubt(memory),
            What::Instantiate { graph, exec, .. } => {
                self.graphs.unmake(graph);
                if !self.graphs.execs.contains_key(&exec) {
                    self.graphs.void_execs.insert(exec);
                }
            }
            What::GraphClone { graph, copy } => {
                self.graphs.unmake(graph);
                self.graphs.make_void(copy);
            }
            What::ExecUpdate { graph, .. } => self.graphs.unmake(graph),
            What::GraphLaunch { exec, .. } => self.graphs.unmake_launch(exec),
            What::CaptureBegin { graph, .. } => self.graphs.make_void(graph),
            // Allocations from it are judged as from any pool.
            What::PoolCreate { pool, exportable, .. } => self.add_pool(pool, exportable),
            What::CopyName { memory, .. } => self.lives.name(memory, Named::Void),
            What::Export { ticket, .. } => {
                self.lives.void_tickets.insert(ticket);
            }
            What::GraphNode { ref node, .. } => match **node {
                NodeOp::Alloc { memory, .. } => self.lives.name(memory, Named::Void),
                NodeOp::Child(child) => self.graphs.unmake(child),
                _ => {}
            },
            _ => {}
        }
    }

    /// Ends the program. Reports memory that was never freed, captures that never end, faults of graphs that nothing
    /// was made of, and the advice on waits.
    pub fn finish(&mut self, names: &Names, findings: &mut Vec<Finding>) {
        // The findings have no place, whichever operation was the last.
        let last = Op { host: HostId(0), place: Place::Unknown, what: What::DeviceSynchronize };
        let call = Call { op: &last, names };
        self.lives.write_all_back();
        if self.needed.len() < NEEDED {
            let unneeded = self.doubtful.drain(..).filter(|(place, _)| !self.needed.contains(place));
            findings.extend(unneeded.map(|(_, finding)| finding));
        }
        if self.settings.unused_graphs {
            self.check_leftover_graphs(call);
        }
        if self.settings.leaks {
            self.find_leaks(call);
            self.find_open_captures(call);
        }
        findings.append(&mut self.more);
    }

    /// Returns the number of entries in all tables, with which the checker's use of memory grows. It follows what is
    /// live, and is flat in the number of operations.
    pub fn entries(&self) -> usize {
        self.lives.entries() + self.events.len() + self.time.entries() + self.graphs.entries()
    }

    #[inline]
    fn perform_kind(&mut self, what: &What, call: Call<'_>) -> Step {
        match what {
            What::Launch { stream, accesses, trust, name } => self.launch(call, *stream, accesses, *trust, *name),
            What::Alloc { memory, pool, stream, bytes, name } => {
                self.alloc(call, *memory, *pool, *stream, *bytes, *name)
            }
            What::Free { memory, stream, trust } => self.free(call, *memory, *stream, *trust),
            What::EventRecord { event, stream, external, kind } => self.record(call, *event, *stream, *external, *kind),
            What::EventWait { event, stream, external } => self.wait(call, *event, *stream, *external),
            What::Copy { stream, accesses } => self.copy(call, *stream, accesses),
            other => self.rare_step(other, call),
        }
    }

    /// Does the operations that are rare in loops.
    fn rare_step(&mut self, what: &What, call: Call<'_>) -> Step {
        match *what {
            What::HostStart { process } => {
                self.time.start_host(call.op.host, process);
                Ok(())
            }
            What::Tell { to } => {
                self.time.tell(call.op.host, to);
                Ok(())
            }
            What::StreamCreate { stream, role, device } => {
                self.time.create(call.op.host, stream, role, device);
                Ok(())
            }
            What::StreamName { stream, name } => {
                // A name orders nothing, so the rules for calls during captures do not apply.
                let Some(stream_index) = self.time.look(call.op.host, stream) else {
                    return Err(self.no_stream(call, stream));
                };
                self.time.at_mut(stream_index).kept.name = Some(name);
                Ok(())
            }
            What::StreamDestroy { stream } => self.destroy_stream(call, stream),
            What::StreamSynchronize { stream } => self.synchronize_stream(call, stream, "synchronized", true),
            What::StreamQuery { stream, is_idle } => self.synchronize_stream(call, stream, "queried", is_idle),
            What::Follow { stream, after } => self.follow(call, stream, after),
            What::DeviceSynchronize => self.synchronize_device(call, None),
            What::SynchronizeDevice { device } => self.synchronize_device(call, Some(device)),
            What::PoolCreate { .. } | What::PoolDestroy { .. } | What::PoolAccess { .. } | What::PeerAccess { .. } => {
                self.pool_step(what, call)
            }
            What::AllocNow { memory, space, bytes, name } => self.alloc_now(call, memory, space, bytes, name),
            What::SetName { memory, name } => {
                self.rename(memory, name);
                Ok(())
            }
            What::FreeNow { memory } => self.free_now(call, memory),
            What::Drop { memory } => self.drop_memory(call, memory),
            What::HostAccess { ref accesses } => self.host_access(call, accesses),
            What::Export { memory, ticket } => self.export(call, memory, ticket),
            What::Import { ticket, memory } => self.import(call, ticket, memory),
            What::EventCreate { .. }
            | What::EventCopy { .. }
            | What::EventDestroy { .. }
            | What::EventSynchronize { .. }
            | What::EventQuery { .. } => self.event_step(what, call),
            _ => self.graph_step(what, call),
        }
    }

    /// Does the operations of pools and of access between devices.
    fn pool_step(&mut self, what: &What, call: Call<'_>) -> Step {
        match *what {
            What::PoolCreate { pool, exportable, .. } => self.add_pool(pool, exportable),
            What::PoolDestroy { pool } => {
                self.check_pool(call, pool)?;
                self.pools.remove(&pool);
                self.foreign.retain(|(of, _), _| *of != pool);
            }
            What::PoolAccess { pool, device, reach } => {
                self.check_pool(call, pool)?;
                self.check_unused_foreign(call, pool, device, reach)?;
                self.reach.entry(Lender::Pool(pool)).or_default().set(device, reach);
            }
            What::PeerAccess { owner, device, is_enabled } => {
                let lender = Lender::Device(self.time.process(call.op.host), owner);
                let reach = if is_enabled { Reach::ReadWrite } else { Reach::None };
                self.reach.entry(lender).or_default().set(device, reach);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_pool(&mut self, pool: PoolId, is_exportable: bool) {
        self.pools.insert(pool, is_exportable);
        let Range { start, end } = self.pools_made;
        let start = if start < end { start.min(pool.0) } else { pool.0 };
        self.pools_made = start..end.max(pool.0.saturating_add(1));
    }

    /// Enters a stream for its next operation.
    #[inline]
    pub(super) fn enter(&mut self, call: Call<'_>, stream: StreamId) -> Step<StreamIndex> {
        // Launches submit captured work, so the stream learns nothing now.
        if self.graphs.is_captured(stream) {
            return self.look(call, stream);
        }
        let stream_index = self.time.enter(call.op.host, stream);
        self.there(call, stream, stream_index)
    }

    /// Looks up a stream for a call that is not an operation of it.
    pub(super) fn look(&mut self, call: Call<'_>, stream: StreamId) -> Step<StreamIndex> {
        let stream_index = self.time.look(call.op.host, stream);
        self.there(call, stream, stream_index)
    }

    #[inline]
    fn there(&mut self, call: Call<'_>, stream: StreamId, stream_index: Option<StreamIndex>) -> Step<StreamIndex> {
        match stream_index {
            Some(stream_index) if !self.graphs.is_capturing() => Ok(stream_index),
            Some(stream_index) => self.enter_while_capturing(call, stream_index),
            None => Err(self.no_stream(call, stream)),
        }
    }

    /// Returns the site of a stream's next operation.
    #[inline]
    pub(super) fn site(&self, call: Call<'_>, stream_index: StreamIndex, act: Act) -> Site {
        let stream = self.time.at(stream_index);
        Site { act, stream: stream.kept.id, op: stream.kept.ops + 1, place: call.op.place }
    }

    /// Returns the site of an act of the host itself.
    pub(super) fn host_site(&self, call: Call<'_>, act: Act) -> Site {
        Site { act, stream: StreamId::HOST, op: 0, place: call.op.place }
    }

    fn destroy_stream(&mut self, call: Call<'_>, stream: StreamId) -> Step {
        // The destruction of the legacy default stream is not a use of it, so captures do not forbid it.
        let Some(stream_index) = self.time.look(call.op.host, stream) else { return Err(self.no_stream(call, stream)) };
        let site = self.site(call, stream_index, Act::Free);
        self.leave_capture(call, stream);
        self.time.destroy(stream, site);
        Ok(())
    }

    fn synchronize_stream(&mut self, call: Call<'_>, stream: StreamId, verb: &'static str, is_over: bool) -> Step {
        let stream_index = self.look(call, stream)?;
        self.refuse_in_capture(call, stream, call.op.what.unsafe_call().unwrap_or_default())?;
        if is_over {
            let site = Site { act: Act::Read, stream: StreamId::HOST, op: 0, place: call.op.place };
            for what in self.time.streams.ends(stream_index) {
                self.time.learn(call.op.host, Learned { what, verb, recorded: None, site });
            }
        }
        Ok(())
    }

    /// Puts a stream after another one, which may be destroyed.
    fn follow(&mut self, call: Call<'_>, stream: StreamId, after: StreamId) -> Step {
        let stream_index = self.look(call, stream)?;
        let other = self.time.look(call.op.host, after);
        self.time.follow(stream_index, other);
        Ok(())
    }

    fn synchronize_device(&mut self, call: Call<'_>, device: Option<DeviceId>) -> Step {
        self.refuse_synchronize(call, device)?;
        let site = self.host_site(call, Act::Read);
        self.time.learn_all(call.op.host, device, site);
        Ok(())
    }

    /// Checks that a pool exists. A pool that was never created counts as a default pool.
    #[inline]
    pub(super) fn check_pool(&self, call: Call<'_>, pool: PoolId) -> Step {
        if self.is_gone(pool) {
            return Err(self.no_pool(call, pool));
        }
        Ok(())
    }

    /// Returns `true` if memory of a pool can be exported.
    #[inline]
    pub(super) fn is_exportable(&self, pool: PoolId) -> bool {
        self.pools.get(&pool).is_some_and(|is_exportable| *is_exportable)
    }

    /// Returns `true` if a pool was destroyed.
    #[inline]
    pub(super) fn is_gone(&self, pool: PoolId) -> bool {
        self.pools_made.contains(&pool.0) && !self.pools.contains_key(&pool)
    }

    /// Gives advice, once for each place.
    #[cold]
    pub(super) fn advise(&mut self, finding: Finding) {
        let spot = finding.spot().map(Spot::in_any_round).unwrap_or_default();
        if self.settings.advice && self.advised.len() < ADVISED && self.advised.insert((finding.kind, spot)) {
            self.more.push(finding);
        }
    }

    /// Advises to leave a wait out. If the line of the wait is known, the advice is kept until the end, because it must
    /// hold for each execution of the line.
    #[cold]
    pub(super) fn advise_against(&mut self, place: Place, finding: Finding) {
        let before = self.more.len();
        self.advise(finding);
        if place != Place::Unknown {
            self.doubtful.extend(self.more.drain(before..).map(|finding| (place.in_any_round(), finding)));
        }
    }

    /// Notes that an execution of the wait at this line was needed.
    #[inline]
    pub(super) fn note_needed(&mut self, place: Place) {
        if self.settings.advice && place != Place::Unknown && self.needed.len() < NEEDED {
            self.needed.insert(place.in_any_round());
        }
    }
}
