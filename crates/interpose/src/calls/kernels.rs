//! Launches of kernels: the addresses of known memory among their arguments.
//!
//! How long a kernel's parameters are is asked once for each function. Each eight bytes of them are looked up;
//! arguments that come as one buffer are all looked at. A kernel that gets an address is taken to use all of that
//! allocation, in a direction that is not known.

use std::ffi::c_void;

use millpond_core::op::{Mark, Name, Start, What};

use super::list;
use crate::abi::*;
use crate::arguments::{Accesses, BUFFERED, Found, Kernel, Word};
use crate::ask;
use crate::session::{At, Session};

impl Session {
    /// A kernel with attributes.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernelEx`.
    pub(crate) unsafe fn launch_ex(
        &mut self,
        at: &At,
        config: LaunchConfig,
        function: Function,
        params: *const *const c_void,
        extra: *const *const c_void,
    ) {
        // SAFETY: the caller's list.
        let attributes = unsafe { list(config.attributes, config.count as usize) };
        let is_early = attributes.iter().any(|it| it.id == ATTRIBUTE_EARLY && it.value[0] as u32 != 0);
        let start = if is_early { Start::Early } else { Start::Ordered };
        // SAFETY: the caller's arguments.
        unsafe { self.kernel(at, function, config.stream, params, extra, start) };
        for attribute in attributes.iter().filter(|it| matches!(it.id, ATTRIBUTE_EVENT | ATTRIBUTE_STARTED)) {
            let event = self.event(Event(attribute.value[0] as usize));
            let stream = self.stream(at, config.stream);
            self.push(What::EventRecord { event, stream, external: false, mark: Mark::Progress });
        }
    }

    /// A kernel.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    pub(crate) unsafe fn kernel(
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
