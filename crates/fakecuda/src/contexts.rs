//! The devices of the process, their contexts, and which context is current on which thread.
//!
//! Knows when a device is opened and when it goes: with the last holder of its primary context, and all that is in it.
//! Other contexts of a device hold it, too.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use millpond_core::units::GIB;
use millpond_driver::cuda::abi::{Code, Context};

use crate::device::{Device, fresh_handle};

/// What is behind a device number.
#[derive(Debug, Default)]
struct Primary {
    holders: u32,
    device: Option<Arc<Device>>,
}

static PRIMARIES: LazyLock<Vec<Mutex<Primary>>> =
    LazyLock::new(|| (0..setting("FAKECUDA_DEVICES", PEERS as u64 + 1)).map(|_| Mutex::default()).collect());

thread_local! {
    /// Never dropped: what a thread calls while it ends finds its context.
    static STACK: RefCell<ManuallyDrop<Vec<Context>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Primary contexts are named by these and the device's number.
const FIRST: usize = 0xC0DE_0000;
/// Devices from this number on are nobody's peers.
const PEERS: i32 = 64;

/// The contexts that are not primary, and their devices.
static OTHERS: LazyLock<Mutex<BTreeMap<usize, i32>>> = LazyLock::new(Mutex::default);

fn others() -> MutexGuard<'static, BTreeMap<usize, i32>> {
    OTHERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether work of one device may be given access to another's memory.
pub(crate) fn are_peers(one: i32, other: i32) -> Result<bool, Code> {
    check(one)?;
    check(other)?;
    Ok(one != other && one < PEERS && other < PEERS)
}

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

/// Whether the program's host memory counts as pageable: a copy with one side there has completed when its call
/// returns.
pub(crate) fn is_pageable() -> bool {
    static SETTING: LazyLock<bool> = LazyLock::new(|| setting("FAKECUDA_PAGEABLE", 0) != 0);
    *SETTING
}

/// Whether events pass between processes. The calls are there all the same, as in a real driver.
pub(crate) fn has_ipc_events() -> bool {
    setting("FAKECUDA_IPC_EVENTS", 1) != 0
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
        primary.device = Some(Arc::new(Device::new(ordinal, total_bytes())?));
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

/// Makes a context, which becomes the current one.
pub(crate) fn create(ordinal: i32) -> Result<Context, Code> {
    retain(ordinal)?;
    let handle = fresh_handle();
    others().insert(handle, ordinal);
    push(Context(handle));
    Ok(Context(handle))
}

/// A context goes, and all streams and events in it.
pub(crate) fn destroy(context: Context) -> Result<(), Code> {
    let ordinal = others().remove(&context.0).ok_or(Code::INVALID_CONTEXT)?;
    STACK.with_borrow_mut(|stack| stack.retain(|it| *it != context));
    if let Some(device) = device(ordinal) {
        device.destroy_context(context)?;
    }
    release(ordinal)
}

/// The number of the current context's device.
pub(crate) fn current_ordinal() -> Result<i32, Code> {
    let context = current();
    let other = others().get(&context.0).copied();
    let is_primary = || (FIRST..FIRST + count()).contains(&context.0).then(|| (context.0 - FIRST) as i32);
    let is_gone = context != Context::default();
    other.or_else(is_primary).ok_or(if is_gone { Code::CONTEXT_IS_DESTROYED } else { Code::INVALID_CONTEXT })
}

/// The device of the thread's current context.
pub(crate) fn current_device() -> Result<Arc<Device>, Code> {
    device(current_ordinal()?).ok_or(Code::INVALID_CONTEXT)
}

/// A device, if it is open.
fn device(ordinal: i32) -> Option<Arc<Device>> {
    primary(ordinal).ok()?.device.clone()
}

/// All open devices, with their numbers.
pub(crate) fn devices() -> impl Iterator<Item = (i32, Arc<Device>)> {
    (0..count() as i32).filter_map(|ordinal| Some((ordinal, device(ordinal)?)))
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
    STACK.with_borrow_mut(|stack| stack.pop()).ok_or(Code::INVALID_CONTEXT)
}
