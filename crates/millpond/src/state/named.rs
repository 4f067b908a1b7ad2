//! Names that can be copied: of a lifetime of an allocation, of a node, of the memory of an alloc node. They are plain
//! values.

use std::fmt;

use millpond_core::graph::{GraphAllocId, GraphId, NodeId};
use millpond_core::ids::{AllocId, PoolId};

use crate::names::count::{Count, Span};
use crate::state::access::{Read, Source, Write};

/// The name of a lifetime of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) device: u32,
    pub(crate) id: AllocId,
    /// `None` for memory of graphs and for imports.
    pub(crate) pool: Option<PoolId>,
    pub(crate) index: u32,
    pub(crate) generation: u64,
    pub(crate) address: u64,
}

/// The name of an alloc node, and the address of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeName {
    pub(crate) device: u32,
    pub(crate) graph: GraphId,
    pub(crate) alloc: GraphAllocId,
    /// 0 if it is symbolic.
    pub(crate) address: u64,
}

impl NodeName {
    /// Returns `true` if each instance has an address of its own.
    pub(crate) fn is_symbolic(&self) -> bool {
        self.address == 0
    }
}

/// The name of a node of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraphNode {
    pub(crate) device: u32,
    pub(crate) graph: GraphId,
    pub(crate) id: NodeId,
}

impl fmt::Display for GraphNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.id, self.graph)
    }
}

/// The name of an alloc node's memory: `len` elements at an address that stays the same for the life of the node.
///
/// In a graph it names the memory that a launch will allocate. Outside, it names the memory that is live now, if there
/// is any. (For a graph with [symbolic addresses](crate::Device::symbolic_graph) it names memory in graphs only.)
/// [`Launch::take`](crate::graph::Launch::take) makes a [`Buffer`](crate::Buffer) of it.
///
/// ```
/// # use millpond::graph::Instantiate;
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let stream = device.stream()?;
/// let mut graph = device.graph()?;
/// let x = graph.add_alloc::<u32>(&[], 4)?;
/// let alloc = graph.node_of(x).expect("it has bytes");
/// graph.add_memset(&[alloc], x.write(), 0)?;
/// let exec = graph.instantiate(Instantiate::default())?;
/// let memory = exec.launch(&stream)?.take(x)?; // no node frees it: this launch's is the caller's
/// assert_eq!(memory.address(), x.address());
/// stream.free(memory)?;
/// # Ok(())
/// # }
/// ```
pub struct MemAllocNode<T> {
    /// `None` for elements without bytes, and for memory that no graph allocates.
    pub(crate) name: Option<NodeName>,
    pub(crate) count: Count<T>,
}

impl<T> Clone for MemAllocNode<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MemAllocNode<T> {}

impl<T> fmt::Debug for MemAllocNode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemAllocNode")
            .field("address", &self.address())
            .field("len", &self.count)
            .finish_non_exhaustive()
    }
}

impl<T> MemAllocNode<T> {
    pub(crate) fn new(name: Option<NodeName>, count: Count<T>) -> Self {
        Self { name, count }
    }

    /// Returns the address, which is fixed for the life of the node. Returns 0 if nothing is allocated, or if each
    /// instance has its own address ([`GraphExec::address_of`](crate::graph::GraphExec::address_of)).
    pub fn address(&self) -> u64 {
        self.name.map_or(0, |name| name.address)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count.len()
    }

    /// Returns `true` if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn source(&self) -> Source<'static> {
        match self.name {
            Some(name) => Source::Node(name),
            None if self.count.bytes() == 0 => Source::Empty,
            None => Source::Nothing,
        }
    }

    /// Declares that a node or a launch reads the memory.
    pub fn read(&self) -> Read<'static, T> {
        Read::new(self.source(), Span::all(self.count))
    }

    /// Declares that a node or a launch writes the memory, or reads and writes it.
    pub fn write(&self) -> Write<'static, T> {
        Write::new(self.source(), Span::all(self.count))
    }
}
