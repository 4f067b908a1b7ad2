//! Tests of memory by pointer: of uses that are recorded, and uses that are checked.

use millpond_driver::PeerAccess;

use crate::api::access_list::AccessList;
use crate::api::raw::RawMemory;
use crate::graph::Instantiate;
use crate::{Device, HostConfig, PoolConfig};

#[test]
fn a_recorded_use_holds_back_a_dropped_buffer() {
    let device = Device::host(HostConfig::default()).expect("a host device");
    let reuse = millpond_core::pool::ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = device.pool(PoolConfig { reuse, ..Default::default() }).expect("a pool");
    let (left, right) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let buffer = left.alloc::<u8>(&pool, 1 << 20).expect("memory");
    let address = buffer.address();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    right.launch((), move |()| gate.recv().expect("the test sends")).expect("a launch");
    right.record_use(&buffer.raw().expect("it has bytes")).expect("it is live");
    drop(buffer);
    let held = left.alloc::<u8>(&pool, 1 << 20).expect("memory");
    assert_ne!(held.address(), address, "the other stream still uses it");
    go.send(()).expect("the kernel waits");
    right.synchronize().expect("it ends");
    drop(held);
    assert!(device.picture().iter().all(|pool| pool.live.is_empty()));
}

#[test]
fn what_was_refused_of_a_graphs_memory_is_recorded() {
    let device = Device::host(HostConfig::default()).expect("a host device");
    let (left, right) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let mut graph = device.graph().expect("a graph");
    let node = graph.add_alloc::<u8>(&[], 4096).expect("a node");
    let memory = RawMemory::of_node(node).expect("it has bytes");
    let mut list = AccessList::default();
    list.write(memory.clone(), 0, 4096).expect("within");
    right.record_use(&memory).expect_err("it was never launched");
    let exec = graph.instantiate(Instantiate::default()).expect("an instance");
    let left_live = exec.launch(&left).expect("a launch").take(node).expect("it is left");
    right.launch(list.clone(), |()| ()).expect_err("not ordered");
    right.record_refused(&list);
    let refused = left.free(left_live).expect_err("the other stream uses it");
    left.wait(&right.record().expect("an event")).expect("a wait");
    left.free(refused.buffer).expect("ordered");
    let other = Device::host(HostConfig::default()).expect("a host device").stream().expect("a stream");
    other.record_use(&memory).expect_err("another device's");
    right.record_use(&memory).expect_err("it is freed");
}

#[test]
fn a_recorded_use_of_another_device_keeps_its_access() {
    let [here, there] = [(); 2].map(|()| Device::host(HostConfig::default()).expect("a host device"));
    let (own, foreign) = (here.stream().expect("a stream"), there.stream().expect("a stream"));
    let pool = here.pool(PoolConfig::default()).expect("a pool");
    pool.grant(&there, PeerAccess::ReadWrite).expect("both are host devices");
    let buffer = own.alloc::<u8>(&pool, 4096).expect("memory");
    foreign.record_use(&buffer.raw().expect("it has bytes")).expect("it is live");
    pool.revoke(&there).expect_err("it may be used there");
    there.synchronize().expect("it ends");
    pool.revoke(&there).expect("nothing uses it");
}

#[test]
fn accesses_counted_at_run_time_are_checked() {
    let device = Device::host(HostConfig::default()).expect("a host device");
    let pool = device.default_pool();
    let (left, right) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let buffer = left.alloc::<u8>(&pool, 4096).expect("memory");
    let memory = buffer.raw().expect("it has bytes");
    assert_eq!(device.picture()[0].live.len(), 1);
    let list = || {
        let mut list = AccessList::default();
        list.write(memory.clone(), 0, memory.bytes()).expect("within");
        list
    };
    left.launch(list(), |()| ()).expect("ordered");
    let refused = right.launch(list(), |()| ()).expect_err("not ordered");
    assert!(refused.violation().is_some(), "{refused}");
    left.free(buffer).expect("ordered");
    assert!(left.launch(list(), |()| ()).is_err(), "it is freed");
    assert!(left.record_use(&memory).is_err(), "it is freed");
}

#[test]
fn what_was_refused_is_recorded_of_the_bytes_that_it_named() {
    let device = Device::host(HostConfig::default()).expect("a host device");
    let (left, right) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let buffer = left.alloc::<u8>(&device.default_pool(), 1000).expect("memory");
    right.wait(&left.record().expect("an event")).expect("a wait");
    left.launch(buffer.slice(..100).expect("within").write(), |_| ()).expect("ordered");
    let list = |offset, bytes| {
        let mut list = AccessList::default();
        list.write(buffer.raw().expect("it has bytes"), offset, bytes).expect("within");
        list
    };
    right.launch(list(50, 10), |()| ()).expect_err("not ordered");
    right.record_refused(&list(50, 10));
    right.record_refused(&list(1000, 0));
    left.launch(buffer.slice(500..).expect("within").write(), |_| ()).expect("other bytes");
    left.launch(buffer.slice(55..56).expect("within").read(), |_| ()).expect_err("it was recorded");
    device.synchronize().expect("it ends");
}
