//! A GPU's memory: reserved addresses, physical chunks, and mappings of chunks at addresses.
//!
//! Knows nothing of streams. The ledger checks that callers use whole mappings before CUDA is called, because CUDA
//! detects fewer errors and its messages say less.
//!
//! Invariants, besides the ledger's: `ours-only`: a handle is released and a range unmapped once, by the code that made
//! it.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use super::abi::{AccessDesc, Address, Allocation, AllocationProp, Code, Device, GRANULARITY_MINIMUM, attribute};
use super::gpu::Gpu;
use super::survey;
use super::table::ShareTable;
use crate::errors::failed;
use crate::ledger::Ledger;
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{DriverError, MemoryInfo, PeerAccess, RawChunk, Result};

/// The memory of one device that this driver mapped.
#[derive(Debug)]
pub(super) struct Memory {
    gpu: Arc<Gpu>,
    pub(super) granularity: u64,
    /// The functions that share memory between processes, if the device supports it.
    shares: Option<ShareTable>,
    /// Held during calls: the library has its own lock around them.
    ledger: Mutex<Leaf, Ledger<Allocation>>,
}

impl Memory {
    pub(super) fn new(gpu: Arc<Gpu>, total_bytes: u64) -> Result<Self> {
        const CALL: &str = "open CUDA";
        let (entered, property, mut granularity) = (gpu.enter(CALL)?, AllocationProp::on(gpu.device), 0);
        // SAFETY: the pointer is valid for a number, and the property is valid.
        let code =
            unsafe { (entered.table.granularity)(&raw mut granularity, &raw const property, GRANULARITY_MINIMUM) };
        gpu.check(CALL, code)?;
        let can_share = survey::attribute(&gpu.api, gpu.device, attribute::FILE_DESCRIPTORS).is_ok_and(|it| it != 0);
        let shares = gpu.api.shares.filter(|_| can_share);
        drop(entered);
        if !granularity.is_power_of_two() {
            return Err(failed(CALL, format!("the device maps memory in steps of {granularity} B, no power of two")));
        }
        let granularity = granularity as u64;
        Ok(Self { gpu, granularity, shares, ledger: Mutex::new(Ledger::new(granularity, total_bytes)) })
    }

    /// Returns how full the device is, or its limit, whichever leaves less.
    pub(super) fn memory_info(&self) -> Option<MemoryInfo> {
        const CALL: &str = "memory_info";
        let (mut free, mut total) = (0, 0);
        {
            let entered = self.gpu.enter_apart(CALL).ok()?;
            // SAFETY: the pointers are valid for numbers.
            let code = unsafe { (entered.table.memory_info)(&raw mut free, &raw mut total) };
            self.gpu.check(CALL, code).ok()?;
        }
        let own = self.lock().memory_info();
        Some(MemoryInfo { free_bytes: own.free_bytes.min(free as u64), total_bytes: own.total_bytes.min(total as u64) })
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64> {
        const CALL: &str = "reserve";
        let mut ledger = self.lock();
        ledger.check_size(CALL, bytes)?;
        let (entered, mut at) = (self.gpu.enter_apart(CALL)?, Address::default());
        // SAFETY: the pointer is valid for an address.
        let code = unsafe { (entered.table.reserve)(&raw mut at, bytes as usize, self.granularity as usize, 0, 0) };
        if code == Code::OUT_OF_MEMORY {
            let reason = "the driver has no more for this process: drop pools, or give them `max_bytes`".into();
            return Err(DriverError::OutOfAddresses { call: CALL, bytes, reason });
        }
        self.gpu.check(CALL, code)?;
        ledger.add_range(at, bytes);
        Ok(at)
    }

    /// # Safety
    /// As of `Driver::unreserve`.
    pub(super) unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "unreserve";
        let mut ledger = self.lock();
        ledger.check_unreserve(at, bytes)?;
        let entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the range is ours and has no mappings; the caller promises that nothing uses it.
        self.gpu.check(CALL, unsafe { (entered.table.unreserve)(at, bytes as usize) })?;
        ledger.remove_range(at);
        Ok(())
    }

    pub(super) fn create(&self, bytes: u64) -> Result<RawChunk> {
        self.lock().create(bytes, || self.create_physical("create", AllocationProp::on(self.gpu.device), bytes))
    }

    /// Returns `true` if memory can be shared with other processes as files.
    pub(super) fn can_share(&self) -> bool {
        self.shares.is_some()
    }

    fn shares(&self, call: &'static str) -> Result<ShareTable> {
        self.shares.ok_or_else(|| failed(call, "this device hands out no memory as a file"))
    }

    /// Makes a chunk that [`Self::export`] can export.
    pub(super) fn create_shareable(&self, bytes: u64) -> Result<RawChunk> {
        const CALL: &str = "create_shareable";
        self.shares(CALL)?;
        self.lock().create(bytes, || self.create_physical(CALL, AllocationProp::shareable_on(self.gpu.device), bytes))
    }

    /// Exports a shareable chunk's memory as a file, which also keeps the memory.
    pub(super) fn export(&self, chunk: RawChunk) -> Result<OwnedFd> {
        const CALL: &str = "export";
        let shares = self.shares(CALL)?;
        let ledger = self.lock();
        let handle = *ledger.live(CALL, chunk)?.1;
        let (_entered, mut file) = (self.gpu.enter_apart(CALL)?, -1);
        let place = (&raw mut file).cast();
        // SAFETY: the pointer is valid for a number, which this kind of handle is, and the handle is ours (ours-only).
        self.gpu.check(CALL, unsafe { (shares.export)(place, handle, AllocationProp::FILE_DESCRIPTOR, 0) })?;
        if file < 0 {
            return Err(failed(CALL, "the driver answered no file"));
        }
        // SAFETY: the file is open and was made for the caller.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // Without this flag, programs that this process starts would inherit the file.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| failed(CALL, error.to_string()))?;
        Ok(file)
    }

    /// Makes a chunk of memory that another process exported. CUDA does not return its size; mapping it whole checks
    /// that it has this many bytes.
    pub(super) fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> {
        const CALL: &str = "import";
        let shares = self.shares(CALL)?;
        self.lock().create(bytes, || {
            let (_entered, mut handle) = (self.gpu.enter_apart(CALL)?, 0);
            let number = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
            // SAFETY: the pointer is valid for a handle, and the header wants an open file's number in place of a
            // pointer.
            match unsafe { (shares.import)(&raw mut handle, number, AllocationProp::FILE_DESCRIPTOR) } {
                Code::SUCCESS => Ok(handle),
                code => Err(self.gpu.memory_refusal(CALL, code, bytes)),
            }
        })
    }

    fn create_physical(&self, call: &'static str, property: AllocationProp, bytes: u64) -> Result<Allocation> {
        let (entered, mut handle) = (self.gpu.enter_apart(call)?, 0);
        // SAFETY: the pointer is valid for a handle, and the property is valid.
        match unsafe { (entered.table.create)(&raw mut handle, bytes as usize, &raw const property, 0) } {
            Code::SUCCESS => Ok(handle),
            code => Err(self.gpu.memory_refusal(call, code, bytes)),
        }
    }

    pub(super) fn destroy(&self, chunk: RawChunk) -> Result<()> {
        const CALL: &str = "destroy";
        let mut ledger = self.lock();
        let handle = *ledger.live(CALL, chunk)?.1;
        let entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the handle is ours and not released (ours-only). CUDA keeps the memory while it is mapped.
        self.gpu.check(CALL, unsafe { (entered.table.release)(handle) })?;
        if let Some(gone) = ledger.destroy(chunk)? {
            ledger.gave_back(gone.bytes);
        }
        Ok(())
    }

    /// # Safety
    /// As of `Driver::map`.
    pub(super) unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "map";
        let mut ledger = self.lock();
        let handle = *ledger.check_map(chunk, at, bytes)?;
        let entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: a whole handle of ours, mapped in a free part of a range of ours.
        let mapped = unsafe { (entered.table.map)(at, bytes as usize, 0, handle, 0) };
        if mapped != Code::SUCCESS {
            return Err(self.gpu.memory_refusal(CALL, mapped, bytes));
        }
        let access = AccessDesc::for_device(self.gpu.device);
        // SAFETY: the range was just mapped, and there is one description.
        let opened = unsafe { (entered.table.set_access)(at, bytes as usize, &raw const access, 1) };
        if opened != Code::SUCCESS {
            // SAFETY: the range was just mapped, and no other code uses it.
            let _ = unsafe { (entered.table.unmap)(at, bytes as usize) };
            return Err(self.gpu.memory_refusal(CALL, opened, bytes));
        }
        ledger.add_mapping(chunk, at, bytes);
        Ok(())
    }

    /// # Safety
    /// As of `Driver::unmap`.
    pub(super) unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "unmap";
        let mut ledger = self.lock();
        ledger.check_unmap(at, bytes)?;
        let entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the mapping is ours (ours-only); the caller promises that nothing uses it.
        self.gpu.check(CALL, unsafe { (entered.table.unmap)(at, bytes as usize) })?;
        if let Some(gone) = ledger.remove_mapping(at) {
            ledger.gave_back(gone.bytes);
        }
        Ok(())
    }

    /// Returns `true` if the hardware can let another device use this one's memory.
    pub(super) fn can_let(&self, device: Device) -> Result<bool> {
        const CALL: &str = "can_let";
        if device == self.gpu.device {
            return Ok(true);
        }
        let (entered, mut can) = (self.gpu.enter_apart(CALL)?, 0);
        // SAFETY: the pointer is valid for a number.
        self.gpu.check(CALL, unsafe { (entered.table.can_access_peer)(&raw mut can, device, self.gpu.device) })?;
        Ok(can != 0)
    }

    /// Sets the access of all devices in one call. This device's own access is unchanged, also if another driver uses
    /// the same device.
    pub(super) fn let_in(&self, at: u64, bytes: u64, peers: &[(Device, PeerAccess)]) -> Result<()> {
        const CALL: &str = "let_in";
        let ledger = self.lock();
        ledger.check_unmap(at, bytes)?;
        let others = peers.iter().filter(|(device, _)| *device != self.gpu.device);
        let access: Vec<AccessDesc> = others.map(|&(device, access)| AccessDesc::with(device, flags(access))).collect();
        if access.is_empty() {
            return Ok(());
        }
        let entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the mapping is ours, and there are as many descriptions as the number says.
        let code = unsafe { (entered.table.set_access)(at, bytes as usize, access.as_ptr(), access.len()) };
        self.gpu.check(CALL, code)
    }

    /// Returns the bytes of chunks that are not destroyed or are still mapped.
    pub(super) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    fn lock(&self) -> Guard<'_, Ledger<Allocation>> {
        lock(&self.ledger)
    }
}

/// Returns the library's number for an access.
fn flags(access: PeerAccess) -> c_int {
    match access {
        PeerAccess::None => AccessDesc::NONE,
        PeerAccess::Read => AccessDesc::READ,
        PeerAccess::ReadWrite => AccessDesc::READ_WRITE,
    }
}

impl Drop for Memory {
    /// Releases everything that the caller left, once no work of the context runs any more. If that cannot be waited
    /// for (the context is lost, or this is one of its own host functions), everything is left to the context.
    fn drop(&mut self) {
        let ledger = self.ledger.get_mut();
        if ledger.ranges().next().is_none() && ledger.live_chunks().next().is_none() {
            return;
        }
        let Ok(entered) = self.gpu.enter_apart("close") else { return };
        if entered.synchronize() != Code::SUCCESS {
            return;
        }
        for (at, bytes, _) in ledger.mappings() {
            // SAFETY: the mapping is ours; all work has completed, and the device's addresses end here by contract.
            let _ = unsafe { (entered.table.unmap)(at, bytes as usize) };
        }
        for (chunk, _) in ledger.live_chunks() {
            if let Ok((_, handle)) = ledger.live("close", chunk) {
                // SAFETY: a handle of ours, which is not used again (ours-only). If this fails, the context keeps it.
                let _ = unsafe { (entered.table.release)(*handle) };
            }
        }
        for (at, bytes) in ledger.ranges() {
            // SAFETY: the range is ours, and has no mappings any more.
            let _ = unsafe { (entered.table.unreserve)(at, bytes as usize) };
        }
    }
}
