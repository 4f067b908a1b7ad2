//! Pools: made, destroyed, opened to devices, made current.

use std::ffi::c_int;

use millpond_core::ids::DeviceId;
use millpond_core::op::{Reach, What};

use super::{device_at, list, read};
use crate::abi::{AccessDesc, Code, Location, Pool, PoolProps};
use crate::session::At;

/// `cuMemPoolCreate`
pub(crate) unsafe fn create(at: &At, real: impl FnOnce() -> Code, pool: *mut Pool, props: *const PoolProps) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let Some(pool) = (unsafe { read(pool) }) else { return };
        // SAFETY: the caller's structure.
        let exportable = unsafe { read(props) }.is_some_and(|props| props.handle_types != 0);
        let pool = session.handles.new_pool(pool);
        session.push(What::PoolCreate { pool, exportable });
    })
}

/// `cuMemPoolDestroy`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy(at: &At, real: impl FnOnce() -> Code, pool: Pool) -> Code {
    at.note(|session| {
        if let Some(id) = session.handles.pools.remove(&pool) {
            session.handles.current_pools.retain(|_, it| *it != id);
            session.push(What::PoolDestroy { pool: id });
        }
    });
    real()
}

/// `cuMemPoolSetAccess`
pub(crate) unsafe fn set_access(
    at: &At,
    real: impl FnOnce() -> Code,
    pool: Pool,
    access: *const AccessDesc,
    count: usize,
) -> Code {
    at.done(real(), |session| {
        let pool = session.pool(pool);
        // SAFETY: the caller's list.
        for desc in unsafe { list(access, count) } {
            let reach = match desc.flags {
                AccessDesc::NONE => Reach::None,
                AccessDesc::READ => Reach::Read,
                _ => Reach::ReadWrite,
            };
            session.push(What::PoolAccess { pool, device: DeviceId(desc.location.id as u32), reach });
        }
    })
}

/// `cuMemSetMemPool`
pub(crate) unsafe fn set_current_at(
    at: &At,
    real: impl FnOnce() -> Code,
    location: *const Location,
    _kind: c_int,
    pool: Pool,
) -> Code {
    // SAFETY: the caller's structure.
    match unsafe { device_at(location) } {
        // SAFETY: the caller's arguments.
        Some(device) => unsafe { set_current(at, real, device, pool) },
        None => real(),
    }
}

/// `cuDeviceSetMemPool`
pub(crate) unsafe fn set_current(at: &At, real: impl FnOnce() -> Code, device: c_int, pool: Pool) -> Code {
    at.done(real(), |session| {
        let pool = session.pool(pool);
        session.handles.current_pools.insert(device, pool);
    })
}
