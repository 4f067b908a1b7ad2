//! Host bytes that copies to the device read, until these have completed.
//!
//! Knows bytes and the marks behind their copies; nothing of streams. What has completed is let go with the next copy.

use std::sync::Arc;

use super::marks::Marks;
use crate::RawMark;
use crate::locks::{Leaf, Mutex, lock};

/// Bytes, and the mark after the copy that reads them, where one was to be had.
pub(super) type Upload = (Option<RawMark>, Arc<Vec<u8>>);

/// A copy of these bytes was submitted.
pub(super) fn add(uploads: &Mutex<Leaf, Vec<Upload>>, marks: &Marks, upload: Upload) {
    let mut uploads = lock(uploads);
    uploads.retain(|(after, _)| match *after {
        Some(mark) if matches!(marks.is_over(mark), Ok(true)) => {
            marks.forget(mark);
            false
        }
        // Without a mark it completes with the context's work.
        _ => true,
    });
    uploads.push(upload);
}
