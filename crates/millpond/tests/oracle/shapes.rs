//! What CUDA refuses to graphs with memory nodes. Millpond allows it, and refuses it with the same code where it is
//! told to keep to CUDA's limits.

use millpond::Result;
use millpond::graph::{Graph, GraphNode, Instantiate};
use millpond_driver::cuda::abi::Code;
use millpond_driver::cuda::abi::graph::{Graph as TheirGraph, GraphNode as TheirNode};

use crate::compare;
use crate::cuda::Cuda;
use crate::lives::with_alloc;

const BYTES: usize = 64 << 10;
const PLAIN: Instantiate = Instantiate { auto_free_on_launch: false };
const WHY: &str = "its instances and children have what they need of their own";

/// alloc -> use -> free on both sides.
struct Whole {
    theirs: TheirGraph,
    their_nodes: [TheirNode; 3],
    graph: Graph,
    nodes: [GraphNode; 3],
}

fn whole(cuda: &Cuda, device: &millpond::Device) -> Result<Whole> {
    let it = cuda.with_alloc(BYTES);
    let touched = cuda.add_touch(it.graph, &[it.node], it.at);
    let (code, freed) = cuda.add_free(it.graph, &[touched], it.at);
    cuda.must("cuGraphAddMemFreeNode", code);
    let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
    let filled = graph.add_memset(&[alloc], x.write(), 1)?;
    let free = graph.add_free(&[filled], x)?;
    Ok(Whole { theirs: it.graph, their_nodes: [it.node, touched, freed], graph, nodes: [alloc, filled, free] })
}

/// CUDA refuses; Millpond does it on a copy of the graph, and refuses it on the graph that keeps to the limits.
fn is_limit(
    what: &str,
    theirs: impl FnOnce(&Cuda, &Whole) -> Code,
    ours: impl Fn(&mut Graph, &[GraphNode; 3]) -> Result<()>,
) {
    compare(|rows, cuda, device| {
        let mut it = whole(cuda, device)?;
        let (their_stream, stream) = (cuda.stream(), device.stream()?);
        let code = theirs(cuda, &it);
        let mut free = whole(cuda, device)?;
        let allowed = ours(&mut free.graph, &free.nodes);
        rows.differ(what, WHY, (code, Code::NOT_SUPPORTED), allowed, |ours| ours.is_ok());
        it.graph.set_cuda_limits(true);
        rows.agree("... with CUDA's limits", code, ours(&mut it.graph, &it.nodes));
        // What was refused left the graph as it was.
        let (code, their_exec) = cuda.instantiate(it.theirs, 0);
        if let Some(exec) = rows.agree("an instance after it", code, it.graph.instantiate(PLAIN)) {
            let launched = exec.launch(&stream).map(drop);
            rows.agree("its launch", cuda.table.launch(their_exec, their_stream), launched);
        }
        Ok(())
    });
}

#[test]
fn a_second_instance() {
    is_limit(
        "a second instance while one lives",
        |cuda, it| {
            let first = cuda.exec(it.theirs, 0);
            let (code, _) = cuda.instantiate(it.theirs, 0);
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(first));
            code
        },
        |graph, _| {
            let _first = graph.instantiate(PLAIN)?;
            graph.instantiate(PLAIN).map(drop)
        },
    );
}

#[test]
fn a_clone() {
    is_limit(
        "a clone",
        |cuda, it| {
            let mut clone = TheirGraph::default();
            cuda.table.graph_clone(&raw mut clone, it.theirs)
        },
        // `Clone` cannot refuse: the copy is refused where it is used.
        |graph, _| graph.clone().instantiate(PLAIN).map(drop),
    );
}

#[test]
fn a_child_graph() {
    is_limit(
        "being a child graph",
        |cuda, it| {
            let (parent, mut node) = (cuda.graph(), TheirNode::default());
            cuda.table.add_child(&raw mut node, parent, std::ptr::null(), 0, it.theirs)
        },
        |graph, _| {
            let mut parent = graph_of_its_device(graph)?;
            parent.add_child(&[], graph).map(drop)
        },
    );
}

#[test]
fn the_removal_of_a_node() {
    is_limit(
        "the removal of a node",
        |cuda, it| cuda.table.destroy_node(it.their_nodes[2]),
        |graph, nodes| graph.remove_node(nodes[2]),
    );
}

#[test]
fn the_removal_of_an_edge() {
    is_limit(
        "the removal of an edge",
        |cuda, it| {
            let [_, touched, freed] = it.their_nodes;
            cuda.table.remove_edges(it.theirs, &raw const touched, &raw const freed, 1)
        },
        |graph, nodes| graph.remove_edge(nodes[1], nodes[2]),
    );
}

/// An empty graph beside another one.
fn graph_of_its_device(graph: &Graph) -> Result<Graph> {
    let mut empty = graph.clone();
    empty.set_cuda_limits(false);
    empty.nodes().into_iter().rev().try_for_each(|node| empty.remove_node(node))?;
    Ok(empty)
}
