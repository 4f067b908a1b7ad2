//! Launches of closures that borrow from their caller: all of them have ended before the scope returns.
//!
//! Simple version: a guard that waits when it is dropped. But it can be forgotten, and then the borrow ends while a
//! kernel still uses it. Departure, as in `std::thread::scope`: there is no guard. A closure gets the scope, and the
//! call that runs the closure waits, also if it panics. The kernel is submitted to the stream as if it borrowed
//! nothing.
//!
//! A kernel may launch into its own scope, so one wait for the stream is not enough: the scope waits until all counts
//! are back. Work of a stream must not wait for that stream. So a scope that is opened within a kernel first waits for
//! the work of the stream, while nothing is borrowed yet. That wait returns the error.
//!
//! Invariant **scoped**: a kernel of the scope, with all that it captures, is dropped before its count is given back,
//! and the scope returns only once all counts are back. Kernels run once or are dropped without a run: at once if the
//! launch is refused, and by the device if that is lost (lost-for-good).

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use millpond_driver::output::say;
use millpond_driver::{Driver, DriverError, Task, is_in_item, process};

use crate::clock::device_event::DeviceEvent;
use crate::names::error::Result;
use crate::state::access::{self, Access};
use crate::stream::handle::Stream;

/// The time that the scope sleeps before it checks if a kernel has launched another.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// The launches of a [`Stream::scope`]: closures that may borrow values that outlive the scope.
///
/// ```
/// # fn main() -> millpond::Result<()> {
/// # let device = millpond::Device::host(Default::default())?;
/// let stream = device.stream()?;
/// let x = stream.upload(&device.default_pool(), &[3, 1, 2])?;
/// let (mut least, mut most) = (0, 0); // locals of the caller
/// stream.scope(|scope| {
///     scope.launch(x.read(), |x| least = x.iter().copied().min().unwrap_or(0))?;
///     scope.launch(x.read(), |x| most = x.iter().copied().max().unwrap_or(0))
/// })?; // both have run
/// assert_eq!((least, most), (1, 3));
/// # Ok(())
/// # }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    stream: Stream,
    pending: Arc<Pending>,
    // Makes both lifetimes invariant: neither can be made shorter or longer.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.stream)
    }
}

/// The number of kernels that are not dropped yet, and the thread that waits for them.
struct Pending {
    count: AtomicUsize,
    owner: Thread,
}

impl Pending {
    /// Waits until all kernels are dropped. Values that they borrow must not end before them: if the kernels will never
    /// be dropped, the process is aborted.
    fn wait(&self, stream: &Stream) {
        while self.is_used() {
            if process::is_forked() {
                // No thread runs the kernels here.
                std::process::abort();
            }
            if let Err(error @ DriverError::Deadlock { .. }) = stream.run_out() {
                let why = "a scope cannot end, for its launches wait for the kernel that it is in";
                say(format_args!("millpond: {why}: {error}"));
                std::process::abort();
            }
            if self.is_used() {
                std::thread::park_timeout(LOOK_AGAIN);
            }
        }
    }

    fn is_used(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }
}

/// A count of one kernel. It is given back when this is dropped.
struct Counted(Arc<Pending>);

impl Counted {
    fn of(pending: &Arc<Pending>) -> Self {
        pending.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(pending))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Release) == 1 {
            self.0.owner.unpark();
        }
    }
}

/// A kernel with its count, which is dropped after the kernel.
struct Scoped<K> {
    kernel: K,
    counted: Counted,
}

/// Makes work of the device, which borrows nothing, from a kernel that borrows.
fn task<'scope, A: Access>(place: A::Place, scoped: Scoped<impl for<'a> FnOnce(A::Slice<'a>) + Send + 'scope>) -> Task {
    let task = access::task::<A>(place, move |slices| {
        // The whole struct is captured, so that a kernel that is not run is dropped in the order of the fields.
        let scoped = scoped;
        let Scoped { kernel, counted } = scoped;
        kernel(slices);
        drop(counted);
    });
    // SAFETY: only a lifetime differs, and the kernel is dropped before that lifetime ends (scoped).
    unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Task>(task) }
}

impl<'scope> Scope<'scope, '_> {
    /// As [`Stream::launch_once`], for a closure that may borrow values that outlive the scope.
    ///
    /// # Errors
    /// As for [`Stream::launch_once`].
    #[track_caller]
    pub fn launch<A: Access>(
        &'scope self,
        accesses: A,
        kernel: impl for<'a> FnOnce(A::Slice<'a>) + Send + 'scope,
    ) -> Result<()> {
        let kernel = Scoped { kernel, counted: Counted::of(&self.pending) };
        self.stream.shared.launch(accesses, kernel, task::<A>, |_, kernel| Err(kernel), Location::caller())
    }
}

impl Stream {
    /// Launches closures that borrow from their caller. When this returns, all of them have ended, and the host has
    /// synchronised with the stream.
    ///
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// # let device = millpond::Device::host(Default::default())?;
    /// let stream = device.stream()?;
    /// let x = stream.upload(&device.default_pool(), &[1, 2, 3])?;
    /// let mut sum = 0;
    /// stream.scope(|scope| scope.launch(x.read(), |x| sum = x.iter().sum()))?;
    /// assert_eq!(sum, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of the closure, or else an error as for [`synchronize`](Self::synchronize). Within a kernel of
    /// the same stream the closure is not called, and the error says that the scope would wait for itself. With a
    /// seeded schedule that is also so within a kernel that the stream waits for. With threads that call waits for
    /// ever, as [`synchronize`](Self::synchronize) does.
    ///
    /// # Aborts
    /// Aborts the process, with a seeded schedule, if the closure makes the stream wait for the kernel that it is
    /// called in, and launches behind that: the launches cannot run, and what they borrow must not end.
    #[track_caller]
    pub fn scope<'env, T>(
        &self,
        launches: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<T>,
    ) -> Result<T> {
        if is_in_item() {
            self.run_out()?;
        }
        let pending = Arc::new(Pending { count: AtomicUsize::new(0), owner: std::thread::current() });
        let scope = Scope { stream: self.clone(), pending: Arc::clone(&pending), scope: PhantomData, env: PhantomData };
        let launched = catch_unwind(AssertUnwindSafe(|| launches(&scope)));
        pending.wait(self);
        let launched = launched.unwrap_or_else(|panic| resume_unwind(panic));
        // Synchronise also if the closure returned an error, which takes precedence over an error of this. But a
        // capture has refused its launches: it goes on, and there is nothing to wait for.
        if launched.is_err() && self.is_capturing().unwrap_or(false) {
            return launched;
        }
        let synchronized = self.synchronize();
        let done = launched?;
        synchronized?;
        Ok(done)
    }

    /// Waits for the work that the device has in the stream, whether or not the program captures it now. If no threads
    /// run the streams, the waiting thread does. A lost device has dropped the work that it has not run.
    fn run_out(&self) -> millpond_driver::Result<()> {
        let (context, raw) = (&self.shared.context, self.shared.raw);
        let event = DeviceEvent::new(context.driver.record(raw)?, &context.driver);
        context.driver.block_on(event.raw)
    }
}
