//! The functions of events between processes: see the module above.

use std::ffi::c_void;

use millpond_driver::cuda::abi::{Code, Event, EventName};

use super::{entry, put};
use crate::contexts::current_device;

exports! {
    "cuIpcGetEventHandle" cuIpcGetEventHandle(name: *mut EventName, event: Event) {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let given = current_device()?.name_event(event)?;
        // SAFETY: the caller's place.
        unsafe { put(name, given) }
    }
    "cuIpcOpenEventHandle" cuIpcOpenEventHandle(event: *mut Event, name: EventName) {
        if event.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let opened = current_device()?.open_named_event(&name)?;
        // SAFETY: the caller's place.
        unsafe { put(event, opened) }
    }
}
