//! A stream of cudarc's that Millpond knows.

use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::library::Cudarc;

/// An adopted stream of cudarc's. [`run`](millpond_adaptor::Stream::run) and
/// [`enqueue`](millpond_adaptor::Stream::enqueue) submit cudarc's work. It also has all of [`millpond::Stream`]:
/// allocation, free, events, captures.
///
/// Clones name the same stream. It stays open as long as one of them, or one of either library's own handles, exists.
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
    /// Returns cudarc's own stream. Work submitted to it without [`run`](millpond_adaptor::Stream::run) must not touch
    /// Millpond's memory.
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        self.theirs()
    }
}
