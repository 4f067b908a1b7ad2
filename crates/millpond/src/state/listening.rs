//! Lifetimes that are lent to other processes: the processes to ask before a check, and the right to end such a
//! lifetime.
//!
//! Depends on lifetimes, and of the processes only on their being asked ([`Importer`]).

use std::sync::Arc;

use millpond_core::check::{Fault, Kind, Place, Use};
use millpond_core::ids::Point;
use millpond_core::order::Knows;

use crate::state::allocation::{Allocation, Life};
use crate::state::lent::Importer;
use crate::state::origin::Origin;
use crate::state::pool::{Heap, PoolShared};

/// The importers whose messages are received before memory is checked: those that hold it. So the same program gets the
/// same verdicts however fast messages are read.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    connections: Vec<Arc<dyn Importer>>,
    is_over: bool,
}

impl Listening {
    /// Returns `true` if messages of importers that hold these lifetimes are still to be received.
    #[inline]
    pub(crate) fn needs<'l>(&mut self, lives: impl Iterator<Item = &'l Life> + Clone) -> bool {
        !self.is_over
            && lives.clone().any(|life| life.lent.as_ref().is_some_and(|lent| !lent.holders.is_empty()))
            && self.collect(lives)
    }

    #[cold]
    fn collect<'l>(&mut self, lives: impl Iterator<Item = &'l Life>) -> bool {
        let holders = lives.filter_map(|life| life.lent.as_ref()).flat_map(|lent| &lent.holders);
        for connection in holders.filter_map(|holder| holder.connection.upgrade()) {
            if !self.connections.iter().any(|known| Arc::ptr_eq(known, &connection)) {
                self.connections.push(connection);
            }
        }
        true
    }

    /// Receives the messages that they have sent so far. Called with no locks held.
    #[cold]
    pub(crate) fn receive(&mut self) {
        self.is_over = true;
        self.connections.drain(..).for_each(|connection| connection.catch_up());
    }

    /// Receives the messages of the importers that hold one allocation.
    #[cold]
    pub(crate) fn of(allocation: &Allocation) {
        let mut listening = Listening::default();
        let life = allocation.life();
        let needed = listening.needs(std::iter::once(&*life));
        drop(life);
        if needed {
            listening.receive();
        }
    }
}

/// Checks that `who` may free a lifetime with its next operation. The owner of lent memory frees last. An importer must
/// come after what it did itself: the exporter's own free comes after the rest.
#[inline]
pub(crate) fn check_free(allocation: &Allocation, life: &Life, who: &impl Knows) -> std::result::Result<(), Fault> {
    match &allocation.origin {
        Origin::Imported(_) => {
            let own = life.history.uses().filter(|known| !is_foreign(known));
            let ends: Box<[Use]> = own.copied().filter(|earlier| !who.covers(earlier.point)).collect();
            match ends.first() {
                Some(earlier) => Err(Fault { ends: ends.clone(), ..Fault::new(Kind::FreeBeforeUse, *earlier) }),
                None => Ok(()),
            }
        }
        _ => match life.lent.as_ref().and_then(|lent| lent.fault()) {
            Some(fault) => Err(fault),
            None => life.history.check_free(who),
        },
    }
}

/// Records that the owner drops a lent lifetime. Returns `true` if it now waits for its importers.
pub(crate) fn park(life: &mut Life) -> bool {
    match &mut life.lent {
        Some(lent) if !lent.is_over() => {
            lent.is_dropped = true;
            true
        }
        _ => false,
    }
}

/// Returns the points of what this process did in a lifetime. What others did has completed.
pub(crate) fn own_points(life: &Life) -> impl Iterator<Item = Point> + '_ {
    let uses = life.history.uses().filter(|known| !is_foreign(known)).map(|known| known.point);
    std::iter::once(life.history.born().point).chain(uses)
}

/// Returns `true` if another process did it.
pub(crate) fn is_foreign(known: &Use) -> bool {
    matches!(known.site.place, Place::Process(_))
}

/// Records that other processes may reach the block from now on. If the pool keeps allocations apart, the block never
/// serves again. A destroyed pool serves no stream, and is dropped with the last free.
pub(crate) fn expose(life: &mut Life, heap: &mut Heap, allocation: &Allocation, pool: &PoolShared) {
    if pool.is_apart && !pool.is_destroyed() {
        heap.exposed.add(allocation.block());
        life.lent.get_or_insert_default().is_exposed = true;
    }
}
