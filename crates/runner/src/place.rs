//! Where a program runs: a host device, or CUDA, over `fakecuda` or on a GPU.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millpond::config::Trace;
use millpond::cuda::CudaConfig;
use millpond::{Device, DeviceConfig, HostConfig};

use crate::{Cannot, Timing, cannot};

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A host device.
    Host(Timing),
    /// CUDA over `fakecuda`.
    Fake,
    /// CUDA on a GPU.
    Cuda,
}

impl Place {
    /// The place that MILLPOND_TEST_DEVICE names for what also runs on CUDA: `fake`, which is meant without a wish, or
    /// `cuda`; none for other kinds of devices.
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

    /// A program's device, by its number in the program.
    pub(crate) fn device(self, number: u32, trace: Option<Trace>) -> Result<Device, Cannot> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let config = match self {
            Place::Host(timing) => {
                let config = HostConfig::default().schedule(timing.schedule()).trace(trace);
                return Ok(Device::host(config).expect("a host device"));
            }
            Place::Fake => {
                let ordinal = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
                CudaConfig::default().ordinal(ordinal).library(fakecuda::library())
            }
            Place::Cuda => {
                // Contexts are kept meanwhile: each takes a third of a second to make.
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

    /// Whether kernels are closures there.
    pub(crate) fn runs_closures(self) -> bool {
        matches!(self, Place::Host(_))
    }

    /// Sleeps, or not.
    pub(crate) fn pause(&mut self) -> Duration {
        match self {
            Place::Host(timing) => timing.pause(),
            Place::Fake | Place::Cuda => Duration::ZERO,
        }
    }
}
