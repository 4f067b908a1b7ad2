//! Host bytes that copies to the device read, until these have completed.
//!
//! Knows bytes and the events behind their copies; nothing of streams. What has completed is let go with the next copy.

use std::sync::Arc;

use super::events::Events;
use crate::RawEvent;
use crate::locks::{Leaf, Mutex, lock};

/// Bytes, and the event after the copy that reads them, where one was to be had.
pub(super) type Upload = (Option<RawEvent>, Arc<Vec<u8>>);

/// A copy of these bytes was submitted.
pub(super) fn add(uploads: &Mutex<Leaf, Vec<Upload>>, events: &Events, upload: Upload) {
    let mut uploads = lock(uploads);
    uploads.retain(|(after, _)| match *after {
        Some(event) if matches!(events.is_over(event), Ok(true)) => {
            events.forget(event);
            false
        }
        // Without an event it completes with the context's work.
        _ => true,
    });
    uploads.push(upload);
}
