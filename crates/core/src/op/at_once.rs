//! The operations that a capture may forbid to a thread.

use super::{Space, What};

impl What {
    /// Returns in words the immediate effect of an operation that CUDA calls potentially unsafe: it bypasses all
    /// streams, so that no capture sees it. Returns `None` for all other operations. Measured: each gives error 900,
    /// and the end of the capture gives 901 (an H100, driver 580). A capture forbids them depending on its
    /// [mode](super::CaptureMode) and that of the thread.
    pub fn unsafe_call(&self) -> Option<&'static str> {
        Some(match self {
            What::StreamSynchronize { .. } => "a stream is synchronized",
            What::StreamQuery { .. } => "a stream is queried",
            What::EventSynchronize { .. } => "an event is synchronized",
            What::EventQuery { .. } => "an event is queried",
            What::AllocNow { space: Space::Device(_) | Space::Managed, .. } => "memory is allocated at once",
            What::AllocNow { space: Space::Host, .. } => "pinned memory is allocated",
            What::FreeNow { .. } => "memory is freed at once",
            What::PoolCreate { .. } => "a pool is made",
            What::Instantiate { .. } => "a graph is instantiated",
            _ => return None,
        })
    }
}
