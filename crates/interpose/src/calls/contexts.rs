//! Contexts: waited for, and destroyed with all that is in them.

use millpond_core::ids::DeviceId;
use millpond_core::op::What;

use crate::abi::{Code, Context};
use crate::ask;
use crate::index::Kind;
use crate::session::{At, Session};

/// `cuCtxSynchronize_v2`
pub(crate) fn synchronize(at: &At, real: impl FnOnce() -> Code, context: Context) -> Code {
    let code = real();
    let device = if context == Context::default() { ask::current_device() } else { ask::device_of(context) };
    at.done(code, |session| session.synchronize_device(device))
}

impl Session {
    /// The host has waited for all work of a device.
    pub(crate) fn synchronize_device(&mut self, device: i32) {
        self.push(What::SynchronizeDevice { device: DeviceId(device as u32) });
    }

    /// Everything of a device is gone.
    pub(crate) fn lose(&mut self, device: i32) {
        self.synchronize_device(device);
        let gone: Vec<_> =
            self.index.living().filter(|it| it.device() == device).map(|it| (it.memory(), it.kind)).collect();
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
