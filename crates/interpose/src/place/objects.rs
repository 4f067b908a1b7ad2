//! The loaded objects: which addresses they have, and whether their debug data is known.
//!
//! The reader of debug data lists the loaded objects once, at the first question. It knows nothing of an object that
//! was loaded later. At addresses of an object that is gone it would return that one's lines.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

/// The address where an object is loaded, and its file.
type Object = (u64, CString);

/// Calls `see` with each loaded object, until it returns `false`. `see` must not call the loader.
fn each<F: FnMut(&libc::dl_phdr_info) -> bool>(mut see: F) {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _bytes: usize,
        see: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid structure.
        let info = unsafe { &*info };
        // SAFETY: `each` passes its own closure.
        let see = unsafe { &mut *see.cast::<F>() };
        c_int::from(!see(info))
    }
    // SAFETY: the function takes the closure that is passed here.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut see).cast()) };
}

/// Returns the addresses of each part of an object that is loaded.
fn parts(info: &libc::dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    let headers = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the object has this many headers.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
    };
    headers.iter().filter(|part| part.p_type == libc::PT_LOAD).map(|part| {
        let start = info.dlpi_addr.wrapping_add(part.p_vaddr) as usize;
        start..start.saturating_add(part.p_memsz as usize)
    })
}

fn objects(at: Option<usize>) -> Vec<Object> {
    let mut found = Vec::new();
    each(|info| {
        let is_wanted = at.is_none_or(|at| parts(info).any(|part| part.contains(&at)));
        if is_wanted && !info.dlpi_name.is_null() {
            // SAFETY: a string of the loader's.
            found.push((info.dlpi_addr, unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned()));
        }
        true
    });
    found
}

/// Returns `true` if an object is loaded whose file has a name that begins so, or is in a folder of that name.
pub(crate) fn is_loaded(name: &str) -> bool {
    let is_it = |(_, file): &Object| {
        let file = file.to_string_lossy();
        let mut parts = file.rsplit('/');
        parts.next().is_some_and(|own| own.starts_with(name)) || parts.any(|folder| folder == name)
    };
    objects(None).iter().any(is_it)
}

/// Returns `true` if an address is in an object that was loaded at the first question.
pub(super) fn is_first(at: usize) -> bool {
    static FIRST: OnceLock<Vec<Object>> = OnceLock::new();
    let first = FIRST.get_or_init(|| objects(None));
    objects(Some(at)).iter().any(|object| first.contains(object))
}

/// Returns the addresses from the first part of the object that is loaded at `base` to its last one.
pub(super) fn range_of(base: usize) -> Option<Range<usize>> {
    let mut range = None;
    each(|info| {
        let is_it = info.dlpi_addr as usize == base;
        if is_it {
            range = parts(info).reduce(|all, part| all.start.min(part.start)..all.end.max(part.end));
        }
        !is_it
    });
    range
}

/// Returns the number of objects that were unloaded so far.
pub(crate) fn unloaded() -> u64 {
    let mut count = 0;
    each(|info| {
        count = info.dlpi_subs;
        false
    });
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_addresses_of_its_code_and_data() {
        static DATA: u64 = 1;
        let code = an_object_has_the_addresses_of_its_code_and_data as fn() as usize;
        let mut base = None;
        each(|info| {
            base = base.or(parts(info).any(|part| part.contains(&code)).then_some(info.dlpi_addr as usize));
            base.is_none()
        });
        let range = range_of(base.unwrap()).unwrap();
        assert!(range.contains(&code) && range.contains(&(&raw const DATA).addr()));
        assert!(!range.contains(&(libc::getpid as *const () as usize)), "of the C library");
        assert_eq!((range_of(1), unloaded()), (None, unloaded()));
    }
}
