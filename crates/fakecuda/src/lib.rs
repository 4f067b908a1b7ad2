//! A library in the shape of `libcuda`, over the host device: the CUDA driver is tested with it where no GPU is.
//!
//! As a shared library (`libfakecuda.so`) it exports the functions that Millpond's CUDA driver uses. It is stricter
//! than the real one where that one only promises less: what is undefined there is an error or a lost device here.
//!
//! * A chunk is mapped whole, from offset 0; mapped memory is inaccessible until access is set.
//! * Copies and fills outside accessible memory are refused; memory unmapped under work in flight loses the device.
//! * Host functions run one at a time, and may not call in here.
//! * A graph's memory must be there when it is launched; a capture is spoilt by what cannot be captured, and by who
//!   asks for all work of the device, or waits for it.
//! * A capture that is not relaxed forbids questions, waits and calls for memory to the threads that its mode names.
//! * Streams and events are known by the context that made them, which must be the current one; a stream may wait for
//!   any context's event. A context that is destroyed takes its own with it; memory is the device's.
//! * An event for other processes is recorded once and named once, cannot be opened by its own process, and is not
//!   destroyed while another has it open; one whose process is killed before is never over by itself.
//! * Copies and fills in another device's memory need access to it; the last of the default devices is not a peer of
//!   others.
//!
//! As a Rust library it is what tests link: where the shared one is ([`library`]), and how its calls are made to fail
//! and counted ([`Hooks`]). Settings, read when they are first needed: `FAKECUDA_DEVICES` (65), `FAKECUDA_BYTES` of
//! each (64 GiB), and `FAKECUDA_FAIL`, a list such as `cuMemCreate@3=2,cuMemMap@0=999`: the call of that number, from
//! 0, answers this code. With `FAKECUDA_PAGEABLE=1` host memory counts as pageable: copies to and from it have
//! completed when their calls return. Without it none waits, as for pinned memory. With `FAKECUDA_IPC_EVENTS=0` the
//! devices say that no events pass between processes. With `FAKECUDA_FORKS=1` streams take part in captures of others.
//! With `FAKECUDA_DECOMPRESSES=1` devices say that they decompress memory.
//!
//! | module | one line |
//! |---|---|
//! | `exports` | the functions, as `cuda.h` has them |
//! | `contexts` | devices, primary contexts, and which is current where |
//! | `allocations` | its allocations, as programs of the driver API make them |
//! | `device` | one device: streams, events, work |
//! | `graphs` | its graphs: built, captured, launched |
//! | `between` | its events and memory that pass between processes |
//! | `memory` | its memory: chunks, mappings, and who uses them |
//! | `faults` | calls made to fail |
//! | `kernels` | functions of the program that it launches |
//! | `handles` | numbers for what is created |
//! | `forks` | streams that take part in captures of others |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod between;
mod contexts;
mod current;
mod device;
mod exports;
mod faults;
mod forks;
mod handles;
mod kernels;
mod memory;
mod peers;
mod pools;
mod settings;

use std::ffi::{CString, c_char, c_uint};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use millpond_driver::cuda::abi::Code;

/// The shared library's file, beside the running program or where cargo puts it, by a name that only the calling thread
/// gets: captures count for all devices of a library's name, and tests that run side by side have nothing to do with
/// each other.
///
/// # Panics
/// If it is not there: it was not built with this test.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut folders = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let found = folders.find_map(|folder| Some(folder.join("libfakecuda.so")).filter(|file| file.is_file()));
    let found = found.unwrap_or_else(|| panic!("no libfakecuda.so beside {}", program.display()));
    // Each digit is a part of the path that leads nowhere.
    let digits = format!("{:b}", THREAD.with(|number| *number)).replace('0', "/").replace('1', "./");
    found.parent().expect("a folder").join(format!("{digits}libfakecuda.so"))
}

thread_local! {
    /// The number of the calling thread.
    static THREAD: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The hooks of a loaded library. They concern calls of the thread that uses them, so that tests can run side by side.
pub struct Hooks(libloading::Library);

impl Hooks {
    /// Loads the shared library, or finds it loaded.
    ///
    /// # Panics
    /// If it is not there.
    pub fn load() -> Self {
        // SAFETY: it does nothing when it is loaded.
        Self(unsafe { libloading::Library::new(library()) }.expect("the library loads"))
    }

    /// Makes the `after`-th call of a function from now on, 0 being the next, answer a code instead of doing anything.
    /// A sticky code loses the current device, as a kernel's fault does: all later calls answer it, of every thread.
    pub fn fail(&self, function: &str, after: u64, code: Code) {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char, u64, c_uint)>("fakecuda_fail");
        // SAFETY: a string that lives long enough.
        unsafe { hook(name(function).as_ptr(), after, code.0) };
    }

    /// Makes a function missing, for who asks for its address.
    pub fn hide(&self, function: &str) {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char)>("fakecuda_hide");
        // SAFETY: a string that lives long enough.
        unsafe { hook(name(function).as_ptr()) };
    }

    /// How many calls of a function this thread has made, failed ones included.
    pub fn calls(&self, function: &str) -> u64 {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char) -> u64>("fakecuda_calls");
        // SAFETY: a string that lives long enough.
        unsafe { hook(name(function).as_ptr()) }
    }

    /// Takes every wish of this thread back.
    pub fn reset(&self) {
        let hook = self.hook::<unsafe extern "C" fn()>("fakecuda_reset");
        // SAFETY: it takes nothing.
        unsafe { hook() };
    }

    /// A hook, by its exported name and with the type that `exports` gives it.
    fn hook<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers' types are those of `exports`.
        *unsafe { self.0.get::<F>(name.as_bytes()) }.expect("fakecuda has its hooks")
    }
}

fn name(function: &str) -> CString {
    CString::new(function).expect("a name without a 0")
}

/// Takes a lock, whether or not a thread panicked under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
