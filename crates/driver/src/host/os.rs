//! The system calls of the host device's memory, each as one function with its conditions. No bookkeeping.
//!
//! A memory file has three advantages over anonymous memory: one chunk can be mapped at several addresses at once, it
//! outlives its mappings, and it can be passed to another process.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null_mut;

use rustix::fs::{self, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// Reserves addresses; an access faults. They cost nothing.
pub(super) fn reserve(bytes: usize) -> Result<u64> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without an address the system chooses an unused place.
    let at = unsafe { mm::mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }?;
    Ok(at.expose_provenance() as u64)
}

/// Returns addresses to the system, with all mappings there.
///
/// # Safety
/// `at..at + bytes` is whole pages inside one [`reserve`], or one [`map_nothing`], and nothing uses them any more.
pub(super) unsafe fn release(at: u64, bytes: usize) -> Result<()> {
    // SAFETY: the caller's condition.
    unsafe { mm::munmap(pointer(at), bytes) }
}

/// Maps `bytes` of a file from `offset` on at `at`, readable and, if `writes`, writable. It replaces former mappings
/// there.
///
/// # Safety
/// `at..at + bytes` is whole pages inside one [`reserve`], and nothing uses the former mappings.
pub(super) unsafe fn map(at: u64, bytes: usize, file: impl AsFd, offset: u64, writes: bool) -> Result<()> {
    let protection = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller's condition: `FIXED` replaces only pages of our own reservation.
    unsafe { mm::mmap(pointer(at), bytes, protection, flags, file, offset) }.map(drop)
}

/// Makes a mapping without access. The system does not merge it with another mapping, because it has a file.
pub(super) fn map_nothing(bytes: usize, file: impl AsFd) -> Result<u64> {
    // SAFETY: the system chooses the place, so the mapping replaces no page.
    let at = unsafe { mm::mmap(null_mut(), bytes, ProtFlags::empty(), MapFlags::SHARED, file, 0) }?;
    Ok(at.expose_provenance() as u64)
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

/// The file system of accepted memory files. Others are refused: for huge pages the system may have none left at an
/// access.
const TMPFS: u64 = 0x0102_1994;

/// Makes a memory file that only this user may open. It is not executable, unless the system lacks that seal.
fn create_file(name: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => fs::memfd_create(name, flags),
        made => made,
    }?;
    fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    Ok(file)
}

/// Makes an empty memory file that can grow but not shrink. It has no name and ends with its last holder.
pub(super) fn open_file() -> Result<OwnedFd> {
    let file = create_file("millpond")?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Makes a memory file of exactly `bytes`, which no holder can resize, so that a holder in another process cannot
/// remove pages under our mappings.
pub(super) fn open_sealed_file(bytes: u64) -> Result<OwnedFd> {
    let file = create_file("millpond chunk")?;
    resize(&file, bytes)?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Returns the size of a memory file of plain pages that can neither shrink nor grow; an error for any other file.
pub(super) fn sealed_bytes(file: impl AsFd) -> Result<u64> {
    let needed = SealFlags::SHRINK | SealFlags::GROW;
    let is_plain = fs::fstatfs(&file)?.f_type as u64 == TMPFS;
    if !is_plain || !fs::fcntl_get_seals(&file)?.contains(needed) {
        return Err(Errno::PERM);
    }
    Ok(fs::fstat(&file)?.st_size as u64)
}

/// Opens a memory file again, for reading only.
pub(super) fn reopen_to_read(file: impl AsFd) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns `true` if the file can be written to through this descriptor.
pub(super) fn can_write(file: impl AsFd) -> Result<bool> {
    Ok(fs::fcntl_getfl(file)? & OFlags::ACCMODE == OFlags::RDWR)
}

/// Keeps forked processes from inheriting the pages that are mapped there.
///
/// # Safety
/// `at..at + bytes` is whole pages, mapped by [`map`].
pub(super) unsafe fn keep_from_forks(at: u64, bytes: usize) -> Result<()> {
    // SAFETY: the advice changes what a fork copies, and nothing here.
    unsafe { mm::madvise(pointer(at), bytes, mm::Advice::LinuxDontFork) }
}

/// Sets a file's size. Bytes past the old size are zero and cost nothing until they are touched. A size over the
/// process's limit is refused here, because the system would end the process for it (`SIGXFSZ`).
pub(super) fn resize(file: impl AsFd, bytes: u64) -> Result<()> {
    if file_limit().is_some_and(|limit| bytes > limit) {
        return Err(Errno::FBIG);
    }
    fs::ftruncate(file, bytes)
}

/// Returns the most bytes that a file of this process may have, if there is a limit.
pub(super) fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Returns the most bytes of addresses that this process may have, if there is a limit.
pub(super) fn address_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the bytes of addresses that this process has, if the system reports them.
pub(super) fn addresses() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns the pages of a part of a file to the system; the part then reads as zero.
pub(super) fn punch(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    loop {
        match fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Returns the bytes of the machine's memory that a file occupies.
pub(super) fn resident_bytes(file: impl AsFd) -> Result<u64> {
    Ok(fs::fstat(file)?.st_blocks as u64 * 512)
}

/// Returns a machine address as a pointer. Reserved memory is exposed to the caller as numbers anyway.
fn pointer(at: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(at as usize)
}
