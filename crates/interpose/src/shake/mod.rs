//! Delays before operations that the command chooses: `millpond shake`.
//!
//! The operations of each stream that the device runs (kernels, copies, fills, launches of graphs) are counted. The
//! command has a list of some of them. Before a listed one, a kernel that only takes time is put into the stream. So a
//! stream is as late as it may be on another machine, and nothing else about the program changes.
//!
//! | file | what it does |
//! |---|---|
//! | `counted` | the numbers of streams, the counts of their operations, the list |
//! | `delay` | the kernel that takes time, in each context |
//!
//! Nothing here looks at a clock: the list says how long, so that a run with the same list is delayed in the same way.
//! Where operations are checked, nothing is delayed: the session learns which operations the list means.
//!
//! Host functions are no operations here: a context runs them one after the other, so that late ones of one stream
//! would make those of other streams late as well.

mod counted;
mod delay;

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_driver::locks::{Leaf, Mutex, lock};

use crate::abi::{Code, LaunchConfig, Stream};
use crate::once::Once;
use crate::session::At;
use crate::signals::{self, End, Who};
use crate::{ask, capturing, mode, report, thread};
pub(crate) use counted::Work;
use counted::{Counted, Key};

static COUNTED: Once<Mutex<Leaf, Counted>> = Once::new();
/// The delays of this process, and their sum in nanoseconds.
static DELAYS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn counted() -> Option<&'static Mutex<Leaf, Counted>> {
    match COUNTED.get() {
        Some(counted) => Some(counted),
        None => begin(),
    }
}

#[cold]
fn begin() -> Option<&'static Mutex<Leaf, Counted>> {
    // Before the counts are there: a process that is forked in between must forget them.
    signals::watch(Who::Shaking, End { finish, forget, leave: None, save: None });
    COUNTED.get_or_make(|| {
        // If the command is gone, so is its list.
        let list = std::fs::read_to_string(&mode::shaking()?.list).unwrap_or_default();
        Some(Mutex::new(Counted::new(&list)))
    })
}

/// Starts anew in a forked process, whose streams are its own.
fn forget() {
    COUNTED.forget();
    delay::forget();
    DELAYS.iter().for_each(|it| it.store(0, Ordering::Relaxed));
}

/// Reports what was counted when the process ends.
fn finish() {
    let Some(counted) = COUNTED.get().and_then(|counted| counted.try_lock()) else { return };
    let [count, sum] = DELAYS.each_ref().map(|it| it.load(Ordering::Relaxed));
    report::add(&format!("{}delays\t{count}\t{sum}\n", counted.lines()));
}

/// An operation on a stream.
#[inline]
pub(crate) fn work(at: &At, stream: Stream, work: Work, real: impl Fn() -> Code) -> Code {
    let own = at.own(stream);
    // If the driver does not say, the call is the driver's to refuse.
    let is_captured = capturing::may_be() && ask::capture_status(own) != Some(false);
    let Some(counted) = counted() else { return real() };
    let Some(point) = lock(counted).next(key(own), work, is_captured) else { return real() };
    if mode::is_noting() {
        at.settle(|session| session.count(at, stream, [point.stream, point.number], point.nanoseconds.is_some()));
    } else if let Some(nanoseconds) = point.nanoseconds {
        let is_wanted = !is_captured || mode::shaking().is_some_and(|shaking| shaking.graphs);
        if is_wanted && delay::put(own, nanoseconds, is_captured) {
            for (sum, more) in DELAYS.iter().zip([1, nanoseconds]) {
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
    real()
}

/// Returns what names a stream in this process.
#[inline]
fn key(stream: Stream) -> Key {
    match stream {
        Stream(0) | Stream::LEGACY => Key::Legacy(ask::current_device()),
        Stream::PER_THREAD => Key::PerThread(thread::current(), ask::current_device()),
        other => Key::Made(other),
    }
}

/// A launch with attributes.
pub(crate) fn kernel(at: &At, config: Option<LaunchConfig>, real: impl Fn() -> Code) -> Code {
    match config {
        Some(config) => work(at, config.stream, Work::Kernel, real),
        None => real(),
    }
}

/// The creation of a stream, which gets its number.
///
/// # Safety
/// `stream` is null, or valid once the real call has succeeded.
pub(crate) unsafe fn made(stream: *mut Stream, real: impl Fn() -> Code) -> Code {
    let code = real();
    // SAFETY: the caller's promise.
    let made = unsafe { crate::calls::read(stream) }.filter(|_| code == Code::SUCCESS);
    if let Some((stream, counted)) = made.zip(counted()) {
        lock(counted).make(stream);
    }
    code
}

/// The destruction of a stream. Another one may get its handle.
pub(crate) fn ended(stream: Stream, real: impl Fn() -> Code) -> Code {
    if let Some(counted) = COUNTED.get() {
        lock(counted).end(stream);
    }
    real()
}

/// The end of a context. Another one may get its handle.
pub(crate) fn lost(real: impl Fn() -> Code) -> Code {
    delay::forget();
    real()
}

/// The begin of a capture. It is counted before it can be seen.
pub(crate) fn capture(real: impl Fn() -> Code) -> Code {
    capturing::begin();
    let code = real();
    if code != Code::SUCCESS {
        capturing::end();
    }
    code
}

/// The end of a capture.
pub(crate) fn end_capture(at: &At, stream: Stream, real: impl Fn() -> Code) -> Code {
    let own = at.own(stream);
    let was = ask::capture_status(own) == Some(true);
    let code = real();
    if was && ask::capture_status(own) == Some(false) {
        capturing::end();
    }
    code
}
