//! Devices: what streams and pools are made of.
//!
//! Several handles may name one device: that is what another library of the process, or another context, holds.

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use millpond::{Device, HostConfig, Stream};

use crate::graph::Names;
use crate::handle::Table;
use crate::pool::{POOLS, millpond_pool_t};
use crate::status::{Failure, Result, given, guard, millpond_status, place};

/// Not a type to look into: a device's handle points to it in name only.
pub enum millpond_device {}
/// A device.
pub type millpond_device_t = *mut millpond_device;

/// What a host device can be told. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_host_config {
    /// Memory in bytes; 0 for 64 GiB. It may be more than the machine has.
    pub total_bytes: u64,
    /// Physical chunks are multiples of this, a power of two; 0 for 2 MiB.
    pub granularity: u64,
}

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
/// library.
pub type millpond_report = Option<unsafe extern "C" fn(text: *const c_char, argument: *mut c_void)>;

/// Where reports go.
#[derive(Clone, Copy)]
struct Report {
    function: unsafe extern "C" fn(*const c_char, *mut c_void),
    argument: usize,
}

/// A device and what the C side knows about it.
pub(crate) struct DeviceEntry {
    pub(crate) device: Device,
    checks: AtomicI32,
    report: Mutex<Option<Report>>,
    /// Changes with the current pool.
    pool_epoch: AtomicU64,
    /// Addresses that captures in progress have allocated.
    pub(crate) captured: Mutex<Vec<u64>>,
    /// What graphs allocate, by address; those whose graphs are gone are dropped with the next.
    names: Mutex<Vec<Weak<Names>>>,
    has_graphs: AtomicBool,
    /// Where memory is allocated that belongs to no stream.
    immediate: OnceLock<Stream>,
}

/// Locks; what these locks hold is whole at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceEntry {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            checks: AtomicI32::new(MILLPOND_CHECKS_ON as i32),
            report: Mutex::default(),
            pool_epoch: AtomicU64::new(1),
            captured: Mutex::default(),
            names: Mutex::default(),
            has_graphs: AtomicBool::new(false),
            immediate: OnceLock::new(),
        }
    }

    /// A number that changes with the current pool.
    #[inline]
    pub(crate) fn pool_epoch(&self) -> u64 {
        self.pool_epoch.load(Ordering::Acquire)
    }

    /// Makes a pool the current one.
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

    /// A new graph's names.
    pub(crate) fn add_names(&self) -> Arc<Names> {
        let names = Arc::<Names>::default();
        let mut all = lock(&self.names);
        all.retain(|names| names.strong_count() > 0);
        all.push(Arc::downgrade(&names));
        self.has_graphs.store(true, Ordering::Release);
        names
    }

    /// The graphs' names; nothing to look at where there never was a graph.
    pub(crate) fn names(&self) -> Vec<Arc<Names>> {
        match self.has_graphs.load(Ordering::Acquire) {
            false => Vec::new(),
            true => lock(&self.names).iter().filter_map(Weak::upgrade).collect(),
        }
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
                None => eprintln!("{text}"),
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

pub(crate) static DEVICES: Table<Arc<DeviceEntry>> = Table::new("device", 1);

/// Opens a host device: streams are queues served by threads, memory is real memory, no GPU is needed. `config` may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_create_host(
    device: *mut millpond_device_t,
    config: *const millpond_host_config,
) -> millpond_status {
    guard("millpond_device_create_host", || {
        let device = place(device, "device")?;
        let mut settings = HostConfig::default().trace(crate::trace::of_new_devices());
        if !config.is_null() {
            let config = given(config, "config")?;
            let set = |to: &mut u64, value: u64| {
                if value > 0 {
                    *to = value
                }
            };
            set(&mut settings.total_bytes, config.total_bytes);
            set(&mut settings.granularity, config.granularity);
        }
        *device = DEVICES.insert(Arc::new(DeviceEntry::new(Device::host(settings)?)))?;
        Ok(())
    })
}

/// The CUDA device of a number, in its primary context; all handles that this gives for one number name one device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_create_cuda(device: *mut millpond_device_t, ordinal: i32) -> millpond_status {
    guard("millpond_device_create_cuda", || {
        let device = place(device, "device")?;
        *device = DEVICES.insert(crate::torch::cuda_device(ordinal)?)?;
        Ok(())
    })
}

/// Whether work of a device can be given access to another's memory by millpond_pool_set_access: 1 or 0 (CUDA:
/// cudaDeviceCanAccessPeer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_can_access_peer(
    can: *mut i32,
    device: millpond_device_t,
    peer: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_can_access_peer", || {
        let can = place(can, "can")?;
        *can = DEVICES.find(device)?.device.can_access(&DEVICES.find(peer)?.device)?.into();
        Ok(())
    })
}

/// Another handle of the same device, for another part of the program. Each is destroyed by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_retain(
    again: *mut millpond_device_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_retain", || {
        let again = place(again, "again")?;
        *again = DEVICES.insert(DEVICES.find(device)?)?;
        Ok(())
    })
}

/// Destroys a handle. The device goes with the last handle of it and of what was made of it; memory that is still
/// allocated keeps it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_destroy(device: millpond_device_t) -> millpond_status {
    guard("millpond_device_destroy", || DEVICES.remove(device).map(drop))
}

/// Waits until all work of all streams has completed (CUDA: cudaDeviceSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_synchronize(device: millpond_device_t) -> millpond_status {
    guard("millpond_device_synchronize", || Ok(DEVICES.find(device)?.device.synchronize()?))
}

/// What becomes of a wrong order on this device: one of `millpond_checks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_set_checks(device: millpond_device_t, checks: i32) -> millpond_status {
    guard("millpond_device_set_checks", || {
        let known = [MILLPOND_CHECKS_ON, MILLPOND_CHECKS_REPORT, MILLPOND_CHECKS_OFF];
        if !known.iter().any(|it| *it as i32 == checks) {
            return Err(Failure::Value(format!("{checks} is none of millpond_checks")));
        }
        DEVICES.find(device)?.checks.store(checks, Ordering::Relaxed);
        Ok(())
    })
}

/// Where reports of wrong orders go; a null function stands for the standard error stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_set_report(
    device: millpond_device_t,
    report: millpond_report,
    argument: *mut c_void,
) -> millpond_status {
    guard("millpond_device_set_report", || {
        let report = report.map(|function| Report { function, argument: argument as usize });
        *lock(&DEVICES.find(device)?.report) = report;
        Ok(())
    })
}

/// The pool that the device came with (CUDA: cudaDeviceGetDefaultMemPool). The handle is destroyed like any other, the
/// pool stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_get_default_pool(
    pool: *mut millpond_pool_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_get_default_pool", || {
        let entry = DEVICES.find(device)?;
        *place(pool, "pool")? = POOLS.insert(entry.device.default_pool())?;
        Ok(())
    })
}

/// The pool that millpond_malloc_async takes from (CUDA: cudaDeviceGetMemPool), as a new handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_get_pool(
    pool: *mut millpond_pool_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_get_pool", || {
        let entry = DEVICES.find(device)?;
        *place(pool, "pool")? = POOLS.insert(entry.device.current_pool())?;
        Ok(())
    })
}

/// Makes a pool the one that millpond_malloc_async takes from (CUDA: cudaDeviceSetMemPool).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_set_pool(device: millpond_device_t, pool: millpond_pool_t) -> millpond_status {
    guard("millpond_device_set_pool", || {
        let pool = POOLS.find(pool)?;
        DEVICES.find(device)?.set_pool(&pool)
    })
}
