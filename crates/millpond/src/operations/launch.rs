//! Work that uses memory: declared, checked, submitted, recorded - in that order, under the stream's lock.
//!
//! Depends on accesses and allocations. A launch is refused as a whole: nothing is recorded until every access was
//! found right. The locks of all its allocations are held meanwhile (taken in the order of their numbers), so that no
//! free can come in between.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use millpond_core::check::{Act, Kind, Use};
use millpond_core::op::Part;
use millpond_driver::{Driver, DriverError, RawStream, Task, Work};

use crate::clock::hosts;
use crate::names::error::{Invalid, Result};
use crate::operations::wanted::{self, Wanted};
use crate::pool::grants::Visit;
use crate::pool::shell;
use crate::state::access::{Access, Few, placed, task};
use crate::state::aliased::Job;
use crate::state::allocation::{Allocation, Life, site};
use crate::state::listening::Listening;
use crate::state::origin::Origin;
use crate::state::stream::{Mode, State, StreamShared};
use crate::stream::handle::Stream;
use crate::stream::payload::{Payload, To};
use crate::stream::report::Noted;
use crate::sync::garbage::Garbage;

impl StreamShared {
    /// Checks all accesses of one operation, then submits it by `work`, which gets their addresses, then records them.
    /// If anything fails, nothing has happened.
    pub(crate) fn operate<A: Access, R>(
        &self,
        accesses: &A,
        job: Job,
        caller: &'static Location<'static>,
        work: impl FnOnce(To<'_, A::Place>) -> Result<R>,
    ) -> Result<R> {
        self.operate_then(accesses, job, caller, work, |_, done| done)
    }

    /// As [`operate`](Self::operate), and calls `then` before another thread can use the stream.
    pub(crate) fn operate_then<A: Access, R, T>(
        &self,
        accesses: &A,
        job: Job,
        caller: &'static Location<'static>,
        work: impl FnOnce(To<'_, A::Place>) -> Result<R>,
        then: impl Fn(&mut State, R) -> T,
    ) -> Result<T> {
        let mut work = Some(work);
        let (mut listening, mut known) = (Listening::default(), false);
        loop {
            let mut noted = Noted::default();
            match self.try_operate(accesses, job, caller, &mut work, &then, (&mut listening, &mut noted)) {
                Ok(Some(done)) => return Ok(done),
                // Messages that other processes sent before their programs went on are received before memory that they
                // hold is checked.
                Ok(None) => listening.receive(),
                Err(_) if noted == Noted::Anew => {}
                // A refused operation has not begun.
                Err(mut error) => {
                    if noted == Noted::Later {
                        let is_unborn = error.violation().is_some_and(|it| it.kind == Kind::UseBeforeAlloc);
                        self.note_refused(&error, |tracer| {
                            tracer.declared_launch(&self.context.graphs, self.id, (accesses, job), is_unborn, caller)
                        });
                    }
                    if work.is_none() || !self.add_missing_waits(&mut error, &mut known) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// As [`operate`](Self::operate), once. Takes `work` when it begins it. Returns `None`, and nothing has happened,
    /// if messages of other processes are to be received first.
    fn try_operate<A: Access, R, T, W: FnOnce(To<'_, A::Place>) -> Result<R>>(
        &self,
        accesses: &A,
        job: Job,
        caller: &'static Location<'static>,
        work: &mut Option<W>,
        then: impl Fn(&mut State, R) -> T,
        (listening, noted): (&mut Listening, &mut Noted),
    ) -> Result<Option<T>> {
        let mut begin = |to: To<'_, A::Place>| (work.take().expect("it is begun once"))(to);
        let garbage = Garbage::default();
        // Allocations that are looked up are dropped after the lock is released, because each may be the last reference
        // by then.
        let mut wanted = Few::<Wanted<'_>>::new();
        let mut state = self.state.lock();
        if self.enter(&mut state)? == Mode::Capturing {
            let done = self.capture_work((&mut state, &garbage), (accesses, job), caller, begin);
            let done = state.counted(done);
            return done.map(|done| Some(then(&mut state, done)));
        }
        // Names are looked up first: a pool's lock comes after the stream's and before those of allocations.
        let later = site(Act::Read, self.id, state.op() + 1, caller);
        let (addresses, failed) = self.want_all(accesses, &mut wanted, &garbage, later);
        let stale_name = |wanted: &Wanted<'_>, life: &Life| self.stale_name(wanted, life, &state, caller);
        let (mut refused, aliased) = wanted::merge::<A>(job, &mut wanted, (self, later), stale_name);
        let is_found = failed.is_none() && refused.is_empty();
        let (places, mut lives) = wanted::lives(&wanted);
        if listening.needs(lives.iter().map(|life| &**life)) {
            return Ok(None);
        }
        let is_foreign = |wanted: &Wanted<'_>| wanted.allocation.get().device != self.context.number;
        let visit = wanted.iter().any(is_foreign).then(|| {
            let named = wanted.iter().zip(&places).map(|(wanted, place)| (wanted, &*lives[*place]));
            Visit::check(self, named.map(|(it, life)| (it.at, it.allocation.get(), life, it.act)), later)
        });
        let (mut visit, no_access) = visit.unzip();
        for (wanted, place) in wanted.iter().zip(&places) {
            if let Err(error) = self.judge(wanted, &lives[*place], !job.may_race(), &mut state, caller) {
                refused.push((wanted.at, error));
            }
        }
        // The access that could not be found was declared after all that were found.
        if let Some(error) = wanted::first(refused, no_access).or(failed).or(aliased) {
            // A name that was not found never will be, so that error can be traced later.
            if is_found {
                *noted = self.refused_here(&state, &error, |tracer| {
                    let mut wanted: Few<_> = wanted.iter().collect();
                    wanted.sort_by_key(|wanted| wanted.at);
                    tracer.launch(self.id, (used(wanted), job, job.trust()), caller);
                });
            }
            return Err(error);
        }
        let result = begin(To::Device(placed(accesses, addresses.into_iter())))?;
        let point = state.chain.submit();
        for (wanted, place) in wanted.iter().zip(&places) {
            let used = Use { point, site: site(wanted.act, self.id, state.op(), caller) };
            self.record_access(wanted, &mut lives[*place], used, visit.as_mut(), &state);
        }
        if let Some(tracer) = &self.context.tracer {
            tracer.launch(self.id, (used(&wanted), job, job.trust()), caller);
        }
        // Published while the lifetimes are locked, so that a thread that frees one of them finds this use in flight.
        match self.submitters.take_declared() {
            false => self.leave(&mut state),
            true => self.leave_declared(&mut state),
        }
        drop((visit, lives));
        Ok(Some(then(&mut state, result)))
    }
}

/// Returns the accesses as a trace has them.
fn used<'w, 'b: 'w>(
    wanted: impl IntoIterator<Item = &'w Wanted<'b>>,
) -> impl Iterator<Item = (&'w Allocation, u64, Act, Part)> {
    wanted.into_iter().map(|it| (it.allocation.get(), it.generation, it.act, it.part))
}

impl StreamShared {
    /// Records the use of one allocation by work that was submitted.
    #[inline]
    fn record_access(
        &self,
        wanted: &Wanted<'_>,
        life: &mut Life,
        mut used: Use,
        visit: Option<&mut Visit<'_>>,
        state: &State,
    ) {
        let allocation = wanted.allocation.get();
        if let Some(visit) = visit
            && allocation.device != self.context.number
        {
            used.site.stream = self.id.of_device(self.context.number);
            visit.used(allocation, used);
        }
        life.history.add_use(used, wanted.part, &state.chain);
        if life.history.is_due() {
            self.settle(allocation, life);
        }
    }

    /// Forgets uses that the host knows to have completed: everything that the program does later comes after them.
    #[cold]
    fn settle(&self, allocation: &Allocation, life: &mut Life) {
        let is_own = allocation.device == self.context.number
            && matches!(allocation.origin, Origin::Pool(_) | Origin::Graph(_) | Origin::Pinned(_));
        if is_own && life.lent.is_none() {
            let base = hosts::base();
            life.history.settle(|point| base.covers(point));
        }
    }
}

/// A stream to which foreign code submits work, during an [`enqueue`](Stream::enqueue).
#[derive(Debug)]
pub struct Queue<'s> {
    stream: &'s StreamShared,
    captures: bool,
    garbage: &'s Garbage,
}

impl Queue<'_> {
    /// Returns the stream's handle for foreign code (CUDA: a `CUstream`), or else the driver's handle.
    pub fn raw_stream(&self) -> RawStream {
        self.stream.share();
        let native = self.stream.context.driver.native_stream(self.stream.raw);
        native.map_or(self.stream.raw, RawStream)
    }

    /// Returns `true` if the stream captures: submitted work becomes a node, and does not run now.
    pub fn is_capturing(&self) -> bool {
        self.captures
    }

    /// Appends a closure that runs on the host, in stream order (CUDA: `cudaLaunchHostFunc`). On CUDA the closure must
    /// not call the device, drop anything that calls it, or wait for another such closure. If it panics there, the
    /// device is lost.
    ///
    /// # Errors
    /// Returns an error if the device is lost, or if the stream captures, because each launch would call the closure
    /// again.
    pub fn host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        if self.captures {
            return Err(Invalid::Uncapturable { call: "host_function" }.into());
        }
        let mut task = self.garbage.hold(Some(Work::Run(Box::new(function))));
        Ok(shell::submit_task(&self.stream.context, self.stream.raw, &mut task)?)
    }
}

impl StreamShared {
    /// Launches a closure. `task` makes the device's work of it, which calls it with its slices. If the stream
    /// captures, `record` makes a node's work of it, or gives it back.
    pub(crate) fn launch<A: Access, K>(
        &self,
        accesses: A,
        kernel: K,
        task: impl FnOnce(A::Place, K) -> Task,
        record: impl FnOnce(A::Place, K) -> std::result::Result<Payload, K>,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        self.check_closures()?;
        // A kernel that is refused or not run is dropped here, after the locks are released, because it may own
        // buffers.
        let (mut refused, mut unused) = (None, None);
        self.operate(&accesses, Job::Closure, caller, |to| {
            let place = match to {
                To::Device(place) => place,
                To::Graph(payload, place) => match record(place, kernel) {
                    Ok(recorded) => {
                        *payload = recorded;
                        return Ok(());
                    }
                    Err(kernel) => {
                        unused = Some(kernel);
                        return Err(Invalid::Uncapturable { call: "launch_once" }.into());
                    }
                },
            };
            // On a device without memory there are no slices: the kernel is checked and recorded, and not run.
            refused = Some(Work::Run(match self.context.properties.has_memory {
                true => task(place, kernel),
                false => {
                    unused = Some(kernel);
                    Box::new(|| ())
                }
            }));
            Ok(shell::submit_task(&self.context, self.raw, &mut refused)?)
        })?;
        drop(unused);
        Ok(())
    }

    /// Refuses the call if the program captures the stream itself: the work would be in a node that Millpond does not
    /// know.
    pub(crate) fn check_captured(&self, call: &'static str) -> Result<()> {
        match self.submitters.are_shared() && self.context.driver.is_captured(self.raw) {
            true => Err(DriverError::Captured { call }.into()),
            false => Ok(()),
        }
    }

    pub(crate) fn check_closures(&self) -> Result<()> {
        let properties = &self.context.properties;
        match properties.runs_closures {
            true => Ok(()),
            false => Err(Invalid::NoClosures { device: properties.name.clone() }.into()),
        }
    }
}

impl Stream {
    /// Runs a closure as a kernel on a host device, at this point of the stream, with the slices of the declared
    /// accesses. Reads give `&[T]`, writes `&mut [T]`. On a CUDA device launch kernels by [`enqueue`](Self::enqueue),
    /// or through the crate `millpond-cudarc`.
    ///
    /// The closure is `'static`. For a closure that borrows local variables use [`scope`](Self::scope). With `move` it
    /// gets copies of them, and writes to the copies are lost.
    ///
    /// # Errors
    /// Returns a violation, before anything runs, if an access does not come after its allocation, comes after the
    /// free, or conflicts with an unordered access of another stream, or if it is of memory of another device whose
    /// pool does not [grant](crate::Pool::grant) access. Returns [`Invalid::Aliased`] if bytes are written and named a
    /// second time: a closure that reads and writes them declares a write. Returns [`Invalid::NoClosures`] if the
    /// device does not run closures.
    #[track_caller]
    pub fn launch<A: Access>(
        &self,
        accesses: A,
        kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
    ) -> Result<()> {
        let shared = &self.shared;
        let record = |place, kernel| Ok(Payload::kernel::<A>(&shared.context, place, kernel));
        shared.launch(accesses, kernel, task::<A>, record, Location::caller())
    }

    /// As [`launch`](Self::launch), for a closure that runs once and may give away what it owns.
    ///
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// # let device = millpond::Device::host(Default::default())?;
    /// let stream = device.stream()?;
    /// let x = stream.upload(&device.default_pool(), &[1, 2, 3])?;
    /// let (send, sum) = std::sync::mpsc::channel::<i32>();
    /// stream.launch_once(x.read(), move |x| drop(send.send(x.iter().sum())))?;
    /// assert_eq!(sum.recv(), Ok(6));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), and [`Invalid::Uncapturable`] in a capture, whose nodes run at each launch
    /// of the graph.
    #[track_caller]
    pub fn launch_once<A: Access>(
        &self,
        accesses: A,
        kernel: impl for<'a> FnOnce(A::Slice<'a>) + Send + 'static,
    ) -> Result<()> {
        self.shared.launch(accesses, kernel, task::<A>, |_, kernel| Err(kernel), Location::caller())
    }

    /// Declares a use and submits nothing: it is checked and recorded as a [`launch`](Self::launch) that does nothing.
    /// This is for work that reaches the stream by other ways; call it right before that work. In a capture the work up
    /// to this stream's next call becomes a node, if the device has graphs of its own.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), on every kind of device, except that the same bytes may be read and written.
    /// Returns [`DriverError::Captured`] if the program captures the stream by other ways than
    /// [`begin_capture`](Self::begin_capture).
    #[track_caller]
    pub fn declare<A: Access>(&self, accesses: A) -> Result<()> {
        self.shared.operate(&accesses, Job::Declared, Location::caller(), |to| {
            match to {
                To::Device(_) => {
                    self.shared.check_captured("declare")?;
                    self.shared.submitters.declare();
                }
                To::Graph(payload, _) if self.shared.context.driver.has_graphs() => *payload = Payload::Open,
                To::Graph(..) => {}
            }
            Ok(())
        })
    }

    /// Lets foreign code submit work that uses memory: kernels of cuBLAS, cudarc, a C library. The accesses are checked
    /// as for [`launch`](Self::launch), except that unordered accesses of one allocation are allowed (they may touch
    /// different halves), and so are a read and a write of the same bytes. Then `submit` runs at once, on this thread,
    /// with the stream and the addresses. In a capture the work that it submits becomes a node and does not run now, if
    /// the device has graphs of its own (CUDA).
    ///
    /// While `submit` runs, the stream is locked: `submit` must not use this [`Stream`], only the queue that it gets.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), and [`DriverError::Captured`] if the program captures the stream by other ways
    /// than [`begin_capture`](Self::begin_capture): nothing has happened then. Also returns any error of `submit`. The
    /// accesses are recorded all the same, because it may have submitted work before it failed or panicked. In a
    /// capture they are not recorded, and the submitted work is thrown away.
    ///
    /// # Safety
    /// All work that `submit` submits goes to that stream. It touches no memory of Millpond's except the declared
    /// accesses, in the declared way. Unordered accesses touch different bytes.
    #[track_caller]
    #[allow(unsafe_code)] // It passes the caller's promise on and does nothing unsafe itself.
    pub unsafe fn enqueue<A: Access, R>(
        &self,
        accesses: A,
        submit: impl FnOnce(&Queue<'_>, A::Place) -> Result<R>,
    ) -> Result<R> {
        self.shared.enqueue(accesses, Job::Foreign, submit, Location::caller())
    }

    /// As [`enqueue`](Self::enqueue), for adaptors that make slices of the addresses: bytes that are written are named
    /// only once.
    ///
    /// # Errors
    /// As for [`enqueue`](Self::enqueue), and [`Invalid::Aliased`] if bytes are written and named a second time.
    ///
    /// # Safety
    /// As for [`enqueue`](Self::enqueue).
    #[track_caller]
    #[allow(unsafe_code)] // As above.
    pub unsafe fn enqueue_slices<A: Access, R>(
        &self,
        accesses: A,
        submit: impl FnOnce(&Queue<'_>, A::Place) -> Result<R>,
    ) -> Result<R> {
        self.shared.enqueue(accesses, Job::ForeignSlices, submit, Location::caller())
    }
}

impl StreamShared {
    fn enqueue<A: Access, R>(
        &self,
        accesses: A,
        job: Job,
        submit: impl FnOnce(&Queue<'_>, A::Place) -> Result<R>,
        caller: &'static Location<'static>,
    ) -> Result<R> {
        let (stream, garbage) = (self, &Garbage::default());
        let outcome = stream.operate(&accesses, job, caller, |to| match to {
            To::Device(place) => {
                stream.check_captured("enqueue")?;
                let queue = Queue { stream, captures: false, garbage };
                Ok(catch_unwind(AssertUnwindSafe(|| submit(&queue, place))))
            }
            To::Graph(payload, place) => {
                let queue = Queue { stream, captures: true, garbage };
                stream.capture_foreign(payload, || submit(&queue, place)).map(|done| Ok(Ok(done)))
            }
        })?;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
