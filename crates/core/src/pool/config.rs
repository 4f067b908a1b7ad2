//! The settings of a pool, and its answers. Plain data.

use super::Frontier;
use crate::ids::BlockId;
use crate::units::{Bytes, GIB, MIB, Range};
use std::fmt;

/// The bytes that a pool may reserve beyond the held bytes, not counting chunks that are in use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Slack {
    /// As tight as is possible while the cost of moving memory stays small compared with the program's work.
    #[default]
    Adaptive,
    /// Loose while the device has room, and as [`Adaptive`](Slack::Adaptive) as it fills, by this program or by others.
    Pressure,
    /// This fraction of the held bytes, at any cost: 0.01 is one per cent.
    Fixed(f64),
}

/// The memory of a device at one moment, as its driver reports it, whoever uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRoom {
    /// The bytes that no process uses.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

/// The conditions under which memory freed on one stream may serve another. These are CUDA's three attributes of the
/// same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReusePolicy {
    /// Reuse if the free precedes the request through events.
    pub follow_event_dependencies: bool,
    /// Reuse if the free is found to have completed.
    pub allow_opportunistic: bool,
    /// Reuse if nothing else is left: the requesting stream must wait for the free.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicy {
    fn default() -> Self {
        Self { follow_event_dependencies: true, allow_opportunistic: true, allow_internal_dependencies: true }
    }
}

/// The settings of a pool. The default has CUDA's values for the settings that CUDA has.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// Block sizes are multiples of this many bytes; a power of two.
    pub grain: u64,
    /// The device's mapping granularity; a power of two.
    pub granularity: u64,
    /// The largest size of a chunk, in bytes.
    pub chunk_bytes_max: u64,
    /// The limit of `reserved` above `held`.
    pub slack: Slack,
    /// The policy for reuse across streams.
    pub reuse: ReusePolicy,
    /// The bytes to keep at a synchronisation. Idle memory beyond goes back to the system.
    pub release_threshold: u64,
    /// The limit of reserved bytes, rounded up to the granularity; 0 for no limit.
    pub max_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            grain: 512,
            granularity: 2 * MIB,
            chunk_bytes_max: 2 * GIB,
            slack: Slack::Adaptive,
            reuse: ReusePolicy::default(),
            release_threshold: 0,
            max_bytes: 0,
        }
    }
}

/// A block that was handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its number, for [`Pool::free`](super::Pool::free).
    pub block: BlockId,
    /// Its addresses: the requested bytes, rounded up to the grain.
    pub range: Range,
    /// The points that the requesting stream must wait for before it uses the block; nearly always none.
    pub after: Frontier,
    /// `true` if the block is wholly mapped. Otherwise all steps must be applied before it is used.
    pub ready: bool,
}

/// The error of a request for which no block that is free for the stream and wholly mapped is large enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage;

/// The error of a request that cannot be served in any way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted {
    /// The requested bytes.
    pub requested: u64,
    /// Bytes of held blocks.
    pub held: u64,
    /// Bytes of physical memory that the pool has.
    pub reserved: u64,
    /// The bytes of chunks with no held block on them, whose last use may not have completed. Part of `reserved`.
    pub idle: u64,
    /// The largest free block that is open to all streams, in bytes.
    pub largest_free: u64,
    /// The pool's limit in bytes, if it has one.
    pub limit: Option<u64>,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [requested, held, reserved, idle, largest] =
            [self.requested, self.held, self.reserved, self.idle, self.largest_free].map(Bytes);
        write!(f, "no memory for {requested}: {reserved} reserved, {held} held, {idle} idle, largest free {largest}")?;
        match self.limit {
            None => Ok(()),
            Some(limit) => write!(f, ", limit {}", Bytes(limit)),
        }
    }
}

impl std::error::Error for Exhausted {}
