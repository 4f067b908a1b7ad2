//! The order of a whole program: streams, events, hosts and the default streams, put together.
//!
//! Single-owner and pure: it serves checkers, replays, tests and benchmarks. The live library keeps the same parts
//! ([`Chain`], [`Snapshot`], [`Host`], [`Slots`]) behind each stream's own lock instead. Knows no memory.
//!
//! Rules that are easily missed, each with a test: a wait on an event never recorded has no effect; a wait binds to
//! the latest record at its call; a record replaces the one before it; an operation on the legacy default stream comes
//! after everything in all blocking streams, and later work in those after it, while non-blocking streams are exempt;
//! each host thread has a default stream of its own, which is a blocking one; a successful query tells the host as
//! much as a synchronisation; work in a destroyed stream still counts.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::{Chain, Host, Knows, Slots, Snapshot};
use crate::ids::{Point, StreamId};

/// An event of an [`Order`], chosen by the caller: a small number, since events are kept in an array.
pub type EventNumber = u32;
/// A host thread of an [`Order`], chosen by the caller: any small number.
pub type HostNumber = u32;

/// How a stream stands to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// Ordered with it both ways (CUDA: `cudaStreamDefault`).
    Blocking,
    /// Not ordered with it (CUDA: `cudaStreamNonBlocking`).
    NonBlocking,
}

/// Why an operation has no place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OrderError {
    /// The stream was never made, or was destroyed.
    #[error("{0} does not exist: it was never made or is destroyed")]
    UnknownStream(StreamId),
    /// Default streams are not the program's to destroy.
    #[error("{0} is a default stream: it cannot be destroyed")]
    DefaultStream(StreamId),
}

/// One stream that lives.
#[derive(Debug)]
struct Stream {
    chain: Chain,
    kind: StreamKind,
    /// The legacy operation that it already comes after.
    legacy_heard: u64,
    /// Whether it has work that the legacy stream has not waited for.
    is_dirty: bool,
}

/// The order of one program on one device.
#[derive(Debug)]
pub struct Order {
    legacy: Chain,
    /// Counts the operations of the legacy default stream.
    legacy_version: u64,
    /// By number; the first is the legacy stream's and stays empty.
    streams: Vec<Option<Stream>>,
    /// Numbers of destroyed streams, to be given out again.
    vacant: Vec<StreamId>,
    slots: Slots,
    events: Vec<Option<Snapshot>>,
    hosts: Vec<Host>,
    /// The default stream of each host thread, once used.
    per_thread: FxHashMap<HostNumber, StreamId>,
    /// Blocking streams with work since the legacy stream's last operation.
    dirty: Vec<StreamId>,
    /// The ends of such streams that are destroyed: the legacy stream's next operation comes after them, too.
    ended_dirty: Vec<Snapshot>,
    /// A party that was told of every destroyed stream's work.
    ended: Host,
}

impl Default for Order {
    fn default() -> Self {
        Self::new()
    }
}

impl Order {
    /// The legacy default stream (CUDA: `cudaStreamLegacy`); it always exists.
    pub const LEGACY: StreamId = StreamId(0);

    /// An empty program.
    pub fn new() -> Self {
        let mut slots = Slots::default();
        let (slot, seq) = slots.open(|_| false);
        Self {
            legacy: Chain::new(slot, seq, Arc::default()),
            legacy_version: 0,
            streams: vec![None],
            vacant: Vec::new(),
            slots,
            events: Vec::new(),
            hosts: Vec::new(),
            per_thread: FxHashMap::default(),
            dirty: Vec::new(),
            ended_dirty: Vec::new(),
            ended: Host::new(HostNumber::MAX),
        }
    }

    /// Makes a stream (CUDA: `cudaStreamCreateWithFlags`). The number of a destroyed stream is given out again, as
    /// handles are: who must tell the lives apart keeps a name for each life.
    pub fn create_stream(&mut self, host: HostNumber, kind: StreamKind) -> StreamId {
        let base = Arc::clone(self.host(host).base());
        let (slot, seq) = self.slots.open(|point| base.covers(point));
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.streams.push(None);
            StreamId(self.streams.len() as u32 - 1)
        });
        let chain = Chain::new(slot, seq, base);
        self.streams[id.index()] = Some(Stream { chain, kind, legacy_heard: 0, is_dirty: false });
        id
    }

    /// The default stream of a host thread (CUDA: `cudaStreamPerThread`), made at its first use.
    pub fn per_thread_stream(&mut self, host: HostNumber) -> StreamId {
        match self.per_thread.get(&host) {
            Some(stream) => *stream,
            None => {
                let stream = self.create_stream(host, StreamKind::Blocking);
                self.per_thread.insert(host, stream);
                stream
            }
        }
    }

    /// Ends a stream (CUDA: `cudaStreamDestroy`). Its work stays in the order.
    pub fn destroy_stream(&mut self, id: StreamId) -> Result<(), OrderError> {
        if id == Self::LEGACY || self.per_thread.values().any(|stream| *stream == id) {
            return Err(OrderError::DefaultStream(id));
        }
        let stream = self.streams.get_mut(id.index()).and_then(Option::take).ok_or(OrderError::UnknownStream(id))?;
        self.vacant.push(id);
        let ended = stream.chain.snapshot();
        if stream.is_dirty {
            self.dirty.retain(|dirty| *dirty != id);
            self.ended_dirty.push(ended.clone());
        }
        self.slots.close(ended.point());
        self.ended.learn(&ended);
        Ok(())
    }

    /// An operation (kernel, copy, allocation, free) of `host` on `stream`; its point.
    #[inline]
    pub fn submit(&mut self, host: HostNumber, stream: StreamId) -> Result<Point, OrderError> {
        Ok(self.enter(host, stream)?.submit())
    }

    /// The stream as a party of the order, for questions about its next operation.
    #[inline]
    pub fn knows(&self, stream: StreamId) -> Option<&impl Knows> {
        match stream {
            Self::LEGACY => Some(&self.legacy),
            _ => self.streams.get(stream.index())?.as_ref().map(|stream| &stream.chain),
        }
    }

    /// Whether `point` comes before the next operation of `stream`, given what the stream knows by now.
    #[inline]
    pub fn covers(&self, stream: StreamId, point: Point) -> bool {
        self.knows(stream).is_some_and(|stream| stream.covers(point))
    }

    /// Records an event on a stream; what it recorded before is forgotten (CUDA: `cudaEventRecord`).
    #[inline]
    pub fn record(&mut self, host: HostNumber, stream: StreamId, event: EventNumber) -> Result<(), OrderError> {
        let snapshot = self.enter(host, stream)?.snapshot();
        let event = event as usize;
        if self.events.len() <= event {
            self.events.resize(event + 1, None);
        }
        self.events[event] = Some(snapshot);
        Ok(())
    }

    /// Puts later work of `stream` after the event's latest record; no effect where there is none
    /// (CUDA: `cudaStreamWaitEvent`).
    #[inline]
    pub fn wait(&mut self, host: HostNumber, stream: StreamId, event: EventNumber) -> Result<(), OrderError> {
        // The event is taken out and put back, so that the stream can be looked up once.
        let recorded = self.events.get_mut(event as usize).and_then(Option::take);
        let entered = self.enter(host, stream).map(|chain| {
            if let Some(snapshot) = &recorded {
                chain.wait(snapshot);
            }
        });
        if let Some(event) = self.events.get_mut(event as usize) {
            *event = recorded;
        }
        entered
    }

    /// The host waited for the event, or asked and was told that it has completed (CUDA: `cudaEventSynchronize`,
    /// `cudaEventQuery` with success).
    pub fn synchronize_event(&mut self, host: HostNumber, event: EventNumber) {
        self.host(host);
        if let Some(Some(snapshot)) = self.events.get(event as usize) {
            self.hosts[host as usize].learn(snapshot);
        }
    }

    /// The host waited for the stream, or asked and was told that it is idle (CUDA: `cudaStreamSynchronize`,
    /// `cudaStreamQuery` with success).
    pub fn synchronize_stream(&mut self, host: HostNumber, stream: StreamId) -> Result<(), OrderError> {
        let snapshot = self.enter(host, stream)?.snapshot();
        self.host(host).learn(&snapshot);
        Ok(())
    }

    /// The host waited for everything (CUDA: `cudaDeviceSynchronize`).
    pub fn synchronize_device(&mut self, host: HostNumber) {
        let mut all: Vec<Snapshot> = self.streams.iter().flatten().map(|stream| stream.chain.snapshot()).collect();
        all.push(self.legacy.snapshot());
        let ended = Arc::clone(self.ended.base());
        let host = self.host(host);
        host.learn_all(&all);
        host.hear(&ended);
    }

    /// `to` learned what `from` knows by means that are not seen here: a lock, a channel, a join of threads.
    pub fn tell(&mut self, from: HostNumber, to: HostNumber) {
        let base = self.host(from).base().clone();
        self.host(to).hear(&base);
    }

    /// How many chain numbers are in use or waiting to be used again.
    pub fn chains(&self) -> usize {
        self.slots.len()
    }

    fn host(&mut self, host: HostNumber) -> &mut Host {
        while self.hosts.len() <= host as usize {
            self.hosts.push(Host::new(self.hosts.len() as u32));
        }
        &mut self.hosts[host as usize]
    }

    /// What every operation does first: the stream hears what the host knows, and the default-stream rules apply.
    #[inline]
    fn enter(&mut self, host: HostNumber, id: StreamId) -> Result<&mut Chain, OrderError> {
        if self.hosts.len() <= host as usize {
            self.host(host);
        }
        let base = self.hosts[host as usize].base();
        if id == Self::LEGACY {
            self.legacy.hear(base);
            return Ok(self.enter_legacy());
        }
        let stream = self.streams.get_mut(id.index()).and_then(Option::as_mut).ok_or(OrderError::UnknownStream(id))?;
        stream.chain.hear(base);
        if stream.kind == StreamKind::Blocking {
            if stream.legacy_heard != self.legacy_version {
                stream.legacy_heard = self.legacy_version;
                stream.chain.wait(&self.legacy.snapshot());
            }
            if !stream.is_dirty {
                stream.is_dirty = true;
                self.dirty.push(id);
            }
        }
        Ok(&mut stream.chain)
    }

    /// An operation on the legacy default stream waits for every blocking stream with new work.
    #[cold]
    fn enter_legacy(&mut self) -> &mut Chain {
        self.legacy_version += 1;
        for id in std::mem::take(&mut self.dirty) {
            if let Some(stream) = &mut self.streams[id.index()] {
                stream.is_dirty = false;
                self.legacy.wait(&stream.chain.snapshot());
            }
        }
        for ended in self.ended_dirty.drain(..) {
            self.legacy.wait(&ended);
        }
        &mut self.legacy
    }
}
