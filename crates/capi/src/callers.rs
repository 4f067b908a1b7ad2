//! The place of a call in the program that makes it: a trace gives lines of C, not of this library.
//!
//! Places are looked up only while a trace is written. The first frame above the library is the caller. The code at a
//! return address is looked up once. If its object was unloaded since, the names from before stay.

use millpond_driver::locks::{Leaf, Mutex, lock};
use std::collections::hash_map::Entry;
use std::ffi::{CStr, c_void};

use millpond::raw::{self, Caller};
use rustc_hash::FxHashMap;

/// The kind of a frame.
#[derive(Clone, Debug)]
enum Frame {
    /// In this library, below a function of its header.
    Inside,
    /// A function of its header. The next frame may be the caller, in the same object if the library is linked
    /// statically.
    Entry,
    /// In this library's object, and not a function of the header: the caller, if an entry was seen.
    Beside(Caller),
    /// In another object: the caller.
    Outside(Caller),
}

/// The frames by return address.
static FRAMES: Mutex<Leaf, Option<FxHashMap<usize, Frame>>> = Mutex::new(None);

/// Makes traces give the lines of C programs from now on.
pub(crate) fn name_in_traces() {
    raw::name_callers_with(caller);
}

/// Returns the caller of the call that this thread is in.
fn caller() -> Option<Caller> {
    let mut frames = lock(&FRAMES);
    let frames = frames.get_or_insert_default();
    let (mut is_below_entry, mut found) = (true, None);
    backtrace::trace(|frame| {
        let pc = frame.ip().addr();
        let frame = match frames.entry(pc) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(look(pc)),
        };
        match frame {
            Frame::Entry => is_below_entry = false,
            Frame::Outside(caller) => found = Some(caller.clone()),
            Frame::Beside(caller) if !is_below_entry => found = Some(caller.clone()),
            Frame::Beside(_) | Frame::Inside => {}
        }
        found.is_none()
    });
    found
}

/// The prefix of the header's functions.
const PREFIX: &str = "millpond_";

/// Looks the code before a return address up.
#[cold]
fn look(pc: usize) -> Frame {
    let call = pc.wrapping_sub(1);
    let (mut function, mut line) = (None, None);
    backtrace::resolve(std::ptr::with_exposed_provenance_mut(call), |symbol| {
        // The innermost of inlined functions comes first. The last one is the function of the frame.
        let of_symbol = symbol.filename().map(|file| file.display().to_string()).zip(symbol.lineno());
        line = line.take().or(of_symbol);
        let start = symbol.addr().map_or(call, |start| start.addr());
        function = symbol.name().map(|name| (name.to_string(), start)).or(function.take());
    });
    let (Some(object), Some(own)) = (object(call), object(look as *const () as usize)) else {
        return Frame::Inside;
    };
    let is_entry = function.as_ref().is_some_and(|(name, _)| name.starts_with(PREFIX));
    let is_named = function.is_some();
    let caller = match line {
        Some((file, line)) => Caller { file, line },
        None => Caller { file: object.describe(function, call), line: 0 },
    };
    match (object.base == own.base, is_entry, is_named) {
        (false, ..) => Frame::Outside(caller),
        (true, true, _) => Frame::Entry,
        (true, false, true) => Frame::Beside(caller),
        (true, false, false) => Frame::Inside,
    }
}

/// An object, as the loader knows it.
struct Object {
    /// Its base address.
    base: usize,
    file: String,
    /// An exported function, and its start.
    function: Option<(String, usize)>,
}

impl Object {
    /// Returns a place without a line: the function and the distance into it, and the object.
    fn describe(&self, function: Option<(String, usize)>, at: usize) -> String {
        let object = self.file.rsplit('/').next().unwrap_or_default();
        match function.or(self.function.clone()) {
            Some((name, start)) => format!("{name}+{:#x} ({object})", at.saturating_sub(start)),
            None => format!("{object}+{:#x}", at.saturating_sub(self.base)),
        }
    }
}

fn object(at: usize) -> Option<Object> {
    // SAFETY: a structure of pointers and numbers, for which 0 is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance::<c_void>(at), &raw mut info) } != 0;
    let text = |at: *const std::ffi::c_char| {
        // SAFETY: a string of the loader's, which lives as long as the object.
        (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    is_known.then(|| Object {
        base: info.dli_fbase.addr(),
        file: text(info.dli_fname).unwrap_or_default(),
        function: text(info.dli_sname).map(|name| (name, info.dli_saddr.addr())),
    })
}
