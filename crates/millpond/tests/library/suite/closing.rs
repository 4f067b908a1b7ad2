//! Streams, pools and threads that end while their work runs: the work still counts, and nothing is left of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use millpond::check::Kind;
use millpond::config::{Reporter, Schedule, Violations};
use millpond::device::CallKind;
use millpond::{Device, DeviceConfig, HostConfig, PoolConfig, Stream};

use crate::common::{on_devices_that_run_closures, on_every_device, on_parallel_devices_that_run_closures};

/// A synchronisation of the device also waits for work of a stream that is closed at that moment.
#[test]
fn a_synchronisation_misses_no_stream_that_is_closed_meanwhile() {
    let device = Device::host(HostConfig::default()).unwrap();
    let _others: Vec<Stream> = (0..32).map(|_| device.stream().unwrap()).collect();
    for round in 0..3000 {
        let done = Arc::new(AtomicBool::new(false));
        let stream = device.stream().unwrap();
        let kernel = Arc::clone(&done);
        let run = move |()| {
            std::thread::sleep(Duration::from_micros(300));
            kernel.store(true, Ordering::SeqCst);
        };
        stream.launch((), run).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..round % 40 * 20).for_each(|_| std::hint::spin_loop());
                drop(stream);
            });
            start.wait();
            device.synchronize().unwrap();
            assert!(done.load(Ordering::SeqCst), "round {round}: the kernel was submitted before");
        });
    }
}

/// Memory of a dropped pool stays mapped under the kernels of streams that are closed at that moment.
#[test]
fn a_dropped_pool_waits_for_streams_that_are_closed_meanwhile() {
    let device = Device::host(HostConfig::default()).unwrap();
    let over = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let pool = device.pool(PoolConfig::default()).unwrap();
                    let stream = device.non_blocking_stream().unwrap();
                    let x = stream.alloc::<u64>(&pool, 1 << 10).unwrap();
                    let write = |x: &mut [u64]| {
                        std::thread::sleep(Duration::from_micros(500));
                        x.fill(7);
                    };
                    stream.launch(x.write(), write).unwrap();
                    drop(x);
                    drop(pool);
                    drop(stream);
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                device.reclaim();
            }
        });
    });
}

/// A pool's memory is given back once its own last uses have completed, even if other work of the device never ends.
#[test]
fn a_dropped_pool_waits_for_its_own_work_only() {
    on_parallel_devices_that_run_closures(|on| {
        let [busy, stream] = on.streams();
        let hold = on.hold(&busy, ());
        let pool = on.pool(PoolConfig::default());
        let x = stream.alloc::<u8>(&pool, 1 << 20)?;
        stream.launch(x.write(), |x| x.fill(1))?;
        // Its work may have completed before it is dropped, and has completed after the synchronisation.
        let given_back = || on.device.driver_calls()[CallKind::Unreserve];
        let before = given_back();
        drop((x, pool));
        stream.synchronize()?;
        assert_eq!(given_back(), before + 1);
        drop(hold);
        Ok(())
    });
}

/// Tens of thousands of streams, each with a cache, are closed one after the other. If each close walked a list of all
/// of them, this would take minutes.
#[test]
fn very_many_streams_are_closed() {
    on_every_device(|on| {
        let many = if on.runs_closures { 20_000 } else { 500 };
        let pool = on.pool(PoolConfig::default());
        let streams: Vec<Stream> = (0..many).map(|_| on.device.stream().unwrap()).collect();
        for stream in &streams {
            stream.free(stream.alloc::<u8>(&pool, 512).unwrap()).unwrap();
        }
        drop(streams);
        assert_eq!(pool.statistics().used_bytes, 0);
        on.device.synchronize().unwrap();
    });
}

/// The first of many closed streams has left its index to a stream that is closed, too. A new stream that waits for the
/// first one does not come after the other.
#[test]
fn a_new_stream_does_not_come_after_what_had_its_index_since() {
    let device = Device::host(HostConfig::default()).unwrap();
    let stream = || device.non_blocking_stream().unwrap();
    let (first, others) = (stream(), (0..1100).map(|_| stream()).collect::<Vec<_>>());
    others.iter().chain([&first]).for_each(|it| it.launch((), |()| ()).unwrap());
    let end = first.record().unwrap();
    drop(first);
    drop(others);
    end.synchronize().unwrap();
    let later = stream();
    let x = later.alloc::<u8>(&device.default_pool(), 64).unwrap();
    later.launch(x.write(), |x| x.fill(1)).unwrap();
    drop(later);
    let refused = stream().launch(x.read(), |_| ()).unwrap_err();
    assert_eq!(refused.violation().unwrap().kind, Kind::UseBeforeAlloc);
}

/// The legacy stream would come after these streams, if it were ever used. Once they have completed they leave nothing.
#[test]
fn closed_streams_leave_no_events_for_a_legacy_stream_that_nobody_uses() {
    on_every_device(|on| {
        for _ in 0..1000 {
            let stream = on.device.stream().unwrap();
            stream.memset(stream.alloc::<u8>(&on.device.default_pool(), 64).unwrap().write(), 1).unwrap();
            stream.synchronize().unwrap();
        }
        on.device.synchronize().unwrap();
        let calls = on.device.driver_calls();
        let kept = calls[CallKind::Record] - calls[CallKind::Forget];
        assert!(kept < 200, "{kept} events are kept of 1000 streams");
    });
}

/// Closed streams whose ends the host knows through another device leave nothing either.
#[test]
fn what_another_device_was_waited_for_ends_closed_streams() {
    let host = || Device::host(HostConfig::default()).unwrap();
    let (home, other) = (host(), host());
    let (stream, pool) = (home.stream().unwrap(), home.default_pool());
    let x = stream.alloc::<u8>(&pool, 64).unwrap();
    for round in 0..2000 {
        let visitor = other.stream().unwrap();
        visitor.wait(&stream.record().unwrap()).unwrap();
        visitor.launch((), |()| ()).unwrap();
        stream.wait(&visitor.record().unwrap()).unwrap();
        drop(visitor);
        if round % 50 == 0 {
            stream.synchronize().unwrap();
        }
    }
    let calls = other.driver_calls();
    let kept = calls[CallKind::Record] - calls[CallKind::Forget];
    assert!(kept < 300, "{kept} events are kept of 2000 streams");
    stream.free(x).unwrap();
}

/// If the legacy stream is used after all, it comes after all of them.
#[test]
fn the_legacy_stream_comes_after_closed_streams_of_which_nothing_is_kept() {
    on_every_device(|on| {
        let (pool, legacy) = (on.device.default_pool(), on.device.legacy_stream());
        let buffer = legacy.alloc::<u8>(&pool, 64).unwrap();
        // The host waits for none of them.
        for at in 0..200 {
            let stream = on.device.stream().unwrap();
            if at == 0 {
                stream.memset(buffer.write(), 1).unwrap();
            }
            stream.free(stream.alloc::<u8>(&pool, 64).unwrap()).unwrap();
        }
        legacy.memset(buffer.write(), 2).unwrap();
        legacy.free(buffer).unwrap();
    });
}

/// A thread's default stream is closed with the thread.
#[test]
fn threads_that_end_leave_no_default_stream() {
    on_devices_that_run_closures(|on| {
        let closed = || on.device.driver_calls()[CallKind::CloseStream];
        let before = closed();
        for _ in 0..50 {
            std::thread::scope(|scope| {
                scope.spawn(|| on.device.per_thread_stream().unwrap().launch((), |()| ()).unwrap());
            });
        }
        // A scope waits for the closures of its threads, not for the destructors of their thread-local values.
        let end = Instant::now() + Duration::from_secs(20);
        while closed() < before + 50 {
            assert!(Instant::now() < end, "{} of 50 are closed", closed() - before);
            std::thread::yield_now();
        }
    });
}

/// Handles in a thread's own thread-local value are dropped and used after the library's values of that thread.
#[test]
fn handles_outlive_what_a_thread_knew() {
    struct Last(Vec<Box<dyn FnOnce()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.drain(..).for_each(|act| act());
        }
    }
    thread_local!(static LAST: Mutex<Last> = const { Mutex::new(Last(Vec::new())) });
    let device = Device::host(HostConfig::default()).unwrap();
    let done = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn({
        let (device, done) = (device.clone(), Arc::clone(&done));
        move || {
            // It is made first, so it is dropped last.
            LAST.with(|last| last.lock().unwrap().0.clear());
            let (stream, own) = (device.stream().unwrap(), device.per_thread_stream().unwrap());
            let pool = device.pool(PoolConfig::default()).unwrap();
            let x = stream.alloc::<u8>(&pool, 4096).unwrap();
            stream.launch(x.write(), |x| x.fill(1)).unwrap();
            stream.synchronize().unwrap();
            let act = Box::new(move || {
                let synchronised = stream.synchronize().is_ok() && own.synchronize().is_ok();
                drop((x, pool));
                let is_there = device.per_thread_stream().is_ok();
                done.lock().unwrap().push((synchronised, is_there));
            });
            LAST.with(|last| last.lock().unwrap().0.push(act));
        }
    })
    .join()
    .unwrap();
    assert_eq!(*done.lock().unwrap(), [(true, true)]);
    device.synchronize().unwrap();
}

/// A reporter that panics, as in a test, loses no memory.
#[test]
fn a_reporter_that_panics_loses_nothing() {
    let violations = Violations::Report(Reporter::new(|violation| panic!("{}", violation.kind.name())));
    let device = Device::host(HostConfig::default().violations(violations)).unwrap();
    let pool = device.pool(PoolConfig::default()).unwrap();
    let (left, right) = (device.stream().unwrap(), device.stream().unwrap());
    let x = left.alloc::<u8>(&pool, 1 << 20).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| right.free(x)));
    assert!(panicked.is_err());
    device.synchronize().unwrap();
    assert_eq!(pool.statistics().used_bytes, 0);
    // The program still has it, by its address.
    let address = left.alloc::<u8>(&pool, 1 << 20).unwrap().into_address();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| right.free_address(address)));
    assert!(panicked.is_err());
    assert_eq!(pool.statistics().used_bytes, 1 << 20);
    left.free_address(address).unwrap();
}

/// Nobody waits for work that owns memory of its device. It runs when the last handle is dropped, and nothing is left.
/// If a kernel of another device drops that handle, a thread runs the work.
#[test]
fn pending_work_keeps_no_device_whose_handles_are_gone() {
    for (schedule, in_a_kernel) in
        [(1, false), (1, true), (2, false), (2, true)].map(|(it, by)| (Schedule::Seeded(it), by))
    {
        let config = millpond_driver::HostConfig { schedule, ..Default::default() };
        let driver = Arc::new(millpond_driver::HostDriver::new(config).unwrap());
        let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
        let (first, second) = (device.stream().unwrap(), device.non_blocking_stream().unwrap());
        let ran = Arc::new(AtomicBool::new(false));
        let [x, y] = [&first, &second].map(|stream| stream.alloc::<u8>(&device.default_pool(), 100).unwrap());
        second.wait(&first.record().unwrap()).unwrap();
        let owns = move |()| {
            let _owned = &x;
        };
        first.launch((), owns).unwrap();
        let done = Arc::clone(&ran);
        second
            .launch((), move |()| {
                let _owned = &y;
                done.store(true, Ordering::SeqCst);
            })
            .unwrap();
        let event = second.record().unwrap();
        drop(first);
        if in_a_kernel {
            let other = Device::host(HostConfig::default()).unwrap();
            let stream = other.stream().unwrap();
            let mut handles = Some((device, second));
            stream.launch((), move |()| drop(handles.take())).unwrap();
            stream.synchronize().unwrap();
            event.synchronize().unwrap();
        } else {
            drop(device);
            assert!(!ran.load(Ordering::SeqCst), "a stream is open");
            drop(second);
        }
        assert!(ran.load(Ordering::SeqCst));
        drop(event);
        let end = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&driver) > 1 {
            assert!(Instant::now() < end, "the device is left");
            std::thread::yield_now();
        }
    }
}

/// Dropped pools leave nothing in their device, so the cost to open a pool does not grow.
#[test]
fn pools_leave_their_device_when_they_go() {
    on_every_device(|on| {
        let held: Vec<_> = (0..3).map(|_| on.pool(PoolConfig::default())).collect();
        for _ in 0..1000 {
            on.pool(PoolConfig::default());
        }
        let ids: Vec<_> = on.device.picture().iter().map(|pool| pool.id).collect();
        let mut expected = vec![on.device.default_pool().id()];
        expected.extend(held.iter().map(|pool| pool.id()));
        assert_eq!(ids, expected);
    });
}

/// A program that never waits keeps no state for each stream: by the count of its calls, not by what has completed.
#[test]
fn of_many_closed_streams_the_one_closed_first_makes_room() {
    let device = Device::host(HostConfig::default()).unwrap();
    let (go, gate) = channel::<()>();
    let first = device.stream().unwrap();
    let x = first.alloc::<u8>(&device.default_pool(), 64).unwrap();
    let kernel = move |x: &mut [u8]| {
        let _ = gate.recv();
        x.fill(7);
    };
    first.launch_once(x.write(), kernel).unwrap();
    let mut host = device.pinned::<u8>(64).unwrap();
    let place = host.as_slice().unwrap().as_ptr();
    first.copy_to_pinned(x.read(), host.write()).unwrap();
    drop((first, host));
    for _ in 1..1024 {
        let stream = device.stream().unwrap();
        let refused = stream.launch(x.read(), |_| ()).unwrap_err();
        assert!(refused.violation().is_some(), "{refused}");
    }
    let (send, read) = channel();
    let next = device.stream().unwrap();
    next.launch_once(x.read(), move |x| send.send(x[0]).unwrap_or(())).unwrap();
    assert!(read.try_recv().is_err(), "it waits for the stream that was closed first");
    let other = device.pinned::<u8>(64).unwrap();
    assert_ne!(other.as_slice().unwrap().as_ptr(), place, "a copy of the stream that was closed first may still run");
    go.send(()).unwrap();
    assert_eq!(read.recv(), Ok(7));
    next.free(x).unwrap();
    device.synchronize().unwrap();
    let one = device.stream().unwrap();
    let y = one.alloc::<u8>(&device.default_pool(), 64).unwrap();
    assert!(device.stream().unwrap().free(y).is_err(), "what the host knows makes no further order");
}
