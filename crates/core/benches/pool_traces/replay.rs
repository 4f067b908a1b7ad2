//! Plays a trace through caches and pool as the layer above does, and counts.

use crate::trace::{Event, Trace};
use millpond_core::ids::{BlockId, ChainIndex, Point};
use millpond_core::order::{Completed, Knows};
use millpond_core::pool::{DeviceRoom, Freed, Grant, Pool, PoolConfig, Slack, Step, StreamCache};
use millpond_core::units::{GIB, MIB, Range};
use std::time::Instant;

/// The price of asking for the device's memory.
const INFO_NS: u64 = 5_000;

/// The needs of one pass.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) peak_requested: u64,
    pub(crate) peak_reserved: u64,
    /// The price of the driver calls, as measured on an H200.
    pub(crate) priced_ns: u64,
    pub(crate) unmaps: u64,
    pub(crate) wall_ns: u64,
}

/// A stream that knows its own past only.
struct Stream {
    chain: ChainIndex,
    seq: u64,
    cache: StreamCache<Put>,
}

/// A block in a cache.
struct Put {
    block: BlockId,
    freed: Point,
}

impl Knows for Stream {
    fn chain(&self) -> ChainIndex {
        self.chain
    }

    fn covers(&self, point: Point) -> bool {
        point.chain == self.chain
    }
}

struct AllOver;

impl Completed for AllOver {
    fn is_over(&self, _: Point) -> bool {
        true
    }
}

struct Replay {
    pool: Pool,
    /// The bytes of the device, which this pool uses alone.
    device: u64,
    streams: Vec<Stream>,
    /// Block, rounded and requested bytes of each live allocation.
    live: Vec<Option<(BlockId, u64, u64)>>,
    requested: u64,
    outcome: Outcome,
}

/// Plays a trace `passes` times on a device with so many bytes. Returns `None` if it runs out of memory.
pub(crate) fn replay(trace: &Trace, slack: Slack, device: u64, passes: usize) -> Option<Vec<Outcome>> {
    let config = PoolConfig { slack, release_threshold: u64::MAX, ..PoolConfig::default() };
    let stream = |chain| Stream { chain: ChainIndex(chain), seq: 0, cache: StreamCache::new() };
    let mut replay = Replay {
        pool: Pool::new(config, Range::new(1 << 40, 4096 * GIB)),
        device,
        streams: (0..trace.streams).map(stream).collect(),
        live: (0..trace.allocations).map(|_| None).collect(),
        requested: 0,
        outcome: Outcome::default(),
    };
    (0..passes).map(|_| replay.pass(trace)).collect()
}

impl Replay {
    fn pass(&mut self, trace: &Trace) -> Option<Outcome> {
        self.pool.reset_reserved_high();
        let start = Instant::now();
        for &event in &trace.events {
            match event {
                Event::Alloc { id, bytes, stream } => {
                    let rounded = self.pool.rounded(bytes).expect("a request fits the range");
                    let block = self.alloc(rounded, stream as usize)?;
                    self.requested += bytes;
                    self.outcome.peak_requested = self.outcome.peak_requested.max(self.requested);
                    self.live[id] = Some((block, rounded, bytes));
                }
                Event::Free { id, stream } => self.free(id, stream as usize),
            }
        }
        self.outcome.wall_ns = start.elapsed().as_nanos() as u64;
        for id in 0..self.live.len() {
            if self.live[id].is_some() {
                self.free(id, 0);
            }
        }
        self.synchronize();
        self.pool.audit().expect("the pool is whole after a pass");
        self.outcome.peak_reserved = self.pool.reserved_high();
        Some(std::mem::take(&mut self.outcome))
    }

    fn alloc(&mut self, rounded: u64, stream: usize) -> Option<BlockId> {
        let who = &mut self.streams[stream];
        who.seq += 1;
        if let Some(put) = who.cache.take(rounded) {
            return Some(put.block);
        }
        for put in who.cache.drain() {
            self.pool.free(put.block, Freed::after(put.freed));
        }
        match self.pool.fit(rounded, who) {
            Ok(grant) => Some(grant.block),
            Err(_) => Some(self.shortage(rounded, stream)?.block),
        }
    }

    /// Makes the host wait for all submitted work, as a training loop does at its end.
    fn synchronize(&mut self) {
        self.drain();
        self.pool.synchronized(&AllOver);
        self.take_steps();
        while self.pool.is_fragmented() && self.pool.defragment() {
            self.take_steps();
        }
    }

    fn drain(&mut self) {
        for stream in &mut self.streams {
            self.pool.count_served(stream.cache.count_served());
            for put in stream.cache.drain() {
                self.pool.free(put.block, Freed::after(put.freed));
            }
        }
    }

    /// Takes the steps. Returns `false` if the device has no memory for one of them.
    fn take_steps(&mut self) -> bool {
        while let Some(step) = self.pool.next_step() {
            if let Step::Create { bytes, .. } = step
                && self.pool.reserved() + bytes > self.device
            {
                self.pool.failed();
                return false;
            }
            self.price(step);
            self.pool.applied();
        }
        true
    }

    #[cold]
    fn shortage(&mut self, rounded: u64, stream: usize) -> Option<Grant> {
        self.drain();
        self.pool.retire(&AllOver);
        for refusals in 0.. {
            let who = &self.streams[stream];
            if let Ok(grant) = self.pool.fit(rounded, who) {
                return Some(grant);
            }
            if self.pool.asks_room() {
                self.outcome.priced_ns += INFO_NS;
                let free = self.device - self.pool.reserved();
                self.pool.see_room(Some(DeviceRoom { free, total: self.device }));
            }
            let grant = self.pool.grow(rounded, who, &AllOver, refusals).ok()?;
            if self.take_steps() {
                return Some(grant);
            }
        }
        None
    }

    fn free(&mut self, id: usize, stream: usize) {
        let (block, rounded, bytes) = self.live[id].take().expect("a trace frees what is live");
        self.requested -= bytes;
        let who = &mut self.streams[stream];
        who.seq += 1;
        let freed = Point { chain: who.chain, seq: who.seq };
        if let Err(put) = who.cache.put(rounded, Put { block, freed }) {
            self.pool.free(put.block, Freed::after(put.freed));
        }
    }

    fn price(&mut self, step: Step) {
        self.outcome.priced_ns += match step {
            Step::Create { .. } => 8_000,
            Step::Map { .. } => 23_000,
            Step::Unmap { .. } => 19_000,
            Step::Destroy { bytes, .. } => 9_000 + 280 * (bytes / MIB),
        };
        self.outcome.unmaps += u64::from(matches!(step, Step::Unmap { .. }));
    }
}
