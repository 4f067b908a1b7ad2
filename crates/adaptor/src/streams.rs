//! The streams that both libraries know. Each of the library's is adopted once, and kept until its work has completed:
//! a [`Loan`](crate::Loan) that ends must come after all that any of them may have done with the memory.

use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;

use millpond_driver::locks::{Mutex, lock};

use crate::library::Library;
use crate::ranks;
use crate::stream::Stream;

/// CUDA's handle of the calling thread's default stream. Smaller ones name the legacy default stream.
const PER_THREAD: u64 = 2;

/// The streams that were adopted.
pub(crate) struct Streams<L: Library>(Mutex<ranks::Streams, Vec<Adopted<L>>>);

impl<L: Library> Default for Streams<L> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// One of them.
struct Adopted<L: Library> {
    /// Whose it is, where it is a thread's default stream.
    thread: Option<ThreadId>,
    stream: Stream<L>,
}

impl<L: Library> Adopted<L> {
    /// Whether the program still has it, or work is in it. It is held here, and by Millpond's own handle.
    fn is_needed(&self) -> bool {
        let stream = self.stream.theirs();
        let is_default = L::native(stream) <= PER_THREAD;
        // It is not a call of the program, which a capture could forbid.
        let is_over = || self.stream.record()?.poll(Location::caller());
        let is_capturing = || self.stream.is_capturing().unwrap_or(true);
        is_default || Arc::strong_count(stream) > 2 || is_capturing() || !is_over().unwrap_or(false)
    }
}

impl<L: Library> Streams<L> {
    /// The stream that was adopted for one of the library's; where there is none yet it is made.
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

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Stream<L>> {
        let known = lock(&self.0);
        known.iter().map(|known| known.stream.clone()).collect()
    }
}
