//! What this process uses of a device by NVML's account: its contexts and kernels are in it, and what the driver adds
//! to each allocation.
//!
//! NVML is loaded for that. It lists no process before its first context on the device, and in some containers it
//! lists other process numbers: then nothing is known.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use crate::entry::real;

const SUCCESS: c_int = 0;
/// `NVML_ERROR_INSUFFICIENT_SIZE`
const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_VALUE_NOT_AVAILABLE`
const NOT_AVAILABLE: u64 = u64::MAX;

/// More processes than a device can have.
const PROCESSES_MAX: usize = 1 << 16;

/// `nvmlProcessInfo_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct ProcessInfo {
    process: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

const _: () = assert!(size_of::<ProcessInfo>() == 24);

type Init = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut u32, *mut MaybeUninit<ProcessInfo>) -> c_int;

/// NVML.
#[derive(Debug)]
pub(super) struct Nvml {
    by_uuid: ByUuid,
    processes: Processes,
}

/// A device of NVML's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NvmlDevice(usize);

impl Nvml {
    /// Loads and initialises NVML, if the machine has it.
    pub(super) fn load() -> Option<Self> {
        // SAFETY: a string. The library stays loaded.
        let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY) };
        let find = |name: &CStr| {
            let found = if library.is_null() { 0 } else { real::find_in(library, name) };
            (found != 0).then(|| std::ptr::with_exposed_provenance::<c_void>(found))
        };
        // SAFETY: here and below: the function of this name, and its type by NVML's header.
        let init = unsafe { std::mem::transmute::<*const c_void, Init>(find(c"nvmlInit_v2")?) };
        // SAFETY: as above.
        let by_uuid = unsafe { std::mem::transmute::<*const c_void, ByUuid>(find(c"nvmlDeviceGetHandleByUUID")?) };
        let processes = find(c"nvmlDeviceGetComputeRunningProcesses_v3")?;
        // SAFETY: as above.
        let processes = unsafe { std::mem::transmute::<*const c_void, Processes>(processes) };
        // SAFETY: it takes nothing, and counts how often it is called.
        (unsafe { init() } == SUCCESS).then_some(Self { by_uuid, processes })
    }

    /// Returns the device with an identifier.
    pub(super) fn device(&self, identifier: [u8; 16]) -> Option<NvmlDevice> {
        let (name, mut device) = (CString::new(name_of(identifier)).ok()?, std::ptr::null_mut());
        // SAFETY: a string, and a place for the answer.
        let code = unsafe { (self.by_uuid)(name.as_ptr(), &raw mut device) };
        (code == SUCCESS).then(|| NvmlDevice(device.expose_provenance()))
    }

    /// Returns the bytes that this process uses of a device, or `Some(None)` if NVML does not know the process. `None`
    /// if NVML does not answer.
    pub(super) fn used(&self, device: NvmlDevice) -> Option<Option<u64>> {
        let device = std::ptr::with_exposed_provenance_mut(device.0);
        let mut list = vec![MaybeUninit::<ProcessInfo>::uninit(); 64];
        loop {
            let mut count = list.len() as u32;
            // SAFETY: the device is of NVML, and the list has room for this many processes.
            match unsafe { (self.processes)(device, &raw mut count, list.as_mut_ptr()) } {
                SUCCESS => {
                    // SAFETY: NVML has written this many.
                    let all = list.get(..count as usize)?.iter().map(|it| unsafe { it.assume_init() });
                    let own = all.filter(|it| it.process == std::process::id()).map(|it| it.used).max();
                    return (own != Some(NOT_AVAILABLE)).then_some(own);
                }
                INSUFFICIENT_SIZE if (list.len()..PROCESSES_MAX).contains(&(count as usize)) => {
                    list.resize(count as usize + 8, MaybeUninit::uninit());
                }
                _ => return None,
            }
        }
    }
}

/// Returns the name of a device, such as `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`.
fn name_of(identifier: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(identifier));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default().to_owned());
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_name_that_nvml_gives_it() {
        let identifier = std::array::from_fn(|at| at as u8);
        assert_eq!(name_of(identifier), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
