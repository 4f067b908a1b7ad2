//! One GPU for the other modules: the function table, the primary context, and the meaning of result codes.
//!
//! Knows neither memory nor streams.
//!
//! Invariants:
//! * `context-current`: a function of the table is called while the primary context is the thread's current one;
//! * `lost-for-good`: once a call in the primary context returned a sticky code, or a host function panicked, no more
//!   work is submitted. Queries and memory calls are still made: if the context itself is lost, it refuses them. Codes
//!   of other contexts, or of a context that the program has destroyed, do not lose the device;
//! * `left-alone`: after each call the thread's current context is the same as before. The one exception is a thread
//!   that has none: it keeps the primary context of device 0, which the runtime library would use there anyway.

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use super::abi::graph::CAPTURE_RELAXED;
use super::abi::{Code, Context, Device, EVENT_DISABLE_TIMING, Event, Stream};
use super::apart::legacy_call;
use super::table::{AllTable, Api, Table};
use crate::errors::failed;
use crate::{DriverError, Result};

/// The reason why the device is lost, once it is. Host functions in flight hold it.
pub(super) type Lost = OnceLock<String>;

/// A GPU with its primary context.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) api: Api,
    pub(super) device: Device,
    context: Context,
    /// `true` if the runtime library uses this device on threads without a current context.
    is_first: bool,
    pub(super) lost: std::sync::Arc<Lost>,
}

/// While this exists, a context is current on this thread. Its drop makes the former one current again.
#[must_use]
pub(super) struct Entered<'a> {
    /// The functions, which can be called as long as this exists.
    pub(super) table: &'a Table,
    gpu: &'a Gpu,
    was_pushed: bool,
    /// The thread's former mode, if another one was set.
    mode: Option<c_int>,
    /// `true` if the current context is the primary one.
    is_primary: bool,
}

impl Entered<'_> {
    /// Returns an error for a code other than success; a sticky code of the primary context loses the device
    /// (lost-for-good).
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        match code {
            Code::SUCCESS => Ok(()),
            _ if self.is_primary => Err(self.gpu.refusal(call, code)),
            _ => Err(failed(call, self.gpu.api.explain(code))),
        }
    }

    /// Creates an event.
    #[inline]
    pub(super) fn open_event(&self, call: &'static str, flags: c_uint) -> Result<Event> {
        let mut event = Event::default();
        // SAFETY: the pointer is valid for an event (context-current).
        self.check(call, unsafe { (self.table.open_event)(&raw mut event, flags) })?;
        Ok(event)
    }

    /// Creates a stream.
    pub(super) fn open_stream(&self, call: &'static str, flags: c_uint, priority: c_int) -> Result<Stream> {
        let mut stream = Stream::default();
        let code = match priority {
            // SAFETY: the pointer is valid for a stream (context-current).
            0 => unsafe { (self.table.open_stream)(&raw mut stream, flags) },
            // SAFETY: as above.
            _ => unsafe { (self.table.open_stream_with_priority)(&raw mut stream, flags, priority) },
        };
        self.check(call, code)?;
        Ok(stream)
    }

    /// Waits for all work of the context. Captures cannot begin or end during the wait if the library has no
    /// `cuCtxRecordEvent`, or if a stream captures now.
    pub(super) fn synchronize(&self) -> Code {
        if let Some(Code::SUCCESS) = self.gpu.api.all.as_ref().map(|all| self.block_on_all(all)) {
            return Code::SUCCESS;
        }
        let _apart = legacy_call();
        // SAFETY: no argument can be wrong (context-current).
        unsafe { (self.table.synchronize_context)() }
    }

    /// Records an event after all present work of the context, and waits for it.
    fn block_on_all(&self, all: &AllTable) -> Code {
        let (table, mut event) = (self.table, Event::default());
        // SAFETY: the pointer is valid for an event (context-current).
        let mut code = unsafe { (table.open_event)(&raw mut event, EVENT_DISABLE_TIMING) };
        if code == Code::SUCCESS {
            // SAFETY: a retained context, and an event of it.
            code = unsafe { (all.record)(self.gpu.context, event) };
            if code == Code::SUCCESS {
                // SAFETY: as above.
                code = unsafe { (table.block_on_event)(event) };
            }
            // SAFETY: an event of ours, which is not used again. If this fails, the context keeps it.
            let _ = unsafe { (table.close_event)(event) };
        }
        code
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.mode {
            // SAFETY: the pointer is valid for a mode, and holds one. If this fails, the thread may make calls that
            // captures forbid.
            let _ = unsafe { (self.table.exchange_mode)(mode) };
        }
        if self.was_pushed {
            let mut ours = Context::default();
            // SAFETY: the pointer is valid for a context. If this fails, our context stays current, which does no harm
            // to callers that set their own.
            let _ = unsafe { (self.table.pop_context)(&raw mut ours) };
        }
    }
}

impl Gpu {
    /// Retains the device's primary context, which other code in the process may use too.
    pub(super) fn new(api: Api, ordinal: u32) -> Result<Self> {
        const CALL: &str = "open CUDA";
        // SAFETY: no argument can be wrong.
        check(&api, CALL, unsafe { (api.table.init)(0) })?;
        let mut count = 0;
        // SAFETY: the pointer is valid for a number.
        check(&api, CALL, unsafe { (api.table.device_count)(&raw mut count) })?;
        let known = i32::try_from(ordinal).ok().filter(|&ordinal| ordinal < count);
        let ordinal =
            known.ok_or_else(|| failed(CALL, format!("there is no device {ordinal}: {count} are visible")))?;
        let (mut device, mut context) = (0, Context::default());
        // SAFETY: the pointer is valid for a device.
        check(&api, CALL, unsafe { (api.table.device)(&raw mut device, ordinal) })?;
        // SAFETY: the pointer is valid for a context, and the device exists.
        check(&api, CALL, unsafe { (api.table.retain_primary)(&raw mut context, device) })?;
        Ok(Self { api, device, context, is_first: ordinal == 0, lost: Default::default() })
    }

    /// Makes the primary context current for the following calls (left-alone).
    ///
    /// # Errors
    /// The library refuses.
    #[inline]
    pub(super) fn enter(&self, call: &'static str) -> Result<Entered<'_>> {
        self.enter_other(call, self.context)
    }

    /// As [`enter`](Self::enter), for calls that a capture of the program's forbids as potentially unsafe although they
    /// do not concern it: queries, and calls for memory. The thread's capture mode is relaxed until the drop.
    pub(super) fn enter_apart(&self, call: &'static str) -> Result<Entered<'_>> {
        let mut entered = self.enter(call)?;
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: the pointer is valid for a mode, and holds one.
        self.check(call, unsafe { (entered.table.exchange_mode)(&raw mut mode) })?;
        entered.mode = Some(mode);
        Ok(entered)
    }

    /// As [`enter`](Self::enter), for another context of the device: the one of a stream that the program created
    /// there.
    #[inline]
    pub(super) fn enter_other(&self, call: &'static str, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let mut current = Context::default();
        // SAFETY: the pointer is valid for a context.
        self.check(call, unsafe { (table.current_context)(&raw mut current) })?;
        if current == context {
            return Ok(self.entered(context, false));
        }
        self.change_context(call, current, context)
    }

    /// Cold: a thread's first call, or a thread that uses several contexts.
    #[cold]
    fn change_context(&self, call: &'static str, current: Context, context: Context) -> Result<Entered<'_>> {
        let table = &self.api.table;
        let is_kept = current == Context::default() && context == self.context && self.is_first;
        let change = if is_kept { table.set_context } else { table.push_context };
        // SAFETY: our context is retained. The program keeps another context of its own while that context's streams
        // are used.
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

    /// Waits for all work of the context. Returns `true` on success.
    pub(super) fn synchronize(&self) -> bool {
        self.enter_apart("close").is_ok_and(|entered| entered.synchronize() == Code::SUCCESS)
    }

    /// Returns the primary context.
    pub(super) fn context(&self) -> Context {
        self.context
    }

    /// Returns `true` if a context belongs to this device.
    pub(super) fn has_context(&self, call: &'static str, context: Context) -> Result<bool> {
        if context == self.context {
            return Ok(true);
        }
        let (entered, mut device) = (self.enter_other(call, context)?, Device::default());
        // SAFETY: the pointer is valid for a device (context-current, for the other context).
        entered.check(call, unsafe { (entered.table.context_device)(&raw mut device) })?;
        Ok(device == self.device)
    }

    /// Returns an error for a code other than success; a sticky code loses the device.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.refusal(call, code)) }
    }

    /// Returns the contract's error for a code.
    #[cold]
    pub(super) fn refusal(&self, call: &'static str, code: Code) -> DriverError {
        let is_of_another = code == Code::CONTEXT_IS_DESTROYED && self.is_alive();
        if code.is_sticky() && !is_of_another {
            let reason = self.lost.get_or_init(|| format!("{call}: {}", self.api.explain(code)));
            return DriverError::Lost { reason: reason.clone() };
        }
        failed(call, self.api.explain(code))
    }

    /// Returns `true` if the primary context is alive: a handle of a destroyed context gets the same code as the
    /// context itself.
    #[cold]
    fn is_alive(&self) -> bool {
        let (table, mut event, mut popped) = (&self.api.table, Event::default(), Context::default());
        // SAFETY: the context is retained.
        if unsafe { (table.push_context)(self.context) } != Code::SUCCESS {
            return false;
        }
        // SAFETY: the pointer is valid for an event (context-current).
        let is_alive = unsafe { (table.open_event)(&raw mut event, EVENT_DISABLE_TIMING) } == Code::SUCCESS;
        if is_alive {
            // SAFETY: an event of ours, which is not used again.
            let _ = unsafe { (table.close_event)(event) };
        }
        // SAFETY: the pointer is valid for a context, and one was pushed above.
        let _ = unsafe { (table.pop_context)(&raw mut popped) };
        is_alive
    }

    /// As [`refusal`](Self::refusal), for a call that requests this many bytes of memory.
    #[cold]
    pub(super) fn memory_refusal(&self, call: &'static str, code: Code, bytes: u64) -> DriverError {
        match code {
            Code::OUT_OF_MEMORY => DriverError::OutOfMemory { call, bytes },
            _ => self.refusal(call, code),
        }
    }

    /// Returns an error if the device is lost.
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
        // SAFETY: retained once, and released once. If this fails, the context stays until the process ends.
        let _ = unsafe { (self.api.table.release_primary)(self.device) };
    }
}

/// Returns an error for a code other than success, before a context exists that could be lost.
pub(super) fn check(api: &Api, call: &'static str, code: Code) -> Result<()> {
    if code == Code::SUCCESS { Ok(()) } else { Err(failed(call, api.explain(code))) }
}
