//! Pools: their attributes, and when they close.

use std::sync::Barrier;
use std::thread::scope;

use millpond::config::Slack;

use super::*;
use crate::calls::device::{millpond_device_set_pool, millpond_device_synchronize};
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::pool::{
    MILLPOND_SLACK_PRESSURE, millpond_pool_attribute, millpond_pool_config, millpond_pool_create,
    millpond_pool_destroy, millpond_pool_get_attribute, millpond_pool_set_attribute,
};
use crate::tables::device::DEVICES;
use crate::tables::pool::{POOLS, millpond_pool_t};

use crate::status::millpond_status::MILLPOND_ERROR_INVALID_VALUE;
use millpond_pool_attribute::*;

fn pool_of(device: millpond_device_t, config: *const millpond_pool_config) -> millpond_pool_t {
    let mut pool = null_mut();
    must(c!(millpond_pool_create(&mut pool, device, config)));
    pool
}

#[test]
fn the_slack_is_a_part_or_one_of_two_words() {
    let device = host_device();
    let config = |slack| millpond_pool_config { release_threshold: 0, max_bytes: 0, slack, guard: 0 };
    let words = [(0.0, Slack::Adaptive), (MILLPOND_SLACK_PRESSURE, Slack::Pressure), (0.5, Slack::Fixed(0.5))];
    for (number, slack) in words {
        let pool = pool_of(device, &config(number));
        assert_eq!(POOLS.find(pool).ok().expect("it is there").config().slack, slack);
        must(c!(millpond_pool_destroy(pool)));
    }
    for other in [-0.5, -2.0, f64::NAN] {
        refused(c!(millpond_pool_create(&mut null_mut(), device, &config(other))), MILLPOND_ERROR_INVALID_VALUE);
    }
}

#[test]
fn attributes_that_two_threads_set_are_both_set() {
    let (pool, barrier) = (Shared(pool_of(host_device(), null())), Barrier::new(2));
    let set = |attribute: millpond_pool_attribute| {
        for round in 0..20_000_u64 {
            let (wish, mut found) = (round & 1, 7);
            barrier.wait();
            must(c!(millpond_pool_set_attribute(pool.get(), attribute as i32, &wish)));
            barrier.wait();
            must(c!(millpond_pool_get_attribute(pool.get(), attribute as i32, &mut found)));
            assert_eq!(found, wish, "{attribute:?}, round {round}");
        }
    };
    scope(|scope| {
        scope.spawn(|| set(MILLPOND_POOL_REUSE_ALLOW_OPPORTUNISTIC));
        set(MILLPOND_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES);
    });
}

#[test]
fn a_pool_goes_when_another_takes_its_place() {
    let device = host_device();
    let streams = [stream_of(device), stream_of(device)];
    let keeps_all = millpond_pool_config { release_threshold: u64::MAX, max_bytes: 0, slack: 0.0, guard: 0 };
    let (first, second) = (pool_of(device, &keeps_all), pool_of(device, null()));
    must(c!(millpond_device_set_pool(device, first)));
    for stream in streams {
        let mut memory = nowhere();
        must(c!(millpond_malloc_async(&mut memory, 64 << 20, stream)));
        must(c!(millpond_free_async(memory, stream)));
    }
    must(c!(millpond_device_set_pool(device, second)));
    must(c!(millpond_pool_destroy(first)));
    must(c!(millpond_device_synchronize(device)));
    let entry = DEVICES.find(device).ok().expect("it is there");
    let reserved: u64 = entry.device.picture().iter().map(|pool| pool.statistics.reserved_bytes).sum();
    assert_eq!(reserved, 0, "the pool is gone, and its memory with it");
}
