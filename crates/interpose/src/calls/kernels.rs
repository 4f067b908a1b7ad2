//! Launches of kernels: the addresses of known memory among their arguments.
//!
//! How long a kernel's parameters are is asked once for each function. Each eight bytes of them are looked up;
//! arguments that come as one buffer are all looked at. A kernel that gets an address is taken to use all of that
//! allocation, in a direction that is not known.

use std::ffi::{c_uint, c_void};

use millpond_core::op::{Access, Mark, Part, Start, What};
use smallvec::SmallVec;

use super::{list, read};
use crate::abi::*;
use crate::ask;
use crate::session::{At, Params, Session};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const BUFFER: usize = 1;
const BUFFER_BYTES: usize = 2;

/// Longer arguments are structures that programs fill in part. What is left of others in the rest may be addresses of
/// memory that is freed: those do not count.
const FILLED_MAX: usize = 64;

/// `cuLaunchKernel`
pub(crate) unsafe fn launch(
    at: &At,
    real: impl FnOnce() -> Code,
    function: Function,
    _gx: c_uint,
    _gy: c_uint,
    _gz: c_uint,
    _bx: c_uint,
    _by: c_uint,
    _bz: c_uint,
    _shared: c_uint,
    stream: Stream,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Code {
    // SAFETY: the caller's arguments.
    at.done(real(), |session| unsafe { session.kernel(at, function, stream, params, extra, Start::Ordered) })
}

/// `cuLaunchCooperativeKernel`
pub(crate) unsafe fn launch_cooperative(
    at: &At,
    real: impl FnOnce() -> Code,
    function: Function,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    params: *const *const c_void,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { launch(at, real, function, gx, gy, gz, bx, by, bz, shared, stream, params, std::ptr::null()) }
}

/// `cuLaunchKernelEx`
pub(crate) unsafe fn launch_ex(
    at: &At,
    real: impl FnOnce() -> Code,
    config: *const LaunchConfig,
    function: Function,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(config) = (unsafe { read(config) }) else { return };
        // SAFETY: the caller's list.
        let attributes = unsafe { list(config.attributes, config.count as usize) };
        let is_early = attributes.iter().any(|it| it.id == ATTRIBUTE_EARLY && it.value[0] as u32 != 0);
        let start = if is_early { Start::Early } else { Start::Ordered };
        // SAFETY: the caller's arguments.
        unsafe { session.kernel(at, function, config.stream, params, extra, start) };
        for attribute in attributes.iter().filter(|it| matches!(it.id, ATTRIBUTE_EVENT | ATTRIBUTE_STARTED)) {
            let event = session.event(Event(attribute.value[0] as usize));
            let stream = session.stream(at, config.stream);
            session.push(What::EventRecord { event, stream, external: false, mark: Mark::Progress });
        }
    })
}

/// `cuModuleUnload`, `cuLibraryUnload`: handles of functions may mean others from now on.
pub(crate) unsafe fn unload(at: &At, real: impl FnOnce() -> Code, _module: usize) -> Code {
    at.note(|session| session.params.clear());
    real()
}

impl Session {
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    unsafe fn kernel(
        &mut self,
        at: &At,
        function: Function,
        stream: Stream,
        params: *const *const c_void,
        extra: *const *const c_void,
        start: Start,
    ) {
        self.coverage.launches += 1;
        let mut accesses = SmallVec::new();
        // SAFETY: the caller's promise.
        let name = unsafe { self.arguments(function, params, extra, &mut accesses) };
        if !accesses.is_empty() {
            self.coverage.with_address += 1;
        }
        if self.lost_captures > 0 && self.is_lost(stream) {
            return;
        }
        let stream = self.stream(at, stream);
        self.push(What::Launch { stream, accesses, start, name });
    }

    /// Finds the addresses among a kernel's arguments; its name. Where one is of freed memory, the call's note says
    /// which.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    pub(crate) unsafe fn arguments(
        &mut self,
        function: Function,
        params: *const *const c_void,
        extra: *const *const c_void,
        accesses: &mut SmallVec<[Access; 2]>,
    ) -> Option<millpond_core::op::Name> {
        if !self.params.contains_key(&function) {
            self.ask_params(function);
        }
        let known = self.params.get(&function)?;
        let act = self.kernel_act();
        let mut stale = None;
        let mut look = |number: Option<usize>, at: usize, bytes: usize| {
            // Pointers are aligned in an argument; where the host keeps that need not be.
            for word in (0..bytes / 8).map(|word| at + 8 * word) {
                // SAFETY: inside an argument of the caller's.
                let value = unsafe { std::ptr::with_exposed_provenance::<u64>(word).read_unaligned() };
                if let Some(entry) = self.index.touched(value)
                    && (entry.is_live || bytes <= FILLED_MAX)
                    && !accesses.iter().any(|it| it.memory == entry.memory)
                {
                    if !entry.is_live {
                        stale = Some((number, bytes, value));
                    }
                    accesses.push(Access { memory: entry.memory, act, part: Part::WHOLE });
                }
            }
        };
        match &known.bytes {
            Some(all) if !params.is_null() => {
                for (at, bytes) in all.iter().enumerate() {
                    // SAFETY: as many arguments as the kernel takes.
                    let argument = unsafe { *params.add(at) };
                    look(Some(at), argument.addr(), *bytes);
                }
            }
            // SAFETY: the caller's list.
            _ if !extra.is_null() => match unsafe { buffer_of(extra) } {
                Some((at, bytes)) => look(None, at, bytes),
                None => self.coverage.without_information += 1,
            },
            Some(all) if all.is_empty() => {}
            _ if params.is_null() => {}
            _ => self.coverage.without_information += 1,
        }
        let name = known.name;
        if let Some((number, bytes, value)) = stale {
            let kernel = name.and_then(|name| self.names.text(name)).map_or("a kernel without a name", |name| name);
            let place = number.map_or_else(|| "the arguments".to_owned(), |at| format!("argument {}", at + 1));
            self.note = Some(format!("{value:#x} is in {place} ({bytes} B) of {kernel}, which may not use it"));
        }
        name
    }

    #[cold]
    fn ask_params(&mut self, function: Function) {
        let name = ask::name_of(function).map(|name| self.names.intern(&name));
        self.params.insert(function, Params { bytes: ask::params_of(function), name });
    }
}

/// Arguments that come as one buffer.
///
/// # Safety
/// A list of keys and values that ends in null.
unsafe fn buffer_of(extra: *const *const c_void) -> Option<(usize, usize)> {
    let (mut start, mut bytes) = (None, None);
    for pair in 0..8 {
        // SAFETY: not behind the end.
        let key = unsafe { *extra.add(2 * pair) }.addr();
        if key == 0 {
            break;
        }
        // SAFETY: a value follows each key.
        let value = unsafe { *extra.add(2 * pair + 1) };
        match key {
            BUFFER => start = Some(value.addr()),
            // SAFETY: it is the address of the size.
            BUFFER_BYTES => bytes = Some(unsafe { *value.cast::<usize>() }),
            _ => {}
        }
    }
    start.zip(bytes)
}
