//! Graphs compared with plain search: which node reaches which, and which allocations share bytes.

use millpond_core::check::Act;
use millpond_core::graph::{Access, Addressing, Graph, GraphAllocId, GraphError, GraphId, Memory, NodeId, Work};
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

const GRANULE: u64 = 2 * MIB;

fn graph() -> Graph {
    let mut graph = Graph::new(GraphId(0), GRANULE, Addressing::Fixed);
    graph.extend(Range::new(1 << 40, 1 << 36));
    graph
}

#[track_caller]
fn assert_freed_already<T>(refused: Result<T, GraphError>, its: GraphAllocId, freed_by: NodeId) {
    match refused.map(|_| ()).unwrap_err() {
        GraphError::FreedAlready { alloc, by, described } => {
            assert_eq!((alloc, by), (its, freed_by));
            assert!(described.ends_with(" by mem free `f`"), "{described}");
        }
        other => panic!("{other}"),
    }
}

fn kernel(graph: &mut Graph, dependencies: &[NodeId]) -> NodeId {
    graph.add_work(Work::Kernel, dependencies, &[], "k".into()).unwrap()
}

fn kernel_on(graph: &mut Graph, dependencies: &[NodeId], allocs: &[GraphAllocId]) -> NodeId {
    let accesses: Vec<_> = allocs.iter().map(|id| Access::whole(Memory::Own(*id), Act::Write)).collect();
    graph.add_work(Work::Kernel, dependencies, &accesses, "k".into()).unwrap()
}

/// Returns the bytes from the lowest address to the highest, and those of whole granules.
fn footprint(graph: &Graph) -> u64 {
    let mut granules: Vec<u64> = Vec::new();
    for range in graph.allocs().filter_map(|(_, alloc)| alloc.range) {
        granules.extend(range.start / GRANULE..range.end().div_ceil(GRANULE));
    }
    granules.sort_unstable();
    granules.dedup();
    granules.len() as u64 * GRANULE
}

/// Returns, for each node, every node that it reaches, by search.
fn reached(graph: &Graph) -> Vec<Vec<bool>> {
    let n = graph.len();
    let mut all = vec![vec![false; n]; n];
    for (start, reached) in all.iter_mut().enumerate() {
        let mut stack = vec![NodeId(start as u32)];
        while let Some(node) = stack.pop() {
            for &next in graph.node(node).map_or(&[][..], |node| node.successors()) {
                if !std::mem::replace(&mut reached[next.index()], true) {
                    stack.push(next);
                }
            }
        }
    }
    all
}

fn assert_same(graph: &mut Graph) {
    let expected = reached(graph);
    let numbers: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    for &a in &numbers {
        for &b in &numbers {
            assert_eq!(graph.reaches(a, b), expected[a.index()][b.index()], "{a} -> {b}");
        }
    }
    let order = graph.topological_order();
    assert_eq!(order.len(), numbers.len());
    let place = |id: NodeId| order.iter().position(|other| *other == id).unwrap();
    for (id, node) in graph.nodes() {
        assert!(node.successors().iter().all(|next| place(id) < place(*next)));
    }
}

/// One change of a random graph. Numbers are taken modulo what exists.
#[derive(Clone, Debug)]
enum Change {
    Add(Vec<u16>),
    AddRecent(u8, u8),
    Edge(u16, u16),
    Cut(u16),
    Remove(u16),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => prop::collection::vec(any::<u16>(), 0..5).prop_map(Change::Add),
        6 => (0u8..4, 0u8..8).prop_map(|(a, b)| Change::AddRecent(a, b)),
        3 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Change::Edge(a, b)),
        1 => any::<u16>().prop_map(Change::Cut),
        1 => any::<u16>().prop_map(Change::Remove),
    ]
}

fn apply(graph: &mut Graph, change: &Change) {
    let live: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    let pick = |n: u16| (!live.is_empty()).then(|| live[n as usize % live.len()]);
    match change {
        Change::Add(numbers) => {
            let mut dependencies: Vec<NodeId> = numbers.iter().filter_map(|n| pick(*n)).collect();
            dependencies.sort_unstable();
            dependencies.dedup();
            kernel(graph, &dependencies);
        }
        Change::AddRecent(a, b) => {
            let recent = |back: u8| live.len().checked_sub(back as usize + 1).map(|at| live[at]);
            let mut dependencies: Vec<NodeId> = [recent(*a), recent(*b)].into_iter().flatten().collect();
            dependencies.dedup();
            kernel(graph, &dependencies);
        }
        Change::Edge(a, b) => {
            if let (Some(a), Some(b)) = (pick(*a), pick(*b)) {
                let there = graph.node(a).unwrap().successors().contains(&b);
                let circle = a == b || reached(graph)[b.index()][a.index()];
                let expected = match (there, circle) {
                    (true, _) => Err(GraphError::DuplicateEdge { from: a, to: b }),
                    (_, true) => Err(GraphError::Cycle { from: a, to: b }),
                    _ => Ok(()),
                };
                assert_eq!(graph.add_edge(a, b), expected);
            }
        }
        Change::Cut(a) => {
            let Some(a) = pick(*a) else { return };
            if let Some(&b) = graph.node(a).unwrap().successors().first() {
                graph.remove_edge(a, b).unwrap();
                assert_eq!(graph.remove_edge(a, b), Err(GraphError::NoEdge { from: a, to: b }));
            }
        }
        Change::Remove(a) => {
            let Some(a) = pick(*a) else { return };
            graph.remove_node(a).unwrap();
            assert_eq!(graph.remove_node(a).unwrap_err(), GraphError::UnknownNode(a));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

    #[test]
    fn reaching_agrees_with_search(changes in prop::collection::vec(change(), 1..70)) {
        let mut graph = graph();
        for (at, change) in changes.iter().enumerate() {
            apply(&mut graph, change);
            if at % 8 == 0 {
                assert_same(&mut graph);
            }
        }
        assert_same(&mut graph);
    }

    /// Allocations of random sizes on random streams that fork and join: two allocations share a byte only if the free
    /// of one comes before the other.
    #[test]
    fn bytes_are_shared_along_paths_only(
        steps in prop::collection::vec((0usize..4, 0u8..8, 0usize..4, any::<u16>()), 1..150)
    ) {
        let mut graph = graph();
        let mut tails: Vec<Vec<NodeId>> = vec![Vec::new(); 4];
        let mut held: Vec<GraphAllocId> = Vec::new();
        for (stream, what, other, number) in steps {
            let dependencies = tails[stream].clone();
            match what {
                0..4 => {
                    let bytes = [1, 600, 100_000, 1 << 20, GRANULE - 1, GRANULE, GRANULE + 1, 3 * GRANULE];
                    let bytes = bytes[number as usize % bytes.len()];
                    let (node, alloc) = graph.add_alloc(&dependencies, bytes, "a".into()).unwrap();
                    tails[stream] = vec![node];
                    held.push(alloc);
                }
                4..7 if !held.is_empty() => {
                    let alloc = held.swap_remove(number as usize % held.len());
                    // A free that does not come after its allocation is wrong; such graphs are not instantiated.
                    let mut after = dependencies;
                    after.push(graph.alloc(alloc).unwrap().node);
                    after.sort_unstable();
                    after.dedup();
                    tails[stream] = vec![graph.add_free(&after, Memory::Own(alloc), "f".into()).unwrap()];
                }
                _ => {
                    let mut both: Vec<NodeId> = tails[stream].iter().chain(&tails[other]).copied().collect();
                    both.sort_unstable();
                    both.dedup();
                    tails[stream] = both;
                }
            }
        }
        let expected = reached(&graph);
        let is_before = |a: GraphAllocId, b: GraphAllocId| match graph.alloc(a).unwrap().freed {
            Some(free) => expected[free.index()][graph.alloc(b).unwrap().node.index()],
            _ => false,
        };
        let allocs: Vec<_> = graph.allocs().map(|(id, alloc)| (id, alloc.range.unwrap(), alloc.bytes)).collect();
        for (at, &(a, range, bytes)) in allocs.iter().enumerate() {
            prop_assert!(range.bytes >= bytes && range.start.is_multiple_of(512));
            for &(b, other, other_bytes) in &allocs[..at] {
                if range.overlaps(other) {
                    prop_assert!(is_before(a, b) || is_before(b, a), "{a} and {b}");
                }
                let granules = |range: Range| (range.start / GRANULE, range.end().div_ceil(GRANULE));
                let ((from, to), (other_from, other_to)) = (granules(range), granules(other));
                if from < other_to && other_from < to && (bytes >= GRANULE) != (other_bytes >= GRANULE) {
                    prop_assert!(is_before(a, b) || is_before(b, a), "large and small share a granule: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn forks_and_joins_share_rows() {
    let mut graph = graph();
    let mut last = kernel(&mut graph, &[]);
    for _ in 0..20 {
        let wide: Vec<NodeId> = (0..1000).map(|_| kernel(&mut graph, &[last])).collect();
        last = kernel(&mut graph, &wide);
    }
    let index = graph.refresh();
    assert!(index.chains() <= 1001, "{} chains", index.chains());
    assert!(graph.reaches(NodeId(0), last));
}

#[test]
fn a_chain_of_overlapping_lives_takes_three() {
    let mut graph = graph();
    let mut last: Vec<NodeId> = Vec::new();
    let mut before = None;
    for _ in 0..100 {
        let (node, alloc) = graph.add_alloc(&last, 4 * MIB, "a".into()).unwrap();
        let uses: Vec<_> = before.into_iter().chain([alloc]).collect();
        let mut tail = kernel_on(&mut graph, &[node], &uses);
        if let Some(before) = before {
            tail = graph.add_free(&[tail], Memory::Own(before), "f".into()).unwrap();
        }
        (last, before) = (vec![tail], Some(alloc));
    }
    assert!(footprint(&graph) <= 12 * MIB, "{}", footprint(&graph));
}

#[test]
fn small_ones_are_packed() {
    let mut graph = graph();
    for _ in 0..64 {
        graph.add_alloc(&[], 100_000, "a".into()).unwrap();
    }
    assert!(footprint(&graph) <= 8 * MIB, "{}", footprint(&graph));
}

#[test]
fn the_address_is_the_same_along_a_path_and_another_without() {
    let mut graph = graph();
    let (node, a) = graph.add_alloc(&[], GRANULE, "a".into()).unwrap();
    let free = graph.add_free(&[node], Memory::Own(a), "f".into()).unwrap();
    let (beside, b) = graph.add_alloc(&[node], GRANULE, "b".into()).unwrap();
    let (_, c) = graph.add_alloc(&[free], GRANULE, "c".into()).unwrap();
    let at = |graph: &Graph, alloc| graph.alloc(alloc).unwrap().range.unwrap();
    assert_eq!(at(&graph, a), at(&graph, c));
    assert!(!at(&graph, a).overlaps(at(&graph, b)));
    // An edge that comes later moves no allocation.
    graph.add_edge(free, beside).unwrap();
    assert!(!at(&graph, a).overlaps(at(&graph, b)));
}

#[test]
fn bytes_of_a_removed_allocation_are_what_they_were() {
    let mut graph = graph();
    let (node, a) = graph.add_alloc(&[], GRANULE, "a".into()).unwrap();
    let free = graph.add_free(&[node], Memory::Own(a), "f".into()).unwrap();
    let (again, b) = graph.add_alloc(&[free], GRANULE, "b".into()).unwrap();
    graph.remove_node(again).unwrap();
    assert!(graph.alloc(b).is_none());
    // Not ordered after the free of `a`, so it does not get these bytes.
    let (_, c) = graph.add_alloc(&[node], GRANULE, "c".into()).unwrap();
    let (_, d) = graph.add_alloc(&[free], GRANULE, "d".into()).unwrap();
    let at = |alloc| graph.alloc(alloc).unwrap().range.unwrap();
    assert_ne!(at(c), at(a));
    assert_eq!(at(d), at(a));
}

#[test]
fn a_removed_free_holds_the_bytes_again() {
    let mut graph = graph();
    let (node, a) = graph.add_alloc(&[], 512, "a".into()).unwrap();
    let free = graph.add_free(&[node], Memory::Own(a), "f".into()).unwrap();
    graph.remove_node(free).unwrap();
    let (_, b) = graph.add_alloc(&[node], 512, "b".into()).unwrap();
    let at = |alloc| graph.alloc(alloc).unwrap().range.unwrap();
    assert_ne!(at(a), at(b));
    // The allocation can be freed again.
    graph.add_free(&[node], Memory::Own(a), "f".into()).unwrap();
}

#[test]
fn addresses_run_out_and_are_extended() {
    let mut graph = Graph::new(GraphId(0), GRANULE, Addressing::Fixed);
    let refused = graph.add_alloc(&[], 5 * MIB, "a".into()).unwrap_err();
    assert_eq!(refused, GraphError::NoAddresses { bytes: 6 * MIB });
    assert!(graph.is_empty());
    graph.extend(Range::new(GRANULE - 512, 8 * MIB));
    let (_, alloc) = graph.add_alloc(&[], 5 * MIB, "a".into()).unwrap();
    assert_eq!(graph.alloc(alloc).unwrap().range, Some(Range::new(GRANULE, 6 * MIB)));
    assert_eq!(graph.add_alloc(&[], u64::MAX, "b".into()).unwrap_err(), GraphError::TooLarge(u64::MAX));
}

#[test]
fn what_cannot_be_built_is_named() {
    let mut graph = graph();
    let (node, alloc) = graph.add_alloc(&[], 1, "a".into()).unwrap();
    let stray = NodeId(7);
    assert_eq!(graph.add_work(Work::Empty, &[stray], &[], "e".into()), Err(GraphError::UnknownNode(stray)));
    let twice = graph.add_work(Work::Empty, &[node, node], &[], "e".into()).unwrap_err();
    assert_eq!(twice, GraphError::DuplicateEdge { from: node, to: NodeId(1) });
    assert_eq!(graph.add_alloc(&[], 0, "a".into()).unwrap_err(), GraphError::NoBytes);
    let outside = Memory::External { id: Default::default(), generation: 1 };
    assert_eq!(graph.add_free(&[node], outside, "f".into()), Err(GraphError::NotGraphMemory));
    let unknown = GraphAllocId(3);
    assert_eq!(graph.add_free(&[], Memory::Own(unknown), "f".into()), Err(GraphError::UnknownAlloc(unknown)));
    assert!(graph.add_conditional().unwrap_err().to_string().contains("not supported"));
    let free = graph.add_free(&[node], Memory::Own(alloc), "f".into()).unwrap();
    let by = free;
    assert_freed_already(graph.add_free(&[node], Memory::Own(alloc), "f".into()), alloc, by);
    assert_eq!(graph.remove_node(node).unwrap_err(), GraphError::InUse { node, user: free });
    assert_eq!(graph.len(), 2, "nothing refused left a node");
}
