//! How far the device is on each chain: the relation *completed*.
//!
//! Knows streams of the driver and positions; no allocations. What is found here may steer where memory is placed; it
//! never reaches a verdict. Asking is lock-free on the stream: its last submitted position is published after the work
//! of that position has gone to the driver, so a mark made after reading the position covers it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use millpond_core::ids::{Point, Seq, Slot};
use millpond_core::order::Completed;
use millpond_core::pool::Frontier;
use millpond_driver::{Driver, DriverError, RawMark, RawStream};
use smallvec::SmallVec;

use crate::context::{CountedDriver, lock};
use crate::event::Mark;
use crate::sweep::Sweep;

/// How far one chain is.
#[derive(Debug)]
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct Progress {
    queue: Queue,
    /// The last position whose work the driver has.
    submitted: AtomicU64,
    /// The last position known to be over.
    completed: AtomicU64,
    /// The end of a closed stream.
    end: OnceLock<Arc<Mark>>,
    /// Whether the program submits to the stream as well.
    is_shared: AtomicBool,
    /// A mark made ahead, and the position that it covers: no other can be had while foreign code captures the stream,
    /// or where it is another thread's default stream.
    ahead: Mutex<Option<(Mark, Seq)>>,
    /// Whether some of its work is where the stream's marks do not cover it.
    has_strays: AtomicBool,
    strays: Mutex<Vec<Stray>>,
}

/// Work of a launch that the driver took on another stream of its own, and would not put the launching stream after.
#[derive(Debug)]
struct Stray {
    /// The launch.
    seq: Seq,
    /// The end of that work; where none could be had nobody ever knows.
    end: Option<Arc<Mark>>,
}

/// Where the work of a chain is.
#[derive(Debug)]
enum Queue {
    /// In a stream of the driver.
    Stream(RawStream),
    /// In launches of a graph: the end of the last one.
    Launches(Mutex<Option<LaunchEnd>>),
}

/// The end of a launch.
#[derive(Clone, Debug)]
pub(crate) enum LaunchEnd {
    Marked(Arc<Mark>),
    /// No mark could be had: whatever that stream has by the time of the question.
    On(Arc<Progress>),
}

impl LaunchEnd {
    /// By its mark, or else by the stream of the launch.
    pub(crate) fn of(mark: Option<&Arc<Mark>>, stream: &Arc<Progress>) -> Self {
        mark.map_or_else(|| Self::On(Arc::clone(stream)), |mark| Self::Marked(Arc::clone(mark)))
    }
}

impl Progress {
    pub(crate) fn new(raw: RawStream, seq: Seq) -> Self {
        Self::with_queue(Queue::Stream(raw), seq)
    }

    /// A chain whose points are nodes of a graph's launches: over when the launch is.
    pub(crate) fn of_launches(seq: Seq) -> Self {
        Self::with_queue(Queue::Launches(Mutex::default()), seq)
    }

    fn with_queue(queue: Queue, seq: Seq) -> Self {
        let (submitted, completed) = (AtomicU64::new(seq), AtomicU64::new(seq));
        Self {
            queue,
            submitted,
            completed,
            end: OnceLock::new(),
            is_shared: AtomicBool::new(false),
            ahead: Mutex::default(),
            has_strays: AtomicBool::new(false),
            strays: Mutex::default(),
        }
    }

    /// The launch that is being made has work with this end, which the stream does not come after.
    #[cold]
    pub(crate) fn stray(&self, end: Option<Arc<Mark>>) {
        let seq = self.submitted.load(Ordering::Acquire) + 1;
        lock(&self.strays).push(Stray { seq, end });
        self.has_strays.store(true, Ordering::Release);
    }

    /// The ends of stray work up to `seq`, to be waited for as well. A device that marks none is lost.
    pub(crate) fn strays(&self, seq: Seq) -> SmallVec<[Option<Arc<Mark>>; 1]> {
        match self.has_strays.load(Ordering::Acquire) {
            true => lock(&self.strays).iter().filter(|it| it.seq <= seq).map(|it| it.end.clone()).collect(),
            false => SmallVec::new(),
        }
    }

    /// The last position before stray work, as far as is known.
    fn reach(&self) -> Seq {
        match self.has_strays.load(Ordering::Acquire) {
            true => lock(&self.strays).iter().map(|it| it.seq - 1).min().unwrap_or(Seq::MAX),
            false => Seq::MAX,
        }
    }

    /// As [`reach`](Self::reach), once the device was asked.
    fn reach_now(&self, driver: &dyn Driver) -> Seq {
        if self.has_strays.load(Ordering::Acquire) {
            let is_over = |it: &mut Stray| it.end.as_ref().is_some_and(|end| driver.peek(end.raw) == Ok(true));
            let over: Vec<Stray> = lock(&self.strays).extract_if(.., is_over).collect();
            drop(over);
        }
        self.reach()
    }

    /// The driver has all work up to `seq`. Called by the stream's owner only, under its lock.
    #[inline]
    pub(crate) fn publish(&self, seq: Seq) {
        self.submitted.store(seq, Ordering::Release);
    }

    /// A launch was made whose end is `end`, with points up to `seq`. Launches come one after the other.
    pub(crate) fn launched(&self, end: LaunchEnd, seq: Seq) {
        if let Queue::Launches(last) = &self.queue {
            *lock(last) = Some(end);
        }
        self.publish(seq);
    }

    /// Whether its points are nodes of launches, so that their numbers say nothing of a stream's operations.
    pub(crate) fn is_of_launches(&self) -> bool {
        matches!(self.queue, Queue::Launches(_))
    }

    /// The last point whose work the driver has, given the chain's slot.
    pub(crate) fn last(&self, slot: Slot) -> Point {
        Point { slot, seq: self.submitted.load(Ordering::Acquire) }
    }

    /// Everything up to `seq` is over.
    pub(crate) fn complete(&self, seq: Seq) {
        self.completed.fetch_max(seq.min(self.reach()), Ordering::AcqRel);
    }

    /// The stream is closed; `end` is its last mark.
    pub(crate) fn close(&self, end: Arc<Mark>) {
        // A second close never happens: the stream's state refuses it.
        let _ = self.end.set(end);
    }

    /// The end of a closed stream, once it is marked.
    pub(crate) fn end(&self) -> Option<Arc<Mark>> {
        self.end.get().cloned()
    }

    /// Does something with a mark after all work of the chain so far.
    pub(crate) fn with_mark<R>(
        &self,
        driver: &dyn Driver,
        act: impl FnOnce(RawMark) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        self.with_mark_of(driver, |raw| driver.mark(raw), act)
    }

    /// As [`with_mark`](Self::with_mark), with a mark that `mark` makes.
    fn with_mark_of<R>(
        &self,
        driver: &dyn Driver,
        mark: impl FnOnce(RawStream) -> millpond_driver::Result<RawMark>,
        act: impl FnOnce(RawMark) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        if let Some(end) = self.end.get() {
            return act(end.raw);
        }
        let raw = match &self.queue {
            Queue::Stream(raw) => *raw,
            Queue::Launches(last) => {
                let last = lock(last).clone();
                // Without a launch there is no work: nobody has a point of it to ask for.
                return match last {
                    None => Err(no_launch()),
                    Some(LaunchEnd::Marked(end)) => act(end.raw),
                    Some(LaunchEnd::On(stream)) => stream.with_mark_of(driver, mark, act),
                };
            }
        };
        match (mark(raw), self.end.get()) {
            (Ok(mark), _) => {
                let done = act(mark);
                driver.forget(mark);
                done
            }
            // It was closed this moment.
            (Err(_), Some(end)) => act(end.raw),
            (Err(error), None) => Err(error),
        }
    }

    /// Whether `seq` is over, asking the device where it is not known to be. An error means no.
    pub(crate) fn is_over(&self, seq: Seq, driver: &dyn Driver) -> bool {
        if self.completed.load(Ordering::Acquire) >= seq {
            return true;
        }
        let submitted = self.submitted.load(Ordering::Acquire);
        if submitted < seq {
            return false;
        }
        match self.with_mark_of(driver, |raw| driver.mark_apart(raw), |mark| driver.peek(mark)) {
            Ok(true) => {
                let reach = self.reach_now(driver);
                self.complete(submitted);
                seq <= reach
            }
            Ok(false) => false,
            Err(_) => self.is_over_ahead(seq, driver),
        }
    }

    /// The program submits to the stream as well from now on.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Whether all its work is over. Of a shared stream's no position says that.
    pub(crate) fn is_idle(&self, driver: &dyn Driver) -> bool {
        let submitted = self.submitted.load(Ordering::Acquire);
        match self.is_shared.load(Ordering::Acquire) {
            true => {
                let over = self.with_mark_of(driver, |raw| driver.mark_apart(raw), |mark| driver.peek(mark));
                over == Ok(true) && self.reach_now(driver) == Seq::MAX
            }
            false => self.is_over(submitted, driver),
        }
    }

    /// Marks the stream, to be asked where it cannot be marked.
    pub(crate) fn mark_ahead(&self, driver: &Arc<CountedDriver>) {
        let Queue::Stream(raw) = self.queue else { return };
        let submitted = self.submitted.load(Ordering::Acquire);
        // Where it cannot be marked now it keeps the mark that it has.
        if let Ok(mark) = driver.mark_apart(raw) {
            let former = lock(&self.ahead).replace((Mark::new(mark, driver), submitted));
            drop(former);
        }
    }

    /// As [`is_over`](Self::is_over), by the mark made ahead.
    #[cold]
    fn is_over_ahead(&self, seq: Seq, driver: &dyn Driver) -> bool {
        let mut ahead = lock(&self.ahead);
        let Some((mark, covered)) = &*ahead else { return false };
        let covered = *covered;
        if driver.peek(mark.raw) != Ok(true) {
            return false;
        }
        let mark = ahead.take();
        drop(ahead);
        drop(mark);
        let reach = self.reach_now(driver);
        self.complete(covered);
        covered.min(reach) >= seq
    }
}

/// What nobody can wait for.
#[cold]
pub(crate) fn no_end() -> DriverError {
    DriverError::Failed { call: "mark", reason: "the device took a launch in part and marks no end of it".into() }
}

#[cold]
fn no_launch() -> DriverError {
    DriverError::Failed { call: "mark", reason: "the graph was not launched".into() }
}

/// A chain, and who can be asked about it.
#[derive(Clone, Debug)]
pub(crate) enum Listed {
    /// The device, or the driver of another device whose chain it is.
    Chain { progress: Arc<Progress>, abroad: Option<Arc<CountedDriver>> },
    /// Nobody need be: another device's chain that ended there and is over.
    Over(Seq),
}

impl Listed {
    /// Makes a stream of the device wait for all work of the chain so far.
    pub(crate) fn wait(&self, driver: &dyn Driver, raw: RawStream) -> millpond_driver::Result<()> {
        match self {
            Listed::Over(_) => Ok(()),
            Listed::Chain { progress, abroad: None } => progress.with_mark(driver, |mark| driver.wait(raw, mark)),
            Listed::Chain { progress, abroad: Some(their) } => {
                progress.with_mark(&**their, |mark| driver.wait_abroad(raw, &their.fence(mark)?))
            }
        }
    }

    /// Waits on the calling thread until all work of the chain so far is over.
    pub(crate) fn block(&self, driver: &dyn Driver) -> millpond_driver::Result<()> {
        let Listed::Chain { progress, abroad } = self else { return Ok(()) };
        let driver = abroad.as_ref().map_or(driver, |their| &**their);
        let submitted = progress.submitted.load(Ordering::Acquire);
        progress.with_mark(driver, |mark| driver.block_on(mark))?;
        for end in progress.strays(submitted) {
            end.map_or_else(|| Err(no_end()), |end| driver.block_on(end.raw))?;
        }
        // Whoever waited for it need not ask: a device that blocks may refuse to answer.
        progress.reach_now(driver);
        progress.complete(submitted);
        Ok(())
    }

    fn is_over(&self, seq: Seq, driver: &dyn Driver) -> bool {
        match self {
            Listed::Over(end) => seq <= *end,
            Listed::Chain { progress, abroad } => {
                progress.is_over(seq, abroad.as_ref().map_or(driver, |their| &**their))
            }
        }
    }

    /// Whether `seq` is known to be over, without asking the device.
    fn has_passed(&self, seq: Seq) -> bool {
        match self {
            Listed::Over(end) => seq <= *end,
            Listed::Chain { progress, .. } => seq <= progress.completed.load(Ordering::Acquire),
        }
    }

    fn is_abroad(&self) -> bool {
        matches!(self, Listed::Chain { abroad: Some(_), .. })
    }

    /// Where it is another device's and closed, and all of it is over: the end.
    fn is_over_for_good(&self) -> Option<Seq> {
        let Listed::Chain { progress, abroad: Some(their) } = self else { return None };
        let end = progress.submitted.load(Ordering::Acquire);
        (progress.end.get().is_some() && progress.is_over(end, &**their)).then_some(end)
    }
}

/// The chains of a device, and those of other devices that use its memory, by slot.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_slot: Vec<Option<Listed>>,
    /// How many are of other devices, and when those are looked for that are over.
    abroad: usize,
    sweep: Sweep,
}

impl Table {
    fn get(&self, slot: Slot) -> Option<&Listed> {
        self.by_slot.get(slot.index())?.as_ref()
    }

    /// A chain has this slot from now on: the former one, to be dropped behind the lock.
    #[must_use]
    fn list(&mut self, slot: Slot, listed: Listed) -> Option<Listed> {
        if self.by_slot.len() <= slot.index() {
            self.by_slot.resize(slot.index() + 1, None);
        }
        self.abroad += usize::from(listed.is_abroad());
        let former = self.by_slot[slot.index()].replace(listed);
        self.abroad -= usize::from(former.as_ref().is_some_and(Listed::is_abroad));
        former
    }

    /// Takes other devices' chains out that are over: to be dropped behind the lock.
    #[must_use]
    fn sweep(&mut self) -> Vec<Listed> {
        let mut gone = Vec::new();
        for listed in self.by_slot.iter_mut().flatten() {
            if let Some(end) = listed.is_over_for_good() {
                gone.push(std::mem::replace(listed, Listed::Over(end)));
            }
        }
        self.abroad -= gone.len();
        self.sweep.done(self.abroad);
        gone
    }
}

impl Chains {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on each chain of a frontier that is not known to have passed it, stopping at the first refusal. A point
    /// whose chain has ended may have a number that another chain has by now: that one begins after it.
    pub(crate) fn each(
        &self,
        frontier: &Frontier,
        mut act: impl FnMut(&Listed) -> millpond_driver::Result<()>,
    ) -> millpond_driver::Result<()> {
        let left = frontier.points().filter_map(|point| Some((point.seq, self.read().get(point.slot)?.clone())));
        left.filter(|(seq, chain)| !chain.has_passed(*seq)).try_for_each(|(_, chain)| act(&chain))
    }

    /// A chain begins in `slot`.
    pub(crate) fn insert(&self, slot: Slot, progress: Arc<Progress>) {
        let former = self.write().list(slot, Listed::Chain { progress, abroad: None });
        // Behind the lock: it may be the last to know another device.
        drop(former);
    }

    /// A chain of another device uses memory of this one.
    pub(crate) fn insert_abroad(&self, slot: Slot, progress: &Arc<Progress>, driver: &Arc<CountedDriver>) {
        if self.find(slot).is_some_and(|known| Arc::ptr_eq(&known, progress)) {
            return;
        }
        let listed = Listed::Chain { progress: Arc::clone(progress), abroad: Some(Arc::clone(driver)) };
        let mut table = self.write();
        let former = table.list(slot, listed);
        let gone = if table.sweep.is_due(table.abroad) { table.sweep() } else { Vec::new() };
        drop(table);
        // As above.
        drop((former, gone));
    }

    /// Lets other devices go whose chains are over: a device that is gone is not kept by those that it visited.
    pub(crate) fn sweep(&self) {
        if self.read().abroad > 0 {
            let gone = self.write().sweep();
            drop(gone);
        }
    }

    /// The progress of the chain in `slot`.
    pub(crate) fn find(&self, slot: Slot) -> Option<Arc<Progress>> {
        match self.read().get(slot)? {
            Listed::Chain { progress, .. } => Some(Arc::clone(progress)),
            Listed::Over(_) => None,
        }
    }

    /// Somebody to ask what is over.
    pub(crate) fn poll<'a>(&'a self, driver: &'a dyn Driver) -> Poll<'a> {
        Poll { table: self.read(), driver }
    }
}

/// Asks the device what is over.
pub(crate) struct Poll<'a> {
    table: RwLockReadGuard<'a, Table>,
    driver: &'a dyn Driver,
}

impl Poll<'_> {
    /// Whether all work of other devices is over that is known here.
    pub(crate) fn is_over_abroad(&self) -> bool {
        self.table.by_slot.iter().flatten().all(|chain| match chain {
            Listed::Chain { progress, abroad: Some(_) } => chain.is_over(progress.last(Slot(0)).seq, self.driver),
            Listed::Chain { abroad: None, .. } | Listed::Over(_) => true,
        })
    }
}

impl Completed for Poll<'_> {
    fn is_over(&self, point: Point) -> bool {
        self.table.get(point.slot).is_some_and(|chain| chain.is_over(point.seq, self.driver))
    }
}

/// What is known to be over without asking the device: what the host was told.
pub(crate) struct Told<'a>(pub(crate) &'a millpond_core::order::Base);

impl Completed for Told<'_> {
    fn is_over(&self, point: Point) -> bool {
        self.0.covers(point)
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::ids::{Point, Slot};
    use millpond_core::pool::Frontier;

    use super::{Chains, Progress};

    /// A graph's lane has the number of a stream that is closed and over, and was never launched.
    #[test]
    fn a_point_before_the_chain_that_has_its_number_is_nobodys() {
        let (chains, slot) = (Chains::default(), Slot(3));
        chains.insert(slot, std::sync::Arc::new(Progress::of_launches(7)));
        let asked = |seq| {
            let mut count = 0;
            let counts = |_: &_| {
                count += 1;
                Ok(())
            };
            chains.each(&Frontier::of([Point { slot, seq }]), counts).expect("nobody refuses");
            count
        };
        assert_eq!((asked(6), asked(7), asked(8)), (0, 0, 1));
    }
}
