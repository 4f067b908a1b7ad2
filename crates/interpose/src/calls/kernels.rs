//! Launches of kernels: the addresses of known memory among their arguments.
//!
//! How long a kernel's parameters are is asked once for each function. Each eight bytes of them are looked up;
//! arguments that come as one buffer are all looked at. A kernel that gets an address is taken to use all of that
//! allocation, in a direction that is not known.

use std::ffi::{c_uint, c_void};

use millpond_core::op::{Mark, Name, Start, What};

use super::{list, read};
use crate::abi::*;
use crate::arguments::{Accesses, BUFFERED, Found, Kernel, Word};
use crate::ask;
use crate::session::{At, Session};

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
    at.note(|session| session.kernels.forget());
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
        let known = self.kernel_of(function);
        let Self { index, kernels, coverage, launch, kernel_act, .. } = self;
        let (mut none, mut unnamed) = (Accesses::new(), None);
        let (accesses, name) = match &mut launch.what {
            What::Launch { accesses, name, start: as_before, .. } => {
                *as_before = start;
                (accesses, name)
            }
            _ => (&mut none, &mut unnamed),
        };
        accesses.clear();
        let found = match kernels.at(known) {
            // SAFETY: the caller's promise.
            Some(kernel) => unsafe { kernel.arguments(params, extra, index, *kernel_act, accesses) },
            None => Found::default(),
        };
        *name = found.name;
        coverage.with_address += u64::from(!accesses.is_empty());
        coverage.without_information += u64::from(found.is_without_information);
        if let Some(word) = found.stale {
            self.note_stale(word, found.name);
        }
        if self.lost_captures > 0 && self.is_lost(stream) {
            return;
        }
        let stream = self.stream(at, stream);
        self.push_launch(stream);
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
        accesses: &mut Accesses,
    ) -> Option<Name> {
        let known = self.kernel_of(function);
        let kernel = self.kernels.at(known)?;
        // SAFETY: the caller's promise.
        let found = unsafe { kernel.arguments(params, extra, &self.index, self.kernel_act, accesses) };
        self.coverage.without_information += u64::from(found.is_without_information);
        if let Some(word) = found.stale {
            self.note_stale(word, found.name);
        }
        found.name
    }

    #[inline]
    fn kernel_of(&mut self, function: Function) -> u32 {
        match self.kernels.find(function) {
            Some(at) => at,
            None => self.ask_params(function),
        }
    }

    #[cold]
    fn note_stale(&mut self, Word { value, argument, bytes }: Word, name: Option<Name>) {
        let kernel = name.and_then(|name| self.names.text(name)).map_or("a kernel without a name", |name| name);
        let place = match argument {
            BUFFERED => "the arguments".to_owned(),
            at => format!("argument {}", at + 1),
        };
        self.note = Some(format!("{value:#x} is in {place} ({bytes} B) of {kernel}, which may not use it"));
    }

    #[cold]
    fn ask_params(&mut self, function: Function) -> u32 {
        let name = ask::name_of(function).map(|name| self.names.intern(&name));
        let bytes = ask::params_of(function).map(|all| all.iter().map(|bytes| *bytes as u32).collect());
        self.kernels.add(function, Kernel { bytes, name })
    }
}
