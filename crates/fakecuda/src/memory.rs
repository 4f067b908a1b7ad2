//! A device's memory, with the real driver's rules: whole chunks, access set before use, nothing unmapped under work.
//!
//! Knows the host device's memory and marks; no streams. A rule of the interface that is broken is an answer; one whose
//! breach is undefined there faults.

use std::collections::{BTreeMap, HashMap};

use millpond_driver::cuda::abi::Code;
use millpond_driver::{Driver, DriverError, HostDriver, RawChunk, RawMark};

/// A chunk mapped somewhere.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    is_accessible: bool,
}

/// Work that uses a part of the memory, until its mark is over.
#[derive(Clone, Copy, Debug)]
struct Use {
    over: RawMark,
    at: u64,
    bytes: u64,
}

/// The memory of one device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    chunks: HashMap<u64, (RawChunk, u64)>,
    mappings: BTreeMap<u64, Mapping>,
    uses: Vec<Use>,
}

/// Uses that are over are forgotten whenever so many have come together.
const USES_KEPT: usize = 256;

/// The host device's refusal as a code.
pub(crate) fn code(error: &DriverError) -> Code {
    match error {
        DriverError::OutOfMemory { .. } => Code::OUT_OF_MEMORY,
        DriverError::UnknownHandle { what: "stream" | "mark", .. } => Code::INVALID_HANDLE,
        DriverError::Lost { .. } => Code::LAUNCH_FAILED,
        _ => Code::INVALID_VALUE,
    }
}

impl Memory {
    pub(crate) fn create(&mut self, host: &HostDriver, bytes: u64) -> Result<u64, Code> {
        let chunk = host.create(bytes).map_err(|error| code(&error))?;
        self.chunks.insert(chunk.0, (chunk, bytes));
        Ok(chunk.0)
    }

    pub(crate) fn release(&mut self, host: &HostDriver, handle: u64) -> Result<(), Code> {
        let (chunk, _) = self.chunks.remove(&handle).ok_or(Code::INVALID_VALUE)?;
        host.destroy(chunk).map_err(|error| code(&error))
    }

    /// A handle is mapped whole and from its start: anything else is not supported, as on a GPU.
    pub(crate) fn map(&mut self, host: &HostDriver, at: u64, bytes: u64, offset: u64, handle: u64) -> Result<(), Code> {
        let &(chunk, whole) = self.chunks.get(&handle).ok_or(Code::INVALID_VALUE)?;
        if offset != 0 || bytes != whole {
            return Err(Code::NOT_SUPPORTED);
        }
        // SAFETY: the host device checks that the place is reserved and free.
        unsafe { host.map(chunk, at, bytes) }.map_err(|error| code(&error))?;
        self.mappings.insert(at, Mapping { bytes, is_accessible: false });
        Ok(())
    }

    /// A range of whole mappings, without holes, becomes accessible.
    pub(crate) fn set_access(&mut self, at: u64, bytes: u64) -> Result<(), Code> {
        for start in self.whole_mappings(at, bytes)? {
            self.mappings.get_mut(&start).ok_or(Code::UNKNOWN)?.is_accessible = true;
        }
        Ok(())
    }

    /// A range of whole mappings goes. Where work in flight uses it that is a fault, which a GPU would show later.
    pub(crate) fn unmap(&mut self, host: &HostDriver, at: u64, bytes: u64) -> Result<(), Code> {
        let starts = self.whole_mappings(at, bytes)?;
        self.forget_uses(host);
        if self.uses.iter().any(|it| it.at < at + bytes && at < it.at + it.bytes) {
            eprintln!("fakecuda: {bytes} B at {at:#x} were unmapped while work in flight uses them");
            return Err(Code::ILLEGAL_ADDRESS);
        }
        for start in starts {
            let mapping = self.mappings.remove(&start).ok_or(Code::UNKNOWN)?;
            // SAFETY: it was mapped, and no work that is known of uses it.
            unsafe { host.unmap(start, mapping.bytes) }.map_err(|error| code(&error))?;
        }
        Ok(())
    }

    /// Whether work may use a range: all of it is mapped and accessible.
    pub(crate) fn check_use(&self, at: u64, bytes: u64) -> Result<(), Code> {
        let end = at.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut covered = at;
        while covered < end {
            match self.mappings.range(..=covered).next_back() {
                Some((&start, mapping)) if start + mapping.bytes > covered && mapping.is_accessible => {
                    covered = start + mapping.bytes;
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// Work uses a range until the mark is over.
    pub(crate) fn note_use(&mut self, host: &HostDriver, over: RawMark, at: u64, bytes: u64) {
        if self.uses.len() >= USES_KEPT {
            self.forget_uses(host);
        }
        self.uses.push(Use { over, at, bytes });
    }

    fn forget_uses(&mut self, host: &HostDriver) {
        self.uses.retain(|it| host.is_over(it.over) == Ok(false));
    }

    /// The first addresses of the mappings that make up a range exactly.
    fn whole_mappings(&self, at: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let end = at.checked_add(bytes).filter(|_| bytes > 0).ok_or(Code::INVALID_VALUE)?;
        let (mut starts, mut covered) = (Vec::new(), at);
        while covered < end {
            let mapping = self.mappings.get(&covered).ok_or(Code::INVALID_VALUE)?;
            starts.push(covered);
            covered += mapping.bytes;
        }
        if covered == end { Ok(starts) } else { Err(Code::INVALID_VALUE) }
    }
}
