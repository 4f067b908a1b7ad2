//! Handles that a program gets from outside or gives away: those of another thread, or of another program.
//!
//! The program does not know what is done with them elsewhere. The caller that gives a handle passes on what the
//! program knows of it.

use millpond::graph::Graph;
use millpond::{Buffer, Device, Event, Pool, Stream};
use millpond_core::ids::{DeviceId, EventId, ExecId, GraphId, PoolId, StreamId};
use millpond_core::op::Memory;

use crate::{Held, Run};

impl Run {
    /// Gives a further device. It must be given before an operation names it.
    pub fn give_device(&mut self, id: DeviceId, device: Device) {
        self.devices.others.insert(id, device);
    }

    /// Gives a stream of a device.
    pub fn give_stream(&mut self, id: StreamId, device: DeviceId, stream: Stream) {
        self.streams.devices.insert(id, device);
        self.streams.all.insert(id, stream);
    }

    /// Gives a buffer, as if it had been allocated on this stream. Of the stream only the device counts.
    pub fn give_buffer(&mut self, memory: Memory, (stream, device): (StreamId, DeviceId), buffer: Buffer<u8>) {
        self.streams.devices.insert(stream, device);
        self.memory.allocated_on.insert(memory, stream);
        self.memory.held.insert(memory, Held::Buffer(buffer));
    }

    /// Gives an event that was recorded.
    pub fn give_event(&mut self, id: EventId, event: Event) {
        self.events.recorded.insert(id, event);
    }

    /// Gives a pool.
    pub fn give_pool(&mut self, id: PoolId, pool: Pool) {
        self.memory.pools.insert(id, pool);
    }

    /// Takes a buffer from the program. To the program the buffer is then gone.
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

    /// Returns a buffer of the program.
    pub fn buffer(&self, memory: Memory) -> Option<&Buffer<u8>> {
        match self.memory.held.get(&self.current(memory)) {
            Some(Held::Buffer(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// Returns a stream of the program.
    pub fn stream_of(&self, id: StreamId) -> Option<&Stream> {
        self.streams.all.get(&id)
    }

    /// Returns an event that the program has recorded.
    pub fn event_of(&self, id: EventId) -> Option<&Event> {
        self.events.recorded.get(&id)
    }

    /// Returns a graph of the program. A captured graph exists if its capture ended without an error.
    pub fn graph_of(&self, id: GraphId) -> Option<&Graph> {
        self.graphs.all.get(&id)
    }

    /// Returns `true` if the program has this instance.
    pub fn has_exec(&self, id: ExecId) -> bool {
        self.instances.all.contains_key(&id)
    }

    /// Drops everything that the program has, in the order with this number.
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
