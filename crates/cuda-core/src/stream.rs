//! A stream of cuda-core's that Millpond knows.

use std::ops::Deref;
use std::sync::Arc;

use cuda_core::{CudaEvent, CudaStream};

use crate::error::Result;
use crate::library::CudaCore;

/// An adopted stream of cuda-core's. [`run`](millpond_adaptor::Stream::run) and
/// [`enqueue`](millpond_adaptor::Stream::enqueue) submit cuda-core's work. It also has all of [`millpond::Stream`]:
/// allocation, free, copies, events, captures.
///
/// Clones name the same stream. It stays open as long as one of them, or one of either library's own handles, exists.
#[derive(Clone, Debug)]
pub struct Stream(millpond_adaptor::Stream<CudaCore>);

impl From<millpond_adaptor::Stream<CudaCore>> for Stream {
    fn from(stream: millpond_adaptor::Stream<CudaCore>) -> Self {
        Self(stream)
    }
}

impl Deref for Stream {
    type Target = millpond_adaptor::Stream<CudaCore>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Stream {
    /// Returns cuda-core's own stream. Work submitted to it without [`run`](millpond_adaptor::Stream::run) must not
    /// touch Millpond's memory.
    pub fn cuda_core(&self) -> &Arc<CudaStream> {
        self.theirs()
    }

    /// Records one point for both libraries: in cuda-core's event, for streams that Millpond does not know and for
    /// timing, and in Millpond's, for the order of its memory.
    ///
    /// # Errors
    /// An error of either library.
    #[track_caller]
    pub fn record_with(&self, event: &CudaEvent) -> Result<millpond::Event> {
        self.run((), |s, ()| event.record(s))?;
        Ok(self.record()?)
    }

    /// Makes all later work of this stream wait, on the device, for an event of cuda-core's that was recorded on a
    /// stream that Millpond does not know. It orders none of Millpond's memory.
    ///
    /// # Errors
    /// An error of either library.
    #[track_caller]
    pub fn wait_for(&self, event: &CudaEvent) -> Result<()> {
        self.run((), |s, ()| s.wait(event))
    }
}
