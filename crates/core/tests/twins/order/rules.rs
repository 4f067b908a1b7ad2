//! A rule of the order that random programs do not ask: when the number of a stream's chain serves again.

use millpond_core::op::StreamRole;

use super::program::Program;

#[test]
fn a_recycled_chain_does_not_order_its_former_life() {
    // The host does not know that `a` has completed, so the next stream must not count as ordered after it.
    let mut order = Program::new();
    let a = order.create(0, StreamRole::NonBlocking);
    let on_a = order.submit(0, a);
    assert!(order.destroy(a));
    let next = order.create(0, StreamRole::NonBlocking);
    order.submit(0, next);
    assert!(!order.covers(next, on_a));
    // Once the host knows, the number is used again, and the order is real.
    order.synchronize_device(0);
    let chains = order.chains();
    let after = order.create(0, StreamRole::NonBlocking);
    assert_eq!(order.chains(), chains, "the number of `a` serves again");
    assert!(order.covers(after, on_a));
}
