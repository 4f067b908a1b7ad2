//! The rules of the order that are easily missed, one test each.

use millpond_core::op::StreamRole;
use millpond_core::order::StreamIndex;

use super::program::{LEGACY, Program};

fn two(role: StreamRole) -> (Program, StreamIndex, StreamIndex) {
    let mut order = Program::new();
    let a = order.create(0, role);
    let b = order.create(0, role);
    (order, a, b)
}

const NB: StreamRole = StreamRole::NonBlocking;
const B: StreamRole = StreamRole::Blocking;

#[test]
fn a_wait_on_an_event_never_recorded_has_no_effect() {
    let (mut order, a, b) = two(NB);
    let point = order.submit(0, a);
    order.wait(0, b, 7);
    order.record(0, a, 7);
    assert!(!order.covers(b, point), "the record came after the wait");
}

#[test]
fn a_wait_binds_to_the_latest_record_at_its_call() {
    let (mut order, a, b) = two(NB);
    let first = order.submit(0, a);
    order.record(0, a, 0);
    let second = order.submit(0, a);
    order.record(0, a, 0);
    let third = order.submit(0, a);
    order.wait(0, b, 0);
    order.record(0, a, 0);
    assert!(order.covers(b, first) && order.covers(b, second) && !order.covers(b, third));
}

#[test]
fn a_record_replaces_the_one_before_it() {
    // Two streams record one event: a waiting stream is ordered after the last record only.
    let (mut order, a, b) = two(NB);
    let waiter = order.create(0, NB);
    let on_a = order.submit(0, a);
    order.record(0, a, 0);
    let on_b = order.submit(0, b);
    order.record(0, b, 0);
    order.wait(0, waiter, 0);
    assert!(order.covers(waiter, on_b) && !order.covers(waiter, on_a));
}

#[test]
fn record_wait_record_keeps_the_edge_between() {
    let (mut order, a, b) = two(NB);
    let c = order.create(0, NB);
    order.submit(0, a);
    order.record(0, a, 0);
    order.wait(0, c, 0);
    let on_b = order.submit(0, b);
    order.record(0, b, 1);
    order.wait(0, a, 1);
    order.record(0, a, 0);
    order.wait(0, c, 0);
    assert!(order.covers(c, on_b), "the second record of `a` knows `b`, though `a` submitted nothing since the first");
}

#[test]
fn the_legacy_stream_comes_after_all_blocking_streams_and_before_their_later_work() {
    let (mut order, a, b) = two(B);
    let on_a = order.submit(0, a);
    let on_legacy = order.submit(0, LEGACY);
    assert!(order.covers(LEGACY, on_a));
    assert!(!order.covers(b, on_legacy), "`b` has submitted nothing since");
    order.submit(0, b);
    assert!(order.covers(b, on_legacy) && order.covers(b, on_a), "ordered through the legacy stream");
}

#[test]
fn non_blocking_streams_are_exempt_from_the_legacy_rule() {
    let (mut order, a, _) = two(NB);
    let on_a = order.submit(0, a);
    let on_legacy = order.submit(0, LEGACY);
    order.submit(0, a);
    assert!(!order.covers(LEGACY, on_a) && !order.covers(a, on_legacy));
}

#[test]
fn each_host_thread_has_a_blocking_default_stream_of_its_own() {
    let mut order = Program::new();
    let (one, two) = (order.per_thread(0), order.per_thread(1));
    assert_ne!(one, two, "one handle value, two streams");
    assert_eq!(order.per_thread(0), one);
    let on_one = order.submit(0, one);
    order.submit(1, two);
    assert!(!order.covers(two, on_one));
    order.submit(0, LEGACY);
    order.submit(1, two);
    assert!(order.covers(two, on_one), "both are blocking: the legacy stream joins them");
}

#[test]
fn a_synchronisation_orders_later_work_of_that_host_on_any_stream() {
    let (mut order, a, b) = two(NB);
    let on_a = order.submit(0, a);
    order.record(0, a, 0);
    let later = order.submit(0, a);
    order.synchronize_event(0, 0);
    assert!(!order.covers(b, on_a), "`b` hears of it with its next operation");
    order.submit(0, b);
    assert!(order.covers(b, on_a) && !order.covers(b, later));
    order.synchronize_stream(0, a);
    order.submit(0, b);
    assert!(order.covers(b, later));
}

#[test]
fn a_synchronisation_of_one_host_thread_says_nothing_to_another_until_it_is_told() {
    let (mut order, a, b) = two(NB);
    let on_a = order.submit(0, a);
    order.synchronize_stream(0, a);
    order.submit(1, b);
    assert!(!order.covers(b, on_a));
    order.tell(0, 1);
    order.submit(1, b);
    assert!(order.covers(b, on_a));
}

#[test]
fn two_hosts_that_submit_to_one_stream_lose_nothing() {
    let (mut order, a, b) = two(NB);
    let c = order.create(0, NB);
    let (on_a, on_b) = (order.submit(0, a), order.submit(0, b));
    order.synchronize_stream(0, a);
    order.synchronize_stream(1, b);
    order.submit(0, c);
    order.submit(1, c);
    order.submit(0, c);
    assert!(order.covers(c, on_a) && order.covers(c, on_b));
}

#[test]
fn a_device_synchronisation_covers_destroyed_streams_too() {
    let (mut order, a, b) = two(NB);
    let on_a = order.submit(0, a);
    assert!(order.destroy(a));
    assert!(!order.destroy(a), "it is destroyed");
    order.synchronize_device(0);
    order.submit(0, b);
    assert!(order.covers(b, on_a));
}

/// A synchronisation is not an operation of the stream. Apart from the stream's own work it waits for what the default
/// streams put before its end.
#[test]
fn a_synchronisation_with_a_default_stream_covers_what_comes_before_its_end() {
    let (mut order, a, b) = two(B);
    let on_a = order.submit(0, a);
    order.synchronize_stream(0, LEGACY);
    order.submit(0, b);
    assert!(order.covers(b, on_a), "the legacy stream has completed only once `a` has");
    let on_legacy = order.submit(0, LEGACY);
    order.synchronize_stream(1, a);
    let c = order.create(1, NB);
    order.submit(1, c);
    assert!(order.covers(c, on_legacy), "so has `a`, only once the legacy stream has");
}

#[test]
fn a_destroyed_blocking_stream_still_comes_before_the_legacy_stream() {
    let (mut order, a, _) = two(B);
    let on_a = order.submit(0, a);
    assert!(order.destroy(a));
    order.submit(0, LEGACY);
    assert!(order.covers(LEGACY, on_a));
}

#[test]
fn a_recycled_chain_does_not_order_its_former_life() {
    // The host does not know that `a` has completed, so the next stream must not count as ordered after it.
    let (mut order, a, _) = two(NB);
    let on_a = order.submit(0, a);
    assert!(order.destroy(a));
    let next = order.create(0, NB);
    order.submit(0, next);
    assert!(!order.covers(next, on_a));
    // Once the host knows, the number is used again, and the order is real.
    order.synchronize_device(0);
    let chains = order.chains();
    let after = order.create(0, NB);
    assert_eq!(order.chains(), chains, "the number of `a` serves again");
    assert!(order.covers(after, on_a));
}
