//! Random graphs with random lifetimes: every byte that is read is the last one written.
//!
//! Each allocation is written with a pattern of its own by one node, read by others, and freed by a node that comes
//! after them (or left to the next launch). Several graphs are launched in turn on streams that are sometimes ordered,
//! under seeded schedules and on threads. Memory is smaller than the sum of all graphs, so that pages move between
//! them. Nodes copy what they read to outside memory, which they wipe first, and which is checked from time to time.
//! Outside streams that wait for the stream, or for an event that the graph records, read the outputs. These are freed
//! by streams, by the next launch, or by a graph of their own. Some launches are refused: they have no effect.

use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use millpond::config::Schedule;
use millpond::graph::{ExternalEvent, Graph, GraphExec, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, HostConfig, KIB, Result, Stream};

use super::made::each;
use crate::common::{Make, makes};

/// The number of reads by nodes, and of wrong elements.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) reads: AtomicU64,
    pub(super) wrong: AtomicU64,
}

impl Seen {
    pub(super) fn look(&self, x: &[u64], pattern: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let wrong = x.iter().filter(|x| **x != pattern).count();
        self.wrong.fetch_add(wrong as u64, Ordering::Relaxed);
    }
}

struct Live {
    memory: MemAllocNode<u64>,
    pattern: u64,
    writer: GraphNode,
    readers: Vec<GraphNode>,
}

/// Memory outside of all graphs, and the pattern to expect there.
type Sink = (Buffer<u64>, u64);

fn look(stream: &Stream, (sink, pattern): &Sink, seen: &Seen) -> Result<()> {
    seen.look(&stream.copy_to_host(sink.read())?, *pattern);
    Ok(())
}

/// A graph that is being built.
struct Draft<'d> {
    device: &'d Device,
    /// The stream on which the sinks are allocated.
    stream: &'d Stream,
    graph: Graph,
    nodes: Vec<GraphNode>,
    live: Vec<Live>,
    sinks: Vec<Sink>,
}

impl Draft<'_> {
    fn some(&self, random: &mut Rng) -> Vec<GraphNode> {
        let nodes = &self.nodes;
        let mut some: Vec<_> =
            (0..random.usize(..3)).filter_map(|_| nodes.get(random.usize(..nodes.len() + 1))).copied().collect();
        some.sort_by_key(|node| format!("{node}"));
        some.dedup();
        some
    }

    fn alloc(&mut self, random: &mut Rng) -> Result<()> {
        let after = self.some(random);
        let memory = self.graph.add_alloc::<u64>(&after, 1 + random.usize(..3000))?;
        let alloc = self.graph.node_of(memory).unwrap();
        let pattern = random.u64(..);
        let writer = self.graph.add_copy_from_host(&[alloc], memory.write(), &vec![pattern; memory.len()])?;
        self.nodes.extend([alloc, writer]);
        self.live.push(Live { memory, pattern, writer, readers: Vec::new() });
        Ok(())
    }

    fn read(&mut self, random: &mut Rng) -> Result<()> {
        let at = random.usize(..self.live.len());
        let mut after = self.some(random);
        let Live { memory, pattern, writer, ref mut readers } = self.live[at];
        let sink = self.stream.alloc::<u64>(&self.device.default_pool(), memory.len())?;
        after.retain(|node| *node != writer);
        after.extend([writer, self.graph.add_memset(&[], sink.write(), 0)?]);
        let reader = self.graph.add_copy(&after, memory.read(), sink.write())?;
        readers.push(reader);
        self.nodes.push(reader);
        self.sinks.push((sink, pattern));
        Ok(())
    }

    fn free(&mut self, random: &mut Rng) -> Result<()> {
        let Live { memory, writer, mut readers, .. } = self.live.swap_remove(random.usize(..self.live.len()));
        readers.push(writer);
        self.nodes.push(self.graph.add_free(&readers, memory)?);
        Ok(())
    }
}

fn producer(device: &Device, stream: &Stream, has_event: bool, random: &mut Rng) -> Result<Producer> {
    let (graph, nodes, live, sinks) = (device.graph()?, Vec::new(), Vec::new(), Vec::new());
    let mut draft = Draft { device, stream, graph, nodes, live, sinks };
    for _ in 0..40 {
        match random.usize(..4) {
            0 | 1 => draft.alloc(random)?,
            2 if !draft.live.is_empty() => draft.read(random)?,
            3 if !draft.live.is_empty() => draft.free(random)?,
            _ => {
                let after = draft.some(random);
                let node = draft.graph.add_empty(&after)?;
                draft.nodes.push(node);
            }
        }
    }
    let Draft { mut graph, live, sinks, .. } = draft;
    let outputs = live.iter().map(|it| (it.memory, it.pattern)).collect();
    let writers: Vec<_> = live.iter().map(|it| it.writer).collect();
    let made = has_event.then(|| device.external_event());
    made.iter().try_for_each(|made| graph.add_event_record(&writers, made).map(drop))?;
    let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    Ok(Producer { exec, outputs, sinks, made })
}

/// A graph, its outputs with their patterns, and the event that it records once these are written. A graph with such an
/// event is not a graph of the device's own, because those cannot record it.
struct Producer {
    exec: GraphExec,
    outputs: Vec<(MemAllocNode<u64>, u64)>,
    sinks: Vec<Sink>,
    made: Option<ExternalEvent>,
}

/// A running program.
struct Program<'d> {
    device: &'d Device,
    streams: [Stream; 2],
    random: Rng,
    seen: Seen,
    /// The copies made outside of graphs.
    copied: Vec<Sink>,
}

impl Program<'_> {
    /// Uses some outputs of the launch: on its own stream, or on the other one, which waits for the event.
    fn consume(&mut self, from: &Producer, at: usize) -> Result<()> {
        for &(memory, pattern) in &from.outputs {
            let which = self.random.usize(..4);
            let stream = if which < 2 { &self.streams[at] } else { &self.streams[1 - at] };
            match &from.made {
                _ if which < 2 => {}
                Some(made) => stream.wait_external(made)?,
                None => stream.wait(&self.streams[at].record()?)?,
            }
            let sink = stream.alloc::<u64>(&self.device.default_pool(), memory.len())?;
            let read = stream.copy(memory.read(), sink.write());
            match which {
                // Freed by the stream that read it. A read inside the graph may not come before that.
                2 => drop(stream.free_address(memory.address())),
                3 => {}
                _ if self.random.usize(..2) == 0 => {
                    let (freeing, ()) = stream.capture(|s| s.free_alloc_node(memory))?;
                    drop(freeing.instantiate(Instantiate::default())?.launch(stream));
                }
                _ => {}
            }
            read?;
            self.copied.push((sink, pattern));
        }
        Ok(())
    }

    /// Checks what the last launch of a graph read, after it.
    fn look(&self, at: usize, producer: &Producer) -> Result<()> {
        producer.sinks.iter().try_for_each(|sink| look(&self.streams[at], sink, &self.seen))
    }

    fn run(&mut self) -> Result<()> {
        let (device, random) = (self.device, &mut self.random);
        let graphs: Vec<_> =
            (0..4).map(|at| producer(device, &self.streams[0], at % 2 == 0, random).unwrap()).collect();
        self.streams[1].wait(&self.streams[0].record()?)?;
        let mut launches = 0;
        for _ in 0..12 {
            let (producer, at) = (&graphs[self.random.usize(..graphs.len())], self.random.usize(..2));
            match producer.exec.launch(&self.streams[at]) {
                Ok(_) => {
                    launches += 1;
                    if self.random.usize(..4) == 0 {
                        self.look(at, producer)?;
                    }
                    self.consume(producer, at)?;
                }
                // The other stream still uses outputs of the launch before, and is not ordered before this launch.
                Err(error) => assert!(error.violation().is_some(), "{error}"),
            }
            match self.random.usize(..6) {
                0 | 1 => self.streams[0].wait(&self.streams[1].record()?)?,
                2 | 3 => self.streams[1].wait(&self.streams[0].record()?)?,
                4 => self.streams[self.random.usize(..2)].synchronize()?,
                _ => device.trim_graph_memory()?,
            }
        }
        device.synchronize()?;
        self.copied.iter().try_for_each(|sink| look(&self.streams[0], sink, &self.seen))?;
        assert!(launches > 0 && self.seen.reads.load(Ordering::Relaxed) > 0);
        Ok(())
    }
}

fn program(seed: u64, device: &Device) -> Result<()> {
    let random = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let streams = [device.stream()?, device.stream()?];
    let mut program = Program { device, streams, random, seen: Seen::default(), copied: Vec::new() };
    program.run()?;
    assert_eq!(program.seen.wrong.load(Ordering::Relaxed), 0, "seed {seed}");
    Ok(())
}

fn host(schedule: Schedule) -> Result<Device> {
    Device::host(HostConfig::default().schedule(schedule).granularity(64 * KIB))
}

#[test]
fn no_byte_is_lost_under_seeded_schedules() {
    if !makes().contains(&Make::Parallel) {
        return eprintln!("skipped: seeded schedules are the host's");
    }
    for seed in 1..=60 {
        host(Schedule::Seeded(seed)).and_then(|device| program(seed, &device)).unwrap();
    }
}

#[test]
fn no_byte_is_lost_on_threads() {
    each(|on| {
        // Small granules, if we can choose them: pages move more often.
        let small = if on.runs_closures { Some(host(Schedule::Parallel)?) } else { None };
        let device = small.as_ref().unwrap_or(&on.device);
        (100..=115).try_for_each(|seed| program(seed, device))
    });
}
