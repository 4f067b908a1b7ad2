//! Where calls stand in the program that makes them: a trace names lines of C, not of this library.
//!
//! Asked only while a trace is written. The first frame above the library is the caller. What stands at a return
//! address is looked up once; of an object that was unloaded since, the names are those of before.

use millpond_driver::locks::{Leaf, Mutex, lock};
use std::collections::hash_map::Entry;
use std::ffi::{CStr, c_void};

use millpond::raw::{self, Caller};
use rustc_hash::FxHashMap;

/// What a frame is.
#[derive(Clone, Debug)]
enum Frame {
    /// Of this library, below a function of its header.
    Inside,
    /// A function of its header: the next frame may be the caller's, in the same object where it is linked statically.
    Entry,
    /// Of the object that this library is in, and no function of the header: the caller, once an entry was seen.
    Beside(Caller),
    /// Of another object: the caller.
    Outside(Caller),
}

/// What stands at return addresses.
static FRAMES: Mutex<Leaf, Option<FxHashMap<usize, Frame>>> = Mutex::new(None);

/// Traces name the lines of C programs from now on.
pub(crate) fn name_in_traces() {
    raw::name_callers_with(caller);
}

/// The call of the program that is going on in this thread.
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

/// How the names of the header's functions begin.
const PREFIX: &str = "millpond_";

/// What stands before a return address.
#[cold]
fn look(pc: usize) -> Frame {
    let call = pc.wrapping_sub(1);
    let (mut function, mut line) = (None, None);
    backtrace::resolve(std::ptr::with_exposed_provenance_mut(call), |symbol| {
        // The innermost of inlined functions comes first; the last one is what the frame is of.
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

/// What the loader knows of an address.
struct Object {
    /// Where it lies.
    base: usize,
    file: String,
    /// A function that is exported, and where it starts.
    function: Option<(String, usize)>,
}

impl Object {
    /// A place without a line: how far into a function, and its object.
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
