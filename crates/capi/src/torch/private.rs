//! Private pools: memory that a foreign program's graphs were captured with, and that must stay where it is.
//!
//! The program captures its own graphs. Their kernels hold addresses and use them at every replay, long after the
//! memory was freed. So memory of such a pool must not be moved, unmapped or given to others until the program releases
//! the pool. The library's own pool cannot serve the blocks: before it grows, it maps free chunks at other addresses.
//! To the library a private pool is a few live *segments*. Their blocks are split, joined and served here: the smallest
//! free block that fits, of those that were freed on the same stream. No stream of the library has work in a capture,
//! so a block of another stream is never free for it.
//!
//! Outside of captures the memory is used like any other: another stream reads a graph's output, and the program
//! records that stream for it. When such a block is freed it is *parked*: it serves no stream until all work has
//! completed that the recorded streams have at that time. The event for that cannot be recorded on a stream that
//! captures. It is recorded after the capture.
//!
//! A stream that captures cannot be queried either. So each pool allocates its segments from a pool of the library's
//! that has no streams to query, and memory released during a capture is given back after it. Graphs are replayed on
//! streams that the library does not know. So a pool's memory is given back once all work has completed that the device
//! has when the pool is released.
//!
//! This is not the hot path: captures are rare.

use millpond_driver::locks::{Mutex, lock};
use millpond_driver::process::{ThreadNumber, this_thread};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::raw::{AllWork, Trusted};
use millpond::{Buffer, Device, Error, Event, MIB, Pool, PoolConfig, Stream};

use super::peaks::{Peaks, Taken};
use crate::calls::pool::millpond_pool_statistics;
use crate::status::{Failure, Result};
use crate::tables::ranks;

/// The program's name of a pool: PyTorch's `MempoolId_t`, a pair.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct millpond_pool_key {
    /// The first number.
    pub first: u64,
    /// The second number.
    pub second: u64,
}

/// The pool of all captures that are not announced. PyTorch numbers its pools from 0.
const UNANNOUNCED: millpond_pool_key = millpond_pool_key { first: u64::MAX, second: u64::MAX };

/// The sizes of blocks are multiples of this.
const GRAIN: u64 = 512;
/// The sizes of segments are multiples of this.
const SEGMENT: u64 = 2 * MIB;

/// A block of a segment.
#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    /// The number of the stream that it serves.
    stream: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Held,
    /// Freed, and still used by other streams: it serves no stream.
    Parked,
}

/// A stream that used a freed block.
enum User {
    /// It captures, or was not queried yet.
    Unrecorded(Stream),
    /// It has finished with the block once this event has completed.
    Recorded(Event),
}

impl User {
    /// Returns `true` if the stream has finished with the block. A lost device runs no more work.
    fn is_done(&mut self) -> bool {
        let is_lost = |error: &Error| matches!(error, Error::DeviceLost { .. });
        if let User::Unrecorded(stream) = self {
            match stream.record() {
                Ok(event) => *self = User::Recorded(event),
                Err(error) => return is_lost(&error),
            }
        }
        match self {
            User::Recorded(event) => event.poll(Location::caller()).unwrap_or_else(|error| is_lost(&error)),
            User::Unrecorded(_) => false,
        }
    }
}

/// A private pool.
struct Kept {
    /// The pool of its segments.
    source: Pool,
    /// The begins that were not released.
    uses: usize,
    /// All blocks by address. Neighbours in one segment are adjacent.
    blocks: BTreeMap<u64, Block>,
    /// The free blocks, by stream, size and address.
    free: BTreeSet<(u64, u64, u64)>,
    /// The segments by their start.
    segments: BTreeMap<u64, Buffer<u8>>,
    /// The streams that were recorded as users of held blocks.
    users: BTreeMap<u64, Vec<Stream>>,
    /// The users of parked blocks.
    parked: BTreeMap<u64, Vec<User>>,
}

impl Kept {
    fn new(device: &Device) -> Result<Self> {
        let source = device.pool(PoolConfig::default().release_threshold(u64::MAX))?;
        let (blocks, free, segments, users, parked) = Default::default();
        Ok(Self { source, uses: 0, blocks, free, segments, users, parked })
    }

    /// Takes the smallest free block that fits, and splits it if it is larger.
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

    /// Frees a block, and joins it with its free neighbours of the same segment and stream.
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

    /// Frees a held block. `on` is the stream of the free, if that is not the block's own: it is one of the users then.
    fn give_back(&mut self, address: u64, block: Block, on: Option<Stream>) {
        let mut users = self.users.remove(&address).unwrap_or_default();
        users.extend(on);
        match users.is_empty() {
            true => self.release(address),
            false => {
                self.blocks.insert(address, Block { state: State::Parked, ..block });
                self.parked.insert(address, users.into_iter().map(User::Unrecorded).collect());
            }
        }
    }

    /// Records events for the users of parked blocks where that is possible, and frees the blocks that no user needs
    /// any more.
    fn settle(&mut self) {
        let mut done = Vec::new();
        for (address, users) in &mut self.parked {
            users.retain_mut(|user| !user.is_done());
            done.extend(users.is_empty().then_some(*address));
        }
        for address in done {
            self.parked.remove(&address);
            self.release(address);
        }
    }

    fn is_idle(&self) -> bool {
        self.uses == 0 && self.blocks.values().all(|block| block.state != State::Held)
    }
}

/// A released pool, and all work of the device at its release, once that could be recorded.
struct Gone {
    kept: Kept,
    work: Option<AllWork>,
}

impl Gone {
    fn is_over(&mut self, device: &Device) -> bool {
        if self.work.is_none() {
            self.work = device.all_work().ok();
        }
        let is_lost = |error| matches!(error, Error::DeviceLost { .. });
        self.work.as_mut().is_some_and(|work| work.is_over().unwrap_or_else(is_lost))
    }
}

/// A recording into a pool.
struct Recording {
    key: millpond_pool_key,
    /// The thread that began it.
    thread: ThreadNumber,
}

/// The state behind the lock.
#[derive(Default)]
struct Pools {
    pools: BTreeMap<millpond_pool_key, Kept>,
    /// Recordings into pools, all by one thread; the last one counts.
    recording: Vec<Recording>,
    /// Recordings that were refused without their threads knowing. These threads get no memory until the end.
    refused: Vec<Recording>,
    /// Released pools whose memory work may still use.
    gone: Vec<Gone>,
    peaks: Peaks,
}

impl Pools {
    /// Returns the pool of a key. A new key gets a new pool.
    fn pool(&mut self, key: millpond_pool_key, device: &Device) -> Result<&mut Kept> {
        Ok(match self.pools.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Kept::new(device)?),
        })
    }

    /// Returns the bytes used and reserved now, and updates high values and limits.
    fn figures(&mut self, shared: &Pool) -> millpond::Result<Taken> {
        let all = || self.pools.values().chain(self.gone.iter().map(|gone| &gone.kept));
        let used = all().flat_map(|kept| kept.segments.values()).map(Buffer::bytes).sum();
        let reserved = all().map(|kept| kept.source.statistics().reserved_bytes).sum();
        let taken = Taken { used, reserved };
        self.peaks.change(shared, taken)?;
        Ok(taken)
    }

    /// Returns the pool and the held block of an address.
    fn find(&self, address: u64) -> Option<(millpond_pool_key, Block)> {
        let held = |kept: &Kept| kept.blocks.get(&address).copied().filter(|block| block.state == State::Held);
        self.pools.iter().find_map(|(key, kept)| Some((*key, held(kept)?)))
    }

    fn is_recording(&self, key: millpond_pool_key) -> bool {
        self.recording.iter().any(|it| it.key == key)
    }
}

/// Returns the number of a stream. A handle is not unique: the handle of the per-thread default stream means another
/// stream on each thread.
fn number(stream: &Stream) -> u64 {
    stream.id().0.into()
}

/// The private pools of a device.
pub(super) struct Private {
    device: Device,
    /// The pool of memory that is not private.
    shared: Pool,
    stream: Stream,
    pools: Mutex<ranks::Entry, Pools>,
    recording: AtomicUsize,
}

impl Private {
    pub(super) fn new(device: &Device, shared: &Pool) -> Result<Self> {
        let (pools, recording) = (Mutex::default(), AtomicUsize::new(0));
        let (device, stream) = (device.clone(), device.non_blocking_stream()?);
        Ok(Self { device, shared: shared.clone(), stream, pools, recording })
    }

    /// Returns `true` if a recording is open, so that memory comes from here.
    #[inline]
    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Acquire) > 0
    }

    /// Begins a recording: allocations go to this pool from now on.
    pub(super) fn begin(&self, key: millpond_pool_key) -> Result<()> {
        let thread = this_thread();
        let mut pools = lock(&self.pools);
        let other = pools.recording.iter().find(|it| it.key != key && it.thread != thread).map(|it| it.key);
        if let Some(other) = other {
            return Err(Failure::Value(format!(
                "another thread captures on this device, into the pool ({}, {}): what is allocated meanwhile would be \
                 mixed with that of the pool ({}, {}); capture one graph at a time",
                other.first, other.second, key.first, key.second
            )));
        }
        if pools.recording.is_empty() {
            // From now on the streams capture and cannot be queried.
            self.settle(&mut pools);
            self.device.record_ahead();
            self.device.reclaim();
        }
        pools.pool(key, &self.device)?.uses += 1;
        pools.recording.push(Recording { key, thread });
        self.publish(&pools);
        Ok(())
    }

    /// Notes that a begin was refused and the program goes on: memory that the thread allocates now would not be in the
    /// pool that it expects.
    pub(super) fn refuse(&self, key: millpond_pool_key) {
        let mut pools = lock(&self.pools);
        pools.refused.push(Recording { key, thread: this_thread() });
        self.publish(&pools);
    }

    fn publish(&self, pools: &Pools) {
        self.recording.store(pools.recording.len() + pools.refused.len(), Ordering::Release);
    }

    /// Ends a recording: allocations do not go to this pool any more.
    pub(super) fn end(&self, key: millpond_pool_key) {
        let thread = this_thread();
        let mut pools = lock(&self.pools);
        if let Some(at) = pools.refused.iter().rposition(|it| it.key == key && it.thread == thread) {
            pools.refused.remove(at);
        } else if let Some(at) = pools.recording.iter().rposition(|it| it.key == key) {
            pools.recording.remove(at);
        }
        self.publish(&pools);
        self.drop_idle(&mut pools, key);
        self.settle(&mut pools);
    }

    /// Allocates from the pool that is recorded into; `None` if the recording has ended meanwhile.
    #[cold]
    pub(super) fn allocate(&self, trusted: &Trusted, bytes: u64, stream: u64) -> Result<Option<u64>> {
        let own = trusted.stream(stream)?;
        let mut pools = lock(&self.pools);
        let thread = this_thread();
        if let Some(Recording { key, .. }) = pools.refused.iter().find(|it| it.thread == thread) {
            return Err(Failure::Value(format!(
                "the begin of this thread's pool ({}, {}) was refused: its capture gets no memory until its end",
                key.first, key.second
            )));
        }
        let Some(key) = pools.recording.last().map(|it| it.key) else { return Ok(None) };
        self.allocate_from(&mut pools, key, bytes, &own).map(Some)
    }

    /// Allocates on a stream whose capture was not announced. The end of its graphs is not announced either, so the
    /// memory is never released.
    #[cold]
    pub(super) fn allocate_unannounced(&self, trusted: &Trusted, bytes: u64, stream: u64) -> Result<u64> {
        let own = trusted.stream(stream)?;
        let mut pools = lock(&self.pools);
        pools.pool(UNANNOUNCED, &self.device)?.uses = 1;
        self.allocate_from(&mut pools, UNANNOUNCED, bytes, &own)
    }

    /// Returns a block of a pool. The pool grows if no block is free.
    fn allocate_from(&self, pools: &mut Pools, key: millpond_pool_key, bytes: u64, own: &Stream) -> Result<u64> {
        let rounded = bytes.checked_next_multiple_of(GRAIN);
        let Some((bytes, size)) = rounded.and_then(|it| Some((it, it.checked_next_multiple_of(SEGMENT)?))) else {
            return Ok(own.alloc::<u8>(&self.shared, usize::MAX)?.address());
        };
        if bytes == 0 {
            return Ok(0);
        }
        let own = number(own);
        let kept = pools.pool(key, &self.device)?;
        if let Some(address) = kept.take(own, bytes) {
            return Ok(address);
        }
        let source = kept.source.clone();
        if let Some(room) = pools.peaks.room(&self.shared, source.statistics().reserved_bytes) {
            source.set_max_bytes(Some(room))?;
        }
        let segment = self.stream.alloc::<u8>(&source, size as usize)?;
        let kept = pools.pool(key, &self.device)?;
        let start = segment.address();
        kept.segments.insert(start, segment);
        kept.put(start, Block { bytes: size, stream: own, state: State::Free });
        let address = kept.take(own, bytes).expect("a segment was added that fits");
        pools.figures(&self.shared)?;
        Ok(address)
    }

    /// Frees a block on a stream. Returns `false` if the address is in none of these pools. If the stream captures
    /// (`in_capture`), no other stream is queried.
    pub(super) fn free(&self, address: u64, stream: u64, trusted: &Trusted, in_capture: bool) -> Result<bool> {
        let mut pools = lock(&self.pools);
        let Some((key, block)) = pools.find(address) else { return Ok(false) };
        let elsewhere = Some(trusted.stream(stream)?).filter(|it| number(it) != block.stream);
        pools.pool(key, &self.device)?.give_back(address, block, elsewhere);
        self.drop_idle(&mut pools, key);
        if !in_capture {
            self.settle(&mut pools);
        }
        Ok(true)
    }

    /// Notes that another stream uses a block. Returns `false` if the address is in none of these pools.
    pub(super) fn share(&self, address: u64, stream: u64, trusted: &Trusted) -> Result<bool> {
        let mut pools = lock(&self.pools);
        let Some((key, block)) = pools.find(address) else { return Ok(false) };
        let user = trusted.stream(stream)?;
        if block.stream != number(&user) {
            let users = pools.pool(key, &self.device)?.users.entry(address).or_default();
            if !users.iter().any(|it| it.id() == user.id()) {
                users.push(user);
            }
        }
        Ok(true)
    }

    /// Takes one begin back. The last release also ends the recording, because a failed capture may never reach its
    /// end.
    pub(super) fn release(&self, key: millpond_pool_key) {
        let mut pools = lock(&self.pools);
        if let Some(kept) = pools.pools.get_mut(&key) {
            kept.uses = kept.uses.saturating_sub(1);
            if kept.uses == 0 {
                pools.recording.retain(|it| it.key != key);
                self.publish(&pools);
            }
        }
        self.drop_idle(&mut pools, key);
        self.settle(&mut pools);
    }

    /// Drops a pool that is released and has no live blocks.
    fn drop_idle(&self, pools: &mut Pools, key: millpond_pool_key) {
        if pools.pools.get(&key).is_some_and(Kept::is_idle) && !pools.is_recording(key) {
            pools.gone.extend(pools.pools.remove(&key).map(|kept| Gone { kept, work: None }));
        }
    }

    /// Checks what waits for work to complete, unless a thread captures.
    fn settle(&self, pools: &mut Pools) {
        if pools.recording.is_empty() {
            pools.pools.values_mut().for_each(Kept::settle);
            let before = pools.gone.len();
            pools.gone.retain_mut(|gone| !gone.is_over(&self.device));
            if pools.gone.len() < before {
                // It cannot be refused: the shared pool's limit only grows here.
                let _ = pools.figures(&self.shared);
            }
        }
    }

    /// Gives memory of released pools back to the system, as far as its last uses have completed. Does nothing during a
    /// recording.
    pub(super) fn trim(&self) {
        let mut pools = lock(&self.pools);
        if pools.recording.is_empty() {
            self.settle(&mut pools);
            self.device.reclaim();
        }
    }

    /// Returns the device's memory, shared and private.
    pub(super) fn figures(&self) -> Result<millpond_pool_statistics> {
        let mut pools = lock(&self.pools);
        self.settle(&mut pools);
        let private = pools.figures(&self.shared)?;
        let shared = self.shared.statistics();
        let high = pools.peaks.high(&shared);
        Ok(millpond_pool_statistics {
            used_bytes: shared.used_bytes + private.used,
            used_high_bytes: high.used,
            reserved_bytes: shared.reserved_bytes + private.reserved,
            reserved_high_bytes: high.reserved,
        })
    }

    pub(super) fn reset_peaks(&self) -> Result<()> {
        let mut pools = lock(&self.pools);
        pools.peaks.reset(&self.shared);
        pools.figures(&self.shared)?;
        Ok(())
    }

    /// Limits shared and private memory together.
    pub(super) fn set_limit(&self, bytes: u64) -> Result<()> {
        Ok(lock(&self.pools).peaks.set_limit(&self.shared, bytes)?)
    }
}
