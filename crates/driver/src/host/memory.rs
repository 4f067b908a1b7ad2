//! The host device's memory: reserved addresses, chunks of memory files, and mappings of chunks at addresses.
//!
//! Knows nothing of streams: the caller promises that work has completed before its memory is released.
//!
//! ```text
//! addresses   ....[ range: PROT_NONE ..[ chunk 3 ].......[ chunk 5 ][ chunk 3 ]....]....
//! device file [ chunk 1 | hole | chunk 3 | chunk 5 |  never touched: costs nothing ...
//! ```
//!
//! The simple version is one memory file for each chunk. Departures:
//! 1. chunks are aligned extents of one sparse file: 12 GiB in chunks of 2 MiB would be 6000 files, and many processes
//!    may open only 1024. When the last holder of a chunk is gone, a hole is punched to return its memory. Extents that
//!    are adjacent in the file and in a range also share one entry of the system's table of mappings;
//! 2. a chunk that will be passed to another process still has a sealed file of its own, because the holder of a file
//!    can map all of it.
//!
//! Invariants, besides the ledger's: `one-extent`: no two kept chunks share a byte of the device file; `zero-fresh`:
//! the extent of a new chunk holds no pages, so it reads as zero.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use millpond_core::units::GIB;
use rustix::io::Errno;

use super::os;
use crate::errors::failed;
use crate::errors::without::SHARING;
use crate::ledger::{Ledger, Leftover};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{DriverError, MemoryInfo, RawChunk, Result};

/// The memory of a chunk.
#[derive(Debug)]
enum Backing {
    /// No memory, because the device has none.
    None,
    /// A part of the device's file, from this offset on.
    Extent(u64),
    /// A sealed file of its own.
    File(OwnedFd),
    /// A sealed file of another process; `true` if it may be written to.
    Import(OwnedFd, bool),
}

/// The free parts of the device's file. An extent is reused only as a whole, for a chunk of its size: programs use few
/// sizes, and offsets, unlike memory, are not scarce.
#[derive(Debug, Default)]
struct Extents {
    /// Every extent is below this offset.
    end: u64,
    /// The file's size, at least `end`.
    file_bytes: u64,
    /// Punched extents by size.
    free: BTreeMap<u64, Vec<u64>>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger<Backing>,
    extents: Extents,
    /// An unused mapping: see [`State::unmap`].
    spare: Option<u64>,
    /// The next address of a device without memory. No address is returned twice.
    next: u64,
}

/// The memory of one host device.
#[derive(Debug)]
pub(super) struct Memory {
    granularity: u64,
    /// `None` if the device has no memory: its addresses are only numbers.
    file: Option<OwnedFd>,
    state: Mutex<Leaf, State>,
}

/// The least step by which the device's file grows. Its size costs nothing, but each step is a system call.
const FILE_STEP_BYTES: u64 = GIB;

/// The most bytes of addresses that a reservation must leave free; it leaves as many as it takes, up to this many. A
/// process without free addresses cannot even start a thread.
const ROOM_BYTES: u64 = GIB;

/// The first address of a device without memory. Systems map nothing in this part of the address space, so an access
/// faults.
const NOWHERE: u64 = 1 << 46;

impl Memory {
    pub(super) fn new(granularity: u64, total_bytes: u64) -> Result<Self> {
        let file = os::open_file().map_err(|error| refusal("open", error))?;
        let spare = os::map_nothing(granularity as usize, &file).ok();
        Ok(Self::with(granularity, total_bytes, Some(file), spare))
    }

    /// Returns a device of this many bytes without memory.
    pub(super) fn none(granularity: u64, total_bytes: u64) -> Self {
        Self::with(granularity, total_bytes, None, None)
    }

    fn with(granularity: u64, total_bytes: u64, file: Option<OwnedFd>, spare: Option<u64>) -> Self {
        let (ledger, next) = (Ledger::new(granularity, total_bytes), NOWHERE.next_multiple_of(granularity));
        let state = State { ledger, extents: Extents::default(), spare, next };
        Self { granularity, file, state: Mutex::new(state) }
    }

    /// Returns `true` if the device has memory, which it can then share.
    pub(super) fn can_share(&self) -> bool {
        self.file.is_some()
    }

    fn check_sharing(&self, call: &'static str) -> Result<()> {
        if self.can_share() { Ok(()) } else { Err(failed(call, SHARING)) }
    }

    /// The system aligns addresses to a page only. So this requests one granule more, and the room that must stay free,
    /// and then cuts off the ends.
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64> {
        const CALL: &str = "reserve";
        let mut state = self.lock();
        state.ledger.check_size(CALL, bytes)?;
        if !self.can_share() {
            // One granule separates two ranges.
            let next = bytes.checked_add(self.granularity).and_then(|step| state.next.checked_add(step));
            let at = std::mem::replace(&mut state.next, next.ok_or_else(|| failed(CALL, "no addresses are left"))?);
            state.ledger.add_range(at, bytes);
            return Ok(at);
        }
        let spare = self.granularity + bytes.min(ROOM_BYTES);
        let asked = bytes.checked_add(spare).and_then(|asked| usize::try_from(asked).ok());
        let start = asked.ok_or(Errno::NOMEM).and_then(os::reserve).map_err(|error| match error {
            // Valgrind returns `EINVAL` for a size that is too large.
            Errno::NOMEM | Errno::INVAL => state.no_addresses(CALL, bytes),
            error => refusal(CALL, error),
        })?;
        let asked = bytes + spare;
        let at = start.next_multiple_of(self.granularity);
        for (cut, size) in [(start, at - start), (at + bytes, start + asked - (at + bytes))] {
            if size > 0 {
                // SAFETY: just reserved, and used by no other code. If this fails, a few addresses stay unused.
                let _ = unsafe { os::release(cut, size as usize) };
            }
        }
        state.ledger.add_range(at, bytes);
        Ok(at)
    }

    /// # Safety
    /// As of `Driver::unreserve`.
    pub(super) unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        let mut state = self.lock();
        state.ledger.check_unreserve(at, bytes)?;
        if self.can_share() {
            // SAFETY: the ledger knows it as a range of ours; the caller promises that nothing uses it.
            unsafe { os::release(at, bytes as usize) }.map_err(|error| refusal("unreserve", error))?;
        }
        state.ledger.remove_range(at);
        Ok(())
    }

    pub(super) fn create(&self, bytes: u64) -> Result<RawChunk> {
        let State { ledger, extents, .. } = &mut *self.lock();
        ledger.create(bytes, || match &self.file {
            None => Ok(Backing::None),
            Some(file) => extents.take(bytes, file).map(Backing::Extent),
        })
    }

    /// Makes a chunk with a file of its own, which [`Self::export`] can export.
    pub(super) fn create_shareable(&self, bytes: u64) -> Result<RawChunk> {
        self.check_sharing("create_shareable")?;
        self.adopt(bytes, || os::open_sealed_file(bytes).map(Backing::File))
    }

    /// Exports a shareable chunk's memory as a file, which also keeps the memory.
    pub(super) fn export(&self, chunk: RawChunk) -> Result<OwnedFd> {
        const CALL: &str = "export";
        let state = self.lock();
        match state.ledger.live(CALL, chunk)?.1 {
            Backing::File(file) | Backing::Import(file, _) => {
                file.try_clone().map_err(|error| refusal(CALL, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
            }
            Backing::Extent(_) | Backing::None => Err(failed(CALL, "the chunk was not created shareable")),
        }
    }

    /// As [`export`](Self::export), for a process that may only read.
    pub(super) fn export_to_read(&self, chunk: RawChunk) -> Result<OwnedFd> {
        let file = self.export(chunk)?;
        os::reopen_to_read(&file).map_err(|error| refusal("export", error))
    }

    /// Imports memory that another device exported: a sealed file of exactly `bytes`.
    pub(super) fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> {
        self.check_sharing("import")?;
        self.import_file(file, bytes, true)
    }

    /// As [`import`](Self::import), for a chunk that is mapped readable only.
    pub(super) fn import_to_read(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> {
        self.check_sharing("import_to_read")?;
        self.import_file(file, bytes, false)
    }

    fn import_file(&self, file: OwnedFd, bytes: u64, writes: bool) -> Result<RawChunk> {
        const CALL: &str = "import";
        let found = os::sealed_bytes(&file).map_err(|_| failed(CALL, "the file is not an exported chunk"))?;
        if found != bytes {
            return Err(failed(CALL, format!("the file has {found} B, and {bytes} B were announced")));
        }
        self.lock().ledger.check_size(CALL, bytes)?;
        if writes && !os::can_write(&file).map_err(|error| refusal(CALL, error))? {
            return Err(failed(CALL, "the file can only be read, and memory to be written to was announced"));
        }
        self.adopt(bytes, || Ok(Backing::Import(file, writes)))
    }

    pub(super) fn destroy(&self, chunk: RawChunk) -> Result<()> {
        let leftover = self.lock().ledger.destroy(chunk)?;
        self.give_back(leftover);
        Ok(())
    }

    /// # Safety
    /// As of `Driver::map`.
    pub(super) unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        let mut state = self.lock();
        let outcome = match (state.ledger.check_map(chunk, at, bytes)?, &self.file) {
            (Backing::None, _) | (_, None) => Ok(()),
            // SAFETY: the ledger found the place inside a range of ours, and nothing is mapped there.
            (Backing::Extent(offset), Some(all)) => unsafe { os::map(at, bytes as usize, all, *offset, true) },
            // SAFETY: as above.
            (Backing::File(file), _) => unsafe { os::map(at, bytes as usize, file, 0, true) },
            (Backing::Import(file, writes), _) => {
                // SAFETY: as above.
                let mapped = unsafe { os::map(at, bytes as usize, file, 0, *writes) };
                // SAFETY: it was just mapped.
                mapped.and_then(|()| unsafe { os::keep_from_forks(at, bytes as usize) })
            }
        };
        if let Err(error) = outcome {
            return Err(self.undo_map(at, bytes, error));
        }
        state.ledger.add_mapping(chunk, at, bytes);
        Ok(())
    }

    /// # Safety
    /// As of `Driver::unmap`.
    pub(super) unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()> {
        let mut state = self.lock();
        state.ledger.check_unmap(at, bytes)?;
        if let Some(file) = &self.file {
            // SAFETY: the ledger knows it as a mapping of ours; the caller promises that nothing uses it.
            unsafe { state.unmap(at, bytes, (self.granularity, file)) }.map_err(|error| refusal("unmap", error))?;
        }
        let leftover = state.ledger.remove_mapping(at);
        drop(state);
        self.give_back(leftover);
        Ok(())
    }

    /// Returns the bytes of chunks that have a holder.
    pub(super) fn used_bytes(&self) -> u64 {
        self.lock().ledger.used_bytes()
    }

    /// Returns how full the device is.
    pub(super) fn memory_info(&self) -> Option<MemoryInfo> {
        Some(self.lock().ledger.memory_info())
    }

    /// Returns the bytes of the machine's memory that chunks occupy because they were touched.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let state = self.lock();
        let own = state.ledger.backings().map(|backing| match backing {
            Backing::Extent(_) | Backing::None => Ok(0),
            Backing::File(file) | Backing::Import(file, _) => os::resident_bytes(file),
        });
        let shared = self.file.iter().map(os::resident_bytes);
        own.chain(shared).sum::<rustix::io::Result<u64>>().map_err(|error| refusal("resident_bytes", error))
    }

    fn lock(&self) -> Guard<'_, State> {
        lock(&self.state)
    }

    /// Records a chunk that has a file of its own.
    fn adopt(&self, bytes: u64, backing: impl FnOnce() -> rustix::io::Result<Backing>) -> Result<RawChunk> {
        self.lock().ledger.create(bytes, || backing().map_err(|error| refusal("create", error)))
    }

    /// Returns a chunk's memory to the system after its last holder is gone. Without the lock, because freeing the
    /// pages of a large chunk takes milliseconds. The bytes count as used until it is done.
    fn give_back(&self, leftover: Option<Leftover<Backing>>) {
        let Some(Leftover { bytes, backing }) = leftover else { return };
        let offset = match backing {
            Backing::File(file) | Backing::Import(file, _) => {
                drop(file);
                None
            }
            Backing::None => None,
            // If the hole cannot be punched, the pages stay, and the extent must not be reused (zero-fresh).
            Backing::Extent(offset) => {
                self.file.as_ref().filter(|file| os::punch(file, offset, bytes).is_ok()).map(|_| offset)
            }
        };
        let mut state = self.lock();
        if let Some(offset) = offset {
            state.extents.free.entry(bytes).or_default().push(offset);
        }
        state.ledger.gave_back(bytes);
    }

    /// Cold: handles a mapping that the system refused. The system may have removed the reservation before it failed,
    /// so the reservation is restored. If that fails as well, it was not removed (the limit on mappings is checked
    /// first).
    #[cold]
    fn undo_map(&self, at: u64, bytes: u64, error: Errno) -> DriverError {
        // SAFETY: the ledger found the place inside a range of ours, and nothing is mapped there.
        let _ = unsafe { os::unmap(at, bytes as usize) };
        refusal("map", error)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.can_share() {
            return;
        }
        let state = self.state.get_mut();
        for (at, bytes) in state.ledger.ranges() {
            // SAFETY: the range is ours. The device is gone with all its work; its addresses end here by contract.
            let _ = unsafe { os::release(at, bytes as usize) };
        }
        if let Some(spare) = state.spare.take() {
            // SAFETY: mapped by this type and unused.
            let _ = unsafe { os::release(spare, self.granularity as usize) };
        }
    }
}

impl State {
    /// Unmaps a part of a range. That can leave the process with one mapping more than the limit, and the system then
    /// refuses every mapping, also the one that makes addresses reserved again. In that case the spare mapping is
    /// released first.
    ///
    /// # Safety
    /// As of [`os::unmap`].
    unsafe fn unmap(&mut self, at: u64, bytes: u64, (granularity, file): (u64, &OwnedFd)) -> rustix::io::Result<()> {
        let size = granularity as usize;
        // SAFETY: the caller's condition.
        let mut outcome = unsafe { os::unmap(at, bytes as usize) };
        if outcome == Err(Errno::NOMEM)
            && let Some(spare) = self.spare.take()
        {
            // SAFETY: mapped by this type and unused.
            let _ = unsafe { os::release(spare, size) };
            // SAFETY: the caller's condition.
            outcome = unsafe { os::unmap(at, bytes as usize) };
        }
        self.spare = self.spare.or_else(|| os::map_nothing(size, file).ok());
        outcome
    }

    /// Cold: the error of a process without free addresses.
    #[cold]
    fn no_addresses(&self, call: &'static str, bytes: u64) -> DriverError {
        let (count, reserved) = self.ledger.ranges().fold((0u64, 0u64), |(n, sum), (_, bytes)| (n + 1, sum + bytes));
        let limit = match os::address_limit() {
            Some(limit) => format!("the process may have {limit} B (RLIMIT_AS, `ulimit -v`)"),
            None => {
                "the machine's are used up, or the process has as many mappings as it may (vm.max_map_count)".into()
            }
        };
        let reason = format!(
            "{limit}, and {reserved} B are reserved for {count} pools and graphs of this device; raise the limit, drop \
             pools, or give them `max_bytes`"
        );
        DriverError::OutOfAddresses { call, bytes, reason }
    }
}

impl Extents {
    /// Takes an extent without pages. INVARIANTS: one-extent, zero-fresh.
    fn take(&mut self, bytes: u64, file: &OwnedFd) -> Result<u64> {
        if let Some(offset) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(offset);
        }
        let offset = self.end;
        let end = offset.checked_add(bytes).filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or(DriverError::OutOfMemory { call: "create", bytes })?;
        if end > self.file_bytes {
            let grown = end.max(self.file_bytes + FILE_STEP_BYTES).min(i64::MAX as u64);
            // If the file may not grow by the whole step, it grows by the bytes that are needed now.
            let outcome = os::resize(file, grown).map(|()| grown).or_else(|_| os::resize(file, end).map(|()| end));
            self.file_bytes = outcome.map_err(|error| refusal("create", error))?;
        }
        self.end = end;
        Ok(offset)
    }
}

/// Returns the error of a call that the system refused although it needs neither memory nor addresses: the process has
/// too many mappings, or more addresses than its limit allows.
#[cold]
fn no_mappings(call: &'static str) -> DriverError {
    if let (Some(limit), Some(bytes)) = (os::address_limit(), os::addresses())
        && bytes >= limit
    {
        let reason = format!(
            "the process may have {limit} B of addresses (RLIMIT_AS, `ulimit -v`), and has {bytes} B: raise the limit"
        );
        return failed(call, reason);
    }
    failed(
        call,
        "the process has as many memory mappings as the system allows (vm.max_map_count): use larger chunks, or raise \
         the limit",
    )
}

/// Returns the error for a refusal of the system. Running out of mappings looks like running out of memory (both are
/// `ENOMEM`), and only the former happens to calls that allocate no memory.
pub(super) fn refusal(call: &'static str, error: Errno) -> DriverError {
    match (call, error) {
        ("map" | "unmap" | "protect", Errno::NOMEM) => no_mappings(call),
        (_, Errno::MFILE | Errno::NFILE) => {
            failed(call, "the process has as many files open as it may (RLIMIT_NOFILE, `ulimit -n`): raise the limit")
        }
        (_, Errno::FBIG) => {
            let limit = os::file_limit().map_or("fewer".to_owned(), |limit| limit.to_string());
            failed(
                call,
                format!(
                    "device memory lies in memory files, and a file of this process may have {limit} B (RLIMIT_FSIZE, \
                     `ulimit -f`): raise the limit"
                ),
            )
        }
        ("open" | "create", Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
            failed(call, format!("the system allows no memory files (memfd_create): {error}"))
        }
        ("map" | "reserve", Errno::AGAIN) => failed(
            call,
            "the process may lock no more memory (RLIMIT_MEMLOCK, `ulimit -l`), and locks all that it maps",
        ),
        _ => failed(call, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use millpond_core::units::MIB;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};

    use super::*;

    /// Exported files are accessible to this user only, sealed and plain. Imported files are checked first.
    #[test]
    #[cfg_attr(miri, ignore)] // Miri has no memory files.
    fn files_of_chunks_are_sealed_and_others_are_refused() {
        let host = Memory::new(2 * MIB, GIB).unwrap();
        let chunk = host.create_shareable(2 * MIB).unwrap();
        let file = host.export(chunk).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        assert!(fcntl_get_seals(&file).unwrap().contains(seals));
        assert!(ftruncate(&file, 0).is_err() && fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        assert_eq!(std::fs::File::from(file).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        host.destroy(chunk).unwrap();

        let made = |flags: MemfdFlags, seals: SealFlags| {
            let file = memfd_create("other", flags | MemfdFlags::ALLOW_SEALING).ok()?;
            ftruncate(&file, 2 * MIB).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            Some(file)
        };
        let sized = SealFlags::SHRINK | SealFlags::GROW;
        for (flags, seals) in [
            (MemfdFlags::empty(), SealFlags::empty()),
            (MemfdFlags::empty(), SealFlags::SHRINK),
            // For huge pages the system may have none left at an access.
            (MemfdFlags::HUGETLB, sized),
        ] {
            let Some(file) = made(flags, seals) else { continue };
            assert!(host.import_to_read(file, 2 * MIB).is_err(), "{flags:?} {seals:?}");
        }
        let good = host.import(made(MemfdFlags::empty(), sized).unwrap(), 2 * MIB).unwrap();
        host.destroy(good).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(host.import_to_read(other.into(), 2 * MIB).is_err());
        let chunk = host.create_shareable(2 * MIB).unwrap();
        let file = host.export_to_read(chunk).unwrap();
        assert!(rustix::io::write(&file, b"x").is_err());
        assert!(host.import(file, 2 * MIB).is_err(), "it cannot be written to");
        let read = host.import_to_read(host.export_to_read(chunk).unwrap(), 2 * MIB).unwrap();
        host.destroy(read).unwrap();
        host.destroy(chunk).unwrap();
    }
}
