//! Serves a program's stream-ordered memory from Millpond's pool: `millpond run`.
//!
//! A *server* answers a wrapped call in place of the driver, or lets the driver answer. It decides nothing about order:
//! that is done by the `millpond` crate ([`Trusted`](millpond::raw::Trusted): the program's order is trusted, as CUDA
//! trusts it).
//!
//! | file | what it does |
//! |---|---|
//! | `figures` | figures of what was served, and of the driver's pools |
//! | `account` | the report of that to the command |
//! | `captures` | the captures of streams: their memory is the driver's |
//! | `devices` | Millpond's device for a number, opened once; the program's streams on it |
//! | `pools` | pools by the driver's handle; their settings; the current pool of each device |
//! | `live` | the allocation at an address |
//! | `memory` | allocations and frees |
//! | `pointers` | the driver's pointer queries, for addresses of Millpond's |
//! | `contexts` | synchronisations give memory back; streams and contexts end |
//! | `room` | before an allocation fails, idle memory of other pools is given back |
//!
//! Each pool has a twin in the driver, which holds no memory unless the program captures. The twin's handle is the
//! pool's, so that the driver understands every call about it.
//!
//! Calls from in here reach the real functions: Millpond's driver finds those ([`search`](crate::search)), and the
//! thread counts as inside a wrapper. In a process forked from one that was served, the driver answers everything.

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

/// `true` once memory was served or a device was opened. In a process that was forked after that, nothing is served.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);
/// The process in which this began.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Returns `true` if servers answer.
#[inline]
pub(crate) fn is_on() -> bool {
    mode::serving() != Serving::Off && !IS_FORKED.load(Ordering::Relaxed)
}

/// Returns `true` if Millpond's pool serves.
#[inline]
fn is_ours() -> bool {
    mode::serving() == Serving::Millpond
}

/// Watches the process's end and its forks, from the first call that concerns a pool.
fn begin() {
    if !IS_BEGUN.swap(true, Ordering::Relaxed) {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        signals::watch(Who::Serving, End { finish, forget, leave: None, save: None });
    }
}

fn finish() {
    // A forked process, and one that shares the memory (vfork), knows its parent's figures, which the parent reports. A
    // thread that ends the process from within a call (in a signal handler) may hold what the report needs.
    let is_own = !IS_FORKED.load(Ordering::Relaxed) && PROCESS.load(Ordering::Relaxed) == std::process::id();
    if is_own && !is_inside() {
        let _ = catch_unwind(account::report);
    }
}

/// Notes a fork, in the forked process: the devices are the parent's. If nothing was served before, this is a process
/// like any other.
fn forget() {
    if IS_BEGUN.load(Ordering::Relaxed) {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
}

/// Runs a server. A panic must not leave it.
#[inline]
pub(crate) fn guard(act: impl FnOnce() -> Code) -> Code {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Code::UNKNOWN)
}

/// Writes an answer to the program's address, unless that is null.
///
/// # Safety
/// Null, or valid.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller's promise. A place of a program may be unaligned.
        unsafe { place.write_unaligned(value) };
    }
}

/// Returns `true` if the error says that a stream captures.
fn is_captured(error: &Error) -> bool {
    matches!(error, Error::Driver(reason) if matches!(**reason, DriverError::Captured { .. }))
}

/// Says, once in the process, that something is left to the driver, and why.
#[cold]
fn say_left(what: &str, error: &Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!("millpond: {what} is left to the driver's pool: {error}"));
    }
}
