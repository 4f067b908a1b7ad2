//! What `cuda.h` says of graphs: see the module above.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

use super::pool::PoolProps;
use super::{AccessDesc, Address, Context, Function};

handles! {
    /// A graph (`CUgraph`), as the number of its pointer.
    Graph;
    /// A node of a graph (`CUgraphNode`), as the number of its pointer.
    GraphNode;
    /// A graph that can be launched (`CUgraphExec`), as the number of its pointer.
    GraphExec;
    /// What a graph keeps of the program's (`CUuserObject`), as the number of its pointer.
    UserObject;
}

/// `CUhostFn`
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// What a memset node does (`CUDA_MEMSET_NODE_PARAMS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MemsetParams {
    /// First address.
    pub to: Address,
    /// Bytes from row to row; of no meaning with one row.
    pub pitch: usize,
    /// The value of each element.
    pub value: c_uint,
    /// Bytes of an element: 1, 2 or 4.
    pub element_bytes: c_uint,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CU_MEMORYTYPE_HOST`
pub const MEMORY_HOST: c_int = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub const MEMORY_DEVICE: c_int = 2;

/// One side of a copy: the first or second half of `CUDA_MEMCPY3D`, without its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CopySide {
    /// Offset in bytes.
    pub x: usize,
    /// Offset in rows.
    pub y: usize,
    /// Offset in slices.
    pub z: usize,
    /// Zero.
    pub level: usize,
    /// `CUmemorytype`
    pub kind: c_int,
    /// The address, where it is host memory.
    pub host: usize,
    /// The address, where it is device memory.
    pub device: Address,
    /// A `CUarray`, where it is one.
    pub array: usize,
    /// Null.
    pub reserved: usize,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Rows of a slice.
    pub height: usize,
}

impl CopySide {
    /// A row of host memory.
    pub fn host(at: usize, bytes: usize) -> Self {
        Self { kind: MEMORY_HOST, host: at, pitch: bytes, height: 1, ..Self::default() }
    }

    /// A row of device memory.
    pub fn device(at: Address, bytes: usize) -> Self {
        Self { kind: MEMORY_DEVICE, device: at, pitch: bytes, height: 1, ..Self::default() }
    }
}

/// What a copy node does (`CUDA_MEMCPY3D`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CopyParams {
    /// Where from.
    pub from: CopySide,
    /// Where to.
    pub to: CopySide,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// What a host node does (`CUDA_HOST_NODE_PARAMS`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostParams {
    /// What is called.
    pub function: HostFunction,
    /// With what.
    pub data: *mut c_void,
}

/// What a kernel node is (`CUDA_KERNEL_NODE_PARAMS_v1`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode {
    /// What runs; null where it is a kernel of a library.
    pub function: Function,
    /// Blocks.
    pub grid: [c_uint; 3],
    /// Threads of each block.
    pub block: [c_uint; 3],
    /// Shared memory of each block, in bytes.
    pub shared_bytes: c_uint,
    /// The arguments, one by one.
    pub params: *mut *mut c_void,
    /// The arguments as one piece.
    pub extra: *mut *mut c_void,
}

/// What a kernel node is, from `CUDA_KERNEL_NODE_PARAMS_v2` on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode2 {
    /// As before.
    pub first: KernelNode,
    /// The kernel of a library, where it is one.
    pub kernel: Function,
    /// Where it runs; null for the current one.
    pub context: Context,
}

/// What an alloc node is (`CUDA_MEM_ALLOC_NODE_PARAMS`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocNode {
    /// What the memory is like.
    pub pool: PoolProps,
    /// Which devices may use it.
    pub access: *const AccessDesc,
    /// How many these are.
    pub access_count: usize,
    /// Its size.
    pub bytes: usize,
    /// The answer: where it is.
    pub at: Address,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: no call of anybody is forbidden because of the capture.
pub const CAPTURE_RELAXED: c_int = 2;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: the destructor cannot be waited for.
pub const USER_OBJECT_NO_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's references go to the graph.
pub const USER_OBJECT_MOVE: c_uint = 1;

const _: () = assert!(size_of::<MemsetParams>() == 40 && offset_of!(MemsetParams, value) == 16);
const _: () = assert!(offset_of!(MemsetParams, element_bytes) == 20 && offset_of!(MemsetParams, width) == 24);
const _: () = assert!(size_of::<CopySide>() == 88 && offset_of!(CopySide, kind) == 32);
const _: () = assert!(offset_of!(CopySide, host) == 40 && offset_of!(CopySide, device) == 48);
const _: () = assert!(offset_of!(CopySide, pitch) == 72 && offset_of!(CopySide, height) == 80);
const _: () = assert!(size_of::<CopyParams>() == 200 && offset_of!(CopyParams, to) == 88);
const _: () = assert!(offset_of!(CopyParams, width) == 176 && offset_of!(CopyParams, depth) == 192);
const _: () = assert!(size_of::<HostParams>() == 16 && offset_of!(HostParams, data) == 8);
const _: () = assert!(size_of::<KernelNode>() == 56 && offset_of!(KernelNode, params) == 40);
const _: () = assert!(size_of::<KernelNode2>() == 72 && offset_of!(KernelNode2, kernel) == 56);
const _: () = assert!(size_of::<AllocNode>() == 120 && offset_of!(AllocNode, access) == 88);
const _: () = assert!(offset_of!(AllocNode, bytes) == 104 && offset_of!(AllocNode, at) == 112);
