//! Addresses for allocations that have none before instantiation, planned together with lifetimes as a partial order.
//!
//! The planner finds which allocations share bytes; here a graph becomes its problem. More than [`PLANNED_MAX`]
//! allocations are placed one after the other in the order of the nodes, as in a graph with fixed addresses, because
//! the problem has a bit for each pair. Requires a checked graph: every free comes after its allocation.
//!
//! Invariant **disjoint**: two allocations share a byte only if the free of one reaches the alloc node of the other.

use super::address::{Addresses, GRAIN};
use super::flat::Flat;
use super::graph::NodeKind;
use super::node::{GraphAllocId, Memory};
use crate::plan::{Buffer, Conflicts, Problem, first_fit};
use crate::units::{Range, round_up};

/// The most allocations that are planned together.
pub const PLANNED_MAX: usize = 2048;

/// The places of the allocations without addresses.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// The allocations, each with its range relative to the start of the room.
    pub(super) ranges: Vec<(GraphAllocId, Range)>,
    /// The bytes for all of them, in whole granules.
    pub(super) room: u64,
}

/// Places the allocations that have no addresses. Returns `None` if they exceed the address space.
pub(super) fn place(flat: &Flat) -> Option<Placed> {
    let is_unplaced = |at: &usize| flat.allocs[*at].node.is_some() && flat.allocs[*at].range.is_none();
    let unplaced: Vec<usize> = (0..flat.allocs.len()).filter(is_unplaced).collect();
    let ranges = match unplaced.len() {
        0 => return Some(Placed::default()),
        1..=PLANNED_MAX => plan(flat, &unplaced)?,
        _ => in_turn(flat, &unplaced)?,
    };
    let end = ranges.iter().map(|range| range.end()).max().unwrap_or(0);
    let room = round_up(end, flat.granularity)?;
    let allocs = unplaced.into_iter().map(|at| GraphAllocId(at as u32));
    Some(Placed { ranges: allocs.zip(ranges).collect(), room })
}

/// Returns the size and alignment of an allocation of `bytes`.
fn buffer(granularity: u64, bytes: u64) -> Buffer {
    let alignment = if bytes < granularity { GRAIN } else { granularity };
    Buffer::new(bytes.div_ceil(alignment) * alignment).aligned(alignment)
}

/// Returns `None` if there is no plan: the sizes exceed the address space.
fn plan(flat: &Flat, unplaced: &[usize]) -> Option<Vec<Range>> {
    let buffers: Vec<Buffer> = unplaced.iter().map(|&at| buffer(flat.granularity, flat.allocs[at].bytes)).collect();
    let ends = unplaced.iter().map(|&at| (flat.allocs[at].freed, flat.allocs[at].node));
    let ends: Vec<_> = ends.map(|(freed, node)| (freed, node.expect("placed allocations have their node"))).collect();
    let is_before = |i: usize, j: usize| ends[i].0.is_some_and(|free| flat.index.reaches(free, ends[j].1));
    let conflicts = Conflicts::from_fn(ends.len(), |i, j| !is_before(i, j) && !is_before(j, i));
    let problem = Problem::from_conflicts(buffers.clone(), conflicts).ok()?;
    let plan = first_fit(&problem);
    Some(plan.offsets.iter().zip(&buffers).map(|(&at, buffer)| Range::new(at, buffer.bytes)).collect())
}

fn in_turn(flat: &Flat, unplaced: &[usize]) -> Option<Vec<Range>> {
    let mut addresses = Addresses::new(flat.granularity);
    addresses.extend(Range::new(0, u64::MAX - flat.granularity));
    let mut ranges = vec![Range::default(); flat.allocs.len()];
    let is_unplaced = |alloc: GraphAllocId| flat.allocs[alloc.index()].range.is_none();
    for node in &flat.nodes {
        match node.kind {
            NodeKind::MemAlloc(alloc) if is_unplaced(alloc) => {
                let after = &node.dependencies;
                let is_before = |free| after.iter().any(|&node| flat.index.reaches_or_is(free, node));
                let bytes = flat.allocs[alloc.index()].bytes;
                ranges[alloc.index()] = addresses.place(alloc, bytes, is_before)?;
            }
            NodeKind::MemFree(Memory::Own(alloc)) if is_unplaced(alloc) => {
                let node = flat.allocs[alloc.index()].freed.expect("its free node was met");
                addresses.free(alloc, node);
            }
            _ => {}
        }
    }
    Some(unplaced.iter().map(|&at| ranges[at]).collect())
}
