//! Instances: what a launch may do, what it leaves live, the addresses of symbolic memory, and the order inside a
//! launch.

use std::sync::Arc;

use millpond_core::check::Act;
use millpond_core::graph::{
    Access, Addressing, Draft, EventKey, Exec, Graph, GraphAllocId, GraphId, Label, Lanes, Memory, NodeId, Standing,
    UpdateRefused, Work,
};
use millpond_core::ids::{AllocId, ChainIndex};
use millpond_core::op::Part;
use millpond_core::order::{Base, Chain, ChainIndices, Knows};
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

const OUTSIDE: Memory = Memory::External { id: AllocId(9), generation: 4 };

fn graph(id: u32, addressing: Addressing) -> Graph {
    let mut graph = Graph::new(GraphId(id), 2 * MIB, addressing);
    graph.extend(Range::new(u64::from(id + 1) << 40, 1 << 36));
    graph
}

fn kernel(graph: &mut Graph, after: &[NodeId], uses: &[(Memory, Act)]) -> NodeId {
    let accesses: Vec<Access> = uses.iter().map(|&(memory, act)| Access::whole(memory, act)).collect();
    graph.add_work(Work::Kernel, after, &accesses, Label::default()).unwrap()
}

fn exec(graph: &Graph, auto_free: bool) -> Exec {
    Draft::new(graph).unwrap().instantiate(1 << 45, auto_free)
}

/// A graph with one allocation left live and one freed.
fn producer() -> (Graph, GraphAllocId, GraphAllocId) {
    let mut graph = graph(0, Addressing::Fixed);
    let (node, kept) = graph.add_alloc(&[], 4 * MIB, "kept".into()).unwrap();
    let (node, freed) = graph.add_alloc(&[node], 4 * MIB, "freed".into()).unwrap();
    let node = kernel(&mut graph, &[node], &[(Memory::Own(freed), Act::Write), (Memory::Own(kept), Act::Write)]);
    graph.add_free(&[node], Memory::Own(freed), Label::default()).unwrap();
    (graph, kept, freed)
}

#[test]
fn the_cover_tells_outputs_apart() {
    let (graph, kept, freed) = producer();
    let exec = exec(&graph, false);
    assert_eq!(exec.outputs(), [kept]);
    let at = |alloc: GraphAllocId| exec.allocs()[alloc.index()].range.unwrap();
    assert_eq!(exec.cover(), [(at(kept), true), (at(freed), false)]);
}

#[test]
fn the_summary_has_one_entry_for_each_outside_memory() {
    let mut graph = graph(0, Addressing::Fixed);
    let mut last = kernel(&mut graph, &[], &[(OUTSIDE, Act::Read)]);
    for _ in 0..100 {
        last = kernel(&mut graph, &[last], &[(OUTSIDE, Act::Read)]);
    }
    let foreign = Memory::Foreign { graph: GraphId(3), alloc: GraphAllocId(0) };
    let free = graph.add_free(&[last], foreign, Label::default()).unwrap();
    let summary = exec(&graph, false).summary().clone();
    let demands: Vec<_> = summary.demands.iter().map(|it| (it.memory, it.act, it.nodes[0].0)).collect();
    assert_eq!(demands, [(OUTSIDE, Act::Read, NodeId(0)), (foreign, Act::Free, free)]);
    let last_acts: Vec<_> = summary.last_acts.iter().map(|it| (it.memory, it.act, it.node)).collect();
    assert_eq!(last_acts, [(OUTSIDE, Act::Read, last), (foreign, Act::Free, free)]);
}

#[test]
fn what_nodes_do_to_bytes_side_by_side_is_one_entry() {
    let mut graph = graph(0, Addressing::Fixed);
    let mut write = |from, to| {
        let part = Part::new(from, to).unwrap();
        graph
            .add_work(Work::Kernel, &[], &[Access { memory: OUTSIDE, act: Act::Write, part }], Label::default())
            .unwrap()
    };
    let (high, low, far) = (write(512, 1024), write(0, 512), write(2048, 2049));
    let summary = exec(&graph, false).summary().clone();
    let part = |from, to| Part::new(from, to).unwrap();
    let demands: Vec<_> = summary.demands.iter().map(|it| (it.part, it.nodes.to_vec())).collect();
    let both = vec![(high, part(512, 1024)), (low, part(0, 512))];
    assert_eq!(demands, [(part(0, 1024), both), (part(2048, 2049), vec![(far, part(2048, 2049))])]);
    let last_acts: Vec<_> = summary.last_acts.iter().map(|it| (it.part, it.act)).collect();
    assert_eq!(last_acts, [(part(0, 1024), Act::Write), (part(2048, 2049), Act::Write)]);
}

#[test]
fn an_update_keeps_what_it_may_not_change() {
    let (mut graph, kept, _) = producer();
    let mut exec = exec(&graph, false);
    exec.update(Draft::new(&graph).unwrap()).unwrap();
    assert_eq!(exec.outputs(), [kept]);
    let before = graph.clone();
    let node = graph.add_work(Work::Empty, &[], &[], Label::default()).unwrap();
    assert_eq!(exec.update(Draft::new(&graph).unwrap()), Err(UpdateRefused::Topology(node)));
    exec.update(Draft::new(&before).unwrap()).unwrap();
    let build = |work: Work, bytes: u64| {
        let mut graph = self::graph(5, Addressing::Symbolic);
        let (node, alloc) = graph.add_alloc(&[], bytes, Label::default()).unwrap();
        let node = graph.add_work(work, &[node], &[], Label::default()).unwrap();
        graph.add_free(&[node], Memory::Own(alloc), Label::default()).unwrap();
        graph
    };
    let draft = |work, bytes| Draft::new(&build(work, bytes)).unwrap();
    let mut exec = draft(Work::Kernel, 8).instantiate(0, false);
    assert_eq!(exec.update(draft(Work::Copy, 8)), Err(UpdateRefused::NodeType(NodeId(1))));
    assert_eq!(exec.update(draft(Work::Kernel, 9)), Err(UpdateRefused::Parameters(NodeId(0))));
    exec.update(draft(Work::Kernel, 8)).unwrap();
}

#[test]
fn symbolic_memory_is_placed_together() {
    let mut graph = graph(0, Addressing::Symbolic);
    // Sizes grow along a chain. Addresses fixed at creation could not plan ahead for that.
    let mut last = Vec::new();
    for granules in [1, 2, 3] {
        let (node, alloc) = graph.add_alloc(&last, granules * 2 * MIB, Label::default()).unwrap();
        last = vec![graph.add_free(&[node], Memory::Own(alloc), Label::default()).unwrap()];
        assert_eq!(graph.alloc(alloc).unwrap().range, None);
    }
    let draft = Draft::new(&graph).unwrap();
    assert_eq!(draft.room(), 6 * MIB);
    let exec = draft.instantiate(1 << 40, false);
    assert_eq!(exec.cover(), [(Range::new(1 << 40, 6 * MIB), false)]);
    // Each instance has its own addresses.
    let other = Draft::new(&graph).unwrap().instantiate(1 << 41, false);
    assert_eq!(other.cover(), [(Range::new(1 << 41, 6 * MIB), false)]);
}

proptest! {
    #[test]
    fn symbolic_memory_is_shared_along_paths_only(
        steps in prop::collection::vec((0usize..3, 0u8..8, 0usize..3, any::<u16>()), 1..60)
    ) {
        let mut graph = graph(0, Addressing::Symbolic);
        let mut tails: Vec<Vec<NodeId>> = vec![Vec::new(); 3];
        let mut held = Vec::new();
        for (stream, what, other, number) in steps {
            match what {
                0..4 => {
                    let bytes = [1, 70_000, 2 * MIB, 5 * MIB][number as usize % 4];
                    let (node, alloc) = graph.add_alloc(&tails[stream], bytes, Label::default()).unwrap();
                    tails[stream] = vec![node];
                    held.push((alloc, node));
                }
                4..7 if !held.is_empty() => {
                    let (alloc, node) = held.swap_remove(number as usize % held.len());
                    let mut after = tails[stream].clone();
                    after.retain(|it| *it != node);
                    after.push(node);
                    tails[stream] = vec![graph.add_free(&after, Memory::Own(alloc), Label::default()).unwrap()];
                }
                _ => {
                    let more: Vec<_> = tails[other].iter().filter(|it| !tails[stream].contains(it)).copied().collect();
                    tails[stream].extend(more);
                }
            }
        }
        let draft = Draft::new(&graph).unwrap();
        let room = draft.room();
        let exec = draft.instantiate(1 << 40, false);
        for (at, a) in exec.allocs().iter().enumerate() {
            let range = a.range.unwrap();
            prop_assert!(range.bytes >= a.bytes && range.end() <= (1 << 40) + room);
            for b in exec.allocs()[..at].iter().filter(|b| b.range.unwrap().overlaps(range)) {
                let reaches = |a, b: Option<NodeId>| exec.index().reaches(a, b.unwrap());
                let before = |a: Option<NodeId>, b| a.is_some_and(|a| reaches(a, b));
                prop_assert!(before(a.freed, b.node) || before(b.freed, a.node));
            }
        }
    }
}

#[test]
fn children_are_put_in_place_with_edges_kept() {
    let mut child = graph(1, Addressing::Fixed);
    let (a, b) = (kernel(&mut child, &[], &[]), kernel(&mut child, &[], &[]));
    let child = Arc::new(child);
    let mut parent = graph(0, Addressing::Fixed);
    let (x, y) = (kernel(&mut parent, &[], &[]), kernel(&mut parent, &[], &[]));
    let inside = parent.add_child(&[x, y], child, Label::default()).unwrap();
    let nothing = parent.add_child(&[inside], Arc::new(graph(2, Addressing::Fixed)), Label::default()).unwrap();
    let last = kernel(&mut parent, &[nothing], &[]);
    let exec = exec(&parent, false);
    let number =
        |origin: &[NodeId]| NodeId(exec.nodes().iter().position(|node| node.origin[..] == *origin).unwrap() as u32);
    for first in [x, y] {
        for middle in [a, b] {
            assert!(exec.index().reaches(number(&[first]), number(&[inside, middle])));
            assert!(exec.index().reaches(number(&[inside, middle]), number(&[last])));
        }
    }
    assert!(!exec.index().reaches(number(&[inside, a]), number(&[inside, b])));
}

#[test]
fn graphs_are_not_nested_for_ever() {
    let mut graph = graph(0, Addressing::Fixed);
    let refused = (1..200).find_map(|id| {
        let mut outer = self::graph(id, Addressing::Fixed);
        match outer.add_child(&[], Arc::new(graph.clone()), Label::default()) {
            Ok(_) => graph = outer,
            Err(error) => return Some(error),
        }
        None
    });
    assert_eq!(refused, Some(millpond_core::graph::GraphError::TooDeep));
    assert!(Draft::new(&graph).is_ok());
}

/// A producer whose record node is between an early write and a late one, on two chains; launched on stream 0.
#[test]
fn an_event_inside_orders_a_part_of_the_launch() {
    let (early, late) = (OUTSIDE, Memory::External { id: AllocId(10), generation: 0 });
    let mut graph = graph(0, Addressing::Fixed);
    let wait = graph.add_work(Work::EventWait(EventKey(1)), &[], &[], Label::default()).unwrap();
    let first = kernel(&mut graph, &[], &[(early, Act::Write)]);
    let record = graph.add_work(Work::EventRecord(EventKey(2)), &[wait, first], &[], Label::default()).unwrap();
    let last = kernel(&mut graph, &[first], &[(late, Act::Write)]);
    let exec = exec(&graph, false);

    let mut chain_indices = ChainIndices::default();
    let base = Arc::<Base>::default();
    let stream = |chain_indices: &mut ChainIndices| {
        let (chain, seq) = chain_indices.open(|_| false);
        Chain::new(chain, seq, Arc::clone(&base))
    };
    let (mut launching, mut outside, mut consumer) =
        (stream(&mut chain_indices), stream(&mut chain_indices), stream(&mut chain_indices));
    let mut lanes = Lanes::new(&exec, || chain_indices.open(|_| false));
    assert!(!lanes.is_empty());
    for _ in 0..3 {
        let before = launching.submit();
        let learned = outside.submit();
        let waited = outside.snapshot();
        let start = launching.snapshot();
        // A node behind the wait comes after what the event covers; other nodes do not.
        assert!(Standing { stream: &launching, waited: &[&waited] }.covers(learned));
        assert!(!Standing { stream: &launching, waited: &[] }.covers(learned));
        let [first, last, record] = [first, last, record].map(|node| lanes.point(&exec, node).unwrap());
        let export = lanes.export(&exec, NodeId(2), &base, &start, [&waited]);
        assert_eq!(export.point(), record);
        assert!(export.covers(before) && export.covers(learned) && export.covers(first));
        assert!(!export.covers(last), "node precision");
        consumer.wait(&export);
        assert!(consumer.covers(first) && !consumer.covers(last));
        for end in lanes.ends(&base) {
            launching.wait(&end);
        }
        launching.submit();
        assert!(launching.covers(first) && launching.covers(last) && launching.covers(record));
        lanes.advance();
        // No stream comes after the points of the next launch yet.
        assert!(!launching.covers(lanes.point(&exec, NodeId(1)).unwrap()));
    }
    lanes.close().for_each(|point| chain_indices.close(point));
    assert!(Lanes::new(&self::exec(&producer().0, false), || (ChainIndex(0), 0)).is_empty(), "no records, one point");
}
