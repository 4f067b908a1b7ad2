//! Devices by number, opened at their first use.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use millpond_driver::locks::{Mutex, lock};

use millpond::raw::Trusted;
use millpond::{HostConfig, PoolConfig};

use super::late::Late;
use super::private::Private;
use crate::status::{Failure, Result};
use crate::tables::device::{DeviceEntry, cuda_device, host_device};
use crate::tables::ranks;

/// Device numbers are below this.
const DEVICES_MAX: usize = 64;

/// A device, as PyTorch's allocator uses it.
pub(super) struct TorchDevice {
    pub(super) entry: Arc<DeviceEntry>,
    pub(super) trusted: Trusted,
    pub(super) private: Private,
    pub(super) late: Late,
}

static OPEN: [OnceLock<&'static TorchDevice>; DEVICES_MAX] = [const { OnceLock::new() }; DEVICES_MAX];
/// Held while a device is opened.
static OPENING: Mutex<ranks::Opening, ()> = Mutex::new(());

const UNDECIDED: u8 = 0;
const CUDA: u8 = 1;
const HOST: u8 = 2;
static KIND: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Decides whether the numbers mean host devices or CUDA devices.
pub(super) fn use_host(host: bool) -> Result<()> {
    let wanted = if host { HOST } else { CUDA };
    match KIND.compare_exchange(UNDECIDED, wanted, Ordering::AcqRel, Ordering::Acquire) {
        Err(decided) if decided != wanted => {
            Err(Failure::Value("the first call has decided already which devices the numbers mean".into()))
        }
        _ => Ok(()),
    }
}

/// Returns the device of a number.
#[inline]
pub(super) fn device(ordinal: i32) -> Result<&'static TorchDevice> {
    match OPEN.get(ordinal as usize).and_then(OnceLock::get) {
        Some(device) => Ok(device),
        None => open_device(ordinal),
    }
}

/// Returns the open devices.
pub(super) fn open() -> impl Iterator<Item = &'static TorchDevice> {
    OPEN.iter().filter_map(|device| device.get().copied())
}

/// Opens a device, once for each number.
#[cold]
fn open_device(ordinal: i32) -> Result<&'static TorchDevice> {
    let place = OPEN.get(ordinal as usize).ok_or_else(|| Failure::Value(format!("there is no device {ordinal}")))?;
    let _opening = lock(&OPENING);
    if let Some(device) = place.get() {
        return Ok(device);
    }
    // The first call without an explicit kind selects CUDA.
    let _ = KIND.compare_exchange(UNDECIDED, CUDA, Ordering::AcqRel, Ordering::Acquire);
    let entry = match KIND.load(Ordering::Acquire) {
        HOST => host_device(HostConfig::default())?,
        _ => cuda_device(ordinal)?,
    };
    // The library does not see the program's synchronisations: idle memory is given back when it is needed elsewhere,
    // or on request.
    let pool = entry.device.pool(PoolConfig::default().release_threshold(u64::MAX))?;
    let private = Private::new(&entry.device, &pool)?;
    // SAFETY: the promise of C callers: streams of the device that stay open.
    let trusted = unsafe { entry.device.trusted(pool, true) };
    let device: &'static TorchDevice =
        Box::leak(Box::new(TorchDevice { entry, trusted, private, late: Late::default() }));
    Ok(place.get_or_init(|| device))
}

impl TorchDevice {
    /// Limits memory to this fraction of the device's.
    pub(super) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Failure::Value(format!("a memory fraction of {fraction}: it is above 0 and at most 1")));
        }
        let total = self.entry.device.properties().total_bytes;
        self.private.set_limit((total as f64 * fraction) as u64)
    }
}
