//! The uses of a launch: each allocation is found by its name, and each use is checked.
//!
//! Depends on accesses and lifetimes. Of several violations the first in declared order is reported, whatever the order
//! of the locks.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault, Kind, Site};
use millpond_core::op::Part;
use millpond_driver::locks::BiasedGuard;

use crate::names::error::{Error, Invalid, Result};
use crate::names::share_error::ShareError;
use crate::names::stream_names::side;
use crate::state::access::{Access, Declared, Few, Source};
use crate::state::aliased::Job;
use crate::state::allocation::{Allocation, Life, site};
use crate::state::context::Context;
use crate::state::named::Named;
use crate::state::origin::Origin;
use crate::state::peers;
use crate::state::stream::{State, StreamShared};
use crate::stream::release::not_launched;
use crate::sync::garbage::Garbage;

/// A use of one allocation by a launch.
#[derive(Debug)]
pub(crate) struct Wanted<'b> {
    pub(crate) allocation: Held<'b>,
    pub(crate) generation: u64,
    pub(crate) act: Act,
    pub(crate) part: Part,
    /// The place among the declared accesses.
    pub(crate) at: usize,
}

impl Wanted<'_> {
    #[inline]
    fn is_of(&self, other: &Wanted<'_>) -> bool {
        self.allocation.get().key() == other.allocation.get().key()
    }
}

/// An allocation that is borrowed from a buffer, or was looked up.
#[derive(Debug)]
pub(crate) enum Held<'b> {
    Borrowed(&'b Arc<Allocation>),
    Found(Arc<Allocation>),
}

impl Held<'_> {
    pub(crate) fn get(&self) -> &Allocation {
        match self {
            Held::Borrowed(allocation) => allocation,
            Held::Found(allocation) => allocation,
        }
    }
}

/// Returns, for each access, the place of its allocation among the distinct ones. Accesses are sorted by allocation.
#[inline]
pub(crate) fn places(wanted: &[Wanted<'_>]) -> Few<usize> {
    let mut place = 0;
    let next = |at: usize| {
        place += usize::from(at > 0 && !wanted[at].is_of(&wanted[at - 1]));
        place
    };
    (0..wanted.len()).map(next).collect()
}

/// Locks the lifetimes of the distinct allocations, in the order of their numbers. Returns the place of each access's
/// lifetime among them, and the locked lifetimes.
#[inline]
pub(crate) fn lives<'w>(wanted: &'w [Wanted<'_>]) -> (Few<usize>, Few<BiasedGuard<'w, Life>>) {
    let places = places(wanted);
    let mut lives = Few::new();
    for (wanted, place) in wanted.iter().zip(&places) {
        if lives.len() == *place {
            lives.push(wanted.allocation.get().life());
        }
    }
    (places, lives)
}

/// Merges equal accesses of the same bytes. Accesses are sorted by allocation and by their first byte. Returns the
/// errors of names whose lifetimes have ended, as `stale_name` makes them, with their places among the declared
/// accesses, and the error for bytes that are written and named twice, if the job may not do that.
#[inline]
pub(crate) fn merge<A: Access>(
    job: Job,
    wanted: &mut Few<Wanted<'_>>,
    (stream, later): (&StreamShared, Site),
    stale_name: impl Fn(&Wanted<'_>, &Life) -> Error,
) -> (Vec<(usize, Error)>, Option<Error>) {
    let mut refused = Vec::new();
    if wanted.windows(2).any(is_stale_name) {
        wanted.retain(|it| {
            let life = it.allocation.get().life();
            let is_live = it.generation == life.generation;
            if !is_live {
                refused.push((it.at, stale_name(it, &life)));
            }
            is_live
        });
    }
    if wanted.windows(2).all(|pair| !pair[0].is_of(&pair[1])) {
        return (refused, None);
    }
    let bytes = wanted.iter().map(|it| (it.allocation.get().key(), it.act, it.part));
    let aliased = job.find_aliased::<A, _>(bytes.clone()).map(|at| {
        let (allocation, bytes) = (wanted[at].allocation.get(), bytes.collect::<Vec<_>>());
        let subject = allocation.subject(&allocation.life());
        let later = side(stream.context.number, Site { act: Act::Write, ..later });
        let what = (subject.to_string(), subject.bytes);
        job.aliased(&bytes, at, what, later)
    });
    wanted.dedup_by(|later, first| later.is_of(first) && (later.part, later.act) == (first.part, first.act));
    (refused, aliased)
}

/// Adds the accesses that other devices do not grant. For one access, that error replaces a wrong order, but not a use
/// after the free.
#[cold]
fn add_no_access(refused: &mut Vec<(usize, Error)>, no_access: Vec<(usize, Error)>) {
    let is_gone = |error: &Error| error.violation().is_none_or(|it| it.kind == Kind::UseAfterFree);
    for (at, error) in no_access {
        match refused.iter_mut().find(|(it, _)| *it == at) {
            Some((_, known)) if is_gone(known) => {}
            Some((_, known)) => *known = error,
            None => refused.push((at, error)),
        }
    }
}

/// Returns the error that an operation is refused with: the first in declared order, whatever the order of the locks,
/// joined with what else the others miss. `no_access` has what other devices do not grant, if any of them is involved.
#[inline]
pub(crate) fn first(mut refused: Vec<(usize, Error)>, no_access: Option<Vec<(usize, Error)>>) -> Option<Error> {
    if let Some(no_access) = no_access {
        add_no_access(&mut refused, no_access);
    }
    if refused.is_empty() {
        return None;
    }
    refused.sort_by_key(|(at, _)| *at);
    let mut refused = refused.into_iter().map(|(_, error)| error);
    let mut first = refused.next()?;
    refused.for_each(|also| first.join(&also));
    Some(first)
}

/// Returns `true` if one launch names two lifetimes of an allocation: one of them has ended, and its place was used
/// again.
fn is_stale_name(pair: &[Wanted<'_>]) -> bool {
    pair[0].is_of(&pair[1]) && pair[0].generation != pair[1].generation
}

impl StreamShared {
    /// Checks that an allocation may be used in this way at the stream's next point.
    #[inline]
    pub(crate) fn judge(
        &self,
        wanted: &Wanted<'_>,
        life: &Life,
        races: bool,
        state: &mut State,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        if wanted.act == Act::Write && wanted.allocation.get().is_read_only() {
            let what = wanted.allocation.get().describe(life);
            return Err(ShareError::ReadOnly { what }.into());
        }
        let checked = match life.freed.now() {
            Some(free) if life.generation == wanted.generation => Err(Fault::after_free(free, wanted.act)),
            _ if life.generation != wanted.generation => {
                return Err(self.stale_name(wanted, life, state, caller));
            }
            _ => life.history.check_use(wanted.act, wanted.part, &state.chain, races),
        };
        checked.map_err(|fault| {
            let (allocation, later) = (wanted.allocation.get(), site(wanted.act, self.id, state.op() + 1, caller));
            self.refuse(state, allocation, life, fault, later)
        })
    }

    /// Returns the error for an access by the name of a lifetime before the present one.
    #[cold]
    pub(crate) fn stale_name(
        &self,
        wanted: &Wanted<'_>,
        life: &Life,
        state: &State,
        caller: &'static Location<'static>,
    ) -> Error {
        let later = site(wanted.act, self.id, state.op() + 1, caller);
        wanted.allocation.get().stale_name(life, wanted.generation, side(wanted.allocation.get().device, later)).into()
    }

    /// Finds the allocations of all declared accesses, for the operation at `later`, and sorts them in the order of
    /// their locks. Returns the address of each access, and the error of the first access that could not be found.
    #[inline]
    pub(crate) fn want_all<'b>(
        &self,
        accesses: &'b impl Access,
        wanted: &mut Few<Wanted<'b>>,
        garbage: &Garbage,
        later: Site,
    ) -> (Few<u64>, Option<Error>) {
        let (mut addresses, mut failed) = (Few::new(), None);
        accesses.declare(&mut |declared| {
            if failed.is_none() {
                let later = Site { act: declared.act, ..later };
                failed = self.want(&declared, &mut addresses, wanted, garbage, later).err();
            }
        });
        wanted.sort_by_key(|wanted| (wanted.allocation.get().key(), wanted.part));
        (addresses, failed)
    }

    /// Finds the allocation of one declared access.
    fn want<'b>(
        &self,
        declared: &Declared<'b>,
        addresses: &mut Few<u64>,
        wanted: &mut Few<Wanted<'b>>,
        garbage: &Garbage,
        later: Site,
    ) -> Result<()> {
        let at = addresses.len();
        let Some(part) = declared.part else {
            addresses.push(0);
            return Ok(());
        };
        let (allocation, generation, address) = match declared.source {
            Source::Empty | Source::Named(None) => {
                addresses.push(0);
                return Ok(());
            }
            Source::Nothing => return Err(Invalid::Stale.into()),
            Source::Owned(owned) => (Held::Borrowed(&owned.allocation), owned.generation, owned.address),
            Source::Named(Some(named)) if named.device != self.context.number => {
                let owner = peers::find(named.device).ok_or(Invalid::Stale)?;
                let allocation = owner.resolve(named);
                garbage.put(owner);
                (Held::Found(allocation?), named.generation, named.address)
            }
            Source::Named(Some(named)) => (Held::Found(self.context.resolve(named)?), named.generation, named.address),
            Source::Node(name) => {
                if name.device != self.context.number {
                    return Err(Invalid::OtherDevice { what: "an alloc node".into(), with: self.titled() }.into());
                }
                let allocation = self.context.graphs.resolve(name, later)?;
                let life = allocation.life();
                let (generation, was_launched) = (life.generation, life.was_launched());
                drop(life);
                if !was_launched {
                    return Err(self.context.graphs.not_live((name.graph, name.alloc), later));
                }
                (Held::Found(allocation), generation, name.address)
            }
        };
        if let Origin::Captured(_) = allocation.get().origin {
            return Err(not_launched(allocation.get(), later));
        }
        addresses.push(address + part.from());
        wanted.push(Wanted { allocation, generation, act: declared.act, part, at });
        Ok(())
    }
}

impl Context {
    /// Returns the allocation that a view of this device names.
    #[cold]
    pub(crate) fn resolve(&self, named: Named) -> Result<Arc<Allocation>> {
        let Some(id) = named.pool else {
            let import = self.share.find_import(named.id);
            return import.map_or_else(|| self.graphs.find(named.id, named.generation), Ok);
        };
        let pools = self.pools();
        let pool = pools.iter().find(|pool| pool.id == id);
        pool.and_then(|pool| pool.resolve(named.index)).ok_or_else(|| Invalid::Stale.into())
    }
}
