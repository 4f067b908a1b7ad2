//! Memory for programs that do not know Millpond: the files of the chunks under a buffer.
//!
//! No importer is counted and nothing is ordered: what a ticket does, the program does here.

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
    /// Whoever holds it, or has it mapped, keeps the memory alive, in whatever process.
    pub file: OwnedFd,
    /// The size of the memory behind it in bytes: it is mapped whole.
    pub chunk_bytes: u64,
    /// Where the buffer's part of it begins, in bytes: 0 but in the first.
    pub offset: u64,
    /// How long the buffer's part of it is, in bytes. The rest are other allocations, or nothing.
    pub bytes: u64,
}

impl<T: Pod> Buffer<T> {
    /// The memory under this buffer as files, for programs that do not know Millpond (CUDA:
    /// `cuMemExportToShareableHandle` of each chunk). Mapped behind one another they have the buffer in one piece, from
    /// the first one's offset on.
    ///
    /// For processes with Millpond there are tickets ([`export`](Self::export)): they count who holds the memory, and
    /// say what is ordered. Files do neither: keep the buffer until the other program is done. Once it is freed, its
    /// bytes are the pool's next allocations'; the files stay valid, and reach those.
    ///
    /// # Errors
    /// As of [`export`](Self::export), and what the driver refuses.
    ///
    /// # Safety
    /// No process with these files, or copies of them, reads bytes of a chunk that this process writes at the same
    /// time, or writes bytes that this process uses at the same time; no process writes to what is not the buffer's.
    #[allow(unsafe_code)] // It hands the caller's promise on and does nothing unsafe itself.
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
