//! Calls that CUDA refuses for graphs with memory nodes. Millpond refuses those that would use their addresses twice.

use millpond::graph::{Graph, GraphNode, Instantiate};
use millpond::{Device, Result};
use millpond_driver::cuda::abi::Code;
use millpond_driver::cuda::abi::graph::{Graph as TheirGraph, GraphNode as TheirNode};

use super::compare;
use super::cuda::Cuda;
use super::lives::with_alloc;

const BYTES: usize = 64 << 10;
const PLAIN: Instantiate = Instantiate::new();
const SNAPSHOT: &str = "an instance is a snapshot, and checked as a whole";

/// alloc -> use -> free on both sides.
struct Whole {
    theirs: TheirGraph,
    their_nodes: [TheirNode; 3],
    graph: Graph,
    nodes: [GraphNode; 3],
}

fn whole(cuda: &Cuda, device: &Device) -> Result<Whole> {
    let it = cuda.with_alloc(BYTES);
    let touched = cuda.add_touch(it.graph, &[it.node], it.at);
    let (code, freed) = cuda.add_free(it.graph, &[touched], it.at);
    cuda.must("cuGraphAddMemFreeNode", code);
    let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
    let filled = graph.add_memset(&[alloc], x.write(), 1)?;
    let free = graph.add_free(&[filled], x)?;
    Ok(Whole { theirs: it.graph, their_nodes: [it.node, touched, freed], graph, nodes: [alloc, filled, free] })
}

type Ours<'o> = &'o dyn Fn(&Device, &mut Graph, &[GraphNode; 3]) -> Result<()>;

/// CUDA and Millpond refuse a call, and the refusal leaves the graph as it was.
fn is_refused(what: &str, theirs: impl FnOnce(&Cuda, &Whole) -> Code, ours: Ours<'_>) {
    compare(|rows, cuda, device| {
        let mut it = whole(cuda, device)?;
        let (their_stream, stream) = (cuda.stream(), device.stream()?);
        let code = theirs(cuda, &it);
        rows.agree(what, code, ours(device, &mut it.graph, &it.nodes));
        let (code, their_exec) = cuda.instantiate(it.theirs, 0);
        if let Some(exec) = rows.agree("an instance after it", code, it.graph.instantiate(PLAIN)) {
            let launched = exec.launch(&stream).map(drop);
            rows.agree("its launch", cuda.table.launch(their_exec, their_stream), launched);
        }
        Ok(())
    });
}

/// CUDA refuses a call, and Millpond allows it.
fn is_allowed(what: &str, why: &str, theirs: impl FnOnce(&Cuda, &Whole) -> Code, ours: Ours<'_>) {
    compare(|rows, cuda, device| {
        let mut it = whole(cuda, device)?;
        let allowed = ours(device, &mut it.graph, &it.nodes);
        rows.differ(what, why, (theirs(cuda, &it), Code::NOT_SUPPORTED), allowed, |ours| ours.is_ok());
        Ok(())
    });
}

#[test]
fn a_second_instance() {
    is_refused(
        "a second instance while one lives",
        |cuda, it| {
            let first = cuda.exec(it.theirs, 0);
            let (code, _) = cuda.instantiate(it.theirs, 0);
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(first));
            code
        },
        &|_, graph, _| {
            let _first = graph.instantiate(PLAIN)?;
            graph.instantiate(PLAIN).map(drop)
        },
    );
}

#[test]
fn a_clone() {
    is_refused(
        "a clone",
        |cuda, it| {
            let mut clone = TheirGraph::default();
            cuda.table.graph_clone(&raw mut clone, it.theirs)
        },
        &|_, graph, _| graph.try_clone().map(drop),
    );
}

#[test]
fn a_child_graph_of_an_instantiated_graph() {
    is_refused(
        "being a child graph beside an instance",
        |cuda, it| {
            let first = cuda.exec(it.theirs, 0);
            let code = add_child(cuda, it);
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(first));
            code
        },
        &|device, graph, _| {
            let _first = graph.instantiate(PLAIN)?;
            device.graph()?.add_child(&[], graph).map(drop)
        },
    );
}

#[test]
fn a_child_graph() {
    is_allowed("being a child graph by a copy", "it moves into its parent", add_child, &|device, graph, _| {
        device.graph()?.add_child(&[], graph).map(drop)
    });
}

fn add_child(cuda: &Cuda, it: &Whole) -> Code {
    let (parent, mut node) = (cuda.graph(), TheirNode::default());
    cuda.table.add_child(&raw mut node, parent, std::ptr::null(), 0, it.theirs)
}

#[test]
fn the_removal_of_a_node() {
    is_allowed(
        "the removal of a node",
        SNAPSHOT,
        |cuda, it| cuda.table.destroy_node(it.their_nodes[2]),
        &|_, graph, nodes| graph.remove_node(nodes[2]),
    );
}

#[test]
fn the_removal_of_an_edge() {
    is_allowed(
        "the removal of an edge",
        SNAPSHOT,
        |cuda, it| {
            let [_, touched, freed] = it.their_nodes;
            cuda.table.remove_edges(it.theirs, &raw const touched, &raw const freed, 1)
        },
        &|_, graph, nodes| graph.remove_edge(nodes[1], nodes[2]),
    );
}
