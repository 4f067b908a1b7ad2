//! Whether a launch may be made: what it has to do with, and what each of that must come after.
//!
//! Knows lives and what a stream knows; submits and records nothing.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault};
use millpond_core::graph::{GraphAllocId, GraphId, LaunchRefused, NodeSite};
use millpond_core::op::Part;
use millpond_core::order::Knows;
use millpond_core::units::Range;
use smallvec::SmallVec;

use super::error::GraphError;
use super::events::{Events, Waited, standing};
use super::exec::{ExecShared, Output, Outside, Whose};
use super::last::{Last, Lasts};
use super::memory::GraphMemory;
use super::registry::Graphs;
use crate::allocation::{Allocation, Life, freed_fault, site};
use crate::error::{Error, Invalid, Result};
use crate::locks::BiasedGuard;
use crate::ranks;
use crate::stream::{State, StreamShared};

/// An allocation that a launch has to do with.
#[derive(Debug)]
pub(crate) struct Found {
    allocation: Arc<Allocation>,
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
    /// The first demand of memory that is not there.
    missing: Option<Missing>,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    order: u32,
    /// The alloc node that no instance has, and what is done to its memory; none where other memory is there by now.
    unborn: Option<(GraphId, GraphAllocId, Act)>,
}

impl Missing {
    fn first(self, other: Option<Missing>) -> Missing {
        other.filter(|other| other.order < self.order).unwrap_or(self)
    }
}

/// Their lives, locked.
pub(super) type Lives<'f> = SmallVec<[BiasedGuard<'f, { ranks::LIFE }, Life>; 16]>;

/// A launch that is being made.
pub(super) struct Launching<'a> {
    pub(super) shared: &'a StreamShared,
    pub(super) caller: &'static Location<'static>,
    /// Launches before, as far as the stream does not come after them yet.
    pub(super) before: Lasts,
    /// What the wait nodes wait for.
    pub(super) waited: Waited,
}

/// What a launch has to do with; `named` finds what another graph's launch left.
fn find(
    outputs: &[Output],
    outsides: &[Outside],
    named: impl Fn(GraphId, GraphAllocId) -> Option<Arc<Allocation>>,
) -> Result<Founds> {
    let (mut found, mut missing) = (SmallVec::<[Found; 4]>::new(), None::<Missing>);
    for (index, outside) in outsides.iter().enumerate() {
        let allocation = match &outside.whose {
            Whose::Held(allocation) => Arc::clone(allocation),
            Whose::Node(graph, alloc) => match named(*graph, *alloc) {
                Some(allocation) => allocation,
                None => {
                    let unborn = Some((*graph, *alloc, outside.act()));
                    missing = Some(Missing { order: outside.order(), unborn }.first(missing));
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
        // Two lives of one allocation, one of which is over.
        found.retain(|found| {
            let Role::Outside(index) = found.role else { return true };
            let (outside, generation) = (&outsides[index], found.allocation.life().generation);
            let is_there = outside.lives.iter().all(|life| *life == generation);
            if !is_there {
                missing = Some(Missing { order: outside.order(), unborn: None }.first(missing));
            }
            is_there
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
        find(outputs, outsides, |_, _| None).ok().filter(|found| found.missing.is_none())
    }
}

impl ExecShared {
    /// What this launch has to do with.
    pub(super) fn find(&self) -> Result<Founds> {
        find(&self.outputs, &self.outsides, |graph, alloc| self.context.graphs.named((graph, alloc)))
    }

    /// Whether all memory from outside is live now.
    #[cold]
    pub(super) fn finds_outside(&self) -> bool {
        self.outsides.iter().all(|outside| {
            let allocation = match &outside.whose {
                Whose::Held(allocation) => Some(Arc::clone(allocation)),
                Whose::Node(graph, alloc) => self.context.graphs.named((*graph, *alloc)),
            };
            allocation.is_some_and(|it| matches!(outside.check_live(&self.context.graphs, &it, &it.life()), Ok(None)))
        })
    }

    /// Locks the lives; the memory hears of all that was freed before.
    #[inline]
    pub(super) fn lock_lives<'f>(&self, found: &'f [Found], lives: &mut Lives<'f>, memory: Option<&mut GraphMemory>) {
        for found in found {
            lives.push(found.allocation.life());
        }
        if let Some(memory) = memory {
            memory.hear(&self.context.graphs.frees);
        }
    }

    /// Whether the launch may do what it does; nothing is enqueued where it may not.
    pub(super) fn check(
        &self,
        Founds { list: found, missing }: &Founds,
        lives: &Lives<'_>,
        launching: &Launching<'_>,
        state: &State,
        memory: Option<&GraphMemory>,
    ) -> Result<()> {
        let Launching { shared, caller, before, waited } = launching;
        let is_unfreed = |(found, life): &(&Found, &BiasedGuard<'_, { ranks::LIFE }, Life>)| {
            matches!(found.role, Role::Output(_)) && life.freed.is_none()
        };
        let unfreed = found.iter().zip(lives).filter(is_unfreed).count();
        if unfreed > 0 && !self.auto_free {
            return Err(self.unfreed(found, lives, unfreed));
        }
        if let Some(memory) = memory {
            // Each unfreed output is among the arenas' unfreed allocations: as many means that those are all.
            let all: usize = self.arena_keys.iter().map(|arena| memory.backing.unfreed(*arena).len()).sum();
            if all != unfreed {
                self.check_addresses(found, lives, memory)?;
            }
        }
        let events = self.events.as_ref().map(|events| (events, waited));
        let gone = |Missing { order, unborn }: Missing| {
            let unborn = unborn.map(|(graph, alloc, act)| self.context.graphs.not_live((graph, alloc), act));
            let error = unborn.map_or(Invalid::Stale.into(), Into::into);
            (Rank::Demand(order), error)
        };
        let mut refused = missing.map(gone);
        standing(&state.chain, before, None, None, |who| {
            for (found, life) in found.iter().zip(lives) {
                let checked = match found.role {
                    Role::Output(_) if life.freed.is_some() => continue,
                    Role::Output(index) => life.history.check_free(who).map_err(|fault| {
                        let wrong = Wrong { act: Act::Free, fault, site: None };
                        (Rank::Output(index), Stopped::Wrong(wrong))
                    }),
                    Role::Outside(index) => self.outsides[index].judge(
                        &self.context.graphs,
                        &found.allocation,
                        life,
                        &state.chain,
                        before,
                        events,
                    ),
                };
                let Err((rank, stopped)) = checked else { continue };
                // Of several violations the first in the graph's order is reported, whatever the order of the locks.
                if refused.as_ref().is_none_or(|(first, _)| rank < *first) {
                    let error = match stopped {
                        Stopped::Gone(error) => error,
                        Stopped::Wrong(Wrong { act, fault, site: node }) => {
                            let later = site(act, shared.id, state.op() + 1, caller);
                            let subject = found.allocation.subject(life);
                            within(shared.refuse(state, &found.allocation, subject, fault, later), node)
                        }
                    };
                    refused = Some((rank, error));
                }
            }
        });
        refused.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Cold: so many outputs of launches before are not freed.
    #[cold]
    fn unfreed(&self, found: &[Found], lives: &Lives<'_>, count: usize) -> Error {
        let first = found.iter().zip(lives).find_map(|(found, life)| match found.role {
            Role::Output(index) if life.freed.is_none() => Some(&self.outputs[index]),
            _ => None,
        });
        let Output { alloc, name, .. } = first.expect("there are some");
        GraphError::Unfreed(LaunchRefused::Unfreed { alloc: *alloc, name: name.clone(), count }).into()
    }

    /// Refuses where an allocation of a clone's launch, or of a second instance's, lies at this one's addresses.
    #[cold]
    fn check_addresses(&self, found: &[Found], lives: &Lives<'_>, memory: &GraphMemory) -> Result<()> {
        let is_own = |range: &Range| {
            found.iter().zip(lives).any(|(found, life)| {
                matches!(found.role, Role::Output(index) if self.outputs[index].range == *range) && life.freed.is_none()
            })
        };
        for &arena in &self.arena_keys {
            let foreign = memory.backing.unfreed(arena).iter().filter(|range| !is_own(range));
            let mut taken = foreign.filter(|range| self.cover.iter().any(|own| own.overlaps(**range)));
            if let Some(range) = taken.next() {
                return Err(GraphError::AddressesTaken { address: range.start }.into());
            }
        }
        Ok(())
    }
}

/// What is wrong with an act on memory, and the node that does it; none where the launch frees by itself.
struct Wrong<'e> {
    act: Act,
    fault: Fault,
    site: Option<&'e NodeSite>,
}

/// What a launch does, in its order: first it frees what launches before left, then its nodes act.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Output(usize),
    Demand(u32),
}

/// Why a launch is stopped.
enum Stopped<'e> {
    Wrong(Wrong<'e>),
    /// The memory is not there.
    Gone(Error),
}

type Checked<'e> = std::result::Result<(), (Rank, Stopped<'e>)>;

/// Says which part of the launch is refused.
#[cold]
fn within(refused: Error, node: Option<&NodeSite>) -> Error {
    match refused {
        Error::Violation(mut violation) => {
            violation.within = Some(node.map_or_else(|| "auto free on launch".into(), NodeSite::describe));
            Error::Violation(violation)
        }
        other => other,
    }
}

impl Outside {
    /// Which of the graph's demands its first is.
    fn order(&self) -> u32 {
        self.orders.first().copied().unwrap_or(0)
    }

    /// What is done to it first.
    fn act(&self) -> Act {
        self.demands.first().map_or(Act::Free, |demand| demand.act)
    }

    /// Whether the memory is there, in the life that is meant, and a launch may do what it does to it.
    fn judge(
        &self,
        graphs: &Graphs,
        allocation: &Allocation,
        life: &Life,
        stream: &impl Knows,
        before: &[Last],
        events: Option<(&Events, &Waited)>,
    ) -> Checked<'_> {
        match self.check_live(graphs, allocation, life) {
            Ok(None) => self.check(life, stream, before, events),
            Ok(Some(wrong)) => Err((Rank::Demand(self.order()), Stopped::Wrong(wrong))),
            Err(error) => Err((Rank::Demand(self.order()), Stopped::Gone(error))),
        }
    }

    /// What is wrong where the memory was freed.
    fn check_live(&self, graphs: &Graphs, allocation: &Allocation, life: &Life) -> Result<Option<Wrong<'_>>> {
        if self.lives.iter().any(|generation| life.generation != *generation) {
            let node = self.sites.first().map(NodeSite::describe).unwrap_or_default();
            return Err(GraphError::Outlived { node, allocation: allocation.id.to_string() }.into());
        }
        let Some(free) = life.freed else { return Ok(None) };
        match &self.whose {
            Whose::Node(graph, alloc) if life.generation == 0 => {
                Err(graphs.not_live((*graph, *alloc), self.act()).into())
            }
            _ => {
                let act = self.act();
                Ok(Some(Wrong { act, fault: freed_fault(free, act), site: self.sites.first() }))
            }
        }
    }

    /// Whether each act on it is in order.
    fn check(
        &self,
        life: &Life,
        stream: &impl Knows,
        before: &[Last],
        events: Option<(&Events, &Waited)>,
    ) -> Checked<'_> {
        self.demands.iter().enumerate().try_for_each(|(at, demand)| {
            let checked = standing(stream, before, events, Some(demand), |who| match demand.act {
                Act::Free => life.history.check_free(who),
                act => life.history.check_use(act, Part::WHOLE, who, !demand.may_share),
            });
            checked.map_err(|fault| {
                let wrong = Wrong { act: demand.act, fault, site: self.sites.get(at) };
                (Rank::Demand(self.orders[at]), Stopped::Wrong(wrong))
            })
        })
    }
}
