//! Traces: a record of the program's calls in a file, for `millpond check` and `millpond view`.
//!
//! A trace is a setting of devices: it has those that are opened while it is on. The environment's `MILLPOND_TRACE`
//! asks for a trace of all devices of a process.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use millpond::config::Trace;

use crate::status::{Failure, bytes, guard, millpond_status};
use crate::tables::device::{DEVICES, TRACE, millpond_device_t};
use millpond_driver::locks::lock;

/// Begins a trace: all work on devices that are opened from now on is written to the file, which is overwritten. A
/// trace that is already on takes no more devices then. If this call is refused, that trace does not change. A file
/// that a trace is being written to is refused: the file of the trace that is on, or of an earlier one whose devices
/// are still open. `millpond check FILE` finds wrong orders in the file, `millpond view FILE` draws it. Without this
/// call, the environment variable MILLPOND_TRACE names a file for all devices of the process.
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

/// Ends the trace: devices that are opened from now on are in no trace. The file is complete once its devices have
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_stop() -> millpond_status {
    guard("millpond_trace_stop", || {
        let former = lock(&TRACE).take();
        drop(former);
        Ok(())
    })
}

/// Writes what the device's trace has so far, if it has one, so that a later crash does not lose it. The call fails if
/// the file cannot be written, now or earlier: the trace then ends with the last complete write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_flush(device: millpond_device_t) -> millpond_status {
    guard("millpond_trace_flush", || {
        let device = DEVICES.find(device)?;
        device.device.flush_trace().map_err(|error| Failure::Value(format!("the trace cannot be written: {error}")))
    })
}
