//! The functions of pools, and queries about addresses: see the module above.

use std::ffi::{c_int, c_uint, c_void};

use millpond_driver::cuda::abi::pool::PoolProps;
use millpond_driver::cuda::abi::{AccessDesc, AllocationProp, Code, Context, EventName, Location};

use super::{Given, Outcome, Place, check, entry, list, place_of, plain, put, read};
use crate::between::{MemoryName, opened};
use crate::contexts::current_device;
use crate::current;
use crate::device::open;
use crate::peers;
use crate::pools::{Pools, pools};
use crate::settings;

/// Writes a number of 4 or 8 bytes to the caller's place.
///
/// # Safety
/// The place is null, or valid for a number of that size.
unsafe fn put_number(place: *mut c_void, is_int: bool, number: u64) -> Outcome {
    match is_int {
        // SAFETY: the caller's promise.
        true => put(unsafe { place_of(place) }, number as c_int),
        // SAFETY: as above.
        false => put(unsafe { place_of(place) }, number),
    }
}

/// Writes the value of a pointer's attribute to the caller's place.
///
/// # Safety
/// The place is null, or valid for the attribute's type.
unsafe fn pointer_attribute(place: *mut c_void, which: c_int, at: u64) -> Outcome {
    let (ordinal, device) = open::devices().find(|(_, device)| device.contains(at)).ok_or(Code::INVALID_VALUE)?;
    let allocation = device.allocation_around(at);
    let answer = match which {
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: device memory.
        2 => 2,
        3 => at,
        7 => allocation.map_or(1, |(start, _)| start),
        9 => ordinal as u64,
        11 => device.range_around(at)?.0,
        12 => device.range_around(at)?.1,
        // CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, of memory that belongs to no pool: read and write, or none.
        16 if allocation.is_none_or(|(start, _)| pools().of(start).is_none()) => {
            let is_open = current::ordinal()? == ordinal || peers::has_access(ordinal)?;
            if is_open { 3 } else { 0 }
        }
        17 => allocation.and_then(|(start, _)| pools().of(start)).ok_or(Code::INVALID_VALUE)? as u64,
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller's promise.
    unsafe { put_number(place, matches!(which, 2 | 9 | 16), answer) }
}

exports! {
    cuCtxEnablePeerAccess(peer: Context, _flags: c_uint) {
        peers::enable(peer)
    };
    cuCtxDisablePeerAccess(peer: Context) {
        peers::disable(peer)
    };
    cuMemPoolCreate(pool: Place<usize>, props: Given<PoolProps>) {
        let PoolProps { kind, location, .. } = read(props)?;
        check(kind == AllocationProp::PINNED && location.kind == Location::DEVICE)?;
        current_device()?.check_unsafe()?;
        put(pool, pools().create(location.id)?)
    };
    cuMemPoolDestroy(pool: usize) {
        pools().destroy(pool)
    };
    cuMemPoolTrimTo(pool: usize, keep: usize) {
        current_device()?.check_unsafe()?;
        pools().trim(pool, keep as u64)
    };
    cuMemPoolSetAttribute(pool: usize, which: c_int, value: *mut c_void) {
        let wish = match which {
            // SAFETY: the caller's place is valid for the attribute.
            1..=3 => read(unsafe { value.cast::<c_int>().as_ref() })? as u64,
            // SAFETY: as above.
            _ => read(unsafe { value.cast::<u64>().as_ref() })?,
        };
        pools().set_attribute(pool, which, wish)
    };
    cuMemPoolGetAttribute(pool: usize, which: c_int, value: *mut c_void) {
        let answer = pools().attribute(pool, which)?;
        // SAFETY: the caller's place is valid for the attribute.
        unsafe { put_number(value, matches!(which, 1..=3), answer) }
    };
    cuMemPoolSetAccess(pool: usize, access: *const AccessDesc, count: usize) {
        // SAFETY: the caller's list.
        let mut access = unsafe { list(access, count) }?.iter();
        access.try_for_each(|AccessDesc { location, flags }| pools().set_access(pool, location.id, *flags))
    };
    cuMemPoolGetAccess(flags: Place<c_int>, pool: usize, location: Given<Location>) {
        put(flags, pools().access(pool, read(location)?.id)?)
    };
    cuDeviceGetDefaultMemPool(pool: Place<usize>, device: c_int) {
        put(pool, Pools::default_of(device)?)
    };
    cuDeviceGetMemPool(pool: Place<usize>, device: c_int) {
        put(pool, pools().current_of(device)?)
    };
    cuDeviceSetMemPool(device: c_int, pool: usize) {
        pools().set_current(device, pool)
    };
    cuPointerGetAttribute(place: *mut c_void, which: c_int, at: u64) {
        // SAFETY: the caller's place.
        unsafe { pointer_attribute(place, which, at) }
    };
    cuPointerGetAttributes(count: c_uint, which: *const c_int, places: *const *mut c_void, at: u64) {
        // SAFETY: the caller's lists.
        let (which, places) = (unsafe { list(which, count as usize) }?, unsafe { list(places, count as usize) }?);
        for (&which, &place) in which.iter().zip(places) {
            // Attributes that do not apply are not written.
            // SAFETY: the caller's place.
            let _ = unsafe { pointer_attribute(place, which, at) };
        }
        Ok(())
    };
    cuMemGetAddressRange_v2(base: Place<u64>, bytes: Place<usize>, at: u64) {
        let found = open::devices().find(|(_, device)| device.contains(at)).ok_or(Code::INVALID_VALUE)?;
        let (start, size) = found.1.range_around(at)?;
        put(base, start)?;
        put(bytes, size as usize)
    };
    cuMemGetInfo_v2(free: Place<usize>, total: Place<usize>) {
        let (device, all) = (current_device()?, settings::total_bytes());
        // Either place may be null.
        if free.is_some() {
            put(free, (all - device.host.used_bytes()) as usize)?;
        }
        if total.is_some() {
            put(total, all as usize)?;
        }
        Ok(())
    };
    cuMemRetainAllocationHandle(handle: Place<u64>, at: u64) {
        let device = current_device()?;
        if device.allocation_around(at).is_some() || !device.contains(at) {
            return Err(Code::INVALID_VALUE);
        }
        put(handle, at)
    };
    cuIpcGetMemHandle(name: Place<EventName>, at: u64) {
        match current_device()?.allocation_around(at) {
            Some((start, bytes)) if pools().of(start).is_none() => put(name, MemoryName::new(start, bytes).bytes()),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    cuIpcOpenMemHandle_v2(at: Place<u64>, name: EventName, _flags: c_uint) {
        let device = current_device()?;
        let name = MemoryName::of(&name).filter(|name| !name.is_own()).ok_or(Code::INVALID_CONTEXT)?;
        put(at, opened().open(name, |bytes| device.allocate_in_context(bytes))?)
    };
    cuIpcCloseMemHandle(at: u64) {
        let device = current_device()?;
        opened().close(at, || {
            device.wait_for_all()?;
            device.free(at)
        })
    };
}
