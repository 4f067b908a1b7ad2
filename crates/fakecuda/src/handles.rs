//! Numbers that stand for what is created: they look like pointers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock;
use crate::settings;

/// They are not used again, unless the settings say so.
static NEXT: AtomicUsize = AtomicUsize::new(0x7000_0000);
static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) fn fresh_handle() -> usize {
    let ended = lock(&ENDED).pop();
    ended.unwrap_or_else(|| NEXT.fetch_add(16, Ordering::Relaxed))
}

/// What had a handle is gone.
pub(crate) fn end_handle(handle: usize) {
    if settings::are_handles_reused() {
        lock(&ENDED).push(handle);
    }
}
