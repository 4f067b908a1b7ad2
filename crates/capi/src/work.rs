//! Work that uses memory: kernels, copies, fills.

use std::ffi::c_void;

use millpond::{AccessList, Stream};

use crate::access::{Part, list, millpond_access, part};
use crate::status::{Failure, Result, guard, millpond_status, slice};
use crate::stream::{STREAMS, StreamEntry, millpond_stream_t};

/// A kernel of a host device, or a function that a CUDA device runs on the host's side. It must not call the library.
pub type millpond_kernel = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// A C function with its argument, to be run by the device.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: the caller gives both to the device's threads; the argument is the function's own business.
unsafe impl Send for Kernel {}

impl Kernel {
    pub(crate) fn new(function: millpond_kernel, argument: *mut c_void) -> Result<Self> {
        Ok(Self { function: function.ok_or(Failure::Null("kernel"))?, argument })
    }

    pub(crate) fn run(&self) {
        // SAFETY: the caller gave a function that may be called with this argument.
        unsafe { (self.function)(self.argument) };
    }
}

/// Does `act` with the accesses; where they are wrong and that is let pass, records them unchecked and does it without.
fn declared(
    entry: &StreamEntry,
    list: AccessList,
    mut act: impl FnMut(&Stream, AccessList) -> millpond::Result<()>,
) -> Result<()> {
    let again: Vec<_> = list.memory().cloned().collect();
    match act(&entry.stream, list) {
        Err(error) if entry.device.lets_pass(&error) => {
            for memory in &again {
                // A use of memory that was freed is the wrong order that was let pass; there is nothing to record.
                let _ = entry.stream.record_use(memory);
            }
            Ok(act(&entry.stream, AccessList::default())?)
        }
        other => Ok(other?),
    }
}

/// Runs a C function as a kernel at this point of the stream, after checking the declared accesses: each must come
/// after its allocation and before the free, and unordered accesses of other streams must not conflict. For a host
/// device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_launch(
    stream: millpond_stream_t,
    kernel: millpond_kernel,
    argument: *mut c_void,
    accesses: *const millpond_access,
    count: usize,
) -> millpond_status {
    guard("millpond_launch", || {
        let entry = STREAMS.find(stream)?;
        let accesses = list(&entry.device, None, slice(accesses, count, "accesses")?)?;
        let kernel = Kernel::new(kernel, argument)?;
        declared(&entry, accesses, |stream, list| stream.launch(list, move |()| kernel.run()))
    })
}

/// Declares, and checks, what the next kernel on this stream uses that the program launches itself (`<<<>>>`, cuBLAS).
/// Unordered accesses of one allocation pass: they may touch different halves. Not in a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_declare(
    stream: millpond_stream_t,
    accesses: *const millpond_access,
    count: usize,
) -> millpond_status {
    guard("millpond_declare", || {
        let entry = STREAMS.find(stream)?;
        let accesses = list(&entry.device, None, slice(accesses, count, "accesses")?)?;
        declared(&entry, accesses, |stream, list| {
            // SAFETY: nothing is submitted here; what the program submits next is its declaration's business.
            unsafe { stream.enqueue(list, |_, ()| Ok(())) }
        })
    })
}

fn with_part(
    stream: millpond_stream_t,
    pointer: *const c_void,
    bytes: usize,
    act: impl FnOnce(&StreamEntry, &Part) -> Result<()>,
) -> Result<()> {
    let entry = STREAMS.find(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    let part = part(&entry.device, None, pointer as u64, bytes)?;
    act(&entry, &part)
}

/// Copies host memory to the device in stream order; the source can be reused at once (CUDA: cudaMemcpyAsync).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_memcpy_htod_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_memcpy_htod_async", || {
        let from = slice(from.cast::<u8>(), bytes, "from")?;
        with_part(stream, to, bytes, |entry, Part { memory, offset, bytes }| {
            Ok(entry.stream.copy_from_host(memory.write(*offset, *bytes)?, from)?)
        })
    })
}

/// Copies device memory to the host and waits for it (CUDA: cudaMemcpyAsync and cudaStreamSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_memcpy_dtoh(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_memcpy_dtoh", || {
        if to.is_null() && bytes > 0 {
            return Err(Failure::Null("to"));
        }
        with_part(stream, from, bytes, |entry, Part { memory, offset, bytes }| {
            let copied = entry.stream.copy_to_host(memory.read(*offset, *bytes)?)?;
            // SAFETY: the promise of C callers: valid for that many bytes; the copy is a vector of our own.
            unsafe { std::ptr::copy_nonoverlapping(copied.as_ptr(), to.cast::<u8>(), copied.len()) };
            Ok(())
        })
    })
}

/// Copies between device memory in stream order (CUDA: cudaMemcpyAsync).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_memcpy_dtod_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_memcpy_dtod_async", || {
        with_part(stream, from, bytes, |entry, source| {
            let target = part(&entry.device, None, to as u64, bytes)?;
            let read = source.memory.read(source.offset, source.bytes)?;
            Ok(entry.stream.copy(read, target.memory.write(target.offset, target.bytes)?)?)
        })
    })
}

/// Sets each byte in stream order (CUDA: cudaMemsetAsync). As there, `value` is cut to a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_memset_async(
    pointer: *mut c_void,
    value: i32,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_memset_async", || {
        with_part(stream, pointer, bytes, |entry, Part { memory, offset, bytes }| {
            Ok(entry.stream.memset(memory.write(*offset, *bytes)?, value as u8)?)
        })
    })
}
