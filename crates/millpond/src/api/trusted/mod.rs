//! Programs whose order is trusted: PyTorch, CuPy, and programs whose allocations are interposed.
//!
//! Such a program names streams by their handles in the device's own library. It says on which stream it allocates and
//! frees, but not what used the memory. By its rule the memory was used by the stream that allocated it, and by the
//! streams that were recorded for it. None of this is checked. A free comes after all work that these streams have by
//! then, whoever submitted it, and after the work of the stream of the free.
//!
//! The hot path shares no lock between streams: the stream is found in a table ([`streams`]), and memory comes from and
//! goes to the stream's cache. The caller keeps the buffers, and says for each if streams were recorded for it.
//!
//! Invariant `own-stream-only`: a freed block goes into a stream's cache only if the memory is that stream's alone.
//! What the stream is known to come after elsewhere says nothing of work that only the program knows. A program of
//! CUDA's own calls promises more: its free comes after every use, on any stream ([`Trusted::free_at`]).

mod streams;

use std::fmt;

use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;

use crate::api::device::Device;
use crate::names::error::{Error, Result};
use crate::names::native::PER_THREAD;
use crate::pool::handle::Pool;
use crate::stream::buffer::Buffer;
use crate::stream::handle::Stream;
use crate::stream::refused::Refused;
use crate::sync::ranks;
use streams::{Found, Streams};

/// Makes a stream of a handle. The code that made this function has promised what that needs.
pub(crate) type Adopt = fn(&Device, u64) -> Result<Stream>;

/// A device as a trusted program uses it. Made by [`Device::trusted`].
///
/// ```
/// # fn main() -> millpond::Result<()> {
/// let device = millpond::Device::host(Default::default())?;
/// // SAFETY: the only handle that is used is 0, the legacy default stream, which is always open.
/// let trusted = unsafe { device.trusted(device.default_pool(), true) };
/// let x = trusted.alloc(4096, 0)?; // on the stream with this handle
/// trusted.free(x, false, 0).map_err(|refused| refused.error)?;
/// # Ok(())
/// # }
/// ```
pub struct Trusted {
    device: Device,
    pool: Pool,
    adopt: Adopt,
    streams: Streams,
    /// The streams that were recorded as users of an allocation, by its address.
    users: Mutex<ranks::Trusted, FxHashMap<u64, Vec<Stream>>>,
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trusted({:?}, {:?})", self.device, self.pool)
    }
}

impl Trusted {
    pub(crate) fn new(device: &Device, pool: Pool, stay_open: bool, adopt: Adopt) -> Self {
        let (streams, users) = (Streams::new(stay_open), Mutex::default());
        Self { device: device.clone(), pool, adopt, streams, users }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the pool that memory comes from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn find(&self, handle: u64) -> Result<Found<'_>> {
        self.streams.find(handle, || match self.device.properties().runs_closures {
            // On such a device no foreign code has streams, so a handle is any number.
            true => self.device.non_blocking_stream(),
            false => (self.adopt)(&self.device, handle),
        })
    }

    /// Returns the stream of a handle, and adopts it if it is new.
    ///
    /// # Errors
    /// Returns an error if the stream is of another device or the driver refuses.
    pub fn stream(&self, handle: u64) -> Result<Stream> {
        self.find(handle).map(|stream| stream.clone())
    }

    /// Forgets a stream that the program is about to close. All work that is in it by now counts.
    pub fn close_stream(&self, handle: u64) {
        self.streams.forget(handle);
    }

    /// Refuses a stream that the program captures: memory of its graph would be given to others when it is freed, while
    /// the graph goes on to use it. This makes a driver call, so it is for programs that do not say when they capture.
    ///
    /// # Errors
    /// Returns an error if the stream captures or cannot be adopted.
    pub fn check_captured(&self, handle: u64, call: &'static str) -> Result<()> {
        self.find(handle)?.check_captured(call)
    }

    /// Returns `true` if the program captures a stream. This makes a driver call.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be adopted.
    pub fn is_captured(&self, handle: u64) -> Result<bool> {
        Ok(self.find(handle)?.check_captured("is_captured").is_err())
    }

    /// Allocates on the stream of a handle. Returns an empty buffer for 0 bytes.
    ///
    /// # Errors
    /// Returns an error if no memory is left or the stream cannot be adopted.
    #[inline]
    pub fn alloc(&self, bytes: usize, handle: u64) -> Result<Buffer<u8>> {
        self.alloc_from(&self.pool, bytes, handle)
    }

    /// As [`alloc`](Self::alloc), from any pool of the device.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_from(&self, pool: &Pool, bytes: usize, handle: u64) -> Result<Buffer<u8>> {
        self.find(handle)?.alloc::<u8>(pool, bytes)
    }

    /// Frees on the stream of a handle. `is_shared` is `true` if streams were recorded for the buffer.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be adopted, with the buffer, which is live as before.
    #[inline]
    pub fn free(&self, buffer: Buffer<u8>, is_shared: bool, handle: u64) -> std::result::Result<(), Refused<u8>> {
        let stream = match self.find(handle) {
            Ok(stream) => stream,
            Err(error) => return Err(Refused { error, buffer }),
        };
        if is_shared {
            return self.free_shared(buffer, &stream);
        }
        stream.free_own(buffer).or_else(|refused| match refused.error {
            Error::Violation(_) => stream.free_elsewhere(refused.buffer, &[]),
            _ => Err(refused),
        })?;
        record_ahead(&stream, handle);
        Ok(())
    }

    /// Frees on the stream of a handle, as CUDA does (`cudaFreeAsync`). By the program's own word, everything that it
    /// did with the memory, on any stream, comes before this point.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be adopted or is of another device, with the buffer, which is live as
    /// before.
    #[inline]
    pub fn free_at(&self, buffer: Buffer<u8>, handle: u64) -> std::result::Result<(), Refused<u8>> {
        let stream = match self.find(handle) {
            Ok(stream) => stream,
            Err(error) => return Err(Refused { error, buffer }),
        };
        stream.free_trusted(buffer)?;
        record_ahead(&stream, handle);
        Ok(())
    }

    /// Frees after all work so far of the stream that allocated the buffer, which may be closed, of `on`, and of
    /// `users`, which may be of other devices.
    ///
    /// # Errors
    /// Returns an error if a stream captures or the driver refuses, with the buffer, which is live as before.
    pub fn free_after(
        &self,
        buffer: Buffer<u8>,
        on: &Stream,
        users: &[Stream],
    ) -> std::result::Result<(), Refused<u8>> {
        on.free_elsewhere(buffer, users)
    }

    /// Frees a buffer that other streams were recorded as users of, after all their work so far.
    #[cold]
    fn free_shared(&self, buffer: Buffer<u8>, stream: &Stream) -> std::result::Result<(), Refused<u8>> {
        let address = buffer.address();
        let users = lock(&self.users).remove(&address).unwrap_or_default();
        stream.free_elsewhere(buffer, &users).inspect_err(|_| {
            lock(&self.users).insert(address, users.clone());
        })
    }

    /// Makes a free of the memory at an address come after all work that `user` has by then. The memory must be live,
    /// and the owner of its buffer must note that it is shared.
    pub fn record_stream(&self, address: u64, user: &Stream) {
        let mut users = lock(&self.users);
        let users = users.entry(address).or_default();
        if !users.iter().any(|it| it.id() == user.id()) {
            users.push(user.clone());
        }
    }
}

/// Records an event in a thread's default stream, because other threads cannot ask for one and may want the memory.
#[inline]
fn record_ahead(stream: &Found<'_>, handle: u64) {
    if let (Found::InMap(stream), PER_THREAD) = (stream, handle) {
        stream.record_ahead();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::Trusted;
    use crate::{Device, HostConfig};

    #[test]
    fn a_free_on_another_stream_is_a_point_of_that_stream_alone() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let trusted = Trusted::new(&device, device.default_pool(), true, |device, _| device.non_blocking_stream());
        let (first, second, third) = (16, 32, 48);
        let alloc = |handle| trusted.alloc(4096, handle).expect("memory");
        let (hold, held) = [first, second].map(|handle| trusted.stream(handle).expect("a stream")).into();
        let ((go, gate), (leave, door)) = (channel::<()>(), channel::<()>());
        hold.launch((), move |()| _ = door.recv()).expect("work");
        held.launch((), move |()| _ = gate.recv()).expect("work");
        let buffer = alloc(first);
        let address = buffer.address();
        trusted.free_at(buffer, second).expect("a free");
        // The work of that stream has not completed: the memory is its own at once, and no other stream's.
        let other = alloc(third);
        assert_ne!(other.address(), address);
        let own = alloc(second);
        assert_eq!(own.address(), address);
        trusted.free_at(own, second).expect("a free");
        // The work of the stream that allocated the memory does not matter to the free.
        drop(go);
        held.synchronize().expect("it ends");
        let third = alloc(third);
        assert_eq!(third.address(), address);
        drop(leave);
    }

    fn strict(device: &Device) -> Trusted {
        let pool = device.default_pool();
        pool.set_reuse(crate::config::ReusePolicy { allow_internal_dependencies: false, ..Default::default() });
        Trusted::new(device, pool, true, |device, _| device.non_blocking_stream())
    }

    /// INVARIANT: own-stream-only.
    #[test]
    fn an_event_of_a_stream_says_nothing_of_its_later_work() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let trusted = strict(&device);
        let [left, right] = [16, 32].map(|handle| trusted.stream(handle).expect("a stream"));
        let buffer = trusted.alloc(4096, 16).expect("memory");
        let address = buffer.address();
        right.wait(&left.record().expect("an event")).expect("a wait");
        let (go, gate) = channel::<()>();
        // Work that may use the memory, for all that is known.
        left.launch((), move |()| _ = gate.recv()).expect("work");
        trusted.free(buffer, false, 32).expect("a free");
        assert_ne!(trusted.alloc(4096, 32).expect("memory").address(), address);
        drop(go);
    }

    /// INVARIANT: always-new.
    #[test]
    fn the_end_of_a_closed_stream_is_after_the_programs_own_work() {
        use millpond_driver::Work;
        let device = Device::host(HostConfig::default()).expect("a host device");
        let trusted = strict(&device);
        let (stream, other) = (device.non_blocking_stream().expect("one"), trusted.stream(32).expect("one"));
        let buffer = stream.alloc::<u8>(trusted.pool(), 2 << 20).expect("memory");
        let address = buffer.address();
        stream.shared.share();
        stream.synchronize().expect("it ends");
        let (go, gate) = channel::<()>();
        let mut work = Some(Work::Run(Box::new(move || _ = gate.recv())));
        crate::pool::shell::submit_task(device.context(), stream.shared.raw, &mut work).expect("work");
        drop(stream);
        trusted.free_after(buffer, &other, &[]).expect("a free");
        assert_ne!(trusted.alloc(2 << 20, 32).expect("memory").address(), address);
        drop(go);
    }
}
