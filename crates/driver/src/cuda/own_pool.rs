//! CUDA's own pool of a device, as programs use it by `cuMemAllocAsync`: measured beside Millpond's.
//!
//! What is allocated here is freed before the call returns and its address never leaves it, so that there is nothing to
//! misuse.

use super::abi::pool::Pool;
use super::abi::pool::attribute::RELEASE_THRESHOLD;
use super::abi::{Address, EVENT_DISABLE_TIMING, Event, STREAM_NON_BLOCKING, Stream};
use super::config::CudaConfig;
use super::gpu::{Entered, Gpu};
use super::table::{Api, PoolTable};
use crate::Result;
use crate::errors::failed;

/// The call that errors name.
const CALL: &str = "measure CUDA's own pool";

/// The default pool of a device (`cuDeviceGetDefaultMemPool`), made to keep what it has: a release threshold of
/// `u64::MAX`, until this is dropped.
#[derive(Debug)]
pub struct OwnPool {
    gpu: Gpu,
    table: PoolTable,
    pool: Pool,
    threshold: u64,
}

/// A non-blocking stream on which memory of the pool is allocated and freed.
#[derive(Debug)]
pub struct OwnStream<'a> {
    pool: &'a OwnPool,
    native: Stream,
    event: Event,
}

impl OwnPool {
    /// The default pool of a device. The limit of the settings is not for it.
    ///
    /// # Errors
    /// The driver library or a function of it is missing, there is no such device, or it has no pools.
    pub fn open(config: &CudaConfig) -> Result<Self> {
        let (api, table) = Api::load_with_pools(config.library.as_deref())?;
        let gpu = Gpu::new(api, config.ordinal)?;
        let (mut pool, mut threshold) = (Pool::default(), 0_u64);
        let entered = gpu.enter(CALL)?;
        // SAFETY: a place for a pool, and a device.
        entered.check(CALL, unsafe { (table.default_pool)(&raw mut pool, gpu.device) })?;
        // SAFETY: a pool, and a place for what the attribute is.
        entered.check(CALL, unsafe { (table.get)(pool, RELEASE_THRESHOLD, (&raw mut threshold).cast()) })?;
        drop(entered);
        let own = Self { gpu, table, pool, threshold };
        own.keep(u64::MAX)?;
        Ok(own)
    }

    /// A stream.
    ///
    /// # Errors
    /// The library refuses.
    pub fn stream(&self) -> Result<OwnStream<'_>> {
        let entered = self.gpu.enter(CALL)?;
        let mut stream = OwnStream { pool: self, native: Stream::default(), event: Event::default() };
        // SAFETY: a place for a stream.
        let code = unsafe { (entered.table.open_stream)(&raw mut stream.native, STREAM_NON_BLOCKING) };
        entered.check(CALL, code)?;
        // SAFETY: a place for an event.
        let code = unsafe { (entered.table.open_event)(&raw mut stream.event, EVENT_DISABLE_TIMING) };
        entered.check(CALL, code)?;
        Ok(stream)
    }

    fn keep(&self, mut threshold: u64) -> Result<()> {
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: the device's pool, and a number of the attribute's type.
        entered.check(CALL, unsafe { (self.table.set)(self.pool, RELEASE_THRESHOLD, (&raw mut threshold).cast()) })
    }

    #[inline]
    fn alloc(&self, entered: &Entered<'_>, bytes: usize, stream: Stream) -> Result<Address> {
        let mut at = 0;
        // SAFETY: a place for an address, and a stream of the context that is entered.
        entered.check(CALL, unsafe { (self.table.alloc)(&raw mut at, bytes, stream) })?;
        Ok(at)
    }

    #[inline]
    fn free(&self, entered: &Entered<'_>, at: Address, stream: Stream) -> Result<()> {
        // SAFETY: what `alloc` gave, for the only time, ordered after that.
        entered.check(CALL, unsafe { (self.table.free)(at, stream) })
    }
}

impl Drop for OwnPool {
    /// The pool is as it was: what it kept goes back when the device is waited for.
    fn drop(&mut self) {
        // A refusal leaves the memory to the process.
        let _ = self.keep(self.threshold);
        self.gpu.synchronize();
    }
}

impl OwnStream<'_> {
    /// So many allocations, each freed on this stream.
    ///
    /// # Errors
    /// The library refuses.
    pub fn pairs(&self, bytes: usize, calls: u32) -> Result<()> {
        let entered = self.pool.gpu.enter(CALL)?;
        for _ in 0..calls {
            let at = self.pool.alloc(&entered, bytes, self.native)?;
            self.pool.free(&entered, at, self.native)?;
        }
        Ok(())
    }

    /// So many allocations, each handed over by an event and freed on another stream.
    ///
    /// # Errors
    /// The library refuses, or the other stream is one of another pool.
    pub fn hand_overs(&self, other: &OwnStream<'_>, bytes: usize, calls: u32) -> Result<()> {
        if !std::ptr::eq(self.pool, other.pool) {
            return Err(failed(CALL, "the streams are of two pools"));
        }
        let entered = self.pool.gpu.enter(CALL)?;
        for _ in 0..calls {
            let at = self.pool.alloc(&entered, bytes, self.native)?;
            let ordered = self.order_before(&entered, other);
            // Where they are not ordered it is freed where it was allocated.
            self.pool.free(&entered, at, if ordered.is_ok() { other.native } else { self.native })?;
            ordered?;
        }
        Ok(())
    }

    #[inline]
    fn order_before(&self, entered: &Entered<'_>, other: &OwnStream<'_>) -> Result<()> {
        // SAFETY: an event and a stream of the context that is entered.
        entered.check(CALL, unsafe { (entered.table.record_event)(self.event, self.native) })?;
        // SAFETY: as above.
        entered.check(CALL, unsafe { (entered.table.wait_event)(other.native, self.event, 0) })
    }
}

impl Drop for OwnStream<'_> {
    fn drop(&mut self) {
        let Ok(entered) = self.pool.gpu.enter(CALL) else { return };
        if self.event != Event::default() {
            // SAFETY: an event of ours, for the last time. A refusal leaves it to the context.
            let _ = unsafe { (entered.table.close_event)(self.event) };
        }
        if self.native != Stream::default() {
            // SAFETY: as above, a stream.
            let _ = unsafe { (entered.table.close_stream)(self.native) };
        }
    }
}
