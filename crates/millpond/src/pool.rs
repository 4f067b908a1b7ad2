//! A pool: where memory comes from (CUDA: `cudaMemPool_t`).
//!
//! The handle and its settings, and the shared half of a pool behind one lock: the heap, the table of allocations and
//! what is used. Streams come here only when their own shelf misses. Knows allocations; of streams only their shelves.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millpond_core::check::{Subject, Use};
use millpond_core::ids::{AllocId, BlockId, PoolId};
use millpond_core::order::Knows;
use millpond_core::pool::{Frontier, Located, Neighbour, PoolConfig, ReusePolicy};
use millpond_core::units::Range;

use crate::allocation::Allocation;
use crate::context::{Context, lock};
use crate::shell::Closing;
use crate::error::{Error, Holder, Invalid, Nearest, Result};
use crate::statistics::PoolStatistics;
use crate::stream::StreamShared;

/// A pool of a device. Clones name the same pool; it is destroyed when the last one is dropped.
///
/// What was allocated from it stays valid and can still be freed; its memory goes back to the system with the last
/// of them (CUDA: `cudaMemPoolDestroy`).
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) owner: Arc<Owner>,
}

/// Destroys the pool when the last handle goes.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<PoolShared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.destroy();
    }
}

/// The shared half of a pool.
#[derive(Debug)]
pub(crate) struct PoolShared {
    pub(crate) id: PoolId,
    pub(crate) context: Arc<Context>,
    /// Sizes are rounded up to this many bytes.
    pub(crate) grain: u64,
    /// Whether freed addresses are made inaccessible.
    pub(crate) guard: bool,
    range: Range,
    destroyed: AtomicBool,
    pub(crate) heap: Mutex<Heap>,
    /// How often the heap's lock was taken.
    lock_count: AtomicU64,
    shelves: Mutex<Vec<ShelfRef>>,
}

/// A stream's shelf in this pool, as the pool sees it.
#[derive(Debug)]
struct ShelfRef {
    stream: Weak<StreamShared>,
    count: Arc<ShelfCount>,
}

/// What a stream's shelf did to the used bytes since the heap was told. Written by the stream alone, under its lock.
#[derive(Debug, Default)]
pub(crate) struct ShelfCount {
    /// Bytes taken from the shelf less bytes put on it.
    used: AtomicI64,
    /// The highest that was since the last look.
    peak: AtomicI64,
}

impl ShelfCount {
    /// The shelf served a request.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) {
        let used = self.used.load(Ordering::Relaxed) + bytes as i64;
        self.used.store(used, Ordering::Relaxed);
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.store(used, Ordering::Relaxed);
        }
    }

    /// The shelf took a freed block.
    #[inline]
    pub(crate) fn put(&self, bytes: u64) {
        self.used.store(self.used.load(Ordering::Relaxed) - bytes as i64, Ordering::Relaxed);
    }
}

/// The heap with all that is kept in step with it.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(crate) pool: millpond_core::pool::Pool,
    /// The driver's handle of each chunk.
    pub(crate) chunks: Vec<Option<millpond_driver::RawChunk>>,
    /// Allocations by their index; empty places are in `vacant`.
    table: Vec<Place>,
    vacant: Vec<u32>,
    /// Index of the allocation in each block.
    by_block: Vec<u32>,
    /// Bytes in use, less what the shelves' counts say.
    used: i64,
    used_high: u64,
}

/// A place of the table: an allocation, or what is known of the last one there.
#[derive(Debug)]
struct Place {
    allocation: Option<Arc<Allocation>>,
    generation: u32,
    /// How the last life here ended.
    ended: Option<(Use, Subject)>,
}

impl Heap {
    fn new(pool: millpond_core::pool::Pool) -> Self {
        Self {
            pool,
            chunks: Vec::new(),
            table: Vec::new(),
            vacant: Vec::new(),
            by_block: Vec::new(),
            used: 0,
            used_high: 0,
        }
    }

    /// A place in the table for a block, and the generation with which its lives begin.
    pub(crate) fn enlist(
        &mut self,
        block: BlockId,
        make: impl FnOnce(u32, u32) -> Arc<Allocation>,
    ) -> Arc<Allocation> {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(Place { allocation: None, generation: 0, ended: None });
            self.table.len() as u32 - 1
        });
        if self.by_block.len() <= block.index() {
            self.by_block.resize(block.index() + 1, u32::MAX);
        }
        self.by_block[block.index()] = index;
        let place = &mut self.table[index as usize];
        let allocation = make(index, place.generation.wrapping_add(1));
        place.allocation = Some(Arc::clone(&allocation));
        allocation
    }

    /// The block of a freed allocation returns to the heap, free after `after`.
    pub(crate) fn give_back(&mut self, allocation: &Allocation, after: Frontier, who: Option<&impl Knows>) {
        let place = &mut self.table[allocation.index as usize];
        let life = allocation.life();
        place.generation = life.generation;
        place.ended = life.freed.map(|free| (free, allocation.subject(&life)));
        place.allocation = None;
        drop(life);
        self.vacant.push(allocation.index);
        self.pool.free(allocation.block, after, who);
    }

    /// The heap, leaving an empty one that is never asked again.
    fn take(&mut self) -> Heap {
        let config = self.pool.config().clone();
        let granule = Range::new(0, config.granularity);
        std::mem::replace(self, Heap::new(millpond_core::pool::Pool::new(config, granule)))
    }

    /// Bytes used and the high mark, with what the shelves did since.
    fn settle(&mut self, shelves: &[ShelfRef], reset: bool) -> (u64, u64) {
        let shelved: i64 = shelves.iter().map(|shelf| shelf.count.used.load(Ordering::Relaxed)).sum();
        let now = self.used + shelved;
        // A shelf's own peak counts with the others as they are now: exact while one stream at a time is served from
        // its shelf, and never above what is held.
        let peak = shelves.iter().map(|shelf| {
            let used = shelf.count.used.load(Ordering::Relaxed);
            let peak = shelf.count.peak.swap(used, Ordering::Relaxed);
            now + (peak - used).max(0)
        });
        let peak = peak.max().unwrap_or(now).max(now);
        let now = now.max(0) as u64;
        self.used_high = if reset { now } else { self.used_high.max(peak.max(0) as u64) };
        (now, self.used_high)
    }
}

impl PoolShared {
    pub(crate) fn new(id: PoolId, context: Arc<Context>, config: PoolConfig, guard: bool, range: Range) -> Self {
        let grain = config.grain;
        let heap = Heap::new(millpond_core::pool::Pool::new(config, range));
        Self {
            id,
            context,
            grain,
            guard,
            range,
            destroyed: AtomicBool::new(false),
            heap: Mutex::new(heap),
            lock_count: AtomicU64::new(0),
            shelves: Mutex::new(Vec::new()),
        }
    }

    /// Takes the heap's lock, the one lock that streams share; counted.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Heap> {
        self.lock_count.fetch_add(1, Ordering::Relaxed);
        lock(&self.heap)
    }

    /// Refuses a destroyed pool.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        match self.destroyed.load(Ordering::Relaxed) {
            true => Err(Invalid::PoolDestroyed(self.id).into()),
            false => Ok(()),
        }
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Enters a stream's new shelf.
    pub(crate) fn add_shelf(&self, stream: Weak<StreamShared>) -> Arc<ShelfCount> {
        let count = Arc::<ShelfCount>::default();
        let mut shelves = lock(&self.shelves);
        shelves.push(ShelfRef { stream, count: Arc::clone(&count) });
        count
    }

    /// A stream's shelf is empty and goes: what it counted is the heap's now.
    pub(crate) fn remove_shelf(&self, count: &Arc<ShelfCount>) {
        let mut heap = self.lock();
        let mut shelves = lock(&self.shelves);
        heap.settle(&shelves, false);
        heap.used += count.used.load(Ordering::Relaxed);
        shelves.retain(|shelf| !Arc::ptr_eq(&shelf.count, count));
    }

    /// The streams with a shelf here.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamShared>> {
        let shelves = lock(&self.shelves);
        shelves.iter().filter_map(|shelf| shelf.stream.upgrade()).collect()
    }

    /// Counts bytes that left the heap for the program (or came back), and keeps the high mark.
    pub(crate) fn count_used(&self, heap: &mut Heap, bytes: i64) {
        heap.used += bytes;
        if bytes > 0 {
            heap.settle(&lock(&self.shelves), false);
        }
    }

    /// The allocation that a view names, while that life lasts or its end is known.
    pub(crate) fn resolve(&self, index: u32, generation: u32) -> std::result::Result<Arc<Allocation>, Stale> {
        let heap = self.lock();
        let Some(place) = heap.table.get(index as usize) else { return Err(Stale { ended: None }) };
        match &place.allocation {
            Some(allocation) => Ok(Arc::clone(allocation)),
            None => Err(Stale { ended: place.ended.clone().filter(|_| place.generation == generation) }),
        }
    }

    /// The live allocation that starts at `pointer`, or what is there instead.
    pub(crate) fn find(&self, pointer: u64) -> std::result::Result<Arc<Allocation>, Nearest> {
        let heap = self.lock();
        let allocation = |neighbour: Neighbour| {
            let index = heap.by_block.get(neighbour.block.index()).copied().unwrap_or(u32::MAX);
            heap.table.get(index as usize).and_then(|place| place.allocation.as_ref())
        };
        let describe = |neighbour: Neighbour| {
            allocation(neighbour).map_or_else(|| "an allocation in the making".to_owned(), |it| it.describe(&it.life()))
        };
        match heap.pool.locate(pointer) {
            Located::Outside => Err(Nearest::Outside),
            Located::Held { block, offset } => match allocation(block) {
                Some(it) if offset == 0 && it.life().freed.is_none() => Ok(Arc::clone(it)),
                Some(it) if offset == 0 => Err(Nearest::Freed { allocation: it.describe(&it.life()) }),
                _ => Err(Nearest::Inside { allocation: describe(block), offset }),
            },
            Located::Free { below, above } => Err(Nearest::Between {
                below: below.map(|it| (describe(it), pointer - it.range.end())),
                above: above.map(|it| (describe(it), it.range.start - pointer)),
            }),
        }
    }

    /// Whether `pointer` is one of this pool's addresses.
    pub(crate) fn contains(&self, pointer: u64) -> bool {
        self.range.contains(pointer)
    }

    /// The largest live allocations, for a report.
    pub(crate) fn largest(&self, heap: &Heap, count: usize) -> Vec<Holder> {
        let live = heap.table.iter().filter_map(|place| place.allocation.as_ref());
        let mut live: Vec<_> = live.filter(|it| it.life().freed.is_none()).collect();
        live.sort_by_key(|it| std::cmp::Reverse(it.range.bytes));
        live.truncate(count);
        live.iter().map(|it| Holder { allocation: it.describe(&it.life()), range: it.range }).collect()
    }

    /// The last handle is gone: nothing new comes from here; what is idle goes back now, the rest with its last free.
    fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
        // A device that is lost cannot give memory back; the system takes it with the process.
        let _ = self.trim_to(0);
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let mut heap = self.lock();
        let (used, used_high) = heap.settle(&lock(&self.shelves), false);
        PoolStatistics {
            used_bytes: used,
            used_high_bytes: used_high,
            reserved_bytes: heap.pool.reserved(),
            reserved_high_bytes: heap.pool.reserved_high(),
            shared_locks: self.lock_count.load(Ordering::Relaxed),
        }
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        let heap = self.heap.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        lock(&self.context.closing).push(Closing { heap, range: self.range });
        self.context.finish_closing();
    }
}

/// A view whose life is over.
#[derive(Debug)]
pub(crate) struct Stale {
    /// Where it was freed and what it was, if that is still known.
    pub(crate) ended: Option<(Use, Subject)>,
}

impl Pool {
    /// Its number on its device.
    pub fn id(&self) -> PoolId {
        self.owner.shared.id
    }

    /// What is used and reserved, now and at most (CUDA: `cudaMemPoolAttrUsedMemCurrent` and its siblings).
    pub fn statistics(&self) -> PoolStatistics {
        self.owner.shared.statistics()
    }

    /// Sets the high mark of used bytes to the current value (CUDA: `cudaMemPoolAttrUsedMemHigh` set to 0).
    pub fn reset_used_high(&self) {
        let shared = &self.owner.shared;
        shared.lock().settle(&lock(&shared.shelves), true);
    }

    /// Sets the high mark of reserved bytes to the current value (CUDA: `cudaMemPoolAttrReservedMemHigh` set to 0).
    pub fn reset_reserved_high(&self) {
        self.owner.shared.lock().pool.reset_reserved_high();
    }

    /// When memory freed on one stream may serve another, for later allocations (CUDA: `cudaMemPoolReuse...`).
    pub fn set_reuse(&self, reuse: ReusePolicy) {
        self.owner.shared.lock().pool.set_reuse(reuse);
    }

    /// Bytes to keep at a synchronisation (CUDA: `cudaMemPoolAttrReleaseThreshold`). The default is 0: everything
    /// idle goes back to the system whenever the host synchronises.
    pub fn set_release_threshold(&self, bytes: u64) {
        self.owner.shared.lock().pool.set_release_threshold(bytes);
    }

    /// The settings.
    pub fn config(&self) -> PoolConfig {
        self.owner.shared.lock().pool.config().clone()
    }

    /// Gives memory back to the system until `keep_bytes` are left, as far as it is not in use: not under live
    /// allocations, nor where freed memory may still be touched by work in flight (CUDA: `cudaMemPoolTrimTo`).
    ///
    /// # Errors
    /// The device refused to unmap; what was given back before stays so.
    pub fn trim_to(&self, keep_bytes: u64) -> Result<()> {
        self.owner.shared.trim_to(keep_bytes)
    }
}

impl PoolShared {
    pub(crate) fn trim_to(&self, keep_bytes: u64) -> Result<()> {
        self.drain_shelves(None::<(&StreamShared, &mut crate::stream::State)>);
        let mut heap = self.lock();
        let poll = self.context.chains.poll(&*self.context.driver);
        heap.pool.retire(&poll);
        heap.pool.trim(keep_bytes, &poll);
        drop(poll);
        crate::shell::apply_steps(&self.context, &mut heap).map_err(Error::from)
    }
}

/// Allocations are numbered over a device.
pub(crate) fn next_alloc_id(context: &Context) -> AllocId {
    AllocId(context.next_alloc.fetch_add(1, Ordering::Relaxed))
}
