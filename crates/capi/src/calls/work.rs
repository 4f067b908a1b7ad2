//! Work that uses memory: kernels, copies, fills.

use std::ffi::c_void;

use millpond::Stream;
use millpond::raw::AccessList;

use super::access::{Part, list, millpond_access, part};
use crate::status::{Failure, Result, guard, millpond_status, slice};
use crate::tables::stream::{STREAMS, StreamEntry, millpond_stream_t};

/// A kernel of a host device, or a function that a CUDA device runs on the host. It must not call the library, and it
/// must return: if it ends its thread (pthread_exit), jumps out (longjmp), or lets a C++ exception leave it, the
/// process's behaviour is undefined.
pub type millpond_kernel = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// A C function with its argument, which the device runs.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: the caller gives both to the device's threads; only the function uses the argument.
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

/// Calls `act` with the accesses. If they are wrong and the checks let that pass, records them unchecked and calls it
/// without.
fn declared(
    entry: &StreamEntry,
    list: AccessList,
    mut act: impl FnMut(&Stream, AccessList) -> millpond::Result<()>,
) -> Result<()> {
    let refused = list.clone();
    match act(&entry.stream, list) {
        Err(error) if entry.device.lets_pass(&error) => {
            entry.stream.record_refused(&refused);
            Ok(act(&entry.stream, AccessList::default())?)
        }
        other => Ok(other?),
    }
}

/// Runs a C function as a kernel at this point of the stream, after checking the declared accesses. Each must come
/// after its allocation and before its free, and must not conflict with an unordered access of another stream. For a
/// host device.
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

/// Declares the accesses of the next kernel on this stream, which the program launches itself (`<<<>>>`, cuBLAS). They
/// are checked as by millpond_launch. In a capture of a CUDA device, the work that is submitted to the stream up to its
/// next call is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_declare(
    stream: millpond_stream_t,
    accesses: *const millpond_access,
    count: usize,
) -> millpond_status {
    guard("millpond_declare", || {
        let entry = STREAMS.find(stream)?;
        let accesses = list(&entry.device, None, slice(accesses, count, "accesses")?)?;
        declared(&entry, accesses, Stream::declare)
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
    let part = part(&entry.device, None, pointer as u64, Some(bytes))?;
    act(&entry, &part)
}

/// Copies host memory to the device in stream order. The source can be reused at once (CUDA: cudaMemcpyAsync).
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

/// Copies device memory to the host and waits for the copy (CUDA: cudaMemcpyAsync and cudaStreamSynchronize).
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
            // SAFETY: the promise of C callers: valid for that many bytes; the copy is in a vector of this function.
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
            let target = part(&entry.device, None, to as u64, Some(bytes))?;
            let read = source.memory.read(source.offset, source.bytes)?;
            Ok(entry.stream.copy(read, target.memory.write(target.offset, target.bytes)?)?)
        })
    })
}

/// Sets each byte in stream order (CUDA: cudaMemsetAsync). As in CUDA, `value` is truncated to a byte.
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

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;
    use std::sync::Arc;

    use millpond::check::Kind;
    use millpond::config::Trace;
    use millpond::{Device, HostConfig};
    use millpond_core::check::{Checker, Settings};
    use millpond_core::trace::ops::Reader;

    use super::*;
    use crate::calls::access::{MILLPOND_READ, MILLPOND_WRITE};
    use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
    use crate::calls::device::{millpond_device_destroy, millpond_device_set_checks, millpond_device_synchronize};
    use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
    use crate::calls::stream::{millpond_stream_create, millpond_stream_destroy};
    use crate::tables::device::{DEVICES, DeviceEntry, millpond_checks, millpond_device_t};
    use millpond_status::*;

    /// A device, two of its streams, and memory that was allocated on the first.
    struct Subject {
        device: millpond_device_t,
        streams: [millpond_stream_t; 2],
        memory: *mut c_void,
    }

    impl Subject {
        fn new(trace: Option<Trace>) -> Self {
            let opened = Device::host(HostConfig::default().trace(trace)).expect("a host device");
            let device = DEVICES.insert(Arc::new(DeviceEntry::new(opened))).ok().expect("there is room");
            let streams = [(); 2].map(|()| {
                let mut stream = null_mut();
                // SAFETY: the pointer is valid for the call.
                assert_eq!(unsafe { millpond_stream_create(&mut stream, device) }, MILLPOND_SUCCESS);
                stream
            });
            let mut memory = null_mut();
            // SAFETY: as above.
            assert_eq!(unsafe { millpond_malloc_async(&mut memory, 4096, streams[0]) }, MILLPOND_SUCCESS);
            Self { device, streams, memory }
        }

        fn access(&self, mode: i32) -> millpond_access {
            millpond_access { pointer: self.memory, bytes: 0, mode }
        }

        fn declare(&self, stream: usize, mode: i32) -> millpond_status {
            // SAFETY: one access.
            unsafe { millpond_declare(self.streams[stream], &self.access(mode), 1) }
        }

        fn launch(&self, stream: usize, mode: i32) -> millpond_status {
            unsafe extern "C" fn nothing(_: *mut c_void) {}
            // SAFETY: one access; the function can be called with any argument.
            unsafe { millpond_launch(self.streams[stream], Some(nothing), null_mut(), &self.access(mode), 1) }
        }

        fn synchronize(&self) {
            // SAFETY: a handle is a number.
            assert_eq!(unsafe { millpond_device_synchronize(self.device) }, MILLPOND_SUCCESS);
        }
    }

    impl Drop for Subject {
        fn drop(&mut self) {
            for stream in self.streams {
                // SAFETY: handles are numbers.
                assert_eq!(unsafe { millpond_stream_destroy(stream) }, MILLPOND_SUCCESS);
            }
            // SAFETY: as above.
            assert_eq!(unsafe { millpond_device_destroy(self.device) }, MILLPOND_SUCCESS);
        }
    }

    #[test]
    fn what_is_declared_is_checked_as_what_is_launched() {
        let on = Subject::new(None);
        on.synchronize();
        assert_eq!(on.declare(0, MILLPOND_WRITE), MILLPOND_SUCCESS);
        assert_eq!(on.declare(1, MILLPOND_WRITE), MILLPOND_ERROR_ORDER, "a race");
        assert_eq!(on.declare(1, MILLPOND_READ), MILLPOND_ERROR_ORDER, "a race");
        on.synchronize();
        assert_eq!(on.declare(1, MILLPOND_READ), MILLPOND_SUCCESS);
    }

    #[test]
    fn a_kernel_reads_and_writes_in_place_and_a_copy_does_not() {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        let on = Subject::new(None);
        on.synchronize();
        let both = [on.access(MILLPOND_READ), on.access(MILLPOND_WRITE)];
        // SAFETY: two accesses; the function can be called with any argument.
        let launched = unsafe { millpond_launch(on.streams[0], Some(nothing), null_mut(), both.as_ptr(), 2) };
        assert_eq!(launched, MILLPOND_SUCCESS);
        assert_eq!(on.declare(1, MILLPOND_READ), MILLPOND_ERROR_ORDER, "what is used in place is written");
        // SAFETY: two accesses.
        assert_eq!(unsafe { millpond_declare(on.streams[0], both.as_ptr(), 2) }, MILLPOND_SUCCESS);
        let to = on.memory.wrapping_byte_add(1000);
        // SAFETY: the pointers may be any values; the call checks them.
        let copied = unsafe { millpond_memcpy_dtod_async(to, on.memory, 1001, on.streams[0]) };
        assert_eq!(copied, MILLPOND_ERROR_INVALID_VALUE, "they overlap");
        // SAFETY: as above.
        let copied = unsafe { millpond_memcpy_dtod_async(to, on.memory, 1000, on.streams[0]) };
        assert_eq!(copied, MILLPOND_SUCCESS);
    }

    #[test]
    fn what_is_declared_in_a_capture_is_a_node() {
        let on = Subject::new(None);
        on.synchronize();
        let mut graph = null_mut();
        // SAFETY: a handle is a number.
        assert_eq!(unsafe { millpond_stream_begin_capture(on.streams[0]) }, MILLPOND_SUCCESS);
        assert_eq!(on.declare(0, MILLPOND_WRITE), MILLPOND_SUCCESS);
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { millpond_stream_end_capture(on.streams[0], &mut graph) }, MILLPOND_SUCCESS);
    }

    /// Returns a checker's findings about a program that runs with its checks off, in order.
    fn found(name: &str, act: impl FnOnce(&Subject)) -> Vec<(Kind, String)> {
        let path = std::env::temp_dir().join(format!("millpond-{}-{name}", std::process::id()));
        let trace = Trace::create(&path).expect("a trace");
        let on = Subject::new(Some(trace.clone()));
        // SAFETY: a handle is a number.
        let set = unsafe { millpond_device_set_checks(on.device, millpond_checks::MILLPOND_CHECKS_OFF as i32) };
        assert_eq!(set, MILLPOND_SUCCESS);
        act(&on);
        drop((on, trace));
        let (mut reader, mut checker, mut findings) = (Reader::new(), Checker::new(Settings::default()), Vec::new());
        reader.feed(&std::fs::read(&path).expect("it was written"));
        while let Some(op) = reader.next_op().expect("it is whole") {
            checker.check(&op, reader.names(), &mut findings);
        }
        assert!(reader.is_finished());
        checker.finish(reader.names(), &mut findings);
        findings.iter().map(|it| (it.kind, it.later.as_ref().map_or(String::new(), |side| side.verb.clone()))).collect()
    }

    #[test]
    fn what_is_let_pass_is_in_the_trace_as_what_it_was() {
        let wrong_free = found("let_pass_free.trace", |on| {
            // SAFETY: the pointer may be any value; the call checks it.
            assert_eq!(unsafe { millpond_free_async(on.memory, on.streams[1]) }, MILLPOND_SUCCESS);
        });
        assert_eq!(wrong_free, [(Kind::FreeBeforeAlloc, "freed".to_owned())]);
        let right_free = |on: &Subject| {
            on.synchronize();
            // SAFETY: as above.
            assert_eq!(unsafe { millpond_free_async(on.memory, on.streams[0]) }, MILLPOND_SUCCESS);
        };
        let wrong_launch = found("let_pass_launch.trace", |on| {
            assert_eq!(on.launch(1, MILLPOND_READ), MILLPOND_SUCCESS);
            right_free(on);
        });
        assert_eq!(wrong_launch, [(Kind::UseBeforeAlloc, "read".to_owned())]);
        let wrong_declaration = found("let_pass_declare.trace", |on| {
            assert_eq!(on.declare(1, MILLPOND_READ), MILLPOND_SUCCESS);
            right_free(on);
        });
        assert_eq!(wrong_declaration, wrong_launch);
    }
}
