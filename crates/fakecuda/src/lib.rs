//! A library with the interface of `libcuda`, on the host device. It tests the CUDA driver on machines without a GPU.
//!
//! As a shared library (`libfakecuda.so`) it exports the functions that Millpond's CUDA driver uses. It is stricter
//! than the real library: behaviour that is undefined there is an error or a lost device here.
//!
//! * A chunk is mapped whole, from offset 0; mapped memory is inaccessible until access is set.
//! * Copies and fills outside accessible memory are refused; unmapping memory under work in flight loses the device.
//! * Host functions run one at a time, and may not call in here.
//! * A graph's memory must exist when the graph is launched. A capture is invalidated by calls that cannot be captured,
//!   and by queries of all work of the device or waits for it.
//! * A capture that is not relaxed forbids queries, waits and calls for memory to the threads that its mode names.
//! * Streams and events belong to the context that made them, which must be the current one; a stream may wait for any
//!   context's event. Destroying a context destroys its streams and events; memory belongs to the device.
//! * An event for other processes is recorded once and named once, cannot be opened by its own process, and is not
//!   destroyed while another process has it open. If its process is killed before the event has completed, it never
//!   completes by itself.
//! * Copies and fills in another device's memory need access to it; the last of the default devices is not a peer of
//!   others.
//!
//! A kernel `millpond_delay` of any module only takes the nanoseconds that its argument says.
//!
//! Tests link it as a Rust library, which returns the path of the shared library ([`library`]), makes its calls fail
//! and counts them ([`Hooks`]). Settings, read when they are needed: `FAKECUDA_DEVICES` (65), `FAKECUDA_BYTES` of each
//! (64 GiB), and `FAKECUDA_FAIL`, a list such as `cuMemCreate@3=2,cuMemMap@0=999`: the call of that number, from 0,
//! returns this code. With `FAKECUDA_PAGEABLE=1` host memory counts as pageable: copies to and from it have completed
//! when their calls return. Without it no copy waits, as for pinned memory. With `FAKECUDA_IPC_EVENTS=0` devices report
//! that they have no interprocess events. With `FAKECUDA_FORKS=1` streams take part in captures of others. With
//! `FAKECUDA_DECOMPRESSES=1` devices report that they decompress memory. `FAKECUDA_FIRST_DEVICE=1`: device 0 is the
//! machine's device 1. `FAKECUDA_MODULE_BYTES`: the memory that a module takes.
//!
//! | module | one line |
//! |---|---|
//! | `exports` | the functions, as in `cuda.h` |
//! | `contexts` | devices, primary contexts, and the current context |
//! | `allocations` | a device's allocations, as programs of the driver API make them |
//! | `device` | one device: streams, events, work |
//! | `graphs` | a device's graphs: built, captured, launched |
//! | `between` | a device's interprocess events, and memory of other processes |
//! | `memory` | a device's memory: chunks, mappings, and uses |
//! | `faults` | calls that fail on demand |
//! | `kernels` | functions of the program that it launches as kernels |
//! | `handles` | numbers for created objects |
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

/// Returns the path of the shared library, beside the running program or in cargo's folder. Each thread gets another
/// name for it: captures count for all devices of a library's name, so tests that run side by side do not affect each
/// other.
///
/// # Panics
/// If the file does not exist, because it was not built with this test.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut folders = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let found = folders.find_map(|folder| Some(folder.join("libfakecuda.so")).filter(|file| file.is_file()));
    let found = found.unwrap_or_else(|| panic!("no libfakecuda.so beside {}", program.display()));
    // Each digit is a part of the path that does not change the folder.
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

/// The hooks of a loaded library. They affect calls of the thread that uses them, so that tests can run side by side.
pub struct Hooks(libloading::Library);

impl Hooks {
    /// Loads the shared library, or finds it loaded.
    ///
    /// # Panics
    /// If the file does not exist.
    pub fn load() -> Self {
        // SAFETY: the library does nothing when it is loaded.
        Self(unsafe { libloading::Library::new(library()) }.expect("the library loads"))
    }

    /// Makes the `after`-th call of a function from now on, 0 being the next, return a code instead of doing anything.
    /// A sticky code loses the current device, as a kernel's fault does: all later calls of every thread return it.
    pub fn fail(&self, function: &str, after: u64, code: Code) {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char, u64, c_uint)>("fakecuda_fail");
        // SAFETY: the string lives long enough.
        unsafe { hook(name(function).as_ptr(), after, code.0) };
    }

    /// Makes a function missing for callers that look it up.
    pub fn hide(&self, function: &str) {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char)>("fakecuda_hide");
        // SAFETY: the string lives long enough.
        unsafe { hook(name(function).as_ptr()) };
    }

    /// Returns the number of calls of a function by this thread, failed ones included.
    pub fn calls(&self, function: &str) -> u64 {
        let hook = self.hook::<unsafe extern "C" fn(*const c_char) -> u64>("fakecuda_calls");
        // SAFETY: the string lives long enough.
        unsafe { hook(name(function).as_ptr()) }
    }

    /// Removes every rule of this thread.
    pub fn reset(&self) {
        let hook = self.hook::<unsafe extern "C" fn()>("fakecuda_reset");
        // SAFETY: the function takes no arguments.
        unsafe { hook() };
    }

    /// Returns a hook, by its exported name and with its type in `exports`.
    fn hook<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers' types are those of `exports`.
        *unsafe { self.0.get::<F>(name.as_bytes()) }.expect("fakecuda has its hooks")
    }
}

fn name(function: &str) -> CString {
    CString::new(function).expect("a name without a 0")
}

/// Takes a lock, also if a thread panicked under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
