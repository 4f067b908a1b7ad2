//! A pool: the source of allocations (CUDA: `cudaMemPool_t`). The handle and its settings.

use std::sync::Arc;

use millpond_core::ids::PoolId;
use millpond_core::pool::ReusePolicy;
use millpond_driver::locks::lock;
use millpond_driver::process;

use crate::names::error::Result;
use crate::names::statistics::PoolStatistics;
use crate::state::pool::PoolShared;

/// A pool of a device. Clones name the same pool; it is destroyed when the last one is dropped.
///
/// Its allocations stay valid and can still be freed; its memory is returned to the system with the last of them (CUDA:
/// `cudaMemPoolDestroy`).
///
/// ```
/// # use millpond::{Device, Error, HostConfig, MIB, PoolConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let pool = device.pool(PoolConfig::default().max_bytes(64 * MIB))?;
/// let stream = device.stream()?;
/// let x = stream.alloc::<u8>(&pool, 1000)?;
/// assert_eq!(pool.statistics().used_bytes, 1000);
/// let refused = stream.alloc::<u8>(&pool, 128 * MIB as usize).unwrap_err();
/// assert!(matches!(refused, Error::OutOfMemory(_)));
/// drop(pool);
/// stream.free(x)?; // its memory outlives the handle
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(crate) shared: Arc<PoolShared>,
    _owner: Arc<Owner>,
}

/// Destroys the pool when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    shared: Arc<PoolShared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        if let Some(tracer) = &self.shared.context.tracer {
            tracer.pool_closed(self.shared.id);
        }
        self.shared.destroy();
    }
}

impl Pool {
    pub(crate) fn new(shared: Arc<PoolShared>) -> Self {
        Self { shared: Arc::clone(&shared), _owner: Arc::new(Owner { shared }) }
    }

    /// Returns the shared state, for owners that keep it.
    pub(crate) fn arc(&self) -> &Arc<PoolShared> {
        &self.shared
    }

    /// Returns the pool's number on its device.
    pub fn id(&self) -> PoolId {
        self.shared.id
    }

    /// Names the pool. Messages and `{:?}` use the name in place of the number. A later name replaces it. In a forked
    /// process this has no effect.
    pub fn set_name(&self, name: &str) {
        if !process::is_forked() {
            *lock(&self.shared.name) = Some(name.into());
        }
    }

    /// Names the pool and returns it, as with [`set_name`](Self::set_name):
    ///
    /// ```
    /// # use millpond::{Device, HostConfig, MIB, PoolConfig};
    /// # fn main() -> millpond::Result<()> {
    /// let device = Device::host(HostConfig::default())?;
    /// let pool = device.pool(PoolConfig::default().max_bytes(64 * MIB))?.named("kv cache");
    /// let refused = device.stream()?.alloc::<u8>(&pool, 128 * MIB as usize).unwrap_err();
    /// assert!(refused.to_string().starts_with("out of memory in pool `kv cache`: "), "{refused}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        self.set_name(&name.into());
        self
    }

    /// Returns the pool's name, if it has one.
    pub fn name(&self) -> Option<String> {
        self.shared.title().name
    }

    /// Returns the bytes in use and reserved, current and highest (CUDA: `cudaMemPoolAttrUsedMemCurrent` and its
    /// siblings).
    pub fn statistics(&self) -> PoolStatistics {
        self.shared.statistics()
    }

    /// Sets the high-water mark of used bytes to the current value (CUDA: `cudaMemPoolAttrUsedMemHigh` set to 0).
    pub fn reset_used_high(&self) {
        self.shared.lock().reset_used_high();
    }

    /// Sets the high-water mark of reserved bytes to the current value (CUDA: `cudaMemPoolAttrReservedMemHigh` set to
    /// 0).
    pub fn reset_reserved_high(&self) {
        self.shared.lock().pool.reset_reserved_high();
    }

    /// Sets the rules by which memory freed on one stream may be reused on another, for later allocations (CUDA:
    /// `cudaMemPoolReuse...`).
    pub fn set_reuse(&self, reuse: ReusePolicy) {
        self.shared.lock().pool.set_reuse(reuse);
    }

    /// Changes some of these rules and keeps the others, also if another thread sets some at the same time. The pool is
    /// locked while `change` runs, so `change` must not call the pool.
    pub fn update_reuse(&self, change: impl FnOnce(&mut ReusePolicy)) {
        let mut heap = self.shared.lock();
        let mut reuse = heap.pool.config().reuse;
        change(&mut reuse);
        heap.pool.set_reuse(reuse);
    }

    /// Sets the bytes to keep at a synchronisation (CUDA: `cudaMemPoolAttrReleaseThreshold`). The default is 0: all
    /// idle memory is returned to the system whenever the host synchronises.
    pub fn set_release_threshold(&self, bytes: u64) {
        self.shared.lock().pool.set_release_threshold(bytes);
    }

    /// Sets the most memory that the pool may have from now on. Idle memory beyond that is returned to the system now,
    /// and the rest whenever the host synchronises.
    ///
    /// # Errors
    /// The pool could not allocate any memory with this limit
    /// ([`PoolConfig::max_bytes`](crate::PoolConfig::max_bytes)).
    pub fn set_max_bytes(&self, max_bytes: Option<u64>) -> Result<()> {
        let is_apart = self.shared.is_apart;
        let config = crate::PoolConfig { max_bytes, ..self.config() };
        let core = config.to_core(self.shared.context.properties.granularity, is_apart)?;
        self.shared.lock().set_max_bytes(core.max_bytes);
        if max_bytes.is_some_and(|max_bytes| self.shared.lock().pool.reserved() > max_bytes) {
            // Memory that the device refuses to take back stays until a synchronisation.
            let _ = self.shared.trim_to(core.max_bytes);
        }
        Ok(())
    }

    /// Returns the present settings.
    pub fn config(&self) -> crate::PoolConfig {
        let core = self.shared.lock().pool.config().clone();
        crate::PoolConfig::of_core(core, self.shared.guard, self.shared.shareable)
    }

    /// Checks every invariant of the pool's bookkeeping from scratch: for tests, as slow as the pool is large.
    ///
    /// # Errors
    /// The violated invariant.
    #[doc(hidden)]
    pub fn audit(&self) -> std::result::Result<(), String> {
        process::refuse_forked().map_err(|error| error.to_string())?;
        self.shared.lock().pool.audit()
    }

    /// Returns memory to the system until `keep_bytes` are left, as far as it is not in use: not memory of live
    /// allocations, and not freed memory that work in flight may still access (CUDA: `cudaMemPoolTrimTo`).
    ///
    /// # Errors
    /// The device refused to unmap. Memory that was returned before stays returned.
    pub fn trim_to(&self, keep_bytes: u64) -> Result<()> {
        self.shared.trim_to(keep_bytes)
    }
}

impl PoolShared {
    /// Destroys the pool after its last handle is dropped: it serves nothing any more, returns idle memory now, and the
    /// rest with its last free.
    fn destroy(&self) {
        self.stop_serving();
        self.lock().keep_no_exposed();
        self.trim_if_destroyed();
    }
}
