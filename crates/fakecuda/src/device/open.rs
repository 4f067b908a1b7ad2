//! The devices of the process. A device is opened for the first holder of one of its contexts, and dropped with the
//! last.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::Code;

use super::Device;
use crate::lock;
use crate::settings::{self, PEERS};

/// The device, if it is open, and the number of holders of its contexts.
#[derive(Debug, Default)]
struct Primary {
    holders: u32,
    device: Option<Arc<Device>>,
}

static PRIMARIES: LazyLock<Vec<Mutex<Primary>>> =
    LazyLock::new(|| (0..settings::devices()).map(|_| Mutex::default()).collect());

/// Returns `true` if work of one device may be given access to another's memory.
pub(crate) fn are_peers(one: i32, other: i32) -> Result<bool, Code> {
    check(one)?;
    check(other)?;
    Ok(one != other && one < PEERS && other < PEERS)
}

fn primary(ordinal: i32) -> Result<MutexGuard<'static, Primary>, Code> {
    let primary = usize::try_from(ordinal).ok().and_then(|ordinal| PRIMARIES.get(ordinal));
    Ok(lock(primary.ok_or(Code::INVALID_DEVICE)?))
}

/// Checks that the device exists.
pub(crate) fn check(ordinal: i32) -> Result<(), Code> {
    primary(ordinal).map(drop)
}

/// Opens a device for one more holder.
pub(crate) fn retain(ordinal: i32) -> Result<(), Code> {
    let mut primary = primary(ordinal)?;
    if primary.device.is_none() {
        primary.device = Some(Arc::new(Device::new(ordinal, settings::total_bytes())?));
    }
    primary.holders += 1;
    Ok(())
}

/// Releases a device for one holder.
pub(crate) fn release(ordinal: i32) -> Result<(), Code> {
    let mut primary = primary(ordinal)?;
    primary.holders = primary.holders.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    let last = if primary.holders == 0 { primary.device.take() } else { None };
    drop(primary);
    // The drop waits for the device's work, so it is not under the lock.
    drop(last);
    Ok(())
}

/// Returns a device, if it is open.
pub(crate) fn device(ordinal: i32) -> Option<Arc<Device>> {
    primary(ordinal).ok()?.device.clone()
}

/// Returns all open devices, with their numbers.
pub(crate) fn devices() -> impl Iterator<Item = (i32, Arc<Device>)> {
    (0..settings::devices() as i32).filter_map(|ordinal| Some((ordinal, device(ordinal)?)))
}
