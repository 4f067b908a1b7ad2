//! What an instance is as a graph of the device's own.
//!
//! Knows an instance's nodes and what they do; memory is bound before, by others, and no node of the device's graph
//! allocates. Nodes that do nothing are left out where what comes after them can take over their edges. A fill that
//! comes after one other fill and nothing else, of the bytes beside it and with the same value, is done by that one's
//! node: what a small fill takes is the time of a node. Graphs with external event nodes are not made so: the device
//! would look at those events when the nodes run, not at the launch.
//!
//! Invariant **as-ordered**: between two nodes that work, the device's graph has a path where the instance has one, or
//! they are one node; all that comes before a node's second fill comes before its first, or is that.

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

/// A node that does nothing stays where it joins more edges than this: without it every node after it had them all.
const JOINED_MAX: usize = 2;

/// Fills are not joined to more bytes than this: a device writes them in about the time that a node takes.
const FILLED_MAX: u64 = 4 * MIB;

/// Whether an instance is a graph of the device.
pub(super) fn is_native(context: &Context, core: &CoreExec) -> bool {
    let summary = core.summary();
    summary.records.is_empty() && summary.waits.is_empty() && context.driver.has_graphs()
}

/// What an instance is as a graph of the device, yet to be made. Its own memory lies in `arenas`.
pub(super) fn native_of(context: &Context, core: &CoreExec, body: &Body, arenas: &[Arc<Arena>]) -> Native {
    Native::planned(context, nodes(core, body, arenas))
}

/// The nodes that work, and their edges.
fn nodes(core: &CoreExec, body: &Body, arenas: &[Arc<Arena>]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::with_capacity(core.nodes().len());
    // Of each of the instance's nodes, those of the device's that stand for it.
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

/// Two fills as one: of bytes beside each other in one reservation of the graph's own, since a device need not fill
/// across two.
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
