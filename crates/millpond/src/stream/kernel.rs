//! The closure of a node: the same one for all instances of its graph, for clones and for children.
//!
//! Every launch runs it again, and it may change what it owns, so it runs once at a time. On devices where closures are
//! kernels, the runs come one after the other in the order of submission: a run of another instance is submitted behind
//! a wait for the run before. Verdicts do not take that order into account. On other devices closures are host
//! functions, which must not wait for each other by CUDA's rules. There the lock alone keeps them apart.
//!
//! Invariant **one-run**: where closures are kernels, no run begins before the run before it has completed, so that no
//! thread waits for the lock. A run waits only for work that was submitted before it, so that runs never wait in a
//! circle.

use std::sync::{Arc, Mutex as StdMutex, PoisonError, TryLockError, Weak};

use millpond_driver::locks::{Guard, Mutex, lock};
use millpond_driver::{Driver, RawEvent, RawStream, drop_after_item};
use smallvec::SmallVec;

use crate::clock::device_event::CountedDriver;
use crate::names::error::Result;
use crate::state::access::Movable;
use crate::state::context::Context;
use crate::sync::ranks;

/// A closure, by the argument that it takes.
enum Function {
    /// It takes nothing, because it has its addresses.
    Fixed(Box<dyn FnMut() + Send>),
    /// It takes the addresses of an instance.
    Movable(Movable),
}

/// The last run that was submitted: its instance, and the event after it.
type LastRun = Option<(u64, RawEvent)>;

struct Closure {
    /// The lock has no rank: no thread waits for it (one-run), and the program's own code runs under it as if no lock
    /// were held.
    function: StdMutex<Function>,
    /// `true` if the device runs closures as kernels.
    runs_alone: bool,
    last: Mutex<ranks::Table, LastRun>,
    /// The driver of that event. Weak, so that a closure in flight does not keep its device alive.
    driver: Weak<CountedDriver>,
}

impl Drop for Closure {
    fn drop(&mut self) {
        if let Some((_, event)) = self.last.get_mut().take()
            && let Some(driver) = self.driver.upgrade()
        {
            driver.forget(event);
        }
    }
}

/// A closure, with the addresses of an instance if it takes any. Clones have the same closure.
#[derive(Clone)]
pub(crate) struct Kernel {
    closure: Arc<Closure>,
    addresses: SmallVec<[u64; 4]>,
}

impl Kernel {
    pub(crate) fn fixed(context: &Context, function: Box<dyn FnMut() + Send>) -> Self {
        Self::new(context, Function::Fixed(function))
    }

    /// Makes a kernel that has no addresses yet.
    pub(crate) fn movable(context: &Context, function: Movable) -> Self {
        Self::new(context, Function::Movable(function))
    }

    fn new(context: &Context, function: Function) -> Self {
        let closure = Closure {
            function: StdMutex::new(function),
            runs_alone: context.properties.runs_closures,
            last: Mutex::default(),
            driver: Arc::downgrade(&context.driver),
        };
        Self { closure: Arc::new(closure), addresses: SmallVec::new() }
    }

    /// Returns the same closure at the addresses of an instance.
    pub(crate) fn at(&self, addresses: SmallVec<[u64; 4]>) -> Self {
        Self { closure: Arc::clone(&self.closure), addresses }
    }

    /// Identifies the closure: it is equal for two kernels of one closure.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.closure).addr()
    }

    pub(crate) fn run(&self) {
        let is_running = || matches!(self.closure.function.try_lock(), Err(TryLockError::WouldBlock));
        debug_assert!(!self.closure.runs_alone || !is_running(), "one-run: the closure's run before goes on");
        match &mut *self.closure.function.lock().unwrap_or_else(PoisonError::into_inner) {
            Function::Fixed(function) => function(),
            Function::Movable(function) => function(&self.addresses),
        }
    }

    /// Makes `lane` wait for the run before. Hold the result while a run of an instance is submitted to `lane`.
    /// INVARIANT: one-run.
    pub(crate) fn turn<'k>(&'k self, context: &Context, exec: u64, lane: RawStream) -> Result<Turn<'k>> {
        if !context.properties.runs_closures {
            return Ok(Turn { last: None, exec });
        }
        let last = lock(&self.closure.last);
        // Launches of one instance come one after the other anyway.
        if let Some((_, event)) = last.filter(|(before, _)| *before != exec) {
            context.driver.wait(lane, event)?;
        }
        Ok(Turn { last: Some(last), exec })
    }

    /// Drops the closure after the item that ran it. If the launch outlived its graph, this is the last owner of what
    /// the closure owns, and dropping that may wait for the launch.
    pub(crate) fn drop_after_item(self) {
        if let Some(last) = Arc::into_inner(self.closure) {
            drop_after_item(Box::new(last));
        }
    }
}

/// The turn of a run: see [`Kernel::turn`].
pub(crate) struct Turn<'k> {
    /// `None` if the lock alone keeps runs apart.
    last: Option<Guard<'k, LastRun>>,
    exec: u64,
}

impl Turn<'_> {
    /// Records the event after a run that was submitted.
    pub(crate) fn submitted(self, context: &Context, lane: RawStream) -> Result<()> {
        let Some(mut last) = self.last else { return Ok(()) };
        let event = context.driver.record(lane)?;
        if let Some((_, former)) = last.replace((self.exec, event)) {
            context.driver.forget(former);
        }
        Ok(())
    }
}
