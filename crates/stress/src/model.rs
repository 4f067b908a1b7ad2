//! The order of a list of operations, and a check that all are in order, by the litmus model's tasks and plain
//! reachability.
//!
//! The model lowers streams, events, graphs and launches to tasks with edges. It has no clock and is independent of the
//! checker and the library.

use millpond_core::ids::{HostId, StreamId};
use millpond_core::op::{Act, Op, Place, What};
use millpond_litmus::Program;
use millpond_litmus::model::{Effect, Model};

/// The largest number of tasks of a model that is examined.
const TASKS: usize = 1500;

/// A kernel of the list: its line, and for a graph's kernel the line of the launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) line: u32,
    pub(crate) launch: Option<u32>,
}

/// Operations with the model's order.
pub(crate) struct Order {
    model: Model,
    /// For each task, the tasks that come before it, one bit each.
    before: Vec<Vec<u64>>,
}

impl Order {
    /// Returns the order of operations, or `None` if they have no model.
    pub(crate) fn of(ops: &[Op]) -> Option<Self> {
        // The model launches at the end what was never launched. That is after this operation, and is cut off.
        let (host, stream) = (HostId(0), StreamId(u32::MAX));
        let end = Op { host, place: Place::Line(u32::MAX), what: What::StreamSynchronize { stream } };
        let ops = ops.iter().cloned().chain([end]).collect();
        let mut model = Model::new(&Program::of(ops)).ok()?;
        model.tasks.truncate(model.tasks.iter().position(|it| it.line == u32::MAX).unwrap_or(0));
        if model.tasks.len() > TASKS {
            return None;
        }
        let words = model.tasks.len().div_ceil(64);
        let mut before: Vec<Vec<u64>> = Vec::with_capacity(model.tasks.len());
        for task in &model.tasks {
            let mut mine = vec![0_u64; words];
            for need in &task.needs {
                mine[need / 64] |= 1 << (need % 64);
                mine.iter_mut().zip(&before[*need]).for_each(|(mine, its)| *mine |= its);
            }
            before.push(mine);
        }
        Some(Self { model, before })
    }

    fn comes_before(&self, one: usize, other: usize) -> bool {
        self.before[other][one / 64] >> (one % 64) & 1 == 1
    }

    /// Returns `true` if a kernel comes before other work of a stream. Work that is not in the list comes before
    /// everything.
    pub(crate) fn is_before(&self, one: Kernel, other: u32) -> bool {
        let task = |line, launch| self.model.tasks.iter().position(|it| (it.line, it.launch) == (line, launch));
        let both = task(one.line, one.launch).zip(task(other, None));
        both.is_none_or(|(one, other)| self.comes_before(one, other))
    }

    /// Describes the first fault in the order, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        let Self { model, .. } = self;
        let mut acts: Vec<Vec<(usize, Effect)>> = vec![Vec::new(); model.lives.len()];
        for (at, task) in model.tasks.iter().enumerate() {
            task.effects.iter().for_each(|effect| acts[effect.life].push((at, *effect)));
        }
        for (life, acts) in model.lives.iter().zip(&acts) {
            let birth = acts.iter().find(|it| it.1.act == Act::Allocate).map(|it| it.0);
            for (nth, (at, effect)) in acts.iter().enumerate() {
                let is_born = life.is_there || birth.is_some_and(|it| it == *at || self.comes_before(it, *at));
                let is_fine = |(other, (then, its)): (usize, &(usize, Effect))| {
                    let is_ordered = self.comes_before(*then, *at) || self.comes_before(*at, *then) || then == at;
                    other == nth
                        || match (effect.act, its.act) {
                            (Act::Free, Act::Free) => false,
                            (Act::Allocate, _) | (_, Act::Allocate) | (Act::Read, Act::Read) => true,
                            (Act::Free, _) => self.comes_before(*then, *at),
                            (_, Act::Free) => self.comes_before(*at, *then),
                            _ => is_ordered || !effect.part.overlaps(its.part),
                        }
                };
                let met = acts.iter().enumerate().find(|it| !is_fine(*it)).map(|(_, (other, its))| (other, its.act));
                if !is_born || met.is_some() {
                    let line = |at: usize| (model.tasks[at].line, model.tasks[at].launch);
                    let met = met.map(|(other, act)| format!("{act:?} of {:?}", line(*other)));
                    let act = effect.act;
                    return Some(format!("line {:?}: {act:?} of {}, beside {met:?}", line(*at), life.name));
                }
            }
        }
        None
    }
}
