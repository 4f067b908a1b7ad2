//! The settings of a pool, and what it answers. Plain data.

use super::Frontier;
use crate::ids::BlockId;
use crate::units::{Bytes, MIB, Range};
use std::fmt;

/// How much more than the held bytes a pool may reserve, beyond chunks that are in use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Slack {
    /// As tight as moving memory stays cheap against the work that the program does.
    #[default]
    Adaptive,
    /// This part of the held bytes, at whatever cost: 0.01 is one per cent.
    Fixed(f64),
}

/// When memory freed on one stream may serve another. CUDA's three attributes of the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReusePolicy {
    /// When the free precedes the request by events.
    pub follow_event_dependencies: bool,
    /// When the free is found to have completed.
    pub allow_opportunistic: bool,
    /// When nothing else is left: the requesting stream is made to wait for the free.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicy {
    fn default() -> Self {
        Self { follow_event_dependencies: true, allow_opportunistic: true, allow_internal_dependencies: true }
    }
}

/// The settings of a pool. The default has CUDA's values where CUDA has the setting.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// Block sizes are multiples of this many bytes; a power of two.
    pub grain: u64,
    /// The device's mapping granularity; a power of two.
    pub granularity: u64,
    /// No chunk is larger, in bytes.
    pub chunk_bytes_max: u64,
    /// How far reserved may pass held.
    pub slack: Slack,
    /// Reuse across streams.
    pub reuse: ReusePolicy,
    /// Bytes to keep at a synchronisation; what is idle beyond goes back to the system.
    pub release_threshold: u64,
    /// The most to reserve, rounded up to the granularity; 0 for no limit.
    pub max_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            grain: 512,
            granularity: 2 * MIB,
            chunk_bytes_max: 512 * MIB,
            slack: Slack::Adaptive,
            reuse: ReusePolicy::default(),
            release_threshold: 0,
            max_bytes: 0,
        }
    }
}

/// A block handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its number, for [`Pool::free`](super::Pool::free).
    pub block: BlockId,
    /// Its addresses: the bytes asked for, rounded up to the grain.
    pub range: Range,
    /// Points that the requesting stream must be made to wait for before it uses the block; nearly always none.
    pub after: Frontier,
    /// Whether it is wholly mapped. Otherwise all steps must have been applied before it is used.
    pub ready: bool,
}

/// No block that is free for the stream and wholly mapped is large enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage;

/// No way is left to serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of held blocks.
    pub held: u64,
    /// Bytes of physical memory that the pool has.
    pub reserved: u64,
    /// Of these, bytes of chunks with no held block on them (their last use may not have completed).
    pub idle: u64,
    /// The largest free block that is open to all streams, in bytes.
    pub largest_free: u64,
    /// The pool's limit in bytes, where it has one.
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
