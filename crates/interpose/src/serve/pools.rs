//! Pools by the driver's handle; their settings; the current pool of each device.
//!
//! Device memory that no other process can open is Millpond's. Pools of other kinds (shareable ones, those of the host,
//! managed, imported) are the driver's. Settings go to both twins. The driver's twin answers for what both know,
//! Millpond's for what is reserved and used.

use crate::ranks;
use millpond_driver::locks::{self, RwLock};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::error::Invalid;
use millpond::pool::PeerAccess;
use millpond::{Error, PoolConfig};
use millpond_driver::cuda::abi::AllocationProp;
use millpond_driver::cuda::abi::pool::attribute;

use super::devices::{self, Served};
use super::{Table, begin, figures, is_ours, put, say_left};
use crate::abi::{AccessDesc, Code, Location, Pool, PoolProps};
use crate::ask;
use crate::calls::{list, read};

/// A pool of Millpond's.
#[derive(Debug)]
pub(crate) struct ServedPool {
    pub(super) served: &'static Served,
    pub(super) ordinal: i32,
    pub(super) pool: millpond::Pool,
    /// The driver's twin.
    pub(super) handle: Pool,
    /// The bytes to keep at a synchronisation.
    pub(super) threshold: AtomicU64,
}

/// The pools that were seen; `None` for the driver's own.
static POOLS: RwLock<ranks::Served, Table<Pool, Option<Arc<ServedPool>>>> = RwLock::new(None);
/// The current pool of each device, once it is known; `None` for one of the driver's.
static CURRENT: RwLock<ranks::Current, Table<i32, Option<Arc<ServedPool>>>> = RwLock::new(None);

/// Returns the pool of a handle, if it is Millpond's.
pub(super) fn find(handle: Pool) -> Option<Arc<ServedPool>> {
    let pools = locks::read(&POOLS);
    match pools.as_ref().and_then(|all| all.get(&handle)) {
        Some(known) => known.clone(),
        None => {
            drop(pools);
            meet(handle)
        }
    }
}

/// Looks a handle up that was not made here: a device's default pool, or another one of the driver's.
#[cold]
fn meet(handle: Pool) -> Option<Arc<ServedPool>> {
    let ordinal = (0..ask::devices()).find(|device| ask::default_pool_of(*device) == Some(handle));
    let found = ordinal.and_then(devices::device).map(|served| enlisted(served, served.trusted.pool().clone(), handle));
    keep(handle, found)
}

fn enlisted(served: &'static Served, pool: millpond::Pool, handle: Pool) -> Arc<ServedPool> {
    let threshold = ask::pool_bytes(handle, attribute::RELEASE_THRESHOLD).unwrap_or(0);
    let threshold = AtomicU64::new(threshold);
    Arc::new(ServedPool { served, ordinal: served.ordinal, pool, handle, threshold })
}

/// Keeps a pool. If two threads look the same pool up, the first one's counts.
fn keep(handle: Pool, pool: Option<Arc<ServedPool>>) -> Option<Arc<ServedPool>> {
    let mut pools = locks::write(&POOLS);
    pools.get_or_insert_default().entry(handle).or_insert(pool).clone()
}

/// Returns the current pool of a device, if it is Millpond's.
#[inline]
pub(super) fn current_of(ordinal: i32) -> Option<Arc<ServedPool>> {
    let current = locks::read(&CURRENT);
    match current.as_ref().and_then(|all| all.get(&ordinal)) {
        Some(known) => known.clone(),
        None => {
            drop(current);
            learn_current(ordinal)
        }
    }
}

/// Asks the driver for the current pool.
#[cold]
fn learn_current(ordinal: i32) -> Option<Arc<ServedPool>> {
    // The driver is asked under the lock. A call that changes the pool removes the answer afterwards, so an old one
    // does not stay.
    let mut current = locks::write(&CURRENT);
    let found = find(ask::pool_of(ordinal)?);
    current.get_or_insert_default().entry(ordinal).or_insert(found).clone()
}

fn forget_current(ordinal: i32) {
    locks::write(&CURRENT).get_or_insert_default().remove(&ordinal);
}

/// Returns all pools of Millpond's.
pub(super) fn all() -> Vec<Arc<ServedPool>> {
    let pools = locks::read(&POOLS);
    pools.iter().flatten().filter_map(|(_, pool)| pool.clone()).collect()
}

/// Returns all handles that were seen, Millpond's and the driver's.
pub(super) fn handles() -> Vec<Pool> {
    let pools = locks::read(&POOLS);
    pools.iter().flatten().map(|(handle, _)| *handle).collect()
}

/// Drops everything of a device. Its pools are leaked: they could not give anything back.
pub(super) fn lose(ordinal: i32) {
    let mut pools = locks::write(&POOLS);
    let is_gone = |pool: &Arc<ServedPool>| pool.ordinal == ordinal;
    for (_, pool) in pools.get_or_insert_default().extract_if(|_, pool| pool.as_ref().is_some_and(is_gone)) {
        std::mem::forget(pool);
    }
    drop(pools);
    forget_current(ordinal);
}

/// `cuMemPoolCreate`
pub(crate) fn create(code: Code, handle: Option<Pool>, props: Option<PoolProps>) -> Code {
    let (Some(handle), Some(props)) = (handle, props) else { return code };
    if code == Code::SUCCESS {
        begin();
        drop(keep(handle, if is_ours() { twin(handle, &props) } else { None }));
    }
    code
}

fn twin(handle: Pool, props: &PoolProps) -> Option<Arc<ServedPool>> {
    // Pinned memory of a device, for this process only.
    let is_plain = props.kind == AllocationProp::PINNED && props.handle_types == 0;
    if !is_plain || props.location.kind != Location::DEVICE {
        return None;
    }
    // RMM asks for memory that can be decompressed whenever the driver knows this usage. A device without the engine
    // returns plain memory.
    match props.usage {
        0 => {}
        PoolProps::DECOMPRESSION if !ask::decompresses(props.location.id) => {}
        _ => return None,
    }
    let served = devices::device(props.location.id)?;
    let max_bytes = Some(props.max_bytes as u64).filter(|bytes| *bytes > 0);
    match served.device.pool(PoolConfig::default().release_threshold(u64::MAX).max_bytes(max_bytes)) {
        Ok(pool) => Some(enlisted(served, pool, handle)),
        Err(error) => {
            say_left("a pool", &error);
            None
        }
    }
}

/// `cuMemPoolDestroy`: the pool leaves the table before the driver can give its handle out again. Allocations from it
/// stay live.
pub(crate) fn destroy(handle: Pool, real: impl Fn() -> Code) -> Code {
    let gone = locks::write(&POOLS).get_or_insert_default().remove(&handle);
    let ours = gone.as_ref().and_then(Option::as_deref).map(|it| (it.ordinal, &it.pool));
    let last = figures::last_of(handle, ours);
    let code = real();
    if code == Code::SUCCESS {
        last.into_iter().for_each(figures::retire);
    }
    match (gone, code) {
        (Some(pool), Code::SUCCESS) => {
            let ordinal = pool.as_ref().map(|it| it.ordinal);
            // If a device's current pool is destroyed, its default pool is current again.
            let mut current = locks::write(&CURRENT);
            current.get_or_insert_default().retain(|device, _| ordinal.is_some_and(|it| it != *device));
            drop((current, pool));
            code
        }
        (Some(pool), _) => {
            drop(keep(handle, pool));
            code
        }
        (None, _) => code,
    }
}

/// `cuMemPoolSetAccess`
///
/// # Safety
/// If the call succeeded, `count` elements are valid.
pub(crate) unsafe fn set_access(code: Code, handle: Pool, access: *const AccessDesc, count: usize) -> Code {
    let Some(pool) = of_success(code, handle) else { return code };
    // SAFETY: the caller's promise.
    let access = unsafe { list(access, count) };
    let others = access.iter().filter(|it| it.location.kind == Location::DEVICE && it.location.id != pool.ordinal);
    for desc in others {
        let Some(other) = devices::device(desc.location.id) else { return Code::NOT_SUPPORTED };
        let reach = match desc.flags {
            AccessDesc::NONE => PeerAccess::None,
            AccessDesc::READ => PeerAccess::Read,
            _ => PeerAccess::ReadWrite,
        };
        if let Err(error) = pool.pool.grant(&other.device, reach) {
            return code_of(&error);
        }
    }
    Code::SUCCESS
}

/// Returns Millpond's pool of a call that the driver's twin has accepted.
fn of_success(code: Code, handle: Pool) -> Option<Arc<ServedPool>> {
    if code == Code::SUCCESS && is_ours() { find(handle) } else { None }
}

fn code_of(error: &Error) -> Code {
    match error {
        Error::OutOfMemory(_) => Code::OUT_OF_MEMORY,
        Error::InvalidArgument(reason) if matches!(**reason, Invalid::NotPeers { .. }) => Code::INVALID_DEVICE,
        Error::InvalidArgument(_) => Code::INVALID_VALUE,
        _ => Code::UNKNOWN,
    }
}

/// `cuDeviceSetMemPool`; `device` is `None` if the location is not a device.
pub(crate) fn set_current(code: Code, device: Option<c_int>) -> Code {
    if code == Code::SUCCESS {
        device.into_iter().for_each(forget_current);
    }
    code
}

/// `cuMemPoolTrimTo`
pub(crate) fn trim(code: Code, handle: Pool, keep_bytes: usize) -> Code {
    let Some(pool) = of_success(code, handle) else { return code };
    match pool.pool.trim_to(keep_bytes as u64) {
        Ok(()) => Code::SUCCESS,
        Err(error) => code_of(&error),
    }
}

/// `cuMemPoolSetAttribute`
///
/// # Safety
/// The place is null, or valid for the attribute's type.
pub(crate) unsafe fn set_attribute(code: Code, handle: Pool, which: c_int, value: *mut c_void) -> Code {
    let Some(pool) = of_success(code, handle) else { return code };
    match which {
        attribute::FOLLOW_EVENTS..=attribute::INTERNAL => {
            // SAFETY: the caller's place, for a number by these attributes.
            let wish = unsafe { read(value.cast::<c_int>()) } != Some(0);
            pool.pool.update_reuse(|reuse| match which {
                attribute::FOLLOW_EVENTS => reuse.follow_event_dependencies = wish,
                attribute::OPPORTUNISTIC => reuse.allow_opportunistic = wish,
                _ => reuse.allow_internal_dependencies = wish,
            });
        }
        attribute::RELEASE_THRESHOLD => {
            // SAFETY: the caller's place, for a number of 64 bits by this attribute.
            let bytes = unsafe { read(value.cast::<u64>()) }.unwrap_or(0);
            pool.threshold.store(bytes, Ordering::Relaxed);
        }
        attribute::RESERVED_HIGH => pool.pool.reset_reserved_high(),
        attribute::USED_HIGH => pool.pool.reset_used_high(),
        _ => {}
    }
    code
}

/// `cuMemPoolGetAttribute`
///
/// # Safety
/// The place is null, or valid for the attribute's type.
pub(crate) unsafe fn attribute(code: Code, handle: Pool, which: c_int, value: *mut c_void) -> Code {
    let Some(pool) = of_success(code, handle) else { return code };
    let figures = pool.pool.statistics();
    let bytes = match which {
        attribute::RESERVED => figures.reserved_bytes,
        attribute::RESERVED_HIGH => figures.reserved_high_bytes,
        attribute::USED => figures.used_bytes,
        attribute::USED_HIGH => figures.used_high_bytes,
        _ => return code,
    };
    // SAFETY: the caller's place, for a number of 64 bits by these attributes.
    unsafe { put(value.cast::<u64>(), bytes) };
    code
}
