//! Memory as calls of the library: allocation, free and drop.

use millpond::Error;
use millpond::error::{Invalid, Nearest};
use millpond::graph::MemAllocNode;
use millpond_core::ids::{GraphId, PoolId, StreamId};
use millpond_core::op::{Act, Memory, Space};

use crate::{Cannot, Graphs, Held, Run, Said, cannot, said};

impl Run {
    pub(crate) fn alloc(&mut self, memory: Memory, pool: PoolId, stream: StreamId, bytes: u64) -> Result<Said, Cannot> {
        let default = self.default_pool(stream)?;
        self.memory.allocated_on.insert(memory, stream);
        let pool = match self.memory.pools.get(&pool) {
            Some(pool) => pool,
            None if pool == PoolId(0) => &default,
            None => return cannot("a pool that is gone cannot be named"),
        };
        let made = self.stream(stream)?.alloc::<u8>(pool, bytes as usize);
        Ok(match made {
            Ok(buffer) => {
                self.note_captured(stream);
                let Graphs { captures, members, .. } = &mut self.graphs;
                if let Some(capture) = members.get(&stream).and_then(|origin| captures.get_mut(origin)) {
                    capture.allocated.push(memory);
                }
                self.memory.held.insert(memory, Held::Buffer(buffer));
                Said::Done
            }
            Err(error) => {
                self.memory.held.insert(memory, Held::Void);
                Said::Refused(error, Act::Allocate)
            }
        })
    }

    pub(crate) fn alloc_now(&mut self, memory: Memory, space: Space, bytes: u64) -> Result<Said, Cannot> {
        if space == Space::Host {
            self.memory.pinned.insert(memory);
        }
        if self.is_capturing() {
            let refused = match space {
                Space::Host => self.devices.first.pinned::<u8>(bytes as usize).err(),
                Space::Device(_) | Space::Managed => None,
            };
            let Some(error) = refused else {
                return cannot("the library has no immediate allocation for a capture to refuse");
            };
            self.memory.held.insert(memory, Held::Void);
            return Ok(Said::Refused(error, Act::Allocate));
        }
        let buffer =
            self.devices.own().alloc::<u8>(&self.devices.first.default_pool(), bytes as usize).expect("memory");
        self.devices.own().synchronize().expect("the stream runs");
        self.memory.held.insert(memory, Held::Buffer(buffer));
        Ok(Said::Done)
    }

    pub(crate) fn free(&mut self, memory: Memory, stream_id: Option<StreamId>) -> Result<Said, Cannot> {
        let home = |of: &StreamId| self.streams.devices.get(of).copied().unwrap_or_default();
        let own = self.memory.allocated_on.get(&memory).map(home).unwrap_or_default();
        if stream_id.as_ref().is_some_and(|stream| home(stream) != own) {
            return cannot("memory is freed on its own device");
        }
        let device = self.device_of(own)?;
        if stream_id.is_some() && self.memory.pinned.contains(&memory) {
            return cannot("pinned memory has a type of its own, which no stream frees");
        }
        if let (Some(stream), Some(Held::Node(node, owner))) = (stream_id, self.memory.held.get(&memory))
            && let Some(graph) = self.graphs.capture_of(stream).map(|capture| capture.graph)
        {
            let node = *node;
            self.check_named(graph, memory, *owner)?;
            let freed = self.stream(stream)?.free_alloc_node(node);
            if freed.is_ok() {
                self.note_captured(stream);
            }
            return Ok(said(freed, Act::Free));
        }
        let memory = self.current(memory);
        let is_stale = self.memory.held.keys().any(|it| it.id == memory.id && it.generation > memory.generation);
        if is_stale {
            return cannot("a stale name cannot be freed: only buffers are");
        }
        let stream = stream_id.map(|stream| self.stream(stream).cloned()).transpose()?;
        let address = match self.memory.held.remove(&memory) {
            Some(Held::Buffer(buffer)) => {
                let (address, view) = (buffer.address(), buffer.view());
                let freed = match &stream {
                    Some(stream) => stream.free(buffer),
                    None => device.free(buffer),
                };
                return Ok(match freed {
                    Ok(()) => {
                        if let Some(stream) = stream_id {
                            self.note_captured(stream);
                        }
                        self.memory.held.insert(memory, Held::Gone { address, view });
                        Said::Done
                    }
                    Err(refused) => {
                        self.memory.held.insert(memory, Held::Buffer(refused.buffer));
                        Said::Refused(refused.error, Act::Free)
                    }
                });
            }
            Some(Held::Gone { address, view }) => {
                self.memory.held.insert(memory, Held::Gone { address, view });
                let is_there = |held: &Held| match held {
                    Held::Buffer(buffer) => buffer.address() == address,
                    Held::Gone { .. } | Held::Node(..) | Held::Void => false,
                };
                let is_left = self.memory.displaced.iter().any(|left| left.address() == address);
                if is_left || self.memory.held.values().any(is_there) {
                    return cannot("the address has another owner by now");
                }
                address
            }
            Some(Held::Node(node, graph)) => {
                self.memory.held.insert(memory, Held::Node(node, graph));
                self.node_address(memory, node, graph)?
            }
            Some(Held::Void) => {
                self.memory.held.insert(memory, Held::Void);
                return if self.is_capturing() { cannot("memory that was refused") } else { Ok(Said::Done) };
            }
            None => return cannot("memory that was never allocated cannot be named"),
        };
        let freed = match &stream {
            Some(stream) => stream.free_address(address),
            None => device.free_address(address),
        };
        if let (Err(Error::InvalidArgument(invalid)), Some(Held::Gone { .. })) = (&freed, self.memory.held.get(&memory))
            && let Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. } = **invalid
        {
            return cannot("the instance that gave the memory is gone");
        }
        if let (Err(Error::Violation(violation)), Some(Held::Gone { .. })) = (&freed, self.memory.held.get(&memory))
            && violation.kind.is_about_captures()
        {
            return cannot(
                "a capture forbids the free before the address is looked up, which may have no owner by now",
            );
        }
        if let Err(Error::InvalidArgument(invalid)) = &freed
            && let Invalid::Pointer { nearest: Nearest::Between { .. } | Nearest::Outside { .. }, .. } = **invalid
        {
            return cannot("the address has no owner by now");
        }
        Ok(said(freed, Act::Free))
    }

    /// Returns the address to free for an alloc node's memory.
    fn node_address(&self, memory: Memory, node: MemAllocNode<u8>, graph: GraphId) -> Result<u64, Cannot> {
        if !self.is_there(graph) {
            return cannot("memory of a graph that is gone has no name");
        }
        let lies_here = |it: &Memory| {
            let held = self.memory.held.get(it);
            matches!(held, Some(Held::Node(other, _)) if other.address() == node.address())
        };
        if self.memory.removed.iter().any(|it| *it == memory || lies_here(it)) {
            return cannot("memory of a node that was removed has no name");
        }
        // One of the two was freed before the other was placed. An instance made in between may have left the first.
        if self.memory.held.keys().any(|it| *it != memory && lies_here(it)) {
            return cannot("the address has another owner by now");
        }
        if node.address() == 0 {
            return cannot("memory of a symbolic graph has no address before a launch");
        }
        Ok(node.address())
    }

    pub(crate) fn drop_memory(&mut self, memory: Memory) -> Result<Said, Cannot> {
        if self.memory.freed_by_nodes.contains(&memory) {
            return cannot("a graph may have freed what is dropped");
        }
        let memory = self.current(memory);
        match self.memory.held.remove(&memory) {
            Some(Held::Buffer(buffer)) => {
                let (address, view) = (buffer.address(), buffer.view());
                drop(buffer);
                self.memory.held.insert(memory, Held::Gone { address, view });
                Ok(Said::Done)
            }
            _ => cannot("only a buffer can be dropped"),
        }
    }
}
