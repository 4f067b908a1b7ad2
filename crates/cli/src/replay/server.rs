//! The interface between a recorded program and the server of its memory.

use std::collections::BTreeMap;
use std::fmt;

use millpond::PoolConfig;

use crate::args::{DeviceKind, Pool};
use crate::recorded::Program;

/// The parameters of a server. One server serves one program, several times.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The device.
    pub device: DeviceKind,
    /// The settings of the pool.
    pub pool: PoolConfig,
    /// The number of streams of the program: `0..streams`.
    pub streams: u32,
    /// The number of allocations of a pass: `0..allocations`.
    pub allocations: u32,
}

impl Setup {
    /// Makes the parameters for a program.
    pub(crate) fn new(device: DeviceKind, pool: &Pool, program: &Program) -> Self {
        let (streams, allocations) = (program.streams, program.allocations);
        Setup { device, pool: pool.config(), streams, allocations }
    }

    /// Opens the server. The error says in words why it cannot be opened.
    pub(crate) fn open(&self, open: Open<'_>) -> Result<Box<dyn Server>, String> {
        open(self).map_err(|error| format!("the {} device: {error}", self.device.name()))
    }
}

/// A function that opens a server.
pub type Open<'a> = &'a dyn Fn(&Setup) -> Result<Box<dyn Server>, ServeError>;

/// Serves the memory of a program.
///
/// In each pass every id is allocated once and freed once, in the order of the recording. Allocations without a free in
/// the recording are freed at the end. A free may be on another stream than its allocation. The recording does not say
/// what orders the two, so the server orders them.
pub trait Server {
    /// Allocates `bytes` on a stream.
    ///
    /// # Errors
    /// The device cannot serve the allocation.
    fn alloc(&mut self, id: u32, bytes: u64, stream: u32) -> Result<(), ServeError>;

    /// Frees an allocation on a stream.
    ///
    /// # Errors
    /// The device is lost.
    fn free(&mut self, id: u32, stream: u32) -> Result<(), ServeError>;

    /// Returns the address of a live allocation. Not called while the time is measured.
    fn address(&self, id: u32) -> u64;

    /// Returns the bytes of physical memory that are reserved now. Not called while the time is measured.
    fn reserved_bytes(&self) -> u64;

    /// Ends a pass, in which everything was freed: waits for the device, lets it give back memory that it need not
    /// keep, and returns the figures of the pass.
    ///
    /// # Errors
    /// The device is lost.
    fn end_of_pass(&mut self) -> Result<Figures, ServeError>;
}

/// The figures of a pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The peak of reserved physical memory during the pass, in bytes.
    pub peak_reserved_bytes: u64,
    /// The driver calls during the pass, by kind.
    pub driver_calls: BTreeMap<String, u64>,
}

/// The reason why a server cannot serve, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeError(pub String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}
