//! Builds a graph node by node (CUDA: `cudaGraphAdd...Node`). Edges are explicit: none is added implicitly.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::Place;
use millpond_core::graph::{GraphAllocId, GraphError, Memory, NodeId, NodeKind, Others};
use millpond_core::ids::GraphId;
use millpond_core::op::NodeOp;
use millpond_driver::{DriverError, process};

use super::body::Body;
use crate::names::count::Count;
use crate::names::error::{Error, Invalid, Result};
use crate::names::shadow;
use crate::state::access::{Access, Read, Write, placed};
use crate::state::aliased::Job;
use crate::state::named::{GraphNode, MemAllocNode, NodeName};
use crate::stream::external::{EventNode, ExternalEvent};
use crate::stream::payload::{Payload, staged};
use crate::sync::garbage::Garbage;
use crate::trace::tracer::Tracer;

/// A graph in the making, by capture ([`Stream::capture`](crate::Stream::capture)) or node by node
/// ([`Device::graph`](crate::Device::graph)).
///
/// A node that uses memory must have a path from the alloc node and a path to the free node. If one of the two is
/// missing, [`instantiate`](Self::instantiate) refuses the graph, and names both nodes and the missing edge.
///
/// The memory of alloc nodes has fixed addresses. As in CUDA, a graph with memory nodes therefore has one instance at a
/// time and no clone, and moves into the graph that it becomes a child of. A [symbolic
/// graph](crate::Device::symbolic_graph) has no such limit. Unlike in CUDA, nodes and edges can be removed from graphs
/// with memory nodes.
/// ```
/// # use millpond::graph::Instantiate;
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let stream = device.stream()?;
/// let mut graph = device.graph()?;
/// let x = graph.add_alloc::<u32>(&[], 4)?;
/// let alloc = graph.node_of(x).expect("it has bytes");
/// let fill = graph.add_kernel(&[alloc], x.write(), |x| x.fill(1))?;
/// graph.add_free(&[alloc], x)?;
/// let refused = graph.instantiate(Instantiate::default()).unwrap_err();
/// println!("{}", refused.report()); // the free node does not come after the kernel
/// let free = *graph.nodes().last().expect("a node");
/// graph.add_edge(fill, free)?;
/// graph.instantiate(Instantiate::default())?.launch(&stream)?;
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    /// Shared with instances until it is changed.
    pub(crate) body: Arc<Body>,
}

impl Graph {
    /// Makes a copy with allocations of its own (CUDA: `cudaGraphClone`). Names of the original's nodes do not name
    /// nodes of the copy: see [`Graph::find`].
    ///
    /// # Errors
    /// A violation: the graph has memory nodes with fixed addresses (CUDA: `cudaErrorNotSupported`).
    pub fn try_clone(&self) -> Result<Self> {
        process::refuse_forked()?;
        Ok(Self { body: Arc::new(self.body.duplicate()?) })
    }

    pub(super) fn dependencies(&self, nodes: &[GraphNode]) -> Result<Vec<NodeId>> {
        process::refuse_forked()?;
        nodes.iter().map(|node| self.own(*node)).collect()
    }

    /// Returns the graph for a change. Instances keep the unchanged graph.
    fn edit(&mut self) -> &mut Body {
        Arc::make_mut(&mut self.body)
    }

    fn own(&self, node: GraphNode) -> Result<NodeId> {
        process::refuse_forked()?;
        match (node.device, node.graph) == (self.body.context.number, self.body.core.id()) {
            true => Ok(node.id),
            false => Err(GraphError::UnknownNode(node.id).into()),
        }
    }

    fn named(&self, id: NodeId) -> GraphNode {
        GraphNode { device: self.body.context.number, graph: self.body.core.id(), id }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.body.core.nodes().count()
    }

    /// Returns `true` if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the nodes, by number.
    pub fn nodes(&self) -> Vec<GraphNode> {
        self.body.core.nodes().map(|(id, _)| self.named(id)).collect()
    }

    /// Gives a node a name, for messages. The name of an alloc node is also that of its memory.
    ///
    /// # Errors
    /// An unknown node.
    pub fn set_name(&mut self, node: GraphNode, name: &str) -> Result<()> {
        let id = self.own(node)?;
        self.edit().name_node(id, &name.into());
        Ok(())
    }

    /// Returns this graph's copy of `node`, which is a node of the graph that this one is a clone of, or of a graph
    /// which that one was a clone of (CUDA: `cudaGraphNodeFindInClone`). Returns `None` if `node` is of another graph,
    /// was added after the clone was made, or its copy was removed.
    pub fn find(&self, node: GraphNode) -> Option<GraphNode> {
        let Body { context, core, originals, .. } = &*self.body;
        let is_original = |&(graph, nodes): &(GraphId, usize)| graph == node.graph && node.id.index() < nodes;
        let is_copied = node.device == context.number && originals.iter().any(is_original);
        core.node(node.id).filter(|_| is_copied).map(|_| self.named(node.id))
    }

    fn add<A: Access>(
        &mut self,
        dependencies: &[GraphNode],
        (accesses, job): (&A, Job),
        place: Place,
        payload: impl FnOnce(&Body, A::Place, bool) -> Payload,
    ) -> Result<GraphNode> {
        let dependencies = self.dependencies(dependencies)?;
        self.add_work(&dependencies, (accesses, job), place, payload).inspect_err(|error| {
            self.note_refused(
                error,
                &dependencies,
                |tracer| tracer.declared_node(&self.body.context.graphs, (accesses, job)),
                place,
            );
        })
    }

    fn add_work<A: Access>(
        &mut self,
        dependencies: &[NodeId],
        (accesses, job): (&A, Job),
        place: Place,
        payload: impl FnOnce(&Body, A::Place, bool) -> Payload,
    ) -> Result<GraphNode> {
        let mut resolved = self.edit().resolve(accesses, job, place, |_| Ok(()))?;
        let at = placed(accesses, resolved.addresses.iter().copied());
        let mut payload = payload(&self.body, at, resolved.late.is_some());
        if let Some(places) = resolved.late.take() {
            payload = payload.late(places);
        }
        let garbage = Garbage::default();
        let id = self.edit().add_work(dependencies, &resolved, garbage.hold(payload), false, place)?;
        Ok(self.named(id))
    }

    /// Traces a refused node, if the program is wrong.
    #[cold]
    fn note_refused(&self, error: &Error, after: &[NodeId], node: impl FnOnce(&Tracer) -> NodeOp, place: Place) {
        let core = &self.body.core;
        Tracer::refused(self.body.context.tracer.as_ref(), error, |tracer| {
            tracer.refused_node(core.id(), core.len() as u32, after, node(tracer), place);
        });
    }

    /// Adds a kernel (CUDA: `cudaGraphAddKernelNode`). Every launch runs it. All instances, clones and children of the
    /// graph share one closure. Its runs come one after the other, in the order in which they were submitted: a run
    /// must not wait for a later one. Nodes without a path between them may wait for each other.
    ///
    /// # Errors
    /// A bad dependency; [`Invalid::Aliased`] if bytes are written and named a second time; [`Invalid::NoClosures`] if
    /// the device does not run closures.
    #[track_caller]
    pub fn add_kernel<A: Access>(
        &mut self,
        dependencies: &[GraphNode],
        accesses: A,
        kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
    ) -> Result<GraphNode> {
        let properties = &self.body.context.properties;
        if !properties.runs_closures {
            return Err(Invalid::NoClosures { device: properties.name.clone() }.into());
        }
        let place = Place::Source(Location::caller());
        self.add(dependencies, (&accesses, Job::Closure), place, |body, at, is_symbolic| match is_symbolic {
            false => Payload::kernel::<A>(&body.context, at, kernel),
            true => Payload::movable_kernel::<A>(&body.context, at, kernel),
        })
    }

    /// Adds a copy between device memory (CUDA: `cudaGraphAddMemcpyNode`).
    ///
    /// # Errors
    /// A bad dependency; a violation if the two sides overlap; [`Invalid::Length`] if their sizes differ.
    #[track_caller]
    pub fn add_copy<T: Pod>(
        &mut self,
        dependencies: &[GraphNode],
        from: Read<'_, T>,
        to: Write<'_, T>,
    ) -> Result<GraphNode> {
        let (left, right) = (from.len() as u64, to.len() as u64);
        if left != right {
            return Err(Invalid::Length { what: "add_copy", left, right }.into());
        }
        let (bytes, place) = (from.bytes(), Place::Source(Location::caller()));
        self.add(dependencies, (&(from, to), Job::Copy), place, |_, (from, to), _| match bytes {
            0 => Payload::Nothing,
            _ => Payload::Copy { to: to.address, from: from.address, bytes },
        })
    }

    /// Adds a copy of host memory to the device. The graph keeps the bytes as they are now (CUDA:
    /// `cudaGraphAddMemcpyNode`, host to device).
    ///
    /// # Errors
    /// The host has no memory left to keep the slice; else as for [`add_copy`](Self::add_copy).
    #[track_caller]
    pub fn add_copy_from_host<T: Pod>(
        &mut self,
        dependencies: &[GraphNode],
        to: Write<'_, T>,
        from: &[T],
    ) -> Result<GraphNode> {
        let (left, right) = (from.len() as u64, to.len() as u64);
        if left != right {
            return Err(Invalid::Length { what: "add_copy_from_host", left, right }.into());
        }
        let place = Place::Source(Location::caller());
        let staged = staged("add_copy_from_host", from)?;
        self.add(dependencies, (&to, Job::Copy), place, |_, to, _| Payload::upload(to.address, staged))
    }

    /// Adds a node that sets each byte (CUDA: `cudaGraphAddMemsetNode`).
    ///
    /// # Errors
    /// A bad dependency.
    #[track_caller]
    pub fn add_memset<T: Pod>(&mut self, dependencies: &[GraphNode], to: Write<'_, T>, value: u8) -> Result<GraphNode> {
        let (bytes, place) = (to.bytes(), Place::Source(Location::caller()));
        self.add(dependencies, (&to, Job::Declared), place, |_, to, _| match bytes {
            0 => Payload::Nothing,
            _ => Payload::Memset { at: to.address, bytes, value },
        })
    }

    /// Adds a function that runs on the host (CUDA: `cudaGraphAddHostNode`). Its runs are ordered as those of
    /// [`add_kernel`](Self::add_kernel). On CUDA it must not call the device, own anything that calls the device when
    /// it is dropped, or wait for another such function. If it panics, the device is lost.
    ///
    /// # Errors
    /// A bad dependency.
    #[track_caller]
    pub fn add_host_function(
        &mut self,
        dependencies: &[GraphNode],
        function: impl FnMut() + Send + 'static,
    ) -> Result<GraphNode> {
        let place = Place::Source(Location::caller());
        self.add(dependencies, (&(), Job::Closure), place, |body, (), _| {
            Payload::host_function(&body.context, function)
        })
    }

    /// Adds an empty node, at which edges meet (CUDA: `cudaGraphAddEmptyNode`).
    ///
    /// # Errors
    /// A bad dependency.
    #[track_caller]
    pub fn add_empty(&mut self, dependencies: &[GraphNode]) -> Result<GraphNode> {
        self.add(dependencies, (&(), Job::Declared), Place::Source(Location::caller()), |_, (), _| Payload::Nothing)
    }

    /// Adds a node that records an external event at each launch (CUDA: `cudaGraphAddEventRecordNode`). A stream that
    /// waits for the event afterwards comes after this node and all nodes before it, and not after the rest of the
    /// launch.
    ///
    /// # Errors
    /// A bad dependency; the event is of another device.
    #[track_caller]
    pub fn add_event_record(&mut self, dependencies: &[GraphNode], event: &ExternalEvent) -> Result<GraphNode> {
        self.add_event(dependencies, EventNode::Record, event, Place::Source(Location::caller()))
    }

    /// Adds a node that waits, at each launch, for the record that an external event holds then (CUDA:
    /// `cudaGraphAddEventWaitNode`). Nodes after this one come after that record; the rest of the graph need not. If
    /// the event was never recorded, the node has no effect. If a node of the graph records the event, and this node
    /// does not come before it, this node adds no edge.
    ///
    /// # Errors
    /// A bad dependency; the event is of another device.
    #[track_caller]
    pub fn add_event_wait(&mut self, dependencies: &[GraphNode], event: &ExternalEvent) -> Result<GraphNode> {
        self.add_event(dependencies, EventNode::Wait, event, Place::Source(Location::caller()))
    }

    fn add_event(
        &mut self,
        dependencies: &[GraphNode],
        node: EventNode,
        event: &ExternalEvent,
        place: Place,
    ) -> Result<GraphNode> {
        let dependencies = self.dependencies(dependencies)?;
        let added = self.edit().add_event(&Garbage::default(), &dependencies, node, event, place);
        let added = added.inspect_err(|error| {
            let records = matches!(node, EventNode::Record);
            let node = |event| Tracer::event_node(event, records);
            self.note_refused(error, &dependencies, |_| event.traced().map_or(NodeOp::Empty, node), place);
        });
        Ok(self.named(added?))
    }

    /// Adds an alloc node for `len` elements (CUDA: `cudaGraphAddMemAllocNode`). Its address is known at once and does
    /// not change. It is the address of an earlier allocation if that allocation's free comes before this node by edges
    /// that exist now.
    ///
    /// # Errors
    /// A bad dependency; no bytes; more than the device's memory; a violation: the graph has moved into another one
    /// ([`add_child`](Self::add_child)).
    #[track_caller]
    pub fn add_alloc<T: Pod>(&mut self, dependencies: &[GraphNode], len: usize) -> Result<MemAllocNode<T>> {
        let place = Place::Source(Location::caller());
        let dependencies = self.dependencies(dependencies)?;
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let too_many = DriverError::OutOfMemory { call: "alloc node", bytes };
        let count = Count::new(len).ok_or(too_many)?;
        let added = self.edit().add_alloc(&dependencies, count.bytes(), place).inspect_err(|error| {
            let alloc = |tracer: &Tracer| NodeOp::Alloc { memory: tracer.new_memory(), bytes: count.bytes() };
            self.note_refused(error, &dependencies, alloc, place);
        });
        let (_, alloc, address) = added?;
        Ok(self.body.name(alloc, address, count))
    }

    /// Adds a free node (CUDA: `cudaGraphAddMemFreeNode`), for memory of this graph or memory that another graph leaves
    /// live.
    ///
    /// # Errors
    /// A bad dependency; a second free node for one allocation, in this or another graph (a second one for memory of a
    /// child is refused when the graph is instantiated); a violation as for [`add_alloc`](Self::add_alloc).
    #[track_caller]
    pub fn add_free<T: Pod>(&mut self, dependencies: &[GraphNode], memory: MemAllocNode<T>) -> Result<GraphNode> {
        let place = Place::Source(Location::caller());
        let dependencies = self.dependencies(dependencies)?;
        let Some(name) = memory.name else {
            return Err(GraphError::NotGraphMemory.into());
        };
        let freed = self.body.memory_of_node(name);
        let added = freed.and_then(|memory| self.edit().add_free(&dependencies, memory, place)).inspect_err(|error| {
            let free = |tracer: &Tracer| NodeOp::Free(tracer.alloc_node(name.graph, name.alloc));
            self.note_refused(error, &dependencies, free, place);
        });
        Ok(self.named(added?))
    }

    /// Adds a whole graph as one node, as it is now (CUDA: `cudaGraphAddChildGraphNode`). A child that has memory nodes
    /// with fixed addresses moves into this graph (CUDA: `cudaGraphChildGraphOwnershipMove`). From then on the child
    /// has no instance, is no other graph's child, and its memory nodes cannot be added or removed, even after this
    /// graph is gone. Other later changes of the child affect no launch of this graph.
    ///
    /// # Errors
    /// A bad dependency; graphs nested too deeply; the child is of another device. A violation: the child has memory
    /// nodes with fixed addresses, and has an instance or is a child already, or this graph has moved into another one
    /// (CUDA: `cudaErrorNotSupported`).
    #[track_caller]
    pub fn add_child(&mut self, dependencies: &[GraphNode], child: &Graph) -> Result<GraphNode> {
        let place = Place::Source(Location::caller());
        let dependencies = self.dependencies(dependencies)?;
        let added = self.edit().add_child(&dependencies, &child.body, place).inspect_err(|error| {
            self.note_refused(error, &dependencies, |tracer| tracer.child(child.body.core.id()), place);
        });
        Ok(self.named(added?))
    }

    /// Always returns an error: conditional nodes (CUDA: `cudaGraphConditionalHandle`) are not implemented. The graph
    /// is unchanged. Launch different graphs instead, or an instance for each branch.
    ///
    /// # Errors
    /// Always.
    pub fn add_conditional(&mut self, dependencies: &[GraphNode]) -> Result<GraphNode> {
        self.dependencies(dependencies)?;
        let id = self.edit().core.add_conditional()?;
        Ok(self.named(id))
    }

    /// Adds an edge between two nodes (CUDA: `cudaGraphAddDependencies`).
    ///
    /// # Errors
    /// An unknown node; an edge that exists already or would close a circle.
    pub fn add_edge(&mut self, from: GraphNode, to: GraphNode) -> Result<()> {
        let (from, to) = (self.own(from)?, self.own(to)?);
        let added = self.edit().core.add_edge(from, to);
        if let Some(tracer) = &self.body.context.tracer {
            shadow::judged(added.as_ref().err(), || tracer.edge(self.body.core.id(), from, to, true));
        }
        Ok(added?)
    }

    /// Removes an edge (CUDA: `cudaGraphRemoveDependencies`, which refuses graphs with memory nodes).
    ///
    /// # Errors
    /// There is no such edge.
    pub fn remove_edge(&mut self, from: GraphNode, to: GraphNode) -> Result<()> {
        let (from, to) = (self.own(from)?, self.own(to)?);
        let removed = self.edit().core.remove_edge(from, to);
        if let Some(tracer) = &self.body.context.tracer {
            shadow::judged(removed.as_ref().err(), || tracer.edge(self.body.core.id(), from, to, false));
        }
        Ok(removed?)
    }

    /// Removes a node with its edges (CUDA: `cudaGraphDestroyNode`, which refuses graphs with memory nodes).
    ///
    /// # Errors
    /// An unknown node; an alloc node whose memory is used or freed, in this graph or by a free node of another graph;
    /// a memory node of a graph that has moved into another one.
    pub fn remove_node(&mut self, node: GraphNode) -> Result<()> {
        let id = self.own(node)?;
        let removed = self.remove(id);
        if let Some(tracer) = &self.body.context.tracer {
            shadow::judged(removed.as_ref().err(), || tracer.node_removed(self.body.core.id(), id));
        }
        let freed = match removed? {
            NodeKind::MemFree(Memory::Own(alloc)) => Some((self.body.core.id(), alloc)),
            NodeKind::MemFree(Memory::Foreign { graph, alloc }) => Some((graph, alloc)),
            _ => None,
        };
        if let Some((graph, alloc)) = freed {
            self.body.context.graphs.withdraw(graph, alloc, &self.body.grant);
        }
        // Dropped last: the drop of values that a kernel owns may panic.
        let body = self.edit();
        let _former = (std::mem::replace(&mut body.payloads[id.index()], Payload::Nothing), body.children.remove(&id));
        Ok(())
    }

    fn remove(&mut self, id: NodeId) -> Result<NodeKind> {
        let body = &self.body;
        let freed_by = match body.core.node(id).map(|node| &node.kind) {
            Some(NodeKind::MemAlloc(alloc)) => body.context.graphs.freed_by((body.core.id(), *alloc)),
            _ => None,
        };
        let others = Others { holder: body.held_by.holder(), freed_by };
        Ok(self.edit().core.remove_unshared(id, others)?)
    }

    /// Returns the alloc node of an allocation of this graph.
    pub fn node_of<T: Pod>(&self, memory: MemAllocNode<T>) -> Option<GraphNode> {
        let is_own = |name: &NodeName| (name.device, name.graph) == (self.body.context.number, self.body.core.id());
        let name = memory.name.filter(is_own)?;
        self.body.core.alloc(name.alloc).map(|alloc| self.named(alloc.node))
    }

    /// Returns the allocation of an alloc node, as this graph names it.
    ///
    /// # Errors
    /// The node is not an alloc node of this graph, or its size is not `len` elements.
    pub fn alloc_node<T: Pod>(&self, node: GraphNode, len: usize) -> Result<MemAllocNode<T>> {
        let id = self.own(node)?;
        let alloc: Option<GraphAllocId> = self.body.core.node(id).and_then(|node| match node.kind {
            NodeKind::MemAlloc(alloc) => Some(alloc),
            _ => None,
        });
        let found = alloc.and_then(|alloc| Some((alloc, self.body.core.alloc(alloc)?, Count::new(len)?)));
        match found {
            Some((alloc, it, count)) if it.bytes == count.bytes() => {
                let address = it.range.map_or(0, |range| range.start);
                Ok(self.body.name(alloc, address, count))
            }
            _ => Err(Invalid::NoOutput.into()),
        }
    }
}
