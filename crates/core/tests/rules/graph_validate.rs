//! Wrong graphs are refused and both nodes are named; compared with a search over all pairs.

use std::collections::BTreeSet;
use std::sync::Arc;

use millpond_core::check::{Act, Finding, Kind, Place};
use millpond_core::graph::{
    Access, Addressing, Draft, Graph, GraphAllocId, GraphError, GraphFault, GraphId, Label, Memory, NodeId, NodeKind,
    Refusal, Words, Work,
};
use millpond_core::ids::{AllocId, StreamId};
use millpond_core::op::Names;
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

fn graph(id: u32) -> Graph {
    let mut graph = Graph::new(GraphId(id), 2 * MIB, Addressing::Fixed);
    graph.extend(Range::new(u64::from(id + 1) << 40, 1 << 36));
    graph
}

fn kernel(graph: &mut Graph, after: &[NodeId], act: Act, memory: Memory, name: &str) -> NodeId {
    graph.add_work(Work::Kernel, after, &[Access::whole(memory, act)], name.into()).unwrap()
}

fn own(alloc: GraphAllocId) -> Memory {
    Memory::Own(alloc)
}

const OUTSIDE: Memory = Memory::External { id: AllocId(9), generation: 4 };

fn faults(graph: &Graph) -> Vec<GraphFault> {
    match Draft::new(graph) {
        Ok(_) => Vec::new(),
        Err(Refusal::Faults(faults)) => faults,
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn assert_fault(graph: &Graph, kind: Kind, earlier: NodeId, later: NodeId) -> GraphFault {
    let faults = faults(graph);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    let fault = faults.into_iter().next().unwrap();
    let nodes = (fault.earlier.origin[..].to_vec(), fault.later.origin[..].to_vec());
    assert_eq!((fault.kind, nodes), (kind, (vec![earlier], vec![later])), "{fault:?}");
    fault
}

fn plain(stream: StreamId) -> String {
    stream.to_string()
}

fn help_of(fault: &GraphFault) -> String {
    fault.help(Words { names: &Names::new(), node: &|_| None, stream: &plain })
}

/// In a capture, edges come from events, and go from nodes captured earlier to later ones.
#[test]
fn in_a_capture_the_later_node_waits_for_the_earlier_one() {
    let on = |stream| Label { stream: Some(StreamId(stream)), ..Label::default() };
    let mut graph = graph(0);
    let (node, alloc) = graph.add_alloc(&[], 4, on(1)).unwrap();
    let write = [Access::whole(own(alloc), Act::Write)];
    graph.add_work(Work::Kernel, &[node], &write, on(2)).unwrap();
    graph.add_work(Work::Kernel, &[node], &write, on(1)).unwrap();
    let help = |graph: &Graph| faults(graph).iter().map(help_of).collect::<Vec<_>>();
    assert_eq!(
        help(&graph),
        ["make stream 1 wait, before it captures kernel node 2, for an event that stream 2 records after \
          kernel node 1"]
    );
    // For nodes that were not captured, the advice is an edge.
    graph.add_work(Work::Kernel, &[node], &write, Label::default()).unwrap();
    let both = "add an edge from kernel node 1 to kernel node 3 and one from kernel node 2 to kernel node 3";
    assert!(help(&graph).iter().any(|help| help == both));
}

#[test]
fn a_use_without_a_path_from_the_alloc_node() {
    let mut graph = graph(0);
    let label = Label { name: Some("total".into()), place: Place::Line(49), ..Label::default() };
    let (node, alloc) = graph.add_alloc(&[], 4, label).unwrap();
    let user = kernel(&mut graph, &[], Act::Read, own(alloc), "sum");
    let fault = assert_fault(&graph, Kind::UseBeforeAlloc, node, user);
    let finding =
        Finding::of_graph(graph.id(), &fault, Words { names: &Names::new(), node: &|_| None, stream: &plain });
    assert_eq!(
        finding.to_string(),
        "`total` (graph allocation 0, 4 B) is read by kernel `sum` with no path from its alloc node to that\n  \
         allocated  mem alloc `total`       line 49\n  \
         read       kernel `sum`\n  \
         there is no path from mem alloc `total` to kernel `sum` in graph 0\n  \
         help: add an edge from mem alloc `total` to kernel `sum`"
    );
    assert_eq!(
        finding.facts(),
        "kind=use-before-alloc graph=0 earlier_act=Allocate earlier_node=0 earlier_line=49 later_act=Read later_node=1"
    );
    graph.add_edge(node, user).unwrap();
    assert!(faults(&graph).is_empty());
}

#[test]
fn a_free_without_a_path_from_the_alloc_node() {
    let mut graph = graph(0);
    let (node, alloc) = graph.add_alloc(&[], 4, "total".into()).unwrap();
    let free = graph.add_free(&[], own(alloc), Label::default()).unwrap();
    assert_fault(&graph, Kind::FreeBeforeAlloc, node, free);
}

#[test]
fn unordered_writes_race_unless_both_promise() {
    let mut graph = graph(0);
    let (node, alloc) = graph.add_alloc(&[], 4, "total".into()).unwrap();
    let one = kernel(&mut graph, &[node], Act::Write, own(alloc), "one");
    let two = kernel(&mut graph, &[node], Act::Read, own(alloc), "two");
    assert_fault(&graph, Kind::Race, one, two);
    graph.set_may_share(one, true);
    assert_fault(&graph, Kind::Race, one, two);
    graph.set_may_share(two, true);
    assert!(faults(&graph).is_empty());
}

#[test]
fn a_read_does_not_hide_the_write_before_it() {
    let mut graph = graph(0);
    let write = kernel(&mut graph, &[], Act::Write, OUTSIDE, "write");
    kernel(&mut graph, &[write], Act::Read, OUTSIDE, "read");
    let beside = kernel(&mut graph, &[], Act::Read, OUTSIDE, "beside");
    assert_fault(&graph, Kind::Race, write, beside);
}

#[test]
fn memory_of_another_graph_is_followed_from_its_free_on() {
    let mut graph = graph(0);
    let foreign = Memory::Foreign { graph: GraphId(7), alloc: GraphAllocId(1) };
    let one = kernel(&mut graph, &[], Act::Read, foreign, "one");
    let free = graph.add_free(&[], foreign, "free".into()).unwrap();
    let fault = assert_fault(&graph, Kind::FreeBeforeUse, one, free);
    assert!(
        fault.sentence(&Names::new()).starts_with("graph allocation 1 of graph 7 is freed by mem free `free`"),
        "{fault:?}"
    );
    graph.add_edge(one, free).unwrap();
    let again = graph.add_free(&[free], foreign, "again".into()).unwrap_err();
    assert!(again.to_string().contains("freed already, by mem free `free`"), "{again}");
    // A child graph brings its own free node. The check of the whole graph finds that.
    let mut child = self::graph(1);
    child.add_free(&[], foreign, "again".into()).unwrap();
    graph.add_child(&[free], Arc::new(child), Label::default()).unwrap();
    assert_eq!(faults(&graph)[0].kind, Kind::DoubleFree);
    graph.remove_node(free).unwrap();
    graph.add_free(&[one], foreign, "anew".into()).unwrap();
}

#[test]
fn shared_addresses_need_the_path_that_was_there() {
    let mut graph = graph(0);
    let (node, a) = graph.add_alloc(&[], 4 * MIB, "a".into()).unwrap();
    let free = graph.add_free(&[node], own(a), "free".into()).unwrap();
    let (later, b) = graph.add_alloc(&[free], 4 * MIB, "b".into()).unwrap();
    assert_eq!(graph.alloc(a).unwrap().range, graph.alloc(b).unwrap().range);
    graph.remove_edge(free, later).unwrap();
    let fault = assert_fault(&graph, Kind::SharedAddresses, free, later);
    assert!(fault.sentence(&Names::new()).contains("addresses of an earlier allocation"), "{fault:?}");
    graph.add_edge(free, later).unwrap();
    assert!(faults(&graph).is_empty());
}

#[test]
fn a_parent_uses_and_frees_what_its_child_allocates() {
    let (mut parent, mut child) = (graph(0), graph(1));
    let (_, alloc) = child.add_alloc(&[], 8, "x".into()).unwrap();
    let foreign = Memory::Foreign { graph: child.id(), alloc };
    let inside = parent.add_child(&[], Arc::new(child), Label::default()).unwrap();
    let user = kernel(&mut parent, &[inside], Act::Write, foreign, "use");
    let free = parent.add_free(&[user], foreign, Label::default()).unwrap();
    assert!(faults(&parent).is_empty());
    let exec = Draft::new(&parent).unwrap().instantiate(0, false);
    assert!(exec.outputs().is_empty());
    assert!(exec.summary().demands.is_empty(), "nothing of it is outside");
    parent.remove_edge(inside, user).unwrap();
    let kinds: Vec<_> = faults(&parent).iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&Kind::UseBeforeAlloc), "{kinds:?}");
    let _ = free;
}

/// Only a graph that has a memory node with a fixed address at the moment of the copy is refused.
#[test]
fn a_graph_with_fixed_addresses_is_not_copied() {
    let node = |graph: &Graph| graph.fixed_memory().map(|node| (node.path(), node.act));
    let mut child = graph(1);
    let (alloc, x) = child.add_alloc(&[], 8, "x".into()).unwrap();
    assert_eq!(node(&child), Some(("0".into(), Act::Allocate)));
    let mut parent = Graph::new(GraphId(0), 2 * MIB, Addressing::Symbolic);
    parent.add_alloc(&[], 8, "y".into()).unwrap();
    let copy = parent.duplicate(GraphId(2)).unwrap();
    assert_eq!((copy.id(), copy.len(), node(&parent)), (GraphId(2), 1, None));
    let inside = parent.add_child(&[], Arc::new(child.clone()), Label::default()).unwrap();
    assert_eq!(node(&parent), Some(("1.0".into(), Act::Allocate)));
    let refused = parent.duplicate(GraphId(2)).unwrap_err();
    assert!(refused.to_string().starts_with("graph 0 cannot be cloned: its mem alloc `x` (node 1.0) is "), "{refused}");
    parent.remove_node(inside).unwrap();
    assert!(node(&parent).is_none() && parent.duplicate(GraphId(2)).is_ok());
    let free = child.add_free(&[alloc], own(x), Label::default()).unwrap();
    child.remove_node(free).unwrap();
    child.remove_node(alloc).unwrap();
    let mut copy = child.duplicate(GraphId(2)).unwrap();
    let foreign = copy.add_free(&[], Memory::Foreign { graph: GraphId(7), alloc: x }, Label::default()).unwrap();
    assert_eq!(node(&copy), Some((foreign.0.to_string(), Act::Free)));
    // The copy has addresses of its own, but has not been given any yet.
    assert!(matches!(copy.add_alloc(&[], 8, "z".into()), Err(GraphError::NoAddresses { .. })));
}

/// All pairs, by search: the rules as they are documented.
fn naive(graph: &Graph) -> BTreeSet<(&'static str, Memory)> {
    let nodes: Vec<(NodeId, _)> = graph.nodes().collect();
    let reach = |from: NodeId, to: NodeId| {
        let (mut stack, mut seen) = (vec![from], BTreeSet::new());
        while let Some(node) = stack.pop() {
            for &next in graph.node(node).unwrap().successors() {
                if seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        seen.contains(&to)
    };
    let uses: Vec<(NodeId, Memory, Act)> =
        nodes.iter().flat_map(|(id, node)| node.accesses.iter().map(|it| (*id, it.memory, it.act))).collect();
    let frees = nodes.iter().filter_map(|(id, node)| match node.kind {
        NodeKind::MemFree(memory) => Some((memory, *id)),
        _ => None,
    });
    let born = |memory: Memory| match memory {
        Memory::Own(alloc) => Some(graph.alloc(alloc).unwrap().node),
        _ => None,
    };
    let mut bad = BTreeSet::new();
    for (memory, free) in frees {
        if born(memory).is_some_and(|born| !reach(born, free)) {
            bad.insert(("free", memory));
        }
        for (id, _, _) in uses.iter().filter(|it| it.1 == memory) {
            if !reach(*id, free) {
                bad.insert(("free", memory));
            }
        }
    }
    for (at, (id, memory, act)) in uses.iter().enumerate() {
        if born(*memory).is_some_and(|born| !reach(born, *id)) {
            bad.insert(("use", *memory));
        }
        for (other, same, other_act) in &uses[..at] {
            let conflict = same == memory && other != id && (*act == Act::Write || *other_act == Act::Write);
            if conflict && !reach(*other, *id) && !reach(*id, *other) {
                bad.insert(("race", *memory));
            }
        }
    }
    bad
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..Default::default() })]

    #[test]
    fn faults_are_those_of_a_search(
        steps in prop::collection::vec((0u8..8, any::<u16>(), any::<u16>(), any::<u16>()), 1..14)
    ) {
        let mut graph = graph(0);
        let mut allocs: Vec<GraphAllocId> = Vec::new();
        for (what, a, b, c) in steps {
            let n = graph.len() as u16;
            let mut after: Vec<NodeId> =
                [a, b].iter().filter(|it| n > 0 && *it % 5 != 0).map(|it| NodeId(u32::from(it % n))).collect();
            // Mostly late nodes, so that many graphs are nearly right.
            after.extend((n > 0 && c % 4 != 0).then(|| NodeId(u32::from(n) - 1)));
            after.sort_unstable();
            after.dedup();
            let pick = |number: u16| allocs.get(number as usize % allocs.len().max(1)).map(|it| own(*it));
            match what {
                0 | 1 => allocs.push(graph.add_alloc(&after, 8, "a".into()).unwrap().1),
                2 => {
                    if let Some(memory) = pick(c) {
                        let _ = graph.add_free(&after, memory, "f".into());
                    }
                }
                _ => {
                    let memory = pick(c).filter(|_| what != 7).unwrap_or(OUTSIDE);
                    let act = if b % 3 == 0 { Act::Write } else { Act::Read };
                    kernel(&mut graph, &after, act, memory, "k");
                }
            }
        }
        let expected = naive(&graph);
        let found: BTreeSet<Memory> = faults(&graph).iter().map(|fault| fault.subject.memory).collect();
        let expected: BTreeSet<Memory> = expected.into_iter().map(|it| it.1).collect();
        prop_assert_eq!(found, expected);
    }
}

/// Children within children are more nodes than a graph may have: refused, with bounded memory, before any are built.
#[test]
fn graphs_have_a_size() {
    let mut inner = Graph::new(GraphId(0), 512, Addressing::Symbolic);
    inner.add_work(Work::Empty, &[], &[], Label::default()).unwrap();
    for level in 1..40 {
        let child = Arc::new(inner);
        let mut outer = Graph::new(GraphId(level), 512, Addressing::Symbolic);
        for _ in 0..2 {
            outer.add_child(&[], Arc::clone(&child), Label::default()).unwrap();
        }
        inner = outer;
    }
    assert!(matches!(Draft::new(&inner), Err(Refusal::TooManyNodes)), "a node for each leaf would be 2^39");
}
