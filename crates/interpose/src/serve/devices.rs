//! Millpond's device for a device number, opened at its first use, and the device of each of the program's streams.
//!
//! An open device stays open: memory and streams may be used until the very end of the process, in `atexit` handlers
//! and in destructors of threads. If a device cannot be opened, the driver serves its memory, and a message says so.
//!
//! Invariant `closed-first`: before the program closes a stream, it is closed here.

use crate::ranks;
use millpond_driver::locks::{Leaf, Mutex, RwLock, lock, read, write};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use millpond::cuda::CudaConfig;
use millpond::raw::Trusted;
use millpond::{Device, DeviceConfig, PoolConfig, Stream as Own};

use super::{Table, begin, captures, figures, say_left};
use crate::abi::{Context, Stream};
use crate::ask;
use crate::entry::real;

/// Device numbers are below this.
const DEVICES_MAX: usize = 64;

/// A device.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) ordinal: i32,
    pub(super) device: Device,
    pub(super) trusted: Trusted,
    apart: OnceLock<Own>,
}

static OPEN: [AtomicPtr<Served>; DEVICES_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES_MAX];
/// Held while a device is opened; has the devices that could not be opened.
static REFUSED: Mutex<ranks::Served, [bool; DEVICES_MAX]> = Mutex::new([false; DEVICES_MAX]);
/// The device and the context of each stream that was seen.
static STREAMS: RwLock<Leaf, Table<Stream, (i32, Context)>> = RwLock::new(None);

/// The primary context of each device whose default streams were used. Millpond's streams belong to this context.
static PRIMARY: [AtomicUsize; DEVICES_MAX] = [const { AtomicUsize::new(0) }; DEVICES_MAX];

impl Served {
    fn open(ordinal: i32) -> millpond::Result<Served> {
        let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let driver = CudaConfig::default().ordinal(number).library(real::file());
        let device = Device::cuda_with(driver, DeviceConfig::default())?;
        // The pool keeps everything; trimming at synchronisations is done in `contexts`.
        let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX))?;
        // SAFETY: streams of the device by its library, and `close` is called before one ends (closed-first).
        let trusted = unsafe { device.trusted(pool, false) };
        Ok(Served { ordinal, device, trusted, apart: OnceLock::new() })
    }

    /// Returns a stream of this library's own, for frees that the program makes on no stream.
    pub(super) fn apart(&self) -> millpond::Result<&Own> {
        if let Some(stream) = self.apart.get() {
            return Ok(stream);
        }
        let stream = self.device.non_blocking_stream()?;
        Ok(self.apart.get_or_init(|| stream))
    }
}

/// Returns the device of a number.
#[inline]
pub(super) fn device(ordinal: i32) -> Option<&'static Served> {
    let at = OPEN.get(ordinal as usize)?.load(Ordering::Acquire);
    // SAFETY: an open device is never freed.
    unsafe { at.as_ref() }.or_else(|| open(ordinal))
}

/// Returns the open devices.
pub(super) fn all() -> impl Iterator<Item = &'static Served> {
    // SAFETY: as above.
    OPEN.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

#[cold]
fn open(ordinal: i32) -> Option<&'static Served> {
    let mut refused = lock(&REFUSED);
    let at = OPEN[ordinal as usize].load(Ordering::Acquire);
    // SAFETY: as above.
    if let Some(open) = unsafe { at.as_ref() } {
        return Some(open);
    }
    if refused[ordinal as usize] || ordinal >= ask::devices() {
        return None;
    }
    begin();
    let start = Instant::now();
    let opened = Served::open(ordinal);
    figures::opened(start.elapsed());
    match opened {
        Ok(served) => {
            let served: &'static Served = Box::leak(Box::new(served));
            OPEN[ordinal as usize].store(std::ptr::from_ref(served).cast_mut(), Ordering::Release);
            Some(served)
        }
        Err(error) => {
            say_left(&format!("memory of device {ordinal}"), &error);
            refused[ordinal as usize] = true;
            None
        }
    }
}

/// Drops everything of a device. The next call that asks for it opens it again.
pub(super) fn lose(ordinal: i32) {
    if let Some(place) = OPEN.get(ordinal as usize) {
        place.store(std::ptr::null_mut(), Ordering::Release);
    }
    if let Some(primary) = PRIMARY.get(ordinal as usize) {
        primary.store(0, Ordering::Relaxed);
    }
    let mut streams = write(&STREAMS);
    streams.get_or_insert_default().retain(|_, it| it.0 != ordinal);
    GONE.fetch_add(1, Ordering::AcqRel);
}

/// Returns the number of a stream's device. `None` if the driver knows no such stream, and for a default stream of a
/// context that is not its device's primary one ([`is_of_another_context`]).
#[inline]
pub(super) fn of_stream(stream: Stream) -> Option<i32> {
    if stream.0 <= Stream::PER_THREAD.0 {
        return ask::context_device().filter(|device| is_primary(*device));
    }
    // Read before the table: if the stream that is found there is closed meanwhile, this count changes, and `LAST` is
    // not used.
    let gone = GONE.load(Ordering::Acquire);
    let (last, ordinal, then) = LAST.get();
    if last == stream && then == gone {
        return Some(ordinal);
    }
    let streams = read(&STREAMS);
    let ordinal = match streams.as_ref().and_then(|all| all.get(&stream)) {
        Some((ordinal, _)) => *ordinal,
        None => {
            drop(streams);
            meet(stream)?
        }
    };
    LAST.set((stream, ordinal, gone));
    Some(ordinal)
}

/// Counts the closings of streams: of one stream, or of all of a device.
static GONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last stream that this thread used, its device, and the count of closings then. The next stream is nearly
    /// always the same one.
    static LAST: Cell<(Stream, i32, u64)> = const { Cell::new((Stream(0), 0, u64::MAX)) };
}

/// Returns `true` for a default stream of a context that is not its device's primary one. Millpond's default streams
/// belong to the primary context, so they would not wait for this stream's work.
#[cold]
pub(super) fn is_of_another_context(stream: Stream) -> bool {
    stream.0 <= Stream::PER_THREAD.0 && ask::context_device().is_some_and(|device| !is_primary(device))
}

/// Returns `true` if the thread's current context is the primary one of its device.
fn is_primary(device: i32) -> bool {
    let (Some(current), Some(primary)) = (ask::current_context(), PRIMARY.get(device as usize)) else { return false };
    primary.load(Ordering::Relaxed) == current.0 || {
        let found = ask::primary_of(device).unwrap_or_default();
        primary.store(found.0, Ordering::Relaxed);
        found == current
    }
}

#[cold]
fn meet(stream: Stream) -> Option<i32> {
    let context = ask::context_of(stream)?;
    let ordinal = ask::device_of(context);
    let mut streams = write(&STREAMS);
    streams.get_or_insert_default().insert(stream, (ordinal, context));
    Some(ordinal)
}

/// Closes a stream that the program is about to close (closed-first).
pub(super) fn close(stream: Stream) {
    captures::give_up(stream);
    let known = write(&STREAMS).get_or_insert_default().remove(&stream);
    GONE.fetch_add(1, Ordering::AcqRel);
    if let Some(served) = known.and_then(|(ordinal, _)| OPEN.get(ordinal as usize)) {
        // SAFETY: an open device is never freed.
        let served = unsafe { served.load(Ordering::Acquire).as_ref() };
        served.into_iter().for_each(|it| it.trusted.close_stream(stream.0 as u64));
    }
}

/// Closes the streams of a context that the program is about to destroy (closed-first).
pub(super) fn close_all_of(context: Context) {
    let streams = read(&STREAMS);
    let all = streams.iter().flatten();
    let gone: Vec<Stream> = all.filter(|(_, it)| it.1 == context).map(|(stream, _)| *stream).collect();
    drop(streams);
    gone.into_iter().for_each(close);
}
