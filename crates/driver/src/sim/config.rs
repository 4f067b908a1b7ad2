//! How a sim device is made, and what it says of its caller.

use std::fmt;

use millpond_core::units::{GIB, MIB};

use crate::CallKind;

/// When work completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// When it is submitted.
    #[default]
    AtOnce,
    /// When a thread blocks on a mark after it. Asking whether a mark has completed does not move anything.
    AtBlock,
}

/// How closely the caller is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Watch {
    /// Every call is kept and held to the contract.
    #[default]
    Calls,
    /// Every call is held to the contract.
    Contract,
    /// No call is kept. With [`Completion::AtOnce`] nothing is known but the chunks and the memory that they take: any
    /// other handle is accepted.
    Counts,
}

/// How a sim device is made.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Memory in bytes.
    pub total_bytes: u64,
    /// Chunks are multiples of this many bytes, a power of two.
    pub granularity: u64,
    /// When work completes.
    pub completion: Completion,
    /// How closely the caller is watched.
    pub watch: Watch,
}

impl Default for SimConfig {
    /// 64 GiB in granules of 2 MiB; work completes at once and every call is kept.
    fn default() -> Self {
        Self { total_bytes: 64 * GIB, granularity: 2 * MIB, completion: Completion::AtOnce, watch: Watch::Calls }
    }
}

/// A breach of the contract by the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The call that showed it.
    pub kind: CallKind,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.what)
    }
}
