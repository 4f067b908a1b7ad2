//! The order of operations: events, streams, synchronisation, and the rules of the default streams.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::check::Kind;
use millpond::{Pool, PoolConfig, Stream};

use crate::common::{
    Subject, comes_after, kind_of, on_devices_that_hold, on_every_device, order, touch, visit, witness,
};

fn pool(on: &Subject) -> Pool {
    on.pool(PoolConfig::default())
}

#[test]
fn streams_are_apart_until_something_joins_them() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let on_a = witness(&pool, &a);
        assert!(comes_after(&a, &on_a) && !comes_after(&b, &on_a));
        order(&b, &a);
        assert!(!comes_after(&b, &on_a), "an edge has a direction");
        order(&a, &b);
        assert!(comes_after(&b, &on_a));
    });
}

#[test]
fn an_event_is_where_it_was_recorded() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let before = witness(&pool, &a);
        let event = a.record().unwrap();
        let after = witness(&pool, &a);
        b.wait(&event).unwrap();
        b.wait(&event.clone()).unwrap();
        assert!(comes_after(&b, &before) && !comes_after(&b, &after));
        // The recorded point stays, no matter how much work the stream gets later.
        b.wait(&a.record().unwrap()).unwrap();
        assert!(comes_after(&b, &after));
    });
}

#[test]
fn order_is_transitive() {
    on_every_device(|on| {
        let pool = pool(on);
        let streams: [Stream; 6] = on.streams();
        let first = witness(&pool, &streams[0]);
        for pair in streams.windows(2) {
            order(&pair[0], &pair[1]);
        }
        assert!(comes_after(&streams[5], &first));
        // Not backwards, and not between other streams.
        let last = witness(&pool, &streams[5]);
        assert!(streams[..5].iter().all(|stream| !comes_after(stream, &last)));
        assert!(!comes_after(&on.stream(), &first));
    });
}

/// Record, wait, record: the second event covers more than the first.
#[test]
fn a_wait_is_part_of_what_is_recorded_next() {
    on_every_device(|on| {
        let (pool, [a, b, c]) = (pool(on), on.streams());
        let early = a.record().unwrap();
        let on_b = witness(&pool, &b);
        order(&b, &a);
        let late = a.record().unwrap();
        c.wait(&early).unwrap();
        assert!(!comes_after(&c, &on_b));
        c.wait(&late).unwrap();
        assert!(comes_after(&c, &on_b));
    });
}

#[test]
fn a_diamond_joins_both_sides() {
    on_every_device(|on| {
        let (pool, [top, left, right, bottom]) = (pool(on), on.streams());
        let x = witness(&pool, &top);
        for side in [&left, &right] {
            order(&top, side);
            visit(side, x.read()).unwrap();
        }
        order(&left, &bottom);
        assert_eq!(kind_of(&visit(&bottom, x.write()).unwrap_err()), Kind::Race);
        order(&right, &bottom);
        visit(&bottom, x.write()).unwrap();
        bottom.free(x).unwrap();
    });
}

#[test]
fn what_the_host_waited_for_comes_before_all_that_follows() {
    on_every_device(|on| {
        let (pool, [a, b, c]) = (pool(on), on.streams());
        let on_a = witness(&pool, &a);
        let on_b = witness(&pool, &b);
        let event = a.record().unwrap();
        let later = witness(&pool, &a);
        event.synchronize().unwrap();
        assert!(comes_after(&c, &on_a) && !comes_after(&c, &later) && !comes_after(&c, &on_b));
        a.synchronize().unwrap();
        assert!(comes_after(&c, &later) && !comes_after(&c, &on_b));
        let fresh = on.stream();
        assert!(comes_after(&fresh, &later), "streams opened later know it, too");
        on.device.synchronize().unwrap();
        assert!(comes_after(&c, &on_b));
    });
}

/// A synchronisation with an operation is also one with everything that comes before it.
#[test]
fn the_host_knows_what_its_event_knew() {
    on_every_device(|on| {
        let (pool, [a, b, c]) = (pool(on), on.streams());
        let on_a = witness(&pool, &a);
        order(&a, &b);
        b.synchronize().unwrap();
        assert!(comes_after(&c, &on_a));
    });
}

#[test]
fn a_query_orders_where_it_says_yes() {
    on_devices_that_hold(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let on_a = witness(&pool, &a);
        let busy = on.hold(&a, ());
        let event = a.record().unwrap();
        assert!(!event.is_over().unwrap() && !a.is_idle().unwrap());
        assert!(!comes_after(&b, &on_a), "a no says nothing");
        drop(busy);
        if !on.is_parallel {
            // Simulated time passes only when a thread waits, for the work before the wait.
            return;
        }
        while !event.is_over().unwrap() {
            std::thread::yield_now();
        }
        assert!(comes_after(&b, &on_a));
    });
}

#[test]
fn an_idle_stream_orders_by_a_query() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let on_a = witness(&pool, &a);
        if on.is_instant {
            assert!(a.is_idle().unwrap());
        } else {
            // Another thread waits. By default all threads are one host.
            std::thread::scope(|scope| scope.spawn(|| a.synchronize().unwrap()).join().unwrap());
        }
        assert!(comes_after(&b, &on_a));
    });
}

#[test]
fn the_legacy_stream_comes_after_all_blocking_streams() {
    on_every_device(|on| {
        let (pool, legacy) = (pool(on), on.device.legacy_stream());
        let streams: [Stream; 4] = on.streams();
        let own = on.device.per_thread_stream().unwrap();
        let free = on.device.non_blocking_stream().unwrap();
        let witnesses: Vec<_> = streams.iter().chain([&own]).map(|stream| witness(&pool, stream)).collect();
        let exempt = witness(&pool, &free);
        assert!(witnesses.iter().all(|x| comes_after(&legacy, x)));
        assert!(!comes_after(&legacy, &exempt));
        // The same again, for later work.
        let more: Vec<_> = streams.iter().map(|stream| witness(&pool, stream)).collect();
        assert!(more.iter().all(|x| comes_after(&legacy, x)));
    });
}

#[test]
fn blocking_streams_come_after_the_legacy_stream() {
    on_every_device(|on| {
        let (pool, legacy) = (pool(on), on.device.legacy_stream());
        let early = on.stream();
        let free = on.device.non_blocking_stream().unwrap();
        let own = on.device.per_thread_stream().unwrap();
        let x = witness(&pool, &legacy);
        assert!(comes_after(&early, &x) && comes_after(&own, &x) && comes_after(&on.stream(), &x));
        assert!(!comes_after(&free, &x));
        order(&legacy, &free);
        assert!(comes_after(&free, &x));
    });
}

/// Two blocking streams are ordered with each other only by work between them on the legacy stream.
#[test]
fn the_legacy_stream_joins_the_others() {
    on_every_device(|on| {
        let (pool, legacy, [a, b]) = (pool(on), on.device.legacy_stream(), on.streams());
        let x = witness(&pool, &a);
        assert!(!comes_after(&b, &x));
        visit(&legacy, ()).unwrap();
        assert!(comes_after(&b, &x));
        let y = witness(&pool, &a);
        assert!(!comes_after(&b, &y), "once more takes once more");
        let z = witness(&pool, &b);
        assert!(!comes_after(&a, &z));
        visit(&legacy, ()).unwrap();
        assert!(comes_after(&b, &y) && comes_after(&a, &z));
    });
}

#[test]
fn a_closed_stream_still_counts_for_the_legacy_stream() {
    on_every_device(|on| {
        let (pool, legacy) = (pool(on), on.device.legacy_stream());
        let stream = on.stream();
        let x = witness(&pool, &stream);
        drop(stream);
        let free = on.device.non_blocking_stream().unwrap();
        let y = witness(&pool, &free);
        drop(free);
        assert!(comes_after(&legacy, &x) && !comes_after(&legacy, &y));
    });
}

#[test]
fn every_thread_has_a_default_stream() {
    on_every_device(|on| {
        let (pool, own) = (pool(on), on.device.per_thread_stream().unwrap());
        assert_eq!(own.id(), on.device.per_thread_stream().unwrap().id());
        let x = witness(&pool, &own);
        let other = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let other = on.device.per_thread_stream().unwrap();
                assert_ne!(own.id(), other.id());
                assert!(!comes_after(&other, &x));
                // Other threads can get its handles, to wait for it.
                order(&own, &other);
                assert!(comes_after(&other, &x));
                other
            });
            thread.join().unwrap()
        });
        let y = witness(&pool, &own);
        order(&own, &on.stream());
        other.synchronize().unwrap();
        assert!(!comes_after(&on.stream(), &y), "the other one was waited for");
        assert!(comes_after(&on.stream(), &x));
    });
}

/// Frees on the legacy stream come after everything in blocking streams: a safe "free from anywhere".
#[test]
fn the_legacy_stream_frees_from_anywhere() {
    on_every_device(|on| {
        let (pool, legacy, [a, b]) = (pool(on), on.device.legacy_stream(), on.streams());
        for round in 0..3 {
            let x = a.alloc::<u8>(&pool, 1000).unwrap();
            touch(&a, &x);
            order(&a, &b);
            touch(&b, &x);
            if round == 1 {
                legacy.free_address(x.into_address()).unwrap();
            } else {
                legacy.free(x).unwrap();
            }
        }
        let free = on.device.non_blocking_stream().unwrap();
        let x = witness(&pool, &free);
        let refused = legacy.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc);
        free.free(refused.buffer).unwrap();
        on.device.synchronize().unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

/// A use after the free in one stream is refused. CUDA says nothing.
#[test]
fn the_end_of_a_life_is_an_end() {
    on_every_device(|on| {
        let (pool, stream) = (pool(on), on.stream());
        let x = witness(&pool, &stream);
        let view = x.view();
        stream.free(x).unwrap();
        assert_eq!(kind_of(&visit(&stream, view.read()).unwrap_err()), Kind::UseAfterFree);
        assert_eq!(kind_of(&stream.memset(view.write(), 0).unwrap_err()), Kind::UseAfterFree);
        assert_eq!(kind_of(&stream.copy_to_host(view.read()).unwrap_err()), Kind::UseAfterFree);
        assert_eq!(kind_of(&stream.copy_from_host(view.write(), &[0; 64]).unwrap_err()), Kind::UseAfterFree);
    });
}

/// A drop adds no order and is never refused: the memory is freed after everything declared so far.
#[test]
fn a_drop_orders_nothing() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let x = witness(&pool, &a);
        order(&a, &b);
        visit(&b, x.write()).unwrap();
        let on_b = witness(&pool, &b);
        drop(x);
        assert!(!comes_after(&a, &on_b), "`a` did not come after `b` by freeing what `b` used");
        assert_eq!(pool.statistics().used_bytes, 64);
        drop(on_b);
        on.device.synchronize().unwrap();
        assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    });
}

/// `enqueue` leaves races to its caller, and no other rule.
#[test]
fn foreign_work_may_share_an_allocation() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let x = a.alloc::<u8>(&pool, 64).unwrap();
        let (low, high) = (x.view().slice(..32).unwrap(), x.view().slice(32..).unwrap());
        // SAFETY: nothing is submitted.
        let refused = unsafe { b.enqueue(low.write(), |_, _| Ok(())) }.unwrap_err();
        assert_eq!(kind_of(&refused), Kind::UseBeforeAlloc);
        order(&a, &b);
        // SAFETY: nothing is submitted; the halves are apart.
        let first = unsafe { a.enqueue(low.write(), |_, low| Ok(low)) }.unwrap();
        // SAFETY: as above.
        let second = unsafe { b.enqueue(high.write(), |_, high| Ok(high)) }.unwrap();
        assert_eq!((first.address, first.len), (x.address(), 32));
        assert_eq!((second.address, second.len), (x.address() + 32, 32));
        // Both must precede the free.
        let refused = a.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
        order(&b, &a);
        a.free(refused.buffer).unwrap();
    });
}

/// A call that failed may have submitted something before, so its accesses are recorded all the same.
#[test]
fn foreign_work_that_fails_or_panics_is_recorded() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        for panics in [false, true] {
            let x = a.alloc::<u8>(&pool, 64).unwrap();
            let submit = |queue: &millpond::raw::Queue<'_>, _| -> millpond::Result<()> {
                queue.host_function(|| ())?;
                assert!(!panics, "planted");
                Err(millpond_driver::DriverError::Failed { call: "submit", reason: "planted".into() }.into())
            };
            order(&a, &b);
            // SAFETY: nothing touches the memory.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { b.enqueue(x.write(), submit) }));
            assert!(if panics { done.is_err() } else { done.unwrap().is_err() });
            let refused = a.free(x).unwrap_err();
            assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
            order(&b, &a);
            a.free(refused.buffer).unwrap();
        }
    });
}

/// A buffer of the legacy stream is dropped. That is no operation of the stream, so it orders nothing.
#[test]
fn a_drop_is_no_operation_of_the_legacy_stream() {
    on_every_device(|on| {
        let (pool, legacy, [a, b]) = (pool(on), on.device.legacy_stream(), on.streams());
        let x = witness(&pool, &legacy);
        let on_a = witness(&pool, &a);
        assert!(!legacy.is_capturing().unwrap());
        drop(x);
        assert!(!comes_after(&b, &on_a));
        visit(&legacy, ()).unwrap();
        assert!(comes_after(&b, &on_a));
    });
}

/// Several streams have to come first: the violation names all of them, and its advice is enough.
#[test]
fn all_that_is_missing_is_said_at_once() {
    on_every_device(|on| {
        let (pool, [owner, a, b, c]) = (pool(on), on.streams());
        let x = owner.alloc::<u8>(&pool, 64).unwrap();
        touch(&owner, &x);
        for reader in [&a, &b, &c] {
            order(&owner, reader);
            visit(reader, x.read()).unwrap();
        }
        visit(&b, x.read()).unwrap();
        order(&c, &owner);
        let refused = owner.free(x).unwrap_err();
        let violation = refused.error.violation().unwrap();
        let missing: Vec<_> = violation.missing.iter().map(|edge| (edge.after.stream, edge.after.op)).collect();
        assert_eq!(missing, [(Some(a.id()), Some(2)), (Some(b.id()), Some(3))]);
        let edge = |stream: &Stream, op: u64| {
            format!("make {} wait for an event recorded on {} at or after op {op} (", owner.id(), stream.id())
        };
        let text = refused.error.report().to_string();
        assert!(text.contains(&format!("help: {}", edge(&a, 2))) && text.contains(&edge(&b, 3)), "{text}");
        assert!(violation.facts().contains(" other_act=Read "), "{}", violation.facts());
        // For a free by the host, the advice names what the host has to wait for.
        let by_host = on.device.free(refused.buffer).unwrap_err();
        assert!(
            by_host.error.report().to_string().contains(&format!("synchronize {}, or an event recorded on it", a.id())),
            "{}",
            by_host.error
        );
        order(&a, &owner);
        order(&b, &owner);
        owner.free(by_host.buffer).unwrap();
    });
}

/// A stream that comes after several of the missing ones stands for them: one edge is enough.
#[test]
fn the_help_is_as_few_edges_as_settle_it() {
    on_every_device(|on| {
        let (pool, [owner, a, b, c]) = (pool(on), on.streams());
        let x = owner.alloc::<u8>(&pool, 64).unwrap();
        touch(&owner, &x);
        for reader in [&a, &b] {
            order(&owner, reader);
            visit(reader, x.read()).unwrap();
        }
        order(&a, &c);
        order(&b, &c);
        let refused = owner.free(x).unwrap_err();
        let violation = refused.error.violation().unwrap();
        let sides: Vec<_> = violation.earlier.iter().chain(&violation.others).map(|side| side.stream).collect();
        assert_eq!(sides, [Some(a.id()), Some(b.id())], "both are named");
        let missing: Vec<_> = violation.missing.iter().map(|edge| edge.after.stream).collect();
        assert_eq!(missing, [Some(c.id())], "{}", refused.error);
        order(&c, &owner);
        owner.free(refused.buffer).unwrap();
    });
}

/// A closed stream records no event any more: the advice says that it has to be recorded before.
#[test]
fn the_help_asks_no_closed_stream() {
    on_every_device(|on| {
        let (pool, [owner, a]) = (pool(on), on.streams());
        let x = owner.alloc::<u8>(&pool, 64).unwrap();
        order(&owner, &a);
        visit(&a, x.read()).unwrap();
        drop(a);
        let refused = owner.free(x).unwrap_err();
        let text = refused.error.report().to_string();
        assert!(text.contains(", before that stream is destroyed"), "{text}");
        owner.synchronize().unwrap();
        let refused = on.device.free(refused.buffer).unwrap_err();
        assert!(
            refused.error.report().to_string().contains("help: synchronize the device before"),
            "{}",
            refused.error
        );
        on.device.synchronize().unwrap();
        owner.free(refused.buffer).unwrap();
    });
}

/// A submission holds its stream: a refusal inside it does not query that stream.
#[test]
fn a_refusal_inside_a_submission_waits_for_no_stream() {
    on_every_device(|on| {
        let (pool, [a, b]) = (pool(on), on.streams());
        let x = a.alloc::<u8>(&pool, 64).unwrap();
        let refuse = |_: &millpond::raw::Queue<'_>, ()| -> millpond::Result<()> {
            let refused = b.free_address(x.address()).unwrap_err();
            assert_eq!(kind_of(&refused), Kind::FreeBeforeAlloc);
            Ok(())
        };
        // SAFETY: nothing is submitted.
        unsafe { a.enqueue((), refuse) }.unwrap();
        a.free(x).unwrap();
    });
}
