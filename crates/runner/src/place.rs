//! The device that a program runs on: a host device, one that checks the driver's contract, or CUDA.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millpond::config::Trace;
use millpond::cuda::CudaConfig;
use millpond::{Device, DeviceConfig, HostConfig};
use millpond_driver::{Checked, HostDriver, Schedule};

use crate::{Cannot, Timing, cannot};

/// The device that a program runs on.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A host device.
    Host(Timing),
    /// A host device without memory that checks that its caller keeps the driver's contract.
    Checked(Schedule),
    /// CUDA with `fakecuda` as the driver.
    Fake,
    /// CUDA on a GPU.
    Cuda,
}

/// Makes a driver that checks that its caller keeps the contract.
pub(crate) fn checked(schedule: Schedule) -> Arc<Checked<HostDriver>> {
    let config = millpond_driver::HostConfig { schedule, memory: false, ..Default::default() };
    Arc::new(Checked::new(HostDriver::new(config).expect("a host device")))
}

impl Place {
    /// Returns the place that MILLPOND_TEST_DEVICE names, for tests that also run on CUDA: `fake`, which is the
    /// default, or `cuda`. Returns `None` for other kinds of devices.
    pub fn wished() -> Option<Place> {
        match std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default().as_str() {
            "" => {
                println!("skipped on a GPU: MILLPOND_TEST_DEVICE is not `cuda`");
                Some(Place::Fake)
            }
            "fake" => Some(Place::Fake),
            "cuda" => Some(Place::Cuda),
            other => {
                println!("skipped on CUDA: MILLPOND_TEST_DEVICE={other}");
                None
            }
        }
    }

    /// Opens a program's device, by its number in the program.
    pub(crate) fn device(self, number: u32, trace: Option<Trace>) -> Result<Device, Cannot> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let config = match self {
            Place::Host(timing) => {
                let config = HostConfig::default().schedule(timing.schedule()).trace(trace);
                return Ok(Device::host(config).expect("a host device"));
            }
            Place::Checked(_) => return cannot("a second device that is held to the contract"),
            Place::Fake => {
                let ordinal = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
                CudaConfig::default().ordinal(ordinal).library(fakecuda::library())
            }
            Place::Cuda => {
                // The devices are kept open, because making a context takes a third of a second.
                static KEPT: OnceLock<Vec<Device>> = OnceLock::new();
                KEPT.get_or_init(|| (0..2).map_while(|ordinal| Device::cuda(ordinal).ok()).collect());
                CudaConfig::default().ordinal(number)
            }
        };
        match Device::cuda_with(config, DeviceConfig::default().trace(trace)) {
            Ok(device) => Ok(device),
            Err(error) if number > 0 => cannot(&format!("another GPU: {error}")),
            Err(error) => panic!("a CUDA device: {error}"),
        }
    }

    /// Returns `true` if kernels are closures there.
    pub(crate) fn runs_closures(self) -> bool {
        matches!(self, Place::Host(_))
    }

    /// Returns the time to sleep, which may be zero.
    pub(crate) fn pause(&mut self) -> Duration {
        match self {
            Place::Host(timing) => timing.pause(),
            Place::Checked(_) | Place::Fake | Place::Cuda => Duration::ZERO,
        }
    }
}
