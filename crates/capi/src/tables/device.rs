//! Devices by handle, and what the C side knows about each.
//!
//! Several handles may name one device: that is what another library of the process, or another context, holds.

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use millpond_driver::locks::{Leaf, Mutex, lock};
use millpond_driver::output::say;

use millpond::config::Trace;
use millpond::cuda::CudaConfig;
use millpond::{Buffer, Device, DeviceConfig, HostConfig, Stream};

use super::handle::Table;
use super::pointers::POINTERS;
use super::ranks;
use crate::callers;
use crate::status::{Failure, Result};

/// Opaque handle.
pub enum millpond_device {}
/// A device.
pub type millpond_device_t = *mut millpond_device;

/// What becomes of a wrong order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum millpond_checks {
    /// It is refused: MILLPOND_ERROR_ORDER, and nothing has happened. The default.
    MILLPOND_CHECKS_ON = 0,
    /// It is reported and happens all the same; a free then takes effect after all declared uses.
    MILLPOND_CHECKS_REPORT = 1,
    /// It happens without a word. What is wrong beyond order (a pointer that is no allocation) is refused still.
    MILLPOND_CHECKS_OFF = 2,
}

use millpond_checks::*;

/// Gets the text of a wrong order, valid during the call, and the argument that it was set with. It must not call the
/// library, and it must return, as a kernel must (millpond_kernel).
pub type millpond_report = Option<unsafe extern "C" fn(text: *const c_char, argument: *mut c_void)>;

/// Where reports go.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) function: unsafe extern "C" fn(*const c_char, *mut c_void),
    pub(crate) argument: usize,
}

/// A device and what the C side knows about it.
pub(crate) struct DeviceEntry {
    pub(crate) device: Device,
    pub(crate) checks: AtomicI32,
    pub(crate) report: Mutex<Leaf, Option<Report>>,
    /// Changes with the current pool.
    pool_epoch: AtomicU64,
    /// The handles of its streams.
    pub(crate) streams: Mutex<Leaf, Vec<usize>>,
    /// Addresses that captures in progress have allocated.
    pub(crate) captured: Mutex<ranks::Captured, Vec<u64>>,
    /// Where memory is allocated that belongs to no stream.
    immediate: OnceLock<Stream>,
}

impl DeviceEntry {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            checks: AtomicI32::new(MILLPOND_CHECKS_ON as i32),
            report: Mutex::default(),
            pool_epoch: AtomicU64::new(1),
            streams: Mutex::default(),
            captured: Mutex::default(),
            immediate: OnceLock::new(),
        }
    }

    /// A number that changes with the current pool.
    #[inline]
    pub(crate) fn pool_epoch(&self) -> u64 {
        self.pool_epoch.load(Ordering::Acquire)
    }

    /// Makes a pool the current one; streams look again which that is.
    pub(crate) fn set_pool(&self, pool: &millpond::Pool) -> Result<()> {
        self.device.set_current_pool(pool)?;
        self.pool_epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The stream of memory that belongs to none.
    pub(crate) fn immediate(&self) -> Result<&Stream> {
        if let Some(stream) = self.immediate.get() {
            return Ok(stream);
        }
        let stream = self.device.non_blocking_stream()?;
        Ok(self.immediate.get_or_init(|| stream))
    }

    /// Whether a wrong order happens all the same; it is reported where that is wished.
    #[cold]
    pub(crate) fn lets_pass(&self, error: &millpond::Error) -> bool {
        let checks = self.checks.load(Ordering::Relaxed);
        if checks == MILLPOND_CHECKS_ON as i32 || error.violation().is_none() {
            return false;
        }
        if checks == MILLPOND_CHECKS_REPORT as i32 {
            let text = Failure::Refused(error.clone()).to_string();
            let report = *lock(&self.report);
            match report {
                None => say(text),
                Some(report) => {
                    let text = CString::new(text).unwrap_or_default();
                    // SAFETY: the caller gave a function that may be called like this.
                    unsafe { (report.function)(text.as_ptr(), report.argument as *mut c_void) };
                }
            }
        }
        true
    }
}

/// No handle is left: what has ended at the addresses of its memory is forgotten. Memory that is live keeps the device.
impl Drop for DeviceEntry {
    fn drop(&mut self) {
        let has_ended = |buffer: &Buffer<u8>| buffer.is_of(&self.device) && !buffer.is_live();
        drop(POINTERS.extract(has_ended));
    }
}

pub(crate) static DEVICES: Table<Arc<DeviceEntry>> = Table::new("device", 1);

/// The trace of devices that are opened from now on.
pub(crate) static TRACE: Mutex<Leaf, Option<Trace>> = Mutex::new(None);

/// CUDA devices that handles name, by number.
static CUDA_DEVICES: Mutex<ranks::Entry, Vec<(i32, Weak<DeviceEntry>)>> = Mutex::new(Vec::new());

/// A new host device.
pub(crate) fn host_device(config: HostConfig) -> Result<Arc<DeviceEntry>> {
    callers::name_in_traces();
    let config = config.clone().trace(lock(&TRACE).clone());
    Ok(Arc::new(DeviceEntry::new(Device::host(config)?)))
}

/// The CUDA device of a number: one for all callers, while any of them has it.
pub(crate) fn cuda_device(number: i32) -> Result<Arc<DeviceEntry>> {
    let mut devices = lock(&CUDA_DEVICES);
    devices.retain(|(_, device)| device.strong_count() > 0);
    let known = devices.iter().find(|(other, _)| *other == number).and_then(|(_, device)| device.upgrade());
    if let Some(device) = known {
        return Ok(device);
    }
    let ordinal = u32::try_from(number).map_err(|_| Failure::Value(format!("there is no device {number}")))?;
    callers::name_in_traces();
    let config = DeviceConfig::default().trace(lock(&TRACE).clone());
    let opened = Device::cuda_with(CudaConfig::default().ordinal(ordinal), config)?;
    let device = Arc::new(DeviceEntry::new(opened));
    devices.push((number, Arc::downgrade(&device)));
    Ok(device)
}
