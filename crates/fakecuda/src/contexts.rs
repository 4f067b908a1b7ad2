//! The creation and destruction of contexts. Each context holds its device, which is dropped with the last of them,
//! with everything in it.

use std::sync::Arc;

use millpond_driver::cuda::abi::{Code, Context};

use crate::current;
use crate::device::open::{self, device};
use crate::device::{Device, end_handle, fresh_handle};

/// Returns the primary context of a device, and counts one more holder.
pub(crate) fn retain(ordinal: i32) -> Result<Context, Code> {
    open::retain(ordinal)?;
    Ok(current::primary(ordinal))
}

/// Creates a context, which becomes the current one.
pub(crate) fn create(ordinal: i32) -> Result<Context, Code> {
    open::retain(ordinal)?;
    let handle = fresh_handle();
    current::others().insert(handle, ordinal);
    current::push(Context(handle));
    Ok(Context(handle))
}

/// Destroys a context, with all its streams and events.
pub(crate) fn destroy(context: Context) -> Result<(), Code> {
    let ordinal = current::others().remove(&context.0).ok_or(Code::INVALID_CONTEXT)?;
    current::forget(context);
    end_handle(context.0);
    if let Some(device) = device(ordinal) {
        device.destroy_context(context)?;
    }
    open::release(ordinal)
}

/// Destroys everything in a primary context; the context can still be used.
pub(crate) fn reset(ordinal: i32) -> Result<(), Code> {
    open::check(ordinal)?;
    device(ordinal).map_or(Ok(()), |device| device.destroy_context(current::primary(ordinal)))
}

/// Returns the device of the thread's current context.
pub(crate) fn current_device() -> Result<Arc<Device>, Code> {
    device(current::ordinal()?).ok_or(Code::INVALID_CONTEXT)
}
