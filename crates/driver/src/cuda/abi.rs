//! The types and numbers of the driver API that this crate uses, copied from `cuda.h` by hand.
//!
//! Knows no functions. The layouts are those of the header for 13.0 on 64-bit Linux. Assertions below check each
//! offset, so that a moved field does not compile. Result codes and other enumerations are plain numbers, because a
//! newer driver may return a number that no present header has.

use std::ffi::{CStr, c_int, c_uint};
use std::mem::{offset_of, size_of};

/// Defines a handle type for each kind of object: a pointer, as its number.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub usize);
    )*};
}

pub mod graph;
pub mod pool;

/// A result code (`CUresult`). The driver may return any number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Code(pub c_uint);

/// Defines the codes, with their names in the header.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $number:literal $name:ident;)*) => {
        impl Code {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                $(#[$doc])*
                pub const $code: Code = Code($number);
            )*

            /// Returns the header's name of a code, or `None` if it is not in this list.
            pub fn name(self) -> Option<&'static CStr> {
                let name = match self.0 {
                    $($number => concat!(stringify!($name), "\0"),)*
                    _ => return None,
                };
                CStr::from_bytes_with_nul(name.as_bytes()).ok()
            }
        }
    };
}

codes! {
    SUCCESS = 0 CUDA_SUCCESS;
    INVALID_VALUE = 1 CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = 2 CUDA_ERROR_OUT_OF_MEMORY;
    NOT_INITIALIZED = 3 CUDA_ERROR_NOT_INITIALIZED;
    NO_DEVICE = 100 CUDA_ERROR_NO_DEVICE;
    INVALID_DEVICE = 101 CUDA_ERROR_INVALID_DEVICE;
    INVALID_CONTEXT = 201 CUDA_ERROR_INVALID_CONTEXT;
    ILLEGAL_STATE = 401 CUDA_ERROR_ILLEGAL_STATE;
    INVALID_HANDLE = 400 CUDA_ERROR_INVALID_HANDLE;
    NOT_FOUND = 500 CUDA_ERROR_NOT_FOUND;
    /// The work has not completed; not a failure.
    NOT_READY = 600 CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = 700 CUDA_ERROR_ILLEGAL_ADDRESS;
    /// The current context is destroyed, or the context of a handle is.
    CONTEXT_IS_DESTROYED = 709 CUDA_ERROR_CONTEXT_IS_DESTROYED;
    LAUNCH_FAILED = 719 CUDA_ERROR_LAUNCH_FAILED;
    NOT_PERMITTED = 800 CUDA_ERROR_NOT_PERMITTED;
    NOT_SUPPORTED = 801 CUDA_ERROR_NOT_SUPPORTED;
    CAPTURE_UNSUPPORTED = 900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CAPTURE_INVALIDATED = 901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CAPTURE_ISOLATION = 905 CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    CAPTURE_IMPLICIT = 906 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    UNKNOWN = 999 CUDA_ERROR_UNKNOWN;
}

impl Code {
    /// Codes after which a context does no more work: every later call returns the code again.
    const STICKY: [c_uint; 15] = [4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721];

    /// Returns `true` if the code means that the context is lost.
    pub fn is_sticky(self) -> bool {
        Self::STICKY.contains(&self.0)
    }
}

/// A device (`CUdevice`).
pub type Device = c_int;
/// A device address (`CUdeviceptr`).
pub type Address = u64;
/// Physical memory (`CUmemGenericAllocationHandle`).
pub type Allocation = u64;

handles! {
    /// A context (`CUcontext`), as the number of its pointer.
    Context;
    /// A stream (`CUstream`), as the number of its pointer.
    Stream;
    /// An event (`CUevent`), as the number of its pointer.
    Event;
    /// A kernel of a module or of a library (`CUfunction`, `CUkernel`), as the number of its pointer.
    Function;
}

impl Stream {
    /// `CU_STREAM_LEGACY`
    pub const LEGACY: Stream = Stream(1);
    /// `CU_STREAM_PER_THREAD`: a different stream on each thread.
    pub const PER_THREAD: Stream = Stream(2);
}

/// The location of memory (`CUmemLocation`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Location {
    /// The kind of location (`CUmemLocationType`).
    pub kind: c_int,
    /// The number within the kind; a device's ordinal.
    pub id: c_int,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`
    pub const DEVICE: c_int = 1;
}

/// The properties of physical memory (`CUmemAllocationProp`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct AllocationProp {
    /// `CUmemAllocationType`
    pub kind: c_int,
    /// `CUmemAllocationHandleType`: the handle types by which the memory can be shared.
    pub handle_types: c_int,
    /// The location of the memory.
    pub location: Location,
    /// For Windows.
    pub win32_meta_data: usize,
    /// `allocFlags.compressionType`
    pub compression: u8,
    /// `allocFlags.gpuDirectRDMACapable`
    pub rdma_capable: u8,
    /// `allocFlags.usage`
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

impl AllocationProp {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`
    pub const PINNED: c_int = 1;

    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
    pub const FILE_DESCRIPTOR: c_int = 1;

    /// Returns the properties of device memory that can be shared with other processes as a file.
    pub fn shareable_on(device: Device) -> Self {
        Self { handle_types: Self::FILE_DESCRIPTOR, ..Self::on(device) }
    }

    /// Returns the properties of plain device memory.
    pub fn on(device: Device) -> Self {
        Self {
            kind: Self::PINNED,
            handle_types: 0,
            location: Location { kind: Location::DEVICE, id: device },
            win32_meta_data: 0,
            compression: 0,
            rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// The access of a device to mapped memory (`CUmemAccessDesc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct AccessDesc {
    /// The device.
    pub location: Location,
    /// Its access (`CUmemAccess_flags`).
    pub flags: c_int,
}

impl AccessDesc {
    /// `CU_MEM_ACCESS_FLAGS_PROT_NONE`
    pub const NONE: c_int = 0;
    /// `CU_MEM_ACCESS_FLAGS_PROT_READ`
    pub const READ: c_int = 1;
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
    pub const READ_WRITE: c_int = 3;

    /// Returns full access for a device.
    pub fn for_device(device: Device) -> Self {
        Self::with(device, Self::READ_WRITE)
    }

    /// Returns this access for a device.
    pub fn with(device: Device, flags: c_int) -> Self {
        Self { location: Location { kind: Location::DEVICE, id: device }, flags }
    }
}

/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
pub const GRANULARITY_MINIMUM: c_int = 0;
/// `CU_STREAM_DEFAULT`: ordered with the legacy default stream.
pub const STREAM_DEFAULT: c_uint = 0;
/// `CU_STREAM_NON_BLOCKING`
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DEFAULT`: with timing.
pub const EVENT_DEFAULT: c_uint = 0;
/// `CU_EVENT_DISABLE_TIMING`
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`: only together with `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_INTERPROCESS: c_uint = 4;

/// An event's name in other processes (`CUipcEventHandle`). It is passed by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct EventName(pub [u8; 64]);

/// Numbers of `CUdevice_attribute`.
pub mod attribute {
    use std::ffi::c_int;

    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`
    pub const CAPABILITY_MAJOR: c_int = 75;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`
    pub const CAPABILITY_MINOR: c_int = 76;
    /// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`
    pub const VIRTUAL_MEMORY: c_int = 102;
    /// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`
    pub const FILE_DESCRIPTORS: c_int = 103;
    /// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`
    pub const MEMORY_POOLS: c_int = 115;
    /// `CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED`
    pub const IPC_EVENTS: c_int = 125;
    /// `CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK`
    pub const DECOMPRESSION: c_int = 136;
}

const _: () = assert!(size_of::<Location>() == 8 && offset_of!(Location, id) == 4);
const _: () = assert!(size_of::<AllocationProp>() == 32 && align_of::<AllocationProp>() == 8);
const _: () = assert!(offset_of!(AllocationProp, handle_types) == 4 && offset_of!(AllocationProp, location) == 8);
const _: () = assert!(offset_of!(AllocationProp, win32_meta_data) == 16);
const _: () = assert!(offset_of!(AllocationProp, compression) == 24 && offset_of!(AllocationProp, usage) == 26);
const _: () = assert!(size_of::<AccessDesc>() == 12 && offset_of!(AccessDesc, flags) == 8);
const _: () = assert!(size_of::<EventName>() == 64 && align_of::<EventName>() == 1);
const _: () = assert!(size_of::<Code>() == 4 && size_of::<Stream>() == size_of::<*const ()>());
