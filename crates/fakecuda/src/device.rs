//! One device: streams, events and work, on a host device.
//!
//! Knows the rules of default streams: the legacy one comes after all earlier work in blocking streams, and before
//! their later work. Handles are numbers that are not reused by default, so that a stale one is always noticed.
//!
//! Locks: `state` is not held while anything waits or runs.

mod all_work;
mod allocations;
mod events;
pub(crate) mod graphs;
pub(crate) mod open;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

use millpond_driver::cuda::abi::{Code, Context, Stream};
use millpond_driver::{CopyKind, Driver, HostConfig, HostDriver, RawEvent, RawStream, StreamFlags, Task, Work};

use crate::current;
use crate::kernels;
use crate::lock;
use crate::memory::{Memory, Side, answer};
use crate::settings::is_pageable;
use allocations::Allocations;
use events::EventState;
use graphs::{Action, Graphs};

pub(crate) use crate::handles::{end_handle, fresh_handle};
pub(crate) use millpond_driver::cuda::abi::graph::HostFunction;

/// The sides of a piece of work that are device memory.
pub(crate) type Sides = [Option<Side>; 2];

/// A device with all objects of its contexts.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: i32,
    pub(crate) host: HostDriver,
    state: Mutex<State>,
    /// Held by the host function that runs: one runs at a time.
    callbacks: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    streams: HashMap<usize, Open>,
    legacy: Option<RawStream>,
    per_thread: HashMap<ThreadId, RawStream>,
    /// The ends of closed streams, whose work continues.
    ended: Vec<RawEvent>,
    events: HashMap<usize, EventState>,
    pub(crate) memory: Memory,
    pub(crate) allocations: Allocations,
    pub(crate) graphs: Graphs,
    /// Returned by every call once the device is lost.
    pub(crate) fault: Option<Code>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    raw: RawStream,
    is_blocking: bool,
    priority: i32,
    context: Context,
}

thread_local! {
    static IS_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if the thread runs a host function.
pub(crate) fn is_callback() -> bool {
    IS_CALLBACK.get()
}

/// Runs a function of the program, which may not call in here.
pub(crate) fn as_callback(call: impl FnOnce()) {
    let was = IS_CALLBACK.replace(true);
    call();
    IS_CALLBACK.set(was);
}

impl State {
    pub(crate) fn check_open(&self, stream: Stream) -> Result<(), Code> {
        let is_default = matches!(stream, Stream(0) | Stream::LEGACY | Stream::PER_THREAD);
        if is_default || self.streams.contains_key(&stream.0) { Ok(()) } else { Err(Code::INVALID_HANDLE) }
    }

    /// Returns `true` if a stream captures that the legacy stream would come after.
    pub(crate) fn is_tie_captured(&self) -> bool {
        let is_tied = |stream| match stream {
            Stream::PER_THREAD => true,
            other => self.streams.get(&other.0).is_some_and(|open| open.is_blocking),
        };
        self.graphs.captures_any(is_tied)
    }
}

impl Device {
    pub(crate) fn new(ordinal: i32, total_bytes: u64) -> Result<Self, Code> {
        let host = HostDriver::new(HostConfig { total_bytes, ..HostConfig::default() });
        let host = host.map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(Self { ordinal, host, state: Mutex::default(), callbacks: Arc::default() })
    }

    /// Returns the state, or the code of a lost device.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>, Code> {
        let state = lock(&self.state);
        match state.fault {
            None => Ok(state),
            Some(code) => Err(code),
        }
    }

    /// Makes every later call return this code.
    pub(crate) fn lose(&self, code: Code) {
        lock(&self.state).fault.get_or_insert(code);
    }

    /// Calls a function with the memory; a sticky code that it returns loses the device.
    pub(crate) fn with_memory<T>(
        &self,
        act: impl FnOnce(&mut Memory, &HostDriver) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.check_unsafe()?;
        let mut state = self.state()?;
        let result = act(&mut state.memory, &self.host);
        if let Err(code) = result
            && code.is_sticky()
        {
            state.fault = Some(code);
        }
        result
    }

    pub(crate) fn open_stream(&self, is_blocking: bool, priority: i32) -> Result<Stream, Code> {
        let mut state = self.state()?;
        let raw = answer(self.host.open_stream(StreamFlags::default()))?;
        let handle = fresh_handle();
        state.streams.insert(handle, Open { raw, is_blocking, priority, context: current::context() });
        Ok(Stream(handle))
    }

    pub(crate) fn priority_of(&self, stream: Stream) -> Result<i32, Code> {
        self.state()?.streams.get(&stream.0).map(|open| open.priority).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn close_stream(&self, stream: Stream) -> Result<(), Code> {
        let mut state = self.state()?;
        let open = state.streams.remove(&stream.0).ok_or(Code::INVALID_HANDLE)?;
        end_handle(stream.0);
        let dropped = state.graphs.forget_stream(stream);
        state.allocations.drop_nodes(&dropped);
        let end = answer(self.host.record(open.raw))?;
        self.note_end(&mut state, end);
        if open.is_blocking {
            // Its work continues, and the legacy default stream must still come after it.
            let legacy = self.legacy(&mut state)?;
            self.put_after(legacy, open.raw)?;
        }
        answer(self.host.close_stream(open.raw))
    }

    /// Returns the context of a stream, if the stream belongs to this device.
    pub(crate) fn context_of(&self, stream: Stream) -> Option<Context> {
        Some(self.state().ok()?.streams.get(&stream.0)?.context)
    }

    /// Destroys the objects of a context once their work has completed.
    pub(crate) fn destroy_context(&self, context: Context) -> Result<(), Code> {
        self.wait_for_all()?;
        let mut state = self.state()?;
        state.events.retain(|handle, it| {
            let stays = it.context != context;
            if !stays {
                end_handle(*handle);
            }
            stays
        });
        kernels::forget(|kernel| kernel.context == context);
        let gone = state.allocations.of_context(context);
        gone.into_iter().try_for_each(|at| self.free_in(&mut state, at))?;
        let gone: Vec<usize> =
            state.streams.iter().filter(|(_, it)| it.context == context).map(|(it, _)| *it).collect();
        drop(state);
        gone.into_iter().try_for_each(|stream| self.close_stream(Stream(stream)))
    }

    /// Returns the host's stream for an operation, after it waits for the work that the default streams put before it.
    pub(crate) fn begin(&self, state: &mut State, stream: Stream) -> Result<RawStream, Code> {
        let open = match stream {
            Stream(0) | Stream::LEGACY => {
                let blocking: Vec<usize> =
                    state.streams.iter().filter(|(_, open)| open.is_blocking).map(|(handle, _)| *handle).collect();
                for handle in blocking {
                    state.graphs.spoil(Stream(handle), Code::CAPTURE_IMPLICIT)?;
                }
                let legacy = self.legacy(state)?;
                let blocking = state.streams.values().filter(|open| open.is_blocking).map(|open| open.raw);
                for raw in blocking.chain(state.per_thread.values().copied()) {
                    self.put_after(legacy, raw)?;
                }
                return Ok(legacy);
            }
            Stream::PER_THREAD => {
                Open { raw: self.per_thread(state)?, is_blocking: true, priority: 0, context: current::context() }
            }
            other => *state.streams.get(&other.0).ok_or(Code::INVALID_HANDLE)?,
        };
        if open.context != current::context() {
            return Err(Code::INVALID_HANDLE);
        }
        if let (true, Some(legacy)) = (open.is_blocking, state.legacy) {
            self.put_after(open.raw, legacy)?;
        }
        Ok(open.raw)
    }

    fn legacy(&self, state: &mut State) -> Result<RawStream, Code> {
        match state.legacy {
            Some(raw) => Ok(raw),
            None => Ok(*state.legacy.insert(answer(self.host.open_stream(StreamFlags::default()))?)),
        }
    }

    fn per_thread(&self, state: &mut State) -> Result<RawStream, Code> {
        let thread = std::thread::current().id();
        if let Some(raw) = state.per_thread.get(&thread) {
            return Ok(*raw);
        }
        let raw = answer(self.host.open_stream(StreamFlags::default()))?;
        state.per_thread.insert(thread, raw);
        Ok(raw)
    }

    fn put_after(&self, later: RawStream, earlier: RawStream) -> Result<(), Code> {
        answer(self.host.wait(later, answer(self.host.record(earlier))?))
    }

    /// Takes a place in a stream's order without work.
    pub(crate) fn finish_nothing(&self, stream: Stream) -> Result<(), Code> {
        let mut state = self.state()?;
        self.begin(&mut state, stream).map(drop)
    }

    /// Waits for all work that was submitted to a stream.
    pub(crate) fn finish(&self, stream: Stream) -> Result<(), Code> {
        self.state()?.graphs.spoil(stream, Code::CAPTURE_UNSUPPORTED)?;
        self.check_unsafe()?;
        let mut state = self.state()?;
        let raw = self.begin(&mut state, stream)?;
        let event = answer(self.host.record(raw))?;
        drop(state);
        answer(self.host.block_on(event))
    }

    /// Submits a copy or a fill that uses these parts of the memory. Returns its end, or `None` if a capture took it.
    fn submit(&self, stream: Stream, action: Action, work: Work, sides: Sides) -> Result<Option<RawEvent>, Code> {
        let mut state = self.state()?;
        if state.graphs.capture(stream, action)? {
            return Ok(None);
        }
        // Memory of another device is checked without this device's lock.
        let strangers: Vec<Side> = sides.into_iter().flatten().filter(|side| !state.memory.contains(side.at)).collect();
        for side in sides.into_iter().flatten().filter(|side| state.memory.contains(side.at)) {
            state.memory.check_use(self.ordinal, side)?;
        }
        drop(state);
        let mut foreign = Vec::new();
        for side in strangers {
            let owner = open::devices().filter(|(ordinal, _)| *ordinal != self.ordinal).find_map(|(_, device)| {
                let owns = device.state().ok()?.memory.contains(side.at);
                owns.then_some(device)
            });
            let owner = owner.ok_or(Code::INVALID_VALUE)?;
            owner.state()?.memory.check_use(self.ordinal, side)?;
            foreign.push((owner, side));
        }
        let mut state = self.state()?;
        let raw = self.begin(&mut state, stream)?;
        // SAFETY: device memory was just checked, and its use is recorded until the work has completed; for host memory
        // the caller promises this.
        answer(unsafe { self.host.submit(raw, &mut Some(work)) })?;
        let event = answer(self.host.record(raw))?;
        let over = answer(self.host.fence(event))?;
        for side in sides.into_iter().flatten().filter(|side| !foreign.iter().any(|(_, it)| it.at == side.at)) {
            state.memory.note_use(self.ordinal, over.clone(), side);
        }
        drop(state);
        for (owner, side) in foreign {
            owner.state()?.memory.note_use(self.ordinal, over.clone(), side);
        }
        Ok(Some(event))
    }

    pub(crate) fn fill(&self, stream: Stream, at: u64, bytes: u64, value: u8) -> Result<(), Code> {
        if bytes == 0 {
            return Ok(());
        }
        let (action, work) = (Action::Fill { at, bytes, value }, Work::Fill { at, bytes, value });
        self.submit(stream, action, work, [Some(Side { at, bytes, is_written: true }), None]).map(drop)
    }

    pub(crate) fn copy(&self, stream: Stream, to: u64, from: u64, bytes: u64, kind: CopyKind) -> Result<(), Code> {
        if bytes == 0 {
            return Ok(());
        }
        let (action, work) = (Action::Copy { to, from, bytes, kind }, Work::Copy { to, from, bytes, kind });
        let over = self.submit(stream, action, work, sides_of(to, from, bytes, kind))?;
        match over.filter(|_| kind != CopyKind::DeviceToDevice && is_pageable()) {
            Some(over) => answer(self.host.block_on(over)),
            None => Ok(()),
        }
    }

    pub(crate) fn host_function(&self, stream: Stream, function: HostFunction, data: *mut c_void) -> Result<(), Code> {
        let mut state = self.state()?;
        let data = data.expose_provenance();
        if state.graphs.capture(stream, Action::Host { function, data })? {
            return Ok(());
        }
        let raw = self.begin(&mut state, stream)?;
        // SAFETY: the work touches no device memory.
        answer(unsafe { self.host.submit(raw, &mut Some(Work::Run(self.host_task(function, data)))) })
    }

    /// Makes a stream take this many nanoseconds. Unlike a kernel of the program, which is a host function here, this
    /// lets the kernels of other streams run meanwhile.
    pub(crate) fn delay(&self, stream: Stream, nanoseconds: u64) -> Result<(), Code> {
        let mut state = self.state()?;
        if state.graphs.capture(stream, Action::Delay(nanoseconds))? {
            return Ok(());
        }
        let raw = self.begin(&mut state, stream)?;
        // SAFETY: the work touches no memory.
        answer(unsafe { self.host.submit(raw, &mut Some(Work::Run(delay_task(nanoseconds)))) })
    }

    /// Returns a host function as work of the host device.
    pub(crate) fn host_task(&self, function: HostFunction, data: usize) -> Task {
        let callbacks = self.callbacks.clone();
        Box::new(move || {
            let _one_at_a_time = lock(&callbacks);
            // SAFETY: the caller's promise: the function may be called with this data, on any thread.
            as_callback(|| unsafe { function(std::ptr::with_exposed_provenance_mut(data)) });
        })
    }
}

/// Returns work that only takes time.
pub(crate) fn delay_task(nanoseconds: u64) -> Task {
    Box::new(move || std::thread::sleep(Duration::from_nanos(nanoseconds)))
}

/// Returns the sides of a copy that are device memory.
pub(crate) fn sides_of(to: u64, from: u64, bytes: u64, kind: CopyKind) -> Sides {
    let (to, from) = (Side { at: to, bytes, is_written: true }, Side { at: from, bytes, is_written: false });
    match kind {
        CopyKind::HostToDevice => [Some(to), None],
        CopyKind::DeviceToHost => [Some(from), None],
        CopyKind::DeviceToDevice => [Some(to), Some(from)],
    }
}
