//! Streams and whole programs that are adopted from a CUDA program, by their handles: the caller promises that those
//! are open.

use std::any::Any;
use std::sync::Arc;

use millpond_driver::Driver;

use crate::api::device::Device;
use crate::api::trusted::Trusted;
use crate::names::native::{LEGACY, PER_THREAD};
use crate::names::role::StreamKind;
use crate::pool::handle::Pool;
use crate::state::in_flight::Keep;
use crate::stream::handle::Stream;

/// A default stream that the program uses as well.
fn shared(stream: Stream) -> Stream {
    stream.shared.share();
    stream
}

impl Device {
    /// Takes over a stream that the program has from elsewhere, a `CUstream` as a number. The handles of default
    /// streams name [`legacy_stream`](Self::legacy_stream) and [`per_thread_stream`](Self::per_thread_stream).
    ///
    /// `kind` says how it was made, since CUDA is not asked. What the program does with it by other ways is not known
    /// to Millpond: declare what such work uses by [`Stream::declare`]. Each call makes a stream of its own in the
    /// order: take a handle over once, and keep the [`Stream`].
    ///
    /// # Errors
    /// The device has no foreign streams, or the driver refused: the stream is of another context.
    ///
    /// # Safety
    /// It is an open stream of this device, and stays open until the [`Stream`] and its clones are dropped.
    pub unsafe fn adopt_stream(&self, native: u64, kind: StreamKind) -> crate::Result<Stream> {
        // SAFETY: the caller's promise.
        unsafe { self.adopt(native, kind, None) }
    }

    /// As [`adopt_stream`](Self::adopt_stream), with something of the program that keeps the stream open: it is dropped
    /// after the [`Stream`] and its clones. Default streams need none: with the handle of one it is dropped at once.
    ///
    /// # Errors
    /// As of [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    /// It is an open stream of this device, and stays open until `keep` is dropped.
    pub unsafe fn adopt_stream_keeping(
        &self,
        native: u64,
        kind: StreamKind,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> crate::Result<Stream> {
        // SAFETY: the caller's promise, and `keep` is dropped last.
        unsafe { self.adopt(native, kind, Some(keep)) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn adopt(&self, native: u64, kind: StreamKind, keep: Option<Keep>) -> crate::Result<Stream> {
        match native {
            0 | LEGACY => Ok(shared(self.legacy_stream())),
            PER_THREAD => self.per_thread_stream().map(shared),
            // SAFETY: the caller's promise.
            _ => self.stream_over(kind, keep, &|context, _| unsafe { context.driver.adopt_stream(native) }),
        }
    }

    /// As [`adopt_stream`](Self::adopt_stream), and default streams are to the library streams like any other: it makes
    /// no ties for them. For programs whose order is trusted; ties would cost each of their operations a look at all
    /// streams.
    ///
    /// # Errors
    /// As of [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    /// As of [`adopt_stream`](Self::adopt_stream).
    pub unsafe fn adopt_untied(&self, native: u64) -> crate::Result<Stream> {
        // SAFETY: the caller's promise.
        self.stream_over(StreamKind::NonBlocking, None, &|context, _| unsafe { context.driver.adopt_stream(native) })
    }
}

impl Device {
    /// The device for a program whose order is trusted. Its memory comes from `pool`.
    ///
    /// # Safety
    /// The handles that its calls get are open streams of the device (CUDA: a `CUstream` as a number). `stay_open` says
    /// that they stay open as long as the answer lives; without it they do until
    /// [`close_stream`](Trusted::close_stream) was called with them.
    pub unsafe fn trusted(&self, pool: Pool, stay_open: bool) -> Trusted {
        // SAFETY: the caller's promise.
        Trusted::new(self, pool, stay_open, |device, native| unsafe { device.adopt_untied(native) })
    }
}
