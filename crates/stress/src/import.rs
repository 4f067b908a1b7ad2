//! The one unsafe call: the import of another process's memory.

use millpond::share::Ticket;
use millpond::{Buffer, Device, Result};

/// Imports a buffer.
#[allow(unsafe_code)] // See the file.
pub(crate) fn import(device: &Device, ticket: &Ticket) -> Result<Buffer<u8>> {
    // SAFETY: the program of random operations orders all conflicting uses of its processes, or checks that they are
    // refused. If a process is killed meanwhile, the bytes that it wrote are not read.
    unsafe { device.import(ticket) }
}
