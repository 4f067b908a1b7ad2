//! Serves recorded programs with the library: opens a device, a pool, and a stream for each stream of the program.
//!
//! If a free is on another stream than its allocation, an event orders the two. The recorded program must have ordered
//! them, too, but the recording does not say how.

use std::collections::BTreeMap;

use millpond::{Buffer, Device, HostConfig, Pool, Stream};
use millpond_cli::args::DeviceKind;
use millpond_cli::replay::{Figures, ServeError, Server, Setup};
use millpond_core::units::TIB;
use millpond_driver::{CallCounts, CallKind};

/// The memory of the devices: more than any recorded program had. It costs nothing until it is touched.
const DEVICE_BYTES: u64 = TIB;

/// Opens a server for a program.
///
/// # Errors
/// The device cannot be opened.
pub(crate) fn open(setup: &Setup) -> Result<Box<dyn Server>, ServeError> {
    Ok(Box::new(Library::new(setup).map_err(refused)?))
}

/// A server that uses the library.
struct Library {
    device: Device,
    pool: Pool,
    streams: Vec<Stream>,
    /// The live buffers by id, each with the stream that allocated it.
    live: Vec<Option<(Buffer<u8>, u32)>>,
    /// The driver calls up to the end of the last pass.
    counted: CallCounts,
}

impl Library {
    fn new(setup: &Setup) -> millpond::Result<Self> {
        let device = match setup.device {
            DeviceKind::Host => Device::host(HostConfig::default().total_bytes(DEVICE_BYTES))?,
            DeviceKind::Sim => Device::host(HostConfig::default().total_bytes(DEVICE_BYTES).memory(false))?,
        };
        let pool = device.pool(setup.pool.clone())?;
        let streams = (0..setup.streams).map(|_| device.non_blocking_stream()).collect::<Result<_, _>>()?;
        let live = (0..setup.allocations).map(|_| None).collect();
        let counted = device.driver_calls();
        Ok(Self { device, pool, streams, live, counted })
    }

    #[cold]
    fn order(&self, earlier: u32, later: u32) -> millpond::Result<()> {
        self.streams[later as usize].wait(&self.streams[earlier as usize].record()?)
    }
}

impl Server for Library {
    fn alloc(&mut self, id: u32, bytes: u64, stream: u32) -> Result<(), ServeError> {
        let on = &self.streams[stream as usize];
        let buffer = on.alloc::<u8>(&self.pool, bytes as usize).map_err(refused)?;
        self.live[id as usize] = Some((buffer, stream));
        Ok(())
    }

    fn free(&mut self, id: u32, stream: u32) -> Result<(), ServeError> {
        let (buffer, home) = self.live[id as usize].take().expect("one-life: what is freed is live");
        if home != stream {
            self.order(home, stream).map_err(refused)?;
        }
        self.streams[stream as usize].free(buffer).map_err(|refusal| refused(refusal.error))
    }

    fn address(&self, id: u32) -> u64 {
        self.live[id as usize].as_ref().map_or(0, |(buffer, _)| buffer.address())
    }

    fn reserved_bytes(&self) -> u64 {
        self.pool.statistics().reserved_bytes
    }

    fn end_of_pass(&mut self) -> Result<Figures, ServeError> {
        self.device.synchronize().map_err(refused)?;
        let peak_reserved_bytes = self.pool.statistics().reserved_high_bytes;
        self.pool.reset_reserved_high();
        let calls = self.device.driver_calls();
        let during = calls - std::mem::replace(&mut self.counted, calls);
        let made = CallKind::ALL.into_iter().filter(|&kind| during[kind] > 0);
        let driver_calls: BTreeMap<String, u64> = made.map(|kind| (kind.to_string(), during[kind])).collect();
        Ok(Figures { peak_reserved_bytes, driver_calls })
    }
}

#[cold]
fn refused(error: millpond::Error) -> ServeError {
    // The places in the error's report would be lines of this file.
    ServeError(error.to_string())
}
