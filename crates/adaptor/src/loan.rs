//! Memory that is lent to the library, which orders it by its own rules: Millpond sees none of its uses.
//!
//! So the end of a loan comes after all work that is then in any stream that both libraries know.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use millpond::{Buffer, Refused};

use crate::library::Library;
use crate::stream::Stream;
use crate::streams::Streams;

/// A buffer that is lent to the library, from a point of a stream on. Dropping it frees the memory in Millpond, after
/// all work that is then in the context's streams.
pub struct Loan<T: Pod, L: Library> {
    /// `Some` until the loan ends.
    buffer: Option<Buffer<T>>,
    home: Stream<L>,
    streams: Arc<Streams<L>>,
}

impl<T: Pod, L: Library> Loan<T, L> {
    #[track_caller]
    pub(crate) fn new(streams: &Arc<Streams<L>>, home: &Stream<L>, buffer: Buffer<T>) -> Result<Self, Refused<T>> {
        match home.declare(buffer.write()) {
            Ok(()) => Ok(Self { buffer: Some(buffer), home: home.clone(), streams: Arc::clone(streams) }),
            Err(error) => Err(Refused { error, buffer }),
        }
    }

    /// Returns the stream on which it was lent.
    pub fn home(&self) -> &Stream<L> {
        &self.home
    }

    /// Returns the first address.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::address)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::len)
    }

    /// Returns `true` if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the stream on which it was lent wait for all work in the context's other streams.
    ///
    /// # Errors
    /// The device is lost, or a stream captures.
    #[track_caller]
    pub fn join(&self) -> millpond::Result<()> {
        let others = self.streams.all().into_iter().filter(|stream| stream.id() != self.home.id());
        for other in others {
            self.home.wait(&other.record()?)?;
        }
        Ok(())
    }

    /// Ends the loan and returns the buffer, which Millpond orders from this point of the stream on. Call
    /// [`join`](Self::join) first.
    ///
    /// # Errors
    /// The device is lost, or the stream captures. The memory is then freed as by a drop.
    #[track_caller]
    pub fn end(mut self) -> millpond::Result<Buffer<T>> {
        let buffer = self.buffer.as_ref().expect("it is taken at the end only");
        self.home.declare(buffer.write())?;
        Ok(self.buffer.take().expect("it is taken at the end only"))
    }
}

impl<T: Pod, L: Library> Drop for Loan<T, L> {
    fn drop(&mut self) {
        let Some(memory) = self.buffer.as_ref().and_then(Buffer::raw) else { return };
        for stream in self.streams.all() {
            // Refused only if the device is lost.
            let _ = stream.record_use(&memory);
        }
    }
}

impl<T: Pod, L: Library> fmt::Debug for Loan<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("buffer", &self.buffer).field("stream", &self.home.id()).finish_non_exhaustive()
    }
}
