//! Memory that launches of several threads leave live: a pointer means the memory that is live there.

use std::sync::Barrier;
use std::thread::scope;

use super::*;
use crate::calls::exec::{
    EXECS, MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH, launch, millpond_graph_exec_t, millpond_graph_instantiate,
    millpond_graph_launch,
};
use crate::calls::graph::{millpond_graph_add_mem_alloc_node, millpond_graph_create};
use crate::calls::memory::{millpond_free, millpond_free_async};
use crate::calls::stream::millpond_stream_synchronize;
use crate::calls::work::millpond_memset_async;
use crate::status::millpond_status::*;
use crate::tables::pointers::POINTERS;
use crate::tables::stream::STREAMS;

/// An instance that leaves 4 KiB live with each launch, after freeing what the last launch left.
struct Producer {
    device: Shared<millpond_device_t>,
    stream: Shared<millpond_stream_t>,
    exec: Shared<millpond_graph_exec_t>,
    memory: Shared<*mut c_void>,
}

impl Producer {
    fn new() -> Self {
        let (device, mut graph, mut exec, mut memory) = (host_device(), null_mut(), null_mut(), nowhere());
        must(c!(millpond_graph_create(&mut graph, device)));
        must(c!(millpond_graph_add_mem_alloc_node(null_mut(), graph, null(), 0, 4096, &mut memory)));
        must(c!(millpond_graph_instantiate(&mut exec, graph, MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH)));
        let stream = Shared(stream_of(device));
        Self { device: Shared(device), stream, exec: Shared(exec), memory: Shared(memory) }
    }

    fn launch(&self) {
        must(c!(millpond_graph_launch(self.exec.get(), self.stream.get())));
    }

    fn free(&self) -> millpond_status {
        c!(millpond_free_async(self.memory.get(), self.stream.get()))
    }

    fn fill(&self) -> millpond_status {
        c!(millpond_memset_async(self.memory.get(), 7, 4096, self.stream.get()))
    }

    /// A launch whose thread has not published its buffer yet; returns the buffer.
    fn launch_unpublished(&self) -> millpond::Buffer<u8> {
        let exec = EXECS.find(self.exec.get()).ok().expect("it is there");
        let stream = STREAMS.find(self.stream.get()).ok().expect("it is there");
        launch(&exec, &stream.stream).ok().expect("a right launch").pop().expect("one buffer")
    }
}

#[test]
fn what_a_late_thread_makes_known_takes_no_later_life_away() {
    let on = Producer::new();
    let late = on.launch_unpublished();
    on.launch();
    POINTERS.insert(late);
    must(on.fill());
    must(on.free());
    assert_ne!(on.fill(), MILLPOND_SUCCESS, "it is freed");
}

#[test]
fn what_is_not_made_known_yet_is_freed_by_its_address() {
    let on = Producer::new();
    for first in [true, false] {
        if first {
            on.launch();
        }
        let unpublished = on.launch_unpublished();
        must(on.free());
        let text = refused(on.free(), MILLPOND_ERROR_INVALID_VALUE);
        assert!(text.contains("freed on stream"), "{text}");
        drop(unpublished);
    }
    on.launch();
    let unpublished = on.launch_unpublished();
    must(c!(millpond_stream_synchronize(on.stream.get())));
    must(c!(millpond_free(on.memory.get(), on.device.get())));
    refused(c!(millpond_free(on.memory.get(), on.device.get())), MILLPOND_ERROR_INVALID_VALUE);
    drop(unpublished);
}

#[test]
fn two_threads_that_launch_one_instance_leave_one_life() {
    let (on, barrier) = (Producer::new(), Barrier::new(2));
    let launches = |look: bool| {
        for round in 0..40_000 {
            barrier.wait();
            on.launch();
            barrier.wait();
            if look {
                assert_eq!(on.fill(), MILLPOND_SUCCESS, "round {round}: {}", last_error());
            }
        }
    };
    scope(|scope| {
        scope.spawn(|| launches(false));
        launches(true);
    });
    must(on.free());
}

#[test]
fn a_free_beside_a_launch_is_right_in_either_order() {
    let (on, barrier) = (Producer::new(), Barrier::new(2));
    on.launch();
    scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40_000 {
                barrier.wait();
                on.launch();
                barrier.wait();
                on.launch();
            }
        });
        for round in 0..40_000 {
            barrier.wait();
            assert_eq!(on.free(), MILLPOND_SUCCESS, "round {round}: {}", last_error());
            barrier.wait();
        }
    });
    must(on.free());
}
