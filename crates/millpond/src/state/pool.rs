//! The shared half of a pool behind one lock: the heap, the table of allocations and what is used.
//!
//! Streams come here only when their own cache misses. Knows allocations; of streams only the counts of
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
    /// What the program calls it.
    pub(crate) name: Mutex<Leaf, Option<Box<str>>>,
    /// Sizes are rounded up to this many bytes.
    pub(crate) grain: u64,
    /// Whether freed addresses are made inaccessible.
    pub(crate) guard: bool,
    /// Whether its memory can be handed to other processes.
    pub(crate) shareable: bool,
    /// Whether each allocation is on chunks of its own.
    pub(crate) is_apart: bool,
    /// Another process has it as a whole, and keeps its chunks.
    pub(crate) is_open: AtomicBool,
    pub(crate) range: Range,
    destroyed: AtomicBool,
    /// For how many reasons freed blocks go to the heap at once: addresses are guarded, the pool is destroyed, and each
    /// request that has found no memory as yet.
    bypasses: AtomicU32,
    /// What other devices may do with its memory.
    pub(crate) grants: Arc<Mutex<ranks::Grants, Grants>>,
    pub(crate) heap: Mutex<ranks::Heap, Heap>,
}

/// What a pool is for beside serving memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    pub(crate) guard: bool,
    pub(crate) shareable: bool,
    pub(crate) is_apart: bool,
}

/// A stream's cache in this pool, as the pool sees it.
#[derive(Debug)]
struct CacheRef {
    stream: Weak<StreamShared>,
    count: Arc<CacheCount>,
}

/// The heap with all that is kept in step with it.
#[derive(Debug)]
#[repr(align(128))] // What streams read that are served from their caches is on other cache lines than its lock.
pub(crate) struct Heap {
    pub(crate) pool: millpond_core::pool::Pool,
    /// The driver's handle of each chunk.
    pub(crate) chunks: Vec<Option<Chunk>>,
    /// What is mapped: first addresses and sizes.
    pub(crate) mappings: BTreeMap<u64, u64>,
    /// Who else is let in to it.
    pub(crate) grants: Arc<Mutex<ranks::Grants, Grants>>,
    /// Whether chunks are made to be handed to other processes.
    pub(crate) shareable: bool,
    /// What other processes may reach.
    pub(crate) exposed: Exposed,
    next_serial: u64,
    /// All allocations there ever were; the name of a held block is the index of its own.
    table: Vec<Arc<Allocation>>,
    /// Those without a block. The reference that is here goes out with a block and comes back with it, uncounted.
    vacant: Vec<Arc<Allocation>>,
    caches: Vec<CacheRef>,
    /// Bytes in use, less what the caches' counts say.
    used: i64,
    used_high: u64,
    /// How far caches that are gone rose above what they left in use, since the last look.
    peak: i64,
    /// What had left the heap at the last look: until the next, all that is used is part of it.
    out: u64,
    /// How often the lock was taken.
    lock_count: u64,
    /// How many blocks came back.
    returned: u64,
}

/// A chunk as the driver knows it, and its number among all that the pool ever had.
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

    /// The heap, leaving an empty one that is never asked again.
    fn take(&mut self) -> Self {
        let config = self.pool.config().clone();
        let granule = Range::new(0, config.granularity);
        std::mem::replace(self, Heap::new(millpond_core::pool::Pool::new(config, granule), Arc::default()))
    }

    /// A chunk was created.
    pub(crate) fn add_chunk(&mut self, id: ChunkId, raw: RawChunk) {
        if self.chunks.len() <= id.index() {
            self.chunks.resize(id.index() + 1, None);
        }
        self.chunks[id.index()] = Some(Chunk { raw, serial: self.next_serial });
        self.next_serial += 1;
    }

    /// A chunk's number among all that the pool ever had.
    pub(crate) fn serial(&self, id: ChunkId) -> Option<u64> {
        self.chunks.get(id.index()).copied().flatten().map(|chunk| chunk.serial)
    }

    /// The chunk with that number, while it exists.
    pub(crate) fn chunk_of(&self, serial: u64) -> Option<RawChunk> {
        self.chunks.iter().flatten().find(|chunk| chunk.serial == serial).map(|chunk| chunk.raw)
    }

    /// The allocation that [`enlist`](Self::enlist) hands out next is asked for from memory.
    #[inline]
    pub(crate) fn expect_enlist(&self) {
        if let Some(next) = self.vacant.last() {
            prefetch(&**next);
        }
    }

    /// An allocation for a block that just left the heap: a vacant one, or what `new` makes for an index.
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

    /// The block of a freed allocation returns to the heap.
    #[inline]
    pub(crate) fn give_back(&mut self, allocation: Arc<Allocation>, freed: Freed<'_>) {
        // Also what is condemned: who waits for memory asks again, and then waits for the end of its uses.
        self.returned += 1;
        if self.exposed.holds(allocation.block()) {
            return self.exposed.condemn(allocation, freed.into_points());
        }
        self.pool.free(allocation.block(), freed);
        self.vacant.push(allocation);
    }

    /// How many blocks have come back so far, and how often there was room anew.
    pub(crate) fn returned(&self) -> u64 {
        self.returned
    }

    /// The most memory from now on. A request that was refused may find room by it.
    pub(crate) fn set_max_bytes(&mut self, max_bytes: u64) {
        self.pool.set_max_bytes(max_bytes);
        self.returned += 1;
    }

    /// Blocks that a chain freed return from its cache.
    #[inline]
    pub(crate) fn take_back(&mut self, chain: &Chain, cached: impl Iterator<Item = (Arc<Allocation>, Seq)>) {
        cached.for_each(|(allocation, seq)| self.give_back(allocation, Freed::at(chain, seq)));
    }

    /// Whether no block is held any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.vacant.len() == self.table.len()
    }

    /// The table, which refers to its pool: taken out so that the pool can go.
    pub(crate) fn take_table(&mut self) -> Vec<Arc<Allocation>> {
        self.vacant.clear();
        std::mem::take(&mut self.table)
    }

    /// The allocation in a block, once it is entered.
    pub(crate) fn allocation_in(&self, block: BlockId) -> Option<&Arc<Allocation>> {
        self.table.get(self.pool.name(block)? as usize).filter(|allocation| allocation.block() == block)
    }

    /// Those without a block, the last that lost one first: of several that had a block at one address that is the
    /// order of their frees, whichever streams those were on.
    pub(crate) fn vacated(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.vacant.iter().rev()
    }

    /// All entries of the table.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.table.iter()
    }

    /// Counts bytes that went to the program (or came back) without a cache, and keeps the high mark. What the caches
    /// did before counts without them.
    pub(crate) fn count_used(&mut self, bytes: i64) {
        let now = self.settle() as i64 + bytes;
        self.used += bytes;
        self.used_high = self.used_high.max(now.max(0) as u64);
    }

    /// Brings the high mark up to date; bytes used now.
    ///
    /// Between two looks only caches serve and are served, each in an order that only it knows. So their peaks
    /// count together: exact where one of them has moved, and else not below what was used at once, nor above what had
    /// left the heap. What a stream does at the very moment of the look may be seen by the next one.
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

    /// The high mark of used bytes is what is used now.
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

    /// Takes the heap's lock, the one lock that streams share; counted.
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

    /// Whether freed blocks go to the heap at once instead of resting in caches. Asked under a stream's lock: who
    /// changes it takes that lock afterwards.
    #[inline]
    pub(crate) fn bypasses_caches(&self) -> bool {
        self.bypasses.load(Ordering::Relaxed) > 0
    }

    /// One more reason for that, or one less.
    pub(crate) fn bypass_caches(&self, bypass: bool) {
        match bypass {
            true => self.bypasses.fetch_add(1, Ordering::AcqRel),
            false => self.bypasses.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// It is destroyed: nothing new comes from here.
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

    /// The cache of a stream that is closed goes: what lies on it returns, what it counted is the heap's now.
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

    /// The streams with a cache here.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamShared>> {
        self.lock().caches.iter().filter_map(|cache| cache.stream.upgrade()).collect()
    }

    /// The allocation that a view names; whether the life it means still lasts is for the caller to see.
    pub(crate) fn resolve(&self, index: u32) -> Option<Arc<Allocation>> {
        self.lock().table.get(index as usize).cloned()
    }

    /// Whether `pointer` is one of this pool's addresses.
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

    /// An entry for its table.
    #[cold]
    pub(crate) fn new_entry(self: &Arc<Self>, index: u32) -> Arc<Allocation> {
        let number = self.context.alloc_numbers.take();
        Arc::new(Allocation::new(number, index, self.context.number, Origin::Pool(Arc::clone(self))))
    }

    /// What messages call it. The name's lock is a leaf: whoever makes a message may hold any other.
    #[cold]
    pub(crate) fn title(&self) -> PoolName {
        let name = if process::is_forked() { None } else { lock(&self.name).as_deref().map(str::to_owned) };
        PoolName { id: self.id, name }
    }

    /// What messages call it where several devices are in question.
    #[cold]
    pub(crate) fn titled(&self) -> String {
        format!("{} of {}", self.title(), self.context.name())
    }

    /// The largest live allocations, for a report.
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
