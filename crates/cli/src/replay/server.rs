//! The seam between a recorded program and whoever serves its memory.

use std::collections::BTreeMap;
use std::fmt;

use millpond::PoolConfig;

use crate::args::{DeviceKind, Pool};
use crate::recorded::Program;

/// What a server is opened with. One server serves one program, several times over.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The device.
    pub device: DeviceKind,
    /// The settings of the pool.
    pub pool: PoolConfig,
    /// How many streams the program uses: `0..streams`.
    pub streams: u32,
    /// How many allocations it makes in a pass: `0..allocations`.
    pub allocations: u32,
    /// Whether to write a pattern into each allocation and check it before its free.
    pub touch: bool,
    /// Which patterns.
    pub seed: u64,
}

impl Setup {
    /// For a program, whose memory is not touched.
    pub(crate) fn new(device: DeviceKind, pool: &Pool, program: &Program) -> Self {
        let (streams, allocations) = (program.streams(), program.allocations());
        Setup { device, pool: pool.config(), streams, allocations, touch: false, seed: 0 }
    }

    /// Opens the server; in words, why it cannot be opened.
    pub(crate) fn open(&self, open: Open<'_>) -> Result<Box<dyn Server>, String> {
        open(self).map_err(|error| format!("the {} device: {error}", self.device.name()))
    }
}

/// Opens a server.
pub type Open<'a> = &'a dyn Fn(&Setup) -> Result<Box<dyn Server>, ServeError>;

/// Serves the memory of a program.
///
/// In each pass every id is allocated once and freed once, in the order of the recording; what the recording leaves
/// allocated is freed at the end. A free may come on another stream than its allocation, and the recording does not
/// say what orders the two: the server orders them.
pub trait Server {
    /// Allocates.
    ///
    /// # Errors
    /// Where the device cannot serve.
    fn alloc(&mut self, id: u32, bytes: u64, stream: u32) -> Result<(), ServeError>;

    /// Frees.
    ///
    /// # Errors
    /// Where the device is lost.
    fn free(&mut self, id: u32, stream: u32) -> Result<(), ServeError>;

    /// Where a live allocation starts: not asked while time is taken.
    fn address(&self, id: u32) -> u64;

    /// Physical memory reserved now, in bytes. Not asked while time is taken.
    fn reserved_bytes(&self) -> u64;

    /// All is freed: waits for the device, lets it give back what it need not keep, and tells of the pass that ends.
    ///
    /// # Errors
    /// Where the device is lost.
    fn end_of_pass(&mut self) -> Result<Figures, ServeError>;
}

/// What a pass took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The most physical memory that was reserved during the pass, in bytes.
    pub peak_reserved_bytes: u64,
    /// Calls of the driver during the pass, by kind.
    pub driver_calls: BTreeMap<String, u64>,
    /// What was touched, where that was asked for.
    pub touched: Option<Touched>,
}

/// What became of the patterns written into allocations during a pass.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Touched {
    /// Allocations whose pattern was checked.
    pub checked: u64,
    /// Those of them that had changed.
    pub mismatches: u64,
    /// The first change, in words.
    pub first_mismatch: Option<String>,
}

/// Why a server cannot serve, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeError(pub String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}
