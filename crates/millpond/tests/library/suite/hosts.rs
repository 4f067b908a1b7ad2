//! Several host threads are one host.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use millpond::PoolConfig;
use millpond::check::Kind;

use crate::common::{comes_after, kind_of, on_devices_that_run_closures, on_every_device, touch, visit, witness};

/// Runs a body on another thread, and waits for it.
fn elsewhere<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().expect("the thread ends well"))
}

#[test]
fn all_threads_are_one_host() {
    on_every_device(|on| {
        let (pool, [a, b]) = (on.pool(PoolConfig::default()), on.streams());
        let x = witness(&pool, &a);
        assert!(!comes_after(&b, &x));
        elsewhere(|| a.synchronize().unwrap());
        assert!(comes_after(&b, &x), "what one thread waited for, all did");
        let y = elsewhere(|| witness(&pool, &a));
        assert!(!comes_after(&b, &y));
        assert!(comes_after(&a, &y), "a stream is a stream, whoever submits");
    });
}

/// A free without a stream uses what any thread knows.
#[test]
fn a_free_at_once_comes_after_what_another_thread_waited_for() {
    on_every_device(|on| {
        let (pool, a) = (on.pool(PoolConfig::default()), on.stream());
        let refused = on.device.free(witness(&pool, &a)).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc);
        elsewhere(|| a.synchronize().unwrap());
        on.device.free(refused.buffer).unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

/// A thread that waits for the device has waited for closed streams, for all threads.
#[test]
fn closed_streams_are_part_of_the_device() {
    on_every_device(|on| {
        let (pool, b) = (on.pool(PoolConfig::default()), on.stream());
        let closed = on.stream();
        let x = witness(&pool, &closed);
        drop(closed);
        assert!(!comes_after(&b, &x));
        elsewhere(|| on.device.synchronize().unwrap());
        drop(on.stream());
        assert!(comes_after(&b, &x));
    });
}

#[test]
fn threads_share_one_stream() {
    on_devices_that_run_closures(|on| {
        let (pool, stream) = (on.pool(PoolConfig::default()), on.stream());
        let x = stream.alloc::<u64>(&pool, 4).unwrap();
        stream.memset(x.write(), 0).unwrap();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (stream, pool, x, start) = (&stream, &pool, x.view(), &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..100 {
                        stream.launch(x.write(), move |x| x[thread] += 1).unwrap();
                        let y = stream.alloc::<u8>(pool, 100 << thread).unwrap();
                        touch(stream, &y);
                        stream.free(y).unwrap();
                    }
                });
            }
        });
        let counted = stream.copy_to_host(x.read()).unwrap();
        assert_eq!(counted, [100; 4]);
        drop(x);
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

/// A channel passes buffers on. An event that is sent with them gives their order.
#[test]
fn a_channel_and_an_event_hand_a_buffer_on() {
    on_every_device(|on| {
        let pool = on.pool(PoolConfig::default());
        let (send, receive) = channel();
        std::thread::scope(|scope| {
            let (made, used) = (on.stream(), on.stream());
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..100u32 {
                    let x = made.alloc::<u32>(pool, 300).unwrap();
                    made.copy_from_host(x.write(), &[round; 300]).unwrap();
                    send.send((round, x, made.record().unwrap())).unwrap();
                }
            });
            scope.spawn(move || {
                for (round, x, event) in receive {
                    assert_eq!(kind_of(&visit(&used, x.read()).unwrap_err()), Kind::UseBeforeAlloc);
                    used.wait(&event).unwrap();
                    let found = used.copy_to_host(x.read()).unwrap();
                    assert!(!on.has_memory || found == [round; 300]);
                    used.free(x).unwrap();
                }
                used.synchronize().unwrap();
            });
        });
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}
