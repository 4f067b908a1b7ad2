//! Several host threads: one host, or each for itself.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};

use millpond::check::{Finding, Kind};
use millpond::config::{HostThreads, Reporter, Violations};
use millpond::pool::PeerAccess;
use millpond::{Device, DeviceConfig, HostConfig, PoolConfig};

use crate::common::{
    Subject, comes_after, kind_of, makes, on_devices_that_run_closures, on_every_device, order, touch, visit, witness,
};

/// Runs a body on every device where each thread is a host of its own.
fn on_every_device_apart(body: impl Fn(&Subject)) {
    for make in makes() {
        eprintln!("on {make:?}:");
        let subject = Subject::with(make, DeviceConfig::default().host_threads(HostThreads::Separate));
        body(&subject);
        subject.assert_contract();
    }
}

/// On another thread, to its end.
fn elsewhere<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().expect("the thread ends well"))
}

#[test]
fn by_default_all_threads_are_one_host() {
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

#[test]
fn apart_each_thread_knows_what_it_was_told() {
    on_every_device_apart(|on| {
        let (pool, [a, b]) = (on.pool(PoolConfig::default()), on.streams());
        let x = witness(&pool, &a);
        let told = elsewhere(|| {
            a.synchronize().unwrap();
            assert!(comes_after(&on.stream(), &x), "the thread that waited knows");
            on.device.knowledge()
        });
        assert!(!comes_after(&b, &x), "this one does not");
        assert!(!comes_after(&on.stream(), &x));
        on.device.learn(&told);
        assert!(comes_after(&b, &x));
    });
}

/// To ask a stream submits nothing to it: what another thread submits there need not come after what the asker knows.
#[test]
fn asking_a_stream_tells_it_nothing() {
    on_every_device_apart(|on| {
        let (pool, [a, b]) = (on.pool(PoolConfig::default()), on.streams());
        let x = witness(&pool, &a);
        a.synchronize().unwrap();
        b.synchronize().unwrap();
        assert!(b.is_idle().unwrap());
        assert!(!elsewhere(|| comes_after(&b, &x)));
        assert!(comes_after(&b, &x), "the thread that waited knows");
    });
}

/// What a thread told is what it knew then, and it is handed on.
#[test]
fn telling_is_transitive_and_of_its_time() {
    on_every_device_apart(|on| {
        let (pool, [a, b]) = (on.pool(PoolConfig::default()), on.streams());
        let x = witness(&pool, &a);
        let (early, late) = elsewhere(|| {
            let early = on.device.knowledge();
            a.synchronize().unwrap();
            (early, on.device.knowledge())
        });
        on.device.learn(&early);
        assert!(!comes_after(&b, &x));
        let third = elsewhere(|| {
            on.device.learn(&late);
            on.device.knowledge()
        });
        assert!(!comes_after(&b, &x));
        on.device.learn(&third);
        assert!(comes_after(&b, &x));
    });
}

/// A stream keeps what it heard from one thread when another submits to it.
#[test]
fn a_stream_carries_knowledge_between_threads() {
    on_every_device_apart(|on| {
        let (pool, [a, b, c]) = (on.pool(PoolConfig::default()), on.streams());
        let x = witness(&pool, &a);
        elsewhere(|| {
            a.synchronize().unwrap();
            // Something submitted to `b` by a thread that knows.
            visit(&b, ()).unwrap();
        });
        assert!(comes_after(&b, &x));
        assert!(!comes_after(&c, &x));
        order(&b, &c);
        assert!(comes_after(&c, &x));
    });
}

/// A free without a stream asks the thread that makes it.
#[test]
fn a_free_at_once_asks_its_own_thread() {
    on_every_device_apart(|on| {
        let (pool, a) = (on.pool(PoolConfig::default()), on.stream());
        let x = witness(&pool, &a);
        let told = elsewhere(|| {
            a.synchronize().unwrap();
            on.device.knowledge()
        });
        let refused = on.device.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc);
        on.device.learn(&told);
        on.device.free(refused.buffer).unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

/// Numbers of closed streams are used again only where that is true for everybody.
#[test]
fn recycled_streams_do_not_mix_up_threads() {
    on_every_device_apart(|on| {
        let (pool, b) = (on.pool(PoolConfig::default()), on.stream());
        for _ in 0..20 {
            let old = on.stream();
            let x = witness(&pool, &old);
            elsewhere(|| on.device.synchronize().unwrap());
            drop(old);
            // Another thread may reuse the slot; this one was told nothing.
            let new = elsewhere(|| {
                on.device.synchronize().unwrap();
                on.stream()
            });
            assert!(!comes_after(&b, &x));
            assert!(comes_after(&new, &x), "the thread that opened it knew");
        }
    });
}

/// Whoever waits for the device has waited for closed streams, also for those that another thread waited for first.
#[test]
fn closed_streams_are_part_of_the_device() {
    on_every_device_apart(|on| {
        let (pool, b) = (on.pool(PoolConfig::default()), on.stream());
        let closed = on.stream();
        let x = witness(&pool, &closed);
        drop(closed);
        elsewhere(|| on.device.synchronize().unwrap());
        drop(on.stream());
        assert!(!comes_after(&b, &x));
        elsewhere(|| {
            on.device.synchronize().unwrap();
            assert!(comes_after(&on.stream(), &x));
        });
        on.device.synchronize().unwrap();
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

/// Buffers are handed on by a channel, their order by an event that goes with them.
#[test]
fn a_channel_and_an_event_hand_a_buffer_on() {
    on_every_device_apart(|on| {
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

/// Two host devices, each of whose threads knows what it was told itself.
fn two_devices_apart() -> [Device; 2] {
    let config = || HostConfig::default().host_threads(HostThreads::Separate);
    [(); 2].map(|()| Device::host(config()).unwrap())
}

#[test]
fn what_a_thread_knows_of_one_device_it_tells_by_another() {
    let [one, two] = two_devices_apart();
    let (pool, [s, t]) = (one.default_pool(), [one.stream().unwrap(), two.stream().unwrap()]);
    pool.grant(&two, PeerAccess::ReadWrite).unwrap();
    let x = witness(&pool, &s);
    elsewhere(|| assert!(!comes_after(&t, &x), "nobody waited"));
    s.synchronize().unwrap();
    assert!(comes_after(&t, &x), "this thread waited");
    let (y, u) = (witness(&pool, &s), two.stream().unwrap());
    s.synchronize().unwrap();
    let told = two.knowledge();
    elsewhere(|| {
        assert!(!comes_after(&u, &y), "nobody told this thread");
        two.learn(&told);
        assert!(comes_after(&u, &y), "it was told by the thread that waited");
    });
    // The other way: what was heard on one device holds on the other.
    let (z, v) = (witness(&pool, &s), two.stream().unwrap());
    s.synchronize().unwrap();
    let told = one.knowledge();
    elsewhere(|| {
        one.learn(&told);
        assert!(comes_after(&v, &z), "it was told by the thread that waited");
    });
}

/// What a thread knew that was refused on a stream, that stream does not bring to who waits for it.
#[test]
fn help_names_streams_that_bring_what_is_missing() {
    on_every_device_apart(|on| {
        let (pool, [a, b]) = (on.pool(PoolConfig::default()), on.streams());
        let (c, t) = (on.stream(), on.stream());
        let x = a.alloc::<u32>(&pool, 64).unwrap();
        order(&a, &b);
        a.declare(x.read()).unwrap();
        b.declare(x.read()).unwrap();
        let y = t.alloc::<u32>(&pool, 64).unwrap();
        let help = || t.declare(x.write()).unwrap_err().violation().unwrap().help().to_owned();
        let before = help();
        elsewhere(|| {
            a.synchronize().unwrap();
            b.synchronize().unwrap();
            assert_eq!(kind_of(&c.declare(y.read()).unwrap_err()), Kind::UseBeforeAlloc);
        });
        assert_eq!(help(), before);
        order(&a, &t);
        order(&b, &t);
        t.declare(x.write()).unwrap();
    });
}

/// A wait that is put in for a reported operation brings what the other stream comes after, and no more.
#[test]
fn a_report_brings_nothing_that_was_refused() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let reporter = Reporter::new(move |finding: &Finding| report.lock().unwrap().push(finding.kind));
    let config = HostConfig::default().host_threads(HostThreads::Separate);
    let device = Device::host(config.violations(Violations::Report(reporter))).unwrap();
    let (pool, [a, c, t]) = (device.default_pool(), [(); 3].map(|()| device.stream().unwrap()));
    let (x, y) = (a.alloc::<u32>(&pool, 64).unwrap(), c.alloc::<u32>(&pool, 64).unwrap());
    let gone = a.alloc::<u32>(&pool, 64).unwrap();
    let view = gone.view();
    a.free(gone).unwrap();
    elsewhere(|| {
        a.synchronize().unwrap();
        c.declare(view.read()).unwrap_err();
    });
    t.declare(y.read()).unwrap();
    t.declare(x.read()).unwrap();
    assert_eq!(*reported.lock().unwrap(), [Kind::UseAfterFree, Kind::UseBeforeAlloc, Kind::UseBeforeAlloc]);
}

/// Also of devices that have nothing to do with each other: a thread is one.
#[test]
fn what_a_thread_was_told_holds_on_all_devices() {
    let [one, two] = two_devices_apart();
    let (pool, s) = (two.default_pool(), two.stream().unwrap());
    let [x, y, z] = [(); 3].map(|()| s.alloc::<u8>(&pool, 100).unwrap());
    s.synchronize().unwrap();
    let (by_one, by_two) = (one.knowledge(), two.knowledge());
    elsewhere(|| {
        let refused = two.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc, "nobody told this thread");
        two.learn(&by_one);
        two.free(refused.buffer).unwrap();
    });
    elsewhere(|| {
        one.learn(&by_one);
        two.free(y).unwrap();
    });
    elsewhere(|| {
        one.learn(&by_two);
        two.free(z).unwrap();
    });
}

/// What it knew of the devices that go on stays its own as well.
#[test]
fn what_a_thread_knew_of_a_device_that_is_gone_no_other_knows() {
    let [gone, device] = two_devices_apart();
    let (pool, a, b) = (device.default_pool(), device.stream().unwrap(), device.stream().unwrap());
    let x = witness(&pool, &a);
    let passing = gone.stream().unwrap();
    passing.wait(&a.record().unwrap()).unwrap();
    passing.synchronize().unwrap();
    drop((passing, gone));
    elsewhere(|| assert!(!comes_after(&b, &x), "that thread waited for nothing"));
    assert!(comes_after(&b, &x), "this one did");
}

/// A device that takes all threads for one brings nothing from the one to the other that is of another device.
#[test]
fn what_a_thread_was_told_goes_to_no_device_of_all_threads() {
    let [device, _] = two_devices_apart();
    let joined = Device::host(HostConfig::default()).unwrap();
    let (pool, a, b) = (device.default_pool(), device.stream().unwrap(), device.stream().unwrap());
    let x = witness(&pool, &a);
    a.synchronize().unwrap();
    let told = device.knowledge();
    elsewhere(|| device.learn(&told));
    let untold = elsewhere(|| {
        assert!(!comes_after(&b, &x), "nobody told this thread");
        device.knowledge()
    });
    elsewhere(|| {
        device.learn(&untold);
        assert!(!comes_after(&b, &x), "what it was told says nothing of that");
    });
    drop(joined);
}
