//! Statuses, the text of the last failure, and the guard that stops panics.
//!
//! This module knows the library's errors. Of handles it knows only that they can be wrong.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::Error;
use millpond::check::{Finding, Kind};
use millpond::error::Invalid;
use millpond_driver::{DriverError, process};

use crate::words::in_c;

/// The result of a call. Everything but `MILLPOND_SUCCESS` means that nothing has happened. The reason of a failure is
/// in `millpond_last_error`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum millpond_status {
    /// The call was done.
    MILLPOND_SUCCESS = 0,
    /// An argument is not valid (a pointer that is no allocation, for example).
    MILLPOND_ERROR_INVALID_VALUE = 1,
    /// No memory is left. For memory of a pool, the text says what holds it.
    MILLPOND_ERROR_OUT_OF_MEMORY = 2,
    /// A handle that is null, destroyed, or of another kind.
    MILLPOND_ERROR_INVALID_HANDLE = 3,
    /// The order of the program is wrong; the text has both sides and the missing edge.
    MILLPOND_ERROR_ORDER = 4,
    /// A stream's capture cannot do this.
    MILLPOND_ERROR_CAPTURE = 5,
    /// A graph is wrong, or cannot be launched like this.
    MILLPOND_ERROR_GRAPH = 6,
    /// The device's system refused a call.
    MILLPOND_ERROR_DRIVER = 7,
    /// A kernel faulted: nothing more runs on this device.
    MILLPOND_ERROR_DEVICE_LOST = 8,
    /// The work has not completed yet. This is an answer, not a failure, and has no text.
    MILLPOND_NOT_READY = 9,
    /// An internal error of the library.
    MILLPOND_ERROR_INTERNAL = 10,
    /// Memory or an event cannot be shared with another process; the text says why.
    MILLPOND_ERROR_SHARE = 11,
}

use millpond_status::*;

/// The reason why a call was refused.
pub(crate) enum Failure {
    /// The library refused it.
    Refused(Error),
    /// A handle is not one of this kind.
    Handle(&'static str),
    /// A number is no node of the graph.
    Node,
    /// A pointer is null and must not be.
    Null(&'static str),
    /// A value is not valid.
    Value(String),
    /// The work has not completed yet.
    NotReady,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(error) => f.write_str(&in_c(&error.report().to_string())),
            Failure::Handle(kind) => {
                let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                write!(f, "not {article} {kind} handle: null, destroyed, or a handle of something else")
            }
            Failure::Node => f.write_str("not a node of this graph: 0, or a node of another graph"),
            Failure::Null(name) => write!(f, "`{name}` must not be null"),
            Failure::Value(reason) => f.write_str(reason),
            Failure::NotReady => f.write_str("not ready: work is still pending"),
        }
    }
}

/// Returns `true` if a graph is wrong, or cannot be launched like this.
fn is_of_graph(finding: &Finding) -> bool {
    finding.graph.is_some() || matches!(finding.kind, Kind::GraphRefused | Kind::UnfreedLaunch)
}

impl Failure {
    fn status(&self) -> millpond_status {
        match self {
            Failure::Refused(Error::OutOfMemory(_)) => MILLPOND_ERROR_OUT_OF_MEMORY,
            // For graphs: their memory is not a pool's.
            Failure::Refused(Error::Driver(error)) if matches!(**error, DriverError::OutOfMemory { .. }) => {
                MILLPOND_ERROR_OUT_OF_MEMORY
            }
            Failure::Refused(Error::Violation(finding)) if finding.kind.is_about_captures() => MILLPOND_ERROR_CAPTURE,
            Failure::Refused(Error::Violation(finding)) if is_of_graph(finding) => MILLPOND_ERROR_GRAPH,
            Failure::Refused(Error::Violation(finding)) if matches!(finding.kind, Kind::NoAccess | Kind::Aliased) => {
                MILLPOND_ERROR_INVALID_VALUE
            }
            Failure::Refused(Error::Violation(_)) => MILLPOND_ERROR_ORDER,
            Failure::Refused(Error::InvalidArgument(invalid)) => match **invalid {
                Invalid::Uncapturable { .. } | Invalid::NotLaunched { .. } | Invalid::EndsWithClosure { .. } => {
                    MILLPOND_ERROR_CAPTURE
                }
                Invalid::GraphTooLarge(_) | Invalid::NoOutput | Invalid::Taken | Invalid::SymbolicCapture(_) => {
                    MILLPOND_ERROR_GRAPH
                }
                _ => MILLPOND_ERROR_INVALID_VALUE,
            },
            Failure::Null(_) | Failure::Value(_) => MILLPOND_ERROR_INVALID_VALUE,
            Failure::Refused(Error::DeviceLost { .. }) => MILLPOND_ERROR_DEVICE_LOST,
            Failure::Refused(Error::Share(_)) => MILLPOND_ERROR_SHARE,
            Failure::Refused(_) => MILLPOND_ERROR_DRIVER,
            Failure::Handle(_) | Failure::Node => MILLPOND_ERROR_INVALID_HANDLE,
            Failure::NotReady => MILLPOND_NOT_READY,
        }
    }
}

thread_local! {
    /// The text of the thread's last failure; null before the first. It must last until the very end of the thread: the
    /// system's thread destructors run after Rust's thread-local values with destructors are gone.
    static LAST: Cell<*mut c_char> = const { Cell::new(std::ptr::null_mut()) };
    static OWNER: Owner = const { Owner };
}

/// Drops the thread's text together with Rust's thread-local values. A text that is kept later is never dropped.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        put(std::ptr::null_mut());
    }
}

/// Replaces the thread's text.
fn put(text: *mut c_char) {
    let former = LAST.replace(text);
    if !former.is_null() {
        // SAFETY: it came from `CString::into_raw`, and is no longer in `LAST`.
        drop(unsafe { CString::from_raw(former) });
    }
}

/// Returns the thread's text.
fn last() -> &'static CStr {
    let text = LAST.get();
    // SAFETY: a text of `CString::into_raw`, which lives until the next one is put, by a call that does not use it.
    if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } }
}

/// Runs the body of an entry (no-unwind). In a forked process the entry is refused: locks that other threads of the
/// parent held are never released there.
#[inline]
pub(crate) fn guard(call: &'static str, body: impl FnOnce() -> Result<()>) -> millpond_status {
    guard_hot(call, || {
        process::refuse_forked().map_err(Error::from)?;
        body()
    })
}

/// As [`guard`], for a body that queries a stream before it takes anything that threads share.
#[inline]
pub(crate) fn guard_hot(call: &'static str, body: impl FnOnce() -> Result<()>) -> millpond_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => MILLPOND_SUCCESS,
        Ok(Err(failure)) => failed(call, &failure),
        Err(panic) => panicked(call, &*panic),
    }
}

/// Cold: refused calls are rare, and making the text takes time.
#[cold]
fn failed(call: &'static str, failure: &Failure) -> millpond_status {
    let status = failure.status();
    // A program may ask for this answer in a loop, so no text is made for it.
    if status != MILLPOND_NOT_READY {
        keep(&format!("{call}: {failure}"));
    }
    status
}

/// Cold: an internal error.
#[cold]
fn panicked(call: &'static str, panic: &(dyn Any + Send)) -> millpond_status {
    let what = panic.downcast_ref::<&str>().copied();
    let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    keep(&format!("{call}: a fault of the library: {what}"));
    MILLPOND_ERROR_INTERNAL
}

fn keep(text: &str) {
    // If the thread's values are gone already, the text is kept all the same.
    let _ = OWNER.try_with(|_| ());
    put(CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw());
}

/// Puts words before the text of the thread's last failure.
#[cold]
pub(crate) fn begin_last_error(words: &str) {
    keep(&format!("{words}{}", last().to_string_lossy()));
}

/// Returns a reference from a pointer that the caller guarantees.
#[inline]
pub(crate) fn given<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T> {
    // SAFETY: the promise of C callers: null, or valid for the call.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null(name))
}

/// Returns a reference to a place for a result, which the caller guarantees.
#[inline]
pub(crate) fn place<'a, T>(pointer: *mut T, name: &'static str) -> Result<&'a mut T> {
    // SAFETY: the promise of C callers: null, or valid for the call.
    unsafe { pointer.as_mut() }.ok_or(Failure::Null(name))
}

/// Makes a result and writes it; makes nothing if the place is null.
pub(crate) fn answer<T>(pointer: *mut T, name: &'static str, make: impl FnOnce() -> Result<T>) -> Result<()> {
    let place = place(pointer, name)?;
    *place = make()?;
    Ok(())
}

/// Returns a slice from a pointer and a count that the caller guarantees. The pointer may be null if the count is 0.
pub(crate) fn slice<'a, T>(pointer: *const T, count: usize, name: &'static str) -> Result<&'a [T]> {
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::Null(name)),
        _ if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) => {
            Err(Failure::Value(format!("`{name}` cannot have {count} elements: no memory is so large")))
        }
        // SAFETY: the promise of C callers: valid for `count` elements.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Returns the bytes of a string from a pointer that the caller guarantees.
pub(crate) fn bytes<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: the promise of C callers: ends with a zero.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns a string from a pointer that the caller guarantees.
pub(crate) fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str> {
    std::str::from_utf8(bytes(pointer, name)?).map_err(|_| Failure::Value(format!("`{name}` is not UTF-8")))
}

/// Returns the reason of the calling thread's last failure. It is never null, and empty if nothing has failed. It is
/// valid until the thread's next failing call, or until the thread ends. MILLPOND_NOT_READY is no failure, and does not
/// change it.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_last_error() -> *const c_char {
    last().as_ptr()
}

/// Returns the name of a status, such as "MILLPOND_ERROR_ORDER"; "unknown" for any other number.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_status_name(status: i32) -> *const c_char {
    let name = match status {
        0 => c"MILLPOND_SUCCESS",
        1 => c"MILLPOND_ERROR_INVALID_VALUE",
        2 => c"MILLPOND_ERROR_OUT_OF_MEMORY",
        3 => c"MILLPOND_ERROR_INVALID_HANDLE",
        4 => c"MILLPOND_ERROR_ORDER",
        5 => c"MILLPOND_ERROR_CAPTURE",
        6 => c"MILLPOND_ERROR_GRAPH",
        7 => c"MILLPOND_ERROR_DRIVER",
        8 => c"MILLPOND_ERROR_DEVICE_LOST",
        9 => c"MILLPOND_NOT_READY",
        10 => c"MILLPOND_ERROR_INTERNAL",
        11 => c"MILLPOND_ERROR_SHARE",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// The first number of this header's version.
pub const MILLPOND_VERSION_MAJOR: i32 = 0;
/// The second number. Below 1.0 a program works only with the version that it is built for.
pub const MILLPOND_VERSION_MINOR: i32 = 1;
/// The third number.
pub const MILLPOND_VERSION_PATCH: i32 = 0;

/// The header's version is that of the crate.
const _: () = {
    const fn is(number: i32, text: &str) -> bool {
        matches!(i32::from_str_radix(text, 10), Ok(of) if of == number)
    }
    assert!(is(MILLPOND_VERSION_MAJOR, env!("CARGO_PKG_VERSION_MAJOR")));
    assert!(is(MILLPOND_VERSION_MINOR, env!("CARGO_PKG_VERSION_MINOR")));
    assert!(is(MILLPOND_VERSION_PATCH, env!("CARGO_PKG_VERSION_PATCH")));
};

/// Returns the library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn millpond_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond::{Device, HostConfig};

    #[test]
    fn counts_that_no_memory_has_are_refused() {
        let value = 0u64;
        for count in [usize::MAX, isize::MAX as usize / 8 + 1, usize::MAX / 8 + 2] {
            assert!(matches!(slice(&raw const value, count, "from"), Err(Failure::Value(_))));
        }
        assert!(matches!(slice(std::ptr::null::<u64>(), 1, "from"), Err(Failure::Null("from"))));
        assert!(slice(std::ptr::null::<u64>(), 0, "from").is_ok_and(<[u64]>::is_empty));
    }

    /// A Rust caller in the same program may pass on such an error.
    #[test]
    fn refusals_to_share_have_a_code_of_their_own() {
        let device = Device::host(HostConfig::default()).unwrap();
        let failure = Failure::from(device.default_pool().export().unwrap_err());
        assert_eq!(failed("export", &failure), MILLPOND_ERROR_SHARE);
        // SAFETY: the text lives until the next failure.
        let text = unsafe { CStr::from_ptr(millpond_last_error()) }.to_string_lossy();
        assert!(text.starts_with("export: ") && text.contains("PoolConfig::shareable"), "{text}");
        for (number, status) in [(10, MILLPOND_ERROR_INTERNAL), (11, MILLPOND_ERROR_SHARE)] {
            // SAFETY: names are static.
            let name = unsafe { CStr::from_ptr(millpond_status_name(number)) }.to_string_lossy();
            assert_eq!((status as i32, name.into_owned()), (number, format!("{status:?}")));
        }
    }
}
