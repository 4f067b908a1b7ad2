//! Random graphs with random lifetimes: every byte that is read is the one that was written last.
//!
//! Each allocation is written with a pattern of its own by one node, read by others, and freed by one that comes after
//! them (or left to the next launch). Several graphs are launched in turn on streams that are ordered now and then,
//! under seeded schedules and on threads; memory is smaller than the sum of all graphs, so that pages change hands.
//! Outputs are read by outside streams that wait for the stream or for an event that the graph records, and freed by
//! streams, by the next launch, or by a graph of their own. Some launches are refused: then nothing has happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::{
    Device, ExternalEvent, GraphExec, GraphNode, HostConfig, Instantiate, KIB, MemAllocNode, Result, Schedule, Stream,
};

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }
}

/// What the nodes saw.
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

fn graph(device: &Device, random: &mut Random, seen: &Arc<Seen>) -> Result<Producer> {
    let mut graph = device.graph()?;
    let mut nodes: Vec<GraphNode> = Vec::new();
    let mut live: Vec<Live> = Vec::new();
    let some = |nodes: &[GraphNode], random: &mut Random| -> Vec<GraphNode> {
        let mut some: Vec<_> =
            (0..random.below(3)).filter_map(|_| nodes.get(random.below(nodes.len() + 1))).copied().collect();
        some.sort_by_key(|node| format!("{node}"));
        some.dedup();
        some
    };
    for _ in 0..40 {
        match random.below(4) {
            0 | 1 => {
                let after = some(&nodes, random);
                let memory = graph.add_alloc::<u64>(&after, 1 + random.below(3000))?;
                let alloc = graph.node_of(memory).unwrap();
                let pattern = random.next();
                let writer = graph.add_kernel(&[alloc], memory.write(), move |x| x.fill(pattern))?;
                nodes.extend([alloc, writer]);
                live.push(Live { memory, pattern, writer, readers: Vec::new() });
            }
            2 if !live.is_empty() => {
                let at = random.below(live.len());
                let mut after = some(&nodes, random);
                let Live { memory, pattern, writer, ref mut readers } = live[at];
                after.retain(|node| *node != writer);
                after.push(writer);
                let seen = Arc::clone(seen);
                let reader = graph.add_kernel(&after, memory.read(), move |x| seen.look(x, pattern))?;
                readers.push(reader);
                nodes.push(reader);
            }
            3 if !live.is_empty() => {
                let Live { memory, writer, mut readers, .. } = live.swap_remove(random.below(live.len()));
                readers.push(writer);
                nodes.push(graph.add_free(&readers, memory)?);
            }
            _ => nodes.push(graph.add_empty(&some(&nodes, random))?),
        }
    }
    let outputs = live.iter().map(|it| (it.memory, it.pattern)).collect();
    let writers: Vec<_> = live.iter().map(|it| it.writer).collect();
    let made = device.external_event();
    graph.add_event_record(&writers, &made)?;
    let exec = graph.instantiate(Instantiate { auto_free_on_launch: true })?;
    Ok(Producer { exec, outputs, made })
}

/// A graph, what it leaves live with which bytes, and the event that it records when that is written.
struct Producer {
    exec: GraphExec,
    outputs: Vec<(MemAllocNode<u64>, u64)>,
    made: ExternalEvent,
}

impl Producer {
    /// Uses some of what the launch left: on its own stream, or on the other, which waits for the event.
    fn consume(&self, streams: &[Stream; 2], at: usize, random: &mut Random, seen: &Arc<Seen>) -> Result<()> {
        for &(memory, pattern) in &self.outputs {
            let which = random.below(4);
            let stream = if which < 2 { &streams[at] } else { &streams[1 - at] };
            if which >= 2 {
                stream.wait_external(&self.made)?;
            }
            let seen = Arc::clone(seen);
            let read = stream.launch(memory.read(), move |x| seen.look(x, pattern));
            match which {
                // Freed by the stream that read it; a read inside the graph may not come before that.
                2 => drop(stream.free_address(memory.address())),
                3 => continue,
                _ if random.below(2) == 0 => {
                    let (freeing, ()) = stream.capture(|s| s.free_alloc_node(memory))?;
                    drop(freeing.instantiate(Instantiate::default())?.launch(stream));
                }
                _ => {}
            }
            read?;
        }
        Ok(())
    }
}

fn program(seed: u64, schedule: Schedule) -> Result<()> {
    let config = HostConfig { schedule, granularity: 64 * KIB, ..HostConfig::default() };
    let device = Device::host(config)?;
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let seen = Arc::new(Seen::default());
    let streams = [device.stream()?, device.stream()?];
    let graphs: Vec<_> = (0..4).map(|_| graph(&device, &mut random, &seen).unwrap()).collect();
    let mut launches = 0;
    for _ in 0..12 {
        let producer = &graphs[random.below(graphs.len())];
        let at = random.below(2);
        match producer.exec.launch(&streams[at]) {
            Ok(_) => {
                launches += 1;
                producer.consume(&streams, at, &mut random, &seen)?;
            }
            // The other stream still uses what the launch before left, and nothing orders that before this one.
            Err(error) => assert!(error.violation().is_some(), "{error}"),
        }
        match random.below(6) {
            0 | 1 => streams[0].wait(&streams[1].record()?)?,
            2 | 3 => streams[1].wait(&streams[0].record()?)?,
            4 => streams[random.below(2)].synchronize()?,
            _ => device.trim_graph_memory()?,
        }
    }
    device.synchronize()?;
    assert!(launches > 0 && seen.reads.load(Ordering::Relaxed) > 0);
    assert_eq!(seen.wrong.load(Ordering::Relaxed), 0, "seed {seed}");
    Ok(())
}

#[test]
fn no_byte_is_lost_under_seeded_schedules() {
    for seed in 1..=60 {
        program(seed, Schedule::Seeded(seed)).unwrap();
    }
}

#[test]
fn no_byte_is_lost_on_threads() {
    for seed in 100..=115 {
        program(seed, Schedule::Parallel).unwrap();
    }
}
