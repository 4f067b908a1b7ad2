//! Host time of graphs: building, instantiation, and a launch's own check.
//!
//! Run with `cargo bench -p millpond-core --bench graph`. Graphs are as made by eight captured streams that sometimes
//! fork and join by events, with allocations, kernels of two accesses, and frees.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use millpond_core::check::{Act, History, Place, Site, Use};
use millpond_core::graph::{
    Access, Addressing, ArenaKey, Backing, Draft, Graph, GraphAllocId, GraphId, Index, Label, Memory, NodeId, Work,
};
use millpond_core::ids::{AllocId, ChainIndex, Point, StreamId};
use millpond_core::op::Part;
use millpond_core::order::{Chain, Completed};
use millpond_core::units::{MIB, Range};

const REPEATS: usize = 9;
/// The allocations from outside that each graph reads.
const OUTSIDE: u32 = 200;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Makes a graph of about `nodes` nodes on `chains` streams.
fn build(nodes: usize, chains: usize) -> Graph {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut graph = Graph::new(GraphId(0), 2 * MIB, Addressing::Fixed);
    graph.extend(Range::new(1 << 40, 1 << 40));
    let root = graph.add_work(Work::Empty, &[], &[], Label::default()).expect("an empty node");
    let mut tails: Vec<Vec<NodeId>> = vec![vec![root]; chains];
    let mut held: Vec<Vec<GraphAllocId>> = vec![Vec::new(); chains];
    while graph.len() < nodes {
        let stream = random.below(chains);
        let after = tails[stream].clone();
        let label = Label::default();
        tails[stream] = match random.below(10) {
            0 if held[stream].len() < 8 => {
                let bytes = 512 << random.below(14);
                let (node, alloc) = graph.add_alloc(&after, bytes, label).expect("addresses are plenty");
                held[stream].push(alloc);
                vec![node]
            }
            1 if held[stream].len() > 2 => {
                let alloc = held[stream].swap_remove(0);
                vec![graph.add_free(&after, Memory::Own(alloc), label).expect("a right free")]
            }
            2 => {
                let other = tails[random.below(chains)][0];
                if after.contains(&other) { after } else { vec![after[0], other] }
            }
            _ => {
                let id = AllocId(random.below(OUTSIDE as usize) as u32);
                let outside = Access::whole(Memory::External { id, generation: 0 }, Act::Read);
                let own = held[stream].last().map(|alloc| Access::whole(Memory::Own(*alloc), Act::Write));
                let accesses: Vec<Access> = own.into_iter().chain([outside]).collect();
                vec![graph.add_work(Work::Kernel, &after, &accesses, label).expect("a right kernel")]
            }
        };
    }
    graph
}

/// Returns the shortest and the median time of `work`, in seconds.
fn time<R>(mut work: impl FnMut() -> R) -> (f64, f64) {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[REPEATS / 2])
}

struct Nothing;

impl Completed for Nothing {
    fn is_over(&self, _: Point) -> bool {
        false
    }
}

/// Repeats the checks of one launch: the histories of outside memory, and the graph's own memory.
fn launches(graph: &Graph) -> (f64, usize) {
    let exec = Draft::new(graph).expect("a right graph").instantiate(0, true);
    let mut chain = Chain::new(ChainIndex(0), 0, Arc::default());
    let born =
        Use { point: chain.submit(), site: Site { stream: StreamId(1), place: Place::Unknown, ..Site::default() } };
    let mut histories: Vec<History> = (0..OUTSIDE).map(|_| History::new(born)).collect();
    let mut backing = Backing::new(2 * MIB);
    // Outputs would be freed outside. Here everything stays inside, to measure the launch's own cost.
    let cover: Vec<(Range, bool)> = exec.cover().into_iter().map(|(range, _)| (range, false)).collect();
    backing.enroll(ArenaKey(0), &cover);
    let mut launch = || {
        let waits = backing.bind(&[ArenaKey(0)], &chain, &Nothing).expect("nothing to wait for");
        black_box(waits);
        while backing.next_step().is_some() {
            backing.applied();
        }
        for demand in &exec.summary().demands {
            if let Memory::External { id, .. } = demand.memory {
                black_box(histories[id.index()].check_use(demand.act, Part::WHOLE, &chain, true)).expect("ordered");
            }
        }
        let point = chain.submit();
        for last in &exec.summary().last_acts {
            if let Memory::External { id, .. } = last.memory {
                let site = Site { act: last.act, ..Site::default() };
                histories[id.index()].add_use(Use { point, site }, Part::WHOLE, &chain);
            }
        }
        backing.uploaded(&[ArenaKey(0)], point);
    };
    launch();
    let (_, median) = time(|| (0..1000).for_each(|_| launch()));
    (median / 1000.0, exec.summary().demands.len())
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!("{:<22} {:>9} {:>9} {:>12} {:>9} {:>10}", "graph", "build", "index", "instantiate", "launch", "demands");
    for (nodes, chains) in [(1_000, 8), (10_000, 8), (100_000, 8), (100_000, 32)] {
        let (build_s, _) = time(|| build(nodes, chains));
        let graph = build(nodes, chains);
        let (index_s, _) = time(|| {
            let mut index = Index::with_capacity(graph.len());
            graph.nodes().for_each(|(_, node)| index.push(node.dependencies()));
            index
        });
        let (instantiate_s, _) = time(|| Draft::new(&graph).expect("a right graph").instantiate(0, true));
        let (launch_s, demands) = launches(&graph);
        println!(
            "{nodes:>7} x {chains:<12} {:>6.2} ms {:>6.2} ms {:>9.2} ms {:>6.2} us {demands:>10}",
            build_s * 1e3,
            index_s * 1e3,
            instantiate_s * 1e3,
            launch_s * 1e6
        );
    }
}
