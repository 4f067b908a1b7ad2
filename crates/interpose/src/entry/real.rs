//! The real functions: found once, for all wrapped names, in the library that the program uses.
//!
//! The first call or question that shows that library finds them all. From then on two lookups need no lock: the real
//! function of a wrapper, and the wrapper of a real function's address. The same address under several names (as
//! `cuGetProcAddress` gives it) has one wrapper.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::table::{COUNT, WRAPPED};

/// The library's name, as every program asks for it.
const LIBCUDA: &CStr = c"libcuda.so.1";

/// The real `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

static DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The real functions: as named, and for the program's per-thread default stream.
static REAL: [[AtomicUsize; 2]; COUNT] = [const { [const { AtomicUsize::new(0) }; 2] }; COUNT];
/// Wrappers by the addresses of the real functions, and functions that only are asked.
static ATTACHED: OnceLock<Attached> = OnceLock::new();

#[derive(Debug)]
struct Attached {
    wrappers: FxHashMap<usize, usize>,
    library: usize,
}

/// The real `dlsym`: found by its version, which asks no `dlsym`.
pub(crate) fn dlsym() -> Dlsym {
    let mut at = DLSYM.load(Ordering::Relaxed);
    if at == 0 {
        let named = |version: &CStr| {
            // SAFETY: two strings; the next definition after this library's own.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) }.expose_provenance()
        };
        at = [c"GLIBC_2.34", c"GLIBC_2.2.5"].into_iter().map(named).find(|at| *at != 0).unwrap_or(0);
        assert!(at != 0, "the C library has dlsym");
        DLSYM.store(at, Ordering::Relaxed);
    }
    // SAFETY: that is its type.
    unsafe { std::mem::transmute::<*const c_void, Dlsym>(std::ptr::with_exposed_provenance(at)) }
}

/// A function of a library; 0 for none.
pub(crate) fn find_in(library: *mut c_void, name: &CStr) -> usize {
    // SAFETY: a handle of the loader's, and a string.
    unsafe { dlsym()(library, name.as_ptr()) }.expose_provenance()
}

/// The real function of a wrapper; 0 where the library has none.
#[inline]
pub(crate) fn function(call: usize, twin: usize) -> usize {
    match REAL[call][twin].load(Ordering::Relaxed) {
        0 => find_late(call, twin),
        at => at,
    }
}

/// A program that is linked with the library calls the wrapper by its name, without having asked for anything.
#[cold]
fn find_late(call: usize, twin: usize) -> usize {
    if ATTACHED.get().is_none() {
        let next = find_in(libc::RTLD_NEXT, c"cuInit");
        let library = match next {
            // SAFETY: a string; it loads nothing.
            0 => unsafe { libc::dlopen(LIBCUDA.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) },
            _ => libc::RTLD_NEXT,
        };
        if !library.is_null() {
            attach(library);
        }
    }
    REAL[call][twin].load(Ordering::Relaxed)
}

/// Finds all wrapped functions in the library that the program uses. Only the first library counts.
pub(crate) fn attach(library: *mut c_void) {
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _one = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if ATTACHED.get().is_some() {
        return;
    }
    let mut wrappers = FxHashMap::default();
    for (call, wrapped) in WRAPPED.iter().enumerate() {
        for (twin, (name, wrapper)) in wrapped.entries().into_iter().enumerate() {
            let Some(name) = name.and_then(|name| CString::new(name).ok()) else { continue };
            let real = find_in(library, &name);
            if real != 0 && real != wrapper {
                REAL[call][twin].store(real, Ordering::Relaxed);
                wrappers.insert(real, wrapper);
            }
        }
    }
    let _ = ATTACHED.set(Attached { wrappers, library: library.expose_provenance() });
}

/// The wrapper of a real function.
pub(crate) fn wrapper(real: usize) -> Option<usize> {
    ATTACHED.get()?.wrappers.get(&real).copied()
}

/// A function of the real library that is only asked, by its exported name.
pub(crate) fn asked(name: &CStr) -> usize {
    let Some(attached) = ATTACHED.get() else { return 0 };
    find_in(std::ptr::with_exposed_provenance_mut(attached.library), name)
}
