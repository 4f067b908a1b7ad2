//! A GPU's memory: reserved addresses, physical chunks, and mappings of one in the other.
//!
//! Knows nothing of streams. The ledger holds callers to whole mappings before CUDA is asked: CUDA refuses less, and
//! in fewer words.
//!
//! Invariants, beside the ledger's: `ours-only`: a handle is released and a range unmapped once, by who made it.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::{AccessDesc, Address, Allocation, AllocationProp, Code, Device, GRANULARITY_MINIMUM};
use super::gpu::Gpu;
use crate::ledger::{Ledger, failed};
use crate::{PeerAccess, RawChunk, Result};

/// The memory of one device, as far as this driver mapped it.
#[derive(Debug)]
pub(super) struct Memory {
    gpu: Arc<Gpu>,
    pub(super) granularity: u64,
    /// Held during calls: the library has a lock of its own around them.
    ledger: Mutex<Ledger<Allocation>>,
}

impl Memory {
    pub(super) fn new(gpu: Arc<Gpu>, total_bytes: u64) -> Result<Self> {
        const CALL: &str = "open CUDA";
        let (entered, property, mut granularity) = (gpu.enter(CALL)?, AllocationProp::on(gpu.device), 0);
        // SAFETY: a place for a number, and a property.
        let code =
            unsafe { (entered.table.granularity)(&raw mut granularity, &raw const property, GRANULARITY_MINIMUM) };
        gpu.check(CALL, code)?;
        drop(entered);
        if !granularity.is_power_of_two() {
            return Err(failed(CALL, format!("the device maps memory in steps of {granularity} B, no power of two")));
        }
        let granularity = granularity as u64;
        Ok(Self { gpu, granularity, ledger: Mutex::new(Ledger::new(granularity, total_bytes)) })
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64> {
        const CALL: &str = "reserve";
        let mut ledger = self.lock();
        ledger.check_size(CALL, bytes)?;
        let (entered, mut at) = (self.gpu.enter(CALL)?, Address::default());
        // SAFETY: a place for an address.
        let code = unsafe { (entered.table.reserve)(&raw mut at, bytes as usize, self.granularity as usize, 0, 0) };
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
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: a range of ours without mappings; that nothing uses it is the caller's promise.
        self.gpu.check(CALL, unsafe { (entered.table.unreserve)(at, bytes as usize) })?;
        ledger.remove_range(at);
        Ok(())
    }

    pub(super) fn create(&self, bytes: u64) -> Result<RawChunk> {
        let mut ledger = self.lock();
        ledger.set_aside(bytes)?;
        match self.create_physical(bytes) {
            Ok(handle) => Ok(ledger.add_chunk(bytes, handle)),
            Err(error) => {
                ledger.settle(bytes);
                Err(error)
            }
        }
    }

    fn create_physical(&self, bytes: u64) -> Result<Allocation> {
        const CALL: &str = "create";
        let (entered, property, mut handle) = (self.gpu.enter(CALL)?, AllocationProp::on(self.gpu.device), 0);
        // SAFETY: a place for a handle, and a property.
        match unsafe { (entered.table.create)(&raw mut handle, bytes as usize, &raw const property, 0) } {
            Code::SUCCESS => Ok(handle),
            code => Err(self.gpu.memory_refusal(CALL, code, bytes)),
        }
    }

    pub(super) fn destroy(&self, chunk: RawChunk) -> Result<()> {
        const CALL: &str = "destroy";
        let mut ledger = self.lock();
        let handle = *ledger.live(CALL, chunk)?.1;
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: a handle of ours that is not released (ours-only). CUDA keeps the memory while it is mapped.
        self.gpu.check(CALL, unsafe { (entered.table.release)(handle) })?;
        if let Some(gone) = ledger.destroy(chunk)? {
            ledger.settle(gone.bytes);
        }
        Ok(())
    }

    /// # Safety
    /// As of `Driver::map`.
    pub(super) unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "map";
        let mut ledger = self.lock();
        let handle = *ledger.check_map(chunk, at, bytes)?;
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: a whole handle of ours, in a hole of a range of ours.
        let mapped = unsafe { (entered.table.map)(at, bytes as usize, 0, handle, 0) };
        if mapped != Code::SUCCESS {
            return Err(self.gpu.memory_refusal(CALL, mapped, bytes));
        }
        let access = AccessDesc::for_device(self.gpu.device);
        // SAFETY: mapped just now, and one description.
        let opened = unsafe { (entered.table.set_access)(at, bytes as usize, &raw const access, 1) };
        if opened != Code::SUCCESS {
            // SAFETY: mapped just now, and nobody knows of it.
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
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: a mapping of ours (ours-only); that nothing uses it is the caller's promise.
        self.gpu.check(CALL, unsafe { (entered.table.unmap)(at, bytes as usize) })?;
        if let Some(gone) = ledger.remove_mapping(at) {
            ledger.settle(gone.bytes);
        }
        Ok(())
    }

    /// Whether the hardware lets another device use this one's memory.
    pub(super) fn can_let(&self, device: Device) -> Result<bool> {
        const CALL: &str = "can_let";
        if device == self.gpu.device {
            return Ok(true);
        }
        let (entered, mut can) = (self.gpu.enter(CALL)?, 0);
        // SAFETY: a place for a number.
        self.gpu.check(CALL, unsafe { (entered.table.can_access_peer)(&raw mut can, device, self.gpu.device) })?;
        Ok(can != 0)
    }

    /// One call for all devices. This device's own access stays as it is, also where another driver has the same one.
    pub(super) fn let_in(&self, at: u64, bytes: u64, peers: &[(Device, PeerAccess)]) -> Result<()> {
        const CALL: &str = "let_in";
        let ledger = self.lock();
        ledger.check_unmap(at, bytes)?;
        let others = peers.iter().filter(|(device, _)| *device != self.gpu.device);
        let access: Vec<AccessDesc> = others.map(|&(device, access)| AccessDesc::with(device, flags(access))).collect();
        if access.is_empty() {
            return Ok(());
        }
        let entered = self.gpu.enter(CALL)?;
        // SAFETY: a mapping of ours, and so many descriptions.
        let code = unsafe { (entered.table.set_access)(at, bytes as usize, access.as_ptr(), access.len()) };
        self.gpu.check(CALL, code)
    }

    /// Bytes of chunks that are not destroyed, or still mapped.
    pub(super) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<Allocation>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library's number for an access.
fn flags(access: PeerAccess) -> c_int {
    match access {
        PeerAccess::None => AccessDesc::NONE,
        PeerAccess::Read => AccessDesc::READ,
        PeerAccess::ReadWrite => AccessDesc::READ_WRITE,
    }
}

impl Drop for Memory {
    /// Gives all back that the caller left, once nothing of the context runs any more. Where that cannot be waited for
    /// (the context is lost, or this is one of its own host functions) everything is left to the context.
    fn drop(&mut self) {
        let ledger = self.lock();
        if ledger.ranges().next().is_none() && ledger.live_chunks().next().is_none() {
            return;
        }
        let Ok(entered) = self.gpu.enter("close") else { return };
        // SAFETY: no argument that could be wrong (context-current).
        if unsafe { (entered.table.synchronize_context)() } != Code::SUCCESS {
            return;
        }
        for (at, bytes, _) in ledger.mappings() {
            // SAFETY: a mapping of ours; all work is over, and the device's addresses end here by contract.
            let _ = unsafe { (entered.table.unmap)(at, bytes as usize) };
        }
        for (chunk, _) in ledger.live_chunks() {
            if let Ok((_, handle)) = ledger.live("close", chunk) {
                // SAFETY: a handle of ours, for the last time (ours-only). A refusal leaves it to the context.
                let _ = unsafe { (entered.table.release)(*handle) };
            }
        }
        for (at, bytes) in ledger.ranges() {
            // SAFETY: a range of ours, without mappings by now.
            let _ = unsafe { (entered.table.unreserve)(at, bytes as usize) };
        }
    }
}
