//! What an adaptor says of its library.

use std::fmt::Debug;
use std::sync::Arc;

use crate::fault::Fault;
use crate::part::Part;

/// A CUDA library beside Millpond, as a type without values.
///
/// # Safety
/// [`native`](Self::native) is an open stream (CUDA: a `CUstream` as a number) as long as the [`Stream`](Self::Stream)
/// lives, of the context for which [`is_of`](Self::is_of) is true.
pub unsafe trait Library: Sized + 'static {
    /// The library's context.
    type Context: Debug + Send + Sync + 'static;
    /// The library's stream.
    type Stream: Debug + Send + Sync + 'static;
    /// The adaptor's error.
    type Error: From<millpond::Error> + From<Fault>;
    /// What a closure gets for memory that was declared to be read.
    type In<'s, T>: From<Part<'s, T, Self::Stream>>;
    /// What a closure gets for memory that was declared to be written.
    type Out<'s, T>: From<Part<'s, T, Self::Stream>>;

    /// Opens the primary context of a device, by its number among the visible ones.
    ///
    /// # Errors
    /// The library could not.
    fn open(ordinal: u32) -> Result<Arc<Self::Context>, Self::Error>;

    /// The number of the context's device among the visible ones.
    fn ordinal(context: &Self::Context) -> u32;

    /// Whether it is the primary context of its device.
    fn is_primary(context: &Self::Context) -> bool;

    /// Opens a non-blocking stream.
    ///
    /// # Errors
    /// The library could not.
    fn new_stream(context: &Arc<Self::Context>) -> Result<Arc<Self::Stream>, Self::Error>;

    /// Whether the stream is of the context.
    fn is_of(stream: &Self::Stream, context: &Self::Context) -> bool;

    /// CUDA's handle of the stream, as a number.
    fn native(stream: &Self::Stream) -> u64;
}
