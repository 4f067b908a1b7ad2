//! The streams and processes of the checked program: their chains, and enough of their past to explain findings.
//!
//! The order is that of [`Streams`]. The host threads of a process are one timeline, because the locks, channels and
//! joins between them are not visible. Each stream remembers its last operations and the last synchronisations from
//! which it learned something. This past is bounded: an explanation may lack a line for something long ago, but no
//! verdict depends on it.
//!
//! Knows no memory, no event and no graph. Invariant **flat**: the state grows with the live streams and processes, not
//! with the operations.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::effects::Asked;
use crate::ids::{ChainIndex, DeviceId, HostId, Point, ProcessId, Seq, StreamId};
use crate::life::Site;
use crate::op::{Name, Place, StreamRole};
use crate::order::default_streams::Standing;
use crate::order::{self, Base, Chain, HomeNumber, Host, Snapshot, Streams};

pub(super) use crate::order::StreamIndex;

/// The number of operations of a stream that can still be shown.
const RECENT: usize = 8;
/// The number of synchronisations of a stream or process that can still be shown.
const LEARNED: usize = 8;
/// The number of destroyed streams that can still be shown.
const ENDED: usize = 256;

/// A synchronisation from which its stream or process learned something.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    /// The snapshot that was learned.
    pub(super) what: Snapshot,
    /// The verb, in the past: `waited for`, `synchronized`.
    pub(super) verb: &'static str,
    /// The record, if it was a wait or a synchronisation for an event.
    pub(super) recorded: Option<Site>,
    /// The synchronisation.
    pub(super) site: Site,
}

/// A live stream.
pub(super) type Stream = order::Stream<Past>;

/// The past of a stream that is remembered.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) id: StreamId,
    pub(super) device: DeviceId,
    /// The number of its operations.
    pub(super) ops: u64,
    pub(super) name: Option<Name>,
    recent: Ring<Recent, RECENT>,
    pub(super) learned: Ring<Learned, LEARNED>,
}

/// An operation of a stream that can still be shown.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The position of the stream after it.
    seq: Seq,
    /// The verb, in the past.
    verb: &'static str,
    /// The number of the operation in its stream.
    op: u64,
    place: Place,
}

/// A destroyed stream that can still be shown.
#[derive(Debug)]
struct Ended {
    id: StreamId,
    /// The destruction.
    site: Site,
    name: Option<Name>,
}

impl Stream {
    /// Counts an operation that is done, and remembers it.
    #[inline]
    pub(super) fn note(&mut self, verb: &'static str, place: Place) {
        let seq = self.chain.seq();
        self.kept.ops += 1;
        self.kept.recent.push(Recent { seq, verb, op: self.kept.ops, place });
    }

    /// Returns `true` if all its operations are still remembered.
    pub(super) fn remembers_all(&self) -> bool {
        self.kept.ops <= RECENT as u64
    }

    /// Returns the newest remembered operation at or before a position: its verb, its number and its place.
    pub(super) fn newest(&self, seq: Seq) -> Option<(&'static str, u64, Place)> {
        let before = self.kept.recent.iter().filter(|it| it.seq <= seq).last();
        before.map(|&Recent { verb, op, place, .. }| (verb, op, place))
    }
}

/// The host threads of a process.
#[derive(Debug)]
struct Process {
    id: ProcessId,
    host: Host,
    /// The chain of their own acts on memory.
    chain: Chain,
    learned: Ring<Learned, LEARNED>,
}

/// Streams and processes: see the module.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The index of each live stream in the table.
    stream_indices: FxHashMap<StreamId, StreamIndex>,
    /// The stream that was looked up last, if it is live.
    last_seat: Option<(StreamId, StreamIndex)>,
    pub(super) streams: Streams<Past>,
    /// The process and the device of each home.
    homes: Vec<(ProcessId, DeviceId)>,
    processes: Vec<Process>,
    /// The index of each process in `processes`.
    process_numbers: FxHashMap<ProcessId, usize>,
    /// The index of each thread's process.
    hosts: FxHashMap<HostId, usize>,
    /// The thread that called last, which is nearly always the one that calls next.
    last_host: Option<(HostId, usize)>,
    /// The destroyed streams that can still be shown.
    ended: Ring<Ended, ENDED>,
    /// All created streams have numbers below this one.
    made: u32,
    hosts_made: u64,
    /// The effects of the current operation on anything, if the caller asks for them.
    pub(super) asked: Asked,
}

impl Timeline {
    /// Returns the process of a thread.
    pub(super) fn process(&self, host: HostId) -> ProcessId {
        self.hosts.get(&host).map_or(ProcessId(0), |at| self.processes[*at].id)
    }

    /// Returns the index of a thread's process. A new thread belongs to process 0.
    fn process_at(&mut self, host: HostId) -> usize {
        match self.hosts.get(&host) {
            Some(at) => *at,
            None => self.start_host(host, ProcessId(0)),
        }
    }

    /// As [`process_at`](Self::process_at), for the calling thread.
    #[inline]
    fn process_of(&mut self, host: HostId) -> usize {
        match self.last_host {
            Some((last, process)) if last == host => process,
            _ => {
                let process = self.process_at(host);
                self.last_host = Some((host, process));
                process
            }
        }
    }

    fn process_mut(&mut self, host: HostId) -> &mut Process {
        let at = self.process_at(host);
        &mut self.processes[at]
    }

    /// Returns the knowledge of a thread's process, if the thread has called before.
    pub(super) fn base_of(&self, host: HostId) -> Option<&Base> {
        Some(self.processes[*self.hosts.get(&host)?].host.base())
    }

    /// Returns the remembered synchronisations of a thread's process, the oldest first.
    pub(super) fn learned_by(&self, host: HostId) -> impl Iterator<Item = &Learned> {
        let process = self.hosts.get(&host).map(|at| &self.processes[*at]);
        process.into_iter().flat_map(|process| process.learned.iter())
    }

    /// Starts a thread of a process. Returns the index of the process.
    pub(super) fn start_host(&mut self, host: HostId, id: ProcessId) -> usize {
        let at = *self.process_numbers.entry(id).or_insert_with(|| {
            self.hosts_made += 1;
            let (chain, seq) = self.streams.chain_indices.open(|_| false);
            let host = Host::new(self.hosts_made);
            let chain = Chain::new(chain, seq, Arc::clone(host.base()));
            self.processes.push(Process { id, host, chain, learned: Ring::default() });
            self.processes.len() - 1
        });
        self.hosts.insert(host, at);
        self.last_host = Some((host, at));
        at
    }

    /// Returns the live streams of a thread's process.
    pub(super) fn streams_of(&self, host: HostId) -> impl Iterator<Item = &Stream> {
        let process = self.process(host);
        self.streams.iter().filter(move |stream| self.homes[stream.home].0 == process)
    }

    /// Returns the knowledge of a thread's process.
    pub(super) fn base(&mut self, host: HostId) -> Arc<Base> {
        Arc::clone(self.process_mut(host).host.base())
    }

    /// Returns the point of an act of a thread itself. What its process submits later comes after it.
    pub(super) fn act(&mut self, host: HostId) -> Point {
        let process = self.process_mut(host);
        process.chain.learn_base(process.host.base());
        let point = process.chain.submit();
        process.host.learn(&process.chain.snapshot());
        self.asked.tell(|effects| {
            effects.learned.push(point);
            effects.point = Some(point);
        });
        point
    }

    fn home(&mut self, process: ProcessId, device: DeviceId) -> HomeNumber {
        let found = self.homes.iter().position(|home| *home == (process, device));
        found.unwrap_or_else(|| {
            self.hosts_made += 1;
            self.homes.push((process, device));
            self.streams.open_home(self.hosts_made)
        })
    }

    /// Creates a stream. A live stream with this number ends.
    pub(super) fn create(&mut self, host: HostId, stream: StreamId, role: StreamRole, device: DeviceId) {
        self.destroy(stream, Site::default());
        let base = self.base(host);
        let home = self.home(self.process(host), device);
        self.made = self.made.max(stream.0.saturating_add(1));
        let past = Past { id: stream, device, ops: 0, name: None, recent: Ring::default(), learned: Ring::default() };
        let stream_index = self.streams.create(home, role, base, past);
        self.stream_indices.insert(stream, stream_index);
    }

    /// Destroys a stream. Its work stays in the order.
    pub(super) fn destroy(&mut self, id: StreamId, site: Site) {
        let Some(stream_index) = self.stream_indices.remove(&id) else { return };
        self.last_seat = None;
        let Some(stream) = self.streams.destroy(stream_index) else { return };
        self.ended.push(Ended { id, site, name: stream.kept.name });
    }

    /// Returns the device of a live stream, if the program has several devices.
    pub(super) fn device_among(&self, id: StreamId) -> Option<DeviceId> {
        let is_alone = self.homes.iter().all(|home| home.1 == self.homes[0].1);
        self.stream(id).map(|stream| stream.kept.device).filter(|_| !is_alone)
    }

    /// Puts later work of a stream after all work so far of another one. If that one is destroyed, puts it after all
    /// destroyed streams of the home.
    pub(super) fn follow(&mut self, stream_index: StreamIndex, other: Option<StreamIndex>) {
        match other {
            Some(other) => {
                let end = self.at(other).chain.snapshot();
                self.wait(stream_index, &end);
            }
            None => {
                let ended = Arc::clone(self.streams.ended(self.at(stream_index).home));
                self.at_mut(stream_index).chain.learn_base(&ended);
            }
        }
    }

    /// Returns a live stream.
    #[inline]
    pub(super) fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(*self.stream_indices.get(&id)?)
    }

    /// Returns the stream with an index that was entered.
    #[inline]
    pub(super) fn at(&self, stream_index: StreamIndex) -> &Stream {
        self.streams.get(stream_index).expect("a stream_index that was entered is taken")
    }

    #[inline]
    pub(super) fn at_mut(&mut self, stream_index: StreamIndex) -> &mut Stream {
        self.streams.get_mut(stream_index).expect("a stream_index that was entered is taken")
    }

    /// Returns `Some` if there was a stream with this number. If its end is still remembered, the value has the
    /// destruction and the stream's name.
    pub(super) fn was(&self, id: StreamId) -> Option<Option<(Site, Option<Name>)>> {
        let found = self.ended.iter().filter(|it| it.id == id).last().map(|it| (it.site, it.name));
        (id.0 < self.made).then_some(found)
    }

    /// Runs before every operation of a stream: the stream learns what the process knows, and the rule of the default
    /// streams applies. The legacy default stream of the first device exists without being created.
    #[inline]
    pub(super) fn enter(&mut self, host: HostId, id: StreamId) -> Option<StreamIndex> {
        let process = self.process_of(host);
        let stream_index = self.look(host, id)?;
        let Timeline { streams, processes, asked, .. } = self;
        let on_wait = |point| asked.tell(|effects| effects.waits.push(point));
        streams.enter(stream_index, processes[process].host.base(), on_wait);
        Some(stream_index)
    }

    /// Returns the index of a stream, for a call that is not an operation of it: a synchronisation, a query, a wait for
    /// nothing. The stream learns nothing from that.
    #[inline]
    pub(super) fn look(&mut self, host: HostId, id: StreamId) -> Option<StreamIndex> {
        match self.last_seat {
            Some((last, stream_index)) if last == id => Some(stream_index),
            _ => self.find_seat(host, id),
        }
    }

    fn find_seat(&mut self, host: HostId, id: StreamId) -> Option<StreamIndex> {
        let stream_index = match self.stream_indices.get(&id) {
            Some(stream_index) => *stream_index,
            None => self.default_stream(host, id)?,
        };
        self.last_seat = Some((id, stream_index));
        Some(stream_index)
    }

    /// Creates the legacy default stream of the first device, if `id` means it and it was never created.
    #[cold]
    fn default_stream(&mut self, host: HostId, id: StreamId) -> Option<StreamIndex> {
        if id != StreamId::LEGACY || self.was(id).is_some_and(|it| it.is_some()) {
            return None;
        }
        self.create(host, id, StreamRole::Legacy, DeviceId(0));
        self.stream_indices.get(&id).copied()
    }

    /// Counts an operation of a stream that is done, remembers it, and leaves the stream.
    #[inline]
    pub(super) fn done(&mut self, stream_index: StreamIndex, verb: &'static str, place: Place) {
        self.at_mut(stream_index).note(verb, place);
        self.streams.leave(stream_index);
    }

    /// Makes a stream wait for a snapshot. Returns `true` if that was new.
    pub(super) fn wait(&mut self, stream_index: StreamIndex, snapshot: &Snapshot) -> bool {
        let is_news = self.at_mut(stream_index).chain.wait(snapshot);
        if is_news {
            self.asked.tell(|effects| effects.waits.push(snapshot.point()));
        }
        is_news
    }

    /// Notes that a thread knows that a snapshot has completed.
    pub(super) fn learn(&mut self, host: HostId, learned: Learned) {
        let process = self.process_mut(host);
        if process.host.learn(&learned.what) {
            let point = learned.what.point();
            process.learned.push(learned);
            self.asked.tell(|effects| effects.learned.push(point));
        }
    }

    /// Notes that a thread waited for the streams of its process: of one device, or of all devices.
    pub(super) fn learn_all(&mut self, host: HostId, device: Option<DeviceId>, site: Site) {
        let at = self.process_at(host);
        let (homes, id) = (&self.homes, self.processes[at].id);
        let is_meant = |home: HomeNumber| homes[home].0 == id && device.is_none_or(|device| homes[home].1 == device);
        let mine = |stream: &&Stream| is_meant(stream.home);
        let mut all: Vec<Snapshot> = self.streams.iter().filter(mine).map(|stream| stream.chain.snapshot()).collect();
        all.sort_unstable_by_key(Snapshot::point);
        let process = &mut self.processes[at];
        for what in &all {
            let news = !process.host.base().covers(what.point());
            if news && all.len() <= LEARNED {
                process.learned.push(Learned { what: what.clone(), verb: "synchronized", recorded: None, site });
            }
            if news {
                self.asked.tell(|effects| effects.learned.push(what.point()));
            }
        }
        process.host.learn_all(&all);
        for home in (0..homes.len()).filter(|home| is_meant(*home)) {
            let (host, ended) = (&mut process.host, self.streams.ended(home));
            learn_base(host, ended, &mut self.asked);
        }
    }

    /// Gives the knowledge of one thread's process to another thread's process.
    pub(super) fn tell(&mut self, from: HostId, to: HostId) {
        let base = self.base(from);
        self.learn_base(to, &base);
    }

    /// Gives earlier knowledge of another process to a thread's process.
    pub(super) fn learn_base(&mut self, host: HostId, base: &Base) {
        let at = self.process_at(host);
        learn_base(&mut self.processes[at].host, base, &mut self.asked);
    }

    /// Returns `true` if everything to come, in any stream, comes after a point: there is one process, and it knows
    /// that the point has completed.
    pub(super) fn is_settled(&self, point: Point) -> bool {
        self.processes.len() == 1 && self.processes[0].host.base().covers(point)
    }

    /// Opens a chain for a party that is not a stream: see [`ChainIndices::open`](order::ChainIndices::open).
    pub(super) fn open_chain(&mut self) -> (ChainIndex, Seq) {
        self.streams.chain_indices.open(|_| false)
    }

    /// Closes a chain from [`open_chain`](Self::open_chain).
    pub(super) fn close_chain(&mut self, last: Point) {
        self.streams.chain_indices.close(last);
    }

    /// Returns `true` if a stream and the legacy default stream of a home wait for each other.
    pub(super) fn is_blocking(&self, id: StreamId, home: usize) -> bool {
        self.stream(id).is_some_and(|stream| stream.home == home && stream.role.standing() == Standing::Tied)
    }

    /// Returns the number of live streams, and of chain indices in use or to be used again.
    pub(super) fn entries(&self) -> usize {
        self.stream_indices.len() + self.streams.chain_indices.len()
    }
}

/// Gives earlier knowledge of another process to the threads of a process.
fn learn_base(host: &mut Host, base: &Base, asked: &mut Asked) {
    asked.tell(|effects| effects.learned.extend(base.points().filter(|point| !host.base().covers(*point))));
    host.learn_base(base);
}

/// The last few items. A new one overwrites the oldest.
#[derive(Debug)]
pub(super) struct Ring<T, const N: usize> {
    items: Vec<T>,
    next: usize,
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Ring { items: Vec::new(), next: 0 }
    }
}

impl<T, const N: usize> Ring<T, N> {
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.items.len() < N {
            self.items.push(item);
        } else {
            self.items[self.next] = item;
        }
        self.next = (self.next + 1) % N;
    }

    /// Returns the items from the oldest to the newest.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let split = if self.items.len() < N { 0 } else { self.next };
        self.items[split..].iter().chain(&self.items[..split])
    }
}
