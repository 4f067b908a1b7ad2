//! Random graphs with random lifetimes: three, one of which has two others as children beside its own memory, and one
//! with symbolic addresses in two instances.
//!
//! Every launch of a graph writes other bytes than the launch before (a *salt*, drawn by its first node), so that the
//! bytes of another instance or an earlier launch are detected. All are launched in turn on three streams, under seeded
//! schedules and on threads, with memory that moves between them by trims. Outputs are read on streams that come after
//! the launch, and freed by a stream, the host, a captured free, a dropped buffer, or the next launch. Some launches
//! are refused: they have no effect.
//!
//! On the host only: closures compute with the bytes that a launch draws.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use millpond::config::Schedule;
use millpond::graph::{Graph, GraphExec, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, Error, HostConfig, KIB, Result, Stream};

use super::random::Seen;
use crate::common::{Make, makes};

/// A graph that is being built, with its outputs.
struct Made {
    graph: Graph,
    outputs: Vec<(MemAllocNode<u64>, u64)>,
    salt: Arc<AtomicU64>,
    /// The most outputs.
    most: usize,
}

struct Live {
    memory: MemAllocNode<u64>,
    pattern: u64,
    writer: GraphNode,
    readers: Vec<GraphNode>,
}

/// Returns nodes that others may come after: any number of them, without duplicates.
fn some(nodes: &[GraphNode], random: &mut Rng) -> Vec<GraphNode> {
    let mut picked = BTreeSet::new();
    picked.extend((0..random.usize(..3)).map(|_| random.usize(..nodes.len())));
    picked.into_iter().map(|at| nodes[at]).collect()
}

/// Appends random allocations, uses and frees after `first`.
fn grow(
    made: &mut Made,
    first: GraphNode,
    length: usize,
    random: &mut Rng,
    seen: &Arc<Seen>,
) -> Result<Vec<GraphNode>> {
    let Made { graph, outputs, salt, most } = made;
    let mut nodes = vec![first];
    let mut live: Vec<Live> = Vec::new();
    for _ in 0..length {
        match random.usize(..5) {
            0 | 1 => {
                let mut after = some(&nodes, random);
                if after.is_empty() {
                    after.push(first);
                }
                let len = 1 + if random.usize(..5) == 0 { random.usize(..20_000) } else { random.usize(..2000) };
                let memory = graph.add_alloc::<u64>(&after, len)?;
                let (pattern, salt) = (random.u64(..), Arc::clone(salt));
                let alloc = graph.node_of(memory).unwrap();
                let writer = graph.add_kernel(&[alloc], memory.write(), move |x| {
                    x.fill(pattern ^ salt.load(Ordering::Acquire));
                })?;
                nodes.extend([alloc, writer]);
                live.push(Live { memory, pattern, writer, readers: Vec::new() });
            }
            2 | 3 if !live.is_empty() => {
                let at = random.usize(..live.len());
                let mut after = some(&nodes, random);
                let Live { memory, pattern, writer, ref mut readers } = live[at];
                after.retain(|node| *node != writer);
                after.push(writer);
                let (seen, salt) = (Arc::clone(seen), Arc::clone(salt));
                let reader = graph.add_kernel(&after, memory.read(), move |x| {
                    seen.look(x, pattern ^ salt.load(Ordering::Acquire));
                })?;
                readers.push(reader);
                nodes.push(reader);
            }
            4 if !live.is_empty() => {
                let Live { memory, writer, mut readers, .. } = live.swap_remove(random.usize(..live.len()));
                readers.push(writer);
                nodes.push(graph.add_free(&readers, memory)?);
            }
            _ => nodes.push(graph.add_empty(&[nodes[random.usize(..nodes.len())]])?),
        }
    }
    // Few stay live, so that launches are not refused all the time.
    for Live { memory, pattern, writer, mut readers } in live {
        if outputs.len() < *most {
            outputs.push((memory, pattern));
        } else {
            readers.push(writer);
            nodes.push(graph.add_free(&readers, memory)?);
        }
    }
    Ok(nodes)
}

/// Makes a graph whose first node draws the launch's salt. If instances may overlap there is no salt.
fn made(mut graph: Graph, length: usize, has_salt: bool, random: &mut Rng, seen: &Arc<Seen>) -> Result<Made> {
    let salt = Arc::new(AtomicU64::new(0));
    let drawn = Arc::clone(&salt);
    let first = graph.add_host_function(&[], move || {
        drawn.fetch_add(if has_salt { 0x9E37_79B9 } else { 0 }, Ordering::AcqRel);
    })?;
    // Every other graph frees all its memory, so that only its order separates its instances.
    let mut made = Made { graph, outputs: Vec::new(), salt, most: 2 * random.usize(..2) };
    grow(&mut made, first, length, random, seen)?;
    Ok(made)
}

/// Makes a graph with its own memory around two children, whose outputs it reads, and frees in part.
fn parent(device: &Device, children: [&Made; 2], random: &mut Rng, seen: &Arc<Seen>) -> Result<(Made, Foreign)> {
    let mut made = made(device.graph()?, 12, true, random, seen)?;
    let (mut foreign, mut after) = (Vec::new(), vec![made.graph.nodes()[0]]);
    for child in children {
        let node = made.graph.add_child(&after, &child.graph)?;
        after = vec![node];
        for &(memory, pattern) in &child.outputs {
            let (seen, salt) = (Arc::clone(seen), Arc::clone(&child.salt));
            let read = made.graph.add_kernel(&[node], memory.read(), move |x| {
                seen.look(x, pattern ^ salt.load(Ordering::Acquire));
            })?;
            match random.usize(..2) {
                0 => after.push(made.graph.add_free(&[read], memory)?),
                _ => {
                    after.push(read);
                    foreign.push((memory, pattern, Arc::clone(&child.salt)));
                }
            }
        }
    }
    let first = made.graph.add_empty(&after)?;
    grow(&mut made, first, 12, random, seen)?;
    Ok((made, foreign))
}

/// Outputs of children, with the salt of their bytes.
type Foreign = Vec<(MemAllocNode<u64>, u64, Arc<AtomicU64>)>;

struct Member {
    exec: GraphExec,
    outputs: Foreign,
}

impl Member {
    fn new(graph: &Graph, outputs: Foreign, auto_free_on_launch: bool) -> Result<Self> {
        Ok(Self { exec: graph.instantiate(Instantiate::default().auto_free_on_launch(auto_free_on_launch))?, outputs })
    }
}

fn outputs_of(made: &Made) -> Foreign {
    made.outputs.iter().map(|&(memory, pattern)| (memory, pattern, Arc::clone(&made.salt))).collect()
}

fn family(device: &Device, random: &mut Rng, seen: &Arc<Seen>) -> Result<Vec<Member>> {
    let mut fixed = || made(device.graph()?, 30, true, random, seen);
    let (one, two, three, first, second) = (fixed()?, fixed()?, fixed()?, fixed()?, fixed()?);
    let symbolic = made(device.symbolic_graph()?, 30, false, random, seen)?;
    let (above, left) = parent(device, [&first, &second], random, seen)?;
    Ok(vec![
        Member::new(&one.graph, outputs_of(&one), true)?,
        Member::new(&two.graph, outputs_of(&two), false)?,
        Member::new(&three.graph, outputs_of(&three), true)?,
        Member::new(&above.graph, outputs_of(&above).into_iter().chain(left).collect(), true)?,
        Member::new(&symbolic.graph, outputs_of(&symbolic), true)?,
        Member::new(&symbolic.graph, outputs_of(&symbolic), false)?,
    ])
}

struct Program {
    device: Device,
    streams: [Stream; 3],
    seen: Arc<Seen>,
    random: Rng,
    launched: u64,
    refused: u64,
    freed: [u64; 5],
}

impl Program {
    fn stream(&mut self) -> usize {
        self.random.usize(..self.streams.len())
    }

    fn order(&self, from: usize, to: usize) -> Result<()> {
        self.streams[to].wait(&self.streams[from].record()?)
    }

    fn launch(&mut self, member: &Member) -> Result<()> {
        let at = self.stream();
        let launch = match member.exec.launch(&self.streams[at]) {
            Ok(launch) => launch,
            Err(error) => {
                // Unfreed, or freed before an unordered use: the launch has had no effect.
                assert!(error.violation().is_some(), "{error}");
                self.refused += 1;
                return Ok(());
            }
        };
        self.launched += 1;
        for (memory, pattern, salt) in &member.outputs {
            let buffer = launch.take(*memory)?;
            let user = self.stream();
            let is_refused = self.streams[user].launch(buffer.read(), |_| ()).is_err();
            if user != at && is_refused {
                self.order(at, user)?;
            }
            let (seen, pattern, salt) = (Arc::clone(&self.seen), *pattern, Arc::clone(salt));
            self.streams[user].launch(buffer.read(), move |x| seen.look(x, pattern ^ salt.load(Ordering::Acquire)))?;
            self.dispose(buffer, user)?;
        }
        Ok(())
    }

    /// Frees an output in one of the ways, or leaves it.
    fn dispose(&mut self, buffer: Buffer<u64>, user: usize) -> Result<()> {
        let way = self.random.usize(..6);
        match way {
            0 => {
                if let Err(refused) = self.streams[user].free(buffer) {
                    // A reader in the graph, or on the launching stream, is not ordered before the user, so the output
                    // is left.
                    assert!(refused.error.violation().is_some(), "{refused}");
                    refused.buffer.into_address();
                }
            }
            1 => {
                self.device.synchronize()?;
                self.device.free(buffer).map_err(Error::from)?;
            }
            2 => {
                // No other graph may free a symbolic graph's memory: that is refused, and the buffer is as before.
                let mut kept = None;
                let (graph, ()) = self.streams[user].capture(|s| {
                    kept = s.free(buffer).err().map(|refused| refused.buffer.into_address());
                    Ok(())
                })?;
                if kept.is_none() {
                    let exec = graph.instantiate(Instantiate::default())?;
                    self.device.synchronize()?;
                    let _ = exec.launch(&self.streams[user])?;
                }
            }
            3 => drop(buffer),
            _ => drop(buffer.into_address()),
        }
        self.freed[way.min(4)] += 1;
        Ok(())
    }

    fn step(&mut self, members: &[Member]) -> Result<()> {
        let at = self.random.usize(..members.len());
        match self.random.usize(..10) {
            0 => self.device.trim_graph_memory(),
            1 => {
                let stream = self.stream();
                members[at].exec.upload(&self.streams[stream])
            }
            2 => {
                let stream = self.stream();
                self.streams[stream].synchronize()
            }
            3 => {
                let (from, to) = (self.stream(), self.stream());
                self.order(from, to)
            }
            4 => {
                // Frees the outputs, so that launches are not refused for ever.
                self.device.synchronize()?;
                for (memory, ..) in &members[at].outputs {
                    let address = members[at].exec.address_of(*memory).unwrap();
                    drop(self.device.free_address(address));
                }
                Ok(())
            }
            _ => self.launch(&members[at]),
        }
    }
}

fn run(seed: u64, schedule: Schedule) -> Result<Program> {
    let device = Device::host(HostConfig::default().schedule(schedule).granularity(64 * KIB))?;
    let streams = [device.stream()?, device.stream()?, device.stream()?];
    let random = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let seen = Arc::new(Seen::default());
    let mut program = Program { device, streams, seen, random, launched: 0, refused: 0, freed: [0; 5] };
    let members = family(&program.device, &mut program.random, &program.seen)?;
    for _ in 0..40 {
        program.step(&members)?;
    }
    program.device.synchronize()?;
    assert_eq!(program.seen.wrong.load(Ordering::Relaxed), 0, "seed {seed}");
    drop(members);
    Ok(program)
}

/// Returns `true` if the host's device is to be tested. Otherwise prints that it is not.
fn is_asked() -> bool {
    let others = makes().into_iter().filter(|make| matches!(make, Make::Fake | Make::Cuda));
    others.for_each(|make| eprintln!("skipped on {make:?}: its kernels are no closures"));
    makes().contains(&Make::Parallel)
}

#[test]
fn families_lose_no_byte_under_seeded_schedules() {
    if !is_asked() {
        return;
    }
    let (mut launched, mut refused, mut freed, mut reads) = (0, 0, [0; 5], 0);
    for seed in 1..=150 {
        let program = run(seed, Schedule::Seeded(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        launched += program.launched;
        refused += program.refused;
        reads += program.seen.reads.load(Ordering::Relaxed);
        freed.iter_mut().zip(program.freed).for_each(|(sum, it)| *sum += it);
    }
    println!(
        "{launched} launches, {refused} refused, {reads} reads; freed by stream, host, capture, drop, left: {freed:?}"
    );
    assert!(launched > 1000 && refused > 100 && reads > 10_000 && freed.iter().all(|it| *it > 10));
}

#[test]
fn families_lose_no_byte_on_threads() {
    if !is_asked() {
        return;
    }
    for seed in 100..=106 {
        run(seed, Schedule::Parallel).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Two graphs whose launches alternate share their pages under different addresses, and every launch finds its own
/// bytes. The memory is what the larger one needs.
#[test]
fn two_graphs_share_their_pages() -> Result<()> {
    if !is_asked() {
        return Ok(());
    }
    for seed in 1..=20 {
        let device = Device::host(HostConfig::default().schedule(Schedule::Seeded(seed)).granularity(64 * KIB))?;
        let stream = device.stream()?;
        let mut random = Rng::with_seed(seed * 77 + 1);
        let seen = Arc::new(Seen::default());
        let alone = |made: &Made| -> Result<u64> {
            let _ = made.graph.instantiate(Instantiate::default().auto_free_on_launch(true))?.launch(&stream)?;
            stream.synchronize()?;
            let reserved = device.graph_memory().reserved_bytes;
            made.outputs.iter().try_for_each(|(memory, _)| stream.free_address(memory.address()))?;
            stream.synchronize()?;
            device.trim_graph_memory()?;
            Ok(reserved)
        };
        let pair = [
            made(device.graph()?, 40, true, &mut random, &seen)?,
            made(device.graph()?, 40, true, &mut random, &seen)?,
        ];
        let most = alone(&pair[0])?.max(alone(&pair[1])?);
        assert_eq!(device.graph_memory().reserved_bytes, 0);
        device.reset_graph_memory_high();
        let settings = Instantiate::default();
        let execs = [pair[0].graph.instantiate(settings)?, pair[1].graph.instantiate(settings)?];
        for _ in 0..4 {
            for (exec, made) in execs.iter().zip(&pair) {
                let launch = exec.launch(&stream)?;
                for &(memory, pattern) in &made.outputs {
                    let (buffer, seen, salt) = (launch.take(memory)?, Arc::clone(&seen), Arc::clone(&made.salt));
                    stream.launch(buffer.read(), move |x| seen.look(x, pattern ^ salt.load(Ordering::Acquire)))?;
                    stream.free(buffer)?;
                }
            }
        }
        stream.synchronize()?;
        assert_eq!(seen.wrong.load(Ordering::Relaxed), 0, "seed {seed}");
        assert_eq!(device.graph_memory().reserved_high_bytes, most, "seed {seed}");
    }
    Ok(())
}
