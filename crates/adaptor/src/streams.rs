//! The streams that both libraries know. Each stream of the library's is adopted once, and kept until its work has
//! completed. A [`Loan`](crate::Loan) that ends must come after all uses of its memory on any of them.

use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;

use millpond_driver::locks::{Mutex, lock};

use crate::library::Library;
use crate::ranks;
use crate::stream::Stream;

/// CUDA's handle of the calling thread's default stream. Smaller ones name the legacy default stream.
const PER_THREAD: u64 = 2;

/// The adopted streams.
pub(crate) struct Streams<L: Library>(Mutex<ranks::Streams, Vec<Adopted<L>>>);

impl<L: Library> Default for Streams<L> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// An adopted stream.
struct Adopted<L: Library> {
    /// The thread whose default stream it is, for a per-thread default stream.
    thread: Option<ThreadId>,
    stream: Stream<L>,
}

impl<L: Library> Adopted<L> {
    /// Returns `true` if the program still has the stream, or if work is in it. Two references to it are this list's
    /// and Millpond's own.
    fn is_needed(&self) -> bool {
        let stream = self.stream.theirs();
        let is_default = L::native(stream) <= PER_THREAD;
        // This is not a call of the program, so no capture can forbid it.
        let is_over = || self.stream.record()?.poll(Location::caller());
        let is_capturing = || self.stream.is_capturing().unwrap_or(true);
        is_default || Arc::strong_count(stream) > 2 || is_capturing() || !is_over().unwrap_or(false)
    }
}

impl<L: Library> Streams<L> {
    /// Returns the stream that was adopted for one of the library's. A new one is adopted with `adopt`.
    pub(crate) fn known_or(
        &self,
        stream: &L::Stream,
        adopt: impl FnOnce() -> Result<Stream<L>, L::Error>,
    ) -> Result<Stream<L>, L::Error> {
        let native = L::native(stream);
        let thread = (native == PER_THREAD).then(|| std::thread::current().id());
        let mut known = lock(&self.0);
        let is_same = |known: &&Adopted<L>| L::native(known.stream.theirs()) == native && known.thread == thread;
        if let Some(known) = known.iter().find(is_same) {
            return Ok(known.stream.clone());
        }
        // Streams that the program has dropped are kept until their work has completed.
        known.retain(Adopted::is_needed);
        let stream = adopt()?;
        known.push(Adopted { thread, stream: stream.clone() });
        Ok(stream)
    }

    /// Returns all adopted streams.
    pub(crate) fn all(&self) -> Vec<Stream<L>> {
        let known = lock(&self.0);
        known.iter().map(|known| known.stream.clone()).collect()
    }
}
