//! The description of a library that its adaptor gives.

use std::fmt::Debug;
use std::sync::Arc;

use crate::fault::Fault;
use crate::part::Part;

/// A CUDA library beside Millpond, as a type without values.
///
/// # Safety
/// [`native`](Self::native) is an open stream (CUDA: a `CUstream` as a number) as long as the [`Stream`](Self::Stream)
/// lives. It belongs to the context for which [`is_of`](Self::is_of) is true.
pub unsafe trait Library: Sized + 'static {
    /// The library's context.
    type Context: Debug + Send + Sync + 'static;
    /// The library's stream.
    type Stream: Debug + Send + Sync + 'static;
    /// The adaptor's error.
    type Error: From<millpond::Error> + From<Fault>;
    /// The closure's argument for memory that was declared as read.
    type In<'s, T>: From<Part<'s, T, Self::Stream>>;
    /// The closure's argument for memory that was declared as written.
    type Out<'s, T>: From<Part<'s, T, Self::Stream>>;

    /// Opens the primary context of a device, by its number among the visible ones.
    ///
    /// # Errors
    /// The library's error.
    fn open(ordinal: u32) -> Result<Arc<Self::Context>, Self::Error>;

    /// Returns the number of the context's device among the visible ones.
    fn ordinal(context: &Self::Context) -> u32;

    /// Returns `true` if the context is its device's primary one.
    fn is_primary(context: &Self::Context) -> bool;

    /// Opens a non-blocking stream.
    ///
    /// # Errors
    /// The library's error.
    fn new_stream(context: &Arc<Self::Context>) -> Result<Arc<Self::Stream>, Self::Error>;

    /// Returns `true` if the stream belongs to the context.
    fn is_of(stream: &Self::Stream, context: &Self::Context) -> bool;

    /// Returns CUDA's handle of the stream, as a number.
    fn native(stream: &Self::Stream) -> u64;
}
