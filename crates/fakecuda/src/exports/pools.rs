//! The functions of pools, and questions about addresses: see the module above.

use std::ffi::{c_int, c_uint, c_void};

use millpond_driver::cuda::abi::{AccessDesc, Code, Location};

use super::{entry, put, read};
use crate::contexts::current_device;
use crate::device::open;
use crate::pools::{Pools, pools};
use crate::settings;

/// As of `cuda.h`, as far as it is used.
#[derive(Clone, Copy)]
#[repr(C)]
struct PoolProps {
    kind: c_int,
    handle_types: c_int,
    location: Location,
}

/// What an attribute of a pointer is, written where the caller wants it.
///
/// # Safety
/// The place is null, or valid for what the attribute is.
unsafe fn pointer_attribute(place: *mut c_void, which: c_int, at: u64) -> Result<(), Code> {
    let (ordinal, device) = open::devices().find(|(_, device)| device.contains(at)).ok_or(Code::INVALID_VALUE)?;
    let allocation = device.allocation_around(at);
    let pool = || allocation.and_then(|(start, _)| pools().of(start)).ok_or(Code::INVALID_VALUE);
    match which {
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: a device's.
        // SAFETY: the caller's promise, as all below.
        2 => unsafe { put(place.cast::<c_uint>(), 2) },
        // SAFETY: as above.
        3 => unsafe { put(place.cast::<u64>(), at) },
        // SAFETY: as above.
        7 => unsafe { put(place.cast::<u64>(), allocation.map_or(1, |(start, _)| start)) },
        // SAFETY: as above.
        9 => unsafe { put(place.cast::<c_int>(), ordinal) },
        // SAFETY: as above.
        11 => unsafe { put(place.cast::<u64>(), device.range_around(at)?.0) },
        // SAFETY: as above.
        12 => unsafe { put(place.cast::<u64>(), device.range_around(at)?.1) },
        17 => {
            let pool = pool()?;
            // SAFETY: as above.
            unsafe { put(place.cast::<usize>(), pool) }
        }
        _ => Err(Code::INVALID_VALUE),
    }
}

exports! {
    "cuMemPoolCreate" cuMemPoolCreate(pool: *mut usize, props: *const c_void) {
        // SAFETY: the caller's structure.
        let PoolProps { kind, location, .. } = unsafe { read(props.cast::<PoolProps>()) }?;
        if kind != 1 || location.kind != Location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let made = pools().create(location.id)?;
        // SAFETY: the caller's place.
        unsafe { put(pool, made) }
    }
    "cuMemPoolDestroy" cuMemPoolDestroy(pool: usize) {
        pools().destroy(pool)
    }
    "cuMemPoolTrimTo" cuMemPoolTrimTo(pool: usize, _keep: usize) {
        pools().check(pool)
    }
    "cuMemPoolSetAttribute" cuMemPoolSetAttribute(pool: usize, which: c_int, value: *mut c_void) {
        let wish = match which {
            // SAFETY: the caller's place, by the attribute.
            1..=3 => unsafe { read(value.cast::<c_int>()) }? as u64,
            // SAFETY: as above.
            _ => unsafe { read(value.cast::<u64>()) }?,
        };
        pools().set_attribute(pool, which, wish)
    }
    "cuMemPoolGetAttribute" cuMemPoolGetAttribute(pool: usize, which: c_int, value: *mut c_void) {
        let answer = pools().attribute(pool, which)?;
        match which {
            // SAFETY: the caller's place, by the attribute.
            1..=3 => unsafe { put(value.cast::<c_int>(), answer as c_int) },
            // SAFETY: as above.
            _ => unsafe { put(value.cast::<u64>(), answer) },
        }
    }
    "cuMemPoolSetAccess" cuMemPoolSetAccess(pool: usize, access: *const AccessDesc, count: usize) {
        for at in 0..count {
            // SAFETY: the caller's list.
            let place = unsafe { access.add(at) };
            // SAFETY: as above.
            let AccessDesc { location, flags } = unsafe { read(place) }?;
            pools().set_access(pool, location.id, flags)?;
        }
        Ok(())
    }
    "cuMemPoolGetAccess" cuMemPoolGetAccess(flags: *mut c_int, pool: usize, location: *const Location) {
        // SAFETY: the caller's structure.
        let answer = pools().access(pool, unsafe { read(location) }?.id)?;
        // SAFETY: the caller's place.
        unsafe { put(flags, answer) }
    }
    "cuDeviceGetDefaultMemPool" cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) {
        let answer = Pools::default_of(device)?;
        // SAFETY: the caller's place.
        unsafe { put(pool, answer) }
    }
    "cuDeviceGetMemPool" cuDeviceGetMemPool(pool: *mut usize, device: c_int) {
        let answer = pools().current_of(device)?;
        // SAFETY: the caller's place.
        unsafe { put(pool, answer) }
    }
    "cuDeviceSetMemPool" cuDeviceSetMemPool(device: c_int, pool: usize) {
        pools().set_current(device, pool)
    }
    "cuPointerGetAttribute" cuPointerGetAttribute(place: *mut c_void, which: c_int, at: u64) {
        // SAFETY: the caller's place.
        unsafe { pointer_attribute(place, which, at) }
    }
    "cuPointerGetAttributes" cuPointerGetAttributes(
        count: c_uint, which: *const c_int, places: *const *mut c_void, at: u64
    ) {
        for number in 0..count as usize {
            // SAFETY: the caller's lists.
            let (which, place) = (unsafe { which.add(number) }, unsafe { places.add(number) });
            // SAFETY: as above.
            let (which, place) = (unsafe { read(which) }?, unsafe { read(place) }?);
            // What does not apply is left as it is.
            // SAFETY: the caller's place.
            let _ = unsafe { pointer_attribute(place, which, at) };
        }
        Ok(())
    }
    "cuMemGetAddressRange" cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) {
        let found = open::devices().find(|(_, device)| device.contains(at)).ok_or(Code::INVALID_VALUE)?;
        let (start, size) = found.1.range_around(at)?;
        // SAFETY: the caller's place.
        unsafe { put(base, start) }?;
        // SAFETY: the caller's place.
        unsafe { put(bytes, size as usize) }
    }
    "cuMemGetInfo" cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (device, all) = (current_device()?, settings::total_bytes());
        // SAFETY: the caller's place.
        unsafe { put(free, (all - device.host.used_bytes()) as usize) }?;
        // SAFETY: the caller's place.
        unsafe { put(total, all as usize) }
    }
    "cuMemRetainAllocationHandle" cuMemRetainAllocationHandle(handle: *mut u64, at: u64) {
        let device = current_device()?;
        if device.allocation_around(at).is_some() || !device.contains(at) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller's place.
        unsafe { put(handle, at) }
    }
    "cuIpcGetMemHandle" cuIpcGetMemHandle(_handle: *mut c_void, at: u64) {
        match current_device()?.allocation_around(at) {
            Some((start, _)) if pools().of(start).is_none() => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
