//! Which objects the debug data is of: who reads it lists what is loaded once, when it is asked first.
//!
//! Of an object that came later it knows nothing, and at addresses of one that is gone it would name the lines of that.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

/// An object by where it is loaded and its file.
type Object = (u64, CString);

/// What is looked for among the objects, and what was found.
struct Search {
    /// Only the object at this address is.
    at: Option<usize>,
    found: Vec<Object>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: what the loader hands over.
    let info = unsafe { &*info };
    // SAFETY: what `objects` hands over.
    let search = unsafe { &mut *search.cast::<Search>() };
    let parts = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: so many headers of the object.
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
    // SAFETY: a function that takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Whether an address is of an object that was there at the first question.
pub(super) fn is_first(at: usize) -> bool {
    static FIRST: OnceLock<Vec<Object>> = OnceLock::new();
    let first = FIRST.get_or_init(|| objects(None));
    objects(Some(at)).iter().any(|object| first.contains(object))
}
