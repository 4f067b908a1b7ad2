//! The structures of `cuda.h` that wrapped calls get, as far as they are read here.
//!
//! There are no functions here. Layouts are those of the headers from 11.2 to 13.x on 64-bit Linux, asserted below. A
//! program's structure may be older or longer than the one declared here: only fields that all versions have are read.

use std::ffi::{c_int, c_uint};
use std::mem::{offset_of, size_of};

pub(crate) use millpond_driver::cuda::abi::graph::{
    AllocNode, CopyParams, CopySide, Graph, GraphExec, GraphNode, KernelNode, KernelNode2, MEMORY_DEVICE, MEMORY_HOST,
    MemsetParams,
};
pub(crate) use millpond_driver::cuda::abi::pool::{Pool, PoolProps};
pub(crate) use millpond_driver::cuda::abi::{AccessDesc, Code, Context, Event, Function, Location, Stream};

/// `CU_MEMORYTYPE_UNIFIED`: the driver finds the memory's kind from the address.
pub(crate) const MEMORY_UNIFIED: c_int = 4;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`
pub(crate) const EXTERNAL: c_uint = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
pub(crate) const AUTO_FREE: u64 = 1;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
pub(crate) const ATTRIBUTE_EARLY: c_uint = 6;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`
pub(crate) const ATTRIBUTE_EVENT: c_uint = 7;
/// `CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT`
pub(crate) const ATTRIBUTE_STARTED: c_uint = 12;

/// An attribute of a launch (`CUlaunchAttribute`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) pad: u32,
    pub(crate) value: [u64; 8],
}

/// The configuration of a kernel's launch (`CUlaunchConfig`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Stream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// One side of a copy of rows: the first or second half of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RowsSide {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_int,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: usize,
    pub(crate) pitch: usize,
}

/// A copy of rows (`CUDA_MEMCPY2D`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Rows {
    pub(crate) from: RowsSide,
    pub(crate) to: RowsSide,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// An operation of `cuStreamBatchMemOp` (`CUstreamBatchMemOpParams`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StreamMemOp {
    pub(crate) operation: c_uint,
    pub(crate) at: u64,
    pub(crate) rest: [u64; 4],
}

/// The parameters of a graph's instantiation (`CUDA_GRAPH_INSTANTIATE_PARAMS`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload: Stream,
    pub(crate) error_node: usize,
    pub(crate) result: c_int,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && offset_of!(LaunchAttribute, value) == 8);
const _: () = assert!(size_of::<LaunchConfig>() == 56 && offset_of!(LaunchConfig, stream) == 32);
const _: () = assert!(offset_of!(LaunchConfig, attributes) == 40 && offset_of!(LaunchConfig, count) == 48);
const _: () = assert!(size_of::<RowsSide>() == 56 && offset_of!(RowsSide, host) == 24);
const _: () = assert!(size_of::<Rows>() == 128 && offset_of!(Rows, width) == 112);
const _: () = assert!(size_of::<StreamMemOp>() == 48 && offset_of!(StreamMemOp, at) == 8);
const _: () = assert!(size_of::<InstantiateParams>() == 32);
