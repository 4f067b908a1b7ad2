//! The shared half of a pool behind one lock: the heap, the table of allocations and the count of used bytes.
//!
//! Streams come here only when their own cache misses. Depends on allocations, and of streams only on the counts of
//! their caches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::ids::{BlockId, ChunkId, PoolId, Seq};
use millpond_core::order::Chain;
use millpond_core::pool::{Freed, PoolConfig};
use millpond_core::units::Range;
use millpond_driver::locks::{Guard, Leaf, Mutex, lock};
use millpond_driver::{RawChunk, prefetch, process};

use crate::names::error::{Holder, Invalid, Result};
use crate::names::pool_name::PoolName;
use crate::names::statistics::PoolStatistics;
use crate::pool::exposed::Exposed;
use crate::pool::grants::Grants;
use crate::state::allocation::Allocation;
use crate::state::caches::CacheCount;
use crate::state::context::Context;
use crate::state::origin::Origin;
use crate::state::stream::StreamShared;
use crate::sync::ranks;

/// The shared half of a pool.
pub(crate) struct PoolShared {
    pub(crate) id: PoolId,
    pub(crate) context: Arc<Context>,
    /// The name that the program gave it.
    pub(crate) name: Mutex<Leaf, Option<Box<str>>>,
    /// Sizes are rounded up to this many bytes.
    pub(crate) grain: u64,
    /// `true` if freed addresses are made inaccessible.
    pub(crate) guard: bool,
    /// `true` if its memory can be handed to other processes.
    pub(crate) shareable: bool,
    /// `true` if each allocation is on chunks of its own.
    pub(crate) is_apart: bool,
    /// `true` if another process has it as a whole, and keeps its chunks.
    pub(crate) is_open: AtomicBool,
    pub(crate) range: Range,
    destroyed: AtomicBool,
    /// The number of reasons for freed blocks to go to the heap at once: addresses are guarded, the pool is destroyed,
    /// and each request that has found no memory yet.
    bypasses: AtomicU32,
    /// The access of other devices to its memory.
    pub(crate) grants: Arc<Mutex<ranks::Grants, Grants>>,
    pub(crate) heap: Mutex<ranks::Heap, Heap>,
}

/// The uses of a pool beside serving memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    pub(crate) guard: bool,
    pub(crate) shareable: bool,
    pub(crate) is_apart: bool,
}

/// A stream's cache for this pool, as the pool sees it.
#[derive(Debug)]
struct CacheRef {
    stream: Weak<StreamShared>,
    count: Arc<CacheCount>,
}

/// The heap, and everything that changes together with it.
#[derive(Debug)]
#[repr(align(128))] // Its lock is on other cache lines than the fields that streams read when their caches serve them.
pub(crate) struct Heap {
    pub(crate) pool: millpond_core::pool::Pool,
    /// The driver's handle of each chunk.
    pub(crate) chunks: Vec<Option<Chunk>>,
    /// The mapped ranges: first addresses and sizes.
    pub(crate) mappings: BTreeMap<u64, u64>,
    /// The other devices that have access to it.
    pub(crate) grants: Arc<Mutex<ranks::Grants, Grants>>,
    /// `true` if chunks are made to be handed to other processes.
    pub(crate) shareable: bool,
    /// The blocks that other processes may reach.
    pub(crate) exposed: Exposed,
    next_serial: u64,
    /// All allocations that were ever made. The name of a held block is the index of its allocation.
    table: Vec<Arc<Allocation>>,
    /// The allocations without a block. The reference that is here goes out with a block and comes back with it, so
    /// that no count changes.
    vacant: Vec<Arc<Allocation>>,
    caches: Vec<CacheRef>,
    /// The bytes in use, less the counts of the caches.
    used: i64,
    used_high: u64,
    /// The bytes by which the peaks of caches that are gone exceeded what they left in use, since the last look.
    peak: i64,
    /// The bytes that had left the heap at the last look. Until the next look, all used bytes are among them.
    out: u64,
    /// The number of times that the lock was taken.
    lock_count: u64,
    /// The number of blocks that came back, and of limits that were set.
    returned: u64,
}

/// A chunk: the driver's handle, and its number among all that the pool ever had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) raw: RawChunk,
    serial: u64,
}

impl Heap {
    fn new(pool: millpond_core::pool::Pool, grants: Arc<Mutex<ranks::Grants, Grants>>) -> Self {
        Self {
            pool,
            chunks: Vec::new(),
            mappings: BTreeMap::new(),
            grants,
            shareable: false,
            exposed: Exposed::default(),
            next_serial: 0,
            table: Vec::new(),
            vacant: Vec::new(),
            caches: Vec::new(),
            used: 0,
            used_high: 0,
            peak: 0,
            out: 0,
            lock_count: 0,
            returned: 0,
        }
    }

    /// Takes the heap out, and leaves an empty one that is never asked again.
    fn take(&mut self) -> Self {
        let config = self.pool.config().clone();
        let granule = Range::new(0, config.granularity);
        std::mem::replace(self, Heap::new(millpond_core::pool::Pool::new(config, granule), Arc::default()))
    }

    /// Records a chunk that was created.
    pub(crate) fn add_chunk(&mut self, id: ChunkId, raw: RawChunk) {
        if self.chunks.len() <= id.index() {
            self.chunks.resize(id.index() + 1, None);
        }
        self.chunks[id.index()] = Some(Chunk { raw, serial: self.next_serial });
        self.next_serial += 1;
    }

    /// Returns a chunk's number among all that the pool ever had.
    pub(crate) fn serial(&self, id: ChunkId) -> Option<u64> {
        self.chunks.get(id.index()).copied().flatten().map(|chunk| chunk.serial)
    }

    /// Returns the chunk with that number, while it exists.
    pub(crate) fn chunk_of(&self, serial: u64) -> Option<RawChunk> {
        self.chunks.iter().flatten().find(|chunk| chunk.serial == serial).map(|chunk| chunk.raw)
    }

    /// Prefetches the allocation that [`enlist`](Self::enlist) returns next.
    #[inline]
    pub(crate) fn expect_enlist(&self) {
        if let Some(next) = self.vacant.last() {
            prefetch(&**next);
        }
    }

    /// Returns an allocation for a block that just left the heap: a vacant one, or one that `new` makes for an index.
    #[inline]
    pub(crate) fn enlist(&mut self, block: BlockId, new: impl FnOnce(u32) -> Arc<Allocation>) -> Arc<Allocation> {
        let allocation = self.vacant.pop().unwrap_or_else(|| {
            let made = new(self.table.len() as u32);
            self.table.push(Arc::clone(&made));
            made
        });
        self.pool.set_name(block, allocation.index);
        allocation
    }

    /// Returns the block of a freed allocation to the heap.
    #[inline]
    pub(crate) fn give_back(&mut self, allocation: Arc<Allocation>, freed: Freed<'_>) {
        // Condemned blocks count, too: a thread that waits for memory asks again, and then waits for the end of their
        // uses.
        self.returned += 1;
        if self.exposed.holds(allocation.block()) {
            return self.exposed.condemn(allocation, freed.into_points());
        }
        self.pool.free(allocation.block(), freed);
        self.vacant.push(allocation);
    }

    /// Returns the number of blocks that have come back, and of limits that were set, so far.
    pub(crate) fn returned(&self) -> u64 {
        self.returned
    }

    /// Sets the most memory that the pool may have from now on. A request that was refused may then find room.
    pub(crate) fn set_max_bytes(&mut self, max_bytes: u64) {
        self.pool.set_max_bytes(max_bytes);
        self.returned += 1;
    }

    /// Returns blocks that a chain freed from its cache to the heap.
    #[inline]
    pub(crate) fn take_back(&mut self, chain: &Chain, cached: impl Iterator<Item = (Arc<Allocation>, Seq)>) {
        cached.for_each(|(allocation, seq)| self.give_back(allocation, Freed::at(chain, seq)));
    }

    /// Returns `true` if no block is held any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.vacant.len() == self.table.len()
    }

    /// Takes the table out, so that the pool can be dropped: the entries refer to the pool.
    pub(crate) fn take_table(&mut self) -> Vec<Arc<Allocation>> {
        self.vacant.clear();
        std::mem::take(&mut self.table)
    }

    /// Returns the allocation in a block, once it is entered.
    pub(crate) fn allocation_in(&self, block: BlockId) -> Option<&Arc<Allocation>> {
        self.table.get(self.pool.name(block)? as usize).filter(|allocation| allocation.block() == block)
    }

    /// Returns the allocations without a block, those that lost it last first. For several that had a block at one
    /// address that is the order of their frees, latest first, whichever streams those were on.
    pub(crate) fn vacated(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.vacant.iter().rev()
    }

    /// Returns all entries of the table.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.table.iter()
    }

    /// Counts bytes that went to the program (or came back) without a cache, and updates the high mark. The changes of
    /// the caches before that are counted without these bytes.
    pub(crate) fn count_used(&mut self, bytes: i64) {
        let now = self.settle() as i64 + bytes;
        self.used += bytes;
        self.used_high = self.used_high.max(now.max(0) as u64);
    }

    /// Updates the high mark, and returns the bytes used now.
    ///
    /// Between two looks only caches serve allocations and take frees, each in an order that only it knows. So their
    /// peaks are added. The sum is exact if only one cache has moved. Otherwise it is not below what was used at one
    /// time, nor above what had left the heap. Changes of a stream at the very moment of a look may be seen by the next
    /// one.
    fn settle(&mut self) -> u64 {
        let (mut now, mut most) = (self.used, self.used + std::mem::take(&mut self.peak));
        for cache in &self.caches {
            let (used, peak) = cache.count.look();
            now += used;
            most += peak;
        }
        let (now, most) = (now.max(0) as u64, most.max(0) as u64);
        self.used_high = self.used_high.max(now).max(most.min(self.out));
        self.out = self.pool.held();
        now
    }

    /// Resets the high mark of used bytes to what is used now.
    pub(crate) fn reset_used_high(&mut self) {
        self.settle();
        self.used_high = 0;
        self.used_high = self.settle();
    }
}

impl fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl PoolShared {
    pub(crate) fn new(id: PoolId, context: Arc<Context>, config: PoolConfig, uses: Uses, range: Range) -> Self {
        let Uses { guard, shareable, is_apart } = uses;
        let grain = config.grain;
        let grants = Arc::<Mutex<ranks::Grants, Grants>>::default();
        let mut heap = Heap::new(millpond_core::pool::Pool::new(config, range), Arc::clone(&grants));
        heap.shareable = shareable;
        let (destroyed, bypasses, is_open) =
            (AtomicBool::new(false), AtomicU32::new(guard.into()), AtomicBool::new(false));
        Self {
            id,
            context,
            name: Mutex::new(None),
            grain,
            guard,
            shareable,
            is_apart,
            is_open,
            range,
            destroyed,
            bypasses,
            grants,
            heap: Mutex::new(heap),
        }
    }

    /// Takes the heap's lock, the one lock that streams share, and counts that.
    pub(crate) fn lock(&self) -> Guard<'_, Heap> {
        let mut heap = lock(&self.heap);
        heap.lock_count += 1;
        heap
    }

    /// Refuses a destroyed pool.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        match self.destroyed.load(Ordering::Relaxed) {
            true => Err(Invalid::PoolDestroyed(self.title()).into()),
            false => Ok(()),
        }
    }

    /// Returns `true` if freed blocks go to the heap at once and not into caches. It is asked under a stream's lock: a
    /// thread that changes it takes that lock afterwards.
    #[inline]
    pub(crate) fn bypasses_caches(&self) -> bool {
        self.bypasses.load(Ordering::Relaxed) > 0
    }

    /// Adds a reason for that, or removes one.
    pub(crate) fn bypass_caches(&self, bypass: bool) {
        match bypass {
            true => self.bypasses.fetch_add(1, Ordering::AcqRel),
            false => self.bypasses.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Marks the pool as destroyed: nothing new comes from it.
    pub(crate) fn stop_serving(&self) {
        self.destroyed.store(true, Ordering::Release);
        self.bypass_caches(true);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Enters a stream's new cache.
    pub(crate) fn add_cache(&self, stream: Weak<StreamShared>) -> Arc<CacheCount> {
        let count = Arc::<CacheCount>::default();
        let mut heap = self.lock();
        count.set_place(heap.caches.len());
        heap.caches.push(CacheRef { stream, count: Arc::clone(&count) });
        count
    }

    /// Removes the cache of a closed stream. Its blocks return to the heap, and the heap adds its count.
    pub(crate) fn return_cache(
        &self,
        chain: &Chain,
        cached: impl Iterator<Item = (Arc<Allocation>, Seq)>,
        count: &CacheCount,
    ) {
        let mut heap = self.lock();
        heap.take_back(chain, cached);
        let (used, peak) = count.look();
        heap.used += used;
        heap.peak += peak - used;
        let at = count.place();
        heap.caches.swap_remove(at);
        if let Some(moved) = heap.caches.get(at) {
            moved.count.set_place(at);
        }
    }

    /// Returns the streams with a cache here.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamShared>> {
        self.lock().caches.iter().filter_map(|cache| cache.stream.upgrade()).collect()
    }

    /// Returns the allocation that a view names. The caller has to check that the lifetime it names still lasts.
    pub(crate) fn resolve(&self, index: u32) -> Option<Arc<Allocation>> {
        self.lock().table.get(index as usize).cloned()
    }

    /// Returns `true` if `pointer` is one of this pool's addresses.
    pub(crate) fn contains(&self, pointer: u64) -> bool {
        self.range.contains(pointer)
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let mut heap = self.lock();
        let used_bytes = heap.settle();
        PoolStatistics {
            used_bytes,
            used_high_bytes: heap.used_high,
            reserved_bytes: heap.pool.reserved(),
            reserved_high_bytes: heap.pool.reserved_high(),
            shared_locks: heap.lock_count,
        }
    }

    /// Makes an entry for its table.
    #[cold]
    pub(crate) fn new_entry(self: &Arc<Self>, index: u32) -> Arc<Allocation> {
        let number = self.context.alloc_numbers.take();
        Arc::new(Allocation::new(number, index, self.context.number, Origin::Pool(Arc::clone(self))))
    }

    /// Returns the name that messages use. The name's lock is a leaf: a thread that makes a message may hold any other.
    #[cold]
    pub(crate) fn title(&self) -> PoolName {
        let name = if process::is_forked() { None } else { lock(&self.name).as_deref().map(str::to_owned) };
        PoolName { id: self.id, name }
    }

    /// Returns the name that messages about several devices use.
    #[cold]
    pub(crate) fn titled(&self) -> String {
        format!("{} of {}", self.title(), self.context.name())
    }

    /// Returns the largest live allocations, for a report.
    pub(crate) fn largest(&self, heap: &Heap, count: usize) -> Vec<Holder> {
        let mut live: Vec<_> = heap.allocations().filter(|it| it.life().freed.is_none()).collect();
        live.sort_by_key(|it| std::cmp::Reverse(it.life().bytes));
        live.truncate(count);
        let holder = |it: &Arc<Allocation>| {
            let life = it.life();
            Holder { allocation: it.describe(&life), range: life.range }
        };
        live.into_iter().map(holder).collect()
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        let heap = self.heap.get_mut().take();
        self.context.end_pool(self.id, Closing { heap, range: self.range });
    }
}

/// A heap without references, until its memory and addresses are given back.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) heap: Heap,
    pub(crate) range: Range,
}
