//! Contexts: waited for, and destroyed with all that is in them.

use std::ffi::c_int;

use millpond_core::ids::DeviceId;
use millpond_core::op::What;

use crate::abi::{Code, Context};
use crate::ask;
use crate::index::Kind;
use crate::session::{At, Session};

/// `cuCtxSynchronize`
pub(crate) unsafe fn synchronize(at: &At, real: impl FnOnce() -> Code) -> Code {
    at.done(real(), |session| session.push(What::SynchronizeDevice { device: DeviceId(ask::current_device() as u32) }))
}

/// `cuCtxSynchronize_v2`
pub(crate) unsafe fn synchronize_v2(at: &At, real: impl FnOnce() -> Code, context: Context) -> Code {
    let code = real();
    let device = if context == Context::default() { ask::current_device() } else { ask::device_of(context) };
    at.done(code, |session| session.push(What::SynchronizeDevice { device: DeviceId(device as u32) }))
}

/// `cuCtxDestroy`: streams and memory of a context are not distinguished from those of the device's other contexts, and
/// are taken to be there still.
pub(crate) unsafe fn destroy(at: &At, real: impl FnOnce() -> Code, _context: Context) -> Code {
    at.done(real(), |session| session.unsupported("cuCtxDestroy"))
}

/// `cuDevicePrimaryCtxReset`
pub(crate) unsafe fn reset(at: &At, real: impl FnOnce() -> Code, device: c_int) -> Code {
    at.done(real(), |session| session.lose(device))
}

impl Session {
    /// Everything of a device is gone.
    fn lose(&mut self, device: i32) {
        self.push(What::SynchronizeDevice { device: DeviceId(device as u32) });
        let gone: Vec<_> =
            self.index.living().filter(|it| it.device == device).map(|it| (it.memory, it.kind)).collect();
        for (memory, kind) in gone {
            self.index.free(memory);
            if kind != Kind::Node {
                self.push(What::Drop { memory });
            }
        }
        let streams: Vec<_> =
            self.handles.streams.iter().filter(|it| it.1.1 == device).map(|it| (*it.0, it.1.0)).collect();
        self.handles.last_stream = None;
        for (handle, stream) in streams {
            self.handles.streams.remove(&handle);
            self.push(What::StreamDestroy { stream });
        }
    }
}
