//! Waiting for memory, and launches that borrow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use millpond::config::{ReusePolicy, Schedule};
use millpond::error::Invalid;
use millpond::graph::Instantiate;
use millpond::pool::PeerAccess;
use millpond::{Buffer, Device, DeviceConfig, Error, HostConfig, MIB, Pool, PoolConfig, Result, Scope, Stream};
use millpond_driver::{CallKind, DriverError, Failing, HostDriver};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);

fn device(schedule: Schedule) -> Device {
    Device::host(HostConfig::default().schedule(schedule)).unwrap()
}

#[test]
fn a_wait_for_memory_ends_with_a_free_or_its_time() {
    let device = device(Schedule::Parallel);
    let pool = device.pool(PoolConfig::default().max_bytes(4 * MIB)).unwrap();
    let (one, other) = (device.stream().unwrap(), device.stream().unwrap());
    let x = one.alloc::<u8>(&pool, 4 << 20).unwrap();
    assert!(matches!(other.alloc::<u8>(&pool, 4096), Err(Error::OutOfMemory(_))));
    assert!(!pool.wait_for_memory(SHORT).unwrap(), "nothing comes back");
    // A free between the refusal and the wait counts, also if the block is in a cache.
    let _ = other.alloc::<u8>(&pool, 4096).unwrap_err();
    one.free(x).unwrap();
    assert!(pool.wait_for_memory(LONG).unwrap());
    let y = other.alloc::<u8>(&pool, 4 << 20).unwrap();
    // A free during the wait counts.
    let _ = one.alloc::<u8>(&pool, 4096).unwrap_err();
    let begun = Instant::now();
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| pool.wait_for_memory(LONG));
        std::thread::sleep(SHORT);
        other.free(y).unwrap();
        // The refusal was on this thread. The other thread may have begun to wait only now.
        let freed = one.alloc::<u8>(&pool, 4096).unwrap();
        one.free(freed).unwrap();
        one.synchronize().unwrap();
        while !waits.is_finished() {
            one.free(one.alloc::<u8>(&pool, 4096).unwrap()).unwrap();
        }
        assert!(waits.join().unwrap().unwrap());
    });
    assert!(begun.elapsed() < LONG);
}

/// Makes a pool with a limit of 4 MiB, and a stream of its device.
fn limited() -> (Pool, Stream) {
    let device = device(Schedule::Parallel);
    (device.pool(PoolConfig::default().max_bytes(4 * MIB)).unwrap(), device.stream().unwrap())
}

/// A request that the limit refused finds room once the limit is raised.
#[test]
fn a_wait_for_memory_ends_with_a_raised_limit() {
    let (pool, stream) = limited();
    let x = stream.alloc::<u8>(&pool, 4 << 20).unwrap();
    let _ = stream.alloc::<u8>(&pool, 4096).unwrap_err();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(SHORT);
            pool.set_max_bytes(None).unwrap();
        });
        assert!(pool.wait_for_memory(LONG).unwrap());
    });
    stream.free(stream.alloc::<u8>(&pool, 4096).unwrap()).unwrap();
    stream.free(x).unwrap();
}

/// Also if the request was refused at once, and if the limit was raised before the wait.
#[test]
fn a_limit_that_was_raised_before_the_wait_counts() {
    let (pool, stream) = limited();
    let _ = stream.alloc::<u8>(&pool, 8 << 20).unwrap_err();
    pool.set_max_bytes(Some(8 * MIB)).unwrap();
    assert!(pool.wait_for_memory(SHORT).unwrap());
    stream.free(stream.alloc::<u8>(&pool, 8 << 20).unwrap()).unwrap();
}

/// Memory under work in flight may be moved once that work has completed.
#[test]
fn a_wait_for_memory_ends_with_work_in_flight() {
    let device = device(Schedule::Parallel);
    let reuse = ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = device.pool(PoolConfig::default().max_bytes(4 * MIB).reuse(reuse)).unwrap();
    let (one, other) = (device.stream().unwrap(), device.stream().unwrap());
    let x = one.alloc::<u8>(&pool, 4 << 20).unwrap();
    let gate = Arc::new(Barrier::new(2));
    let kernel = Arc::clone(&gate);
    one.launch(x.write(), move |_| {
        kernel.wait();
    })
    .unwrap();
    one.free(x).unwrap();
    let _ = other.alloc::<u8>(&pool, 4 << 20).unwrap_err();
    assert!(!pool.wait_for_memory(SHORT).unwrap(), "the kernel runs on");
    let _ = other.alloc::<u8>(&pool, 4 << 20).unwrap_err();
    gate.wait();
    let y: Buffer<u8> = loop {
        match other.alloc(&pool, 4 << 20) {
            Ok(y) => break y,
            Err(error) => assert!(error.out_of_memory().is_some() && pool.wait_for_memory(LONG).unwrap(), "{error}"),
        }
    };
    other.free(y).unwrap();
}

/// Also under another device's work, if the drop comes after that work.
#[test]
fn a_wait_for_memory_ends_with_work_in_flight_of_another_device() {
    let (here, there) = (device(Schedule::Parallel), device(Schedule::Parallel));
    let reuse = ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = here.pool(PoolConfig::default().max_bytes(4 * MIB).reuse(reuse)).unwrap();
    pool.grant(&there, PeerAccess::ReadWrite).unwrap();
    let (stream, foreign) = (here.stream().unwrap(), there.stream().unwrap());
    let x = stream.alloc::<u8>(&pool, 4 << 20).unwrap();
    foreign.wait(&stream.record().unwrap()).unwrap();
    let gate = Arc::new(Barrier::new(2));
    let kernel = Arc::clone(&gate);
    foreign
        .launch(x.write(), move |_| {
            kernel.wait();
        })
        .unwrap();
    drop(x);
    let _ = stream.alloc::<u8>(&pool, 4 << 20).unwrap_err();
    assert!(!pool.wait_for_memory(SHORT).unwrap(), "the kernel runs on");
    let _ = stream.alloc::<u8>(&pool, 4 << 20).unwrap_err();
    gate.wait();
    foreign.synchronize().unwrap();
    assert!(pool.wait_for_memory(LONG).unwrap());
    stream.free(stream.alloc::<u8>(&pool, 4 << 20).unwrap()).unwrap();
}

/// Makes a device with memory for one large allocation, a pool to be refused while another one has it, and a stream.
fn refused_beside() -> (Device, Pool, Stream) {
    let device = Device::host(HostConfig::default().total_bytes(64 * MIB)).unwrap();
    (device.clone(), device.pool(PoolConfig::default()).unwrap(), device.stream().unwrap())
}

/// A dropped pool gives its memory back with the last free, and no longer exists then. The wait sees that even if no
/// other memory is ever given back.
#[test]
fn a_wait_for_memory_ends_with_a_pool() {
    let (device, pool, stream) = refused_beside();
    let gone = device.pool(PoolConfig::default()).unwrap();
    let x = stream.alloc::<u8>(&gone, 40 << 20).unwrap();
    drop(gone);
    let _ = stream.alloc::<u8>(&pool, 40 << 20).unwrap_err();
    stream.free(x).unwrap();
    stream.synchronize().unwrap();
    assert!(pool.wait_for_memory(LONG).unwrap());
    stream.alloc::<u8>(&pool, 40 << 20).unwrap();
}

/// The output of a graph is freed: by a stream, by dropping its buffer, by another graph. If the graph has been
/// destroyed by then, pools get its memory.
#[test]
fn a_wait_for_memory_ends_with_a_graphs_output() {
    for way in 0..3 {
        let (device, pool, stream) = refused_beside();
        let (graph, node) = stream
            .capture(|stream| {
                let x = stream.alloc::<u8>(&device.default_pool(), 40 << 20)?;
                stream.memset(x.write(), 1)?;
                Ok(x.into_alloc_node())
            })
            .unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let launch = exec.launch(&stream).unwrap();
        let output = launch.take(node).unwrap();
        drop((launch, exec, graph));
        stream.synchronize().unwrap();
        let _ = stream.alloc::<u8>(&pool, 40 << 20).unwrap_err();
        match way {
            0 => stream.free(output).unwrap(),
            1 => drop(output),
            _ => {
                let (freeing, ()) = stream.capture(|stream| stream.free(output).map_err(Error::from)).unwrap();
                drop(freeing.instantiate(Instantiate::default()).unwrap().launch(&stream).unwrap());
            }
        }
        stream.synchronize().unwrap();
        assert!(pool.wait_for_memory(LONG).unwrap(), "way {way}");
        stream.alloc::<u8>(&pool, 40 << 20).unwrap();
    }
}

/// More workers than memory: all get memory in the end.
#[test]
fn workers_at_the_limit_are_all_served() {
    let device = device(Schedule::Parallel);
    let pool = device.pool(PoolConfig::default().max_bytes(8 * MIB).release_threshold(u64::MAX)).unwrap();
    let served = AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..6 {
            threads.spawn(|| {
                let stream = device.stream().unwrap();
                for _ in 0..30 {
                    let x = loop {
                        match stream.alloc::<u8>(&pool, 3 << 20) {
                            Ok(x) => break x,
                            Err(error) => assert!(pool.wait_for_memory(LONG).unwrap(), "{error:?}"),
                        }
                    };
                    stream.launch(x.write(), |x| x[0] = 1).unwrap();
                    stream.free(x).unwrap();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(served.into_inner(), 180);
}

#[test]
fn launches_of_a_scope_borrow_and_have_ended_when_it_returns() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(3)] {
        let device = device(schedule);
        let (stream, pool) = (device.stream().unwrap(), device.default_pool());
        let x = stream.upload(&pool, &[1_u32, 2, 3]).unwrap();
        let (mut sum, mut copy, factor) = (0, Vec::new(), 2);
        stream
            .scope(|scope| {
                scope.launch(x.write(), |x| x.iter_mut().for_each(|x| *x *= factor))?;
                scope.launch(x.read(), |x| sum = x.iter().sum())?;
                scope.launch(x.read(), |x| {
                    std::thread::sleep(SHORT);
                    copy.extend_from_slice(x);
                })
            })
            .unwrap();
        assert_eq!((sum, copy.as_slice()), (12, &[2, 4, 6][..]));
        // The host has synchronised with it: a free by the host is right.
        device.free(x).unwrap();
    }
}

/// The kernel holds the borrow until it is dropped. The scope returns after that in all cases.
#[test]
fn a_scope_waits_where_its_closure_panics_or_fails() {
    struct Told<'a>(&'a AtomicU32);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let device = device(Schedule::Parallel);
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    let x = stream.alloc_zeroed::<u32>(&pool, 4).unwrap();
    let dropped = AtomicU32::new(0);
    let slow = |told: Told<'_>| {
        std::thread::sleep(SHORT);
        drop(told);
    };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stream.scope(|scope| {
            let told = Told(&dropped);
            scope.launch(x.read(), move |_| slow(told))?;
            if scope.launch(x.read(), |_| ()).is_ok() {
                panic!("planted");
            }
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    // A refused launch drops its kernel at once, and the scope returns the error.
    let other = device.stream().unwrap();
    let told = Told(&dropped);
    let refused = other.scope(|scope| scope.launch(x.write(), move |_| slow(told))).unwrap_err();
    assert!(refused.violation().is_some(), "{refused:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

/// Kernels that a lost device never runs are dropped all the same.
#[test]
fn a_scope_ends_where_a_kernel_panics() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(5)] {
        let device = device(schedule);
        let (stream, pool) = (device.stream().unwrap(), device.default_pool());
        let x = stream.alloc_zeroed::<u32>(&pool, 4).unwrap();
        let ran = AtomicU32::new(0);
        let outcome = stream.scope(|scope| {
            scope.launch(x.read(), |_| panic!("planted"))?;
            // The device may be lost by now.
            let _ = scope.launch(x.read(), |_| _ = ran.fetch_add(1, Ordering::SeqCst));
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::DeviceLost { .. })), "{outcome:?}");
        assert_eq!(ran.into_inner(), 0);
    }
}

#[test]
fn a_scope_in_a_capture_refuses_its_launches() {
    let device = device(Schedule::Parallel);
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    let x = stream.alloc_zeroed::<u32>(&pool, 4).unwrap();
    let (graph, ()) = stream
        .capture(|s| {
            let refused = s.scope(|scope| scope.launch(x.write(), |_| ())).unwrap_err();
            assert!(matches!(refused.invalid(), Some(Invalid::Uncapturable { .. })), "{refused:?}");
            s.memset(x.write(), 0)
        })
        .unwrap();
    assert_eq!(graph.len(), 1);
}

/// A kernel may launch into its own scope. If the schedule has no threads, only the scope can run that launch.
#[test]
fn a_kernel_launches_into_its_scope() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(7)] {
        let stream = device(schedule).stream().unwrap();
        let ran = AtomicU32::new(0);
        stream.scope(|scope| nested(scope, &ran, 40)).unwrap();
        assert_eq!(ran.into_inner(), 41);
    }
}

fn nested<'scope>(scope: &'scope Scope<'scope, '_>, ran: &'scope AtomicU32, deeper: u32) -> Result<()> {
    scope.launch((), move |()| {
        ran.fetch_add(1, Ordering::Relaxed);
        if deeper > 0 {
            nested(scope, ran, deeper - 1).unwrap();
        }
    })
}

/// A scope inside a kernel of its own stream could never end, so it is refused. In a kernel of another stream it is
/// not.
#[test]
fn a_scope_in_a_kernel_of_its_stream_is_refused() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(9)] {
        let device = device(schedule);
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let (own, apart) = (stream.clone(), other.clone());
        let (say, said) = std::sync::mpsc::channel();
        let kernel = move |()| {
            let (mut here, mut there) = (0, 0);
            let refused = own.scope(|scope| scope.launch((), |()| here = 1));
            let served = apart.scope(|scope| scope.launch((), |()| there = 1));
            say.send((refused, served, here, there)).unwrap();
        };
        stream.launch_once((), kernel).unwrap();
        stream.synchronize().unwrap();
        let (refused, served, here, there) = said.recv().unwrap();
        let refused = refused.unwrap_err().report().to_string();
        assert!(refused.contains("waits for the work that blocks on it"), "{refused}");
        assert!(served.is_ok(), "{served:?}");
        assert_eq!((here, there), (0, 1));
    }
}

/// Memory is never given back on a lost device: the error says so, and not that there is no memory.
#[test]
fn a_full_pool_of_a_lost_device_says_that_it_is_lost() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(5)] {
        let device = device(schedule);
        let (stream, pool) = (device.stream().unwrap(), device.pool(PoolConfig::default().max_bytes(2 * MIB)).unwrap());
        let other = device.stream().unwrap();
        let all = stream.alloc::<u8>(&pool, 2 << 20).unwrap();
        assert!(matches!(stream.alloc::<u8>(&pool, 1), Err(Error::OutOfMemory(_))));
        stream.launch(all.write(), |_| panic!("planted")).unwrap();
        assert!(stream.synchronize().is_err());
        let waited = pool.wait_for_memory(LONG);
        assert!(matches!(waited, Err(Error::DeviceLost { .. })), "{waited:?}");
        for stream in [&stream, &other] {
            let refused = stream.alloc::<u8>(&pool, 1).map(drop);
            assert!(matches!(refused, Err(Error::DeviceLost { .. })), "{refused:?}");
        }
    }
}

/// Also if the device reports the loss as soon as it has to record an event.
#[test]
fn a_full_pool_of_a_device_that_records_nothing_says_that_it_is_lost() {
    let host = HostDriver::new(millpond_driver::HostConfig::default()).unwrap();
    let driver = Arc::new(Failing::new(host));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.pool(PoolConfig::default().max_bytes(2 * MIB)).unwrap());
    let all = stream.alloc::<u8>(&pool, 2 << 20).unwrap();
    driver.fail_every(CallKind::Record, DriverError::Lost { reason: "planted".into() });
    let refused = stream.alloc::<u8>(&pool, 1).map(drop);
    assert!(matches!(refused, Err(Error::DeviceLost { .. })), "{refused:?}");
    let waited = pool.wait_for_memory(LONG);
    assert!(matches!(waited, Err(Error::DeviceLost { .. })), "{waited:?}");
    driver.disarm();
    stream.free(all).unwrap();
}
