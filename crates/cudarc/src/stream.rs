//! A stream of cudarc's that Millpond knows.

use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::library::Cudarc;

/// A stream of cudarc's, adopted. [`run`](millpond_adaptor::Stream::run) and
/// [`enqueue`](millpond_adaptor::Stream::enqueue) submit cudarc's work; all of [`millpond::Stream`] is here as well:
/// allocation, free, events, captures.
///
/// Clones name the same stream. It stays open while one of them, or of either library's own handles, is there.
#[derive(Clone, Debug)]
pub struct Stream(millpond_adaptor::Stream<Cudarc>);

impl From<millpond_adaptor::Stream<Cudarc>> for Stream {
    fn from(stream: millpond_adaptor::Stream<Cudarc>) -> Self {
        Self(stream)
    }
}

impl Deref for Stream {
    type Target = millpond_adaptor::Stream<Cudarc>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Stream {
    /// The stream as cudarc knows it. What it is given without [`run`](millpond_adaptor::Stream::run) must not touch
    /// Millpond's memory.
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        self.theirs()
    }
}
