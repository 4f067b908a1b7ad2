//! The kernel that only takes time: loaded once into each context, and launched on a stream.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use millpond_driver::locks::{Leaf, Mutex, lock};
use millpond_driver::output::say;

use crate::abi::{Code, Context, Function, Stream};
use crate::ask::{self, questions};
use crate::entry::real;

/// The kernel, as text that the driver compiles for any device. `delay.cu` is its source.
const TEXT: &str = concat!(include_str!("delay.ptx"), "\0");
const NAME: &CStr = c"millpond_delay";
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;

questions! {
    load c"cuModuleLoadData"(module: *mut usize, image: *const c_void);
    function_of c"cuModuleGetFunction"(function: *mut Function, module: usize, name: *const c_char);
    exchange_mode c"cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);
    launch c"cuLaunchKernel"(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: *const *const c_void, extra: *const *const c_void
    );
}

/// The kernel of each context. `None` if the context does not take it.
static KERNELS: Mutex<Leaf, Vec<(Context, Option<Function>)>> = Mutex::new(Vec::new());

/// Forgets the kernels: contexts have ended.
pub(super) fn forget() {
    // A process that was forked while another thread held the lock does not wait: what it finds there is not its own.
    if let Some(mut kernels) = KERNELS.try_lock() {
        kernels.clear();
    }
}

/// Makes a stream take this many nanoseconds before its next operation. Returns `false` if the driver refuses.
#[cold]
pub(super) fn put(stream: Stream, nanoseconds: u64, is_captured: bool) -> bool {
    let Some(current) = ask::current_context() else { return false };
    // Default streams are those of the current context.
    let context = match stream {
        Stream(0) | Stream::LEGACY | Stream::PER_THREAD => current,
        other => ask::context_of(other).unwrap_or(current),
    };
    let act = || match kernel(context, stream, is_captured) {
        Some(kernel) => run(kernel, stream, nanoseconds) == Code::SUCCESS,
        None => false,
    };
    if context == current { act() } else { ask::within(context, act).unwrap_or(false) }
}

/// Returns the kernel of the current context.
fn kernel(context: Context, stream: Stream, is_captured: bool) -> Option<Function> {
    let known = lock(&KERNELS).iter().find(|it| it.0 == context).map(|it| it.1);
    if let Some(known) = known {
        return known;
    }
    let loaded = loaded();
    match loaded {
        // The driver may bring it to the device at the first launch only, which takes time that is not the delay's.
        Some(kernel) if !is_captured => drop(run(kernel, stream, 0)),
        Some(_) => {}
        None => say("millpond: no delays in this context: the driver refuses the kernel that makes them"),
    }
    lock(&KERNELS).push((context, loaded));
    loaded
}

/// Loads the kernel. Captures of other streams would forbid that.
fn loaded() -> Option<Function> {
    let mut mode = RELAXED;
    let is_exchanged = exchange_mode(&raw mut mode) == Code::SUCCESS;
    let (mut module, mut function) = (0, Function(0));
    let is_loaded = load(&raw mut module, TEXT.as_ptr().cast()) == Code::SUCCESS
        && function_of(&raw mut function, module, NAME.as_ptr()) == Code::SUCCESS;
    if is_exchanged {
        let _ = exchange_mode(&raw mut mode);
    }
    is_loaded.then_some(function)
}

fn run(kernel: Function, stream: Stream, nanoseconds: u64) -> Code {
    let params = [(&raw const nanoseconds).cast::<c_void>()];
    launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params.as_ptr(), std::ptr::null())
}
