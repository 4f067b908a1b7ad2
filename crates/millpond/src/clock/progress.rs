//! How far the device is on each chain: the relation *completed*.
//!
//! Knows streams of the driver and positions; no allocations. What is found here may steer where memory is placed; it
//! never reaches a verdict. Asking is lock-free on the stream: its last submitted position is published after the work
//! of that position has gone to the driver, so an event recorded after reading the position covers it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millpond_core::ids::{ChainIndex, Point, Seq};
use millpond_driver::locks::{Mutex, RwLock, lock, read, write};
use millpond_driver::{Driver, DriverError, RawEvent, RawStream};
use smallvec::SmallVec;

use crate::clock::device_event::{CountedDriver, DeviceEvent};
use crate::sync::ranks;

/// How far one chain is.
#[derive(Debug)]
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct Progress {
    queue: Queue,
    /// The last position whose work the driver has.
    submitted: AtomicU64,
    /// The last position known to have completed.
    completed: AtomicU64,
    /// The end of a closed stream.
    end: OnceLock<Arc<DeviceEvent>>,
    /// Whether the program submits to the stream as well.
    is_shared: AtomicBool,
    /// An event recorded ahead, and the position that it covers: no other can be had while foreign code captures the
    /// stream, or where it is another thread's default stream.
    ahead: Mutex<ranks::Table, Option<(DeviceEvent, Seq)>>,
    /// Whether some of its work is where the stream's events do not cover it.
    has_side_work: AtomicBool,
    side_work: Mutex<ranks::Table, Vec<SideWork>>,
}

/// Work of a launch that the driver took on another stream of its own, and would not put the launching stream after.
#[derive(Debug)]
struct SideWork {
    /// The launch.
    seq: Seq,
    /// The end of that work; where none could be had that is never known.
    end: Option<Arc<DeviceEvent>>,
}

/// Where the work of a chain is.
#[derive(Debug)]
enum Queue {
    /// In a stream of the driver; once that is closed, why no event can be recorded.
    Stream(RwLock<ranks::Recorded, millpond_driver::Result<RawStream>>),
    /// In launches of a graph: the end of the last one.
    Launches(Mutex<ranks::Table, Option<LaunchEnd>>),
}

/// The end of a launch.
#[derive(Clone, Debug)]
pub(crate) enum LaunchEnd {
    Recorded(Arc<DeviceEvent>),
    /// No event could be recorded: whatever that stream has by the time of the question.
    On(Arc<Progress>),
}

impl LaunchEnd {
    /// By its event, or else by the stream of the launch.
    pub(crate) fn of(event: Option<&Arc<DeviceEvent>>, stream: &Arc<Progress>) -> Self {
        event.map_or_else(|| Self::On(Arc::clone(stream)), |event| Self::Recorded(Arc::clone(event)))
    }
}

/// The end that a chain had at some time; what came after is not waited for.
#[derive(Debug)]
pub(crate) struct EndThen {
    progress: Arc<Progress>,
    seq: Seq,
    event: Arc<DeviceEvent>,
}

/// What a device has still to pass.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// It is past it, or is lost.
    Nothing,
    Event(Arc<DeviceEvent>),
    /// Work after which it cannot record an event.
    Unrecorded,
}

impl EndThen {
    /// Whether the device is past it, which the chain knows then; an error means no. But for side work, which is asked
    /// for by itself.
    pub(crate) fn settle(&self) -> bool {
        let is_past = self.event.has_passed();
        if is_past {
            self.progress.complete(self.seq);
        }
        is_past
    }

    /// What the device has still to pass. Where that is nothing, the chain knows it then.
    pub(crate) fn ahead(&self) -> Ahead {
        let own = Some(Arc::clone(&self.event));
        let events: SmallVec<[_; 1]> = std::iter::once(own).chain(self.progress.side_work(self.seq)).collect();
        let driver = self.event.driver();
        for event in events {
            let Some(event) = event else { return Ahead::Unrecorded };
            match driver.peek(event.raw) {
                Ok(true) => {}
                // It runs nothing any more.
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

    /// A chain on the number of another, whose stream waits for the end of that one: it is as far, and no further.
    pub(crate) fn after(former: &Progress, raw: RawStream, seq: Seq) -> Self {
        let next = Self::new(raw, seq);
        next.completed.store(former.completed.load(Ordering::Acquire), Ordering::Release);
        next
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
            has_side_work: AtomicBool::new(false),
            side_work: Mutex::default(),
        }
    }

    /// The launch that is being made has work with this end, which the stream does not come after.
    #[cold]
    pub(crate) fn add_side_work(&self, end: Option<Arc<DeviceEvent>>) {
        let seq = self.submitted.load(Ordering::Acquire) + 1;
        lock(&self.side_work).push(SideWork { seq, end });
        self.has_side_work.store(true, Ordering::Release);
    }

    /// The ends of side work up to `seq`, to be waited for as well. A device that records none is lost.
    pub(crate) fn side_work(&self, seq: Seq) -> SmallVec<[Option<Arc<DeviceEvent>>; 1]> {
        match self.has_side_work.load(Ordering::Acquire) {
            true => lock(&self.side_work).iter().filter(|it| it.seq <= seq).map(|it| it.end.clone()).collect(),
            false => SmallVec::new(),
        }
    }

    /// The last position before side work, as far as is known.
    fn reach(&self) -> Seq {
        match self.has_side_work.load(Ordering::Acquire) {
            true => lock(&self.side_work).iter().map(|it| it.seq - 1).min().unwrap_or(Seq::MAX),
            false => Seq::MAX,
        }
    }

    /// As [`reach`](Self::reach), once the device was asked.
    fn reach_now(&self, driver: &dyn Driver) -> Seq {
        if self.has_side_work.load(Ordering::Acquire) {
            let is_over = |it: &mut SideWork| it.end.as_ref().is_some_and(|end| driver.peek(end.raw) == Ok(true));
            let over: Vec<SideWork> = lock(&self.side_work).extract_if(.., is_over).collect();
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

    /// The last point whose work the driver has, given the chain's index.
    pub(crate) fn last(&self, chain: ChainIndex) -> Point {
        Point { chain, seq: self.submitted.load(Ordering::Acquire) }
    }

    /// Everything up to `seq` has completed.
    pub(crate) fn complete(&self, seq: Seq) {
        self.completed.fetch_max(seq.min(self.reach()), Ordering::AcqRel);
    }

    /// The driver closes the stream next: its last event, or why it has none. Waits for a thread that records one in
    /// it.
    pub(crate) fn close(&self, end: millpond_driver::Result<Arc<DeviceEvent>>) {
        let Queue::Stream(queue) = &self.queue else { return };
        let mut raw = write(queue);
        *raw = Err(end.map_or_else(
            |error| error,
            |end| {
                // A second one never comes: the stream's state refuses it.
                let _ = self.end.set(end);
                closed()
            },
        ));
    }

    /// Does something with the stream that the driver has, while no thread can close it.
    ///
    /// # Errors
    /// That of `act`; why no event can be recorded in a closed stream.
    fn while_open<R>(
        queue: &RwLock<ranks::Recorded, millpond_driver::Result<RawStream>>,
        act: impl FnOnce(RawStream) -> millpond_driver::Result<R>,
    ) -> millpond_driver::Result<R> {
        match &*read(queue) {
            Ok(raw) => act(*raw),
            Err(error) => Err(error.clone()),
        }
    }

    /// The end of a closed stream, once it is recorded.
    pub(crate) fn end(&self) -> Option<Arc<DeviceEvent>> {
        self.end.get().cloned()
    }

    /// Does something with an event after all work of the chain so far.
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
                // It was closed this moment.
                (Err(_), Some(end)) => act(end.raw),
                (Err(error), None) => Err(error),
            },
            Queue::Launches(last) => {
                let last = lock(last).clone();
                // Without a launch there is no work: no one of its points is asked for.
                match last {
                    None => Err(no_launch()),
                    Some(LaunchEnd::Recorded(end)) => act(end.raw),
                    Some(LaunchEnd::On(stream)) => stream.with_event_of(driver, record, act),
                }
            }
        }
    }

    /// Whether `seq` has completed, asking the device where it is not known to have. An error means no.
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

    /// Whether `seq` is known to have completed, without asking the device.
    pub(crate) fn has_passed(&self, seq: Seq) -> bool {
        seq <= self.completed.load(Ordering::Acquire)
    }

    /// Waits on the calling thread until all work so far has completed.
    pub(crate) fn block(&self, driver: &dyn Driver) -> millpond_driver::Result<()> {
        let submitted = self.submitted.load(Ordering::Acquire);
        self.with_event(driver, |event| driver.block_on(event))?;
        self.block_on_side_work(submitted, driver)
    }

    /// As [`block`](Self::block), where the stream's own work up to `seq` has completed.
    fn block_on_side_work(&self, seq: Seq, driver: &dyn Driver) -> millpond_driver::Result<()> {
        for end in self.side_work(seq) {
            end.map_or_else(|| Err(no_end()), |end| driver.block_on(end.raw))?;
        }
        // Whoever waited for it need not ask: a device that blocks may refuse to answer.
        self.reach_now(driver);
        self.complete(seq);
        Ok(())
    }

    /// The end of all work so far, to be waited for at any later time.
    pub(crate) fn end_now(self: &Arc<Self>, driver: &Arc<CountedDriver>) -> millpond_driver::Result<EndThen> {
        let seq = self.submitted.load(Ordering::Acquire);
        Ok(EndThen { progress: Arc::clone(self), seq, event: self.keep_event(driver)? })
    }

    /// An event after all work of the chain so far.
    fn keep_event(&self, driver: &Arc<CountedDriver>) -> millpond_driver::Result<Arc<DeviceEvent>> {
        if let Some(end) = self.end() {
            return Ok(end);
        }
        match &self.queue {
            Queue::Stream(queue) => {
                let event = Self::while_open(queue, |raw| driver.record(raw));
                // Where it was closed this moment it has an end.
                event.map(|event| Arc::new(DeviceEvent::new(event, driver))).or_else(|error| self.end().ok_or(error))
            }
            Queue::Launches(last) => match lock(last).clone() {
                None => Err(no_launch()),
                Some(LaunchEnd::Recorded(end)) => Ok(end),
                Some(LaunchEnd::On(stream)) => stream.keep_event(driver),
            },
        }
    }

    /// Where the chain is closed and all of it has completed: its end.
    pub(crate) fn end_if_over(&self, driver: &dyn Driver) -> Option<Seq> {
        let end = self.submitted.load(Ordering::Acquire);
        (self.end.get().is_some() && self.is_over(end, driver)).then_some(end)
    }

    /// The program submits to the stream as well from now on.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Whether all its work has completed. Of a shared stream's no position says that.
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

    /// Records an event in the stream, to be asked where none can be recorded.
    pub(crate) fn record_ahead(&self, driver: &Arc<CountedDriver>) {
        let Queue::Stream(queue) = &self.queue else { return };
        let submitted = self.submitted.load(Ordering::Acquire);
        // Where none can be recorded now it keeps the one that it has.
        if let Ok(event) = Self::while_open(queue, |raw| driver.record_apart(raw)) {
            let former = lock(&self.ahead).replace((DeviceEvent::new(event, driver), submitted));
            drop(former);
        }
    }

    /// As [`is_over`](Self::is_over), by the event recorded ahead.
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

/// What cannot be waited for.
#[cold]
pub(crate) fn no_end() -> DriverError {
    DriverError::Failed {
        call: "record",
        reason: "the driver submitted a part of a launch and cannot record its end".into(),
    }
}

/// Of a stream that is closed.
#[cold]
pub(crate) fn closed() -> DriverError {
    DriverError::Failed { call: "record", reason: "the stream is closed".into() }
}

#[cold]
fn no_launch() -> DriverError {
    DriverError::Failed { call: "record", reason: "the graph was not launched".into() }
}
