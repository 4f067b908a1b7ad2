//! A small program on top of [`Streams`]: tests name host threads and events by number.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::ids::Point;
use millpond_core::op::StreamRole;
use millpond_core::order::{Base, Chain, HomeNumber, Host, Knows, Snapshot, StreamIndex, Streams};

/// The legacy default stream.
pub(crate) const LEGACY: StreamIndex = 0;

pub(crate) struct Program {
    streams: Streams<()>,
    home: HomeNumber,
    hosts: BTreeMap<u32, Host>,
    events: BTreeMap<u32, Snapshot>,
    per_thread: BTreeMap<u32, StreamIndex>,
}

impl Program {
    pub(crate) fn new() -> Self {
        let mut streams = Streams::default();
        let home = streams.open_home(u64::MAX);
        assert_eq!(streams.create(home, StreamRole::Legacy, Arc::default(), ()), LEGACY);
        let (hosts, events, per_thread) = Default::default();
        Program { streams, home, hosts, events, per_thread }
    }

    fn host(&mut self, host: u32) -> &mut Host {
        self.hosts.entry(host).or_insert_with(|| Host::new(host.into()))
    }

    fn base(&mut self, host: u32) -> Arc<Base> {
        Arc::clone(self.host(host).base())
    }

    pub(crate) fn create(&mut self, host: u32, role: StreamRole) -> StreamIndex {
        let base = self.base(host);
        self.streams.create(self.home, role, base, ())
    }

    pub(crate) fn per_thread(&mut self, host: u32) -> StreamIndex {
        match self.per_thread.get(&host) {
            Some(stream) => *stream,
            None => {
                let stream = self.create(host, StreamRole::PerThread);
                self.per_thread.insert(host, stream);
                stream
            }
        }
    }

    /// Destroys a stream. Returns `true` if it existed and the program may destroy it.
    pub(crate) fn destroy(&mut self, stream: StreamIndex) -> bool {
        let is_default = stream == LEGACY || self.per_thread.values().any(|it| *it == stream);
        !is_default && self.streams.destroy(stream).is_some()
    }

    /// Makes an operation of an existing stream.
    fn enter<R>(&mut self, host: u32, stream: StreamIndex, operation: impl FnOnce(&mut Chain) -> R) -> R {
        let base = self.base(host);
        self.streams.enter(stream, &base, |_| ());
        let result = operation(&mut self.streams.get_mut(stream).expect("the stream lives").chain);
        self.streams.leave(stream);
        result
    }

    pub(crate) fn submit(&mut self, host: u32, stream: StreamIndex) -> Point {
        self.enter(host, stream, Chain::submit)
    }

    pub(crate) fn record(&mut self, host: u32, stream: StreamIndex, event: u32) {
        let snapshot = self.enter(host, stream, |chain| chain.snapshot());
        self.events.insert(event, snapshot);
    }

    pub(crate) fn wait(&mut self, host: u32, stream: StreamIndex, event: u32) {
        let recorded = self.events.get(&event).cloned();
        self.enter(host, stream, |chain| {
            if let Some(snapshot) = &recorded {
                chain.wait(snapshot);
            }
        });
    }

    pub(crate) fn synchronize_event(&mut self, host: u32, event: u32) {
        if let Some(snapshot) = self.events.get(&event).cloned() {
            self.host(host).learn(&snapshot);
        }
    }

    pub(crate) fn synchronize_stream(&mut self, host: u32, stream: StreamIndex) {
        let ends = self.streams.ends(stream);
        self.host(host).learn_all(&ends);
    }

    pub(crate) fn synchronize_device(&mut self, host: u32) {
        let all: Vec<Snapshot> = self.streams.iter().map(|stream| stream.chain.snapshot()).collect();
        let ended = Arc::clone(self.streams.ended(self.home));
        let host = self.host(host);
        host.learn_all(&all);
        host.learn_base(&ended);
    }

    /// Makes one host learn what another one knows.
    pub(crate) fn tell(&mut self, from: u32, to: u32) {
        let base = self.base(from);
        self.host(to).learn_base(&base);
    }

    /// Returns `true` if a point comes before the next operation of a stream, by what the stream knows now.
    pub(crate) fn covers(&self, stream: StreamIndex, point: Point) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.chain.covers(point))
    }

    /// Returns the number of chain numbers that are in use or waiting to be used again.
    pub(crate) fn chains(&self) -> usize {
        self.streams.chain_indices.len()
    }
}
