//! Streams, and whole programs, that are adopted from a CUDA program by the handles of the streams. The caller promises
//! that these are open.

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

/// Marks a default stream as shared with the program, and returns it.
fn shared(stream: Stream) -> Stream {
    stream.shared.share();
    stream
}

impl Device {
    /// Adopts a stream that the program has from elsewhere, by its `CUstream` as a number. The handles of default
    /// streams name [`legacy_stream`](Self::legacy_stream) and [`per_thread_stream`](Self::per_thread_stream).
    ///
    /// `kind` says how the stream was created, because CUDA is not asked. Millpond does not know the work that the
    /// program submits to it by other ways: declare the uses of such work by [`Stream::declare`]. Each call makes a
    /// separate stream in the order, so adopt a handle once, and keep the [`Stream`].
    ///
    /// # Errors
    /// Returns an error if the device has no foreign streams, or if the driver refuses because the stream is of another
    /// context.
    ///
    /// # Safety
    /// The handle is that of an open stream of this device, which stays open until the [`Stream`] and its clones are
    /// dropped.
    pub unsafe fn adopt_stream(&self, native: u64, kind: StreamKind) -> crate::Result<Stream> {
        // SAFETY: the caller's promise.
        unsafe { self.adopt(native, kind, None) }
    }

    /// As [`adopt_stream`](Self::adopt_stream), with an object of the program that keeps the stream open. It is dropped
    /// after the [`Stream`] and its clones. Default streams need none: with the handle of one it is dropped at once.
    ///
    /// # Errors
    /// As for [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    /// The handle is that of an open stream of this device, which stays open until `keep` is dropped.
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
    /// As for the two functions above.
    unsafe fn adopt(&self, native: u64, kind: StreamKind, keep: Option<Keep>) -> crate::Result<Stream> {
        match native {
            0 | LEGACY => Ok(shared(self.legacy_stream())),
            PER_THREAD => self.per_thread_stream().map(shared),
            // SAFETY: the caller's promise.
            _ => self.stream_over(kind, keep, &|context, _| unsafe { context.driver.adopt_stream(native) }),
        }
    }

    /// As [`adopt_stream`](Self::adopt_stream), but a default stream is a stream like any other to the library, which
    /// does not order it with other streams. This is for programs whose order is trusted: the implicit order would cost
    /// each of their operations a look at all streams.
    ///
    /// # Errors
    /// As for [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    /// As for [`adopt_stream`](Self::adopt_stream).
    pub unsafe fn adopt_untied(&self, native: u64) -> crate::Result<Stream> {
        // SAFETY: the caller's promise.
        self.stream_over(StreamKind::NonBlocking, None, &|context, _| unsafe { context.driver.adopt_stream(native) })
    }
}

impl Device {
    /// Returns the device for a program whose order is trusted. Its memory comes from `pool`.
    ///
    /// # Safety
    /// The handles that are passed to its methods are those of open streams of the device (CUDA: a `CUstream` as a
    /// number). If `stay_open` is `true`, they stay open as long as the returned value lives. Otherwise each stays open
    /// until [`close_stream`](Trusted::close_stream) was called with it.
    pub unsafe fn trusted(&self, pool: Pool, stay_open: bool) -> Trusted {
        // SAFETY: the caller's promise.
        Trusted::new(self, pool, stay_open, |device, native| unsafe { device.adopt_untied(native) })
    }
}
