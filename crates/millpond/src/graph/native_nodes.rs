//! An instance as a graph of the device's own.
//!
//! Depends on an instance's nodes and what they do. Memory is bound beforehand, elsewhere, and no node of the device's
//! graph allocates. A node that does nothing is left out if later nodes can take over its edges. A memset that comes
//! after one other memset and nothing else, of adjacent bytes and with the same value, is done by that one's node: the
//! cost of a small memset is the cost of a node. Graphs with external event nodes are not made so: the device would
//! read those events when the nodes run, not at the launch.
//!
//! Invariant **as-ordered**: between two nodes that do work, the device's graph has a path if the instance has one, or
//! they are one node. Everything that comes before the second memset of a node comes before its first one, or is that
//! one.

use std::sync::Arc;

use millpond_core::graph::Exec as CoreExec;
use millpond_core::units::{MIB, Range};
use millpond_driver::{Driver, Node, NodeWork};
use smallvec::SmallVec;

use super::body::Body;
use super::program::payload;
use crate::graph::arena::Arena;
use crate::state::context::Context;
use crate::stream::native::Native;
use crate::stream::payload::Payload;

/// A node that does nothing is kept if it joins more edges than this: without it, every node after it would have them
/// all.
const JOINED_MAX: usize = 2;

/// The most bytes of joined memsets: a device writes them in about the time that a node takes.
const FILLED_MAX: u64 = 4 * MIB;

/// Returns `true` if the device runs an instance as a graph of its own.
pub(super) fn is_native(context: &Context, core: &CoreExec) -> bool {
    let summary = core.summary();
    summary.records.is_empty() && summary.waits.is_empty() && context.driver.has_graphs()
}

/// Returns an instance as a graph of the device's own, to be made later. `arenas` contain the instance's own memory.
pub(super) fn native_of(context: &Context, core: &CoreExec, body: &Body, arenas: &[Arc<Arena>]) -> Native {
    Native::planned(context, nodes(core, body, arenas))
}

/// Returns the nodes that do work, with their edges.
fn nodes(core: &CoreExec, body: &Body, arenas: &[Arc<Arena>]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::with_capacity(core.nodes().len());
    // For each node of the instance, the nodes of the device's graph that stand for it.
    let mut stand: Vec<SmallVec<[u32; 2]>> = Vec::with_capacity(core.nodes().len());
    for node in core.nodes() {
        let before = node.dependencies.iter().flat_map(|dependency| stand[dependency.index()].iter().copied());
        let mut after: SmallVec<[u32; 2]> = before.collect();
        after.sort_unstable();
        after.dedup();
        let work = work(payload(core, body, node));
        if matches!(work, NodeWork::Nothing) && after.len() <= JOINED_MAX {
            stand.push(after);
            continue;
        }
        if let [before] = after[..]
            && let Some(both) = filled_at_once(&nodes[before as usize].work, &work, arenas)
        {
            nodes[before as usize].work = both;
            stand.push(after);
            continue;
        }
        stand.push(SmallVec::from_elem(nodes.len() as u32, 1));
        nodes.push(Node { work, after: after.into_vec() });
    }
    nodes
}

/// Joins two memsets of adjacent bytes in one reservation of the graph's own. A device need not support a memset across
/// two reservations.
fn filled_at_once(first: &NodeWork, second: &NodeWork, arenas: &[Arc<Arena>]) -> Option<NodeWork> {
    let (&NodeWork::Fill { at, bytes, value }, &NodeWork::Fill { at: beside, bytes: more, value: same }) =
        (first, second)
    else {
        return None;
    };
    let both = Range::new(at.min(beside), bytes.saturating_add(more));
    let touch = at.checked_add(bytes) == Some(beside) || beside.checked_add(more) == Some(at);
    let can = value == same && touch && both.bytes <= FILLED_MAX && arenas.iter().any(|arena| arena.spans(both));
    can.then_some(NodeWork::Fill { at: both.start, bytes: both.bytes, value })
}

fn work(payload: Payload) -> NodeWork {
    match payload {
        Payload::Nothing | Payload::EventRecord(_) | Payload::EventWait(_) | Payload::Open | Payload::Late(_) => {
            NodeWork::Nothing
        }
        Payload::Kernel(kernel) | Payload::HostFunction(kernel) => NodeWork::Run(Arc::new(move || kernel.run())),
        Payload::Copy { to, from, bytes } => NodeWork::Copy { to, from, bytes },
        Payload::Upload { to, from } => NodeWork::Upload { to, from },
        Payload::Memset { at, bytes, value } => NodeWork::Fill { at, bytes, value },
        Payload::Foreign(foreign) => NodeWork::Captured(foreign.raw),
    }
}
