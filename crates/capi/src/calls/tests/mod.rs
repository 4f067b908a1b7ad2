//! The C functions together: their results and messages.

mod captures;
mod events;
mod forked;
mod graph_memory;
mod limits;
mod lives;
mod nodes;
mod pools;
mod refusals;
mod thread_ends;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use crate::calls::device::millpond_device_create_host;
use crate::calls::stream::millpond_stream_create;
use crate::status::millpond_last_error;
use crate::status::millpond_status::{self, MILLPOND_SUCCESS};
use crate::tables::device::millpond_device_t;
use crate::tables::stream::millpond_stream_t;

/// Calls a function of C.
macro_rules! c {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer that is passed here is valid for its call, for as many bytes as the call takes.
        unsafe { $name($($argument),*) }
    };
}
use c;

/// A handle or an address that several threads of a test have.
#[derive(Clone, Copy)]
struct Shared<T>(T);

// SAFETY: handles are numbers, and addresses are given to the library only.
unsafe impl<T: Copy> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Copy> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn get(&self) -> T {
        self.0
    }
}

/// The call succeeds.
#[track_caller]
fn must(status: millpond_status) {
    assert_eq!(status, MILLPOND_SUCCESS, "{}", last_error());
}

/// The call is refused with this status; returns the reason.
#[track_caller]
fn refused(status: millpond_status, expected: millpond_status) -> String {
    assert_eq!(status, expected, "{}", last_error());
    last_error()
}

fn last_error() -> String {
    // SAFETY: the thread's text, which lives until its next failure.
    unsafe { CStr::from_ptr(millpond_last_error()) }.to_string_lossy().into_owned()
}

fn host_device() -> millpond_device_t {
    let mut device = null_mut();
    must(c!(millpond_device_create_host(&mut device, null())));
    device
}

fn stream_of(device: millpond_device_t) -> millpond_stream_t {
    let mut stream = null_mut();
    must(c!(millpond_stream_create(&mut stream, device)));
    stream
}

/// An address for a call to write.
fn nowhere() -> *mut c_void {
    null_mut()
}
