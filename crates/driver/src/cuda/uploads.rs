//! Host bytes that copies to the device read, until these copies have completed.
//!
//! Knows bytes and the events recorded after their copies, but no streams. Completed entries are dropped at the next
//! copy.

use std::sync::Arc;

use super::events::Events;
use crate::RawEvent;
use crate::locks::{Leaf, Mutex, lock};

/// The bytes, and the event after the copy that reads them, if one could be recorded.
pub(super) type Upload = (Option<RawEvent>, Arc<Vec<u8>>);

/// Records that a copy of these bytes was submitted.
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
