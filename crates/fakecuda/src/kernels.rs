//! Functions of the program that were passed as kernels, by handle.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::Context;

use crate::handles::end_handle;
use crate::lock;

/// A kernel of the program.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) module: usize,
    pub(crate) context: Context,
    pub(crate) name: CString,
    pub(crate) run: unsafe extern "C" fn(*mut *mut c_void),
    /// Offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
}

static KERNELS: LazyLock<Mutex<HashMap<usize, Kernel>>> = LazyLock::new(Mutex::default);

/// Returns all kernels, locked.
pub(crate) fn kernels() -> MutexGuard<'static, HashMap<usize, Kernel>> {
    lock(&KERNELS)
}

/// Removes the kernels of a module or a context that is gone.
pub(crate) fn forget(is_gone: impl Fn(&Kernel) -> bool) {
    kernels().extract_if(|_, kernel| is_gone(kernel)).for_each(|(handle, _)| end_handle(handle));
}
