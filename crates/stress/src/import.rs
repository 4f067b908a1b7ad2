//! The one call that is not safe: memory of another process is imported.

use millpond::share::Ticket;
use millpond::{Buffer, Device, Result};

/// Imports a buffer.
#[allow(unsafe_code)] // See the file.
pub(crate) fn import(device: &Device, ticket: &Ticket) -> Result<Buffer<u8>> {
    // SAFETY: the program that random operations make orders all uses of its processes that conflict, or finds that
    // they are refused; where a process is killed in the middle, what it wrote is not looked at.
    unsafe { device.import(ticket) }
}
