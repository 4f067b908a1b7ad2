//! The checks of a launch: the memory that it uses, and what each act on it must come after.
//!
//! Depends on lifetimes and on what a stream knows; submits and records nothing.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault, Finding, Launch, Side, Site, Use, judge};
use millpond_core::graph::{Demand, GraphAllocId, GraphId, NodeSite};
use millpond_driver::locks::BiasedGuard;
use smallvec::SmallVec;

use super::events::{Waited, standing};
use super::exec::ExecShared;
use super::found::{Found, Founds, Outside, Role, Whose, find};
use super::last::Lasts;
use super::memory::GraphMemory;
use crate::names::error::{Error, Invalid, Result};
use crate::names::stream_names::side;
use crate::state::allocation::{Life, site};
use crate::state::stream::{State, StreamShared};

/// The locked lifetimes of the found allocations.
pub(super) type Lives<'f> = SmallVec<[BiasedGuard<'f, Life>; 16]>;

/// A launch in progress.
pub(super) struct Launching<'a> {
    pub(super) shared: &'a StreamShared,
    pub(super) caller: &'static Location<'static>,
    /// The earlier launches that the stream does not come after yet.
    pub(super) before: Lasts,
    /// The records that the wait nodes wait for.
    pub(super) waited: Waited,
}

impl ExecShared {
    /// Finds the memory that this launch uses and leaves live.
    pub(super) fn find(&self) -> Result<Founds> {
        find(&self.outputs, &self.outsides, |graph, alloc| self.context.graphs.named((graph, alloc)))
    }

    /// Returns `true` if all memory from outside the graph is live now.
    #[cold]
    pub(super) fn finds_outside(&self) -> bool {
        self.outsides.iter().all(|outside| {
            let allocation = match &outside.whose {
                Whose::Held(allocation) => Some(Arc::clone(allocation)),
                Whose::Node(graph, alloc) => self.context.graphs.named((*graph, *alloc)),
            };
            allocation.is_some_and(|it| outside.wrong_life(&it.life()).is_none())
        })
    }

    /// Locks the lifetimes. The graph memory then learns of all frees so far.
    #[inline]
    pub(super) fn lock_lives<'f>(&self, found: &'f [Found], lives: &mut Lives<'f>, memory: Option<&mut GraphMemory>) {
        for found in found {
            lives.push(found.allocation.life());
        }
        if let Some(memory) = memory {
            memory.learn_frees(&self.context.graphs.frees);
        }
    }

    /// Checks the launch. Nothing is enqueued if it is refused.
    #[inline]
    pub(super) fn check(
        &self,
        founds: &Founds,
        lives: &Lives<'_>,
        launching: &Launching<'_>,
        state: &State,
        memory: Option<&GraphMemory>,
    ) -> Result<()> {
        let judged = Judged { exec: self, founds, lives, launching, state, memory };
        match judged.is_right() {
            true => Ok(()),
            false => judged.refusal(),
        }
    }
}

/// A launch, with everything that its checks need.
struct Judged<'a, 'f> {
    exec: &'a ExecShared,
    founds: &'a Founds,
    lives: &'a Lives<'f>,
    launching: &'a Launching<'a>,
    state: &'a State,
    memory: Option<&'a GraphMemory>,
}

impl Judged<'_, '_> {
    /// Returns `true` if nothing is wrong. The order of these checks is the fastest one.
    fn is_right(&self) -> bool {
        let all = self.found().zip(self.lives);
        self.founds.missing.is_empty()
            && self.check_unfreed().is_ok()
            && standing(&self.state.chain, &self.launching.before, None, None, |who| {
                all.into_iter().all(|(found, life)| match found.role {
                    Role::Output(_) => life.freed.is_some() || life.history.check_free(who).is_ok(),
                    Role::Outside(index) => {
                        let outside = &self.exec.outsides[index];
                        let in_order = |demand| self.check_in_order(life, demand).is_ok();
                        outside.wrong_life(life).is_none() && outside.demands.iter().all(in_order)
                    }
                })
            })
    }

    /// Returns the first error, in the order of the protocol (`core::check::protocol`).
    #[cold]
    fn refusal(&self) -> Result<()> {
        let orders = self.exec.outsides.iter().flat_map(|outside| &outside.orders);
        judge(self, orders.max().map_or(0, |last| *last as usize + 1))
    }

    fn found(&self) -> impl Iterator<Item = &Found> {
        self.founds.list.iter()
    }

    /// Returns the found allocation with a role, and its lifetime.
    fn of_role(&self, wanted: impl Fn(Role) -> bool) -> Option<(&Found, &Life)> {
        self.found().zip(self.lives).find(|(found, _)| wanted(found.role)).map(|(found, life)| (found, &**life))
    }

    fn unfreed(&self) -> usize {
        let is_unfreed = |(found, life): &(&Found, &BiasedGuard<'_, Life>)| {
            matches!(found.role, Role::Output(_)) && life.freed.is_none()
        };
        self.found().zip(self.lives).filter(is_unfreed).count()
    }

    /// Makes the error for `count` unfreed allocations: of earlier launches, or of an earlier instance at these
    /// addresses.
    #[cold]
    fn refuse_unfreed(&self, count: usize) -> Error {
        let shared = self.launching.shared;
        let first = self.found().zip(self.lives).find_map(|(found, life)| match found.role {
            Role::Output(_) if life.freed.is_none() => {
                let born = side(shared.context.number, life.history.born().site);
                Some((found.allocation.subject(life), born))
            }
            _ => None,
        });
        let later = Side { verb: "launched".to_owned(), ..side(shared.context.number, self.later(Act::Allocate)) };
        Finding::unfreed(&shared.title(), first, count).at(later).into()
    }

    /// Returns the site of the launch's act on memory.
    fn later(&self, act: Act) -> Site {
        let Launching { shared, caller, .. } = self.launching;
        site(act, shared.id, self.state.op() + 1, caller)
    }

    /// Checks that a demand's act comes after everything that it must come after.
    #[inline]
    fn check_in_order(&self, life: &Life, demand: &Demand) -> std::result::Result<(), Fault> {
        let Launching { before, waited, .. } = self.launching;
        let events = self.exec.events.as_ref().map(|events| (events, waited));
        standing(&self.state.chain, before, events, Some(demand), |who| life.history.check_demand(demand, who, true))
    }

    /// Makes the error of an act, by a node or by the launch itself.
    #[cold]
    fn refused(&self, (found, life): (&Found, &Life), wrong: Wrong<'_>) -> Error {
        let (shared, later) = (self.launching.shared, self.later(wrong.act));
        let refused = match wrong.what {
            Problem::Fault(fault) => shared.refuse(self.state, &found.allocation, life, fault, later),
            Problem::NotLive(graph, alloc) => self.exec.context.graphs.not_live((graph, alloc), later),
            Problem::StaleName { generation } => {
                found.allocation.stale_name(life, generation, side(found.allocation.device, later)).into()
            }
        };
        within(refused, wrong.site)
    }
}

impl Launch for Judged<'_, '_> {
    type Refused = Error;

    #[inline]
    fn check_unfreed(&self) -> Result<()> {
        let own = self.unfreed();
        if own > 0 && !self.exec.auto_free {
            return Err(self.refuse_unfreed(own));
        }
        // The unfreed allocations of the arenas include each unfreed output.
        let unfreed = |memory: &GraphMemory| {
            self.exec.arena_keys.iter().map(|arena| memory.backing.unfreed(*arena).len()).sum::<usize>()
        };
        match self.memory.map_or(own, unfreed).saturating_sub(own) {
            0 => Ok(()),
            others => Err(self.refuse_unfreed(own + others)),
        }
    }

    fn check_auto_frees(&self) -> Result<()> {
        (0..self.exec.outputs.len()).try_for_each(|index| {
            let output = self.of_role(|role| matches!(role, Role::Output(at) if at == index));
            let Some((found, life)) = output.filter(|(_, life)| life.freed.is_none()) else { return Ok(()) };
            let checked = standing(&self.state.chain, &self.launching.before, None, None, |who| {
                life.history.check_auto_free(who)
            });
            checked.map_err(|fault| {
                self.refused((found, life), Wrong { act: Act::Free, what: Problem::Fault(fault), site: None })
            })
        })
    }

    fn check_demand(&self, number: usize) -> Result<()> {
        let place = |(index, outside): (usize, &Outside)| {
            Some((index, outside.orders.iter().position(|order| *order as usize == number)?))
        };
        let Some((index, at)) = self.exec.outsides.iter().enumerate().find_map(place) else { return Ok(()) };
        let outside = &self.exec.outsides[index];
        let there = self.of_role(|role| matches!(role, Role::Outside(at) if at == index));
        let Some((found, life)) = there else { return Err(self.missing(index)) };
        if let Some(wrong) = outside.wrong_life(life) {
            return Err(self.refused((found, life), wrong));
        }
        let demand = &outside.demands[at];
        self.check_in_order(life, demand).map_err(|fault| {
            let site = outside.sites[at].get(life.history.first_to_blame(demand, &fault));
            let wrong = Wrong { act: demand.act, what: Problem::Fault(fault), site };
            self.refused((found, life), wrong)
        })
    }

    /// The demands include the pinned memory, and their check includes its lifetimes.
    fn check_pins(&self) -> Result<()> {
        Ok(())
    }

    fn join(&self, refused: &mut Error, also: Error) {
        refused.join(&also);
    }
}

impl Judged<'_, '_> {
    /// Makes the error for memory from outside the graph that is not there.
    #[cold]
    fn missing(&self, index: usize) -> Error {
        let outside = &self.exec.outsides[index];
        let is_unborn = self.founds.missing.contains(&(index, true));
        match &outside.whose {
            Whose::Node(graph, alloc) if is_unborn => {
                let refused = self.exec.context.graphs.not_live((*graph, *alloc), self.later(outside.act()));
                within(refused, outside.site())
            }
            _ => {
                let Whose::Held(held) = &outside.whose else { return Invalid::Stale.into() };
                let is_it = |at: usize| Arc::ptr_eq(held, &self.exec.outputs[at].allocation);
                let output = self.of_role(|role| matches!(role, Role::Output(at) if is_it(at)));
                let Some((found, life)) = output else { return Invalid::Stale.into() };
                let by_itself = || {
                    let free = Use { point: self.state.chain.last(), site: self.later(Act::Free) };
                    let fault = Fault::after_free(free, outside.act());
                    Wrong { act: outside.act(), what: Problem::Fault(fault), site: outside.site() }
                };
                self.refused((found, life), outside.wrong_life(life).unwrap_or_else(by_itself))
            }
        }
    }
}

/// An error of an act on memory, and the node that does the act. There is no node if the launch frees by itself.
struct Wrong<'e> {
    act: Act,
    what: Problem,
    site: Option<&'e NodeSite>,
}

enum Problem {
    Fault(Fault),
    /// No launch has left the memory live.
    NotLive(GraphId, GraphAllocId),
    /// Another lifetime has begun at the same place.
    StaleName {
        /// The lifetime that the node means.
        generation: u64,
    },
}

/// Names the refused part of the launch in the error.
#[cold]
fn within(refused: Error, node: Option<&NodeSite>) -> Error {
    match refused {
        Error::Violation(mut violation) => {
            violation.in_launch(node.map(Side::from));
            Error::Violation(violation)
        }
        other => other,
    }
}

impl Outside {
    /// Returns the first node that does something to it.
    fn site(&self) -> Option<&NodeSite> {
        self.sites.first()?.first()
    }

    /// Returns the first act on it.
    fn act(&self) -> Act {
        self.demands.first().map_or(Act::Free, |demand| demand.act)
    }

    /// Returns the error if the memory is not live in the lifetime that the nodes mean.
    fn wrong_life(&self, life: &Life) -> Option<Wrong<'_>> {
        let (act, site) = (self.act(), self.site());
        if let Some(generation) = self.lives.iter().copied().find(|generation| life.generation != *generation) {
            return Some(Wrong { act, what: Problem::StaleName { generation }, site });
        }
        let free = life.freed.now()?;
        match &self.whose {
            Whose::Node(graph, alloc) if !life.was_launched() => {
                Some(Wrong { act, what: Problem::NotLive(*graph, *alloc), site })
            }
            _ => Some(Wrong { act, what: Problem::Fault(Fault::after_free(free, act)), site }),
        }
    }
}
