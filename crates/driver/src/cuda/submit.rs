//! Items of work as calls of the library: copies, fills and host functions.
//!
//! Knows the function table and the submitted closures, but not the stream.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::abi::{Code, Stream};
use super::gpu::Lost;
use super::table::Table;
use crate::{CopyKind, Task, Work, panics};

/// Submits a copy or a fill.
///
/// # Safety
/// As of `Driver::submit`.
pub(super) unsafe fn submit_bytes(table: &Table, stream: Stream, work: &Work) -> Code {
    match *work {
        Work::Copy { to, from, bytes, kind } => match kind {
            CopyKind::HostToDevice => {
                let from = std::ptr::with_exposed_provenance(from as usize);
                // SAFETY: both sides stay valid until the work has completed, by the caller's promise.
                unsafe { (table.copy_in)(to, from, bytes as usize, stream) }
            }
            CopyKind::DeviceToHost => {
                let to = std::ptr::with_exposed_provenance_mut(to as usize);
                // SAFETY: as above.
                unsafe { (table.copy_out)(to, from, bytes as usize, stream) }
            }
            // SAFETY: as above.
            CopyKind::DeviceToDevice => unsafe { (table.copy)(to, from, bytes as usize, stream) },
        },
        // SAFETY: as above; the driver keeps the bytes.
        Work::Upload { to, ref from } => unsafe { (table.copy_in)(to, from.as_ptr().cast(), from.len(), stream) },
        // SAFETY: the range is mapped until the work has completed, by the caller's promise.
        Work::Fill { at, bytes, value } => unsafe { (table.fill)(at, value, bytes as usize, stream) },
        Work::Run(_) | Work::Protect { .. } => Code::NOT_SUPPORTED,
    }
}

/// A closure that is passed through the library.
struct HostCall {
    task: Task,
    lost: Arc<Lost>,
}

/// Submits a closure. If the library refuses it, the closure is returned.
pub(super) fn submit_task(table: &Table, stream: Stream, task: Task, lost: &Arc<Lost>) -> (Code, Option<Task>) {
    let call = Box::into_raw(Box::new(HostCall { task, lost: lost.clone() }));
    // SAFETY: `run` takes ownership of `call`, once.
    let code = unsafe { (table.host_function)(stream, run, call.cast::<c_void>()) };
    if code == Code::SUCCESS {
        return (code, None);
    }
    // SAFETY: it was refused, so it is still ours alone.
    let call = unsafe { Box::from_raw(call) };
    (code, Some(call.task))
}

/// The function that the library calls for a closure. A panic must not leave it.
unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: the pointer is from `submit_task`, and the library calls this once.
    let HostCall { task, lost } = *unsafe { Box::from_raw(call.cast::<HostCall>()) };
    if lost.get().is_some() {
        return panics::drop_quietly(task);
    }
    if let Err(payload) = catch_unwind(AssertUnwindSafe(task)) {
        let reason = panics::message(payload);
        lost.get_or_init(|| reason);
    }
}
