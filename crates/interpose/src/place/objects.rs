//! The objects whose debug data is known: its reader lists the loaded objects once, at the first question.
//!
//! It knows nothing of an object that was loaded later. At addresses of an object that is gone it would return that
//! one's lines.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

/// The address where an object is loaded, and its file.
type Object = (u64, CString);

/// A search among the objects, and its results.
struct Search {
    /// If given, only the object at this address is wanted.
    at: Option<usize>,
    found: Vec<Object>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid structure.
    let info = unsafe { &*info };
    // SAFETY: `objects` passes its own search.
    let search = unsafe { &mut *search.cast::<Search>() };
    let parts = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the object has this many headers.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
    };
    let has = |at: usize| {
        parts.iter().filter(|part| part.p_type == libc::PT_LOAD).any(|part| {
            let start = info.dlpi_addr.wrapping_add(part.p_vaddr);
            (start..start + part.p_memsz).contains(&(at as u64))
        })
    };
    if search.at.is_none_or(has) && !info.dlpi_name.is_null() {
        // SAFETY: a string of the loader's.
        search.found.push((info.dlpi_addr, unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned()));
    }
    0
}

fn objects(at: Option<usize>) -> Vec<Object> {
    let mut search = Search { at, found: Vec::new() };
    // SAFETY: the function takes the search that is passed here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Returns `true` if an address is in an object that was loaded at the first question.
pub(super) fn is_first(at: usize) -> bool {
    static FIRST: OnceLock<Vec<Object>> = OnceLock::new();
    let first = FIRST.get_or_init(|| objects(None));
    objects(Some(at)).iter().any(|object| first.contains(object))
}
