//! The devices of the process, their primary contexts, and which context is current on which thread.
//!
//! Knows when a device is opened and when it goes: with the last holder of its primary context, and all that is in it.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use millpond_core::units::GIB;
use millpond_driver::cuda::abi::{Code, Context};

use crate::device::Device;

/// What is behind a device number.
#[derive(Debug, Default)]
struct Primary {
    holders: u32,
    device: Option<Arc<Device>>,
}

static PRIMARIES: LazyLock<Vec<Mutex<Primary>>> =
    LazyLock::new(|| (0..setting("FAKECUDA_DEVICES", 64)).map(|_| Mutex::default()).collect());

thread_local! {
    static STACK: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
}

/// Contexts are named by these and the device's number.
const FIRST: usize = 0xC0DE_0000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn count() -> usize {
    PRIMARIES.len()
}

/// The memory of each device, in bytes.
pub(crate) fn total_bytes() -> u64 {
    setting("FAKECUDA_BYTES", 64 * GIB)
}

/// Whether the program's host memory counts as pageable: a copy with one side there is over when its call returns.
pub(crate) fn is_pageable() -> bool {
    static SETTING: LazyLock<bool> = LazyLock::new(|| setting("FAKECUDA_PAGEABLE", 0) != 0);
    *SETTING
}

fn primary(ordinal: i32) -> Result<MutexGuard<'static, Primary>, Code> {
    let primary = usize::try_from(ordinal).ok().and_then(|ordinal| PRIMARIES.get(ordinal));
    Ok(primary.ok_or(Code::INVALID_DEVICE)?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether there is such a device.
pub(crate) fn check(ordinal: i32) -> Result<(), Code> {
    primary(ordinal).map(drop)
}

pub(crate) fn retain(ordinal: i32) -> Result<Context, Code> {
    let mut primary = primary(ordinal)?;
    if primary.device.is_none() {
        primary.device = Some(Arc::new(Device::new(total_bytes())?));
    }
    primary.holders += 1;
    Ok(Context(FIRST + ordinal as usize))
}

pub(crate) fn release(ordinal: i32) -> Result<(), Code> {
    let mut primary = primary(ordinal)?;
    primary.holders = primary.holders.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    let last = if primary.holders == 0 { primary.device.take() } else { None };
    drop(primary);
    // It waits for its work, so nobody else may have to wait for this.
    drop(last);
    Ok(())
}

/// The device of the thread's current context.
pub(crate) fn current_device() -> Result<Arc<Device>, Code> {
    let device = primary(current_ordinal()?).map_err(|_| Code::INVALID_CONTEXT)?.device.clone();
    device.ok_or(Code::INVALID_CONTEXT)
}

/// Its number.
pub(crate) fn current_ordinal() -> Result<i32, Code> {
    current().0.checked_sub(FIRST).map(|ordinal| ordinal as i32).ok_or(Code::INVALID_CONTEXT)
}

/// The thread's current context; 0 for none.
pub(crate) fn current() -> Context {
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
    STACK.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)
}
