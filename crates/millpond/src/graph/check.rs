//! Whether a launch may be made: what it has to do with, and what each of that must come after.
//!
//! Knows lives and what a stream knows; submits and records nothing.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault};
use millpond_core::graph::{GraphAllocId, GraphId, LaunchRefused, NodeSite};
use millpond_core::order::Knows;
use millpond_core::units::Range;
use millpond_driver::LightGuard;
use smallvec::SmallVec;

use super::error::GraphError;
use super::events::{Events, Waited, standing};
use super::exec::{ExecShared, Output, Outside, Whose};
use super::last::{Last, Lasts};
use super::memory::GraphMemory;
use crate::allocation::{Allocation, Life, freed_fault, site};
use crate::error::{Error, Invalid, Result};
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
pub(crate) type Founds = SmallVec<[Found; 4]>;

/// Their lives, locked.
pub(super) type Lives<'f> = SmallVec<[LightGuard<'f, Life>; 16]>;

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
    named: impl Fn(GraphId, GraphAllocId) -> Result<Arc<Allocation>>,
) -> Result<Founds> {
    let mut found = Founds::new();
    for (index, outside) in outsides.iter().enumerate() {
        let allocation = match &outside.whose {
            Whose::Held(allocation) => Arc::clone(allocation),
            Whose::Node(graph, alloc) => named(*graph, *alloc)?,
        };
        found.push(Found { allocation, role: Role::Outside(index) });
    }
    let output =
        |(index, it): (usize, &Output)| Found { allocation: Arc::clone(&it.allocation), role: Role::Output(index) };
    found.extend(outputs.iter().enumerate().map(output));
    found.sort_by_key(|found| found.allocation.id);
    let same = |pair: &[Found]| pair[0].allocation.id == pair[1].allocation.id;
    match found.windows(2).any(same) {
        // Two lives of one allocation, one of which is over.
        true => Err(Invalid::Stale.into()),
        false => Ok(found),
    }
}

impl Found {
    /// What every launch has to do with; none where that is to be found at each launch.
    pub(super) fn always(outputs: &[Output], outsides: &[Outside]) -> Option<Founds> {
        find(outputs, outsides, |graph, _| Err(GraphError::NotLive(graph).into())).ok()
    }
}

impl ExecShared {
    /// What this launch has to do with.
    pub(super) fn find(&self) -> Result<Founds> {
        let named = |graph, alloc| self.context.graphs.named((graph, alloc));
        find(&self.outputs, &self.outsides, |graph, alloc| {
            named(graph, alloc).ok_or_else(|| GraphError::NotLive(graph).into())
        })
    }

    /// Whether all memory from outside is live now.
    #[cold]
    pub(super) fn finds_outside(&self) -> bool {
        self.outsides.iter().all(|outside| {
            let allocation = match &outside.whose {
                Whose::Held(allocation) => Some(Arc::clone(allocation)),
                Whose::Node(graph, alloc) => self.context.graphs.named((*graph, *alloc)),
            };
            allocation.is_some_and(|it| matches!(outside.check_live(&it, &it.life()), Ok(Ok(()))))
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
        found: &[Found],
        lives: &Lives<'_>,
        launching: &Launching<'_>,
        state: &State,
        memory: Option<&GraphMemory>,
    ) -> Result<()> {
        let Launching { shared, caller, before, waited } = launching;
        let is_unfreed = |(found, life): &(&Found, &LightGuard<'_, Life>)| {
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
        standing(&state.chain, before, None, None, |who| {
            for (found, life) in found.iter().zip(lives) {
                let checked = match found.role {
                    Role::Output(_) if life.freed.is_some() => continue,
                    Role::Output(_) => {
                        let checked = life.history.check_free(who);
                        checked.map_err(|fault| Wrong { act: Act::Free, fault, site: None })
                    }
                    Role::Outside(index) => {
                        let outside = &self.outsides[index];
                        let is_live = outside.check_live(&found.allocation, life)?;
                        is_live.and_then(|()| outside.check(life, &state.chain, before, events))
                    }
                };
                if let Err(Wrong { act, fault, site: node }) = checked {
                    let later = site(act, shared.id, state.op() + 1, caller);
                    let subject = found.allocation.subject(life);
                    return Err(within(shared.refuse(state, &found.allocation, subject, fault, later), node));
                }
            }
            Ok(())
        })
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

type Checked<'e> = std::result::Result<(), Wrong<'e>>;

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
    /// Whether the memory is there, in the life that is meant.
    fn check_live(&self, allocation: &Allocation, life: &Life) -> Result<Checked<'_>> {
        if self.lives.iter().any(|generation| life.generation != *generation) {
            let node = self.sites.first().map(NodeSite::describe).unwrap_or_default();
            return Err(GraphError::Outlived { node, allocation: allocation.id.to_string() }.into());
        }
        let Some(free) = life.freed else { return Ok(Ok(())) };
        match &self.whose {
            Whose::Node(graph, _) if life.generation == 0 || (self.frees() && self.lives.is_empty()) => {
                Err(GraphError::NotLive(*graph).into())
            }
            _ => {
                let act = self.demands.first().map_or(Act::Free, |demand| demand.act);
                Ok(Err(Wrong { act, fault: freed_fault(free, act), site: self.sites.first() }))
            }
        }
    }

    /// Whether a launch may do what it does to it.
    fn check(
        &self,
        life: &Life,
        stream: &impl Knows,
        before: &[Last],
        events: Option<(&Events, &Waited)>,
    ) -> Checked<'_> {
        self.demands.iter().zip(&self.sites).try_for_each(|(demand, site)| {
            let checked = standing(stream, before, events, Some(demand), |who| match demand.act {
                Act::Free => life.history.check_free(who),
                act => life.history.check_use(act, who, !demand.may_share),
            });
            checked.map_err(|fault| Wrong { act: demand.act, fault, site: Some(site) })
        })
    }
}
