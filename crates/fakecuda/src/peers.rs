//! The peer access of contexts. It is recorded only for queries: all memory can be used.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::{Code, Context};

use crate::current;
use crate::device::open;
use crate::lock;

/// The context that has access, and the device of the other one.
static ENABLED: LazyLock<Mutex<BTreeSet<(usize, i32)>>> = LazyLock::new(Mutex::default);

fn enabled() -> MutexGuard<'static, BTreeSet<(usize, i32)>> {
    lock(&ENABLED)
}

/// Gives the current context access to another one.
pub(crate) fn enable(peer: Context) -> Result<(), Code> {
    let owner = current::ordinal_of(peer)?;
    if !open::are_peers(current::ordinal()?, owner)? {
        return Err(Code::INVALID_DEVICE);
    }
    match enabled().insert((current::context().0, owner)) {
        true => Ok(()),
        false => Err(Code(704)), // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    }
}

/// Ends that access.
pub(crate) fn disable(peer: Context) -> Result<(), Code> {
    match enabled().remove(&(current::context().0, current::ordinal_of(peer)?)) {
        true => Ok(()),
        false => Err(Code(705)), // CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
    }
}

/// Returns `true` if the current context has access to a device.
pub(crate) fn has_access(owner: i32) -> Result<bool, Code> {
    Ok(enabled().contains(&(current::context().0, owner)))
}
