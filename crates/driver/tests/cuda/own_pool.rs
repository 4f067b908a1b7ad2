//! CUDA's own pool, as it is measured: everything goes back, and the pool is as it was.

use fakecuda::Hooks;
use millpond_driver::cuda::own_pool::OwnPool;

use crate::{Wishes, config};

#[test]
fn what_is_allocated_is_freed_on_either_stream() {
    let (pool, hooks) = (OwnPool::open(&config()).expect("a pool"), Hooks::load());
    let (left, right) = (pool.stream().expect("a stream"), pool.stream().expect("a stream"));
    let frees = hooks.calls("cuMemFreeAsync");
    left.pairs(64 << 10, 3).expect("pairs");
    left.hand_overs(&right, 64 << 10, 2).expect("hand-overs");
    assert_eq!(hooks.calls("cuMemFreeAsync") - frees, 5);
    assert_eq!(hooks.calls("cuMemAllocAsync"), hooks.calls("cuMemFreeAsync"));
    let other = OwnPool::open(&config()).expect("a pool");
    let refused = left.hand_overs(&other.stream().expect("a stream"), 64, 1).expect_err("another pool's");
    assert!(refused.to_string().contains("the streams are of two pools"), "{refused}");
}

#[test]
fn an_event_that_fails_leaves_nothing_allocated() {
    let (pool, wishes) = (OwnPool::open(&config()).expect("a pool"), Wishes::new());
    let (left, right) = (pool.stream().expect("a stream"), pool.stream().expect("a stream"));
    wishes.fail("cuEventRecord", 999);
    assert!(left.hand_overs(&right, 64, 1).is_err());
    wishes.fail("cuMemAllocAsync", 2);
    let refused = left.pairs(64, 1).expect_err("no memory");
    assert!(refused.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused}");
    assert_eq!(wishes.0.calls("cuMemAllocAsync") - 1, wishes.0.calls("cuMemFreeAsync"));
}

#[test]
fn a_driver_without_pools_says_what_is_missing() {
    let wishes = Wishes::new();
    wishes.0.hide("cuMemAllocAsync");
    let refused = OwnPool::open(&config()).expect_err("no pools");
    assert!(refused.to_string().contains("has no function `cuMemAllocAsync`"), "{refused}");
}

/// The threshold is that of the process: others see what is left in it.
#[test]
fn the_pool_keeps_memory_only_while_it_is_measured() {
    let (config, hooks) = (config(), Hooks::load());
    let sets = || hooks.calls("cuMemPoolSetAttribute");
    let before = sets();
    let pool = OwnPool::open(&config).expect("a pool");
    assert_eq!(sets() - before, 1);
    drop(pool);
    assert_eq!(sets() - before, 2);
}
