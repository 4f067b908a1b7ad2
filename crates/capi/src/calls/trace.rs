//! Traces: what programs do, written into a file for `millpond check` and `millpond view`.
//!
//! A trace is a setting of devices: those that are opened while one is on are in it. The environment's `MILLPOND_TRACE`
//! asks for all of a process.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use millpond::config::Trace;

use crate::status::{Failure, bytes, guard, millpond_status};
use crate::tables::device::{DEVICES, TRACE, millpond_device_t};
use millpond_driver::locks::lock;

/// Begins a trace: all that is done on devices that are opened from now on is written to the file, what was in it is
/// gone. A trace that goes on takes no more devices then; one that is refused leaves it as it was. A file is refused
/// that a trace is being written to: the one that goes on, or an earlier one whose devices are there still. `millpond
/// check FILE` finds wrong orders in it, `millpond view FILE` draws it. Without a call the environment variable
/// MILLPOND_TRACE names a file for all devices of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_start(path: *const c_char) -> millpond_status {
    guard("millpond_trace_start", || {
        let path = Path::new(OsStr::from_bytes(bytes(path, "path")?));
        let refuse = |error| Failure::Value(format!("no trace in {}: {error}", path.display()));
        let trace = Trace::create(path).map_err(refuse)?;
        let former = lock(&TRACE).replace(trace);
        drop(former);
        Ok(())
    })
}

/// Devices that are opened from now on are in no trace. The file is whole once those that are in it have gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_stop() -> millpond_status {
    guard("millpond_trace_stop", || {
        let former = lock(&TRACE).take();
        drop(former);
        Ok(())
    })
}

/// Writes what the device's trace holds so far, if it has one: a crash after this loses none of it. It fails where the
/// file cannot be written, now or at some time before: the trace ends there, with what had been written whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_flush(device: millpond_device_t) -> millpond_status {
    guard("millpond_trace_flush", || {
        let device = DEVICES.find(device)?;
        device.device.flush_trace().map_err(|error| Failure::Value(format!("the trace cannot be written: {error}")))
    })
}
