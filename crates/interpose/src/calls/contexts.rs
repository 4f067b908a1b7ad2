//! Contexts: synchronised, and destroyed with all that is in them.

use std::ffi::c_int;

use millpond_core::ids::DeviceId;
use millpond_core::op::What;

use crate::abi::{Code, Context, Stream};
use crate::ask;
use crate::handles::Handles;
use crate::index::{Entry, Kind};
use crate::session::{At, Session};

/// `cuCtxSynchronize_v2`
pub(crate) fn synchronize(at: &At, real: impl FnOnce() -> Code, context: Context) -> Code {
    let code = real();
    let device = if context == Context::default() { ask::current_device() } else { ask::device_of(context) };
    at.done(code, |session| session.synchronize_device(device))
}

impl Session {
    /// Notes that the host has waited for all work of a device.
    pub(crate) fn synchronize_device(&mut self, device: i32) {
        self.push(What::SynchronizeDevice { device: DeviceId(device as u32) });
    }

    /// Ends everything in a device's contexts, and all pools of the device.
    pub(crate) fn lose_device(&mut self, device: i32) {
        let is_gone = |handles: &Handles, home| handles.device_of(home) == device;
        self.kernels.forget();
        self.lose(device, is_gone, |_| true);
        self.handles.current_pools.remove(&device);
    }

    /// Ends what is in a context. Pools' memory and mappings belong to the device and stay.
    fn lose_context(&mut self, gone: Option<u32>) {
        // It is not known which functions belonged to the context.
        self.kernels.forget();
        let Some(gone) = gone else { return };
        let is_gone = |_: &Handles, home| home == gone;
        self.lose(self.handles.device_of(gone), is_gone, |kind| {
            matches!(kind, Kind::Device | Kind::Managed | Kind::Host)
        });
    }

    /// Ends streams and memory of contexts, once all of their work has completed.
    fn lose(&mut self, device: i32, is_gone: impl Fn(&Handles, u32) -> bool, goes: impl Fn(Kind) -> bool) {
        let streams = self.handles.streams.iter().filter(|it| is_gone(&self.handles, it.1.1));
        let streams: Vec<Stream> = streams.map(|it| *it.0).collect();
        streams.into_iter().for_each(|stream| self.end_stream(stream, false));
        if self.captures.is_empty() {
            self.synchronize_device(device);
        }
        let memory = self.index.living().filter(|it| goes(it.kind) && is_gone(&self.handles, it.home));
        let memory: Vec<Entry> = memory.copied().collect();
        for entry in memory {
            let memory = entry.memory();
            self.index.free(memory);
            self.index.forget(memory);
            match entry.kind {
                Kind::Node => self.note_void(&entry),
                _ => self.push(What::Drop { memory }),
            }
        }
    }
}

/// `cuCtxDestroy`: the next context may get the same handle at once.
pub(crate) fn destroy(at: &At, real: impl FnOnce() -> Code, context: Context) -> Code {
    let home = at.note(|session| session.handles.take_home(context));
    let code = real();
    at.settle(|session| match code {
        Code::SUCCESS => session.lose_context(home),
        _ => home.into_iter().for_each(|home| session.handles.put_home_back(home)),
    });
    code
}

/// `cuDevicePrimaryCtxRelease`: the primary context ends with its last holder.
pub(crate) fn release(at: &At, real: impl FnOnce() -> Code, device: c_int) -> Code {
    let context = ask::primary_of(device);
    let code = real();
    at.done(code, |session| {
        if let Some(context) = context.filter(|_| !ask::is_primary_active(device)) {
            let home = session.handles.take_home(context);
            session.lose_context(home);
        }
    })
}
