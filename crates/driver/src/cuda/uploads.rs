//! Host bytes that copies to the device read, until these have completed.
//!
//! Knows bytes and the marks behind their copies; nothing of streams. What has completed is let go with the next copy.

use std::sync::Arc;

use super::gpu::Gpu;
use super::marks::Marks;
use crate::RawMark;
use crate::locks::{self, Mutex, lock};

/// Bytes, and the mark after the copy that reads them, where one was to be had.
type Upload = (Option<RawMark>, Arc<Vec<u8>>);

/// See the module.
pub(super) struct Uploads {
    gpu: Arc<Gpu>,
    in_flight: Mutex<locks::CudaUploads, Vec<Upload>>,
}

impl Uploads {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, in_flight: Mutex::default() }
    }

    /// A copy of these bytes was submitted.
    pub(super) fn add(&self, marks: &Marks, after: Option<RawMark>, bytes: Arc<Vec<u8>>) {
        let mut in_flight = lock(&self.in_flight);
        in_flight.retain(|(after, _)| match *after {
            Some(mark) if matches!(marks.is_over(mark), Ok(true)) => {
                marks.forget(mark);
                false
            }
            // Without a mark it completes with the context's work.
            _ => true,
        });
        in_flight.push((after, bytes));
    }
}

impl Drop for Uploads {
    /// They go once nothing of the context runs any more. Where that cannot be waited for they stay with the process.
    fn drop(&mut self) {
        let in_flight = std::mem::take(self.in_flight.get_mut());
        if !in_flight.is_empty() && !self.gpu.synchronize() {
            std::mem::forget(in_flight);
        }
    }
}
