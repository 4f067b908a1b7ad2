//! The function table: the driver library, which is loaded at run time, and its functions that this crate uses.
//!
//! Knows the names and signatures of the functions, but not their purpose. If the library or a function is missing, the
//! error names it. The build needs nothing of CUDA.
//!
//! Functions are requested from `cuGetProcAddress_v2` by their plain name, for the interface of [`INTERFACE`]: later
//! drivers then return that version of each function. If the driver does not have `cuGetProcAddress_v2`, functions are
//! looked up by their names in the header.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;

use super::abi::graph::{CopyParams, Graph, GraphExec, GraphNode, HostFunction, HostParams, MemsetParams, UserObject};
use super::abi::{AccessDesc, Address, Allocation, AllocationProp, Code, Context, Device, Event, EventName, Stream};
use crate::errors::failed;
use crate::{DriverError, Result};

/// The environment variable that names the library.
pub const LIBRARY_VARIABLE: &str = "MILLPOND_LIBCUDA";
/// The names that the loader tries if the variable is not set.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// The interface for which functions are requested: CUDA 12.0.
const INTERFACE: c_int = 12_000;
/// The interface for functions that 12.0 does not have.
const LATER: c_int = 12_050;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;

/// Finds a function by its name in the header.
type Find<'a> = &'a dyn Fn(&'static str) -> Result<*mut c_void>;

/// Defines a table: a field for each function, with its name in the header.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $($field:ident = $name:ident($($argument:ty),*);)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl $table {
            fn resolve(find: Find<'_>) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        let function = find(stringify!($name))?;
                        type Function = unsafe extern "C" fn($($argument),*) -> Code;
                        // SAFETY: the function is not null, and has this signature in the header.
                        unsafe { std::mem::transmute::<*mut c_void, Function>(function) }
                    },)*
                })
            }
        }
    };
}

table! {
    /// The functions that every device needs.
    Table:
    init = cuInit(c_uint);
    driver_version = cuDriverGetVersion(*mut c_int);
    error_name = cuGetErrorName(Code, *mut *const c_char);
    error_string = cuGetErrorString(Code, *mut *const c_char);
    device_count = cuDeviceGetCount(*mut c_int);
    device = cuDeviceGet(*mut Device, c_int);
    device_name = cuDeviceGetName(*mut c_char, c_int, Device);
    device_attribute = cuDeviceGetAttribute(*mut c_int, c_int, Device);
    device_total_bytes = cuDeviceTotalMem_v2(*mut usize, Device);
    retain_primary = cuDevicePrimaryCtxRetain(*mut Context, Device);
    release_primary = cuDevicePrimaryCtxRelease_v2(Device);
    current_context = cuCtxGetCurrent(*mut Context);
    set_context = cuCtxSetCurrent(Context);
    push_context = cuCtxPushCurrent_v2(Context);
    pop_context = cuCtxPopCurrent_v2(*mut Context);
    context_device = cuCtxGetDevice(*mut Device);
    can_access_peer = cuDeviceCanAccessPeer(*mut c_int, Device, Device);
    synchronize_context = cuCtxSynchronize();
    granularity = cuMemGetAllocationGranularity(*mut usize, *const AllocationProp, c_int);
    memory_info = cuMemGetInfo_v2(*mut usize, *mut usize);
    reserve = cuMemAddressReserve(*mut Address, usize, usize, Address, u64);
    unreserve = cuMemAddressFree(Address, usize);
    create = cuMemCreate(*mut Allocation, usize, *const AllocationProp, u64);
    release = cuMemRelease(Allocation);
    map = cuMemMap(Address, usize, usize, Allocation, u64);
    set_access = cuMemSetAccess(Address, usize, *const AccessDesc, usize);
    unmap = cuMemUnmap(Address, usize);
    open_stream = cuStreamCreate(*mut Stream, c_uint);
    open_stream_with_priority = cuStreamCreateWithPriority(*mut Stream, c_uint, c_int);
    close_stream = cuStreamDestroy_v2(Stream);
    stream_context = cuStreamGetCtx(Stream, *mut Context);
    exchange_mode = cuThreadExchangeStreamCaptureMode(*mut c_int);
    is_capturing = cuStreamIsCapturing(Stream, *mut c_int);
    wait_event = cuStreamWaitEvent(Stream, Event, c_uint);
    open_event = cuEventCreate(*mut Event, c_uint);
    close_event = cuEventDestroy_v2(Event);
    record_event = cuEventRecord(Event, Stream);
    query_event = cuEventQuery(Event);
    block_on_event = cuEventSynchronize(Event);
    copy_in = cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Stream);
    copy_out = cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Stream);
    copy = cuMemcpyDtoDAsync_v2(Address, Address, usize, Stream);
    fill = cuMemsetD8Async(Address, u8, usize, Stream);
    host_function = cuLaunchHostFunc(Stream, HostFunction, *mut c_void);
}

table! {
    /// The functions of graphs. If one of them is missing, there are no graphs.
    GraphTable:
    open = cuGraphCreate(*mut Graph, c_uint);
    close = cuGraphDestroy(Graph);
    nodes = cuGraphGetNodes(Graph, *mut GraphNode, *mut usize);
    add_empty = cuGraphAddEmptyNode(*mut GraphNode, Graph, *const GraphNode, usize);
    add_memset = cuGraphAddMemsetNode(*mut GraphNode, Graph, *const GraphNode, usize, *const MemsetParams, Context);
    add_copy = cuGraphAddMemcpyNode(*mut GraphNode, Graph, *const GraphNode, usize, *const CopyParams, Context);
    add_host = cuGraphAddHostNode(*mut GraphNode, Graph, *const GraphNode, usize, *const HostParams);
    add_child = cuGraphAddChildGraphNode(*mut GraphNode, Graph, *const GraphNode, usize, Graph);
    open_object = cuUserObjectCreate(*mut UserObject, *mut c_void, HostFunction, c_uint, c_uint);
    close_object = cuUserObjectRelease(UserObject, c_uint);
    keep_object = cuGraphRetainUserObject(Graph, UserObject, c_uint, c_uint);
    instantiate = cuGraphInstantiateWithFlags(*mut GraphExec, Graph, u64);
    upload = cuGraphUpload(GraphExec, Stream);
    launch = cuGraphLaunch(GraphExec, Stream);
    close_exec = cuGraphExecDestroy(GraphExec);
    begin_capture = cuStreamBeginCapture_v2(Stream, c_int);
    end_capture = cuStreamEndCapture(Stream, *mut Graph);
}

table! {
    /// The functions that share memory between processes. If one of them is missing, memory cannot be shared.
    ShareTable:
    export = cuMemExportToShareableHandle(*mut c_void, Allocation, c_int, u64);
    import = cuMemImportFromShareableHandle(*mut Allocation, *mut c_void, c_int);
}

table! {
    /// The functions that let other processes wait for events. If one of them is missing, events cannot be shared.
    EventTable:
    name = cuIpcGetEventHandle(*mut EventName, Event);
    open = cuIpcOpenEventHandle(*mut Event, EventName);
}

table! {
    /// The functions that record all work of a context. If one of them is missing, that work can only be waited for.
    AllTable:
    record = cuCtxRecordEvent(Context, Event);
}

table! {
    /// The function that returns the time between events. If it is missing, there are no times.
    TimeTable:
    elapsed = cuEventElapsedTime(*mut f32, Event, Event);
}

table! {
    /// The functions of page-locked host memory. If one of them is missing, there is no such memory.
    PinTable:
    alloc = cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    free = cuMemFreeHost(*mut c_void);
}

/// The library, loaded, with its tables.
pub(super) struct Api {
    pub(super) table: Table,
    /// `None` if a function is missing.
    pub(super) graphs: Option<GraphTable>,
    /// `None` if a function is missing.
    pub(super) shares: Option<ShareTable>,
    /// `None` if a function is missing.
    pub(super) events: Option<EventTable>,
    /// `None` if a function is missing.
    pub(super) all: Option<AllTable>,
    /// `None` if a function is missing.
    pub(super) pins: Option<PinTable>,
    /// `None` if the function is missing.
    pub(super) times: Option<TimeTable>,
    /// The name by which the library was loaded.
    pub(super) name: String,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Api {
    /// Loads the library: the given one, or the one of the setting, or the system's.
    ///
    /// # Errors
    /// The libraries that were tried, or the function that is missing.
    pub(super) fn load(given: Option<&Path>) -> Result<Self> {
        let (library, name) = open(given)?;
        // A driver library is never unloaded: it has threads of its own, and other code in the process uses it.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let by_name = |symbol: &str| lookup(library, symbol);
        let ask = by_name("cuGetProcAddress_v2").map(|function| {
            // SAFETY: the function has this signature in the header.
            unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(function) }
        });
        let find = |versioned: &'static str| {
            let plain = versioned.strip_suffix("_v2").unwrap_or(versioned);
            match ask {
                Some(ask) => ask_for(ask, plain).ok_or_else(|| missing(&name, plain)),
                None => by_name(versioned).ok_or_else(|| missing(&name, versioned)),
            }
        };
        let (graphs, shares) = (GraphTable::resolve(&find).ok(), ShareTable::resolve(&find).ok());
        let (events, all) = (EventTable::resolve(&find).ok(), AllTable::resolve(&find).ok());
        let (times, pins) = (TimeTable::resolve(&find).ok(), PinTable::resolve(&find).ok());
        let table = Table::resolve(&find)?;
        Ok(Self { table, graphs, shares, events, all, pins, times, name })
    }

    /// Returns the meaning of a code, in the library's words if it has any.
    #[cold]
    pub(super) fn explain(&self, code: Code) -> String {
        let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is valid for a pointer.
            let answer = unsafe { function(code, &raw mut text) };
            // SAFETY: on success it returns a string that lives for ever.
            (answer == Code::SUCCESS && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        match (ask(self.table.error_name), ask(self.table.error_string)) {
            (Some(name), Some(text)) => format!("{name} ({}): {text}", code.0),
            (Some(name), None) => format!("{name} ({})", code.0),
            _ => format!("result code {}, which this driver has no name for", code.0),
        }
    }
}

/// Opens the first library that exists.
fn open(given: Option<&Path>) -> Result<(libloading::Library, String)> {
    let given = given.map(|path| path.as_os_str().to_owned());
    let set = given.or_else(|| std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()));
    let names: Vec<OsString> = match set {
        Some(path) => vec![path],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    let mut refusals = Vec::new();
    for name in names {
        // SAFETY: the library's initialisation is its own responsibility; the user requested this library.
        match unsafe { libloading::Library::new(&name) } {
            Ok(library) => return Ok((library, name.to_string_lossy().into_owned())),
            Err(error) => refusals.push(reason(&error)),
        }
    }
    Err(failed(
        "open CUDA",
        format!(
            "the driver library is missing ({}): install the NVIDIA driver, or name its library in {LIBRARY_VARIABLE}",
            refusals.join("; ")
        ),
    ))
}

/// Returns the loader's own text, which is in the source of the error and names the library.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn lookup(library: &libloading::Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: only the address of the symbol is used.
    let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?;
    Some(*found).filter(|function| !function.is_null())
}

fn ask_for(ask: GetProcAddress, symbol: &str) -> Option<*mut c_void> {
    let symbol = CString::new(symbol).ok()?;
    [INTERFACE, LATER].into_iter().find_map(|interface| {
        let (mut function, mut status) = (std::ptr::null_mut(), 0);
        // SAFETY: a string and two valid pointers, as the header requires.
        let answer = unsafe { ask(symbol.as_ptr(), &raw mut function, interface, 0, &raw mut status) };
        (answer == Code::SUCCESS && !function.is_null()).then_some(function)
    })
}

#[cold]
fn missing(library: &str, symbol: &str) -> DriverError {
    failed("open CUDA", format!("{library} has no function `{symbol}`: the NVIDIA driver is too old, or not one"))
}
