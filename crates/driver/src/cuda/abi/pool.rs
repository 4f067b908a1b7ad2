//! The types and numbers of CUDA's own pools, copied from `cuda.h`: see the module above.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};

use super::{AllocationProp, Device, Location};

handles! {
    /// A pool (`CUmemoryPool`), as the number of its pointer.
    Pool;
}

/// The properties of a pool (`CUmemPoolProps`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PoolProps {
    /// `CUmemAllocationType`
    pub kind: c_int,
    /// `CUmemAllocationHandleType`: the handle types by which the memory can be shared.
    pub handle_types: c_int,
    /// The location of the memory.
    pub location: Location,
    /// For Windows.
    pub win32_security: usize,
    /// The most bytes that it may have; 0 for no limit.
    pub max_bytes: usize,
    /// `CUmemPool_flags`
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 54],
}

impl PoolProps {
    /// `CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS`
    pub const DECOMPRESSION: u16 = 2;

    /// Returns the properties of a pool of plain device memory; 0 for no limit.
    pub fn on(device: Device, max_bytes: usize) -> Self {
        let AllocationProp { kind, handle_types, location, .. } = AllocationProp::on(device);
        Self { kind, handle_types, location, win32_security: 0, max_bytes, usage: 0, reserved: [0; 54] }
    }
}

/// Numbers of `CUmemPool_attribute`: three switches, a threshold, and four statistics in bytes.
pub mod attribute {
    use std::ffi::c_int;

    /// `CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES`
    pub const FOLLOW_EVENTS: c_int = 1;
    /// `CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC`
    pub const OPPORTUNISTIC: c_int = 2;
    /// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`
    pub const INTERNAL: c_int = 3;
    /// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`
    pub const RELEASE_THRESHOLD: c_int = 4;
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`
    pub const RESERVED: c_int = 5;
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`
    pub const RESERVED_HIGH: c_int = 6;
    /// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`
    pub const USED: c_int = 7;
    /// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`
    pub const USED_HIGH: c_int = 8;
}

const _: () = assert!(size_of::<PoolProps>() == 88 && offset_of!(PoolProps, win32_security) == 16);
const _: () = assert!(offset_of!(PoolProps, max_bytes) == 24 && offset_of!(PoolProps, usage) == 32);
