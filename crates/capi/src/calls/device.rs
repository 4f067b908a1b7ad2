//! Devices: opened, synchronised; their checks and pools.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use millpond::HostConfig;

use crate::status::{Failure, answer, given, guard, millpond_status, place};
use crate::tables::device::millpond_checks::*;
use crate::tables::device::{DEVICES, Report, cuda_device, host_device, millpond_device_t, millpond_report};
use crate::tables::pool::{POOLS, millpond_pool_t};
use crate::tables::stream::set_pool;
use millpond_driver::locks::lock;

/// The settings of a host device. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_host_config {
    /// The memory in bytes; 0 for 64 GiB. It may be more than the machine has.
    pub total_bytes: u64,
    /// Physical chunks are multiples of this, a power of two; 0 for 2 MiB.
    pub granularity: u64,
}

/// Opens a host device: threads serve its streams, its memory is real memory, and no GPU is needed. `config` may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_create_host(
    device: *mut millpond_device_t,
    config: *const millpond_host_config,
) -> millpond_status {
    guard("millpond_device_create_host", || {
        let device = place(device, "device")?;
        let mut settings = HostConfig::default();
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
        *device = DEVICES.insert(host_device(settings)?)?;
        Ok(())
    })
}

/// Opens the CUDA device of a number, in its primary context. All handles for one number name one device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_create_cuda(device: *mut millpond_device_t, ordinal: i32) -> millpond_status {
    guard("millpond_device_create_cuda", || {
        let device = place(device, "device")?;
        *device = DEVICES.insert(cuda_device(ordinal)?)?;
        Ok(())
    })
}

/// Writes 1 if work of a device can get access to another device's memory by millpond_pool_set_access, and 0 if not
/// (CUDA: cudaDeviceCanAccessPeer).
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

/// Makes another handle of the same device, for another part of the program. Each handle is destroyed by itself.
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

/// Destroys a handle. The device closes with the last handle of it and of its objects. Memory that is still allocated
/// keeps it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_destroy(device: millpond_device_t) -> millpond_status {
    guard("millpond_device_destroy", || DEVICES.remove(device).map(drop))
}

/// Waits until all work of all streams has completed (CUDA: cudaDeviceSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_synchronize(device: millpond_device_t) -> millpond_status {
    guard("millpond_device_synchronize", || Ok(DEVICES.find(device)?.device.synchronize()?))
}

/// Sets the treatment of a wrong order on this device: one of `millpond_checks`.
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

/// Sets the destination of reports of wrong orders; a null function means the standard error stream. A call that is
/// already running on another thread may still report to the previous destination.
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

/// Returns the device's default pool (CUDA: cudaDeviceGetDefaultMemPool). The handle is destroyed like any other; the
/// pool stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_get_default_pool(
    pool: *mut millpond_pool_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_get_default_pool", || {
        let entry = DEVICES.find(device)?;
        answer(pool, "pool", || POOLS.insert(entry.device.default_pool()))
    })
}

/// Returns the pool that millpond_malloc_async allocates from (CUDA: cudaDeviceGetMemPool), as a new handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_get_pool(
    pool: *mut millpond_pool_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_device_get_pool", || {
        let entry = DEVICES.find(device)?;
        answer(pool, "pool", || POOLS.insert(entry.device.current_pool()))
    })
}

/// Makes a pool the one that millpond_malloc_async allocates from (CUDA: cudaDeviceSetMemPool).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_device_set_pool(device: millpond_device_t, pool: millpond_pool_t) -> millpond_status {
    guard("millpond_device_set_pool", || {
        let pool = POOLS.find(pool)?;
        set_pool(&*DEVICES.find(device)?, &pool)
    })
}
