//! Handles that come to a program from outside, or leave it: another thread's, or another program's.
//!
//! What is done with them elsewhere is not the program's; who gives them says what the program knows of it.

use millpond::graph::Graph;
use millpond::{Buffer, Device, Event, Pool, Stream};
use millpond_core::ids::{DeviceId, EventId, ExecId, GraphId, PoolId, StreamId};
use millpond_core::op::Memory;

use crate::{Held, Run};

impl Run {
    /// A further device, before it is named.
    pub fn give_device(&mut self, id: DeviceId, device: Device) {
        self.devices.others.insert(id, device);
    }

    /// A stream of a device.
    pub fn give_stream(&mut self, id: StreamId, device: DeviceId, stream: Stream) {
        self.streams.devices.insert(id, device);
        self.streams.all.insert(id, stream);
    }

    /// A buffer, as if it had been allocated on this stream, of which only the device counts.
    pub fn give_buffer(&mut self, memory: Memory, (stream, device): (StreamId, DeviceId), buffer: Buffer<u8>) {
        self.streams.devices.insert(stream, device);
        self.memory.allocated_on.insert(memory, stream);
        self.memory.held.insert(memory, Held::Buffer(buffer));
    }

    /// An event that was recorded.
    pub fn give_event(&mut self, id: EventId, event: Event) {
        self.events.recorded.insert(id, event);
    }

    /// A pool.
    pub fn give_pool(&mut self, id: PoolId, pool: Pool) {
        self.memory.pools.insert(id, pool);
    }

    /// Takes a buffer out of the program, to which it is gone.
    pub fn take_buffer(&mut self, memory: Memory) -> Option<Buffer<u8>> {
        let memory = self.current(memory);
        let held = self.memory.held.get_mut(&memory)?;
        let Held::Buffer(buffer) = held else { return None };
        let gone = Held::Gone { address: buffer.address(), view: buffer.view() };
        match std::mem::replace(held, gone) {
            Held::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// A buffer that the program has.
    pub fn buffer(&self, memory: Memory) -> Option<&Buffer<u8>> {
        match self.memory.held.get(&self.current(memory)) {
            Some(Held::Buffer(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// A stream that the program has.
    pub fn stream_of(&self, id: StreamId) -> Option<&Stream> {
        self.streams.all.get(&id)
    }

    /// An event that the program has recorded.
    pub fn event_of(&self, id: EventId) -> Option<&Event> {
        self.events.recorded.get(&id)
    }

    /// A graph that the program has: one that was captured is there where the capture ended well.
    pub fn graph_of(&self, id: GraphId) -> Option<&Graph> {
        self.graphs.all.get(&id)
    }

    /// Whether the program has an instance.
    pub fn has_exec(&self, id: ExecId) -> bool {
        self.instances.all.contains_key(&id)
    }

    /// Drops all that the program has, in one of some orders.
    pub fn drop_in_order(self, order: usize) {
        let Run { memory, devices, streams, events, graphs, instances, .. } = self;
        let mut parts: [Box<dyn std::any::Any>; 6] = [
            Box::new(memory),
            Box::new(devices),
            Box::new(streams),
            Box::new(events),
            Box::new(graphs),
            Box::new(instances),
        ];
        parts.rotate_left(order % 6);
        if order / 6 % 2 == 1 {
            parts.reverse();
        }
        parts.into_iter().for_each(drop);
    }
}
