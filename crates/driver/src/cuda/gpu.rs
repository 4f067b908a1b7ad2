//! One GPU as everything else here sees it: the table, the primary context, and what a result code means.
//!
//! Knows neither memory nor streams.
//!
//! Invariants:
//! * `context-current`: a call of the table is made while the primary context is the thread's current one;
//! * `lost-for-good`: once a call in the primary context answered a sticky code, or a host function panicked, no work
//!   is submitted any more. Questions and memory calls are still made: the context itself refuses where it is the one
//!   that is lost. What another context answers, or one that the program has destroyed, says nothing of the primary
//!   one;
//! * `left-alone`: the thread's current context is after each call what it was before. The one exception is a thread
//!   that has none: it keeps the primary context of device 0, which the runtime library would use there anyway.

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use super::abi::graph::CAPTURE_RELAXED;
use super::abi::{Code, Context, Device, EVENT_DISABLE_TIMING, Event, Stream};
use super::apart::legacy_call;
use super::table::{AllTable, Api, Table};
use crate::errors::failed;
use crate::{DriverError, Result};

/// Why the device is lost, once it is. Host functions in flight hold it.
pub(super) type Lost = OnceLock<String>;

/// A GPU with its primary context.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) api: Api,
    pub(super) device: Device,
    context: Context,
    /// Whether the runtime library uses it on threads without a current context.
    is_first: bool,
    pub(super) lost: std::sync::Arc<Lost>,
}

/// While this lives, a context is current on this thread. Its drop makes the one before current again.
#[must_use]
pub(super) struct Entered<'a> {
    /// The functions, usable as long as this lives.
    pub(super) table: &'a Table,
    gpu: &'a Gpu,
    was_pushed: bool,
    /// The mode that the thread had before, where another was set.
    mode: Option<c_int>,
    /// Whether the current context is the primary one.
    is_primary: bool,
}

impl Entered<'_> {
    /// An error for a code other than success; a sticky one of the primary context loses the device (lost-for-good).
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        match code {
            Code::SUCCESS => Ok(()),
            _ if self.is_primary => Err(self.gpu.refusal(call, code)),
            _ => Err(failed(call, self.gpu.api.explain(code))),
        }
    }

    /// Makes an event.
    #[inline]
    pub(super) fn open_event(&self, call: &'static str, flags: c_uint) -> Result<Event> {
        let mut event = Event::default();
        // SAFETY: a place for an event (context-current).
        self.check(call, unsafe { (self.table.open_event)(&raw mut event, flags) })?;
        Ok(event)
    }

    /// Makes a stream.
    pub(super) fn open_stream(&self, call: &'static str, flags: c_uint, priority: c_int) -> Result<Stream> {
        let mut stream = Stream::default();
        let code = match priority {
            // SAFETY: a place for a stream (context-current).
            0 => unsafe { (self.table.open_stream)(&raw mut stream, flags) },
            // SAFETY: as above.
            _ => unsafe { (self.table.open_stream_with_priority)(&raw mut stream, flags, priority) },
        };
        self.check(call, code)?;
        Ok(stream)
    }

    /// Waits for all work of the context. Captures cannot begin or end meanwhile if the library has no
    /// `cuCtxRecordEvent`, or if something captures now.
    pub(super) fn synchronize(&self) -> Code {
        if let Some(Code::SUCCESS) = self.gpu.api.all.as_ref().map(|all| self.block_on_all(all)) {
            return Code::SUCCESS;
        }
        let _apart = legacy_call();
        // SAFETY: no argument that could be wrong (context-current).
        unsafe { (self.table.synchronize_context)() }
    }

    /// Records an event after all work that the context has, and waits for it.
    fn block_on_all(&self, all: &AllTable) -> Code {
        let (table, mut event) = (self.table, Event::default());
        // SAFETY: a place for an event (context-current).
        let mut code = unsafe { (table.open_event)(&raw mut event, EVENT_DISABLE_TIMING) };
        if code == Code::SUCCESS {
            // SAFETY: a retained context, and an event of it.
            code = unsafe { (all.record)(self.gpu.context, event) };
            if code == Code::SUCCESS {
                // SAFETY: as above.
                code = unsafe { (table.block_on_event)(event) };
            }
            // SAFETY: an event of ours, for the last time. A refusal leaves it to the context.
            let _ = unsafe { (table.close_event)(event) };
        }
        code
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.mode {
            // SAFETY: a place for a mode, which is one. A refusal leaves the thread free to do what captures forbid.
            let _ = unsafe { (self.table.exchange_mode)(mode) };
        }
        if self.was_pushed {
            let mut ours = Context::default();
            // SAFETY: `ours` is a place for a context. A refusal leaves our context current, which harms no caller that
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
        Ok(Self { api, device, context, is_first: ordinal == 0, lost: Default::default() })
    }

    /// Makes the primary context current for the calls to come (left-alone).
    ///
    /// # Errors
    /// The library refuses.
    #[inline]
    pub(super) fn enter(&self, call: &'static str) -> Result<Entered<'_>> {
        self.enter_other(call, self.context)
    }

    /// As [`enter`](Self::enter), for calls that a capture of the program's forbids as potentially unsafe, and that do
    /// not concern it: queries, and calls for memory. The thread's capture mode is relaxed meanwhile.
    pub(super) fn enter_apart(&self, call: &'static str) -> Result<Entered<'_>> {
        let mut entered = self.enter(call)?;
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: a place for a mode, which is one.
        self.check(call, unsafe { (entered.table.exchange_mode)(&raw mut mode) })?;
        entered.mode = Some(mode);
        Ok(entered)
    }

    /// As [`enter`](Self::enter), for another context of the device: that of a stream which the program made there.
    #[inline]
    pub(super) fn enter_other(&self, call: &'static str, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let mut current = Context::default();
        // SAFETY: a place for a context.
        self.check(call, unsafe { (table.current_context)(&raw mut current) })?;
        if current == context {
            return Ok(self.entered(context, false));
        }
        self.change_context(call, current, context)
    }

    /// Cold: a thread's first call, or one that uses several contexts.
    #[cold]
    fn change_context(&self, call: &'static str, current: Context, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let is_kept = current == Context::default() && context == self.context && self.is_first;
        let change = if is_kept { table.set_context } else { table.push_context };
        // SAFETY: ours is retained; another is its program's, which keeps it while its streams are used.
        let code = unsafe { change(context) };
        match context == self.context {
            true => self.check(call, code)?,
            false if code != Code::SUCCESS => return Err(failed(call, self.api.explain(code))),
            false => {}
        }
        Ok(self.entered(context, !is_kept))
    }

    fn entered(&self, context: Context, was_pushed: bool) -> Entered<'_> {
        Entered { table: &self.api.table, gpu: self, was_pushed, mode: None, is_primary: context == self.context }
    }

    /// Waits for all work of the context; whether that succeeded.
    pub(super) fn synchronize(&self) -> bool {
        self.enter_apart("close").is_ok_and(|entered| entered.synchronize() == Code::SUCCESS)
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
        entered.check(call, unsafe { (entered.table.context_device)(&raw mut device) })?;
        Ok(device == self.device)
    }

    /// An error for a code other than success; a sticky one loses the device.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.refusal(call, code)) }
    }

    /// Cold: the contract's error for a code.
    #[cold]
    pub(super) fn refusal(&self, call: &'static str, code: Code) -> DriverError {
        let is_of_another = code == Code::CONTEXT_IS_DESTROYED && self.is_alive();
        if code.is_sticky() && !is_of_another {
            let reason = self.lost.get_or_init(|| format!("{call}: {}", self.api.explain(code)));
            return DriverError::Lost { reason: reason.clone() };
        }
        failed(call, self.api.explain(code))
    }

    /// Whether the primary context is alive: a handle of a destroyed context gets the same code as the context.
    #[cold]
    fn is_alive(&self) -> bool {
        let (table, mut event, mut popped) = (&self.api.table, Event::default(), Context::default());
        // SAFETY: a context that is retained.
        if unsafe { (table.push_context)(self.context) } != Code::SUCCESS {
            return false;
        }
        // SAFETY: a place for an event (context-current).
        let is_alive = unsafe { (table.open_event)(&raw mut event, EVENT_DISABLE_TIMING) } == Code::SUCCESS;
        if is_alive {
            // SAFETY: an event of ours, for the last time.
            let _ = unsafe { (table.close_event)(event) };
        }
        // SAFETY: a place for a context, which was pushed above.
        let _ = unsafe { (table.pop_context)(&raw mut popped) };
        is_alive
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
