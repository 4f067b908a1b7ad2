//! Memory for programs that do not know Millpond: the files of the chunks under a buffer.
//!
//! No importer is counted and nothing is ordered: the program does here what a ticket does otherwise.

use std::os::fd::OwnedFd;

use bytemuck::Pod;
use millpond_core::units::Range;
use millpond_driver::Driver;

use crate::Buffer;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::listening::expose;

/// A chunk of memory under a buffer, as a file.
///
/// On CUDA it is a handle of the type `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: any program imports it with
/// `cuMemImportFromShareableHandle` and maps it whole. On a host device it is a file in memory, for `mmap`.
#[derive(Debug)]
#[non_exhaustive]
pub struct MemoryFile {
    /// The file. Any process that holds it or has it mapped keeps the memory alive.
    pub file: OwnedFd,
    /// The size of the memory of the file in bytes. It is mapped as a whole.
    pub chunk_bytes: u64,
    /// The offset of the buffer's part in it, in bytes: 0 except in the first file.
    pub offset: u64,
    /// The length of the buffer's part in it, in bytes. The rest is other allocations, or nothing.
    pub bytes: u64,
}

impl<T: Pod> Buffer<T> {
    /// Returns the memory under this buffer as files, for programs that do not know Millpond (CUDA:
    /// `cuMemExportToShareableHandle` of each chunk). If the files are mapped one after the other, the buffer is one
    /// piece from the first file's offset on.
    ///
    /// For processes with Millpond there are tickets ([`export`](Self::export)), which count the users of the memory
    /// and carry the order. Files do neither: keep the buffer until the other program is done. Once it is freed, the
    /// pool gives its bytes to the next allocations; the files stay valid and then reach those.
    ///
    /// # Errors
    /// As for [`export`](Self::export), and errors of the driver.
    ///
    /// # Safety
    /// No process with these files, or copies of them, reads bytes of a chunk while this process writes them, or
    /// writes bytes while this process uses them. No process writes to bytes outside the buffer.
    #[allow(unsafe_code)] // Passes the caller's promise on and does nothing unsafe itself.
    pub unsafe fn export_files(&self) -> Result<Vec<MemoryFile>> {
        let (owned, pool, bytes) = self.shareable()?;
        let none = || ShareError::NotExportable { what: owned.allocation.id.to_string(), why: "it has no memory now" };
        let mut heap = pool.lock();
        let (parts, mut offset) = heap.parts(pool.id.0, Range::new(owned.address, bytes)).ok_or_else(none)?;
        let mut rest = bytes;
        let mut files = Vec::with_capacity(parts.len());
        for part in parts {
            let chunk = heap.chunk_of(part.chunk.serial).ok_or_else(none)?;
            let here = rest.min(part.bytes - offset);
            let file = pool.context.driver.export(chunk)?;
            files.push(MemoryFile { file, chunk_bytes: part.bytes, offset, bytes: here });
            (rest, offset) = (rest - here, 0);
        }
        expose(&mut owned.allocation.life(), &mut heap, &owned.allocation, pool);
        Ok(files)
    }
}
