//! Pools by the driver's handle; their settings; which one a device's streams take memory from.
//!
//! Memory of a device that no other process can open is ours. Pools of other kinds (shareable ones, those of the host,
//! managed, imported) are the driver's. Settings go to both twins: the driver's answers for what both know, ours for
//! what is reserved and used.

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

/// A pool of ours.
#[derive(Debug)]
pub(crate) struct ServedPool {
    pub(super) served: &'static Served,
    pub(super) ordinal: i32,
    pub(super) pool: millpond::Pool,
    /// The driver's twin.
    pub(super) handle: Pool,
    /// What is kept at a synchronisation.
    pub(super) threshold: AtomicU64,
}

/// Pools that were met; none for the driver's own.
static POOLS: RwLock<ranks::Served, Table<Pool, Option<Arc<ServedPool>>>> = RwLock::new(None);
/// The pool that streams of a device take memory from, once known; none for one of the driver's.
static CURRENT: RwLock<ranks::Current, Table<i32, Option<Arc<ServedPool>>>> = RwLock::new(None);

/// The pool of a handle, if it is ours.
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

/// A handle that was not made here: a device's default pool, or another of the driver's.
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

/// Of two threads that meet a pool the first one's counts.
fn keep(handle: Pool, pool: Option<Arc<ServedPool>>) -> Option<Arc<ServedPool>> {
    let mut pools = locks::write(&POOLS);
    pools.get_or_insert_default().entry(handle).or_insert(pool).clone()
}

/// The pool that a device's streams take memory from, if it is ours.
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

/// The driver knows which one it is.
#[cold]
fn learn_current(ordinal: i32) -> Option<Arc<ServedPool>> {
    // Asked under the lock: whoever changes it forgets the answer after that, so that an old one does not stay.
    let mut current = locks::write(&CURRENT);
    let found = find(ask::pool_of(ordinal)?);
    current.get_or_insert_default().entry(ordinal).or_insert(found).clone()
}

fn forget_current(ordinal: i32) {
    locks::write(&CURRENT).get_or_insert_default().remove(&ordinal);
}

/// All pools of ours.
pub(super) fn all() -> Vec<Arc<ServedPool>> {
    let pools = locks::read(&POOLS);
    pools.iter().flatten().filter_map(|(_, pool)| pool.clone()).collect()
}

/// All handles that were met, be they ours or the driver's.
pub(super) fn handles() -> Vec<Pool> {
    let pools = locks::read(&POOLS);
    pools.iter().flatten().map(|(handle, _)| *handle).collect()
}

/// Everything of a device is gone. Its pools are left as they are: they could not give anything back.
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
    // Pinned memory of a device, for this process.
    let is_plain = props.kind == AllocationProp::PINNED && props.handle_types == 0;
    if !is_plain || props.location.kind != Location::DEVICE {
        return None;
    }
    // RMM asks for memory that can be decompressed wherever the driver knows the word; a device without the engine
    // gives plain memory.
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

/// `cuMemPoolDestroy`: it leaves before the driver can give its handle out again. What is allocated from it lives on.
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
            // A device whose current pool goes takes memory from its default one again.
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
/// If the call succeeded: so many are valid.
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

/// The pool of ours that a call is about which the driver's twin has accepted.
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

/// `cuDeviceSetMemPool`; none where it is not a device's.
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
/// The place is null, or valid for what the attribute is.
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
/// The place is null, or valid for what the attribute is.
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
