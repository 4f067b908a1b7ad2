//! External event nodes of an instance. A stream that waits for the event of a record node comes after that node, not
//! after the whole launch. After a wait node, only the nodes behind it come after the record waited for, not the whole
//! launch.
//!
//! Core's `Lanes` decides how such a launch lies in the order. This file connects the nodes to the events that they
//! name, and the lanes to chains of the device's order. Depends on what a launch waits for and records, not on memory.
//!
//! A wait node waits for the record that its event holds at the launch. (CUDA's reads the event when it runs. Its
//! result then depends on timing, unless no thread changes the event in between. Here it does not depend on timing.) A
//! wait node that may wait for a record of its own launch adds no edge.

use std::sync::Arc;

use millpond_core::graph::{Demand, Exec as CoreExec, Lanes, NodeId, Standing};
use millpond_core::ids::Point;
use millpond_core::order::{Base, Knows, Snapshot};
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
    /// The events of its record nodes, in their order.
    records: Vec<ExternalEvent>,
    waits: Vec<Wait>,
    /// The progress of the device on each of the lanes.
    progress: Vec<Arc<Progress>>,
}

/// A wait node.
#[derive(Debug)]
struct Wait {
    node: NodeId,
    event: ExternalEvent,
    /// `true` if it may wait for a record of the same launch.
    is_recorded_before: bool,
}

/// The records that the wait nodes of one launch wait for, in their order. `None` for a node that adds no edge.
pub(crate) type Waited = SmallVec<[Option<Record>; 2]>;

impl Events {
    /// Returns the event nodes of an instance, if it has any, and the lanes of its launches.
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
        let mut chains = context.chains.open();
        let lanes = Lanes::new(&core, || {
            let (chain, seq) = chains.indices().open(|point| base.covers(point));
            let lane = Arc::new(Progress::of_launches(seq));
            chains.list(chain, Arc::clone(&lane));
            progress.push(lane);
            (chain, seq)
        });
        drop(chains);
        Some((Self { core, records, waits, progress }, lanes))
    }

    /// Returns the records that the wait nodes of a launch made now wait for.
    pub(crate) fn waited(&self) -> Waited {
        let held = |wait: &Wait| if wait.is_recorded_before { None } else { wait.event.record() };
        self.waits.iter().map(held).collect()
    }

    /// Returns the wait nodes that wait for something, each with its snapshot.
    pub(crate) fn waits(&self, waited: &Waited) -> Vec<(NodeId, Snapshot)> {
        let pairs = self.waits.iter().zip(waited);
        pairs.filter_map(|(wait, held)| Some((wait.node, held.as_ref()?.0.clone()))).collect()
    }

    /// Returns the snapshots that the wait nodes before all of a demand's nodes waited for.
    fn learned_for<'w>(&self, demand: &Demand, waited: &'w Waited) -> impl Iterator<Item = &'w Snapshot> {
        let at = |node: &NodeId| self.waits.binary_search_by_key(node, |wait| wait.node).ok();
        demand.waits.iter().filter_map(at).filter_map(|at| Some(&waited.get(at)?.as_ref()?.0))
    }

    /// Returns the point of a node in the launch in progress, or `None` if its chain has no lane.
    pub(crate) fn point(&self, lanes: &Lanes, node: NodeId) -> Option<Point> {
        lanes.point(&self.core, node)
    }

    /// Returns the point of a node in the last launch, or `None` if its chain has no lane.
    pub(crate) fn last_point(&self, lanes: &Lanes, node: NodeId) -> Option<Point> {
        lanes.last_point(&self.core, node)
    }

    /// Records that the launch was submitted. `device_events` are the driver's events of its record nodes: each
    /// external event now holds the order up to its node. `knew` is the snapshot of the launching stream before the
    /// launch.
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

    /// Records that the launch completes with `end`.
    pub(crate) fn launched(&self, lanes: &mut Lanes, base: &Arc<Base>, end: &LaunchEnd) {
        for (progress, snapshot) in self.progress.iter().zip(lanes.ends(base)) {
            progress.launched(end.clone(), snapshot.point().seq);
        }
        lanes.advance();
    }
}

/// Calls `act` with the knowledge of a demand's nodes: what the launching stream knows, the launches that it is made to
/// wait for first, and the records that the wait nodes before those nodes waited for.
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
