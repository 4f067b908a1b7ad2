//! A device's memory, with the real driver's rules: whole chunks, access set before use, nothing unmapped under work.
//!
//! Knows the host device's memory and events, but no streams. A breach of the interface's rules returns an error code.
//! If the behaviour of a breach is undefined in the interface, it is a fault.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::OwnedFd;

use millpond_driver::cuda::abi::{AccessDesc, Code};
use millpond_driver::output::say;
use millpond_driver::{Driver, DriverError, Fence, HostDriver, RawChunk};

/// A mapped chunk.
#[derive(Clone, Debug)]
struct Mapping {
    bytes: u64,
    /// The access of each device.
    access: BTreeMap<c_int, c_int>,
}

/// A part of the memory that work uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) is_written: bool,
}

/// Work that uses a part of the memory, until the event after it has completed.
#[derive(Clone, Debug)]
struct Use {
    over: Fence,
    side: Side,
    /// The device of the work.
    device: c_int,
}

impl Use {
    fn is_in_flight(&self) -> bool {
        match &self.over {
            Fence::Host(fence) => fence.is_over() == Ok(false),
            _ => false,
        }
    }

    fn meets(&self, at: u64, bytes: u64) -> bool {
        self.side.at < at + bytes && at < self.side.at + self.side.bytes
    }
}

/// The memory of one device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    chunks: HashMap<u64, (RawChunk, u64)>,
    mappings: BTreeMap<u64, Mapping>,
    uses: Vec<Use>,
}

/// The number of uses at which completed ones are removed.
const USES_KEPT: usize = 256;

/// Returns the host device's result, with its error as a code.
pub(crate) fn answer<T>(result: millpond_driver::Result<T>) -> Result<T, Code> {
    result.map_err(|error| match error {
        DriverError::OutOfMemory { .. } | DriverError::OutOfAddresses { .. } => Code::OUT_OF_MEMORY,
        DriverError::UnknownHandle { what: "stream" | "event", .. } => Code::INVALID_HANDLE,
        DriverError::Lost { .. } => Code::LAUNCH_FAILED,
        _ => Code::INVALID_VALUE,
    })
}

impl Memory {
    pub(crate) fn create(&mut self, host: &HostDriver, bytes: u64, is_shareable: bool) -> Result<u64, Code> {
        let chunk = match is_shareable {
            true => host.create_shareable(bytes),
            false => host.create(bytes),
        };
        let chunk = answer(chunk)?;
        self.chunks.insert(chunk.0, (chunk, bytes));
        Ok(chunk.0)
    }

    /// Returns a file of a chunk that was created shareable.
    pub(crate) fn export(&self, host: &HostDriver, handle: u64) -> Result<OwnedFd, Code> {
        let (chunk, _) = self.chunks.get(&handle).ok_or(Code::INVALID_VALUE)?;
        answer(host.export(*chunk))
    }

    /// Imports a chunk from its file. As on a GPU the caller does not give its size.
    pub(crate) fn import(&mut self, host: &HostDriver, file: OwnedFd) -> Result<u64, Code> {
        let file = File::from(file);
        let bytes = file.metadata().map_err(|_| Code::INVALID_VALUE)?.len();
        let chunk = answer(host.import(file.into(), bytes))?;
        self.chunks.insert(chunk.0, (chunk, bytes));
        Ok(chunk.0)
    }

    pub(crate) fn release(&mut self, host: &HostDriver, handle: u64) -> Result<(), Code> {
        let (chunk, _) = self.chunks.remove(&handle).ok_or(Code::INVALID_VALUE)?;
        answer(host.destroy(chunk))
    }

    /// Maps a handle whole and from its start: anything else is not supported, as on a GPU.
    pub(crate) fn map(&mut self, host: &HostDriver, at: u64, bytes: u64, offset: u64, handle: u64) -> Result<(), Code> {
        let &(chunk, whole) = self.chunks.get(&handle).ok_or(Code::INVALID_VALUE)?;
        if offset != 0 || bytes != whole {
            return Err(Code::NOT_SUPPORTED);
        }
        // SAFETY: the host device checks that the place is reserved and free.
        answer(unsafe { host.map(chunk, at, bytes) })?;
        self.mappings.insert(at, Mapping { bytes, access: BTreeMap::new() });
        Ok(())
    }

    /// Sets the access of devices to a range of whole mappings, without holes. Revoking access under work in flight is
    /// a fault.
    pub(crate) fn set_access(&mut self, at: u64, bytes: u64, access: &[AccessDesc]) -> Result<(), Code> {
        let starts = self.whole_mappings(at, bytes)?;
        self.uses.retain(Use::is_in_flight);
        for desc in access {
            let device = desc.location.id;
            let is_less =
                |it: &Use| desc.flags == AccessDesc::NONE || it.side.is_written && desc.flags == AccessDesc::READ;
            if self.uses.iter().any(|it| it.device == device && it.meets(at, bytes) && is_less(it)) {
                say(format_args!("fakecuda: {bytes} B at {at:#x} were closed while work of device {device} uses them"));
                return Err(Code::ILLEGAL_ADDRESS);
            }
            for start in &starts {
                self.mappings.get_mut(start).ok_or(Code::UNKNOWN)?.access.insert(device, desc.flags);
            }
        }
        Ok(())
    }

    /// Unmaps a range of whole mappings. If work in flight uses it, this is a fault, which a GPU would report later.
    pub(crate) fn unmap(&mut self, host: &HostDriver, at: u64, bytes: u64) -> Result<(), Code> {
        let starts = self.whole_mappings(at, bytes)?;
        self.uses.retain(Use::is_in_flight);
        if self.uses.iter().any(|it| it.meets(at, bytes)) {
            say(format_args!("fakecuda: {bytes} B at {at:#x} were unmapped while work in flight uses them"));
            return Err(Code::ILLEGAL_ADDRESS);
        }
        for start in starts {
            let mapping = self.mappings.remove(&start).ok_or(Code::UNKNOWN)?;
            // SAFETY: it was mapped, and no known work uses it.
            answer(unsafe { host.unmap(start, mapping.bytes) })?;
        }
        Ok(())
    }

    /// Returns `true` if an address is mapped here.
    pub(crate) fn contains(&self, at: u64) -> bool {
        self.mapping(at).is_some()
    }

    /// Returns the start and the size of the mapping at an address.
    pub(crate) fn mapping(&self, at: u64) -> Option<(u64, u64)> {
        let (start, mapping) = self.mappings.range(..=at).next_back()?;
        (at - start < mapping.bytes).then_some((*start, mapping.bytes))
    }

    /// Checks that work of a device may use a range: all of it is mapped and accessible.
    pub(crate) fn check_use(&self, device: c_int, side: Side) -> Result<(), Code> {
        let Side { at, bytes, is_written } = side;
        let end = at.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let needed = if is_written { AccessDesc::READ_WRITE } else { AccessDesc::READ };
        let may = |mapping: &Mapping| mapping.access.get(&device).is_some_and(|flags| flags & needed == needed);
        let mut covered = at;
        while covered < end {
            match self.mappings.range(..=covered).next_back() {
                Some((&start, mapping)) if start + mapping.bytes > covered && may(mapping) => {
                    covered = start + mapping.bytes;
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// Records that work of a device uses a range until the event has completed.
    pub(crate) fn note_use(&mut self, device: c_int, over: Fence, side: Side) {
        if self.uses.len() >= USES_KEPT {
            self.uses.retain(Use::is_in_flight);
        }
        self.uses.push(Use { over, side, device });
    }

    /// Returns the first addresses of the mappings that make up a range exactly.
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
