//! Contexts come and go. Each holds its device, which goes with the last of them, and all that is in it.

use std::sync::Arc;

use millpond_driver::cuda::abi::{Code, Context};

use crate::current;
use crate::device::open::{self, device};
use crate::device::{Device, fresh_handle};

/// The primary context of a device, for one more holder.
pub(crate) fn retain(ordinal: i32) -> Result<Context, Code> {
    open::retain(ordinal)?;
    Ok(current::primary(ordinal))
}

/// Makes a context, which becomes the current one.
pub(crate) fn create(ordinal: i32) -> Result<Context, Code> {
    open::retain(ordinal)?;
    let handle = fresh_handle();
    current::others().insert(handle, ordinal);
    current::push(Context(handle));
    Ok(Context(handle))
}

/// A context goes, and all streams and events in it.
pub(crate) fn destroy(context: Context) -> Result<(), Code> {
    let ordinal = current::others().remove(&context.0).ok_or(Code::INVALID_CONTEXT)?;
    current::forget(context);
    if let Some(device) = device(ordinal) {
        device.destroy_context(context)?;
    }
    open::release(ordinal)
}

/// The device of the thread's current context.
pub(crate) fn current_device() -> Result<Arc<Device>, Code> {
    device(current::ordinal()?).ok_or(Code::INVALID_CONTEXT)
}
