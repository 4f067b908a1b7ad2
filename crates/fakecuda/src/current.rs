//! The current context of each thread, and the device of each context.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::{Code, Context};

use crate::lock;
use crate::settings;

thread_local! {
    /// Never dropped: a thread that ends may still make calls, and they find its context.
    static STACK: RefCell<ManuallyDrop<Vec<Context>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// The handle of a primary context is this number plus the device's number.
const FIRST: usize = 0xC0DE_0000;

/// Returns the primary context of a device.
pub(crate) fn primary(ordinal: i32) -> Context {
    Context(FIRST + ordinal as usize)
}

/// The contexts that are not primary, and their devices.
static OTHERS: LazyLock<Mutex<BTreeMap<usize, i32>>> = LazyLock::new(Mutex::default);

pub(crate) fn others() -> MutexGuard<'static, BTreeMap<usize, i32>> {
    lock(&OTHERS)
}

/// Returns the thread's current context; 0 for none.
pub(crate) fn context() -> Context {
    STACK.with_borrow(|stack| stack.last().copied().unwrap_or_default())
}

pub(crate) fn set(context: Context) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context);
    });
}

pub(crate) fn push(context: Context) {
    STACK.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Result<Context, Code> {
    STACK.with_borrow_mut(|stack| stack.pop()).ok_or(Code::INVALID_CONTEXT)
}

/// Removes a destroyed context from this thread's stack.
pub(crate) fn forget(context: Context) {
    STACK.with_borrow_mut(|stack| stack.retain(|it| *it != context));
}

/// Returns the number of the current context's device.
pub(crate) fn ordinal() -> Result<i32, Code> {
    ordinal_of(context())
}

/// Returns the number of a context's device.
pub(crate) fn ordinal_of(context: Context) -> Result<i32, Code> {
    let other = others().get(&context.0).copied();
    let is_primary = || (FIRST..FIRST + settings::devices()).contains(&context.0).then(|| (context.0 - FIRST) as i32);
    let is_gone = context != Context::default();
    other.or_else(is_primary).ok_or(if is_gone { Code::CONTEXT_IS_DESTROYED } else { Code::INVALID_CONTEXT })
}
