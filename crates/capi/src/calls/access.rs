//! Pointers of a launch become declared accesses.
//!
//! A pointer may be anywhere in an allocation. What graphs allocate is looked at first: a graph that names another's
//! memory means whatever the last launch of that one left, not one life of it.

use std::ffi::c_void;

use millpond::error::Invalid;
use millpond::graph::{Graph, MemAllocNode};
use millpond::raw::{AccessList, RawMemory};

use crate::status::{Failure, Result};
use crate::tables::device::DeviceEntry;
use crate::tables::pointers::POINTERS;

/// A use of memory that a launch declares. Only uses of the same bytes need an order among each other; what a node of a
/// graph uses counts as all of the allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_access {
    /// Where; anywhere in an allocation.
    pub pointer: *const c_void,
    /// How many bytes; 0 for all to the end of the allocation.
    pub bytes: usize,
    /// MILLPOND_READ or MILLPOND_WRITE.
    pub mode: i32,
}

/// For millpond_access: it is read.
pub const MILLPOND_READ: i32 = 1;
/// For millpond_access: it is written, or read and written.
pub const MILLPOND_WRITE: i32 = 2;

/// What is used: the memory, where in it, how much.
pub(crate) struct Part {
    pub(crate) memory: RawMemory,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A graph's memory at an address, and how far into it; `own` is the graph that asks.
pub(crate) fn graph_memory(device: &DeviceEntry, own: Option<&Graph>, address: u64) -> Option<(MemAllocNode<u8>, u64)> {
    let found = own.and_then(|graph| graph.node_around(address));
    found.or_else(|| device.device.node_around(address).map(|(node, offset, _)| (node, offset)))
}

/// The memory that an address means: of the graph that asks; else what lives there, by the name of its alloc node where
/// that is the one that lives; else what it was.
fn memory(device: &DeviceEntry, own: Option<&Graph>, address: u64) -> Option<RawMemory> {
    let own = own.and_then(|graph| graph.node_around(address)).and_then(|(node, _)| RawMemory::of_node(node));
    if own.is_some() {
        return own;
    }
    let (node, is_live) = match device.device.node_around(address) {
        Some((node, _, is_live)) => (RawMemory::of_node(node), is_live),
        None => (None, false),
    };
    if is_live {
        return node;
    }
    let held = POINTERS.peek(address);
    let is_over = held.as_ref().is_none_or(|memory| !memory.is_live());
    match is_over {
        false => held,
        true => POINTERS.containing(address).or_else(|| device.device.memory_around(address)).or(node).or(held),
    }
}

/// Memory that the library alone knows, or why there is none at a pointer, with what is nearest.
#[cold]
fn elsewhere(device: &DeviceEntry, pointer: u64) -> Result<RawMemory> {
    device.device.memory_at(pointer).map_err(|error| match error.invalid() {
        // A pointer of a use may be anywhere in an allocation.
        Some(Invalid::Pointer { nearest, .. }) => {
            Failure::Value(format!("{pointer:#x} is in no live allocation: {nearest}"))
        }
        _ => error.into(),
    })
}

/// The memory at a pointer, so many bytes of it; without a number, to its end.
pub(crate) fn part(device: &DeviceEntry, own: Option<&Graph>, pointer: u64, bytes: Option<usize>) -> Result<Part> {
    let memory = memory(device, own, pointer).map_or_else(|| elsewhere(device, pointer), Ok)?;
    let (offset, end) = (pointer - memory.address(), memory.bytes());
    let bytes = bytes.map_or(end.saturating_sub(offset), |bytes| bytes as u64);
    if offset > end || bytes > end - offset {
        let part = format!("bytes {offset}..{} do not lie within", u128::from(offset) + u128::from(bytes));
        return Err(Failure::Value(format!("{part} the {end} B that are allocated at {:#x}", memory.address())));
    }
    Ok(Part { memory, offset, bytes })
}

/// The list that a launch declares.
pub(crate) fn list(device: &DeviceEntry, own: Option<&Graph>, accesses: &[millpond_access]) -> Result<AccessList> {
    let mut list = AccessList::default();
    for access in accesses {
        let bytes = (access.bytes > 0).then_some(access.bytes);
        let Part { memory, offset, bytes } = part(device, own, access.pointer as u64, bytes)?;
        match access.mode {
            MILLPOND_READ => list.read(memory, offset, bytes)?,
            MILLPOND_WRITE => list.write(memory, offset, bytes)?,
            other => return Err(Failure::Value(format!("{other} is neither MILLPOND_READ nor MILLPOND_WRITE"))),
        }
    }
    Ok(list)
}
