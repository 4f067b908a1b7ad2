//! Private pools: memory that graphs of a foreign program were captured with, and that must stay where it is.
//!
//! The program captures its own graphs: kernels are recorded with addresses, and find them at every replay, long after
//! the memory was freed. So nothing of such a pool may be moved, unmapped or given to anybody else until the program
//! releases the pool. To the library the pool's memory is a few live *segments*; within them blocks are split, joined
//! and served here: the smallest free block that fits, of those freed on the same stream. A capture is an order of its
//! own, in which no stream of ours has work, so no other stream's block is ever free for it.
//!
//! While the program captures, no stream may be asked what is over: that would end the capture. So the segments of each
//! pool come from a pool of the library of their own, which is fresh and has nothing to ask; and what is released
//! meanwhile waits for the end.
//!
//! Knows streams by their handles only. Not the hot path: captures are rare.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::{Buffer, Device, MIB, Pool, PoolConfig, Stream};

use super::devices::TorchDevice;
use crate::device::lock;
use crate::pool::millpond_pool_statistics;
use crate::status::Result;

/// What the program calls a pool: PyTorch's `MempoolId_t`, a pair.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct millpond_pool_key {
    /// Its first number.
    pub first: u64,
    /// Its second number.
    pub second: u64,
}

/// Blocks are multiples of this.
const GRAIN: u64 = 512;
/// Segments are multiples of this.
const SEGMENT: u64 = 2 * MIB;

/// A block of a segment.
#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    /// The handle of the stream that it is for.
    stream: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Held,
    /// Held, and other streams were recorded as users.
    Shared,
    /// Freed with other users: nobody's until the recording ends.
    Parked,
}

/// One pool.
struct Kept {
    /// Where its segments are from.
    source: Pool,
    /// Begins that were not released.
    uses: usize,
    /// All blocks by address; neighbours of one segment touch.
    blocks: BTreeMap<u64, Block>,
    /// Free blocks: stream, size, address.
    free: BTreeSet<(u64, u64, u64)>,
    /// Segments by their start.
    segments: BTreeMap<u64, Buffer<u8>>,
}

impl Kept {
    fn new(device: &Device) -> Result<Self> {
        let source = device.pool(PoolConfig { release_threshold: u64::MAX, ..Default::default() })?;
        let (blocks, free, segments) = Default::default();
        Ok(Self { source, uses: 0, blocks, free, segments })
    }

    /// The smallest free block that fits, split where much is left.
    fn take(&mut self, stream: u64, bytes: u64) -> Option<u64> {
        let found = *self.free.range((stream, bytes, 0)..(stream + 1, 0, 0)).next()?;
        self.free.remove(&found);
        let (_, size, address) = found;
        if size > bytes {
            self.put(address + bytes, Block { bytes: size - bytes, stream, state: State::Free });
        }
        self.put(address, Block { bytes, stream, state: State::Held });
        Some(address)
    }

    fn put(&mut self, address: u64, block: Block) {
        if block.state == State::Free {
            self.free.insert((block.stream, block.bytes, address));
        }
        self.blocks.insert(address, block);
    }

    /// A block is free, and joins its free neighbours of the same segment and stream.
    fn release(&mut self, mut address: u64) {
        let Some(mut block) = self.blocks.remove(&address) else { return };
        let free = |it: &Block| it.state == State::Free && it.stream == block.stream;
        let end = address + block.bytes;
        let above = self.blocks.get(&end).copied().filter(|it| free(it) && !self.segments.contains_key(&end));
        let below = self.blocks.range(..address).next_back().map(|(at, it)| (*at, *it));
        let touches = |at: u64, it: &Block| at + it.bytes == address && !self.segments.contains_key(&address);
        let below = below.filter(|(at, it)| free(it) && touches(*at, it));
        if let Some(it) = above {
            self.forget(end, it);
            block.bytes += it.bytes;
        }
        if let Some((at, it)) = below {
            self.forget(at, it);
            address = at;
            block.bytes += it.bytes;
        }
        self.put(address, Block { state: State::Free, ..block });
    }

    fn forget(&mut self, address: u64, block: Block) {
        self.free.remove(&(block.stream, block.bytes, address));
        self.blocks.remove(&address);
    }

    fn is_idle(&self) -> bool {
        self.uses == 0 && self.blocks.values().all(|block| matches!(block.state, State::Free | State::Parked))
    }
}

/// What a lock guards.
#[derive(Default)]
struct Pools {
    pools: BTreeMap<millpond_pool_key, Kept>,
    /// Pools that are being recorded into; the last one counts.
    recording: Vec<millpond_pool_key>,
    /// Pools that nobody has any more, until no recording goes on.
    gone: Vec<Kept>,
    used_high: u64,
    reserved_high: u64,
}

impl Pools {
    /// The pool of a key, made where it is new.
    fn pool(&mut self, key: millpond_pool_key, device: &Device) -> Result<&mut Kept> {
        Ok(match self.pools.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Kept::new(device)?),
        })
    }

    /// Bytes used and reserved now; the high marks follow.
    fn figures(&mut self) -> (u64, u64) {
        let all = || self.pools.values().chain(&self.gone);
        let used = all().flat_map(|kept| kept.segments.values()).map(Buffer::bytes).sum();
        let reserved = all().map(|kept| kept.source.statistics().reserved_bytes).sum();
        self.used_high = self.used_high.max(used);
        self.reserved_high = self.reserved_high.max(reserved);
        (used, reserved)
    }

    /// The pool and the block of an address.
    fn find(&self, address: u64) -> Option<(millpond_pool_key, Block)> {
        self.pools.iter().find_map(|(key, kept)| Some((*key, *kept.blocks.get(&address)?)))
    }
}

/// The private pools of a device.
pub(super) struct Private {
    device: Device,
    stream: Stream,
    pools: Mutex<Pools>,
    recording: AtomicUsize,
}

impl Private {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let (pools, recording) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { device: device.clone(), stream: device.non_blocking_stream()?, pools, recording })
    }

    /// Whether memory is to come from here.
    #[inline]
    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Acquire) > 0
    }

    /// Allocations go to this pool from now on.
    pub(super) fn begin(&self, key: millpond_pool_key) -> Result<()> {
        let mut pools = lock(&self.pools);
        if pools.recording.is_empty() {
            self.device.reclaim();
        }
        pools.pool(key, &self.device)?.uses += 1;
        pools.recording.push(key);
        self.recording.store(pools.recording.len(), Ordering::Release);
        Ok(())
    }

    /// They do not any more.
    pub(super) fn end(&self, key: millpond_pool_key) {
        let mut pools = lock(&self.pools);
        if let Some(at) = pools.recording.iter().rposition(|it| *it == key) {
            pools.recording.remove(at);
        }
        self.recording.store(pools.recording.len(), Ordering::Release);
        if let Some(kept) = pools.pools.get_mut(&key) {
            let parked = |(at, block): (&u64, &Block)| (block.state == State::Parked).then_some(*at);
            let parked: Vec<u64> = kept.blocks.iter().filter_map(parked).collect();
            parked.into_iter().for_each(|address| kept.release(address));
        }
        self.give_back_gone(&mut pools);
    }

    /// Allocates from the pool that is recorded into.
    #[cold]
    pub(super) fn allocate(&self, device: &'static TorchDevice, bytes: u64, stream: u64) -> Result<u64> {
        let Some(bytes) = bytes.checked_next_multiple_of(GRAIN) else {
            return Ok(self.stream.alloc::<u8>(&device.pool, usize::MAX)?.address());
        };
        if bytes == 0 {
            return Ok(0);
        }
        // Known from now on: when the pool is released its work is waited for.
        device.stream(stream)?;
        let mut pools = lock(&self.pools);
        let Some(key) = pools.recording.last().copied() else {
            // The recording ended this moment.
            drop(pools);
            return super::allocate_shared(device, bytes as usize, stream);
        };
        let kept = pools.pool(key, &self.device)?;
        if let Some(address) = kept.take(stream, bytes) {
            return Ok(address);
        }
        let size = bytes.next_multiple_of(SEGMENT);
        let segment = self.stream.alloc::<u8>(&kept.source, size as usize)?;
        let start = segment.address();
        kept.segments.insert(start, segment);
        kept.put(start, Block { bytes: size, stream, state: State::Free });
        let address = kept.take(stream, bytes).expect("a segment was added that fits");
        pools.figures();
        Ok(address)
    }

    /// Frees a block; whether it is one of these pools'.
    pub(super) fn free(&self, address: u64) -> bool {
        let mut pools = lock(&self.pools);
        let Some((key, block)) = pools.find(address) else { return false };
        let Pools { pools: all, recording, .. } = &mut *pools;
        let kept = all.get_mut(&key).expect("its block was found");
        match block.state {
            State::Free | State::Parked => return false,
            State::Shared if recording.contains(&key) => {
                kept.blocks.insert(address, Block { state: State::Parked, ..block });
            }
            State::Held | State::Shared => kept.release(address),
        }
        self.drop_idle(&mut pools, key);
        true
    }

    /// Notes that other streams use a block; whether it is one of these pools'.
    pub(super) fn share(&self, address: u64) -> bool {
        let mut pools = lock(&self.pools);
        let Some((key, block)) = pools.find(address) else { return false };
        if block.state == State::Held {
            let kept = pools.pools.get_mut(&key).expect("its block was found");
            kept.blocks.insert(address, Block { state: State::Shared, ..block });
        }
        true
    }

    /// One begin less.
    pub(super) fn release(&self, key: millpond_pool_key) {
        let mut pools = lock(&self.pools);
        if let Some(kept) = pools.pools.get_mut(&key) {
            kept.uses = kept.uses.saturating_sub(1);
        }
        self.drop_idle(&mut pools, key);
    }

    /// A pool that nobody has goes.
    fn drop_idle(&self, pools: &mut Pools, key: millpond_pool_key) {
        if pools.pools.get(&key).is_some_and(Kept::is_idle) && !pools.recording.contains(&key) {
            pools.gone.extend(pools.pools.remove(&key));
            self.give_back_gone(pools);
        }
    }

    /// The memory of pools that nobody has goes back, after all work that the streams have now: replays in flight may
    /// still be at it.
    fn give_back_gone(&self, pools: &mut Pools) {
        if !pools.recording.is_empty() {
            return;
        }
        let device = super::devices::open().find(|device| std::ptr::eq(&device.private, self));
        let streams = device.map(TorchDevice::streams).unwrap_or_default();
        for kept in pools.gone.drain(..) {
            for segment in kept.segments.into_values() {
                if let Some(memory) = segment.raw() {
                    // A stream that refuses is of a device that is lost: nothing runs there any more.
                    streams.iter().for_each(|stream| drop(stream.record_use(&memory)));
                }
            }
        }
    }

    /// Memory of pools that are gone goes back to the system as far as its last uses are over; not in a recording.
    pub(super) fn trim(&self) {
        let pools = lock(&self.pools);
        if pools.recording.is_empty() {
            self.device.reclaim();
        }
    }

    pub(super) fn figures(&self) -> millpond_pool_statistics {
        let mut pools = lock(&self.pools);
        let (used_bytes, reserved_bytes) = pools.figures();
        let (used_high_bytes, reserved_high_bytes) = (pools.used_high, pools.reserved_high);
        millpond_pool_statistics { used_bytes, used_high_bytes, reserved_bytes, reserved_high_bytes }
    }

    pub(super) fn reset_peaks(&self) {
        let mut pools = lock(&self.pools);
        (pools.used_high, pools.reserved_high) = (0, 0);
        pools.figures();
    }
}
