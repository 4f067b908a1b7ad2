//! The system calls of the host device's memory, each as one function with its conditions. No bookkeeping.
//!
//! Why a memory file and not anonymous memory: one chunk can be mapped at several addresses at once, it outlives
//! its mappings, and it can be handed to another process.

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;

use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};

/// Reserves addresses; touching them faults. They cost nothing.
pub(super) fn reserve(bytes: usize) -> Result<u64> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without an address the system picks an unused place.
    let at = unsafe { mm::mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }?;
    Ok(at.expose_provenance() as u64)
}

/// Gives addresses back to the system, whatever is mapped there.
///
/// # Safety
/// `at..at + bytes` is whole pages inside one [`reserve`], and nothing uses them any more.
pub(super) unsafe fn release(at: u64, bytes: usize) -> Result<()> {
    // SAFETY: the caller's condition.
    unsafe { mm::munmap(pointer(at), bytes) }
}

/// Puts `bytes` of a file from `offset` on at `at`, readable and writable, in place of what was there.
///
/// # Safety
/// `at..at + bytes` is whole pages inside one [`reserve`], and nothing uses what was there.
pub(super) unsafe fn map(at: u64, bytes: usize, file: impl AsFd, offset: u64) -> Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller's condition: `FIXED` replaces only pages of our own reservation.
    unsafe { mm::mmap(pointer(at), bytes, protection, flags, file, offset) }.map(drop)
}

/// Makes `at..at + bytes` reserved addresses again.
///
/// # Safety
/// As of [`map`].
pub(super) unsafe fn unmap(at: u64, bytes: usize) -> Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller's condition: `FIXED` replaces only pages of our own reservation.
    unsafe { mm::mmap_anonymous(pointer(at), bytes, ProtFlags::empty(), flags) }.map(drop)
}

/// Allows or forbids access to mapped pages.
///
/// # Safety
/// `at..at + bytes` is whole pages, mapped by [`map`], that only work ordered with this call uses.
pub(super) unsafe fn protect(at: u64, bytes: usize, allowed: bool) -> Result<()> {
    let flags = if allowed { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::empty() };
    // SAFETY: the caller's condition.
    unsafe { mm::mprotect(pointer(at), bytes, flags) }
}

/// A memory file of no bytes that can grow; it has no name and ends with its last holder.
pub(super) fn open_file() -> Result<OwnedFd> {
    fs::memfd_create("millpond", MemfdFlags::CLOEXEC)
}

/// A memory file of exactly `bytes`, which nobody who gets hold of it can resize: a holder in another process must
/// not be able to take pages from under our mappings.
pub(super) fn open_sealed_file(bytes: u64) -> Result<OwnedFd> {
    let file = fs::memfd_create("millpond chunk", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fs::ftruncate(&file, bytes)?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The size of a file that can be neither shrunk nor grown; an error for any other.
pub(super) fn sealed_bytes(file: impl AsFd) -> Result<u64> {
    let needed = SealFlags::SHRINK | SealFlags::GROW;
    if !fs::fcntl_get_seals(&file)?.contains(needed) {
        return Err(Errno::PERM);
    }
    Ok(fs::fstat(&file)?.st_size as u64)
}

/// Sets a file's size. Bytes past the old size are zero and cost nothing until they are touched.
pub(super) fn resize(file: impl AsFd, bytes: u64) -> Result<()> {
    fs::ftruncate(file, bytes)
}

/// Gives the pages of a part of a file back to the system; it reads as zero from then on.
pub(super) fn punch(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    loop {
        match fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Bytes of the machine's memory that a file holds.
pub(super) fn resident_bytes(file: impl AsFd) -> Result<u64> {
    Ok(fs::fstat(file)?.st_blocks as u64 * 512)
}

/// The machine address as a pointer. Reserved memory is exposed to the caller as numbers all along.
fn pointer(at: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(at as usize)
}
