//! What a launch has to do with: the memory that it leaves live, and memory from outside, with what it does to each.
//!
//! Knows allocations and what core's summary of an instance says of them; no order, no launch.

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
    /// What launches leave of its uses.
    pub(crate) last_acts: LastActs,
}

/// Memory of the outside, and what the graph does to it.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) whose: Whose,
    /// Which of its lives, where one is meant: every launch must find all of these there.
    pub(crate) lives: SmallVec<[u64; 1]>,
    /// What each launch must find right.
    pub(crate) demands: SmallVec<[Demand; 2]>,
    /// Which of all demands of the graph each is.
    pub(crate) orders: SmallVec<[u32; 2]>,
    /// The nodes of each, for people.
    pub(crate) sites: SmallVec<[Box<[NodeSite]>; 1]>,
    /// What it leaves.
    pub(crate) last_acts: LastActs,
}

/// Last acts on memory.
pub(crate) type LastActs = SmallVec<[LastAct; 1]>;

/// Whose memory.
#[derive(Debug)]
pub(crate) enum Whose {
    /// An allocation outside of all graphs, or of an instance.
    Held(Arc<Allocation>),
    /// What a launch of another graph left, whichever launch was the last.
    Node(GraphId, GraphAllocId),
}

/// An allocation that a launch has to do with.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) allocation: Arc<Allocation>,
    pub(super) role: Role,
}

/// What it is to the launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// What it leaves live, by its place among the outputs.
    Output(usize),
    /// What it uses or frees, by its place among the outsides.
    Outside(usize),
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Founds {
    pub(super) list: SmallVec<[Found; 4]>,
    /// Outsides whose memory is not there: by their places, and whether no launch has begun it. Else it is an output
    /// of the instance.
    pub(super) missing: SmallVec<[(usize, bool); 1]>,
}

/// What a launch has to do with; `named` finds what another graph's launch left.
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
        // A node names a life of an output of the instance: the launch frees that life, or it has ended.
        found.retain(|found| {
            let Role::Outside(index) = found.role else { return true };
            let is_output = outputs.iter().any(|output| output.allocation.id == found.allocation.id);
            missing.extend(is_output.then_some((index, false)));
            !is_output
        });
    }
    match found.windows(2).any(same) {
        // The owner and a node's name of one allocation: which of the two is meant?
        true => Err(Invalid::Stale.into()),
        false => Ok(Founds { list: found, missing }),
    }
}

impl Found {
    /// What every launch has to do with; none where that is to be found at each launch.
    pub(super) fn always(outputs: &[Output], outsides: &[Outside]) -> Option<Founds> {
        find(outputs, outsides, |_, _| None).ok().filter(|found| found.missing.is_empty())
    }
}
