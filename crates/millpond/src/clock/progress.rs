//! The device's progress on each chain: the relation *completed*.
//!
//! Knows streams of the driver and positions, but no allocations. The results may decide where memory is placed; they
//! never affect a verdict. A query takes no lock of the stream: its last submitted position is published after the
//! driver has the work of that position, so an event that is recorded after reading the position covers it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millpond_core::ids::{ChainIndex, Point, Seq};
use millpond_driver::locks::{Mutex, RwLock, lock, read, write};
use millpond_driver::{Driver, DriverError, RawEvent, RawStream};
use smallvec::SmallVec;

use crate::clock::device_event::{CountedDriver, DeviceEvent};
use crate::sync::ranks;

/// The progress of one chain.
#[derive(Debug)]
#[repr(align(128))] // Another stream's progress is in other cache lines.
pub(crate) struct Progress {
    queue: Queue,
    /// The last position whose work was submitted to the driver.
    submitted: AtomicU64,
    /// The last position known to have completed.
    completed: AtomicU64,
    /// The end of a closed stream.
    end: OnceLock<Arc<DeviceEvent>>,
    /// `true` if the program submits to the stream as well.
    is_shared: AtomicBool,
    /// An event that was recorded ahead, and the position that it covers. While foreign code captures the stream, or if
    /// it is another thread's default stream, no other event can be recorded.
    ahead: Mutex<ranks::Table, Option<(DeviceEvent, Seq)>>,
    /// `true` if the stream's events do not cover some of its work.
    has_side_work: AtomicBool,
    side_work: Mutex<ranks::Table, Vec<SideWork>>,
}

/// Work of a launch that the driver submitted to another of its streams, and for which it could not make the launching
/// stream wait.
#[derive(Debug)]
struct SideWork {
    /// The launch.
    seq: Seq,
    /// The end of that work. `None` if it could not be recorded: then its completion is never known.
    end: Option<Arc<DeviceEvent>>,
}

/// The stream or the launches that contain the work of a chain.
#[derive(Debug)]
enum Queue {
    /// A stream of the driver; once it is closed, the reason why no event can be recorded.
    Stream(RwLock<ranks::Table, millpond_driver::Result<RawStream>>),
    /// Launches of a graph: the end of the last one.
    Launches(Mutex<ranks::Table, Option<LaunchEnd>>),
}

/// The end of a launch.
#[derive(Clone, Debug)]
pub(crate) enum LaunchEnd {
    Recorded(Arc<DeviceEvent>),
    /// No event could be recorded. The end is all work that the stream has at the time of the query.
    On(Arc<Progress>),
}

impl LaunchEnd {
    /// Returns the end as its event, or else as the stream of the launch.
    pub(crate) fn of(event: Option<&Arc<DeviceEvent>>, stream: &Arc<Progress>) -> Self {
        event.map_or_else(|| Self::On(Arc::clone(stream)), |event| Self::Recorded(Arc::clone(event)))
    }
}

/// The end that a chain had at some time; later work is not waited for.
#[derive(Debug)]
pub(crate) struct EndThen {
    progress: Arc<Progress>,
    seq: Seq,
    event: Arc<DeviceEvent>,
}

/// The work that a device must still complete.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// The device has completed it, or is lost.
    Nothing,
    Event(Arc<DeviceEvent>),
    /// Work after which the device cannot record an event.
    Unrecorded,
}

impl EndThen {
    /// Returns `true` if the device is past this end, and then records this in the chain; `false` after an error. Side
    /// work does not count: it is queried separately.
    pub(crate) fn settle(&self) -> bool {
        let is_past = self.event.has_passed();
        if is_past {
            self.progress.complete(self.seq);
        }
        is_past
    }

    /// Returns the work that the device must still complete. If there is none, the chain records this.
    pub(crate) fn ahead(&self) -> Ahead {
        let own = Some(Arc::clone(&self.event));
        let events: SmallVec<[_; 1]> = std::iter::once(own).chain(self.progress.side_work(self.seq)).collect();
        let driver = self.event.driver();
        for event in events {
            let Some(event) = event else { return Ahead::Unrecorded };
            match driver.peek(event.raw) {
                Ok(true) => {}
                // A lost device runs nothing any more.
                Err(DriverError::Lost { .. }) => return Ahead::Nothing,
                Ok(false) | Err(_) => return Ahead::Event(event),
            }
        }
        self.progress.reach_now(driver);
        self.progress.complete(self.seq);
        Ahead::Nothing
    }
}

impl Progress {
    pub(crate) fn new(raw: RawStream, seq: Seq) -> Self {
        Self::with_queue(Queue::Stream(RwLock::new(Ok(raw))), seq)
    }

    /// Returns the progress of a chain that reuses the number of another one and whose stream waits for that one's end:
    /// it is as far as the other, and no further.
    pub(crate) fn after(former: &Progress, raw: RawStream, seq: Seq) -> Self {
        let next = Self::new(raw, seq);
        next.completed.store(former.completed.load(Ordering::Acquire), Ordering::Release);
        next
    }

    /// Returns the progress of a chain whose points are nodes of a graph's launches: they have completed when the
    /// launch has.
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
            has_side_work: AtomicBool::new(false),
            side_work: Mutex::default(),
        }
    }

    /// Records that the launch in progress has work with this end, for which the stream does not wait.
    #[cold]
    pub(crate) fn add_side_work(&self, end: Option<Arc<DeviceEvent>>) {
        let seq = self.submitted.load(Ordering::Acquire) + 1;
        lock(&self.side_work).push(SideWork { seq, end });
        self.has_side_work.store(true, Ordering::Release);
    }

    /// Returns the ends of side work up to `seq`, which must be waited for too. A device that records none is lost.
    pub(crate) fn side_work(&self, seq: Seq) -> SmallVec<[Option<Arc<DeviceEvent>>; 1]> {
        match self.has_side_work.load(Ordering::Acquire) {
            true => lock(&self.side_work).iter().filter(|it| it.seq <= seq).map(|it| it.end.clone()).collect(),
            false => SmallVec::new(),
        }
    }

    /// Returns the last position before side work, as far as is known.
    fn reach(&self) -> Seq {
        match self.has_side_work.load(Ordering::Acquire) {
            true => lock(&self.side_work).iter().map(|it| it.seq - 1).min().unwrap_or(Seq::MAX),
            false => Seq::MAX,
        }
    }

    /// As [`reach`](Self::reach), after a query of the device.
    fn reach_now(&self, driver: &dyn Driver) -> Seq {
        if self.has_side_work.load(Ordering::Acquire) {
            let is_over = |it: &mut SideWork| it.end.as_ref().is_some_and(|end| driver.peek(end.raw) == Ok(true));
            let over: Vec<SideWork> = lock(&self.side_work).extract_if(.., is_over).collect();
            drop(over);
        }
        self.reach()
    }

    /// Records that the driver has all work up to `seq`. Only the stream's owner calls it, under its lock.
    #[inline]
    pub(crate) fn publish(&self, seq: Seq) {
        self.submitted.store(seq, Ordering::Release);
    }

    /// Records a launch with the end `end` and points up to `seq`. Launches follow each other.
    pub(crate) fn launched(&self, end: LaunchEnd, seq: Seq) {
        if let Queue::Launches(last) = &self.queue {
            *lock(last) = Some(end);
        }
        self.publish(seq);
    }

    /// Returns `true` if its points are nodes of launches, so that their numbers are not those of a stream's
    /// operations.
    pub(crate) fn is_of_launches(&self) -> bool {
        matches!(self.queue, Queue::Launches(_))
    }

    /// Returns the last point whose work the driver has, given the chain's index.
    pub(crate) fn last(&self, chain: ChainIndex) -> Point {
        Point { chain, seq: self.submitted.load(Ordering::Acquire) }
    }

    /// Records that everything up to `seq` has completed.
    pub(crate) fn complete(&self, seq: Seq) {
        self.completed.fetch_max(seq.min(self.reach()), Ordering::AcqRel);
    }

    /// Called before the driver closes the stream, with its last event or the reason why it has none. Waits for a
    /// thread that records an event in it.
    pub(crate) fn close(&self, end: millpond_driver::Result<Arc<DeviceEvent>>) {
        let Queue::Stream(queue) = &self.queue else { return };
        let mut raw = write(queue);
        *raw = Err(end.map_or_else(
            |error| error,
            |end| {
                // The stream's state refuses a second one, so it never comes.
                let _ = self.end.set(end);
                closed()
            },
        ));
    }

    /// Calls `act` with the driver's stream, which no thread can close during the call.
    ///
    /// # Errors
    /// The error of `act`; the reason why no event can be recorded in a closed stream.
    fn while_open<R>(
        queue: &RwLock<ranks::Table, millpond_driver::Result<RawStream>>,
        act: impl FnOnce(RawStream) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        match &*read(queue) {
            Ok(raw) => act(*raw),
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns the end of a closed stream, once it is recorded.
    pub(crate) fn end(&self) -> Option<Arc<DeviceEvent>> {
        self.end.get().cloned()
    }

    /// Calls `act` with an event after all work of the chain so far.
    pub(crate) fn with_event<R>(
        &self,
        driver: &dyn Driver,
        act: impl FnOnce(RawEvent) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        self.with_event_of(driver, |raw| driver.record(raw), act)
    }

    /// As [`with_event`](Self::with_event), with an event that `record` makes.
    fn with_event_of<R>(
        &self,
        driver: &dyn Driver,
        record: impl FnOnce(RawStream) -> millpond_driver::Result<RawEvent>,
        act: impl FnOnce(RawEvent) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        if let Some(end) = self.end.get() {
            return act(end.raw);
        }
        match &self.queue {
            Queue::Stream(queue) => match (Self::while_open(queue, record), self.end.get()) {
                (Ok(event), _) => {
                    let done = act(event);
                    driver.forget(event);
                    done
                }
                // Another thread just closed it.
                (Err(_), Some(end)) => act(end.raw),
                (Err(error), None) => Err(error),
            },
            Queue::Launches(last) => {
                let last = lock(last).clone();
                // Without a launch there is no work, and nothing queries its points.
                match last {
                    None => Err(no_launch()),
                    Some(LaunchEnd::Recorded(end)) => act(end.raw),
                    Some(LaunchEnd::On(stream)) => stream.with_event_of(driver, record, act),
                }
            }
        }
    }

    /// Returns `true` if `seq` has completed. Queries the device if that is not known; `false` after an error.
    pub(crate) fn is_over(&self, seq: Seq, driver: &dyn Driver) -> bool {
        if self.completed.load(Ordering::Acquire) >= seq {
            return true;
        }
        let submitted = self.submitted.load(Ordering::Acquire);
        if submitted < seq {
            return false;
        }
        match self.with_event_of(driver, |raw| driver.record_apart(raw), |event| driver.peek(event)) {
            Ok(true) => {
                let reach = self.reach_now(driver);
                self.complete(submitted);
                seq <= reach
            }
            Ok(false) => false,
            Err(_) => self.is_over_ahead(seq, driver),
        }
    }

    /// Returns `true` if `seq` is known to have completed, without a query of the device.
    pub(crate) fn has_passed(&self, seq: Seq) -> bool {
        seq <= self.completed.load(Ordering::Acquire)
    }

    /// Waits on the calling thread until all work so far has completed.
    pub(crate) fn block(&self, driver: &dyn Driver) -> millpond_driver::Result<()> {
        let submitted = self.submitted.load(Ordering::Acquire);
        self.with_event(driver, |event| driver.block_on(event))?;
        self.block_on_side_work(submitted, driver)
    }

    /// As [`block`](Self::block), if the stream's own work up to `seq` has completed.
    fn block_on_side_work(&self, seq: Seq, driver: &dyn Driver) -> millpond_driver::Result<()> {
        for end in self.side_work(seq) {
            end.map_or_else(|| Err(no_end()), |end| driver.block_on(end.raw))?;
        }
        // A thread that has waited does not need the query, which a device may refuse although it blocks.
        self.reach_now(driver);
        self.complete(seq);
        Ok(())
    }

    /// Returns the end of all work so far, for a wait at any later time.
    pub(crate) fn end_now(self: &Arc<Self>, driver: &Arc<CountedDriver>) -> millpond_driver::Result<EndThen> {
        let seq = self.submitted.load(Ordering::Acquire);
        Ok(EndThen { progress: Arc::clone(self), seq, event: self.keep_event(driver)? })
    }

    /// Returns an event after all work of the chain so far.
    fn keep_event(&self, driver: &Arc<CountedDriver>) -> millpond_driver::Result<Arc<DeviceEvent>> {
        if let Some(end) = self.end() {
            return Ok(end);
        }
        match &self.queue {
            Queue::Stream(queue) => {
                let event = Self::while_open(queue, |raw| driver.record(raw));
                // If another thread just closed it, it has an end.
                event.map(|event| Arc::new(DeviceEvent::new(event, driver))).or_else(|error| self.end().ok_or(error))
            }
            Queue::Launches(last) => {
                let last = lock(last).clone();
                match last {
                    None => Err(no_launch()),
                    Some(LaunchEnd::Recorded(end)) => Ok(end),
                    Some(LaunchEnd::On(stream)) => stream.keep_event(driver),
                }
            }
        }
    }

    /// Returns the end of the chain if it is closed and all of it has completed.
    pub(crate) fn end_if_over(&self, driver: &dyn Driver) -> Option<Seq> {
        let end = self.submitted.load(Ordering::Acquire);
        (self.end.get().is_some() && self.is_over(end, driver)).then_some(end)
    }

    /// Records that the program submits to the stream as well from now on.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Returns `true` if all its work has completed. For a shared stream no position says that.
    pub(crate) fn is_idle(&self, driver: &dyn Driver) -> bool {
        let submitted = self.submitted.load(Ordering::Acquire);
        match self.is_shared.load(Ordering::Acquire) {
            true => {
                let over = self.with_event_of(driver, |raw| driver.record_apart(raw), |event| driver.peek(event));
                over == Ok(true) && self.reach_now(driver) == Seq::MAX
            }
            false => self.is_over(submitted, driver),
        }
    }

    /// Records an event in the stream, for queries at a time when none can be recorded.
    pub(crate) fn record_ahead(&self, driver: &Arc<CountedDriver>) {
        let Queue::Stream(queue) = &self.queue else { return };
        let submitted = self.submitted.load(Ordering::Acquire);
        // If none can be recorded now, the former event is kept.
        if let Ok(event) = Self::while_open(queue, |raw| driver.record_apart(raw)) {
            let former = lock(&self.ahead).replace((DeviceEvent::new(event, driver), submitted));
            drop(former);
        }
    }

    /// As [`is_over`](Self::is_over), from the event that was recorded ahead.
    #[cold]
    fn is_over_ahead(&self, seq: Seq, driver: &dyn Driver) -> bool {
        let mut ahead = lock(&self.ahead);
        let Some((event, covered)) = &*ahead else { return false };
        let covered = *covered;
        if driver.peek(event.raw) != Ok(true) {
            return false;
        }
        let event = ahead.take();
        drop(ahead);
        drop(event);
        let reach = self.reach_now(driver);
        self.complete(covered);
        covered.min(reach) >= seq
    }
}

/// Returns the error of a wait for work whose end could not be recorded.
#[cold]
pub(crate) fn no_end() -> DriverError {
    DriverError::Failed {
        call: "record",
        reason: "the driver submitted a part of a launch and cannot record its end".into(),
    }
}

/// Returns the error of a closed stream.
#[cold]
pub(crate) fn closed() -> DriverError {
    DriverError::Failed { call: "record", reason: "the stream is closed".into() }
}

#[cold]
fn no_launch() -> DriverError {
    DriverError::Failed { call: "record", reason: "the graph was not launched".into() }
}
