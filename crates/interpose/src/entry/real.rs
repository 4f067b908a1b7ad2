//! The real functions: found once, for all wrapped names, in the library that the program uses.
//!
//! The first call or lookup that shows this library finds them all. From then on two lookups need no lock: the real
//! function of a wrapper, and the wrapper of a real function's address. An address with several names (as
//! `cuGetProcAddress` gives it) has one wrapper.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use crate::mode;
use crate::once::Once;

/// The library's name, as every program asks for it.
const LIBCUDA: &CStr = c"libcuda.so.1";

/// The real `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real `dlclose`.
pub(crate) type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLCLOSE: AtomicUsize = AtomicUsize::new(0);
/// The wrappers by the real functions' addresses, and the real library.
static ATTACHED: Once<Attached> = Once::new();

#[derive(Debug)]
struct Attached {
    wrappers: FxHashMap<usize, usize>,
    /// Under a limit of memory, the functions for Millpond's own driver.
    inner: FxHashMap<usize, usize>,
    library: usize,
}

/// Returns a function of the C library that this library also exports. It is found by its version, which does not need
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

/// Returns the real `dlsym`.
pub(crate) fn dlsym() -> Dlsym {
    // SAFETY: that is its type.
    unsafe { std::mem::transmute::<*const c_void, Dlsym>(shadowed(&DLSYM, c"dlsym")) }
}

/// Returns the real `dlclose`.
pub(crate) fn dlclose() -> Dlclose {
    // SAFETY: that is its type.
    unsafe { std::mem::transmute::<*const c_void, Dlclose>(shadowed(&DLCLOSE, c"dlclose")) }
}

/// Returns a function of a library; 0 if there is none.
pub(crate) fn find_in(library: *mut c_void, name: &CStr) -> usize {
    // SAFETY: a handle of the loader's, and a string.
    unsafe { dlsym()(library, name.as_ptr()) }.expose_provenance()
}

/// A wrapped call: its exported names, their wrappers, and the real functions once they are found. The element at index
/// 1 is the twin for programs whose default stream is the thread's own.
#[derive(Debug)]
pub(crate) struct Wrapped {
    names: [Option<&'static str>; 2],
    wrappers: [unsafe extern "C" fn(); 2],
    real: [AtomicUsize; 2],
    /// `true` if it is needed also when nothing is noted.
    serves: bool,
    /// `true` if it is needed where streams are delayed.
    shakes: bool,
    /// If the call counts for a limit of memory, the function that makes and counts it for Millpond's own driver.
    inner: Option<unsafe extern "C" fn()>,
}

impl Wrapped {
    pub(crate) const fn new(
        names: [Option<&'static str>; 2],
        wrappers: [unsafe extern "C" fn(); 2],
        [serves, shakes]: [bool; 2],
        inner: Option<unsafe extern "C" fn()>,
    ) -> Self {
        Self { names, wrappers, real: [const { AtomicUsize::new(0) }; 2], serves, shakes, inner }
    }

    /// Returns its exported names with their wrappers.
    fn entries(&self) -> impl Iterator<Item = (usize, &'static str, usize)> {
        (0..2).filter_map(|twin| Some((twin, self.names[twin]?, self.wrappers[twin] as usize)))
    }

    /// Returns the real function; 0 if the library that the program uses does not have it.
    #[inline]
    pub(crate) fn function(&self, twin: usize, all: &[Wrapped]) -> usize {
        match self.real[twin].load(Ordering::Relaxed) {
            0 => self.find_late(twin, all),
            at => at,
        }
    }

    /// Finds the real functions late: a program that is linked with the library calls a wrapper by its name, without
    /// any lookup before.
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

/// Returns the wrapper that is exported under a name.
pub(crate) fn exported(name: &str, all: &[Wrapped]) -> Option<usize> {
    all.iter().flat_map(Wrapped::entries).find_map(|(_, known, wrapper)| (known == name).then_some(wrapper))
}

/// Returns `true` if the library that the program uses has the function of a wrapper.
pub(crate) fn is_served(wrapper: usize, all: &[Wrapped]) -> bool {
    let twins = all.iter().flat_map(|it| it.entries().map(move |(twin, _, known)| (it, twin, known)));
    twins.filter(|it| it.2 == wrapper).any(|(it, twin, _)| it.function(twin, all) != 0)
}

/// Finds all wrapped functions in the library that the program uses. Only the first library counts.
pub(crate) fn attach(library: *mut c_void, all: &[Wrapped]) {
    ATTACHED.get_or_make(|| Some(Attached::new(library, all)));
}

impl Attached {
    fn new(library: *mut c_void, all: &[Wrapped]) -> Self {
        let (mut wrappers, mut inner) = (FxHashMap::default(), FxHashMap::default());
        for wrapped in all {
            for (twin, name, wrapper) in wrapped.entries() {
                let Ok(name) = CString::new(name) else { continue };
                let real = find_in(library, &name);
                if real != 0 && real != wrapper {
                    wrapped.real[twin].store(real, Ordering::Relaxed);
                    let is_lookup = || name.to_bytes().starts_with(b"cuGetProcAddress");
                    let counts = wrapped.inner.filter(|_| mode::limit().is_some());
                    let shakes = wrapped.shakes && mode::shaking().is_some();
                    if wrapped.serves || shakes || counts.is_some() || mode::is_noting() || is_lookup() {
                        wrappers.insert(real, wrapper);
                    }
                    if let (0, Some(function)) = (twin, counts) {
                        inner.insert(real, function as usize);
                    }
                }
            }
        }
        Self { wrappers, inner, library: library.expose_provenance() }
    }
}

/// Returns the wrapper of a real function.
pub(crate) fn wrapper(real: usize) -> Option<usize> {
    ATTACHED.get()?.wrappers.get(&real).copied()
}

/// Returns the function that stands for a real one in Millpond's own driver, if there is one.
pub(crate) fn inner(real: usize) -> Option<usize> {
    ATTACHED.get()?.inner.get(&real).copied()
}

/// Returns the path of the real library.
pub(crate) fn file() -> Option<PathBuf> {
    let at = std::ptr::with_exposed_provenance::<c_void>(asked(c"cuInit"));
    // SAFETY: a structure of pointers, for which null is a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the answer goes to a local.
    if at.is_null() || unsafe { libc::dladdr(at, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader's, which lives as long as the library.
    Some(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes())))
}

/// Returns a function of the real library by its exported name, for questions; 0 if there is none.
pub(crate) fn asked(name: &CStr) -> usize {
    let Some(attached) = ATTACHED.get() else { return 0 };
    find_in(std::ptr::with_exposed_provenance_mut(attached.library), name)
}
