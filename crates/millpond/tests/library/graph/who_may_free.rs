//! The rules of who may free which memory: a test for each kind of memory, with an answer for each way to free it.
//!
//! A refusal changes nothing: a right launch of the graph follows.

use millpond::graph::{Graph, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, Result, Stream};

use super::made::each;
use crate::common::{Subject, visit};

/// The way to free it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// `cudaFreeAsync`.
    Stream,
    /// `cudaFree`, after a synchronise.
    Host,
    /// `cudaFreeAsync` in a capture.
    Capture,
    /// A free node of the owner.
    OwnNode,
    /// A free node of another graph, which is launched.
    OtherNode,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Fine,
    /// Refused at the call (`cudaErrorInvalidValue`).
    Refused,
    /// The free node is made, but its launch is refused: the memory is not live.
    RefusedAtLaunch,
}

use Answer::{Fine, Refused, RefusedAtLaunch};

struct Case {
    device: Device,
    stream: Stream,
    owner: Graph,
    memory: MemAllocNode<u32>,
    pool_memory: Option<Buffer<u32>>,
    /// The graph that has the free node.
    _other: Option<Graph>,
}

/// Makes a graph of two nodes: an alloc node, and one that writes its memory.
fn case(on: &Subject) -> Result<Case> {
    let device = on.device.clone();
    let stream = device.stream()?;
    let mut owner = device.graph()?;
    let memory = owner.add_alloc::<u32>(&[], 16)?;
    owner.add_memset(&[owner.node_of(memory).unwrap()], memory.write(), 1)?;
    Ok(Case { device, stream, owner, memory, pool_memory: None, _other: None })
}

impl Case {
    /// Launches the owner, and drops its instance.
    fn launched(self) -> Result<Self> {
        let _ = self.owner.instantiate(Instantiate::default())?.launch(&self.stream)?;
        self.stream.synchronize()?;
        Ok(self)
    }

    fn freed_by_owner(mut self) -> Result<Self> {
        let leaf = self.owner.nodes().last().copied().unwrap();
        self.owner.add_free(&[leaf], self.memory)?;
        Ok(self)
    }

    fn address(&self) -> u64 {
        self.pool_memory.as_ref().map_or(self.memory.address(), Buffer::address)
    }

    fn free(&mut self, by: By) -> std::result::Result<(), Answer> {
        let refused = |_| Refused;
        match by {
            By::Stream => self.stream.free_address(self.address()).map_err(refused),
            By::Host => {
                self.stream.synchronize().unwrap();
                self.device.free_address(self.address()).map_err(refused)
            }
            By::Capture => self.free_captured(),
            By::OwnNode => {
                let leaf = self.owner.nodes().last().copied().unwrap();
                let name = self.name();
                self.owner.add_free(&[leaf], name).map_err(refused)?;
                // It can be freed only once.
                assert!(self.owner.add_free(&[leaf], self.memory).is_err());
                Ok(())
            }
            By::OtherNode => {
                let mut graph = self.device.graph().unwrap();
                graph.add_free(&[], self.name()).map_err(refused)?;
                // It can be freed only once, and then not by the owner.
                assert!(graph.add_free(&[], self.memory).is_err());
                let by_owner = self.owner.add_free(&[], self.memory).unwrap_err();
                assert!(by_owner.to_string().contains("has a free node for graph allocation 0 of"), "{by_owner}");
                self.launch(&graph)
            }
        }
    }

    /// Returns its name for a free node. Memory of a pool has no such name.
    fn name(&mut self) -> MemAllocNode<u32> {
        self.pool_memory.take().map_or(self.memory, Buffer::into_alloc_node)
    }

    fn launch(&self, graph: &Graph) -> std::result::Result<(), Answer> {
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        exec.launch(&self.stream).map(|_| ()).map_err(|_| RefusedAtLaunch)
    }

    fn free_captured(&mut self) -> std::result::Result<(), Answer> {
        let (address, memory) = (self.address(), self.memory);
        let mut answer = Ok(());
        let (graph, ()) = self
            .stream
            .capture(|s| {
                // By its address, or by its name if nothing is live there.
                answer = s.free_address(address).or_else(|error| match self.pool_memory {
                    Some(_) => Err(error),
                    None => s.free_alloc_node(memory),
                });
                // The capture goes on with any answer.
                visit(s, ())
            })
            .unwrap();
        answer.map_err(|_| Refused)?;
        assert_eq!(graph.len(), 2);
        self.launch(&graph)
    }
}

/// Checks one row: the answers for a stream, the host, a captured free, a free node of the owner and one of another
/// graph.
fn row(make: impl Fn(&Subject) -> Result<Case>, answers: [Answer; 5]) {
    each(|on| {
        for (by, expected) in [By::Stream, By::Host, By::Capture, By::OwnNode, By::OtherNode].into_iter().zip(answers) {
            let mut case = make(on).unwrap();
            let answer = case.free(by).err().unwrap_or(Fine);
            assert_eq!(answer, expected, "freed by {by:?}");
        }
        Ok(())
    });
}

/// `cudaMallocAsync`: a captured free, and a free node, take graph memory only.
#[test]
fn memory_of_a_pool() {
    let make = |on: &Subject| {
        let mut case = case(on)?;
        case.pool_memory = Some(case.stream.alloc::<u32>(&case.device.default_pool(), 16)?);
        Ok(case)
    };
    row(make, [Fine, Fine, Refused, Refused, Refused]);
}

#[test]
fn memory_of_an_alloc_node_that_no_graph_frees_once_it_is_launched() {
    row(|on| case(on)?.launched(), [Fine, Fine, Fine, Fine, Fine]);
}

/// Nodes may name it before it is live. Their uses are checked when they are launched.
#[test]
fn memory_of_an_alloc_node_before_the_first_launch() {
    row(case, [Refused, Refused, RefusedAtLaunch, Fine, RefusedAtLaunch]);
}

#[test]
fn memory_that_its_own_graph_frees() {
    row(|on| case(on)?.freed_by_owner(), [Refused; 5]);
    row(|on| case(on)?.freed_by_owner()?.launched(), [Refused; 5]);
}

/// A stream or the host may free it as well, while it is live.
#[test]
fn memory_that_another_graph_frees() {
    let make = |on: &Subject| {
        let mut case = case(on)?.launched()?;
        let mut other = case.device.graph()?;
        other.add_free(&[], case.memory)?;
        case._other = Some(other);
        Ok(case)
    };
    row(make, [Fine, Fine, Refused, Refused, Refused]);
}

/// It is freed once. It is not live until the next launch.
#[test]
fn memory_that_was_freed_since_the_launch() {
    let make = |on: &Subject| {
        let case = case(on)?.launched()?;
        case.stream.free_address(case.memory.address())?;
        Ok(case)
    };
    row(make, [Refused, Refused, RefusedAtLaunch, Fine, RefusedAtLaunch]);
}

/// A free node that no longer exists frees nothing: removed, its graph dropped, or in a capture that failed.
#[test]
fn memory_whose_free_node_is_gone() {
    each(|on| {
        let Case { device, stream, mut owner, memory, .. } = case(on)?;
        let mut other = device.graph()?;
        let free = other.add_free(&[], memory)?;
        other.remove_node(free)?;
        let failed = stream.capture_to(&mut other, &[], millpond::graph::CaptureMode::Global, |s| {
            s.free_alloc_node(memory)?;
            s.synchronize()
        });
        assert!(failed.is_err() && other.is_empty());
        let mut third = device.graph()?;
        third.add_free(&[], memory)?;
        drop(third);
        let leaf = owner.nodes().last().copied().unwrap();
        let free = owner.add_free(&[leaf], memory)?;
        assert!(other.add_free(&[], memory).is_err());
        owner.remove_node(free)?;
        other.add_free(&[], memory)?;
        Ok(())
    });
}

/// The memory of a child belongs to its parent.
#[test]
fn memory_of_a_child_graph_is_freed_by_its_parent() {
    each(|on| {
        let Case { device, stream, owner, memory, .. } = case(on)?;
        let mut parent = device.graph()?;
        let child = parent.add_child(&[], &owner)?;
        parent.add_free(&[child], memory)?;
        let exec = parent.instantiate(Instantiate::default())?;
        let _ = (exec.launch(&stream)?, exec.launch(&stream)?);
        Ok(())
    });
}
