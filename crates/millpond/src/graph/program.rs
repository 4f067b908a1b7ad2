//! The work that an instance submits: the order, and the lane of each step.
//!
//! A *lane* is a queue of the driver (`lane.rs`). Lane 0 is the launching stream itself, so a graph of one chain costs
//! no more than its work. An edge between lanes becomes an event and a wait. It is left out if the lane already waits
//! for something later. Depends on an instance's nodes and what they do.
//!
//! Invariant **covered**: whenever a step runs, all steps that its node depends on have completed.

use millpond_core::graph::{Exec as CoreExec, FlatNode, Index, NodeId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::body::Body;
use super::lane::Lanes;
use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::stream::payload::Payload;

/// The error text for a graph that is too wide.
const TOO_WIDE: &str = "the graph has more than 16384 kernels, host functions and event waits without a path between \
                        any two of them, and each of those needs a queue of the device: add edges between them, or \
                        make several graphs of it";

/// If a node depends on more nodes than this, the dependencies are not compared with each other.
const COMPARED: usize = 16;

/// One node's part of a launch.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) lane: u32,
    /// The events to wait for first.
    pub(crate) waits: SmallVec<[u32; 2]>,
    pub(crate) payload: Payload,
    /// The event to record afterwards.
    pub(crate) event: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// The number of lanes, including the launching stream.
    pub(crate) lanes: usize,
    /// The number of events.
    pub(crate) events: usize,
    /// The events that the launching stream waits for at the end.
    pub(crate) tails: Vec<u32>,
}

/// Returns the work of a node, found by its path through child graphs.
fn find<'b>(body: &'b Body, origin: &[NodeId]) -> &'b Payload {
    let mut body = body;
    for node in origin {
        match body.children.get(node) {
            Some(child) => body = child,
            None => return body.payloads.get(node.index()).unwrap_or(&Payload::Nothing),
        }
    }
    // An empty node that gathers a child's edges has the child's path.
    &Payload::Nothing
}

/// Returns the work of an instance's node.
pub(super) fn payload(core: &CoreExec, body: &Body, node: &FlatNode) -> Payload {
    match find(body, &node.origin) {
        Payload::Late(late) => late.at(node, core),
        payload => payload.clone(),
    }
}

impl Program {
    /// Makes the device's objects that launches of foreign code need.
    pub(crate) fn prepare(&self, context: &Context) -> Result<()> {
        self.steps.iter().try_for_each(|step| match &step.payload {
            Payload::Foreign(foreign) => foreign.prepare(context),
            _ => Ok(()),
        })
    }

    /// Makes the program of an instance.
    pub(crate) fn new(context: &Context, core: &CoreExec, body: &Body) -> Result<Self> {
        let index = core.index();
        let mut lanes = Lanes::new(index, core.nodes().len());
        let mut program = Program { steps: Vec::with_capacity(core.nodes().len()), ..Program::default() };
        let mut events = 0;
        let mut new_event = || {
            events += 1;
            events - 1
        };
        // The last node that runs each closure which may occur more than once.
        let mut runs: FxHashMap<usize, NodeId> = FxHashMap::default();
        // The last step that examined a node of each lane.
        let mut looked: Vec<usize> = Vec::new();
        for (at, node) in core.nodes().iter().enumerate() {
            let payload = payload(core, body, node);
            let may_block = match &payload {
                Payload::EventWait(_) => true,
                payload => payload.closure().is_some() && context.properties.runs_closures,
            };
            let (lane, before) = lanes.place(&node.dependencies, may_block).ok_or(Invalid::GraphTooLarge(TOO_WIDE))?;
            // INVARIANT: one-run, within a launch.
            let closure = payload.closure().filter(|_| !body.children.is_empty());
            let run = closure.and_then(|closure| runs.insert(closure.identity(), NodeId(at as u32)));
            let mut sorted = SmallVec::<[NodeId; 4]>::new();
            // Nearly all nodes depend on one node.
            let after = match (run, &node.dependencies[..]) {
                (None, few @ ([] | [_])) => few,
                (run, many) => {
                    sorted.extend_from_slice(many);
                    sorted.extend(run);
                    sorted.sort_unstable();
                    &sorted
                }
            };
            let is_known = |node: NodeId| {
                before.is_some_and(|before| index.reaches_or_is(node, before))
                    || after.len() <= COMPARED && after.iter().any(|other| index.reaches(node, *other))
            };
            let mut waits = SmallVec::new();
            looked.resize(lanes.count(), usize::MAX);
            // Of the nodes on one lane, only the last is waited for.
            for node in after.iter().rev() {
                let other = lanes.of(*node);
                let has_looked = std::mem::replace(&mut looked[other as usize], at) == at;
                if other != lane && !has_looked && !is_known(*node) {
                    waits.push(*program.steps[node.index()].event.get_or_insert_with(&mut new_event));
                }
            }
            program.steps.push(Step { lane, waits, payload, event: None });
        }
        program.lanes = lanes.count();
        program.add_tails(index, &lanes, &mut new_event);
        program.events = events as usize;
        // Steps that do nothing and order nothing are left out.
        program
            .steps
            .retain(|step| !matches!(step.payload, Payload::Nothing) || step.event.is_some() || !step.waits.is_empty());
        Ok(program)
    }

    /// Adds the ends of lanes that the first lane does not come after yet: it waits for them at the end.
    fn add_tails(&mut self, index: &Index, lanes: &Lanes<'_>, mut new_event: impl FnMut() -> u32) {
        for last in (1..lanes.count()).filter_map(|lane| lanes.last(lane as u32)) {
            if !lanes.last(0).is_some_and(|end| index.reaches(last, end)) {
                self.tails.push(*self.steps[last.index()].event.get_or_insert_with(&mut new_event));
            }
        }
    }
}
