//! The chains of a device by index, with those of other devices that use its memory, and the drivers that can be
//! queried about them.
//!
//! Knows progress and drivers, but no memory.

use std::sync::Arc;

use millpond_core::ids::{ChainIndex, Point, Seq};
use millpond_core::order::{ChainIndices, Completed, Numbers};
use millpond_core::pool::Frontier;
use millpond_driver::locks::{ReadGuard, RwLock, WriteGuard, read, write};
use millpond_driver::{Driver, RawStream};

use crate::clock::device_event::CountedDriver;
use crate::clock::progress::{EndThen, Progress};
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// A chain, and the driver that can be queried about it.
#[derive(Clone, Debug)]
pub(crate) enum Listed {
    /// A chain of the device, or of another device, whose driver is `foreign`.
    Chain { progress: Arc<Progress>, foreign: Option<Arc<CountedDriver>> },
    /// A chain of another device that ended there and has completed. No driver is queried.
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

    /// Returns the end of all work so far, or `None` for a chain that has ended.
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

    /// Returns `true` if `seq` is known to have completed, without a query of the device.
    fn has_passed(&self, seq: Seq) -> bool {
        match self {
            Listed::Over(end) => seq <= *end,
            Listed::Chain { progress, .. } => progress.has_passed(seq),
        }
    }

    fn is_foreign(&self) -> bool {
        matches!(self, Listed::Chain { foreign: Some(_), .. })
    }

    /// Returns the end of another device's chain if it is closed and all of it has completed.
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
    /// The indices of the device's own chains.
    indices: ChainIndices,
    by_chain: Vec<Option<Listed>>,
    /// The number of chains of other devices, and the time of the next search for completed ones.
    foreign: usize,
    sweep: Sweep,
}

impl Table {
    fn get(&self, chain: ChainIndex) -> Option<&Listed> {
        self.by_chain.get(chain.index())?.as_ref()
    }

    /// Gives a chain this index from now on. Returns the former one, to be dropped after the lock is released.
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

    /// Removes other devices' chains that have completed. They must be dropped after the lock is released.
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

/// The chains of a device, locked to give out indices and to take them back.
pub(crate) struct Opening<'a> {
    table: WriteGuard<'a, Table>,
    /// The chains that had the indices before. Dropped after the lock is released, because one may be the last
    /// reference to another device.
    former: Vec<Listed>,
}

impl Opening<'_> {
    /// Returns the indices of the device's own chains.
    pub(crate) fn indices(&mut self) -> &mut ChainIndices {
        &mut self.table.indices
    }

    /// Records a chain that begins with the index `chain`.
    pub(crate) fn list(&mut self, chain: ChainIndex, progress: Arc<Progress>) {
        let former = self.table.list(chain, Listed::Chain { progress, foreign: None });
        self.former.extend(former);
    }
}

impl Chains {
    /// Makes an empty list that takes its indices from `numbers`.
    pub(crate) fn new(numbers: &Numbers) -> Self {
        Self { table: RwLock::new(Table { indices: ChainIndices::beside(numbers), ..Table::default() }) }
    }

    /// Locks the chains, to begin chains of the device or to end them.
    pub(crate) fn open(&self) -> Opening<'_> {
        Opening { table: self.write(), former: Vec::new() }
    }

    /// Returns the position after which the chains with this index began, or `None` if the index is of another device.
    pub(crate) fn begin(&self, chain: ChainIndex) -> Option<Seq> {
        self.read().indices.begin(chain)
    }

    fn read(&self) -> ReadGuard<'_, Table> {
        read(&self.table)
    }

    fn write(&self) -> WriteGuard<'_, Table> {
        write(&self.table)
    }

    /// Calls `act` for each chain of a frontier that is not known to be past its point, and stops at the first error.
    /// If a point's chain has ended, another chain may have its number now; that chain begins after the point.
    pub(crate) fn each(
        &self,
        frontier: &Frontier,
        mut act: impl FnMut(&Listed) -> millpond_driver::Result<()>,
    ) -> millpond_driver::Result<()> {
        let left = frontier.points().filter_map(|point| Some((point.seq, self.read().get(point.chain)?.clone())));
        left.filter(|(seq, chain)| !chain.has_passed(*seq)).try_for_each(|(_, chain)| act(&chain))
    }

    /// Returns the present end of a point's chain, the point if the device refuses to record the end, or `None` if the
    /// device is known to be past the point.
    pub(crate) fn end_now(&self, point: Point, driver: &Arc<CountedDriver>) -> Option<Result<EndThen, Point>> {
        let chain = self.read().get(point.chain)?.clone();
        let end = if chain.has_passed(point.seq) { None } else { chain.end_now(driver) };
        end.map(|end| end.map_err(|_| point))
    }

    /// Records a chain of another device that uses memory of this one.
    pub(crate) fn insert_foreign(&self, chain: ChainIndex, progress: &Arc<Progress>, driver: &Arc<CountedDriver>) {
        if self.find(chain).is_some_and(|known| Arc::ptr_eq(&known, progress)) {
            return;
        }
        let listed = Listed::Chain { progress: Arc::clone(progress), foreign: Some(Arc::clone(driver)) };
        let mut table = self.write();
        let former = table.list(chain, listed);
        let gone = if table.sweep.is_due(table.foreign) { table.sweep() } else { Vec::new() };
        drop(table);
        // After the lock is released, because one may be the last reference to another device.
        drop((former, gone));
    }

    /// Drops the references to other devices whose chains have completed, so that a device does not keep alive the
    /// devices that used its memory.
    pub(crate) fn sweep(&self) {
        if self.read().foreign > 0 {
            let gone = self.write().sweep();
            drop(gone);
        }
    }

    /// Returns the progress of the chain with the index `chain`.
    pub(crate) fn find(&self, chain: ChainIndex) -> Option<Arc<Progress>> {
        match self.read().get(chain)? {
            Listed::Chain { progress, .. } => Some(Arc::clone(progress)),
            Listed::Over(_) => None,
        }
    }

    /// Returns a value that queries the device for completed points.
    pub(crate) fn poll<'a>(&'a self, driver: &'a dyn Driver) -> Poll<'a> {
        Poll { table: self.read(), driver }
    }
}

/// Queries the device for completed points.
pub(crate) struct Poll<'a> {
    table: ReadGuard<'a, Table>,
    driver: &'a dyn Driver,
}

impl Poll<'_> {
    /// Returns `true` if all known work of other devices has completed.
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
    /// Returns the present end of a point's chain, or `None` if the chain is known to be past the point or the device
    /// refuses to record the end.
    pub(crate) fn end_now(&self, point: Point, driver: &Arc<CountedDriver>) -> Option<EndThen> {
        let chain = self.table.get(point.chain).filter(|chain| !chain.has_passed(point.seq))?;
        chain.end_now(driver)?.ok()
    }

    /// Returns the present ends of the chains that have not completed up to them; of other devices' chains as well,
    /// because their work may use the device's memory.
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

    /// A graph's lane has the number of a stream that is closed and completed, and was never launched.
    #[test]
    fn a_point_before_the_chain_that_has_its_number_is_nobodys() {
        let (chains, chain) = (Chains::default(), ChainIndex(3));
        chains.open().list(chain, std::sync::Arc::new(Progress::of_launches(7)));
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
