//! The only caller of the driver's unsafe calls, except for adopted streams (`api/adopt.rs`): it executes the core's
//! decisions.
//!
//! Knows the heap's steps, streams' raw handles and the driver; decides nothing. The invariants cited here are those of
//! `millpond_core::pool` (APART, LEGAL, SAFE, STEPWISE).

use std::sync::Arc;

use millpond_core::ids::{ChunkId, Point};
use millpond_core::order::Completed;
use millpond_core::pool::Step;
use millpond_core::units::{Range, round_up};
use millpond_driver::locks::lock;
use millpond_driver::{Access, CopyKind, Driver, DriverError, Node, RawChunk, RawExec, RawStream, Result, Work};

use crate::clock::chains::Poll;
use crate::clock::device_event::CountedDriver;
use crate::clock::progress::EndThen;
use crate::pool::grants::open_mapping;
use crate::state::context::Context;
use crate::state::pool::{Closing, Heap};
use crate::state::retired::Asked;

/// Host memory is allocated in whole pages.
const HOST_PAGE: u64 = 4096;

/// The number of attempts for a call that must succeed once work was submitted.
pub(crate) const TRIES: usize = 3;

/// Executes the heap's steps one by one; if one fails, the heap forgets the rest.
pub(crate) fn apply_steps(context: &Context, heap: &mut Heap) -> Result<()> {
    while let Some(step) = heap.pool.next_step() {
        if let Err(error) = apply(context, heap, step) {
            heap.pool.failed();
            return Err(error);
        }
        heap.pool.applied();
    }
    Ok(())
}

fn apply(context: &Context, heap: &mut Heap, step: Step) -> Result<()> {
    match step {
        Step::Create { chunk, bytes } => {
            let raw = match heap.shareable {
                true => context.driver.create_shareable(bytes)?,
                false => context.driver.create(bytes)?,
            };
            heap.add_chunk(chunk, raw);
            Ok(())
        }
        Step::Map { chunk, at, bytes } => {
            let raw = raw_chunk(heap, chunk)?;
            // SAFETY: the pool maps whole chunks into unmapped parts of its own reservation (SAFE, STEPWISE).
            unsafe { context.driver.map(raw, at, bytes) }?;
            if let Err(error) = open_mapping(&context.driver, &heap.grants, at, bytes) {
                // SAFETY: mapped just now, and used by no other code.
                let _ = unsafe { context.driver.unmap(at, bytes) };
                return Err(error);
            }
            heap.mappings.insert(at, bytes);
            Ok(())
        }
        Step::Unmap { at, bytes, .. } => {
            // SAFETY: the pool unmaps a range only when all frees in it have completed (SAFE).
            unsafe { context.driver.unmap(at, bytes) }?;
            heap.mappings.remove(&at);
            Ok(())
        }
        Step::Destroy { chunk, .. } => {
            context.driver.destroy(raw_chunk(heap, chunk)?)?;
            heap.chunks[chunk.index()] = None;
            Ok(())
        }
    }
}

fn raw_chunk(heap: &Heap, chunk: ChunkId) -> Result<RawChunk> {
    heap.chunks.get(chunk.index()).copied().flatten().map(|chunk| chunk.raw).ok_or_else(|| unknown(chunk.0))
}

/// Returns the error of a chunk that was never created. This cannot happen while the pool's steps are executed in
/// order.
#[cold]
fn unknown(chunk: u32) -> DriverError {
    DriverError::UnknownHandle { call: "map", what: "chunk of the pool", handle: chunk.into() }
}

impl Closing {
    /// Releases memory that no work uses any more. Returns `true` if that was all. Never waits. If the system refuses
    /// to take memory back, this is tried again until the device is dropped.
    pub(crate) fn finish(&mut self, context: &Context) -> bool {
        let poll = context.chains.poll(&*context.driver);
        self.heap.pool.trim(0, &poll);
        drop(poll);
        matches!(self.give_back(context), Ok(true) | Err(DriverError::Lost { .. }))
    }

    fn give_back(&mut self, context: &Context) -> Result<bool> {
        apply_steps(context, &mut self.heap)?;
        match (self.heap.pool.idle(), self.heap.pool.reserved()) {
            // SAFETY: all mappings are gone, and so is all work that used these addresses (SAFE).
            (_, 0) => unsafe { context.driver.unreserve(self.range.start, self.range.bytes) }.map(|()| true),
            // Blocks that the program leaked are kept for ever, with their addresses.
            (0, _) => Ok(true),
            _ => Ok(false),
        }
    }
}

/// Queries the device for dropped pinned memory.
struct Device<'a> {
    poll: Poll<'a>,
    driver: &'a Arc<CountedDriver>,
}

impl Completed for Device<'_> {
    fn is_over(&self, point: Point) -> bool {
        self.poll.is_over(point)
    }
}

impl Asked for Device<'_> {
    type End = EndThen;

    fn end_now(&self, point: Point) -> Option<EndThen> {
        self.poll.end_now(point, self.driver)
    }

    fn is_past(&self, end: &EndThen) -> bool {
        end.settle()
    }
}

impl Context {
    fn ask(&self) -> Device<'_> {
        Device { poll: self.chains.poll(&*self.driver), driver: &self.driver }
    }

    /// Returns host memory for a pinned buffer of this many bytes: its address and size. Reuses the memory of a dropped
    /// buffer if possible.
    pub(crate) fn host_memory(&self, bytes: u64) -> Result<(u64, u64)> {
        let whole = round_up(bytes, HOST_PAGE).unwrap_or(bytes);
        let found = {
            let mut retired = lock(&self.retired);
            // Checked first, because a query makes driver calls.
            (!retired.is_empty()).then(|| retired.take(whole, &self.ask())).flatten()
        };
        if let Some(found) = found {
            return Ok((found.at, found.bytes));
        }
        let at = match self.driver.alloc_host(whole) {
            Err(DriverError::OutOfHostMemory { .. }) => {
                self.free_retired();
                self.driver.alloc_host(whole)
            }
            made => made,
        };
        at.map(|at| (at, whole))
    }

    /// Frees the memory of dropped pinned buffers that no copy uses any more. Memory that the device refuses to free is
    /// tried again the next time.
    pub(crate) fn free_retired(&self) {
        let mut free = {
            let mut retired = lock(&self.retired);
            if retired.is_empty() {
                return;
            }
            retired.take_free(&self.ask())
        };
        // SAFETY: its buffer was dropped, and all its copies have completed (pinned-after-copies).
        free.retain(|it| unsafe { self.driver.free_host(it.at) }.is_err());
        let mut retired = lock(&self.retired);
        free.into_iter().for_each(|it| retired.add(it));
    }
}

/// Maps a chunk of the graphs' memory at an address of an arena.
pub(crate) fn map_graph_chunk(context: &Context, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the address is in the arena's reservation, and the former mapping there was removed (mapped-once).
    unsafe { context.driver.map(chunk, at, bytes) }
}

/// Removes one mapping of a graphs' chunk.
pub(crate) fn unmap_graph_chunk(context: &Context, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the callers know that all launches that used the address have completed, and that no live memory is there
    // (held).
    unsafe { context.driver.unmap(at, bytes) }
}

/// Frees the addresses of an arena, in which nothing is mapped any more.
pub(crate) fn unreserve_graph_addresses(context: &Context, range: Range) -> Result<()> {
    // SAFETY: the arena is gone, all work has completed, and its mappings were removed.
    unsafe { context.driver.unreserve(range.start, range.bytes) }
}

/// Maps a chunk of another process at an address of a window.
pub(crate) fn map_import(context: &Context, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the window's reservation was made for its chunks, one after the other, and each is mapped once.
    unsafe { context.driver.map(chunk, at, bytes) }
}

/// Removes a mapping of a window.
pub(crate) fn unmap_import(context: &Context, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the import's lifetime has ended, and its uses have completed: the callers waited, or the host knows it.
    unsafe { context.driver.unmap(at, bytes) }
}

/// Frees a window's addresses, in which nothing is mapped any more.
pub(crate) fn unreserve_import(context: &Context, range: Range) -> Result<()> {
    // SAFETY: as in `unmap_import`; all its mappings were removed.
    unsafe { context.driver.unreserve(range.start, range.bytes) }
}

/// Appends a checked launch: a closure that runs as a kernel. If the device refuses it, it stays in `task`, and is
/// dropped while no lock is held, because dropping a closure runs its owner's code.
pub(crate) fn submit_task(context: &Context, stream: RawStream, task: &mut Option<Work>) -> Result<()> {
    // SAFETY: the launch's accesses are checked and recorded, so that the memory outlives the work and no unordered
    // work conflicts (LEGAL, and the histories of the allocations).
    unsafe { context.driver.submit(stream, task) }
}

/// Appends a checked copy of host bytes to the device. The device keeps the bytes until the copy has completed.
pub(crate) fn submit_upload(context: &Context, stream: RawStream, to: u64, from: Arc<Vec<u8>>) -> Result<()> {
    // SAFETY: as in `submit_task`.
    unsafe { context.driver.submit(stream, &mut Some(Work::Upload { to, from })) }
}

/// Appends a checked copy.
///
/// Host memory that it writes must live until the work has completed; the callers keep it.
pub(crate) fn submit_copy(
    context: &Context,
    stream: RawStream,
    to: u64,
    from: u64,
    bytes: u64,
    kind: CopyKind,
) -> Result<()> {
    // SAFETY: as in `submit_task`; ranges of two allocations do not overlap (APART), and the caller keeps host memory.
    unsafe { context.driver.submit(stream, &mut Some(Work::Copy { to, from, bytes, kind })) }
}

/// Appends a checked fill.
pub(crate) fn submit_fill(context: &Context, stream: RawStream, at: u64, bytes: u64, value: u8) -> Result<()> {
    // SAFETY: as in `submit_task`.
    unsafe { context.driver.submit(stream, &mut Some(Work::Fill { at, bytes, value })) }
}

/// Appends a change of the access to a block's bytes.
pub(crate) fn submit_protect(context: &Context, stream: RawStream, range: Range, access: Access) -> Result<()> {
    let work = Work::Protect { at: range.start, bytes: range.bytes, access };
    // SAFETY: the block belongs to this stream at this point: all uses come before its free, and the next lifetime
    // after it.
    unsafe { context.driver.submit(stream, &mut Some(work)) }
}

/// Makes a graph of the device.
pub(crate) fn instantiate_graph(context: &Context, nodes: &[Node]) -> Result<RawExec> {
    // SAFETY: its launches are checked, and all memory of a launch is bound before it; ranges of two allocations do not
    // overlap (APART), and the driver keeps what the nodes own.
    unsafe { context.driver.instantiate(nodes) }
}

/// Launches a graph of the device: a checked launch.
pub(crate) fn launch_graph(context: &Context, exec: RawExec, stream: RawStream) -> Result<()> {
    // SAFETY: as in `submit_task`, for all accesses of the graph's nodes; the graph's own memory is bound (one-user).
    unsafe { context.driver.launch(exec, stream) }
}
