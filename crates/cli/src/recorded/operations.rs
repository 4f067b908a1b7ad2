//! Operation traces: what a program wrote with `MILLPOND_TRACE`, or `millpond record` wrote of any CUDA program.
//!
//! Of all that is in them the allocations and frees count: those in the order of streams, and those of a device at once
//! (`cudaMalloc`), as allocations of the device's default stream. Memory of graphs and captures, which is placed with
//! its graph, and memory of the host are left out and counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;

use millpond_core::ids::{EventId, GraphId, StreamId};
use millpond_core::op::{Memory, Op, Ops, Space, What};
use millpond_core::trace::ops::MAGIC;

use super::fault;
use super::steps::Steps;
use super::{Format, Place, Recorded, Refusal};
use crate::operation_trace::Trace;

/// Whether a file begins as a trace does.
pub(crate) fn is_first(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Reads a trace: one program for each device that has allocations. What a stopped program had flushed counts.
///
/// # Errors
/// Where the trace is damaged, or has no allocation.
pub fn read(name: &str, source: impl BufRead) -> Result<Vec<Recorded>, Refusal> {
    let (mut trace, mut programs) = (Trace::new(source), Programs::default());
    while let Some(op) = trace.next_op()? {
        programs.step(&op)?;
    }
    if programs.steps == 0 {
        return Err(trace.cut().unwrap_or_else(|| Refusal::no_operation("serve")));
    }
    programs.finish(name, trace.is_whole())
}

/// Programs by device, and what is known while the operations go by.
#[derive(Default)]
struct Programs {
    by_device: BTreeMap<u32, Steps>,
    devices: HashMap<StreamId, u32>,
    /// The device of each live allocation that counts.
    live: HashMap<Memory, u32>,
    /// Streams that are captured, and events of captures, with what is captured; and the other way round.
    captured: HashMap<StreamId, GraphId>,
    recorded: HashMap<EventId, GraphId>,
    captures: HashMap<GraphId, (Vec<StreamId>, Vec<EventId>)>,
    /// Memory that does not count: of captures, and of the host.
    other: HashSet<Memory>,
    left_out: u64,
    steps: u64,
}

/// What an allocation is called.
fn key(memory: Memory) -> u64 {
    u64::from(memory.id.0) << 32 | memory.generation & 0xFFFF_FFFF
}

impl Programs {
    fn step(&mut self, op: &Op) -> Result<(), Refusal> {
        self.steps += 1;
        match op.what {
            What::StreamCreate { stream, device, .. } => drop(self.devices.insert(stream, device.0)),
            What::CaptureBegin { stream, graph, .. } => self.capture(stream, graph),
            What::CaptureEnd { stream } => self.end_capture(stream),
            What::EventRecord { event, stream, .. } => match self.captured.get(&stream) {
                Some(graph) => {
                    if self.recorded.insert(event, *graph) != Some(*graph) {
                        self.captures.entry(*graph).or_default().1.push(event);
                    }
                }
                None => drop(self.recorded.remove(&event)),
            },
            What::EventWait { event, stream, external: false } => {
                if let Some(graph) = self.recorded.get(&event) {
                    self.capture(stream, *graph);
                }
            }
            What::Alloc { memory, stream, bytes, .. } => match self.captured.contains_key(&stream) {
                true => self.leave_out(memory),
                false => self.alloc(memory, bytes, self.devices.get(&stream).copied().unwrap_or(0), stream)?,
            },
            What::AllocNow { memory, space: Space::Host, .. } => self.leave_out(memory),
            What::AllocNow { memory, space, bytes, .. } => {
                let device = if let Space::Device(device) = space { device.0 } else { 0 };
                self.alloc(memory, bytes, device, StreamId::LEGACY)?
            }
            What::Free { memory, stream, .. } if !self.captured.contains_key(&stream) => {
                self.free(memory, Some(stream))?
            }
            What::FreeNow { memory } | What::Drop { memory } => self.free(memory, None)?,
            _ => {}
        }
        Ok(())
    }

    fn capture(&mut self, stream: StreamId, graph: GraphId) {
        if self.captured.insert(stream, graph) != Some(graph) {
            self.captures.entry(graph).or_default().0.push(stream);
        }
    }

    /// The capture that a stream is in ends, for all that take part.
    fn end_capture(&mut self, stream: StreamId) {
        let Some(graph) = self.captured.get(&stream).copied() else { return };
        let (streams, events) = self.captures.remove(&graph).unwrap_or_default();
        // What takes part in another one by now stays there.
        for stream in streams {
            if self.captured.get(&stream) == Some(&graph) {
                self.captured.remove(&stream);
            }
        }
        for event in events {
            if self.recorded.get(&event) == Some(&graph) {
                self.recorded.remove(&event);
            }
        }
    }

    fn leave_out(&mut self, memory: Memory) {
        self.left_out += 1;
        self.other.insert(memory);
    }

    fn steps(&mut self, device: u32) -> &mut Steps {
        self.by_device.entry(device).or_insert_with(Steps::new)
    }

    fn alloc(&mut self, memory: Memory, bytes: u64, device: u32, stream: StreamId) -> Result<(), Refusal> {
        let at = self.steps;
        self.live.insert(memory, device);
        let done = self.steps(device).alloc(key(memory), bytes, stream.0.into(), at);
        done.map_err(|fault| refuse(at, &fault))
    }

    /// A free of what does not live is the program's mistake, which `check` says: it changes nothing here.
    fn free(&mut self, memory: Memory, stream: Option<StreamId>) -> Result<(), Refusal> {
        if self.other.remove(&memory) {
            return Ok(());
        }
        let Some(device) = self.live.remove(&memory) else { return Ok(()) };
        let at = self.steps;
        let done = self.steps(device).free(key(memory), stream.map(|stream| stream.0.into()), at);
        done.map_err(|fault| refuse(at, &fault))
    }

    fn finish(self, name: &str, is_whole: bool) -> Result<Vec<Recorded>, Refusal> {
        let (steps, is_alone) = (self.steps, self.by_device.len() == 1);
        let mut found = Vec::new();
        for (at, (device, program)) in self.by_device.into_iter().enumerate() {
            let (program, mut skipped) = program.finish(name).map_err(|fault| refuse(steps, &fault))?;
            skipped.other_memory = if at == 0 { self.left_out } else { 0 };
            skipped.is_cut = !is_whole;
            let gpu = (!is_alone).then_some(device);
            found.push(Recorded {
                program,
                format: Format::Operations,
                gpu,
                skipped,
                recorded_reserved_bytes: None,
                history: None,
            });
        }
        match found.is_empty() {
            false => Ok(found),
            true if !is_whole => Err(Refusal::new(Place::Whole, "no allocation is in what there is of the trace")
                .help("the program was stopped, or the file was cut: trace a whole run")),
            true => Err(Refusal::new(Place::Whole, "no allocation is in the trace: there is nothing to serve")
                .help("of PyTorch, record with its backend cudaMallocAsync, so that each tensor is an allocation")),
        }
    }
}

fn refuse(step: u64, fault: &millpond_core::trace::Fault) -> Refusal {
    fault::refused(Place::Whole, fault, |memory| format!("allocation {}", memory >> 32), "operation")
        .help(format!("operation {step}: record the program again"))
}

#[cfg(test)]
mod tests {
    use millpond_core::ids::{AllocId, DeviceId, HostId, PoolId};
    use millpond_core::op::{CaptureMode, Mark, Names, Place as At, StreamRole, Trust};
    use millpond_core::trace::ops::Writer;

    use super::*;

    fn traced(all: &[What]) -> Result<Vec<Recorded>, Refusal> {
        let mut writer = Writer::new();
        for what in all {
            writer.push(&Op { host: HostId(0), place: At::Unknown, what: what.clone() }, &Names::new());
        }
        read("traced", &writer.finish()[..])
    }

    fn memory(number: u32) -> Memory {
        Memory { id: AllocId(number), generation: 0 }
    }

    fn stream(number: u32, device: u32) -> What {
        What::StreamCreate { stream: StreamId(number), role: StreamRole::NonBlocking, device: DeviceId(device) }
    }

    fn alloc(number: u32, on: u32) -> What {
        What::Alloc { memory: memory(number), pool: PoolId(0), stream: StreamId(on), bytes: 4096, name: None }
    }

    #[test]
    fn each_device_has_a_program() {
        let free = What::Free { memory: memory(1), stream: StreamId(1), trust: Trust::None };
        let found = traced(&[stream(1, 0), stream(2, 1), alloc(0, 2), alloc(1, 1), free]).expect("a right trace");
        let events: Vec<_> = found.iter().map(|it| (it.gpu, it.program.events().len())).collect();
        assert_eq!(events, [(Some(0), 2), (Some(1), 1)]);
    }

    #[test]
    fn memory_that_is_there_at_once_is_its_devices() {
        let now = |number, space| What::AllocNow { memory: memory(number), space, bytes: 4096, name: None };
        let on = |device| Space::Device(DeviceId(device));
        let found = traced(&[now(0, on(0)), now(1, on(1)), now(2, on(1)), now(3, Space::Host)]).expect("a right trace");
        let events: Vec<_> = found.iter().map(|it| (it.gpu, it.program.events().len())).collect();
        assert_eq!(events, [(Some(0), 1), (Some(1), 2)]);
    }

    #[test]
    fn what_joins_a_capture_by_an_event_is_the_graphs() {
        let event = EventId(0);
        let mode = CaptureMode::Global;
        let found = traced(&[
            stream(1, 0),
            stream(2, 0),
            What::CaptureBegin { stream: StreamId(1), graph: GraphId(0), mode, symbolic: false },
            What::EventRecord { event, stream: StreamId(1), external: false, mark: Mark::default() },
            What::EventWait { event, stream: StreamId(2), external: false },
            alloc(0, 2),
            What::Free { memory: memory(0), stream: StreamId(2), trust: Trust::None },
            What::CaptureEnd { stream: StreamId(1) },
            What::EventWait { event, stream: StreamId(2), external: false },
            alloc(1, 2),
        ]);
        let found = found.expect("a right trace");
        assert_eq!((found.len(), found[0].program.events().len(), found[0].skipped.other_memory), (1, 1, 1));
        let nothing = traced(&[stream(1, 0)]).expect_err("no allocation is there");
        assert!(nothing.to_string().contains("nothing to serve"));
    }
}
