//! Allocation and free by pointer.
//!
//! The hot path is `malloc_async` and `free_async`: the stream's entry, the library's own path, and one place of
//! `tables/pointers`. A buffer stays in its place until it is freed, so a refused free changes nothing.
//!
//! The simple version takes the locks of the entry, the stream and the bucket, and has one path. Departure: a call is
//! first tried as its thread does it that owns all three (`try_allocate`, `Pointers::free_own`): one function, without
//! waiting, and without a read-modify-write operation. If that does not apply, it has changed nothing, and the simple
//! version follows.

use std::ffi::{c_char, c_void};

use millpond::raw::RawMemory;
use millpond::{Buffer, Pool};

use super::access::graph_memory;
use crate::status::{Failure, Result, guard, guard_hot, millpond_status, place, text};
use crate::tables::device::{DEVICES, DeviceEntry, millpond_device_t};
use crate::tables::pointers::{Outcome, POINTERS};
use crate::tables::pool::{POOLS, millpond_pool_t};
use crate::tables::stream::{STREAMS, StreamEntry, millpond_stream_t};
use millpond_driver::locks::lock;

/// Makes a new allocation available by its address.
fn publish(buffer: Buffer<u8>, device: &DeviceEntry, pointer: &mut *mut c_void) {
    let address = buffer.address();
    if address != 0 {
        match buffer.is_captured() {
            true => drop(list(buffer, device)),
            false => POINTERS.insert(buffer),
        }
    }
    *pointer = address as *mut c_void;
}

/// Cold: lists a capture's allocation, and puts it at its address, in one step. The end of another capture drops listed
/// addresses without a buffer. If its own capture has ended meanwhile, the memory is the graph's, and no buffer's.
#[cold]
fn list(buffer: Buffer<u8>, device: &DeviceEntry) -> Option<Buffer<u8>> {
    let mut captured = lock(&device.captured);
    if !buffer.is_live() {
        return Some(buffer);
    }
    captured.push(buffer.address());
    POINTERS.exchange(buffer)
}

/// Allocates, if the stream's cache serves it and this thread owns the stream. Returns the address.
#[inline(always)] // The buffer stays in registers until it is in its place.
fn try_allocate(entry: &mut StreamEntry, bytes: usize) -> Option<u64> {
    let (stream, pool) = entry.with_current_pool()?;
    let buffer = stream.try_alloc(pool, bytes)?;
    let address = buffer.address();
    POINTERS.insert(buffer);
    Some(address)
}

#[cold]
#[inline(never)]
fn allocate_in_full(bytes: usize, stream: millpond_stream_t, pointer: &mut *mut c_void) -> Result<()> {
    STREAMS.with(stream, |entry| allocate(entry, None, bytes, pointer))
}

fn allocate(entry: &mut StreamEntry, pool: Option<&Pool>, bytes: usize, pointer: &mut *mut c_void) -> Result<()> {
    let (stream, current) = entry.with_pool();
    let buffer = stream.alloc::<u8>(pool.unwrap_or(current), bytes)?;
    publish(buffer, &entry.device, pointer);
    Ok(())
}

/// Allocates `bytes` from the device's current pool, from this point of the stream on (CUDA: cudaMallocAsync). The
/// address is a multiple of 512, and null for 0 bytes. In a capture it is an alloc node's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc_async(
    pointer: *mut *mut c_void,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard_hot("millpond_malloc_async", || {
        let pointer = place(pointer, "pointer")?;
        match STREAMS.with_own(stream, |entry| try_allocate(entry, bytes)) {
            Some(address) => {
                *pointer = address as *mut c_void;
                Ok(())
            }
            None => allocate_in_full(bytes, stream, pointer),
        }
    })
}

/// Allocates from a pool (CUDA: cudaMallocFromPoolAsync).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc_from_pool_async(
    pointer: *mut *mut c_void,
    bytes: usize,
    pool: millpond_pool_t,
    stream: millpond_stream_t,
) -> millpond_status {
    guard_hot("millpond_malloc_from_pool_async", || {
        let pointer = place(pointer, "pointer")?;
        let pool = POOLS.find(pool)?;
        STREAMS.with(stream, |entry| allocate(entry, Some(&pool), bytes, pointer))
    })
}

/// Frees memory at this point of the stream, however it was allocated (CUDA: cudaFreeAsync). The free must come after
/// the allocation and after every declared use. Null has no effect. In a capture it is a free node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free_async(pointer: *mut c_void, stream: millpond_stream_t) -> millpond_status {
    guard_hot("millpond_free_async", || {
        let address = pointer as u64;
        POINTERS.expect(address);
        let freed = STREAMS.with_own(stream, |entry| {
            let mut freeing = entry.stream.try_freeing()?;
            POINTERS.free_own(address, &mut freeing).then_some(())
        });
        match freed {
            Some(()) => Ok(()),
            None => free_in_full(address, stream),
        }
    })
}

/// Frees memory where that is not plainly right, or this thread does not own the stream and the bucket.
#[cold]
#[inline(never)]
fn free_in_full(address: u64, stream: millpond_stream_t) -> Result<()> {
    STREAMS.with(stream, |entry| {
        let outcome = {
            let mut freeing = entry.stream.freeing()?;
            POINTERS.free(address, &mut freeing)
        };
        match outcome {
            Outcome::Freed => Ok(()),
            Outcome::Kept(memory) => {
                let free = || entry.stream.free_raw(&memory);
                end(&memory, &entry.device, free, || free_unknown(entry, address))
            }
            Outcome::Unknown => free_unknown(entry, address),
        }
    })
}

/// Cold: frees memory by name, and then removes its buffer if that is still there. If the free is refused, and checks
/// are off or only report, the memory is freed after all declared uses. A buffer whose memory has ended counts as none:
/// then `or_else` frees the memory that is live there now, such as memory that a launch has just left.
#[cold]
fn end(
    memory: &RawMemory,
    device: &DeviceEntry,
    free: impl FnOnce() -> millpond::Result<()>,
    or_else: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match free() {
        Ok(()) => {
            // The buffer owns nothing any more. In a capture, the free node is the memory's end.
            POINTERS.take(memory).map(Buffer::into_address);
            Ok(())
        }
        Err(error) if !memory.is_live() => {
            drop(POINTERS.take(memory));
            match or_else() {
                // Nothing is live there, so the ended memory was meant.
                Err(Failure::Refused(none)) if none.invalid().is_some() => Err(error.into()),
                done => done,
            }
        }
        // If another thread has freed it meanwhile, the refusal stands.
        Err(error) if device.lets_pass(&error) => POINTERS.take(memory).map(drop).ok_or(error.into()),
        Err(error) => Err(error.into()),
    }
}

/// Cold: frees the memory that the library knows to be live at an address. Nothing is refused because another thread's
/// launch or free has ended the memory meanwhile. `refuse` gives the reason if nothing is live there.
#[cold]
fn free_found(
    device: &DeviceEntry,
    address: u64,
    free: impl Fn(&RawMemory) -> millpond::Result<()>,
    refuse: impl FnOnce() -> millpond::Result<()>,
) -> Result<()> {
    while let Ok(memory) = device.device.memory_at(address) {
        match free(&memory) {
            Err(_) if !memory.is_live() => {}
            done => {
                drop(done.is_ok().then(|| POINTERS.take(&memory)));
                return Ok(done?);
            }
        }
    }
    Ok(refuse()?)
}

/// Cold: frees an address without a buffer of the C side. It may be a graph's memory that a capture frees, memory that
/// a launch has just left, or no allocation.
#[cold]
fn free_unknown(entry: &StreamEntry, address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let StreamEntry { stream, device, .. } = entry;
    if stream.is_capturing()? {
        return match graph_memory(device, None, address) {
            Some((node, 0)) => Ok(stream.free_alloc_node(node)?),
            _ => Ok(stream.free_address(address)?),
        };
    }
    free_found(device, address, |memory| stream.free_raw(memory), || stream.free_address(address))
}

/// Cold: the same for an immediate free.
#[cold]
fn free_unknown_now(device: &DeviceEntry, address: u64) -> Result<()> {
    let of = &device.device;
    free_found(device, address, |memory| of.free_raw(memory), || of.free_address(address))
}

/// Allocates memory immediately, for every stream (CUDA: cudaMalloc). It can be freed by millpond_free and by
/// millpond_free_async. While a capture is open it is refused on any thread, and the capture is then invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc(
    pointer: *mut *mut c_void,
    bytes: usize,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_malloc", || {
        let pointer = place(pointer, "pointer")?;
        let device = DEVICES.find(device)?;
        device.device.refuse_in_capture("malloc")?;
        let stream = device.immediate()?;
        let buffer = stream.alloc::<u8>(&device.device.current_pool(), bytes)?;
        // Work that the host has synchronised with comes before everything that the host submits from now on.
        stream.record()?.synchronize()?;
        publish(buffer, &device, pointer);
        Ok(())
    })
}

/// Frees memory immediately, however it was allocated (CUDA: cudaFree). It does not wait: the host must have
/// synchronised with every declared use. Null has no effect. In captures it is refused as millpond_malloc is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free(pointer: *mut c_void, device: millpond_device_t) -> millpond_status {
    guard("millpond_free", || {
        let (device, address) = (DEVICES.find(device)?, pointer as u64);
        let free_unknown = || free_unknown_now(&device, address);
        match POINTERS.peek(address) {
            Some(memory) => end(&memory, &device, || device.device.free_raw(&memory), free_unknown),
            None => free_unknown(),
        }
    })
}

/// Gives an allocation a name for messages and pictures, until it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_set_name(pointer: *mut c_void, name: *const c_char) -> millpond_status {
    guard("millpond_set_name", || {
        let name = text(name, "name")?;
        match POINTERS.peek(pointer as u64).is_some_and(|memory| memory.set_name(name)) {
            true => Ok(()),
            false => Err(Failure::Value(format!("{pointer:p} is not the start of a live allocation"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
    use std::thread::scope;

    use millpond_status::*;

    use super::*;
    use crate::calls::access::{MILLPOND_READ, MILLPOND_WRITE, millpond_access};
    use crate::calls::device::millpond_device_create_host;
    use crate::calls::stream::{
        millpond_stream_create, millpond_stream_destroy, millpond_stream_set_name, millpond_stream_synchronize,
    };
    use crate::calls::work::millpond_declare;
    use crate::status::millpond_last_error;

    /// A stream that threads of a test share.
    #[derive(Clone, Copy)]
    struct Shared(millpond_stream_t);

    // SAFETY: a handle is a number.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn malloc(&self, bytes: usize) -> *mut c_void {
            let mut pointer = null_mut();
            // SAFETY: the pointer is valid for the call.
            assert_eq!(unsafe { millpond_malloc_async(&mut pointer, bytes, self.0) }, MILLPOND_SUCCESS);
            pointer
        }

        fn free(&self, pointer: *mut c_void) -> millpond_status {
            // SAFETY: the pointer may be any value; the call checks it.
            unsafe { millpond_free_async(pointer, self.0) }
        }

        fn declare(&self, pointer: *mut c_void) -> millpond_status {
            let access = millpond_access { pointer, bytes: 0, mode: MILLPOND_READ };
            // SAFETY: one access.
            unsafe { millpond_declare(self.0, &access, 1) }
        }
    }

    /// Two streams of a new host device.
    fn two_streams() -> [Shared; 2] {
        let mut device = null_mut();
        // SAFETY: the pointers are valid for the calls.
        assert_eq!(unsafe { millpond_device_create_host(&mut device, null()) }, MILLPOND_SUCCESS);
        [(); 2].map(|()| {
            let mut stream = null_mut();
            // SAFETY: as above.
            assert_eq!(unsafe { millpond_stream_create(&mut stream, device) }, MILLPOND_SUCCESS);
            Shared(stream)
        })
    }

    #[test]
    fn messages_have_the_names_of_streams() {
        let [copy, compute] = two_streams();
        for (stream, name) in [(copy, c"copy"), (compute, c"compute")] {
            // SAFETY: the name ends with a zero.
            assert_eq!(unsafe { millpond_stream_set_name(stream.0, name.as_ptr()) }, MILLPOND_SUCCESS);
        }
        let pointer = copy.malloc(1024);
        assert_eq!(compute.free(pointer), MILLPOND_ERROR_ORDER);
        // SAFETY: the thread's text, which lives until its next failure.
        let text = unsafe { CStr::from_ptr(millpond_last_error()) }.to_str().expect("UTF-8");
        assert!(text.contains("is freed on stream `compute`") && text.contains("on stream `copy`"), "{text}");
        // SAFETY: no name is read.
        assert_eq!(unsafe { millpond_stream_set_name(copy.0, null()) }, MILLPOND_ERROR_INVALID_VALUE);
        // SAFETY: the handle is not valid; the call checks it.
        let nowhere = unsafe { millpond_stream_set_name(null_mut(), c"none".as_ptr()) };
        assert_eq!(nowhere, MILLPOND_ERROR_INVALID_HANDLE);
        assert_eq!(copy.free(pointer), MILLPOND_SUCCESS);
    }

    #[test]
    fn only_uses_of_the_same_bytes_need_an_order() {
        let [right, left] = two_streams();
        let pointer = right.malloc(1024);
        // SAFETY: the stream is open.
        assert_eq!(unsafe { millpond_stream_synchronize(right.0) }, MILLPOND_SUCCESS);
        let write = |stream: Shared, from: usize, bytes: usize| {
            let access = millpond_access { pointer: pointer.wrapping_byte_add(from), bytes, mode: MILLPOND_WRITE };
            // SAFETY: one access.
            unsafe { millpond_declare(stream.0, &access, 1) }
        };
        assert_eq!(write(right, 0, 512), MILLPOND_SUCCESS);
        assert_eq!(write(left, 511, 1), MILLPOND_ERROR_ORDER);
        // To the end of the allocation.
        assert_eq!(write(left, 512, 0), MILLPOND_SUCCESS);
        assert_eq!(write(right, 1023, 1), MILLPOND_ERROR_ORDER);
        assert_ne!(write(left, 512, 513), MILLPOND_SUCCESS, "it does not lie within");
        assert_eq!(right.free(pointer), MILLPOND_ERROR_ORDER);
        // SAFETY: as above.
        assert_eq!(unsafe { millpond_stream_synchronize(left.0) }, MILLPOND_SUCCESS);
        assert_eq!(right.free(pointer), MILLPOND_SUCCESS);
    }

    #[test]
    fn a_refused_free_gives_nothing_away_whatever_another_thread_does() {
        let [right, wrong] = two_streams();
        let (shared, is_over) = (AtomicPtr::new(right.malloc(4096)), AtomicBool::new(false));
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(SeqCst) {
                        assert_ne!(wrong.free(shared.load(SeqCst)), MILLPOND_SUCCESS, "nothing orders the two streams");
                    }
                });
            }
            let refused = (0..400_000).find_map(|round| {
                let pointer = shared.load(SeqCst);
                let status = right.free(pointer);
                if status != MILLPOND_SUCCESS {
                    return Some(format!("round {round}: a right free is refused: {status:?}"));
                }
                let (again, other) = (right.malloc(4096), right.malloc(4096));
                shared.store(again, SeqCst);
                if again == other {
                    return Some(format!("round {round}: two live allocations are at one address"));
                }
                assert_eq!(right.free(other), MILLPOND_SUCCESS);
                None
            });
            is_over.store(true, SeqCst);
            assert_eq!(refused, None);
        });
    }

    #[test]
    fn memory_is_found_and_named_while_a_free_of_it_is_refused() {
        let [right, wrong] = two_streams();
        let (pointer, is_over) = (AtomicPtr::new(right.malloc(4096)), AtomicBool::new(false));
        scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    assert_eq!(wrong.free(pointer.load(SeqCst)), MILLPOND_ERROR_ORDER);
                }
            });
            let (pointer, mut failed) = (pointer.load(SeqCst), None);
            for round in 0..100_000 {
                // SAFETY: the name ends with a zero.
                let named = unsafe { millpond_set_name(pointer, c"weights".as_ptr()) };
                let declared = right.declare(pointer);
                if (named, declared) != (MILLPOND_SUCCESS, MILLPOND_SUCCESS) {
                    failed = Some((round, named, declared));
                    break;
                }
            }
            is_over.store(true, SeqCst);
            assert_eq!(failed, None);
        });
        assert_eq!(right.free(pointer.load(SeqCst)), MILLPOND_SUCCESS);
    }

    /// So many pairs that the thread owns the locks of the stream and of the address.
    fn own(stream: Shared) {
        for _ in 0..5000 {
            assert_eq!(stream.free(stream.malloc(4096)), MILLPOND_SUCCESS);
        }
    }

    fn text() -> String {
        // SAFETY: the thread's text, which lives until its next failure.
        unsafe { CStr::from_ptr(millpond_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_thread_that_owns_all_locks_is_refused_what_is_wrong() {
        let [right, left] = two_streams();
        own(right);
        own(left);
        let mut pointer = null_mut();
        // SAFETY: the pointers are valid for the calls, which check the handles.
        let mut malloc = |stream| unsafe { millpond_malloc_async(&mut pointer, 4096, stream) };
        let flipped = |bit: u32| (right.0 as usize ^ (1 << bit)) as millpond_stream_t;
        // A bit of the kind, of the place and of the generation each.
        for wrong in [null_mut(), flipped(0), flipped(2), flipped(20), flipped(40), flipped(63)] {
            assert_eq!(malloc(wrong), MILLPOND_ERROR_INVALID_HANDLE);
            assert!(text().starts_with("millpond_malloc_async: not a stream handle"), "{}", text());
        }
        // SAFETY: the call checks the place.
        assert_eq!(unsafe { millpond_malloc_async(null_mut(), 4096, right.0) }, MILLPOND_ERROR_INVALID_VALUE);
        let memory = right.malloc(4096);
        assert_eq!(Shared(flipped(40)).free(memory), MILLPOND_ERROR_INVALID_HANDLE);
        assert_eq!(left.free(memory), MILLPOND_ERROR_ORDER);
        assert_eq!(right.free(memory.wrapping_byte_add(512)), MILLPOND_ERROR_INVALID_VALUE);
        assert_eq!(right.free(null_mut()), MILLPOND_SUCCESS);
        assert_eq!(right.free(memory), MILLPOND_SUCCESS);
        assert_eq!(right.free(memory), MILLPOND_ERROR_INVALID_VALUE, "it is free");
        assert!(text().starts_with("millpond_free_async: "), "{}", text());
        // SAFETY: the stream is open.
        assert_eq!(unsafe { millpond_stream_destroy(left.0) }, MILLPOND_SUCCESS);
        assert_eq!(malloc(left.0), MILLPOND_ERROR_INVALID_HANDLE);
        own(right);
    }

    #[test]
    fn threads_that_own_the_locks_in_turn_free_the_memory_of_each_other() {
        let [stream, _] = two_streams();
        let passed: Vec<_> = (0..100).map(|_| AtomicPtr::new(stream.malloc(4096))).collect();
        for _ in 0..6 {
            let pass = || {
                own(stream);
                for pointer in &passed {
                    assert_eq!(stream.free(pointer.load(SeqCst)), MILLPOND_SUCCESS);
                }
                assert_ne!(stream.free(passed[99].load(SeqCst)), MILLPOND_SUCCESS, "it is free");
                own(stream);
                for pointer in &passed {
                    pointer.store(stream.malloc(4096), SeqCst);
                }
                let mut live: Vec<_> = passed.iter().map(|pointer| pointer.load(SeqCst)).collect();
                live.sort_unstable();
                live.dedup();
                assert_eq!(live.len(), passed.len(), "two live allocations are at one address");
                own(stream);
            };
            scope(|scope| scope.spawn(pass).join()).expect("no panic");
        }
        passed.iter().for_each(|pointer| assert_eq!(stream.free(pointer.load(SeqCst)), MILLPOND_SUCCESS));
    }

    #[test]
    fn threads_take_the_locks_of_their_owner_while_it_is_inside() {
        let [stream, _] = two_streams();
        let is_over = AtomicBool::new(false);
        scope(|scope| {
            let others = [(); 2].map(|()| {
                scope.spawn(|| {
                    // Seldom, so that the owner comes back each time.
                    while !is_over.load(SeqCst) {
                        assert_eq!(stream.free(stream.malloc(4096)), MILLPOND_SUCCESS);
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                })
            });
            let pairs = (0..40).map(|_| std::panic::catch_unwind(|| own(stream)).is_ok());
            let are_right = pairs.fold(true, |right, pair| right & pair);
            is_over.store(true, SeqCst);
            assert!(are_right && others.into_iter().all(|it| it.join().is_ok()));
        });
    }

    #[test]
    fn of_many_threads_that_free_one_pointer_one_does() {
        let [stream, _] = two_streams();
        for _ in 0..500 {
            let pointer = AtomicPtr::new(stream.malloc(4096));
            let free = || stream.free(pointer.load(SeqCst)) == MILLPOND_SUCCESS;
            let freed = scope(|scope| [(); 3].map(|()| scope.spawn(free)).map(|it| it.join().expect("no panic")));
            assert_eq!(freed.iter().filter(|it| **it).count(), 1);
        }
    }
}
