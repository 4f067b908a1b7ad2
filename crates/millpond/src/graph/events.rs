//! External event nodes of an instance: the outside comes after a record node, not after the whole launch, and a wait
//! node comes after the outside, not the whole launch.
//!
//! How such a launch lies in the order is core's `Lanes`; here the nodes meet the events that they name, and chains of
//! the device's order. Knows what a launch waits for and records; nothing of memory.
//!
//! A wait node waits for what its event holds at the launch. (CUDA's looks when it runs: what it finds then is a matter
//! of timing, unless the event is left alone in between. Here nothing is.) Where a node before it records the same
//! event it adds nothing to the edges.

use std::sync::Arc;

use millpond_core::graph::{Demand, Exec as CoreExec, Lanes, NodeId, Standing};
use millpond_core::ids::Point;
use millpond_core::order::{Base, Knows, Snapshot};
use millpond_driver::locks::lock;
use smallvec::SmallVec;

use super::last::Last;
use super::program::Program;
use crate::clock::device_event::DeviceEvent;
use crate::clock::hosts;
use crate::clock::progress::{LaunchEnd, Progress};
use crate::state::context::Context;
use crate::stream::event::Record;
use crate::stream::external::ExternalEvent;
use crate::stream::payload::Payload;

/// See the module.
#[derive(Debug)]
pub(crate) struct Events {
    core: CoreExec,
    /// Of its record nodes, one after the other.
    records: Vec<ExternalEvent>,
    waits: Vec<Wait>,
    /// How far the device is on each of the lanes.
    progress: Vec<Arc<Progress>>,
}

/// A wait node.
#[derive(Debug)]
struct Wait {
    node: NodeId,
    event: ExternalEvent,
    /// Whether a node before it records the event.
    is_recorded_before: bool,
}

/// What the wait nodes of one launch wait for, one after the other; none where that is nothing.
pub(crate) type Waited = SmallVec<[Option<Record>; 2]>;

impl Events {
    /// The event nodes of an instance, if it has any, and the lanes that its launches take.
    pub(crate) fn new(context: &Context, core: CoreExec, program: &Program) -> Option<(Self, Lanes)> {
        let summary = core.summary();
        if summary.records.is_empty() && summary.waits.is_empty() {
            return None;
        }
        let (mut records, mut waited) = (Vec::new(), Vec::new());
        for step in &program.steps {
            match &step.payload {
                Payload::EventRecord(event) => records.push(event.clone()),
                Payload::EventWait(event) => waited.push(event.clone()),
                _ => {}
            }
        }
        let waits = summary.waits.iter().zip(waited).map(|(&(node, _), event)| Wait {
            node,
            is_recorded_before: summary.waits_for_own(node),
            event,
        });
        let waits = waits.collect();
        let mut progress = Vec::new();
        let base = hosts::base();
        // Held until the chains are listed: indices are dense in that list.
        let mut chain_indices = lock(&context.chain_indices);
        let lanes = Lanes::new(&core, || {
            let (chain, seq) = chain_indices.open(|point| base.covers(point));
            let lane = Arc::new(Progress::of_launches(seq));
            context.chains.insert(chain, Arc::clone(&lane));
            progress.push(lane);
            (chain, seq)
        });
        drop(chain_indices);
        Some((Self { core, records, waits, progress }, lanes))
    }

    /// What the wait nodes of a launch wait for that is made now.
    pub(crate) fn waited(&self) -> Waited {
        let held = |wait: &Wait| if wait.is_recorded_before { None } else { wait.event.record() };
        self.waits.iter().map(held).collect()
    }

    /// The wait nodes that wait for something, and for what.
    pub(crate) fn waits(&self, waited: &Waited) -> Vec<(NodeId, Snapshot)> {
        let pairs = self.waits.iter().zip(waited);
        pairs.filter_map(|(wait, held)| Some((wait.node, held.as_ref()?.0.clone()))).collect()
    }

    /// What the wait nodes before all of a demand's nodes learned.
    fn learned_for<'w>(&self, demand: &Demand, waited: &'w Waited) -> impl Iterator<Item = &'w Snapshot> {
        let at = |node: &NodeId| self.waits.binary_search_by_key(node, |wait| wait.node).ok();
        demand.waits.iter().filter_map(at).filter_map(|at| Some(&waited.get(at)?.as_ref()?.0))
    }

    /// The point of a node in the launch that is being made; none where that is one point.
    pub(crate) fn point(&self, lanes: &Lanes, node: NodeId) -> Option<Point> {
        lanes.point(&self.core, node)
    }

    /// The point that a node had in the last launch; none where that was one point.
    pub(crate) fn last_point(&self, lanes: &Lanes, node: NodeId) -> Option<Point> {
        lanes.last_point(&self.core, node)
    }

    /// The launch was submitted, with the driver's `device_events` of its record nodes: their events hold what comes
    /// before them. `knew` is the launching stream before the launch.
    pub(crate) fn record(
        &self,
        lanes: &Lanes,
        knew: &Snapshot,
        base: &Arc<Base>,
        waits: &[(NodeId, Snapshot)],
        device_events: Vec<DeviceEvent>,
    ) {
        let exports = lanes.exports(&self.core, base, knew, waits);
        for ((event, snapshot), device_event) in self.records.iter().zip(exports).zip(device_events) {
            event.set((snapshot, Arc::new(device_event)));
        }
    }

    /// The launch completes with `end`.
    pub(crate) fn launched(&self, lanes: &mut Lanes, base: &Arc<Base>, end: &LaunchEnd) {
        for (progress, snapshot) in self.progress.iter().zip(lanes.ends(base)) {
            progress.launched(end.clone(), snapshot.point().seq);
        }
        lanes.advance();
    }
}

/// Acts with where a demand's nodes stand: what the launching stream knows, what it is made to wait for before the
/// launch, and what the wait nodes before them learned.
pub(crate) fn standing<K: Knows, R>(
    stream: &K,
    before: &[Last],
    events: Option<(&Events, &Waited)>,
    demand: Option<&Demand>,
    act: impl FnOnce(&Standing<'_, K>) -> R,
) -> R {
    if before.is_empty() && events.is_none() {
        return act(&Standing { stream, waited: &[] });
    }
    let mut known: SmallVec<[&Snapshot; 4]> = before.iter().map(|last| &last.snapshot).collect();
    if let (Some((events, waited)), Some(demand)) = (events, demand) {
        known.extend(events.learned_for(demand, waited));
    }
    act(&Standing { stream, waited: &known })
}
