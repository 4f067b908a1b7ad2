//! Allocations as `cuMemAlloc` and `cuMemAllocAsync` make them, over the device's chunks and mappings.
//!
//! Like a GPU it notices no wrong order: memory that was freed stays mapped, and serves the next allocation of its size
//! at the same address; what is large and no pool's is unmapped. A free of what is no start of a live allocation is an
//! error.

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
    /// Bytes that each live one takes.
    live: BTreeMap<u64, u64>,
    /// Freed ones, by the bytes that they take.
    freed: HashMap<u64, Vec<u64>>,
    /// Memory of alloc nodes: it is freed and there again with each launch.
    nodes: BTreeMap<u64, u64>,
    /// Whose memory goes with a context, and that one.
    contexts: BTreeMap<u64, Context>,
}

/// Larger allocations that are no pool's go back to the system when they are freed, addresses and all.
const KEPT: u64 = 32 * MIB;

/// Memory of an alloc node lies so far behind the start of what it takes.
const NODE_OFFSET: u64 = 512;

impl Allocations {
    /// What a context has; from now on it has nothing.
    pub(crate) fn of_context(&mut self, context: Context) -> Vec<u64> {
        let all = self.contexts.iter().filter(|it| *it.1 == context);
        all.map(|it| *it.0).collect()
    }

    /// Memory of alloc nodes whose graph will never be.
    pub(crate) fn drop_nodes(&mut self, nodes: &[u64]) {
        for at in nodes {
            if let Some(whole) = self.nodes.remove(at) {
                self.freed.entry(whole).or_default().push(at - NODE_OFFSET);
            }
        }
    }
}

impl Device {
    /// Memory of so many bytes.
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

    /// Memory that goes with the current context.
    pub(crate) fn allocate_in_context(&self, bytes: usize) -> Result<u64, Code> {
        let at = self.allocate(bytes)?;
        self.state()?.allocations.contexts.insert(at, current::context());
        Ok(at)
    }

    /// Memory of an alloc node.
    pub(crate) fn allocate_node(&self, bytes: usize) -> Result<u64, Code> {
        let start = self.allocate(bytes.saturating_add(NODE_OFFSET as usize))?;
        let mut state = self.state()?;
        let at = start + NODE_OFFSET;
        if let Some(whole) = state.allocations.live.remove(&start) {
            state.allocations.nodes.insert(at, whole);
        }
        Ok(at)
    }

    /// Memory is freed.
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
            // SAFETY: what was mapped there is unmapped.
            return answer(unsafe { self.host.unreserve(at, whole) });
        }
        state.allocations.freed.entry(whole).or_default().push(at);
        Ok(())
    }

    /// Whether an address is memory of this device.
    pub(crate) fn contains(&self, at: u64) -> bool {
        self.state().is_ok_and(|state| state.memory.contains(at))
    }

    /// The live allocation that an address is in: where it begins, and its bytes.
    pub(crate) fn allocation_around(&self, at: u64) -> Option<(u64, u64)> {
        let state = self.state().ok()?;
        let (start, bytes) = state.allocations.live.range(..=at).next_back()?;
        (at - start < *bytes).then_some((*start, *bytes))
    }

    /// The allocation that an address is in, or else the mapping.
    pub(crate) fn range_around(&self, at: u64) -> Result<(u64, u64), Code> {
        let allocation = self.allocation_around(at);
        allocation.map_or_else(|| self.state()?.memory.mapping(at).ok_or(Code::INVALID_VALUE), Ok)
    }
}
