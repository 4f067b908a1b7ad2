//! What the parts of a device know of each other where they only hold a reference.
//!
//! Pools, streams, allocations and captures hold each other and their device's context, which lists them. So each is
//! generic in the context (`C`) that it is a part of, and what it holds and never looks into is a type of that
//! context's. `context.rs` says which those are, and `device.rs` has the names of all parts with that context.

use std::fmt;

use crate::state::numbers::AllocNumbers;

/// The context of a device, to its parts.
pub(crate) trait DeviceTypes: Sized + 'static {
    /// A stream, which its memory's lives and pools refer to weakly.
    type Stream: fmt::Debug;
    /// Where an allocation is from.
    type Origin: Numbered;

    /// Who gives allocations their numbers.
    fn alloc_numbers(&self) -> &AllocNumbers;
}

/// Where an allocation is from, as where its number goes when it is gone.
pub(crate) trait Numbered {
    fn numbers(&self) -> &AllocNumbers;
}
