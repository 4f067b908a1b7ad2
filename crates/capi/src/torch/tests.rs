//! The entry points as PyTorch calls them, over host devices.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::*;

/// A handle of a foreign stream: any number on a host device.
fn handle(number: usize) -> *mut c_void {
    number as *mut c_void
}

fn alloc(size: isize, device: i32, stream: usize) -> *mut c_void {
    assert_eq!(devices::use_host(true).ok(), Some(()));
    // SAFETY: no pointer is dereferenced.
    unsafe { millpond_torch_alloc(size, device, handle(stream)) }
}

fn free(pointer: *mut c_void, device: i32, stream: usize) {
    // SAFETY: no pointer is dereferenced.
    unsafe { millpond_torch_free(pointer, 0, device, handle(stream)) }
}

fn figures(device: i32) -> millpond_pool_statistics {
    devices::device(device).and_then(|it| it.private.figures()).ok().expect("it is open")
}

fn used(device: i32) -> u64 {
    figures(device).used_bytes
}

/// Tests run at the same time in one process, so each has a device of its own.
#[test]
fn a_freed_block_serves_its_stream_again() {
    let first = alloc(1 << 20, 0, 1);
    assert!(!first.is_null() && used(0) == 1 << 20);
    free(first, 0, 1);
    assert_eq!(used(0), 0);
    assert_eq!(alloc(1 << 20, 0, 1), first);
    free(first, 0, 1);
    assert_eq!(alloc(0, 0, 1), null_mut());
    free(null_mut(), 0, 1);
}

#[test]
fn recorded_streams_hold_memory_back_until_their_work_is_over() {
    let first = alloc(1 << 20, 1, 1);
    let Ok(device) = devices::device(1) else { panic!("it is open") };
    let Ok(user) = device.trusted.stream(2) else { panic!("it opens") };
    let (go, gate) = std::sync::mpsc::channel::<()>();
    user.launch((), move |()| gate.recv().expect("the test sends")).expect("a launch");
    // SAFETY: no pointer is dereferenced.
    unsafe { millpond_torch_record_stream(first, handle(2)) };
    free(first, 1, 1);
    assert_eq!(used(1), 0);
    let pool = devices::device(1).ok().expect("it is open").trusted.pool();
    pool.set_reuse(millpond::config::ReusePolicy { allow_internal_dependencies: false, ..Default::default() });
    let second = alloc(1 << 20, 1, 1);
    assert_ne!(second, first, "stream 2 still works");
    go.send(()).expect("the kernel waits");
    user.synchronize().expect("it ends");
    free(second, 1, 1);
    // SAFETY: it has no arguments.
    unsafe { millpond_torch_empty_cache() };
    assert_eq!(figures(1).reserved_bytes, 0);
}

#[test]
fn a_private_pool_keeps_its_memory_until_it_is_released() {
    let key = millpond_pool_key { first: 0, second: 7 };
    let outside = alloc(4 << 20, 2, 1);
    // SAFETY: no pointer is dereferenced.
    let begin = || unsafe { millpond_torch_begin_allocate_to_pool(2, key, std::ptr::null()) };
    // SAFETY: no pointer is dereferenced.
    let end = || unsafe { millpond_torch_end_allocate_to_pool(2, key) };
    begin();
    let (a, b) = (alloc(3 << 20, 2, 1), alloc(512, 2, 1));
    free(a, 2, 1);
    assert_eq!(alloc(3 << 20, 2, 1), a, "the same stream takes it again");
    free(a, 2, 1);
    let other = alloc(3 << 20, 2, 5);
    assert_ne!(other, a, "another stream does not");
    end();
    let eager = alloc(3 << 20, 2, 1);
    assert!(![a, b, other].contains(&eager), "replays find the pool's memory as it was");
    // SAFETY: it has no arguments.
    unsafe { millpond_torch_empty_cache() };
    // SAFETY: the pool's memory is mapped while the pool lives, freed or not.
    unsafe { a.cast::<u8>().write(1) };
    begin();
    assert_eq!(alloc(3 << 20, 2, 1), a, "a second graph of the pool takes it");
    end();
    [a, b, other].into_iter().for_each(|it| free(it, 2, 1));
    let shared = || devices::device(2).ok().expect("it is open").trusted.pool().statistics().used_bytes;
    assert!(used(2) > shared());
    // SAFETY: no pointer is dereferenced.
    let release = || unsafe { millpond_torch_release_pool(2, key) };
    release();
    assert!(used(2) > shared(), "it was begun twice");
    release();
    assert_eq!(used(2), shared());
    free(outside, 2, 1);
    free(eager, 2, 1);
}

#[test]
fn blocks_with_other_users_rest_until_the_recording_ends() {
    let key = millpond_pool_key { first: 0, second: 8 };
    assert_eq!(devices::use_host(true).ok(), Some(()));
    // SAFETY: no pointer is dereferenced.
    let begin = || unsafe { millpond_torch_begin_allocate_to_pool(3, key, std::ptr::null()) };
    begin();
    let shared = alloc(1 << 20, 3, 1);
    // SAFETY: no pointer is dereferenced.
    unsafe { millpond_torch_record_stream(shared, handle(2)) };
    free(shared, 3, 1);
    let second = alloc(1 << 20, 3, 1);
    assert_ne!(second, shared);
    free(second, 3, 1);
    // SAFETY: no pointer is dereferenced.
    unsafe { millpond_torch_end_allocate_to_pool(3, key) };
    begin();
    let both = alloc(2 << 20, 3, 1);
    assert!(both == shared.min(second), "the two have joined again");
}

#[test]
fn threads_with_streams_of_their_own_lose_nothing() {
    let work = |stream: usize| {
        move || {
            for round in 0..5_000_isize {
                let size = 512 << (round % 12);
                let pointer = alloc(size, 4, stream);
                // SAFETY: memory of a host device, this thread's.
                unsafe { pointer.cast::<u8>().write_bytes(stream as u8, 64) };
                // SAFETY: as above.
                assert_eq!(unsafe { pointer.cast::<[u8; 64]>().read() }, [stream as u8; 64]);
                // Every third block is freed on another stream than its own.
                free(pointer, 4, if round % 3 == 0 { stream + 1 } else { stream });
            }
        }
    };
    let threads: Vec<_> = (1..5).map(|stream| std::thread::spawn(work(stream * 10))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(used(4), 0);
}

#[test]
fn what_is_no_allocation_is_refused() {
    assert_eq!(devices::use_host(true).ok(), Some(()));
    let pointer = alloc(4096, 5, 1);
    assert!(super::free(5, pointer as u64 + 512, 1).is_err());
    assert!(super::free(5, pointer as u64, 1).is_ok());
    assert!(super::free(5, pointer as u64, 1).is_err());
    assert!(super::allocate(-1, 512, 1).is_err() && super::allocate(64, 512, 1).is_err());
    assert!(devices::use_host(false).is_err());
}

/// 64 MiB shared, then 64 MiB private: never 128 at one moment.
#[test]
fn peaks_of_different_moments_are_not_added() {
    const SIZE: isize = 64 << 20;
    let key = millpond_pool_key { first: 0, second: 6 };
    free(alloc(SIZE, 6, 1), 6, 1);
    // SAFETY: the filter is not called.
    unsafe { millpond_torch_begin_allocate_to_pool(6, key, std::ptr::null()) };
    let inside = alloc(SIZE, 6, 1);
    // SAFETY: plain numbers.
    unsafe { millpond_torch_end_allocate_to_pool(6, key) };
    assert_eq!((used(6), figures(6).used_high_bytes), (SIZE as u64, SIZE as u64));
    // Shared memory counts in full beside private memory.
    free(alloc(SIZE / 2, 6, 1), 6, 1);
    assert_eq!(figures(6).used_high_bytes, SIZE as u64 * 3 / 2);
    free(inside, 6, 1);
    // SAFETY: plain numbers.
    unsafe { millpond_torch_release_pool(6, key) };
    free(alloc(SIZE / 2, 6, 1), 6, 1);
    assert_eq!((used(6), figures(6).used_high_bytes), (0, SIZE as u64 * 3 / 2));
    // SAFETY: plain numbers.
    assert_eq!(unsafe { millpond_torch_reset_peaks(6) }, millpond_status::MILLPOND_SUCCESS);
    assert_eq!(figures(6).used_high_bytes, 0);
}

#[test]
fn a_memory_fraction_holds_for_shared_and_private_memory_together() {
    const QUARTER: isize = 2 << 30;
    assert_eq!(devices::use_host(true).ok(), Some(()));
    let total = devices::device(7).ok().expect("it opens").entry.device.properties().total_bytes;
    let fraction = 2.0 * QUARTER as f64 / total as f64;
    // SAFETY: plain numbers.
    unsafe { millpond_torch_set_memory_fraction(fraction, 7) };
    let shared = alloc(QUARTER, 7, 1);
    let key = millpond_pool_key { first: 0, second: 7 };
    // SAFETY: the filter is not called.
    unsafe { millpond_torch_begin_allocate_to_pool(7, key, std::ptr::null()) };
    let private = alloc(QUARTER, 7, 1);
    assert!(!shared.is_null() && !private.is_null());
    assert!(super::allocate(7, 4 << 20, 1).is_err(), "a private pool is limited");
    // SAFETY: plain numbers.
    unsafe { millpond_torch_end_allocate_to_pool(7, key) };
    assert!(super::allocate(7, 4 << 20, 1).is_err(), "the shared pool is limited");
    // SAFETY: plain numbers.
    unsafe { millpond_torch_set_memory_fraction(1.0, 7) };
    free(alloc(QUARTER, 7, 1), 7, 1);
    let device = devices::device(7).ok().expect("it is open");
    for wrong in [0.0, -1.0, 1.5, f64::NAN] {
        assert!(device.set_memory_fraction(wrong).is_err(), "{wrong}");
    }
}
