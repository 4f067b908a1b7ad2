//! The streams that both libraries know. Each of cudarc's is adopted once, and kept until its work has completed: a
//! [`Slice`](crate::Slice) that ends must come after all that any of them may have done with it.

use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use millpond_driver::locks::{Mutex, lock};

use crate::error::Result;
use crate::ranks;
use crate::stream::Stream;

/// CUDA's handle of the calling thread's default stream.
const PER_THREAD: usize = 2;

/// The streams that were adopted.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<ranks::Streams, Vec<Adopted>>);

/// One of them.
#[derive(Debug)]
struct Adopted {
    /// Whose it is, where it is a thread's default stream.
    thread: Option<ThreadId>,
    stream: Stream,
}

impl Adopted {
    /// Whether the program still has it, or work is in it. It is held here, and by Millpond's own handle.
    fn is_needed(&self) -> bool {
        let stream = self.stream.cudarc();
        let is_default = stream.cu_stream() as usize <= PER_THREAD;
        // It is no call of the program, which a capture could forbid.
        let is_over = || self.stream.record()?.poll(Location::caller());
        let is_capturing = || self.stream.is_capturing().unwrap_or(true);
        is_default || Arc::strong_count(stream) > 2 || is_capturing() || !is_over().unwrap_or(false)
    }
}

impl Streams {
    /// The stream that was adopted for one of cudarc's; where there is none yet it is made.
    pub(crate) fn known_or(&self, stream: &CudaStream, adopt: impl FnOnce() -> Result<Stream>) -> Result<Stream> {
        let thread = (stream.cu_stream() as usize == PER_THREAD).then(|| std::thread::current().id());
        let mut known = lock(&self.0);
        if let Some(known) = known.iter().find(|known| **known.stream.cudarc() == *stream && known.thread == thread) {
            return Ok(known.stream.clone());
        }
        // Streams that the program has dropped are kept until their work has completed.
        known.retain(Adopted::is_needed);
        let stream = adopt()?;
        known.push(Adopted { thread, stream: stream.clone() });
        Ok(stream)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Stream> {
        let known = lock(&self.0);
        known.iter().map(|known| known.stream.clone()).collect()
    }
}
