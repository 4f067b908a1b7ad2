//! Launches of kernels: the addresses of known memory among their arguments.
//!
//! The sizes of a kernel's parameters are asked for once for each function. Each word of eight bytes is looked up;
//! arguments that come as one buffer are searched whole. A kernel that gets an address is assumed to use all of that
//! allocation; whether it reads or writes is not known.

use std::ffi::c_void;

use millpond_core::op::{EventKind, Name, What};

use super::list;
use crate::abi::*;
use crate::arguments::{Accesses, BUFFERED, Kernel, Known, Stale};
use crate::ask;
use crate::kernel_name;
use crate::session::{At, Session};

impl Session {
    /// Notes a launch with attributes.
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
        self.coverage.early += u64::from(is_early);
        // SAFETY: the caller's arguments.
        unsafe { self.kernel(at, function, config.stream, params, extra) };
        for attribute in attributes.iter().filter(|it| matches!(it.id, ATTRIBUTE_EVENT | ATTRIBUTE_STARTED)) {
            let event = self.event(Event(attribute.value[0] as usize));
            let stream = self.stream(at, config.stream);
            self.push(What::EventRecord { event, stream, external: false, kind: EventKind::Progress });
        }
    }

    /// Notes a launch.
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
    ) {
        self.coverage.launches += 1;
        let known = self.kernel_of(function);
        let origin = match self.captures.is_empty() {
            true => None,
            false => self.origin_of(at, stream),
        };
        self.search.set_for_node(origin.is_some());
        let Self { index, kernels, coverage, launch, kernel_act, search, sink, .. } = self;
        let What::Launch { accesses, name, .. } = &mut launch.what else { return };
        accesses.clear();
        let Some(kernel) = kernels.at(known) else { return };
        let mut known = Known { index, ahead: sink.ahead(), act: *kernel_act, accesses };
        // SAFETY: the caller's promise.
        let is_known = unsafe { kernel.arguments(params, extra, search, &mut known) };
        let has_address = !known.accesses.is_empty() || !search.pointed_at().is_empty();
        coverage.with_address += u64::from(has_address);
        coverage.without_information += u64::from(!is_known);
        *name = kernel.name();
        if let Some(word) = search.stale() {
            let name = *name;
            self.note_stale(word, name);
        }
        if let Some(capture) = origin.and_then(|origin| self.captures.get_mut(&origin)) {
            if capture.is_lost {
                return;
            }
            capture.pointed_at.extend(self.search.pointed_at());
        }
        let stream = self.stream(at, stream);
        if self.handles.has_devices() {
            self.ask_for_peers();
        }
        self.push_launch(stream);
    }

    /// Finds the addresses among the arguments of a node's kernel. If one is of freed memory, the call's note says
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
    ) {
        let known = self.kernel_of(function);
        self.search.set_for_node(true);
        let Some(kernel) = self.kernels.at(known) else { return };
        let ahead = self.sink.ahead();
        let mut known = Known { index: &mut self.index, ahead, act: self.kernel_act, accesses };
        // SAFETY: the caller's promise.
        let is_known = unsafe { kernel.arguments(params, extra, &mut self.search, &mut known) };
        self.coverage.without_information += u64::from(!is_known);
        if let Some(word) = self.search.stale() {
            let name = kernel.name();
            self.note_stale(word, name);
        }
    }

    #[inline]
    fn kernel_of(&mut self, function: Function) -> u32 {
        match self.kernels.find(function) {
            Some(at) => at,
            None => self.ask_params(function),
        }
    }

    #[cold]
    fn note_stale(&mut self, Stale { value, argument, bytes }: Stale, name: Option<Name>) {
        let kernel = name.and_then(|name| self.names.text(name)).map_or("a kernel without a name", |name| name);
        let place = match argument {
            BUFFERED => "the arguments".to_owned(),
            at => format!("argument {}", at + 1),
        };
        self.note = Some(format!("{value:#x} is in {place} ({bytes} B) of {kernel}, which may not use it"));
    }

    #[cold]
    fn ask_params(&mut self, function: Function) -> u32 {
        let text = ask::name_of(function);
        let name = text.as_ref().map(|text| self.names.intern(&kernel_name::short(&kernel_name::readable(text))));
        let bytes = ask::params_of(function);
        self.kernels.add(function, Kernel::new(name, text.as_deref().unwrap_or_default(), bytes.as_deref()))
    }
}
