//! Statuses, the text of the last failure, and the wall that no panic passes.
//!
//! Knows the library's errors; nothing of handles but that they can be wrong.

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

/// What became of a call. Everything but `MILLPOND_SUCCESS` means that nothing has happened; `millpond_last_error` has
/// the reason of a failure in words.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum millpond_status {
    /// It was done.
    MILLPOND_SUCCESS = 0,
    /// An argument names nothing, or something that cannot be meant (a pointer that is no allocation).
    MILLPOND_ERROR_INVALID_VALUE = 1,
    /// No memory is left; of a pool's, the text says who holds what.
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
    /// The work is not over yet: an answer, not a failure. It has no text.
    MILLPOND_NOT_READY = 9,
    /// A fault of the library itself.
    MILLPOND_ERROR_INTERNAL = 10,
    /// Something is not shared with another process; the text says why.
    MILLPOND_ERROR_SHARE = 11,
}

use millpond_status::*;

/// Why a call was refused.
pub(crate) enum Failure {
    /// By the library.
    Refused(Error),
    /// A handle names nothing of the kind.
    Handle(&'static str),
    /// A number names no node of the graph.
    Node,
    /// A pointer that must not be null.
    Null(&'static str),
    /// A value that cannot be meant.
    Value(String),
    /// It is not over yet.
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

/// Whether a graph is wrong, or cannot be launched like this.
fn is_of_graph(finding: &Finding) -> bool {
    finding.graph.is_some() || matches!(finding.kind, Kind::GraphRefused | Kind::UnfreedLaunch)
}

impl Failure {
    fn status(&self) -> millpond_status {
        match self {
            Failure::Refused(Error::OutOfMemory(_)) => MILLPOND_ERROR_OUT_OF_MEMORY,
            // Of graphs, whose memory is not a pool's.
            Failure::Refused(Error::Driver(error)) if matches!(**error, DriverError::OutOfMemory { .. }) => {
                MILLPOND_ERROR_OUT_OF_MEMORY
            }
            Failure::Refused(Error::Violation(finding)) if finding.kind.is_about_captures() => MILLPOND_ERROR_CAPTURE,
            Failure::Refused(Error::Violation(finding)) if is_of_graph(finding) => MILLPOND_ERROR_GRAPH,
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
    /// The text of the calling thread's last failure; null before the first. It is there to the thread's very end: the
    /// system's destructors for threads run when values of Rust that have one are gone.
    static LAST: Cell<*mut c_char> = const { Cell::new(std::ptr::null_mut()) };
    static OWNER: Owner = const { Owner };
}

/// Drops the thread's text with the values of the thread. What is kept later than that is never dropped.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        put(std::ptr::null_mut());
    }
}

/// Puts another text in the place of the thread's.
fn put(text: *mut c_char) {
    let former = LAST.replace(text);
    if !former.is_null() {
        // SAFETY: it came from `CString::into_raw`, and left its place now.
        drop(unsafe { CString::from_raw(former) });
    }
}

/// The thread's text.
fn last() -> &'static CStr {
    let text = LAST.get();
    // SAFETY: a text of `CString::into_raw`, which lives until the next is put, by a call that does not look at it.
    if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } }
}

/// Runs the body of an entry (no-unwind). A forked process is refused: no thread is left there that would give back
/// what other threads of its parent had taken.
#[inline]
pub(crate) fn guard(call: &'static str, body: impl FnOnce() -> Result<()>) -> millpond_status {
    guard_hot(call, || {
        process::refuse_forked().map_err(Error::from)?;
        body()
    })
}

/// As [`guard`], where the body asks a stream before it takes anything that threads share.
#[inline]
pub(crate) fn guard_hot(call: &'static str, body: impl FnOnce() -> Result<()>) -> millpond_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => MILLPOND_SUCCESS,
        Ok(Err(failure)) => failed(call, &failure),
        Err(panic) => panicked(call, &*panic),
    }
}

/// Cold: calls that are refused are rare, and words take time.
#[cold]
fn failed(call: &'static str, failure: &Failure) -> millpond_status {
    let status = failure.status();
    // An answer that a program asks for in a loop is not put into words.
    if status != MILLPOND_NOT_READY {
        keep(&format!("{call}: {failure}"));
    }
    status
}

/// Cold: a fault of ours.
#[cold]
fn panicked(call: &'static str, panic: &(dyn Any + Send)) -> millpond_status {
    let what = panic.downcast_ref::<&str>().copied();
    let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    keep(&format!("{call}: a fault of the library: {what}"));
    MILLPOND_ERROR_INTERNAL
}

fn keep(text: &str) {
    // A thread that is past its values keeps the text all the same.
    let _ = OWNER.try_with(|_| ());
    put(CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw());
}

/// Puts words before the text of the calling thread's last failure.
#[cold]
pub(crate) fn begin_last_error(words: &str) {
    keep(&format!("{words}{}", last().to_string_lossy()));
}

/// A reference from a pointer that the caller vouches for.
#[inline]
pub(crate) fn given<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T> {
    // SAFETY: the promise of C callers: null, or valid for the call.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null(name))
}

/// A place for a result, which the caller vouches for.
#[inline]
pub(crate) fn place<'a, T>(pointer: *mut T, name: &'static str) -> Result<&'a mut T> {
    // SAFETY: the promise of C callers: null, or valid for the call.
    unsafe { pointer.as_mut() }.ok_or(Failure::Null(name))
}

/// Makes a result for a place: only where there is one.
pub(crate) fn answer<T>(pointer: *mut T, name: &'static str, make: impl FnOnce() -> Result<T>) -> Result<()> {
    let place = place(pointer, name)?;
    *place = make()?;
    Ok(())
}

/// A slice from a pointer and a count that the caller vouches for; the pointer may be null where nothing is counted.
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

/// The bytes of a text from a pointer that the caller vouches for.
pub(crate) fn bytes<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: the promise of C callers: ends with a zero.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A text from a pointer that the caller vouches for.
pub(crate) fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str> {
    std::str::from_utf8(bytes(pointer, name)?).map_err(|_| Failure::Value(format!("`{name}` is not UTF-8")))
}

/// The reason of the calling thread's last failure, in words: never null, empty where nothing has failed. It is valid
/// until the thread's next failing call, or until the thread ends. MILLPOND_NOT_READY is no failure, and leaves it.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_last_error() -> *const c_char {
    last().as_ptr()
}

/// The name of a status, such as "MILLPOND_ERROR_ORDER"; "unknown" for a number that is none.
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
/// Its second number; below 1.0 a program is built for it.
pub const MILLPOND_VERSION_MINOR: i32 = 1;
/// Its third number.
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

/// The library's version, such as "0.1.0".
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

    /// What a Rust caller in the same program may hand on.
    #[test]
    fn refusals_to_share_have_a_code_of_their_own() {
        let device = Device::host(HostConfig::default()).unwrap();
        let failure = Failure::from(device.default_pool().export().unwrap_err());
        assert_eq!(failed("export", &failure), MILLPOND_ERROR_SHARE);
        // SAFETY: it is a text that lives until the next failure.
        let text = unsafe { CStr::from_ptr(millpond_last_error()) }.to_string_lossy();
        assert!(text.starts_with("export: ") && text.contains("PoolConfig::shareable"), "{text}");
        for (number, status) in [(10, MILLPOND_ERROR_INTERNAL), (11, MILLPOND_ERROR_SHARE)] {
            // SAFETY: names live for ever.
            let name = unsafe { CStr::from_ptr(millpond_status_name(number)) }.to_string_lossy();
            assert_eq!((status as i32, name.into_owned()), (number, format!("{status:?}")));
        }
    }
}
