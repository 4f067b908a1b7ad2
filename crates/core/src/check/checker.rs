//! The checker of whole programs: takes operations one by one and says what is wrong.
//!
//! What is refused is not done, as in the library: later operations are judged as if it had not been there (and memory
//! that a refused operation named is not reported as a leak, too). A verdict depends on the operations and on nothing
//! else: no clock, no address, no thread (*timing-blind*). What is kept grows with what lives, not with what was done
//! (see `timeline.rs`, `lives.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Held;
use super::finding::{Finding, Spot};
use super::graph_state::{Graphs, Lender, LetIn};
use super::lives::{Lives, Named};
use super::timeline::{Learned, Ring, StreamIndex, Timeline};
use crate::graph::CapturedEvent;
use crate::ids::{ChainIndex, DeviceId, EventId, HostId, Point, PoolId, ProcessId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, Names, NodeOp, Op, Place, Reach, What};
use crate::order::Snapshot;

/// What is looked for, and how strictly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Reports two unordered accesses of the same bytes, one of them a write, but where a launch is
    /// [trusted](crate::op::Trust).
    pub races: bool,
    /// Reports memory that is never freed, at the end.
    pub leaks: bool,
    /// Gives advice.
    pub advice: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { races: true, leaks: true, advice: true }
    }
}

/// What a step is refused with.
pub(super) type Refused = Box<Finding>;
pub(super) type Step<T = ()> = Result<T, Refused>;

/// A refusal that follows from an earlier one: nothing is said again.
#[cold]
pub(super) fn quiet() -> Refused {
    Box::new(Finding::new(Kind::UnknownName, "", ""))
}

/// The operation at hand, for who does it, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) op: &'a Op,
    pub(super) names: &'a Names,
}

/// Advice is given once for a place; so many places are remembered.
const ADVISED: usize = 4096;
/// So many lines of waits are remembered; in a program of more no wait is said to be needless.
const NEEDED: usize = 1 << 16;

/// So many waits that were not for a first record are remembered.
pub(super) const LOST: usize = 64;

/// A record of an event: where its stream stood, and whether anybody waited for it.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
    pub(super) is_waited: bool,
    pub(super) lost: Option<Box<Lost>>,
}

impl Recorded {
    /// A record, in place of the one that the event had before. That is lost, unless a stream waited for it, or this
    /// one comes after it or is of the same launch.
    pub(super) fn new(snapshot: Snapshot, site: Site, before: Option<Recorded>) -> Self {
        let lost = match before {
            Some(old) if old.is_waited => None,
            Some(old) if old.site == site || snapshot.covers(old.snapshot.point()) => old.lost,
            Some(old) => Some(Box::new(Lost { snapshot: old.snapshot, site: old.site })),
            None => None,
        };
        Recorded { snapshot, site, is_waited: false, lost }
    }

    /// All that comes before the record.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// A record that was replaced before anybody waited for it.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
}

/// A wait for a record that had replaced another one which no stream waited for.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    /// The record that no stream waited for.
    pub(super) lost: Lost,
    /// The record in its place.
    pub(super) by: Site,
    /// The wait for that.
    pub(super) wait: Site,
    /// Where the waiting stream stood then.
    pub(super) waited_at: Point,
}

/// What an event stands for now.
#[derive(Clone, Debug, Default)]
pub(super) enum Stands {
    /// Nothing: never recorded.
    #[default]
    Nothing,
    /// A position of a stream.
    Recorded(Recorded),
    /// A place in a capture.
    Captured(CapturedEvent),
    /// Something that orders nothing.
    Progress(Site),
}

/// How an event was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Created {
    pub(super) device: DeviceId,
    pub(super) process: ProcessId,
    /// Whether other processes may use it.
    pub(super) is_shared: bool,
    pub(super) place: Place,
}

/// An event of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// None where it was never created.
    pub(super) created: Option<Created>,
    pub(super) stands: Stands,
}

impl Event {
    /// Whether a process may use it.
    pub(super) fn is_for(&self, process: ProcessId) -> bool {
        self.created.is_none_or(|created| created.process == process || created.is_shared)
    }

    /// A stream or a launch waits for its record: that is not lost any more.
    pub(super) fn waited(&mut self) {
        if let Stands::Recorded(recorded) = &mut self.stands {
            recorded.is_waited = true;
        }
    }

    /// It stands for a record from now on.
    pub(super) fn record(&mut self, snapshot: Snapshot, site: Site) {
        let before = self.take_record();
        self.stands = Stands::Recorded(Recorded::new(snapshot, site, before));
    }

    /// It stands for nothing from now on: its record, if it stood for one.
    pub(super) fn take_record(&mut self) -> Option<Recorded> {
        match std::mem::take(&mut self.stands) {
            Stands::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }
}

/// The checker: see the module.
#[derive(Debug, Default)]
pub struct Checker {
    pub(super) settings: Settings,
    pub(super) time: Timeline,
    pub(super) lives: Lives,
    pub(super) events: FxHashMap<EventId, Event>,
    /// Records that were replaced before a stream waited for them.
    pub(super) lost: Ring<Replaced, LOST>,
    /// Pools that live, and whether their memory can be exported to other processes.
    pools: FxHashMap<PoolId, bool>,
    /// The numbers that pools were given: default pools, which no operation makes, have numbers below.
    pools_made: Range<u32>,
    /// What other devices may do with memory of a pool or a device.
    pub(super) reach: FxHashMap<Lender, LetIn>,
    /// How other devices used the memory of a pool last: of each chain the newest read, and the newest write.
    pub(super) foreign: FxHashMap<(PoolId, DeviceId), BTreeMap<(ChainIndex, bool), Use>>,
    pub(super) graphs: Graphs,
    advised: FxHashSet<(Kind, String)>,
    /// Advice to leave a wait out, by its line: given at the end, where no execution of that line needed it.
    doubtful: Vec<(Place, Finding)>,
    /// Lines of waits that some execution needed.
    needed: FxHashSet<Place>,
    /// Findings beside the one that an operation is refused with.
    pub(super) more: Vec<Finding>,
    /// Launches of graphs that may still be withdrawn.
    pub(super) held: Vec<Held>,
}

impl Checker {
    /// A checker of a program that has not begun.
    pub fn new(settings: Settings) -> Self {
        Checker { settings, ..Checker::default() }
    }

    /// Takes the next operation; appends what is wrong with it, and returns whether it is done: what is refused is not,
    /// and what follows from something refused is not either. `names` are those of the operations.
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

    /// Judges an operation and does it.
    #[inline]
    pub(super) fn perform(&mut self, call: Call<'_>) -> Step {
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

    /// An operation is refused.
    #[cold]
    fn refuse(&mut self, call: Call<'_>, mut refused: Refused) -> Refused {
        self.time.answer.again = self.unconfirmed_side(&refused);
        if self.time.answer.again.is_some() {
            return refused;
        }
        refused.name_nodes(|side, sought| self.node_of(call, side, sought));
        if !refused.missing.is_empty() && refused.graph.is_none() {
            refused.missing = self.few_edges(call, std::mem::take(&mut refused.missing));
        }
        self.make_void(&call.op.what);
        refused
    }

    /// Where it is kept what the first number of memory leads to, and how many bytes behind that what each next one
    /// does: for callers that ask the processor for it ahead. It is valid for no access.
    #[inline]
    pub fn places(&self) -> (*const u8, usize) {
        self.lives.names.places()
    }

    /// *written-back*: the histories that an operation may look at are not behind. (A launch sees to that itself.)
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

    /// What a refused operation would have made is not there; that is no mistake of whoever uses it.
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
            // What is allocated from it is judged as of any pool.
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

    /// The program has ended: what was never freed, and what is wrong with graphs that were never instantiated.
    pub fn finish(&mut self, names: &Names, findings: &mut Vec<Finding>) {
        // Whoever the last operation was of: what is found now has no place.
        let last = Op { host: HostId(0), place: Place::Unknown, what: What::DeviceSynchronize };
        let call = Call { op: &last, names };
        self.lives.write_all_back();
        self.confirm_all(names);
        if self.needed.len() < NEEDED {
            let unneeded = self.doubtful.drain(..).filter(|(place, _)| !self.needed.contains(place));
            findings.extend(unneeded.map(|(_, finding)| finding));
        }
        self.check_leftover_graphs(call);
        if self.settings.leaks {
            self.find_leaks(call);
            self.find_open_captures(call);
        }
        findings.append(&mut self.more);
    }

    /// How many entries all tables have: what the memory of the checker grows with. It follows what lives, and is flat
    /// in the number of operations.
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

    /// The operations that are not in the middle of every loop.
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
                // It orders nothing, so that no rule of calls applies.
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

    /// Pools, and who may use the memory of a device.
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

    /// A stream, about to do something.
    #[inline]
    pub(super) fn enter(&mut self, call: Call<'_>, stream: StreamId) -> Step<StreamIndex> {
        // Work that is captured is submitted by launches: the stream learns nothing.
        if self.graphs.is_captured(stream) {
            return self.look(call, stream);
        }
        let stream_index = self.time.enter(call.op.host, stream);
        self.there(call, stream, stream_index)
    }

    /// A stream, for something that is no operation of it.
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

    /// The site of the next operation of a stream.
    #[inline]
    pub(super) fn site(&self, call: Call<'_>, stream_index: StreamIndex, act: Act) -> Site {
        let stream = self.time.at(stream_index);
        Site { act, stream: stream.kept.id, op: stream.kept.ops + 1, place: call.op.place }
    }

    /// The site of something that the host does itself.
    pub(super) fn host_site(&self, call: Call<'_>, act: Act) -> Site {
        Site { act, stream: StreamId::HOST, op: 0, place: call.op.place }
    }

    fn destroy_stream(&mut self, call: Call<'_>, stream: StreamId) -> Step {
        // Its end is no use of the legacy default stream.
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

    /// A stream comes after another, which may have ended.
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

    /// Whether a pool is there; one that was never made is taken for a default pool.
    #[inline]
    pub(super) fn check_pool(&self, call: Call<'_>, pool: PoolId) -> Step {
        if self.is_gone(pool) {
            return Err(self.no_pool(call, pool));
        }
        Ok(())
    }

    /// Whether memory of a pool can be exported.
    #[inline]
    pub(super) fn is_exportable(&self, pool: PoolId) -> bool {
        self.pools.get(&pool).is_some_and(|is_exportable| *is_exportable)
    }

    /// Whether a pool was destroyed.
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

    /// Advises to leave a wait out; where its line is known that has to hold each time it is reached.
    #[cold]
    pub(super) fn advise_against(&mut self, place: Place, finding: Finding) {
        let before = self.more.len();
        self.advise(finding);
        if place != Place::Unknown {
            self.doubtful.extend(self.more.drain(before..).map(|finding| (place.in_any_round(), finding)));
        }
    }

    /// A wait at this line does something.
    #[inline]
    pub(super) fn note_needed(&mut self, place: Place) {
        if self.settings.advice && place != Place::Unknown && self.needed.len() < NEEDED {
            self.needed.insert(place.in_any_round());
        }
    }
}
