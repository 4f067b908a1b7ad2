//! The chains of a device by index, with those of other devices that use its memory: who can be asked how far each is.
//!
//! Knows progress and drivers; no memory.

use std::sync::Arc;

use millpond_core::ids::{ChainIndex, Point, Seq};
use millpond_core::order::Completed;
use millpond_core::pool::Frontier;
use millpond_driver::locks::{ReadGuard, RwLock, WriteGuard, read, write};
use millpond_driver::{Driver, RawStream};

use crate::clock::device_event::CountedDriver;
use crate::clock::progress::{EndThen, Progress};
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// A chain, and who can be asked about it.
#[derive(Clone, Debug)]
pub(crate) enum Listed {
    /// The device, or the driver of another device whose chain it is.
    Chain { progress: Arc<Progress>, foreign: Option<Arc<CountedDriver>> },
    /// None: another device's chain that ended there and has completed.
    Over(Seq),
}

impl Listed {
    /// Makes a stream of the device wait for all work of the chain so far.
    pub(crate) fn wait(&self, driver: &dyn Driver, raw: RawStream) -> millpond_driver::Result<()> {
        match self {
            Listed::Over(_) => Ok(()),
            Listed::Chain { progress, foreign: None } => progress.with_event(driver, |event| driver.wait(raw, event)),
            Listed::Chain { progress, foreign: Some(their) } => {
                progress.with_event(&**their, |event| driver.wait_foreign(raw, &their.fence(event)?))
            }
        }
    }

    /// Waits on the calling thread until all work of the chain so far has completed.
    pub(crate) fn block(&self, driver: &dyn Driver) -> millpond_driver::Result<()> {
        match self {
            Listed::Over(_) => Ok(()),
            Listed::Chain { progress, foreign } => progress.block(foreign.as_ref().map_or(driver, |their| &**their)),
        }
    }

    /// The end of all work so far; none of a chain that has ended.
    fn end_now(&self, driver: &Arc<CountedDriver>) -> Option<millpond_driver::Result<EndThen>> {
        let Listed::Chain { progress, foreign } = self else { return None };
        Some(progress.end_now(foreign.as_ref().unwrap_or(driver)))
    }

    fn is_over(&self, seq: Seq, driver: &dyn Driver) -> bool {
        match self {
            Listed::Over(end) => seq <= *end,
            Listed::Chain { progress, foreign } => {
                progress.is_over(seq, foreign.as_ref().map_or(driver, |their| &**their))
            }
        }
    }

    /// Whether `seq` is known to have completed, without asking the device.
    fn has_passed(&self, seq: Seq) -> bool {
        match self {
            Listed::Over(end) => seq <= *end,
            Listed::Chain { progress, .. } => progress.has_passed(seq),
        }
    }

    fn is_foreign(&self) -> bool {
        matches!(self, Listed::Chain { foreign: Some(_), .. })
    }

    /// Where it is another device's and closed, and all of it has completed: the end.
    fn is_over_for_good(&self) -> Option<Seq> {
        let Listed::Chain { progress, foreign: Some(their) } = self else { return None };
        progress.end_if_over(&**their)
    }
}

/// The chains of a device, and those of other devices that use its memory, by index.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    table: RwLock<ranks::Chains, Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_chain: Vec<Option<Listed>>,
    /// How many are of other devices, and when those are looked for that have completed.
    foreign: usize,
    sweep: Sweep,
}

impl Table {
    fn get(&self, chain: ChainIndex) -> Option<&Listed> {
        self.by_chain.get(chain.index())?.as_ref()
    }

    /// A chain has this index from now on: the former one, to be dropped behind the lock.
    #[must_use]
    fn list(&mut self, chain: ChainIndex, listed: Listed) -> Option<Listed> {
        if self.by_chain.len() <= chain.index() {
            self.by_chain.resize(chain.index() + 1, None);
        }
        self.foreign += usize::from(listed.is_foreign());
        let former = self.by_chain[chain.index()].replace(listed);
        self.foreign -= usize::from(former.as_ref().is_some_and(Listed::is_foreign));
        former
    }

    /// Takes other devices' chains out that have completed: to be dropped behind the lock.
    #[must_use]
    fn sweep(&mut self) -> Vec<Listed> {
        let mut gone = Vec::new();
        for listed in self.by_chain.iter_mut().flatten() {
            if let Some(end) = listed.is_over_for_good() {
                gone.push(std::mem::replace(listed, Listed::Over(end)));
            }
        }
        self.foreign -= gone.len();
        self.sweep.done(self.foreign);
        gone
    }
}

impl Chains {
    fn read(&self) -> ReadGuard<'_, Table> {
        read(&self.table)
    }

    fn write(&self) -> WriteGuard<'_, Table> {
        write(&self.table)
    }

    /// Acts on each chain of a frontier that is not known to have passed it, stopping at the first refusal. A point
    /// whose chain has ended may have a number that another chain has by now: that one begins after it.
    pub(crate) fn each(
        &self,
        frontier: &Frontier,
        mut act: impl FnMut(&Listed) -> millpond_driver::Result<()>,
    ) -> millpond_driver::Result<()> {
        let left = frontier.points().filter_map(|point| Some((point.seq, self.read().get(point.chain)?.clone())));
        left.filter(|(seq, chain)| !chain.has_passed(*seq)).try_for_each(|(_, chain)| act(&chain))
    }

    /// The end that a point's chain has now; the point where the device refuses to record it, none where the device is
    /// known to be past it.
    pub(crate) fn end_now(&self, point: Point, driver: &Arc<CountedDriver>) -> Option<Result<EndThen, Point>> {
        let chain = self.read().get(point.chain)?.clone();
        let end = if chain.has_passed(point.seq) { None } else { chain.end_now(driver) };
        end.map(|end| end.map_err(|_| point))
    }

    /// A chain begins in `chain`.
    pub(crate) fn insert(&self, chain: ChainIndex, progress: Arc<Progress>) {
        let former = self.write().list(chain, Listed::Chain { progress, foreign: None });
        // Behind the lock: it may be the last to know another device.
        drop(former);
    }

    /// A chain of another device uses memory of this one.
    pub(crate) fn insert_foreign(&self, chain: ChainIndex, progress: &Arc<Progress>, driver: &Arc<CountedDriver>) {
        if self.find(chain).is_some_and(|known| Arc::ptr_eq(&known, progress)) {
            return;
        }
        let listed = Listed::Chain { progress: Arc::clone(progress), foreign: Some(Arc::clone(driver)) };
        let mut table = self.write();
        let former = table.list(chain, listed);
        let gone = if table.sweep.is_due(table.foreign) { table.sweep() } else { Vec::new() };
        drop(table);
        // As above.
        drop((former, gone));
    }

    /// Lets other devices go whose chains have completed: a device that is gone is not kept by those that it visited.
    pub(crate) fn sweep(&self) {
        if self.read().foreign > 0 {
            let gone = self.write().sweep();
            drop(gone);
        }
    }

    /// The progress of the chain in `chain`.
    pub(crate) fn find(&self, chain: ChainIndex) -> Option<Arc<Progress>> {
        match self.read().get(chain)? {
            Listed::Chain { progress, .. } => Some(Arc::clone(progress)),
            Listed::Over(_) => None,
        }
    }

    /// What to ask what has completed.
    pub(crate) fn poll<'a>(&'a self, driver: &'a dyn Driver) -> Poll<'a> {
        Poll { table: self.read(), driver }
    }
}

/// Asks the device what has completed.
pub(crate) struct Poll<'a> {
    table: ReadGuard<'a, Table>,
    driver: &'a dyn Driver,
}

impl Poll<'_> {
    /// Whether all work of other devices has completed that is known here.
    pub(crate) fn is_over_foreign(&self) -> bool {
        self.table.by_chain.iter().flatten().all(|chain| match chain {
            Listed::Chain { progress, foreign: Some(_) } => {
                chain.is_over(progress.last(ChainIndex(0)).seq, self.driver)
            }
            Listed::Chain { foreign: None, .. } | Listed::Over(_) => true,
        })
    }
}

impl Poll<'_> {
    /// The end that a point's chain has now; none where it is known to be past the point, or the device refuses to
    /// record it.
    pub(crate) fn end_now(&self, point: Point, driver: &Arc<CountedDriver>) -> Option<EndThen> {
        let chain = self.table.get(point.chain).filter(|chain| !chain.has_passed(point.seq))?;
        chain.end_now(driver)?.ok()
    }

    /// The ends, as of now, of the chains that have not come so far; of other devices' as well, whose work the device's
    /// memory may be under.
    pub(crate) fn unfinished(&self) -> Vec<Point> {
        let ends = self.table.by_chain.iter().enumerate().filter_map(|(index, chain)| match chain {
            Some(Listed::Chain { progress, .. }) => Some(progress.last(ChainIndex(index as u32))),
            Some(Listed::Over(_)) | None => None,
        });
        ends.filter(|end| !self.is_over(*end)).collect()
    }
}

impl Completed for Poll<'_> {
    fn is_over(&self, point: Point) -> bool {
        self.table.get(point.chain).is_some_and(|chain| chain.is_over(point.seq, self.driver))
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::ids::{ChainIndex, Point};
    use millpond_core::pool::Frontier;

    use super::Chains;
    use crate::clock::progress::Progress;

    /// A graph's lane has the number of a stream that is closed and over, and was never launched.
    #[test]
    fn a_point_before_the_chain_that_has_its_number_is_nobodys() {
        let (chains, chain) = (Chains::default(), ChainIndex(3));
        chains.insert(chain, std::sync::Arc::new(Progress::of_launches(7)));
        let asked = |seq| {
            let mut count = 0;
            let counts = |_: &_| {
                count += 1;
                Ok(())
            };
            chains.each(&Frontier::of([Point { chain, seq }]), counts).expect("it refuses none");
            count
        };
        assert_eq!((asked(6), asked(7), asked(8)), (0, 0, 1));
    }
}
