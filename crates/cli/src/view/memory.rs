//! The memory of a traced program: its lives, their begins and ends, and their uses.
//!
//! Works on operations, without knowing which are wrong. A refused operation is drawn where it would be.

use millpond_core::ids::StreamId;
use millpond_core::op::{Access, Act, Memory, Name, Names, Op, What};

use super::graphs::Owned;
use super::scene::{Life, Use};
use super::traced::Builder;

/// The largest number of uses that are shown.
const USES_MAX: usize = 1 << 22;

impl Builder {
    pub(super) fn memory(&mut self, op: &Op, names: &Names, is_done: bool) {
        if is_done {
            self.host_act(&op.what);
        }
        match &op.what {
            What::StreamCreate { stream, .. } => {
                self.stream(*stream);
            }
            What::StreamName { stream, name } => {
                let number = self.stream(*stream) as usize;
                if let Some(text) = names.text(*name) {
                    self.scene.streams[number] = text.to_string();
                }
            }
            What::Alloc { memory, stream, bytes, name, .. } => {
                let stream = self.stream(*stream);
                self.begin(op, names, *memory, stream, *bytes, *name);
            }
            What::AllocNow { memory, bytes, name, .. } => {
                let host = self.stream(StreamId::HOST);
                self.begin(op, names, *memory, host, *bytes, *name);
                self.host_acts.insert((self.scene.lives.len() as u32 - 1, Act::Allocate), self.scene.steps);
            }
            What::SetName { memory, name } => {
                let text = self.name(names, Some(*name));
                if let Some(life) = self.life(*memory) {
                    life.name = text;
                }
                if let Some(Owned { graph, node, .. }) = self.nodes.get(memory) {
                    let (graph, node, called) = (*graph, *node, self.scene.strings[text as usize].clone());
                    if let Some(node) = self.find(graph).and_then(|graph| graph.nodes.get_mut(node)) {
                        node.label = format!("alloc {called}");
                    }
                    self.nodes.entry(*memory).and_modify(|owned| owned.name = called);
                }
            }
            What::Free { memory, stream, .. } => {
                let stream = self.stream(*stream);
                self.end(op, names, *memory, Some(stream));
            }
            What::FreeNow { memory } => {
                let host = self.stream(StreamId::HOST);
                self.end(op, names, *memory, Some(host));
            }
            What::Drop { memory } => self.end(op, names, *memory, None),
            What::Launch { stream, accesses, .. } | What::Copy { stream, accesses } => {
                let stream = self.stream(*stream);
                self.use_memory(accesses, stream);
            }
            What::HostAccess { accesses } => {
                let host = self.stream(StreamId::HOST);
                self.use_memory(accesses, host);
            }
            _ => {}
        }
    }

    /// Notes the step at which a host itself accessed or freed memory. Such an operation is not in a stream, so it is
    /// looked up later by the life and the kind of access.
    fn host_act(&mut self, what: &What) {
        let step = self.scene.steps;
        let mut note = |memory: &Memory, act: Act| {
            if let Some(&life) = self.lives.get(memory) {
                self.host_acts.insert((life, act), step);
            }
        };
        match what {
            What::FreeNow { memory } | What::Drop { memory } => note(memory, Act::Free),
            What::HostAccess { accesses } => accesses.iter().for_each(|access| note(&access.memory, access.act)),
            _ => {}
        }
    }

    fn life(&mut self, memory: Memory) -> Option<&mut Life> {
        let life = *self.lives.get(&memory)?;
        Some(&mut self.scene.lives[life as usize])
    }

    pub(super) fn begin(
        &mut self,
        op: &Op,
        names: &Names,
        memory: Memory,
        stream: u32,
        bytes: u64,
        name: Option<Name>,
    ) {
        let bytes = bytes.clamp(1, 1 << 47);
        let life = Life {
            born: self.scene.steps,
            freed: None,
            bytes,
            stream,
            free_stream: stream,
            // A life for which there is no room is drawn at the bottom.
            address: self.room.take(bytes, 1).unwrap_or(0),
            name: self.name(names, name),
            site: self.place(op.place, names),
            free_site: 0,
        };
        let number = self.scene.lives.len() as u32;
        self.scene.lives.push(life);
        self.lives.insert(memory, number);
        self.begun.push((memory.id, number));
    }

    fn end(&mut self, op: &Op, names: &Names, memory: Memory, stream: Option<u32>) {
        let site = self.place(op.place, names);
        if let Some(number) = self.lives.remove(&memory) {
            self.end_life(number, site, stream);
        }
    }

    pub(super) fn end_life(&mut self, number: u32, site: u32, stream: Option<u32>) {
        let life = &mut self.scene.lives[number as usize];
        if life.freed.is_none() {
            life.freed = Some(self.scene.steps.max(life.born + 1));
            (life.free_stream, life.free_site) = (stream.unwrap_or(life.stream), site);
            self.room.give(life.address, life.address + life.bytes);
        }
    }

    fn use_memory(&mut self, accesses: &[Access], stream: u32) {
        for access in accesses {
            if let Some(&life) = self.lives.get(&access.memory)
                && self.scene.uses.len() < USES_MAX
            {
                let (step, writes) = (self.scene.steps, access.act != Act::Read);
                self.scene.uses.push(Use { life, step, stream, writes });
            }
        }
    }
}
