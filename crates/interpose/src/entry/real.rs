//! The real functions: found once, for all wrapped names, in the library that the program uses.
//!
//! The first call or question that shows that library finds them all. From then on two lookups need no lock: the real
//! function of a wrapper, and the wrapper of a real function's address. The same address under several names (as
//! `cuGetProcAddress` gives it) has one wrapper.

use millpond_driver::locks::{Leaf, Mutex, lock};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use crate::mode;

/// The library's name, as every program asks for it.
const LIBCUDA: &CStr = c"libcuda.so.1";

/// The real `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real `dlclose`.
pub(crate) type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLCLOSE: AtomicUsize = AtomicUsize::new(0);
/// Wrappers by the addresses of the real functions, and functions that only are asked.
static ATTACHED: OnceLock<Attached> = OnceLock::new();

#[derive(Debug)]
struct Attached {
    wrappers: FxHashMap<usize, usize>,
    library: usize,
}

/// A function of the C library's that this library has under the same name: found by its version, which asks no
/// `dlsym`.
fn shadowed(place: &AtomicUsize, name: &CStr) -> *const c_void {
    let mut at = place.load(Ordering::Relaxed);
    if at == 0 {
        let versioned = |version: &CStr| {
            // SAFETY: two strings; the next definition after this library's own.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) }.expose_provenance()
        };
        at = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"].into_iter().map(versioned).find(|at| *at != 0).unwrap_or(0);
        assert!(at != 0, "the C library has {name:?}");
        place.store(at, Ordering::Relaxed);
    }
    std::ptr::with_exposed_provenance(at)
}

/// The real `dlsym`.
pub(crate) fn dlsym() -> Dlsym {
    // SAFETY: that is its type.
    unsafe { std::mem::transmute::<*const c_void, Dlsym>(shadowed(&DLSYM, c"dlsym")) }
}

/// The real `dlclose`.
pub(crate) fn dlclose() -> Dlclose {
    // SAFETY: that is its type.
    unsafe { std::mem::transmute::<*const c_void, Dlclose>(shadowed(&DLCLOSE, c"dlclose")) }
}

/// A function of a library; 0 for none.
pub(crate) fn find_in(library: *mut c_void, name: &CStr) -> usize {
    // SAFETY: a handle of the loader's, and a string.
    unsafe { dlsym()(library, name.as_ptr()) }.expose_provenance()
}

/// A wrapped call: its exported names, what is exported under them, and the real functions once those are found.
/// Second is the one for programs whose default stream is the thread's own.
#[derive(Debug)]
pub(crate) struct Wrapped {
    names: [Option<&'static str>; 2],
    wrappers: [unsafe extern "C" fn(); 2],
    real: [AtomicUsize; 2],
    /// Whether it is wanted where nothing is noted.
    serves: bool,
}

impl Wrapped {
    pub(crate) const fn new(
        names: [Option<&'static str>; 2],
        wrappers: [unsafe extern "C" fn(); 2],
        serves: bool,
    ) -> Self {
        Self { names, wrappers, real: [const { AtomicUsize::new(0) }; 2], serves }
    }

    /// Its exported names with their wrappers.
    fn entries(&self) -> impl Iterator<Item = (usize, &'static str, usize)> {
        (0..2).filter_map(|twin| Some((twin, self.names[twin]?, self.wrappers[twin] as usize)))
    }

    /// The real function; 0 where the library that the program uses has none.
    #[inline]
    pub(crate) fn function(&self, twin: usize, all: &[Wrapped]) -> usize {
        match self.real[twin].load(Ordering::Relaxed) {
            0 => self.find_late(twin, all),
            at => at,
        }
    }

    /// A program that is linked with the library calls the wrapper by its name, without having asked for anything.
    #[cold]
    fn find_late(&self, twin: usize, all: &[Wrapped]) -> usize {
        if ATTACHED.get().is_none() {
            let next = find_in(libc::RTLD_NEXT, c"cuInit");
            let library = match next {
                // SAFETY: a string; it loads nothing.
                0 => unsafe { libc::dlopen(LIBCUDA.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) },
                _ => libc::RTLD_NEXT,
            };
            if !library.is_null() {
                attach(library, all);
            }
        }
        self.real[twin].load(Ordering::Relaxed)
    }
}

/// The wrapper that is exported under a name.
pub(crate) fn exported(name: &str, all: &[Wrapped]) -> Option<usize> {
    all.iter().flat_map(Wrapped::entries).find_map(|(_, known, wrapper)| (known == name).then_some(wrapper))
}

/// Whether the library that the program uses has the function of a wrapper.
pub(crate) fn is_served(wrapper: usize, all: &[Wrapped]) -> bool {
    let twins = all.iter().flat_map(|it| it.entries().map(move |(twin, _, known)| (it, twin, known)));
    twins.filter(|it| it.2 == wrapper).any(|(it, twin, _)| it.function(twin, all) != 0)
}

/// Finds all wrapped functions in the library that the program uses. Only the first library counts.
pub(crate) fn attach(library: *mut c_void, all: &[Wrapped]) {
    static ATTACHING: Mutex<Leaf, ()> = Mutex::new(());
    let _one = lock(&ATTACHING);
    if ATTACHED.get().is_some() {
        return;
    }
    let mut wrappers = FxHashMap::default();
    for wrapped in all {
        for (twin, name, wrapper) in wrapped.entries() {
            let Ok(name) = CString::new(name) else { continue };
            let real = find_in(library, &name);
            if real != 0 && real != wrapper {
                wrapped.real[twin].store(real, Ordering::Relaxed);
                let is_lookup = || name.to_bytes().starts_with(b"cuGetProcAddress");
                if wrapped.serves || mode::is_noting() || is_lookup() {
                    wrappers.insert(real, wrapper);
                }
            }
        }
    }
    let _ = ATTACHED.set(Attached { wrappers, library: library.expose_provenance() });
}

/// The wrapper of a real function.
pub(crate) fn wrapper(real: usize) -> Option<usize> {
    ATTACHED.get()?.wrappers.get(&real).copied()
}

/// The file of the real library.
pub(crate) fn file() -> Option<PathBuf> {
    let at = std::ptr::with_exposed_provenance::<c_void>(asked(c"cuInit"));
    // SAFETY: a structure of pointers, for which null is a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; a place for the answer.
    if at.is_null() || unsafe { libc::dladdr(at, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader's, which lives as long as the library.
    Some(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes())))
}

/// A function of the real library that is only asked, by its exported name.
pub(crate) fn asked(name: &CStr) -> usize {
    let Some(attached) = ATTACHED.get() else { return 0 };
    find_in(std::ptr::with_exposed_provenance_mut(attached.library), name)
}
