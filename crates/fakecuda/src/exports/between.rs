//! The functions of events between processes: see the module above.

use std::ffi::c_void;

use millpond_driver::cuda::abi::{Code, Event, EventName};

use super::{Place, entry, plain, put};
use crate::contexts::current_device;

exports! {
    cuIpcGetEventHandle(name: Place<EventName>, event: Event) {
        if name.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        put(name, current_device()?.name_event(event)?)
    }
    cuIpcOpenEventHandle(event: Place<Event>, name: EventName) {
        if event.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        put(event, current_device()?.open_named_event(&name)?)
    }
}
