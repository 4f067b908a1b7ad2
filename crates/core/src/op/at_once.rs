//! Which operations a capture may forbid to a thread.

use super::{Space, What};

impl What {
    /// What an operation does at once, past every stream, so that no capture sees it: a call that CUDA names
    /// potentially unsafe, in words. None for all others. Measured: each gives 900, and the end of the capture 901 (an
    /// H100, driver 580). A capture forbids them by its [mode](super::CaptureMode) and the thread's.
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
