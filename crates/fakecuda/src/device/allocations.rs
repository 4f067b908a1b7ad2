//! Allocations as `cuMemAlloc` and `cuMemAllocAsync` make them, over the device's chunks and mappings.
//!
//! Like a GPU it detects no wrong order: freed memory stays mapped, and the next allocation of its size gets the same
//! address. Large memory that belongs to no pool is unmapped. Freeing an address that is not the start of a live
//! allocation is an error.

use std::collections::{BTreeMap, HashMap};

use millpond_core::units::MIB;
use millpond_driver::Driver;
use millpond_driver::cuda::abi::{AccessDesc, Code, Context};

use super::{Device, State};
use crate::current;
use crate::memory::answer;

/// The allocations of a device.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// The bytes that each live allocation takes.
    live: BTreeMap<u64, u64>,
    /// Freed allocations, by the bytes that they take.
    freed: HashMap<u64, Vec<u64>>,
    /// Memory of alloc nodes: each launch frees it and allocates it again.
    nodes: BTreeMap<u64, u64>,
    /// Allocations that are freed with a context, and that context.
    contexts: BTreeMap<u64, Context>,
}

/// Allocations of at least this size that belong to no pool are returned to the system when they are freed, with their
/// addresses.
const KEPT: u64 = 32 * MIB;

/// The offset of an alloc node's memory in its allocation.
const NODE_OFFSET: u64 = 512;

impl Allocations {
    /// Returns the allocations that are freed with a context. The caller frees them.
    pub(crate) fn of_context(&mut self, context: Context) -> Vec<u64> {
        let all = self.contexts.iter().filter(|it| *it.1 == context);
        all.map(|it| *it.0).collect()
    }

    /// Frees memory of alloc nodes whose graph will never exist.
    pub(crate) fn drop_nodes(&mut self, nodes: &[u64]) {
        for at in nodes {
            if let Some(whole) = self.nodes.remove(at) {
                self.freed.entry(whole).or_default().push(at - NODE_OFFSET);
            }
        }
    }
}

impl Device {
    /// Allocates this many bytes.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Code> {
        let whole = (bytes as u64).max(1).checked_next_multiple_of(2 * MIB).ok_or(Code::OUT_OF_MEMORY)?;
        let mut state = self.state()?;
        if let Some(at) = state.allocations.freed.get_mut(&whole).and_then(Vec::pop) {
            state.allocations.live.insert(at, whole);
            return Ok(at);
        }
        let at = self.host.reserve(whole).map_err(|_| Code::OUT_OF_MEMORY)?;
        let chunk = state.memory.create(&self.host, whole, false)?;
        state.memory.map(&self.host, at, whole, 0, chunk)?;
        state.memory.release(&self.host, chunk)?;
        state.memory.set_access(at, whole, &[AccessDesc::for_device(current::ordinal()?)])?;
        state.allocations.live.insert(at, whole);
        Ok(at)
    }

    /// Allocates memory that is freed with the current context.
    pub(crate) fn allocate_in_context(&self, bytes: usize) -> Result<u64, Code> {
        let at = self.allocate(bytes)?;
        self.state()?.allocations.contexts.insert(at, current::context());
        Ok(at)
    }

    /// Allocates memory of an alloc node.
    pub(crate) fn allocate_node(&self, bytes: usize) -> Result<u64, Code> {
        let start = self.allocate(bytes.saturating_add(NODE_OFFSET as usize))?;
        let mut state = self.state()?;
        let at = start + NODE_OFFSET;
        if let Some(whole) = state.allocations.live.remove(&start) {
            state.allocations.nodes.insert(at, whole);
        }
        Ok(at)
    }

    /// Returns the bytes of all alloc nodes.
    pub(crate) fn node_bytes(&self) -> Result<u64, Code> {
        Ok(self.state()?.allocations.nodes.values().sum())
    }

    /// Frees the memory of all alloc nodes, if no graph and no instance is left that could use it.
    pub(crate) fn trim_nodes(&self) -> Result<(), Code> {
        let mut state = self.state()?;
        if state.graphs.has_none() {
            let all: Vec<u64> = state.allocations.nodes.keys().copied().collect();
            state.allocations.drop_nodes(&all);
        }
        Ok(())
    }

    /// Frees memory.
    pub(crate) fn free(&self, at: u64) -> Result<(), Code> {
        self.free_in(&mut *self.state()?, at)
    }

    pub(super) fn free_in(&self, state: &mut State, at: u64) -> Result<(), Code> {
        if at == 0 || state.allocations.nodes.contains_key(&at) {
            return Ok(());
        }
        let whole = state.allocations.live.remove(&at).ok_or(Code::INVALID_VALUE)?;
        if state.allocations.contexts.remove(&at).is_some() && whole >= KEPT {
            state.memory.unmap(&self.host, at, whole)?;
            // SAFETY: the range was just unmapped.
            return answer(unsafe { self.host.unreserve(at, whole) });
        }
        state.allocations.freed.entry(whole).or_default().push(at);
        Ok(())
    }

    /// Returns `true` if an address is memory of this device.
    pub(crate) fn contains(&self, at: u64) -> bool {
        self.state().is_ok_and(|state| state.memory.contains(at))
    }

    /// Returns the start and the size of the live allocation that contains an address.
    pub(crate) fn allocation_around(&self, at: u64) -> Option<(u64, u64)> {
        let state = self.state().ok()?;
        let (start, bytes) = state.allocations.live.range(..=at).next_back()?;
        (at - start < *bytes).then_some((*start, *bytes))
    }

    /// Returns the allocation that contains an address, or else the mapping.
    pub(crate) fn range_around(&self, at: u64) -> Result<(u64, u64), Code> {
        let allocation = self.allocation_around(at);
        allocation.map_or_else(|| self.state()?.memory.mapping(at).ok_or(Code::INVALID_VALUE), Ok)
    }
}
