//! The pointers of a launch become declared accesses.
//!
//! A pointer may point anywhere into an allocation. Memory of graphs is looked up first: a graph that uses another
//! graph's memory means whatever that graph's last launch left, not one particular allocation.

use std::ffi::c_void;

use millpond::error::Invalid;
use millpond::graph::{Graph, MemAllocNode};
use millpond::raw::{AccessList, RawMemory};

use crate::status::{Failure, Result};
use crate::tables::device::DeviceEntry;
use crate::tables::pointers::POINTERS;

/// A use of memory that a launch declares. Only uses of the same bytes need an order. A use by a node of a graph counts
/// as all of the allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_access {
    /// An address anywhere in an allocation.
    pub pointer: *const c_void,
    /// The number of bytes; 0 for all to the end of the allocation.
    pub bytes: usize,
    /// MILLPOND_READ or MILLPOND_WRITE.
    pub mode: i32,
}

/// For millpond_access: the memory is read.
pub const MILLPOND_READ: i32 = 1;
/// For millpond_access: the memory is written, or read and written.
pub const MILLPOND_WRITE: i32 = 2;

/// The memory of a use, the offset in it, and the number of bytes.
pub(crate) struct Part {
    pub(crate) memory: RawMemory,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Returns a graph's memory at an address, and the offset in it. `own` is the graph that asks.
pub(crate) fn graph_memory(device: &DeviceEntry, own: Option<&Graph>, address: u64) -> Option<(MemAllocNode<u8>, u64)> {
    let found = own.and_then(|graph| graph.node_around(address));
    found.or_else(|| device.device.node_around(address).map(|(node, offset, _)| (node, offset)))
}

/// Returns the memory that an address means: memory of the graph that asks; else the memory that is live there, by its
/// alloc node if that one is live; else the memory that was there.
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

/// Returns memory that only the library knows, or an error that names the nearest allocation.
#[cold]
fn elsewhere(device: &DeviceEntry, pointer: u64) -> Result<RawMemory> {
    device.device.memory_at(pointer).map_err(|error| match error.invalid() {
        // The pointer of a use may point anywhere into an allocation.
        Some(Invalid::Pointer { nearest, .. }) => {
            Failure::Value(format!("{pointer:#x} is in no live allocation: {nearest}"))
        }
        _ => error.into(),
    })
}

/// Returns `bytes` bytes of the memory at a pointer; without a number, all to its end.
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

/// Returns the list of accesses that a launch declares.
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
