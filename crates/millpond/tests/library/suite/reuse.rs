//! Which freed memory serves which stream, and when: CUDA's reuse policies, on and off.
//!
//! "While it is busy" is exact: a kernel is held until the answer is known. Pools are limited to one buffer if a reuse
//! must happen, and are not limited if it must not.

use std::sync::mpsc::channel;
use std::time::Duration;

use millpond::config::{ReusePolicy, Schedule};
use millpond::{Buffer, Device, DeviceConfig, Error, GIB, MIB, Pool, PoolConfig, Stream};

use crate::common::{
    Subject, kind_of, on_devices_that_hold, on_devices_that_run_closures, on_every_device, order, reuse, sim, touch,
    visit,
};

const LEN: usize = 8 * MIB as usize;
const NONE: ReusePolicy =
    ReusePolicy { follow_event_dependencies: false, allow_opportunistic: false, allow_internal_dependencies: false };

/// Makes a pool that is limited to one buffer.
fn tight(on: &Subject, reuse: ReusePolicy) -> Pool {
    on.pool(PoolConfig::default().max_bytes(LEN as u64).release_threshold(u64::MAX).reuse(reuse))
}

fn roomy(on: &Subject, reuse: ReusePolicy) -> Pool {
    on.pool(PoolConfig::default().release_threshold(u64::MAX).reuse(reuse))
}

fn alloc(stream: &Stream, pool: &Pool) -> Result<Buffer<u8>, Error> {
    stream.alloc(pool, LEN)
}

/// Allocates, uses and frees on a stream. Returns the address.
fn pass(stream: &Stream, pool: &Pool) -> u64 {
    let x = alloc(stream, pool).unwrap();
    touch(stream, &x);
    let address = x.address();
    stream.free(x).unwrap();
    address
}

/// Asserts that a new allocation shares no byte with a block that was freed just now.
fn assert_not_reused(on: &Subject, policy: ReusePolicy, tie: impl Fn(&Stream, &Stream)) {
    let [first, second] = on.streams();
    let pool = roomy(on, policy);
    let address = pass(&first, &pool);
    tie(&first, &second);
    let y = alloc(&second, &pool).unwrap();
    assert!(y.address().abs_diff(address) >= LEN as u64);

    let pool = tight(on, policy);
    pass(&first, &pool);
    tie(&first, &second);
    assert!(matches!(alloc(&second, &pool), Err(Error::OutOfMemory(_))));
    // The stream that freed it may reuse it.
    alloc(&first, &pool).unwrap();
}

#[test]
fn a_stream_has_its_own_memory_back_at_once() {
    on_devices_that_hold(|on| {
        for policy in [ReusePolicy::default(), NONE] {
            let (stream, pool) = (on.stream(), roomy(on, policy));
            let small = stream.alloc::<u8>(&pool, 4096).unwrap();
            let big = stream.alloc::<u8>(&pool, 4 * LEN).unwrap();
            let busy = on.hold(&stream, big.write());
            let address = big.address();
            stream.free(big).unwrap();
            let again = stream.alloc::<u8>(&pool, 4 * LEN).unwrap();
            assert_eq!(again.address(), address, "the kernel still runs, and stream order is enough");
            let held = 4096 + 4 * LEN as u64;
            assert_eq!(pool.statistics().used_bytes, held);
            assert_eq!(pool.statistics().used_high_bytes, held, "never both");
            stream.free(again).unwrap();
            assert_eq!(pool.statistics().used_bytes, 4096, "at the call, not when it is over");
            drop((busy, small));
            stream.synchronize().unwrap();
        }
    });
}

#[test]
fn an_event_lets_another_stream_have_it() {
    on_devices_that_hold(|on| {
        let [first, second] = on.streams();
        for pool in [tight(on, reuse(true, false, false)), roomy(on, reuse(true, false, false))] {
            let x = alloc(&first, &pool).unwrap();
            let busy = on.hold(&first, x.write());
            let address = x.address();
            first.free(x).unwrap();
            order(&first, &second);
            let y = alloc(&second, &pool).unwrap();
            assert_eq!(y.address(), address, "while the kernel still runs");
            touch(&second, &y);
            drop(busy);
            second.synchronize().unwrap();
            drop(y);
        }
    });
}

#[test]
fn an_event_from_before_the_free_does_not() {
    on_devices_that_hold(|on| {
        let [first, second] = on.streams();
        let pool = tight(on, reuse(true, false, false));
        let x = alloc(&first, &pool).unwrap();
        order(&first, &second);
        let busy = on.hold(&first, x.write());
        first.free(x).unwrap();
        assert!(matches!(alloc(&second, &pool), Err(Error::OutOfMemory(_))));
        drop(busy);
    });
}

#[test]
fn transitive_events_count() {
    on_devices_that_hold(|on| {
        let [first, between, second] = on.streams();
        let pool = tight(on, reuse(true, false, false));
        let x = alloc(&first, &pool).unwrap();
        let busy = on.hold(&first, x.write());
        let address = x.address();
        first.free(x).unwrap();
        order(&first, &between);
        order(&between, &second);
        assert_eq!(alloc(&second, &pool).unwrap().address(), address);
        drop(busy);
    });
}

/// The rules of the legacy default stream are dependencies like any other.
#[test]
fn the_legacy_stream_counts() {
    on_every_device(|on| {
        let [first, second] = on.streams();
        let pool = tight(on, reuse(true, false, false));
        let address = pass(&first, &pool);
        touch(&on.device.legacy_stream(), &on.stream().alloc(&on.device.default_pool(), 0).unwrap());
        assert_eq!(alloc(&second, &pool).unwrap().address(), address);
    });
}

#[test]
fn events_do_not_count_where_that_is_off() {
    on_every_device(|on| assert_not_reused(on, NONE, order));
}

#[test]
fn unordered_memory_is_not_reused() {
    on_every_device(|on| assert_not_reused(on, reuse(true, false, false), |_, _| ()));
}

#[test]
fn a_policy_can_be_changed_later() {
    on_every_device(|on| {
        let [first, second] = on.streams();
        let pool = tight(on, NONE);
        let address = pass(&first, &pool);
        order(&first, &second);
        assert!(alloc(&second, &pool).is_err());
        pool.set_reuse(reuse(true, false, false));
        assert_eq!(alloc(&second, &pool).unwrap().address(), address);
    });
}

/// Memory whose use the host knows to have completed may serve any stream, under any policy.
#[test]
fn a_synchronisation_opens_memory_to_all() {
    on_every_device(|on| {
        let [first, second] = on.streams();
        type Sync = fn(&Subject, &Stream);
        let ways: [Sync; 4] = [
            |_, first| first.synchronize().unwrap(),
            |on, _| on.device.synchronize().unwrap(),
            |_, first| first.record().unwrap().synchronize().unwrap(),
            |on, first| {
                let event = first.record().unwrap();
                if !on.is_instant {
                    event.synchronize().unwrap();
                }
                assert!(event.is_over().unwrap());
            },
        ];
        for tell in ways {
            let pool = tight(on, NONE);
            let address = pass(&first, &pool);
            tell(on, &first);
            assert_eq!(alloc(&second, &pool).unwrap().address(), address);
        }
    });
}

/// Waits until a stream's work has completed, without the host knowing.
fn settle(on: &Subject, stream: &Stream) {
    if on.is_parallel {
        let (ran, has_run) = channel();
        on.run(stream, (), move || ran.send(()).expect("somebody listens"));
        has_run.recv().unwrap();
        // The kernel has finished; its worker is about to report that.
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn memory_found_to_be_over_is_reused_where_that_is_allowed() {
    on_every_device(|on| {
        if !(on.is_parallel || on.is_instant) {
            return;
        }
        let [first, second] = on.streams();
        let pool = tight(on, reuse(false, true, false));
        let address = pass(&first, &pool);
        settle(on, &first);
        let y = alloc(&second, &pool).unwrap();
        assert_eq!(y.address(), address);
        drop(y);
        // If the policy is off, the same wait is not enough.
        assert_not_reused(on, NONE, |first, _| settle(on, first));
    });
}

#[test]
fn busy_memory_is_not_found_to_be_over() {
    on_devices_that_hold(|on| {
        let [first, second] = on.streams();
        for (pool, has_room) in
            [(roomy(on, reuse(true, true, false)), true), (tight(on, reuse(true, true, false)), false)]
        {
            let x = alloc(&first, &pool).unwrap();
            let busy = on.hold(&first, x.write());
            let address = x.address();
            first.free(x).unwrap();
            match alloc(&second, &pool) {
                Ok(y) => assert!(has_room && y.address().abs_diff(address) >= LEN as u64),
                Err(error) => assert!(!has_room && matches!(error, Error::OutOfMemory(_))),
            }
            drop(busy);
            first.synchronize().unwrap();
        }
    });
}

/// If there is no other memory, the stream is made to wait. That places memory, but adds no order for the program.
#[test]
fn a_stream_is_made_to_wait_for_memory() {
    on_devices_that_hold(|on| {
        let [first, second] = on.streams();
        let (pool, other) = (tight(on, reuse(false, false, true)), roomy(on, NONE));
        let x = alloc(&first, &pool).unwrap();
        let witness = first.alloc::<u8>(&other, 64).unwrap();
        let busy = on.hold(&first, x.write());
        let address = x.address();
        first.free(x).unwrap();
        let y = alloc(&second, &pool).unwrap();
        assert_eq!(y.address(), address);
        let (ran, has_run) = channel();
        on.run(&second, y.write(), move || ran.send(()).expect("somebody listens"));
        if on.is_parallel {
            assert!(has_run.recv_timeout(Duration::from_millis(30)).is_err(), "it waits for the kernel of the first");
        }
        let refused = visit(&second, witness.read()).unwrap_err();
        assert_eq!(
            kind_of(&refused),
            millpond::check::Kind::UseBeforeAlloc,
            "the wait is not a part of the program's order"
        );
        drop(busy);
        second.synchronize().unwrap();
        if on.is_parallel {
            has_run.recv().unwrap();
        }
        drop((y, witness));
    });
}

/// Contents are right under all policies.
#[test]
fn data_is_right_under_every_policy() {
    on_devices_that_run_closures(|on| {
        let [first, second] = on.streams();
        for bits in 0..8 {
            let policy = reuse(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let pool = on.pool(PoolConfig::default().max_bytes(8 * MIB).reuse(policy));
            for round in 0..20u8 {
                for stream in [&first, &second] {
                    let Ok(x) = stream.alloc::<u8>(&pool, 3 * MIB as usize) else { continue };
                    stream.launch(x.write(), move |x| x.fill(round)).unwrap();
                    stream.launch(x.read(), move |x| assert!(x.iter().all(|&v| v == round))).unwrap();
                    stream.free(x).unwrap();
                }
                if round % 4 == 0 {
                    order(&first, &second);
                }
            }
            on.device.synchronize().unwrap();
            assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
        }
    });
}

/// A block is in its stream's cache, and the stream learns of a neighbour's free only after that. A stream that waited
/// for the first free only gets the first block only.
#[test]
fn what_a_stream_learned_after_a_free_opens_no_neighbour_by_it() {
    on_devices_that_hold(|on| {
        let reuse = reuse(true, true, false);
        let pool = on.pool(PoolConfig::default().max_bytes(2 * MIB).reuse(reuse));
        let [left, right, third] = on.streams();
        let low = left.alloc::<u8>(&pool, 64 << 10).unwrap();
        let high = right.alloc::<u8>(&pool, 64 << 10).unwrap();
        let _rest = right.alloc::<u8>(&pool, (2048 - 64 - 64 - 128 - 256) << 10).unwrap();
        assert_eq!(low.address() + (64 << 10), high.address(), "neighbours");
        let busy = on.hold(&right, high.write());
        right.free(high).unwrap();
        let _miss = right.alloc::<u8>(&pool, 128 << 10).unwrap(); // the heap gets the upper block
        left.free(low).unwrap(); // this one stays in a cache
        third.wait(&left.record().unwrap()).unwrap();
        left.wait(&right.record().unwrap()).unwrap(); // learned after the free
        let _miss = left.alloc::<u8>(&pool, 256 << 10).unwrap(); // the heap gets the lower block
        let both = third.alloc::<u8>(&pool, 128 << 10);
        assert!(matches!(both, Err(Error::OutOfMemory(_))), "got {:?}", both.map(|x| x.address()));
        third.alloc::<u8>(&pool, 64 << 10).unwrap();
        drop(busy);
    });
}

/// Three neighbours that are free after work of several streams: one that a stream frees early, one that it used later,
/// and one that it used last, in work that has not completed. A block from the stream's cache joins the second one, but
/// does not make the third one free.
#[test]
fn a_block_from_a_cache_does_not_vouch_for_what_its_stream_did_since() {
    let sim = sim(Schedule::AtWait, 64 * GIB);
    let device = Device::with_driver(sim.clone(), DeviceConfig::default()).unwrap();
    let pool = device.pool(PoolConfig::default()).unwrap();
    let [first, second, stream] = [(); 3].map(|()| device.non_blocking_stream().unwrap());
    let last = first.alloc::<u8>(&pool, 512).unwrap();
    let later = second.alloc::<u8>(&pool, 512).unwrap();
    let early = stream.alloc::<u8>(&pool, 512).unwrap();
    assert_eq!((last.address() + 512, later.address() + 512), (later.address(), early.address()));
    stream.wait(&first.record().unwrap()).unwrap();
    stream.wait(&second.record().unwrap()).unwrap();
    stream.free(early).unwrap();
    stream.memset(later.write(), 1).unwrap();
    let event = stream.record().unwrap();
    stream.memset(last.write(), 2).unwrap();
    // Nothing is left on the streams that allocated them, so each is free after points of two streams.
    drop((first, second));
    drop(last);
    drop(later);
    drop(stream);
    event.synchronize().unwrap();
    assert!(pool.statistics().reserved_bytes > 0, "the last fill is not over");
    assert_eq!(sim.violations(), []);
    device.synchronize().unwrap();
    assert_eq!(pool.statistics().reserved_bytes, 0);
}
