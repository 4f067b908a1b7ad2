//! The memory that a launch uses: the memory that it leaves live, and memory from outside the graph with its acts on
//! each.
//!
//! Depends on allocations and on core's summary of an instance; on no order and no launch.

use std::sync::Arc;

use millpond_core::graph::{Demand, GraphAllocId, GraphId, LastAct, NodeId, NodeSite};
use millpond_core::units::Range;
use smallvec::SmallVec;

use crate::names::error::{Invalid, Result};
use crate::state::allocation::Allocation;

/// An allocation that a launch leaves live.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) graph: GraphId,
    pub(crate) alloc: GraphAllocId,
    pub(crate) bytes: u64,
    pub(crate) range: Range,
    pub(crate) allocation: Arc<Allocation>,
    /// Its alloc node.
    pub(crate) node: NodeId,
    pub(crate) name: Option<Arc<str>>,
    /// Its last uses in a launch.
    pub(crate) last_acts: LastActs,
}

/// Memory from outside the graph, and the acts of the graph on it.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) whose: Whose,
    /// The lifetimes of it that nodes name: every launch must find all of them live.
    pub(crate) lives: SmallVec<[u64; 1]>,
    /// The acts that each launch checks.
    pub(crate) demands: SmallVec<[Demand; 2]>,
    /// The number of each demand among all demands of the graph.
    pub(crate) orders: SmallVec<[u32; 2]>,
    /// The nodes of each demand, for reports.
    pub(crate) sites: SmallVec<[Box<[NodeSite]>; 1]>,
    /// The last acts of a launch on it.
    pub(crate) last_acts: LastActs,
}

/// Last acts on memory.
pub(crate) type LastActs = SmallVec<[LastAct; 1]>;

/// The owner of memory from outside the graph.
#[derive(Debug)]
pub(crate) enum Whose {
    /// An allocation outside of all graphs, or of an instance.
    Held(Arc<Allocation>),
    /// The memory of an alloc node of another graph, as its last launch left it.
    Node(GraphId, GraphAllocId),
}

/// An allocation that a launch uses or leaves live.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) allocation: Arc<Allocation>,
    pub(super) role: Role,
}

/// The role of an allocation in a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Left live by the launch. The value is its index in the outputs.
    Output(usize),
    /// Used or freed by the launch. The value is its index in the outsides.
    Outside(usize),
}

/// All found allocations, sorted by number.
#[derive(Debug, Default)]
pub(crate) struct Founds {
    pub(super) list: SmallVec<[Found; 4]>,
    /// The outsides whose memory is not there, as their indices. `true` if no launch has begun its lifetime; otherwise
    /// it has ended, or the launch frees it as an output of its own.
    pub(super) missing: SmallVec<[(usize, bool); 1]>,
}

/// Finds the memory that a launch uses and leaves live. `named` returns the memory that a launch of another graph left
/// live.
pub(super) fn find(
    outputs: &[Output],
    outsides: &[Outside],
    named: impl Fn(GraphId, GraphAllocId) -> Option<Arc<Allocation>>,
) -> Result<Founds> {
    let (mut found, mut missing) = (SmallVec::<[Found; 4]>::new(), SmallVec::new());
    for (index, outside) in outsides.iter().enumerate() {
        let allocation = match &outside.whose {
            Whose::Held(allocation) => Arc::clone(allocation),
            Whose::Node(graph, alloc) => match named(*graph, *alloc) {
                Some(allocation) => allocation,
                None => {
                    missing.push((index, true));
                    continue;
                }
            },
        };
        found.push(Found { allocation, role: Role::Outside(index) });
    }
    let output =
        |(index, it): (usize, &Output)| Found { allocation: Arc::clone(&it.allocation), role: Role::Output(index) };
    found.extend(outputs.iter().enumerate().map(output));
    found.sort_by_key(|found| found.allocation.id);
    let same = |pair: &[Found]| pair[0].allocation.id == pair[1].allocation.id;
    if found.windows(2).any(same) {
        // Two lifetimes of one allocation: one of them has ended, or the launch frees it as an output of its own.
        found.retain(|found| {
            let Role::Outside(index) = found.role else { return true };
            let (outside, generation) = (&outsides[index], found.allocation.life().generation);
            let is_output = outputs.iter().any(|output| output.allocation.id == found.allocation.id);
            let is_there = !is_output && outside.lives.iter().all(|life| *life == generation);
            missing.extend((!is_there).then_some((index, false)));
            is_there
        });
    }
    match found.windows(2).any(same) {
        // One allocation is named as an allocation and as an alloc node's memory. It is not clear which is meant.
        true => Err(Invalid::Stale.into()),
        false => Ok(Founds { list: found, missing }),
    }
}

impl Found {
    /// Returns the memory of every launch, or `None` if it must be found at each launch.
    pub(super) fn always(outputs: &[Output], outsides: &[Outside]) -> Option<Founds> {
        find(outputs, outsides, |_, _| None).ok().filter(|found| found.missing.is_empty())
    }
}
