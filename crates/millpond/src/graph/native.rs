//! Instances as graphs of the device's own: one call of the driver a launch.
//!
//! Knows an instance's nodes and what they do; memory is bound before, by others, and no node of the device's graph
//! allocates. Nodes that do nothing are left out where what comes after them can take over their edges. A fill that
//! comes after one other fill and nothing else, of the bytes beside it and with the same value, is done by that one's
//! node: what a small fill takes is the time of a node. Graphs with external event nodes are not made so: the device
//! would look at those events when the nodes run, not at the launch.
//!
//! A driver wants memory to be there where nodes name it, and a graph's own is bound by a launch: who asks for
//! [`Native::make`] sees to that.
//!
//! Invariant **as-ordered**: between two nodes that work, the device's graph has a path where the instance has one, or
//! they are one node; all that comes before a node's second fill comes before its first, or is that.

use std::sync::{Arc, OnceLock};

use millpond_core::graph::Exec as CoreExec;
use millpond_core::units::{MIB, Range};
use millpond_driver::{Driver, DriverError, Node, NodeWork, RawExec, RawGraph, RawStream};
use smallvec::SmallVec;

use super::body::Body;
use super::payload::Payload;
use super::program::payload;
use super::submit::{Submitted, TRIES};
use crate::clock::mark::CountedDriver;
use crate::names::error::Result;
use crate::pool::shell;
use crate::state::arena::Arena;
use crate::state::context::Context;
use crate::sync::locks::{Mutex, lock};
use crate::sync::ranks;

/// A node that does nothing stays where it joins more edges than this: without it every node after it had them all.
const JOINED_MAX: usize = 2;

/// Fills are not joined to more bytes than this: a device writes them in about the time that a node takes.
const FILLED_MAX: u64 = 4 * MIB;

/// A graph of the device. Launches in flight outlive it.
#[derive(Debug)]
pub(crate) struct Native {
    made: OnceLock<RawExec>,
    /// What it is to be made of, until it is.
    nodes: Mutex<{ ranks::NATIVE_NODES }, Vec<Node>>,
    driver: Arc<CountedDriver>,
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(raw) = self.made.get() {
            // A device that refuses time and again keeps it until it goes.
            let _ = (0..TRIES).any(|_| self.driver.destroy_exec(*raw).is_ok());
        }
    }
}

impl Native {
    /// What an instance is as a graph of the device, yet to be made; none where that is not to be had. Its own memory
    /// lies in `arenas`.
    pub(crate) fn of(context: &Context, core: &CoreExec, body: &Body, arenas: &[Arc<Arena>]) -> Option<Self> {
        let summary = core.summary();
        let has_events = !(summary.records.is_empty() && summary.waits.is_empty());
        let can = !has_events && context.driver.has_graphs();
        can.then(|| Self::planned(context, nodes(core, body, arenas)))
    }

    fn planned(context: &Context, nodes: Vec<Node>) -> Self {
        Self { made: OnceLock::new(), nodes: Mutex::new(nodes), driver: Arc::clone(&context.driver) }
    }

    /// Makes it, if that was not done yet. The memory that its nodes name is there.
    #[cold]
    pub(crate) fn make(&self, context: &Context) -> Result<()> {
        let mut nodes = lock(&self.nodes);
        if self.made.get().is_none() {
            let raw = shell::instantiate_graph(context, &nodes)?;
            // The device keeps what they own.
            *nodes = Vec::new();
            let _ = self.made.set(raw);
        }
        Ok(())
    }

    #[inline]
    fn raw(&self) -> Result<RawExec> {
        let unmade = || DriverError::Failed { call: "launch", reason: "the graph was not made on the device".into() };
        Ok(*self.made.get().ok_or_else(unmade)?)
    }

    /// Gives a launch to the driver.
    #[inline]
    pub(crate) fn submit(&self, context: &Context, stream: RawStream) -> Submitted {
        match self.launch(context, stream) {
            Ok(()) => Submitted::Whole(Vec::new()),
            Err(error) => Submitted::Nothing(error),
        }
    }

    pub(crate) fn launch(&self, context: &Context, stream: RawStream) -> Result<()> {
        Ok(shell::launch_graph(context, self.raw()?, stream)?)
    }

    pub(crate) fn upload(&self, stream: RawStream) -> Result<()> {
        Ok(self.driver.upload(self.raw()?, stream)?)
    }
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
        Payload::Nothing
        | Payload::Child(_)
        | Payload::EventRecord(_)
        | Payload::EventWait(_)
        | Payload::Open
        | Payload::Late(_) => NodeWork::Nothing,
        Payload::Kernel(kernel) | Payload::HostFunction(kernel) => NodeWork::Run(Arc::new(move || (lock(&kernel))())),
        Payload::Copy { to, from, bytes } => NodeWork::Copy { to, from, bytes },
        Payload::Upload { to, from } => NodeWork::Upload { to, from },
        Payload::Memset { at, bytes, value } => NodeWork::Fill { at, bytes, value },
        Payload::Foreign(foreign) => NodeWork::Captured(foreign.raw),
    }
}

/// Work of foreign code, captured from a stream.
#[derive(Debug)]
pub(crate) struct Foreign {
    raw: RawGraph,
    driver: Arc<CountedDriver>,
    /// For instances that run lane by lane.
    alone: Mutex<{ ranks::NATIVE_ALONE }, Option<Native>>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // A device that refuses time and again keeps it until it goes.
        let _ = (0..TRIES).any(|_| self.driver.destroy_graph(self.raw).is_ok());
    }
}

impl Foreign {
    pub(crate) fn new(context: &Context, raw: RawGraph) -> Self {
        Self { raw, driver: Arc::clone(&context.driver), alone: Mutex::default() }
    }

    /// To be called before the first [`launch`](Self::launch): makes a graph of the device of it.
    pub(crate) fn prepare(&self, context: &Context) -> Result<()> {
        let mut alone = lock(&self.alone);
        if alone.is_none() {
            let node = Node { work: NodeWork::Captured(self.raw), after: Vec::new() };
            let native = Native::planned(context, vec![node]);
            native.make(context)?;
            *alone = Some(native);
        }
        Ok(())
    }

    /// Submits it to a lane.
    pub(crate) fn launch(&self, context: &Context, lane: RawStream) -> Result<()> {
        self.prepare(context)?; // Nothing, but where it stands alone in a stream.
        lock(&self.alone).as_ref().expect("prepared just now").launch(context, lane)
    }
}
