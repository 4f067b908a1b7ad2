//! The sim device: a device without memory or threads, that remembers every call and holds its caller to the contract.
//!
//! It gives fake addresses, which must never be touched, and real host memory; copies and fills do nothing; closures
//! run on the caller's thread, outside every lock. Its clock counts a microsecond for each item of work. It knows the
//! contract and no policy. What it is for: tests of what is above a driver (each call is data, each breach is written
//! down) and benches of it (with [`Watch::Counts`] a call costs next to nothing; one that makes or destroys a chunk
//! costs some more). Calls are counted and made to fail by what is put around it ([`Counting`](crate::Counting),
//! [`Failing`](crate::Failing)).

mod call;
mod config;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, OnceLock};
use std::thread;
use std::time::Duration;

pub use call::{Call, WorkCall};
pub use config::{Completion, SimConfig, Violation, Watch};
use state::State;

use crate::errors::failed;
use crate::locks::{self, Guard, Mutex, lock, wait_for};
use crate::pages::Pages;
use crate::panics::message;
use crate::{
    CallKind, Driver, DriverError, Properties, RawChunk, RawMark, RawStream, RawTime, Result, StreamFlags, Task, Work,
};

/// The first fake address: in a part of the address space where systems map nothing, so that touching it faults.
const FIRST_ADDRESS: u64 = 1 << 46;

/// The simulated device.
pub struct SimDriver {
    config: SimConfig,
    /// Next address or handle where nothing is kept but chunks.
    next: AtomicU64,
    state: Mutex<locks::Sim, State>,
    /// Host memory, which is real.
    pages: Pages,
    /// An item of the queue has run.
    ran: Condvar,
    lost: OnceLock<String>,
}

impl SimDriver {
    /// Makes a device.
    ///
    /// # Panics
    /// If the granularity is not a power of two.
    pub fn new(config: SimConfig) -> Self {
        let state = State::new(config.granularity, config.total_bytes, FIRST_ADDRESS);
        Self {
            next: AtomicU64::new(FIRST_ADDRESS),
            config,
            state: Mutex::new(state),
            pages: Pages::default(),
            ran: Condvar::new(),
            lost: OnceLock::new(),
        }
    }

    /// The calls so far, where [`Watch::Calls`] keeps them.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// Takes the calls so far.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// The breaches of the contract so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// What a program should have given back by its end: mappings, chunks, ranges, streams, marks, work that never
    /// ran.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = self.lock().leaks();
        leaks.extend(
            self.pages.kept().into_iter().map(|(at, bytes)| format!("{bytes} B of the host at {at:#x} are kept")),
        );
        leaks
    }

    /// Bytes of physical memory held by chunks.
    pub fn used_bytes(&self) -> u64 {
        self.lock().ledger.used_bytes()
    }

    /// Asserts that the contract was kept and all was given back.
    ///
    /// # Panics
    /// If not, with the list.
    #[track_caller]
    pub fn assert_clean(&self) {
        let (violations, leaks) = (self.violations(), self.leaks());
        assert!(violations.is_empty() && leaks.is_empty(), "violations: {violations:#?}\nleaks: {leaks:#?}");
    }

    /// Whether nothing is kept but chunks.
    fn is_light(&self) -> bool {
        self.config.watch == Watch::Counts && self.config.completion == Completion::AtOnce
    }

    fn lock(&self) -> Guard<'_, State> {
        lock(&self.state)
    }

    fn fresh(&self, step: u64) -> u64 {
        self.next.fetch_add(step, Ordering::Relaxed)
    }

    fn check_lost(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(DriverError::Lost { reason: reason.clone() }),
        }
    }

    /// Acts under the lock and keeps the call, unless `light` answers it.
    #[inline]
    fn call<R>(
        &self,
        kind: CallKind,
        light: impl FnOnce() -> Result<R>,
        act: impl FnOnce(&mut State) -> Result<R>,
        describe: impl FnOnce(&R) -> Call,
    ) -> Result<R> {
        if self.is_light() {
            return light();
        }
        let mut state = self.lock();
        let outcome = act(&mut state);
        if let Err(error @ (DriverError::UnknownHandle { .. } | DriverError::Failed { .. })) = &outcome {
            state.violate(kind, error.to_string());
        }
        if self.config.watch == Watch::Calls {
            state.calls.push(match &outcome {
                Ok(answer) => describe(answer),
                Err(error) => Call::Refused { kind, error: error.clone() },
            });
        }
        outcome
    }

    /// Runs a closure outside every lock. A panic loses the device.
    fn run(&self, task: Task) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(task)) {
            // The first reason stays.
            let _ = self.lost.set(message(payload));
        }
    }

    /// Runs the queue from its front up to an item. INVARIANTS: one-queue, one-runner.
    fn run_up_to(&self, number: u64) -> Result<()> {
        let me = thread::current().id();
        loop {
            let mut state = self.lock();
            if state.executed >= number {
                return Ok(());
            }
            self.check_lost()?;
            if state.runner == Some(me) {
                let reason = "the work blocks on a mark that waits for it".to_owned();
                return Err(DriverError::Failed { call: "block_on", reason });
            }
            if state.runner.is_some() {
                drop(wait_for(&self.ran, state));
                continue;
            }
            let item = state.pending.pop_front().expect("one-queue: an item that has not run is pending");
            state.runner = Some(me);
            drop(state);
            if let Some(task) = item.task {
                self.run(task);
            }
            let mut state = self.lock();
            state.runner = None;
            let dropped = if self.lost.get().is_some() {
                std::mem::take(&mut state.pending)
            } else {
                state.executed = item.number;
                Default::default()
            };
            drop(state);
            self.ran.notify_all();
            drop(dropped);
        }
    }
}

impl Default for SimDriver {
    fn default() -> Self {
        Self::new(SimConfig::default())
    }
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDriver").field("config", &self.config).finish_non_exhaustive()
    }
}

// SAFETY: it says that it runs no closures, so no slice is made of its addresses.
unsafe impl Driver for SimDriver {
    fn properties(&self) -> Properties {
        Properties {
            name: "sim".to_owned(),
            total_bytes: self.config.total_bytes,
            granularity: self.config.granularity,
            runs_closures: true,
            has_memory: false,
            can_protect: true,
        }
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let granularity = self.config.granularity;
        let Some(step) = bytes.checked_add(granularity) else { return Err(failed("reserve", "no addresses left")) };
        self.call(
            CallKind::Reserve,
            || Ok(self.fresh(step)),
            |state| state.reserve(bytes, granularity),
            |&at| Call::Reserve { bytes, at },
        )
    }

    unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        let act = |state: &mut State| {
            state.ledger.check_unreserve(at, bytes)?;
            state.ledger.remove_range(at);
            Ok(())
        };
        self.call(CallKind::Unreserve, || Ok(()), act, |()| Call::Unreserve { at, bytes })
    }

    fn create(&self, bytes: u64) -> Result<RawChunk> {
        let act = |state: &mut State| {
            state.ledger.set_aside(bytes)?;
            Ok(state.ledger.add_chunk(bytes, ()))
        };
        // Also where nothing else is kept a device has no more memory than it says.
        let light = || act(&mut self.lock());
        self.call(CallKind::Create, light, act, |&chunk| Call::Create { bytes, chunk })
    }

    fn destroy(&self, chunk: RawChunk) -> Result<()> {
        let act = |state: &mut State| {
            if let Some(leftover) = state.ledger.destroy(chunk)? {
                state.ledger.settle(leftover.bytes);
            }
            Ok(())
        };
        let light = || act(&mut self.lock());
        self.call(CallKind::Destroy, light, act, |()| Call::Destroy { chunk })
    }

    unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        let act = |state: &mut State| {
            state.ledger.check_map(chunk, at, bytes)?;
            state.ledger.add_mapping(chunk, at, bytes);
            Ok(())
        };
        self.call(CallKind::Map, || Ok(()), act, |()| Call::Map { chunk, at, bytes })
    }

    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()> {
        self.call(CallKind::Unmap, || Ok(()), |state| state.unmap(at, bytes), |()| Call::Unmap { at, bytes })
    }

    fn alloc_host(&self, bytes: u64) -> Result<u64> {
        // Memory of the process, also where nothing is kept.
        let alloc = || self.pages.alloc(bytes);
        self.call(CallKind::AllocHost, alloc, |_| alloc(), |&at| Call::AllocHost { bytes, at })
    }

    unsafe fn free_host(&self, at: u64) -> Result<()> {
        let free = || {
            // SAFETY: the caller's promise is handed on.
            unsafe { self.pages.free(at) }
        };
        let act = |state: &mut State| {
            if let Some(bytes) = self.pages.bytes_at(at) {
                state.check_host_free(at, bytes);
            }
            free()
        };
        self.call(CallKind::FreeHost, free, act, |()| Call::FreeHost { at })
    }

    fn open_stream(&self, flags: StreamFlags) -> Result<RawStream> {
        let act = |state: &mut State| {
            self.check_lost()?;
            Ok(state.open_stream())
        };
        let describe = |&stream: &RawStream| Call::OpenStream { label: flags.label.numbers.1, stream };
        self.call(CallKind::OpenStream, || Ok(RawStream(self.fresh(1))), act, describe)
    }

    fn close_stream(&self, stream: RawStream) -> Result<()> {
        let act = |state: &mut State| state.close_stream(stream);
        self.call(CallKind::CloseStream, || Ok(()), act, |()| Call::CloseStream { stream })
    }

    unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
        let Some(given) = &*work else { return Ok(()) };
        let what = WorkCall::from(given);
        let at_once = self.config.completion == Completion::AtOnce;
        let mut task = None;
        let act = |state: &mut State| {
            self.check_lost()?;
            state.append(CallKind::Submit, stream, Some(what), at_once)?;
            let taken = work.take();
            if let Some(Work::Run(given)) = taken {
                match at_once {
                    true => task = Some(given),
                    false => state.pending.back_mut().expect("the item just appended").task = Some(given),
                }
            }
            Ok(())
        };
        self.call(CallKind::Submit, || Ok(()), act, |()| Call::Submit { stream, work: what })?;
        if let Some(task) = task {
            self.run(task);
        }
        Ok(())
    }

    fn mark(&self, stream: RawStream) -> Result<RawMark> {
        let act = |state: &mut State| state.mark(stream);
        self.call(CallKind::Mark, || Ok(RawMark(self.fresh(1))), act, |&mark| Call::Mark { stream, mark })
    }

    fn wait(&self, stream: RawStream, mark: RawMark) -> Result<()> {
        let act = |state: &mut State| {
            self.check_lost()?;
            state.find_mark("wait", mark)?;
            let at_once = state.is_idle();
            state.append(CallKind::Wait, stream, None, at_once)
        };
        self.call(CallKind::Wait, || Ok(()), act, |()| Call::Wait { stream, mark })
    }

    fn is_over(&self, mark: RawMark) -> Result<bool> {
        let act = |state: &mut State| {
            let over = state.find_mark("is_over", mark)? <= state.executed;
            if !over {
                self.check_lost()?;
            }
            Ok(over)
        };
        self.call(CallKind::IsOver, || Ok(true), act, |&over| Call::IsOver { mark, over })
    }

    fn block_on(&self, mark: RawMark) -> Result<()> {
        let mut number = 0;
        let act = |state: &mut State| {
            number = state.find_mark("block_on", mark)?;
            self.check_lost()
        };
        self.call(CallKind::BlockOn, || Ok(()), act, |()| Call::BlockOn { mark })?;
        self.run_up_to(number)
    }

    fn forget(&self, mark: RawMark) {
        let act = |state: &mut State| {
            state.forget(mark);
            Ok(())
        };
        // The act cannot fail.
        let _ = self.call(CallKind::Forget, || Ok(()), act, |()| Call::Forget { mark });
    }

    fn record_time(&self, stream: RawStream) -> Result<RawTime> {
        let act = |state: &mut State| state.record_time(stream);
        self.call(CallKind::Mark, || Ok(RawTime(self.fresh(1))), act, |&time| Call::RecordTime { stream, time })
    }

    fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> {
        let act = |state: &mut State| state.elapsed(from, to);
        let describe = |&elapsed: &Duration| Call::Elapsed { from, to, elapsed };
        self.call(CallKind::IsOver, || Ok(Duration::ZERO), act, describe)
    }

    fn forget_time(&self, time: RawTime) {
        let act = |state: &mut State| {
            state.forget_time(time);
            Ok(())
        };
        // As of `forget`.
        let _ = self.call(CallKind::Forget, || Ok(()), act, |()| Call::ForgetTime { time });
    }
}
