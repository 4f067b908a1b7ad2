//! The answers of NVML about a device's memory, within the limit, for programs that look its functions up.
//!
//! NVML counts devices in an order of its own, so a device is found by its identifier.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{amounts, state};
use crate::calls::read;
use crate::entry::real;
use crate::mode;

const SUCCESS: c_int = 0;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`
const UUID_BYTES: usize = 96;

/// `nvmlMemory_t`
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

const _: () = assert!(size_of::<Memory>() == 24 && size_of::<Memory2>() == 40);

type GetMemory<M> = unsafe extern "C" fn(*mut c_void, *mut M) -> c_int;
type GetUuid = unsafe extern "C" fn(*mut c_void, *mut c_char, u32) -> c_int;

/// The real functions, once the program has looked one of the first two up; 0 before that.
static INFO: AtomicUsize = AtomicUsize::new(0);
static INFO_2: AtomicUsize = AtomicUsize::new(0);
static UUID: AtomicUsize = AtomicUsize::new(0);

/// Returns the function to give out for one of NVML's that the program has found in a library; `None` for the found
/// one.
pub(crate) fn substitute(library: *mut c_void, name: &[u8], found: usize) -> Option<*mut c_void> {
    let (place, wrapper) = match name {
        b"nvmlDeviceGetMemoryInfo" => (&INFO, info as *const ()),
        b"nvmlDeviceGetMemoryInfo_v2" => (&INFO_2, info_2 as *const ()),
        _ => return None,
    };
    UUID.store(real::find_in(library, c"nvmlDeviceGetUUID"), Ordering::Release);
    place.store(found, Ordering::Release);
    Some(wrapper.cast_mut().cast())
}

/// Calls a real function, and reads what it has written. `None` if it has failed.
///
/// # Safety
/// The arguments are as of NVML's header.
unsafe fn ask<M: Copy>(of: &AtomicUsize, device: *mut c_void, memory: *mut M) -> (c_int, Option<M>) {
    let real = std::ptr::with_exposed_provenance::<c_void>(of.load(Ordering::Acquire));
    // SAFETY: the address of the function of this type: the wrapper is given out once it is known.
    let real = unsafe { std::mem::transmute::<*const c_void, GetMemory<M>>(real) };
    // SAFETY: the caller's promise.
    let code = unsafe { real(device, memory) };
    // SAFETY: as above; the function has written it.
    (code, if code == SUCCESS { unsafe { read(memory) } } else { None })
}

unsafe extern "C" fn info(device: *mut c_void, memory: *mut Memory) -> c_int {
    // SAFETY: the program's own arguments.
    let (code, known) = unsafe { ask(&INFO, device, memory) };
    // SAFETY: as above.
    if let Some(within) = known.and_then(|known| unsafe { within(device, known) }) {
        // SAFETY: not null, and the program's own place, which may be unaligned.
        unsafe { memory.write_unaligned(within) };
    }
    code
}

unsafe extern "C" fn info_2(device: *mut c_void, memory: *mut Memory2) -> c_int {
    // SAFETY: the program's own arguments.
    let (code, known) = unsafe { ask(&INFO_2, device, memory) };
    let Some(Memory2 { version, total, free, used, .. }) = known else { return code };
    // SAFETY: as above.
    if let Some(Memory { total, free, used }) = unsafe { within(device, Memory { total, free, used }) } {
        // SAFETY: not null, and the program's own place, which may be unaligned.
        unsafe { memory.write_unaligned(Memory2 { version, total, reserved: 0, free, used }) };
    }
    code
}

/// Returns the answer within the limit of a device. A device that no process of the program has used has the limit of
/// all devices.
///
/// # Safety
/// The handle is as of NVML's header.
unsafe fn within(device: *mut c_void, known: Memory) -> Option<Memory> {
    let state = state()?;
    // SAFETY: the caller's promise.
    let identifier = unsafe { identifier(device) }?;
    let (limit, used) = match state.account.known(identifier) {
        Some((place, limit)) => (limit, state.account.used(place)),
        None => (amounts::of_all(&mode::limit()?.amounts)?.bytes(known.total), 0),
    };
    let total = known.total.min(limit);
    Some(Memory { total, free: known.free.min(total.saturating_sub(used)), used: used.min(total) })
}

/// Returns the identifier of a device, as CUDA has it.
///
/// # Safety
/// The handle is as of NVML's header.
unsafe fn identifier(device: *mut c_void) -> Option<[u8; 16]> {
    let real = UUID.load(Ordering::Acquire);
    if real == 0 {
        return None;
    }
    // SAFETY: the address of the function of this type.
    let real =
        unsafe { std::mem::transmute::<*const c_void, GetUuid>(std::ptr::with_exposed_provenance::<c_void>(real)) };
    let mut text = [0_u8; UUID_BYTES];
    // SAFETY: the caller's handle, and a place of this many bytes.
    let code = unsafe { real(device, text.as_mut_ptr().cast(), UUID_BYTES as u32) };
    if code == SUCCESS { parsed(&text) } else { None }
}

/// Reads `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`, which ends in 0.
fn parsed(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::ffi::CStr::from_bytes_until_nul(text).ok()?.to_str().ok()?;
    let digits: String = text.split_once('-')?.1.chars().filter(|c| *c != '-').collect();
    let is_number = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some(u128::from_str_radix(digits.get(..32).filter(|_| is_number)?, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read() {
        let known = parsed(b"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f\0rest").unwrap();
        assert_eq!(known, std::array::from_fn(|at| at as u8));
        for wrong in [&b"GPU-0001\0"[..], b"", b"GPU\0", b"GPU-+0010203-0405-0607-0809-0a0b0c0d0e0f\0"] {
            assert_eq!(parsed(wrong), None);
        }
    }
}
