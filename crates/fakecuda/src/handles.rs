//! Handles of created objects: numbers that look like pointers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock;
use crate::settings;

/// Handles are not reused, unless the settings say so.
static NEXT: AtomicUsize = AtomicUsize::new(0x7000_0000);
static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) fn fresh_handle() -> usize {
    let ended = lock(&ENDED).pop();
    ended.unwrap_or_else(|| NEXT.fetch_add(16, Ordering::Relaxed))
}

/// Ends the handle of a destroyed object.
pub(crate) fn end_handle(handle: usize) {
    if settings::are_handles_reused() {
        lock(&ENDED).push(handle);
    }
}
