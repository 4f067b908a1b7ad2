//! What an instance submits, in which order and on which lane.
//!
//! A *lane* is a queue of the driver that one chain of the graph's cover runs on; lane 0 is the launching stream
//! itself, so that a graph of one chain costs what its work costs. An edge between lanes becomes a mark and a wait,
//! left out where the lane waits for something later on that lane already. Knows an instance's nodes and what they do.
//!
//! Invariant **covered**: whenever a step runs, all steps that its node depends on have completed.

use std::sync::Arc;

use millpond_core::graph::{Exec as CoreExec, FlatNode, NodeId};
use smallvec::SmallVec;

use super::body::Body;
use crate::names::error::Result;
use crate::state::context::Context;
use crate::stream::payload::Payload;

/// No more queues run one graph: chains beyond share them.
pub(crate) const LANES_MAX: usize = 16;

/// One node's part of a launch.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) lane: u32,
    /// Marks to wait for first.
    pub(crate) waits: SmallVec<[u32; 2]>,
    pub(crate) payload: Payload,
    /// The mark to make afterwards.
    pub(crate) mark: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// How many lanes, the launching stream among them.
    pub(crate) lanes: usize,
    /// How many marks.
    pub(crate) marks: usize,
    /// The marks that the launching stream waits for at the end.
    pub(crate) tails: Vec<u32>,
}

/// What a node was given to do, found by its path through child graphs.
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

/// What the node of an instance does.
pub(super) fn payload(core: &CoreExec, body: &Body, node: &FlatNode) -> Payload {
    match find(body, &node.origin) {
        Payload::Late(late) => late.at(node, core),
        payload => payload.clone(),
    }
}

impl Program {
    /// Makes what steps of foreign code are launched as.
    pub(crate) fn prepare(&self, context: &Context) -> Result<()> {
        self.steps.iter().try_for_each(|step| match &step.payload {
            Payload::Foreign(foreign) => foreign.prepare(context),
            _ => Ok(()),
        })
    }

    pub(crate) fn new(core: &CoreExec, body: &Body) -> Self {
        let index = core.index();
        let lanes = index.chains().clamp(1, LANES_MAX);
        let lane_of = |node: NodeId| index.spot(node).0 as usize % lanes;
        let mut program = Program { lanes, steps: Vec::with_capacity(core.nodes().len()), ..Program::default() };
        // How many steps each lane has, and how many of every other lane it waits for: `known[lane][other]`.
        let mut length = vec![0u32; lanes];
        let mut known = vec![vec![0u32; lanes]; lanes];
        let mut current: Vec<Option<Arc<[u32]>>> = vec![None; lanes];
        let mut place: Vec<(u32, u32)> = Vec::with_capacity(core.nodes().len());
        let mut marks = 0;
        let mut new_mark = || {
            marks += 1;
            marks - 1
        };
        // What each step knew of the other lanes.
        let mut knew: Vec<Option<Arc<[u32]>>> = Vec::with_capacity(core.nodes().len());
        for (at, node) in core.nodes().iter().enumerate() {
            let lane = lane_of(NodeId(at as u32));
            let mut waits = SmallVec::new();
            for dependency in &node.dependencies {
                let (other, position) = place[dependency.index()];
                let other = other as usize;
                if other == lane || known[lane][other] >= position {
                    continue;
                }
                let step = &mut program.steps[dependency.index()];
                let mark = *step.mark.get_or_insert_with(&mut new_mark);
                waits.push(mark);
                if let Some(theirs) = &knew[dependency.index()] {
                    for (mine, theirs) in known[lane].iter_mut().zip(theirs.iter()) {
                        *mine = (*mine).max(*theirs);
                    }
                }
                known[lane][other] = known[lane][other].max(position);
                current[lane] = None;
            }
            length[lane] += 1;
            place.push((lane as u32, length[lane]));
            // Steps of a lane between two waits know the same.
            knew.push(
                (lanes > 1).then(|| Arc::clone(current[lane].get_or_insert_with(|| known[lane].as_slice().into()))),
            );
            let payload = payload(core, body, node);
            program.steps.push(Step { lane: lane as u32, waits, payload, mark: None });
        }
        let is_known = |lane: usize, last: usize| known[0][lane] >= place[last].1;
        program.add_tails(is_known, &mut new_mark);
        program.marks = marks as usize;
        // Steps that do nothing and order nothing are left out.
        program
            .steps
            .retain(|step| !matches!(step.payload, Payload::Nothing) || step.mark.is_some() || !step.waits.is_empty());
        program
    }

    /// The ends of lanes that the first lane does not know of yet: it waits for them at the end.
    fn add_tails(&mut self, is_known: impl Fn(usize, usize) -> bool, mut new_mark: impl FnMut() -> u32) {
        let mut last: Vec<Option<usize>> = vec![None; self.lanes];
        self.steps.iter().enumerate().for_each(|(at, step)| last[step.lane as usize] = Some(at));
        for (lane, last) in last.into_iter().enumerate().skip(1) {
            if let Some(last) = last.filter(|last| !is_known(lane, *last)) {
                self.tails.push(*self.steps[last].mark.get_or_insert_with(&mut new_mark));
            }
        }
    }
}
