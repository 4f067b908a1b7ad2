//! The function table: the driver library, found at run time, and the functions of it that are used.
//!
//! Knows names and signatures, and nothing of what the functions are for. What is missing (the library, a function) is
//! an error that names it. Nothing of CUDA is needed when this is built.
//!
//! Functions are asked for by `cuGetProcAddress_v2` and the plain name, for the interface of [`INTERFACE`]: later
//! drivers then answer with that version of each function. A driver without it has its functions looked up under the
//! names that the header gives them.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;

use super::abi::graph::{CopyParams, Graph, GraphExec, GraphNode, HostFunction, HostParams, MemsetParams, UserObject};
use super::abi::{AccessDesc, Address, Allocation, AllocationProp, Code, Context, Device, Event, EventName, Stream};
use crate::errors::failed;
use crate::{DriverError, Result};

/// The setting that names the library.
pub const LIBRARY_VARIABLE: &str = "MILLPOND_LIBCUDA";
/// Where the loader looks without the setting.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// The interface that functions are asked for: CUDA 12.0.
const INTERFACE: c_int = 12_000;
/// That of functions which are younger.
const LATER: c_int = 12_050;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;

/// Finds a function by the name that the header gives it.
type Find<'a> = &'a dyn Fn(&'static str) -> Result<*mut c_void>;

/// Writes a table: a field for each function, with the name that the header gives it.
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
                        // SAFETY: a function that is not null, of this signature by the header.
                        unsafe { std::mem::transmute::<*mut c_void, Function>(function) }
                    },)*
                })
            }
        }
    };
}

table! {
    /// The functions without which there is no device.
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
    /// The functions of graphs. Where one of them is missing, there are no graphs.
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
    /// The functions that share memory between processes. Where one of them is missing, there is no sharing.
    ShareTable:
    export = cuMemExportToShareableHandle(*mut c_void, Allocation, c_int, u64);
    import = cuMemImportFromShareableHandle(*mut Allocation, *mut c_void, c_int);
}

table! {
    /// The functions that let other processes wait for events. Where one of them is missing, none does.
    EventTable:
    name = cuIpcGetEventHandle(*mut EventName, Event);
    open = cuIpcOpenEventHandle(*mut Event, EventName);
}

table! {
    /// The functions that know all work of a context. Where one of them is missing, that can only be waited for.
    AllTable:
    record = cuCtxRecordEvent(Context, Event);
}

table! {
    /// The function that tells the time between events. Where it is missing, no times are taken.
    TimeTable:
    elapsed = cuEventElapsedTime(*mut f32, Event, Event);
}

table! {
    /// The functions of page-locked host memory. Where one of them is missing, there is none.
    PinTable:
    alloc = cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    free = cuMemFreeHost(*mut c_void);
}

/// The library, loaded, with its tables.
pub(super) struct Api {
    pub(super) table: Table,
    /// None where a function is missing.
    pub(super) graphs: Option<GraphTable>,
    /// None where a function is missing.
    pub(super) shares: Option<ShareTable>,
    /// None where a function is missing.
    pub(super) events: Option<EventTable>,
    /// None where a function is missing.
    pub(super) all: Option<AllTable>,
    /// None where a function is missing.
    pub(super) pins: Option<PinTable>,
    /// None where the function is missing.
    pub(super) times: Option<TimeTable>,
    /// What was loaded, as it was asked for.
    pub(super) name: String,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Api {
    /// Loads the library: the one given, or that of the setting, or the system's.
    ///
    /// # Errors
    /// What was looked for where, and what of it is missing.
    pub(super) fn load(given: Option<&Path>) -> Result<Self> {
        let (library, name) = open(given)?;
        // A driver library is never unloaded: it has threads of its own, and others in the process use it.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let by_name = |symbol: &str| lookup(library, symbol);
        let ask = by_name("cuGetProcAddress_v2").map(|function| {
            // SAFETY: a function of this signature by the header.
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

    /// What a code means, in the library's words where it has any.
    #[cold]
    pub(super) fn explain(&self, code: Code) -> String {
        let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is a place for a pointer.
            let answer = unsafe { function(code, &raw mut text) };
            // SAFETY: where it answers, it answers a string that lives for ever.
            (answer == Code::SUCCESS && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        match (ask(self.table.error_name), ask(self.table.error_string)) {
            (Some(name), Some(text)) => format!("{name} ({}): {text}", code.0),
            (Some(name), None) => format!("{name} ({})", code.0),
            _ => format!("result code {}, which this driver has no name for", code.0),
        }
    }
}

/// Opens the first library of those that are asked for.
fn open(given: Option<&Path>) -> Result<(libloading::Library, String)> {
    let given = given.map(|path| path.as_os_str().to_owned());
    let set = given.or_else(|| std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()));
    let names: Vec<OsString> = match set {
        Some(path) => vec![path],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    let mut refusals = Vec::new();
    for name in names {
        // SAFETY: what a library does when it is loaded is its own matter; this one was asked for.
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

/// The loader's own words, which are in the source of the error and name the library.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn lookup(library: &libloading::Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: only the address is taken, as what it is.
    let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?;
    Some(*found).filter(|function| !function.is_null())
}

fn ask_for(ask: GetProcAddress, symbol: &str) -> Option<*mut c_void> {
    let symbol = CString::new(symbol).ok()?;
    [INTERFACE, LATER].into_iter().find_map(|interface| {
        let (mut function, mut status) = (std::ptr::null_mut(), 0);
        // SAFETY: a string and two places, as the header wants them.
        let answer = unsafe { ask(symbol.as_ptr(), &raw mut function, interface, 0, &raw mut status) };
        (answer == Code::SUCCESS && !function.is_null()).then_some(function)
    })
}

#[cold]
fn missing(library: &str, symbol: &str) -> DriverError {
    failed("open CUDA", format!("{library} has no function `{symbol}`: the NVIDIA driver is too old, or not one"))
}
