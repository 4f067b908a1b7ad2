//! Serves stream-ordered memory of a program by Millpond's pool: `millpond run`.
//!
//! A *server* answers a wrapped call in the driver's place, or lets the driver answer. It decides nothing about order:
//! that is the `millpond` crate's ([`Trusted`](millpond::raw::Trusted): the program's order is trusted, as CUDA trusts
//! it).
//!
//! | file | one law |
//! |---|---|
//! | `figures` | what was served; what the driver's pools would say of themselves |
//! | `account` | the report of that to the command |
//! | `captures` | whether any stream may capture: memory of captures is the driver's |
//! | `devices` | Millpond's device for a number, opened once; the program's streams on it |
//! | `pools` | pools by the driver's handle; their settings; which one a device's streams take memory from |
//! | `live` | which allocation is at an address |
//! | `memory` | allocations and frees |
//! | `pointers` | what the driver is asked about an address that is ours |
//! | `contexts` | synchronisations give memory back; streams and contexts end |
//! | `room` | who is refused memory gets what is idle elsewhere |
//!
//! Each pool has its twin of the driver's, which holds no memory unless the program captures: its handle is the pool's,
//! so that the driver understands every call about it.
//!
//! Calls from in here reach the real functions: Millpond's driver finds those ([`search`](crate::search)), and the
//! thread counts as inside. In a process that was forked from one that was served the driver answers everything.

mod account;
pub(crate) mod captures;
pub(crate) mod contexts;
mod devices;
mod figures;
mod live;
pub(crate) mod memory;
pub(crate) mod pointers;
pub(crate) mod pools;
pub(crate) mod room;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond::Error;
use millpond_driver::DriverError;
use millpond_driver::output::say;
use rustc_hash::FxHashMap;

use crate::abi::Code;
use crate::entry::thunk::is_inside;
use crate::mode::{self, Serving};
use crate::signals::{self, End, Who};

/// A table that is made with its first entry.
type Table<K, V> = Option<FxHashMap<K, V>>;

/// Whether a device was opened. In a process that was forked after that nothing is served.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);
/// The process that began.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Whether servers answer.
#[inline]
pub(crate) fn is_on() -> bool {
    mode::serving() != Serving::Off && !IS_FORKED.load(Ordering::Relaxed)
}

/// Whether it is Millpond's pool that serves.
#[inline]
fn is_ours() -> bool {
    mode::serving() == Serving::Millpond
}

/// The first call that concerns a pool: the end of the process and forks are watched from now on.
fn begin() {
    if !IS_BEGUN.swap(true, Ordering::Relaxed) {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        signals::watch(Who::Serving, End { finish, forget, leave: None, save: None });
    }
}

fn finish() {
    // What a forked process knows is its parent's, who reports it; so is what one knows that shares the memory (vfork).
    // A thread that ends the process from within a call (a handler of a signal) may hold what the report needs.
    let is_own = !IS_FORKED.load(Ordering::Relaxed) && PROCESS.load(Ordering::Relaxed) == std::process::id();
    if is_own && !is_inside() {
        let _ = catch_unwind(account::report);
    }
}

/// In a forked process: devices are the parent's. Where there was none yet it is a process like any other.
fn forget() {
    if IS_BEGUN.load(Ordering::Relaxed) {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
}

/// Runs a server. What goes wrong in here must not leave it.
#[inline]
pub(crate) fn guard(act: impl FnOnce() -> Code) -> Code {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Code::UNKNOWN)
}

/// Writes an answer where the program wants it, if it does.
///
/// # Safety
/// Null, or valid.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller's promise. A place of a program may be unaligned.
        unsafe { place.write_unaligned(value) };
    }
}

/// Whether a stream was found to capture.
fn is_captured(error: &Error) -> bool {
    matches!(error, Error::Driver(reason) if matches!(**reason, DriverError::Captured { .. }))
}

/// Says once for each cause what Millpond leaves to the driver.
#[cold]
fn say_left(what: &str, error: &Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!("millpond: {what} is left to the driver's pool: {error}"));
    }
}
