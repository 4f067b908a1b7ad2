//! The types and numbers of graphs, copied from `cuda.h`: see the module above.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

use super::pool::PoolProps;
use super::{AccessDesc, Address, Context, Function};

handles! {
    /// A graph (`CUgraph`), as the number of its pointer.
    Graph;
    /// A node of a graph (`CUgraphNode`), as the number of its pointer.
    GraphNode;
    /// An executable graph (`CUgraphExec`), as the number of its pointer.
    GraphExec;
    /// An object of the program that a graph keeps (`CUuserObject`), as the number of its pointer.
    UserObject;
}

/// `CUhostFn`
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// The parameters of a memset node (`CUDA_MEMSET_NODE_PARAMS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MemsetParams {
    /// First address.
    pub to: Address,
    /// Bytes from row to row; ignored for one row.
    pub pitch: usize,
    /// The value of each element.
    pub value: c_uint,
    /// Bytes of an element: 1, 2 or 4.
    pub element_bytes: c_uint,
    /// The number of elements in a row.
    pub width: usize,
    /// The number of rows.
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
    /// The address of host memory.
    pub host: usize,
    /// The address of device memory.
    pub device: Address,
    /// The array (`CUarray`).
    pub array: usize,
    /// Null.
    pub reserved: usize,
    /// Bytes from row to row.
    pub pitch: usize,
    /// The number of rows in a slice.
    pub height: usize,
}

impl CopySide {
    /// Returns a row of host memory.
    pub fn host(at: usize, bytes: usize) -> Self {
        Self { kind: MEMORY_HOST, host: at, pitch: bytes, height: 1, ..Self::default() }
    }

    /// Returns a row of device memory.
    pub fn device(at: Address, bytes: usize) -> Self {
        Self { kind: MEMORY_DEVICE, device: at, pitch: bytes, height: 1, ..Self::default() }
    }
}

/// The parameters of a copy node (`CUDA_MEMCPY3D`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CopyParams {
    /// The source.
    pub from: CopySide,
    /// The destination.
    pub to: CopySide,
    /// Bytes of a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

/// The parameters of a host node (`CUDA_HOST_NODE_PARAMS`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostParams {
    /// The function that is called.
    pub function: HostFunction,
    /// The function's argument.
    pub data: *mut c_void,
}

/// The parameters of a kernel node (`CUDA_KERNEL_NODE_PARAMS_v1`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode {
    /// The function; null for a kernel of a library.
    pub function: Function,
    /// The number of blocks.
    pub grid: [c_uint; 3],
    /// The number of threads of each block.
    pub block: [c_uint; 3],
    /// The shared memory of each block, in bytes.
    pub shared_bytes: c_uint,
    /// The arguments, as one pointer each.
    pub params: *mut *mut c_void,
    /// The arguments, as one buffer.
    pub extra: *mut *mut c_void,
}

/// The parameters of a kernel node, from `CUDA_KERNEL_NODE_PARAMS_v2` on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode2 {
    /// The fields of the first version.
    pub first: KernelNode,
    /// The kernel, if it belongs to a library.
    pub kernel: Function,
    /// The context; null for the current one.
    pub context: Context,
}

/// The parameters of an alloc node (`CUDA_MEM_ALLOC_NODE_PARAMS`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocNode {
    /// The properties of the memory.
    pub pool: PoolProps,
    /// The devices that may use it.
    pub access: *const AccessDesc,
    /// The number of these devices.
    pub access_count: usize,
    /// The size in bytes.
    pub bytes: usize,
    /// Output: the address.
    pub at: Address,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: the capture forbids no calls of any thread.
pub const CAPTURE_RELAXED: c_int = 2;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: no call waits for the destructor.
pub const USER_OBJECT_NO_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's references move to the graph.
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
