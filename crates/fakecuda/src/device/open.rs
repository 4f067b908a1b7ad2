//! The devices of the process. One is opened for the first holder of its primary context, and goes with the last.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::Code;

use super::Device;
use crate::lock;
use crate::settings::{self, PEERS};

/// What is behind a device number.
#[derive(Debug, Default)]
struct Primary {
    holders: u32,
    device: Option<Arc<Device>>,
}

static PRIMARIES: LazyLock<Vec<Mutex<Primary>>> =
    LazyLock::new(|| (0..settings::devices()).map(|_| Mutex::default()).collect());

/// Whether work of one device may be given access to another's memory.
pub(crate) fn are_peers(one: i32, other: i32) -> Result<bool, Code> {
    check(one)?;
    check(other)?;
    Ok(one != other && one < PEERS && other < PEERS)
}

fn primary(ordinal: i32) -> Result<MutexGuard<'static, Primary>, Code> {
    let primary = usize::try_from(ordinal).ok().and_then(|ordinal| PRIMARIES.get(ordinal));
    Ok(lock(primary.ok_or(Code::INVALID_DEVICE)?))
}

/// Whether there is such a device.
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

/// One holder of a device has gone.
pub(crate) fn release(ordinal: i32) -> Result<(), Code> {
    let mut primary = primary(ordinal)?;
    primary.holders = primary.holders.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    let last = if primary.holders == 0 { primary.device.take() } else { None };
    drop(primary);
    // Its end waits for its work: not behind the lock.
    drop(last);
    Ok(())
}

/// A device, if it is open.
pub(crate) fn device(ordinal: i32) -> Option<Arc<Device>> {
    primary(ordinal).ok()?.device.clone()
}

/// All open devices, with their numbers.
pub(crate) fn devices() -> impl Iterator<Item = (i32, Arc<Device>)> {
    (0..settings::devices() as i32).filter_map(|ordinal| Some((ordinal, device(ordinal)?)))
}
