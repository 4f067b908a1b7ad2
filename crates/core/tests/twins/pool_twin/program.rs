//! One random program, and the comparison after each of its operations.

use super::device::Device;
use super::order::Order;
use fastrand::Rng;
use millpond_core::ids::{BlockId, Point};
use millpond_core::pool::{DeviceRoom, Freed, Frontier, Grant, Located, Pool, PoolConfig, Slack, Step};
use millpond_core::units::Range;

/// The kind of a program.
pub(crate) struct Style {
    pub(crate) config: PoolConfig,
    pub(crate) streams: u32,
    pub(crate) range_granules: u64,
    pub(crate) fail_percent: u64,
    /// The granules of the device, of which others use some; 0 for no end of them, and a driver that does not say.
    pub(crate) device_granules: u64,
}

impl Style {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self { config, streams: 4, range_granules: 1 << 16, fail_percent: 0, device_granules: 0 }
    }
}

struct Live {
    block: BlockId,
    range: Range,
    made: Point,
}

pub(crate) struct Program {
    style: Style,
    random: Rng,
    pool: Pool,
    order: Order,
    device: Device,
    live: Vec<Live>,
    /// Freed by the program at a point of a stream, but not returned to the pool yet.
    cached: Vec<(Live, Point)>,
    /// The bytes of the device that others use.
    others: u64,
    /// Pressure slack, as the twin finds it: `true` while there is room, and the most that may be reserved for no
    /// reason since the last report.
    is_loose: bool,
    roomy: u64,
    /// The bytes that were free at the last report.
    free: u64,
}

impl Program {
    pub(crate) fn new(style: Style, seed: u64) -> Self {
        let granule = style.config.granularity;
        let range = Range::new(1 << 30, style.range_granules * granule);
        Self {
            pool: Pool::new(style.config.clone(), range),
            order: Order::new(style.streams),
            device: Device { granule, ..Device::default() },
            live: Vec::new(),
            cached: Vec::new(),
            others: 0,
            is_loose: false,
            roomy: 0,
            free: 0,
            random: Rng::with_seed(seed),
            style,
        }
    }

    pub(crate) fn run(mut self, operations: u32) {
        for _ in 0..operations {
            let stream = self.random.u64(..u64::from(self.style.streams)) as usize;
            if self.random.u64(..100) < 5 {
                self.uncache();
            }
            if self.style.device_granules > 0 && self.random.u64(..100) < 5 {
                let most = self.style.device_granules * self.device.granule - self.pool.reserved();
                self.others = self.random.u64(..most + 1);
            }
            match self.random.u64(..100) {
                0..42 => self.alloc(stream),
                42..75 => self.free(stream),
                75..83 => {
                    let other = self.random.u64(..u64::from(self.style.streams)) as usize;
                    self.order.wait(stream, self.order.last(other));
                }
                83..89 => {
                    let seq = self.random.u64(..self.order.last(stream).seq + 1);
                    self.order.complete(Point { seq, ..self.order.last(stream) });
                }
                89..92 if self.style.config.reuse.allow_opportunistic => self.pool.retire(&self.order.over),
                92..94 => {
                    self.pool.synchronized(&self.order.over);
                    self.drain_steps();
                }
                94..95 => {
                    self.pool.count_served(16_000);
                    self.pool.defragment();
                    self.drain_steps();
                }
                95..96 => self.trim(),
                96..97 => (0..self.live.len()).for_each(|_| self.free(stream)),
                _ => self.locate(),
            }
            self.check();
        }
        self.end();
    }

    fn alloc(&mut self, stream: usize) {
        let bits = 3 + self.random.u64(..18);
        let bytes = 1 + self.random.u64(..1 << bits);
        let Some(grant) = self.request(stream, bytes) else { return };
        assert!(grant.range.bytes >= bytes && grant.range.bytes < bytes + self.style.config.grain);
        for held in self.held() {
            assert!(!held.overlaps(grant.range), "{} is in use: {held}", grant.range);
        }
        assert!(self.device.is_mapped(grant.range), "{} is not mapped", grant.range);
        if self.random.u64(..100) < 5 {
            self.pool.cancel(grant.block);
            return;
        }
        self.device.use_by(grant.range, stream, &grant.after, &self.order);
        for point in grant.after.points() {
            self.order.wait(stream, point);
        }
        let made = self.order.step(stream);
        self.live.push(Live { block: grant.block, range: grant.range, made });
    }

    /// Requests memory as a caller does: fit, ask the device, fit again, grow; again if the system refuses.
    fn request(&mut self, stream: usize, bytes: u64) -> Option<Grant> {
        if let Ok(grant) = self.pool.fit(bytes, &self.order.streams[stream]) {
            return Some(grant);
        }
        for refusals in 0.. {
            let before = self.pool.reserved();
            if self.pool.asks_room() {
                self.see_room();
            }
            let who = &self.order.streams[stream];
            let Ok(grant) = self.pool.grow(bytes, who, &self.order.over, refusals) else {
                assert!(refusals > 0 || self.may_be_refused(bytes), "refused without need");
                self.check_refused(bytes);
                return None;
            };
            self.pool.audit().unwrap();
            assert!(grant.ready || self.pool.next_step().is_some(), "a grant that is not ready has steps");
            match self.drain_steps() {
                None => {
                    self.check_bound(before, grant.range);
                    return Some(grant);
                }
                Some(cancelled) => assert_eq!(cancelled, grant.block),
            }
        }
        None
    }

    /// Tells the pool how full the device is, and applies the rule of `Slack::Pressure` to the same numbers.
    fn see_room(&mut self) {
        let (reserved, max_bytes) = (self.pool.reserved(), self.style.config.max_bytes);
        let Some(free) = self.free_bytes() else {
            (self.is_loose, self.roomy, self.free) = (false, 0, 0);
            return self.pool.see_room(None);
        };
        let total = self.style.device_granules * self.device.granule;
        self.pool.see_room(Some(DeviceRoom { free, total }));
        let mut rooms = vec![(free, total)];
        if max_bytes > 0 {
            let limit = max_bytes.next_multiple_of(self.device.granule);
            rooms.push((limit - reserved, limit));
        }
        let percent = if self.is_loose { 50 } else { 60 };
        self.is_loose = rooms.iter().all(|(free, total)| *free >= total * percent / 100);
        let spare = rooms.iter().map(|(free, total)| free.saturating_sub(total / 2)).min().unwrap();
        self.roomy = if self.is_loose { reserved + spare } else { 0 };
        self.free = rooms.iter().map(|(free, _)| *free).min().unwrap();
    }

    /// The bytes of the device that nobody uses, if it ends anywhere.
    fn free_bytes(&self) -> Option<u64> {
        let total = self.style.device_granules * self.device.granule;
        (total > 0).then(|| total - self.others - self.pool.reserved())
    }

    /// Before a request is refused, everything that can be moved was moved: what is idle and what the device has left
    /// are together not enough for it.
    fn check_refused(&self, bytes: u64) {
        let Some(mut free) = self.free_bytes().filter(|_| self.style.fail_percent == 0) else { return };
        let config = &self.style.config;
        if config.max_bytes > 0 {
            free = free.min(config.max_bytes.next_multiple_of(self.device.granule) - self.pool.reserved());
        }
        let (over, need) = (self.pool.idle_over(), bytes.next_multiple_of(self.device.granule) + self.device.granule);
        assert!(over + free < need, "{bytes} are refused with {over} to move and {free} to be had");
    }

    fn may_be_refused(&self, bytes: u64) -> bool {
        let config = &self.style.config;
        let range = self.style.range_granules * config.granularity;
        config.max_bytes != 0 || self.style.device_granules != 0 || bytes > range / 64 || self.pool.held() > range / 2
    }

    /// Takes the steps until one fails. Returns the block that this cancels.
    fn drain_steps(&mut self) -> Option<BlockId> {
        while let Some(step) = self.pool.next_step() {
            let lacks = |free| matches!(step, Step::Create { bytes, .. } if bytes > free);
            if self.random.u64(..100) < self.style.fail_percent || self.free_bytes().is_some_and(lacks) {
                let cancelled = self.pool.failed();
                self.pool.audit().unwrap();
                return cancelled;
            }
            let held = self.held();
            self.device.apply(step, &self.order, &held);
            self.pool.applied();
            self.pool.audit().unwrap();
        }
        None
    }

    fn free(&mut self, stream: usize) {
        if self.live.is_empty() {
            return;
        }
        let live = self.live.swap_remove(self.random.usize(..self.live.len()));
        self.order.wait(stream, live.made);
        let point = self.order.step(stream);
        let mut after = Frontier::from(point);
        if self.random.u64(..100) < 20 {
            let other = self.random.u64(..u64::from(self.style.streams)) as usize;
            self.order.wait(other, live.made);
            after = Frontier::of([point, self.order.step(other)]);
        }
        self.device.free(live.range, &after);
        match (after.points().eq([point]), self.random.u64(..10)) {
            (true, 0..4) => self.pool.free(live.block, Freed::at(&self.order.streams[stream], point.seq)),
            (true, 4..8) => self.cached.push((live, point)),
            _ => self.pool.free(live.block, Freed::after(after)),
        }
    }

    /// Returns to the pool what a stream freed before. The stream may know more by now than at the free.
    fn uncache(&mut self) {
        for (live, point) in std::mem::take(&mut self.cached) {
            self.pool.free(live.block, Freed::at(&self.order.streams[point.chain.index()], point.seq));
        }
    }

    /// Returns the ranges of all held blocks: the program's, and those not returned yet.
    fn held(&self) -> Vec<Range> {
        self.live.iter().chain(self.cached.iter().map(|(live, _)| live)).map(|live| live.range).collect()
    }

    fn trim(&mut self) {
        let keep = self.random.u64(..self.pool.reserved() + 1);
        let before = self.pool.reserved();
        self.pool.trim(keep, &self.order.over);
        self.drain_steps();
        assert!(self.pool.reserved() >= keep.min(before), "trimming keeps what it was told to");
    }

    fn locate(&mut self) {
        self.uncache();
        let address = (1 << 30) + self.random.u64(..2 * self.device.reserved() + 4096);
        let inside = self.live.iter().find(|live| live.range.contains(address));
        let below = self.live.iter().filter(|live| live.range.end() <= address).map(|live| live.range).max();
        let above = self.live.iter().filter(|live| live.range.start > address).map(|live| live.range).min();
        match (self.pool.locate(address), inside) {
            (Located::Held { block, offset }, Some(live)) => {
                assert_eq!((block.block, block.range), (live.block, live.range));
                assert_eq!(offset, address - live.range.start);
            }
            (Located::Free { below: found, above: next }, None) => {
                assert_eq!((found.map(|at| at.range), next.map(|at| at.range)), (below, above));
            }
            (Located::Outside, None) => assert!(address >= (1 << 30) + self.style.range_granules * self.device.granule),
            (found, _) => panic!("{address:#x}: {found:?}"),
        }
    }

    fn check(&self) {
        self.pool.audit().unwrap();
        assert_eq!(self.pool.reserved(), self.device.reserved());
        assert_eq!(self.pool.held(), self.held().iter().map(|held| held.bytes).sum::<u64>());
        if self.style.config.max_bytes != 0 {
            let limit = self.style.config.max_bytes.next_multiple_of(self.device.granule);
            assert!(self.pool.reserved() <= limit, "{} passes the limit {limit}", self.pool.reserved());
        }
    }

    /// BOUND, with idle chunks as the twin finds them. Without opportunistic reuse, memory that another stream may
    /// still use counts as completed only after a synchronisation.
    fn check_bound(&self, before: u64, granted: Range) {
        let (held, granule) = (self.pool.held() as f64, self.device.granule as f64);
        let slack = match self.style.config.slack {
            Slack::Fixed(slack) => slack * held,
            Slack::Adaptive => 0.005 * held + (0.03 * held).min(48.0 * granule),
            Slack::Pressure => 0.005 * held + (0.03 * held).min((48.0 * granule).max(self.free as f64 / 16.0)),
        };
        let bound = (held + slack + granule).max(self.roomy as f64);
        assert!((self.pool.bound() as f64 - bound).abs() <= 2.0, "{} is not {bound}", self.pool.bound());
        let reserved = self.pool.reserved();
        if reserved <= before || reserved <= self.pool.bound() || !self.style.config.reuse.allow_opportunistic {
            return;
        }
        assert_eq!(self.pool.idle_over(), 0, "grown from {before} to {reserved} past {}", self.pool.bound());
        // To the pool, a free that was merged with a later one has completed when both have. If all have, the pool must
        // know.
        let all_over = self.device.freed.iter().all(|freed| freed.after.is_over(&self.order.over));
        if all_over && self.style.fail_percent == 0 {
            let held: Vec<Range> = self.held().into_iter().chain([granted]).collect();
            let idle = self.device.idle_chunk(&held);
            assert_eq!(idle, None, "grown from {before} to {reserved} past {} with an idle chunk", self.pool.bound());
        }
    }

    /// Everything is freed and completed: one block is left, and no memory.
    fn end(mut self) {
        self.style.fail_percent = 0;
        while !self.live.is_empty() {
            self.free(0);
        }
        self.uncache();
        self.order.complete_all();
        self.pool.trim(0, &self.order.over);
        self.drain_steps();
        self.check();
        assert_eq!((self.pool.reserved(), self.pool.held(), self.pool.block_count()), (0, 0, 1));
        assert!(self.device.chunks.is_empty() && self.device.mappings.is_empty());
    }
}
