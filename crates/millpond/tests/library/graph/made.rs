//! Helpers that tests begin with.

use std::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock};

use millpond::check::Kind;
use millpond::config::Schedule;
use millpond::graph::{Graph, GraphExec, GraphNode, Instantiate, MemAllocNode};
use millpond::{Device, Error, HostConfig, Read, Result, Stream};

use crate::common::{Make, Subject, makes, on_parallel_devices};

/// Tests share the context of a GPU. A test that uses its legacy stream, which comes after all work of other tests in
/// that context, runs alone.
static CONTEXT: RwLock<()> = RwLock::new(());

/// Runs a body on every kind of device that runs graphs as programs see them: the host with threads, and CUDA.
pub(crate) fn each(body: impl Fn(&Subject) -> Result<()>) {
    let _beside = CONTEXT.read().unwrap_or_else(PoisonError::into_inner);
    on_parallel_devices(body);
}

/// As [`each`], while no other such test runs.
pub(crate) fn each_alone(body: impl Fn(&Subject) -> Result<()>) {
    let _alone = CONTEXT.write().unwrap_or_else(PoisonError::into_inner);
    on_parallel_devices(body);
}

/// Runs a body on the host's device, under a schedule for each seed, if that kind of device is to be tested.
pub(crate) fn each_seed(seeds: RangeInclusive<u64>, body: impl Fn(&Device) -> Result<()>) {
    if !makes().contains(&Make::Parallel) {
        return eprintln!("skipped: seeded schedules are the host's");
    }
    for seed in seeds {
        let device = Device::host(HostConfig::default().schedule(Schedule::Seeded(seed)));
        device.and_then(|device| body(&device)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Returns an element filled with a byte.
pub(crate) const fn filled(byte: u8) -> u32 {
    u32::from_ne_bytes([byte; 4])
}

/// Asserts that all bytes are `byte`. The stream must come after their last write.
#[track_caller]
pub(crate) fn expect(stream: &Stream, x: Read<'_, u32>, byte: u8) {
    let found = stream.copy_to_host(x).unwrap_or_else(|error| panic!("{error}"));
    let wrong = found.iter().find(|x| **x != filled(byte));
    assert!(wrong.is_none(), "not {byte}: {wrong:x?} of {}", found.len());
}

/// Returns the rule that a refused call broke.
#[track_caller]
pub(crate) fn kind(error: &Error) -> Kind {
    error.violation().unwrap_or_else(|| panic!("no violation: {error}")).kind
}

pub(crate) fn is_kind(error: &Error, kind: Kind) -> bool {
    error.violation().is_some_and(|it| it.kind == kind)
}

/// Returns `true` if the error is about the order of a graph's nodes.
pub(crate) fn is_of_graph(error: &Error) -> bool {
    error.violation().is_some_and(|it| it.graph.is_some())
}

/// Returns the text of a refused change of a graph.
#[track_caller]
pub(crate) fn change(error: Error, kind: Kind) -> String {
    let refused = error.violation().unwrap_or_else(|| panic!("no violation: {error}"));
    assert_eq!(refused.kind, kind, "{error}");
    refused.sentence.clone()
}

/// Makes a graph with one allocation of 16 elements and its alloc node.
pub(crate) fn with_alloc(device: &Device) -> (Graph, MemAllocNode<u32>, GraphNode) {
    let mut graph = device.graph().unwrap();
    let x = graph.add_alloc::<u32>(&[], 16).unwrap();
    let node = graph.node_of(x).unwrap();
    (graph, x, node)
}

pub(crate) fn instance(graph: &Graph) -> Result<GraphExec> {
    graph.instantiate(Instantiate::default())
}
