//! The graphs of a device: their creation, and the memory that all of them use.

use std::sync::Arc;

use millpond_core::graph::Addressing;
use millpond_driver::process;

use crate::api::device::Device;
use crate::graph::{Body, Graph, GraphMemoryStatistics, trim_graph_memory};
use crate::names::error::Result;

impl Device {
    /// Creates an empty graph (CUDA: `cudaGraphCreate`).
    ///
    /// # Errors
    /// Returns an error if graphs have run out of numbers. A device may also refuse graphs.
    pub fn graph(&self) -> Result<Graph> {
        self.new_graph(Addressing::Fixed)
    }

    /// Creates an empty graph with symbolic addresses. Its allocations are placed at each instantiation, all together.
    /// So they take fewer bytes than if each is placed when its node is made, and each instance has addresses of its
    /// own. (CUDA has no such graphs.)
    ///
    /// Its [`MemAllocNode`](crate::graph::MemAllocNode)s name memory in this graph and in graphs that it is a child of.
    /// Outside, memory that a launch leaves live is the buffer that [`Launch::take`](crate::graph::Launch::take)
    /// returns. Other graphs can use that buffer but cannot free it. The graph is built node by node, because a capture
    /// needs addresses at once.
    ///
    /// # Errors
    /// As for [`graph`](Self::graph).
    ///
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// use millpond::{Device, HostConfig};
    /// use millpond::graph::Instantiate;
    /// let device = Device::host(HostConfig::default())?;
    /// let stream = device.stream()?;
    /// let mut graph = device.symbolic_graph()?;
    /// let x = graph.add_alloc::<u32>(&[], 1000)?;
    /// let alloc = graph.node_of(x).unwrap();
    /// graph.add_kernel(&[alloc], x.write(), |x| x.fill(7))?;
    /// assert_eq!(x.address(), 0); // not known yet
    /// let (left, right) = (graph.instantiate(Instantiate::default())?, graph.instantiate(Instantiate::default())?);
    /// assert_ne!(left.address_of(x), right.address_of(x));
    /// let (a, b) = (left.launch(&stream)?.take(x)?, right.launch(&stream)?.take(x)?); // both live at once
    /// assert_eq!(stream.copy_to_host(a.read())?, stream.copy_to_host(b.read())?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn symbolic_graph(&self) -> Result<Graph> {
        self.new_graph(Addressing::Symbolic)
    }

    fn new_graph(&self, addressing: Addressing) -> Result<Graph> {
        process::refuse_forked()?;
        self.context().graphs.check_numbers()?;
        Ok(Graph { body: Arc::new(Body::new(self.context(), addressing)) })
    }
}

impl Device {
    /// Returns the memory that the device's graphs use and reserve, apart from all pools (CUDA:
    /// `cudaDeviceGetGraphMemAttribute`).
    pub fn graph_memory(&self) -> GraphMemoryStatistics {
        self.context().graphs.memory().statistics()
    }

    /// Resets both high marks to the current values (CUDA: `cudaDeviceSetGraphMemAttribute`).
    pub fn reset_graph_memory_high(&self) {
        let mut memory = self.context().graphs.memory();
        memory.backing.reset_used_high();
        memory.backing.reset_reserved_high();
    }

    /// Gives back the graph memory that no unfreed allocation and no launch in flight needs (CUDA:
    /// `cudaDeviceGraphMemTrim`). The next launch binds memory anew.
    ///
    /// # Errors
    /// Returns an error if the driver refuses. Memory that was given back before stays so.
    pub fn trim_graph_memory(&self) -> Result<()> {
        process::refuse_forked()?;
        trim_graph_memory(self.context())
    }
}
