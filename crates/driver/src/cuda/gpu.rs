//! One GPU as everything else here sees it: the table, the primary context, and what a result code means.
//!
//! Knows neither memory nor streams.
//!
//! Invariants:
//! * `context-current`: a call of the table is made while the primary context is the thread's current one;
//! * `lost-for-good`: once a call answered a sticky code, or a host function panicked, no work is submitted any more.
//!   Questions and memory calls are still made: the context itself refuses where it is the one that is lost.

use std::sync::OnceLock;

use super::abi::{Code, Context, Device};
use super::table::{Api, Table};
use crate::ledger::failed;
use crate::{DriverError, Result};

/// Why nothing runs any more, once that is so. Host functions in flight hold it.
pub(super) type Lost = OnceLock<String>;

/// A GPU with its primary context.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) api: Api,
    pub(super) device: Device,
    context: Context,
    pub(super) lost: std::sync::Arc<Lost>,
}

/// The context that was current before, where it was another one: put back when this goes.
#[must_use]
pub(super) struct Entered<'a> {
    /// The functions, usable as long as this lives.
    pub(super) table: &'a Table,
    was_pushed: bool,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.was_pushed {
            let mut ours = Context::default();
            // SAFETY: `ours` is a place for a context. A refusal leaves our context current, which harms nobody who
            // sets his own.
            let _ = unsafe { (self.table.pop_context)(&raw mut ours) };
        }
    }
}

impl Gpu {
    /// Retains the device's primary context, which it shares with all else in the process.
    pub(super) fn new(api: Api, ordinal: u32) -> Result<Self> {
        const CALL: &str = "open CUDA";
        // SAFETY: no argument that could be wrong.
        check(&api, CALL, unsafe { (api.table.init)(0) })?;
        let mut count = 0;
        // SAFETY: a place for a number.
        check(&api, CALL, unsafe { (api.table.device_count)(&raw mut count) })?;
        let known = i32::try_from(ordinal).ok().filter(|&ordinal| ordinal < count);
        let ordinal =
            known.ok_or_else(|| failed(CALL, format!("there is no device {ordinal}: {count} are visible")))?;
        let (mut device, mut context) = (0, Context::default());
        // SAFETY: a place for a device.
        check(&api, CALL, unsafe { (api.table.device)(&raw mut device, ordinal) })?;
        // SAFETY: a place for a context, and a device.
        check(&api, CALL, unsafe { (api.table.retain_primary)(&raw mut context, device) })?;
        Ok(Self { api, device, context, lost: Default::default() })
    }

    /// Makes the primary context current for the calls to come. A thread without a current context keeps this one; a
    /// thread with another one gets it back.
    ///
    /// # Errors
    /// The library refuses.
    #[inline]
    pub(super) fn enter(&self, call: &'static str) -> Result<Entered<'_>> {
        self.enter_other(call, self.context)
    }

    /// As [`enter`](Self::enter), for another context of the device: that of a stream which the program made there.
    #[inline]
    pub(super) fn enter_other(&self, call: &'static str, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let mut current = Context::default();
        // SAFETY: a place for a context.
        self.check(call, unsafe { (table.current_context)(&raw mut current) })?;
        if current == context {
            return Ok(Entered { table, was_pushed: false });
        }
        self.change_context(call, current, context)
    }

    /// Cold: a thread's first call, or one that uses several contexts.
    #[cold]
    fn change_context(&self, call: &'static str, current: Context, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let was_pushed = current != Context::default() || context != self.context;
        let change = if was_pushed { table.push_context } else { table.set_context };
        // SAFETY: ours is retained; another is its program's, which keeps it while its streams are used.
        let code = unsafe { change(context) };
        self.check(call, code)?;
        Ok(Entered { table, was_pushed })
    }

    /// The primary context.
    pub(super) fn context(&self) -> Context {
        self.context
    }

    /// Whether a context is one of this device.
    pub(super) fn has_context(&self, call: &'static str, context: Context) -> Result<bool> {
        if context == self.context {
            return Ok(true);
        }
        let (entered, mut device) = (self.enter_other(call, context)?, Device::default());
        // SAFETY: a place for a device (context-current, the other one).
        self.check(call, unsafe { (entered.table.context_device)(&raw mut device) })?;
        Ok(device == self.device)
    }

    /// An error for a code other than success; a sticky one loses the device.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.refusal(call, code)) }
    }

    /// Cold: what a code says in the words of the contract.
    #[cold]
    pub(super) fn refusal(&self, call: &'static str, code: Code) -> DriverError {
        if code.is_sticky() {
            let reason = self.lost.get_or_init(|| format!("{call}: {}", self.api.explain(code)));
            return DriverError::Lost { reason: reason.clone() };
        }
        failed(call, self.api.explain(code))
    }

    /// As [`refusal`](Self::refusal), for a call that wants memory of so many bytes.
    #[cold]
    pub(super) fn memory_refusal(&self, call: &'static str, code: Code, bytes: u64) -> DriverError {
        match code {
            Code::OUT_OF_MEMORY => DriverError::OutOfMemory { call, bytes },
            _ => self.refusal(call, code),
        }
    }

    /// Refuses where the device is lost.
    #[inline]
    pub(super) fn check_lost(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(DriverError::Lost { reason: reason.clone() }),
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once, and given back once. A refusal leaves the context to the process.
        let _ = unsafe { (self.api.table.release_primary)(self.device) };
    }
}

/// An error for a code other than success, before there is a context to lose.
pub(super) fn check(api: &Api, call: &'static str, code: Code) -> Result<()> {
    if code == Code::SUCCESS { Ok(()) } else { Err(failed(call, api.explain(code))) }
}
