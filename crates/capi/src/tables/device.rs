//! Devices by handle, and the C side's state of each.
//!
//! Several handles may name one device, for several libraries or contexts of the process.

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

/// The treatment of a wrong order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum millpond_checks {
    /// The call is refused: MILLPOND_ERROR_ORDER, and nothing has happened. The default.
    MILLPOND_CHECKS_ON = 0,
    /// The call is reported and done all the same. A free then takes effect after all declared uses.
    MILLPOND_CHECKS_REPORT = 1,
    /// The call is done without a report. Mistakes other than order (a pointer that is no allocation) are still
    /// refused.
    MILLPOND_CHECKS_OFF = 2,
}

use millpond_checks::*;

/// Gets the text of a wrong order, valid during the call, and the argument that it was set with. It must not call the
/// library, and it must return, as a kernel must (millpond_kernel).
pub type millpond_report = Option<unsafe extern "C" fn(text: *const c_char, argument: *mut c_void)>;

/// The destination of reports.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) function: unsafe extern "C" fn(*const c_char, *mut c_void),
    pub(crate) argument: usize,
}

/// A device and the C side's state of it.
pub(crate) struct DeviceEntry {
    pub(crate) device: Device,
    pub(crate) checks: AtomicI32,
    pub(crate) report: Mutex<Leaf, Option<Report>>,
    /// Incremented when the current pool changes.
    pool_epoch: AtomicU64,
    /// The handles of its streams.
    pub(crate) streams: Mutex<Leaf, Vec<usize>>,
    /// The addresses that open captures have allocated.
    pub(crate) captured: Mutex<ranks::Captured, Vec<u64>>,
    /// The stream on which immediate memory is allocated.
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

    /// Returns a number that changes with the current pool.
    #[inline]
    pub(crate) fn pool_epoch(&self) -> u64 {
        self.pool_epoch.load(Ordering::Acquire)
    }

    /// Makes a pool the current one. Streams then update their copy of it.
    pub(crate) fn set_pool(&self, pool: &millpond::Pool) -> Result<()> {
        self.device.set_current_pool(pool)?;
        self.pool_epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Returns the stream for immediate memory.
    pub(crate) fn immediate(&self) -> Result<&Stream> {
        if let Some(stream) = self.immediate.get() {
            return Ok(stream);
        }
        let stream = self.device.non_blocking_stream()?;
        Ok(self.immediate.get_or_init(|| stream))
    }

    /// Returns `true` if a call of wrong order is done all the same. It is reported if the device's checks say so.
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
                    // SAFETY: the caller gave a function that may be called with this argument.
                    unsafe { (report.function)(text.as_ptr(), report.argument as *mut c_void) };
                }
            }
        }
        true
    }
}

/// With the last handle, buffers that have ended are forgotten. Live memory keeps the device open.
impl Drop for DeviceEntry {
    fn drop(&mut self) {
        let has_ended = |buffer: &Buffer<u8>| buffer.is_of(&self.device) && !buffer.is_live();
        drop(POINTERS.extract(has_ended));
    }
}

pub(crate) static DEVICES: Table<Arc<DeviceEntry>> = Table::new("device", 1);

/// The trace for devices that are opened from now on.
pub(crate) static TRACE: Mutex<Leaf, Option<Trace>> = Mutex::new(None);

/// The CUDA devices that have handles, by number.
static CUDA_DEVICES: Mutex<ranks::Entry, Vec<(i32, Weak<DeviceEntry>)>> = Mutex::new(Vec::new());

/// Opens a new host device.
pub(crate) fn host_device(config: HostConfig) -> Result<Arc<DeviceEntry>> {
    callers::name_in_traces();
    let config = config.clone().trace(lock(&TRACE).clone());
    Ok(Arc::new(DeviceEntry::new(Device::host(config)?)))
}

/// Returns the CUDA device of a number. All callers get the same one, as long as one of them has it.
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
