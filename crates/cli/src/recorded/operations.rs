//! Operation traces, which a program wrote with `MILLPOND_TRACE` or `millpond record` wrote of any CUDA program.
//!
//! Only allocations and frees are used: stream-ordered ones, and immediate ones (`cudaMalloc`), which become
//! allocations on the device's default stream. Memory of graphs and captures, which is placed with its graph, and
//! memory of the host are left out and counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::BufRead;

use millpond_core::check::{Checker, Settings};
use millpond_core::ids::StreamId;
use millpond_core::op::{Memory, Names, Op, Ops, Space, What};
use millpond_core::trace::ops::MAGIC;

use super::program::{At, Keys, Recorder};
use super::{Format, Place, Recorded, Refusal};
use crate::operation_trace::Trace;

/// Returns `true` if a file begins as a trace does.
pub(crate) fn is_first(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Reads a trace: one program for each device with allocations. The part that a stopped program had flushed is used.
///
/// # Errors
/// The trace is damaged, or has no allocation.
pub fn read(name: &str, source: impl BufRead) -> Result<Vec<Recorded>, Refusal> {
    let (mut trace, mut programs) = (Trace::new(source), Programs::new());
    while let Some(op) = trace.next_op()? {
        programs.step(&op, trace.names())?;
    }
    if programs.steps == 0 {
        return Err(trace.cut().unwrap_or_else(|| Refusal::no_operation("serve")));
    }
    programs.finish(name, trace.is_whole())
}

/// The programs by device, and the state while the operations are read.
struct Programs {
    checker: Checker,
    by_device: BTreeMap<u32, Recorder>,
    /// The device of each live allocation that is used.
    live: HashMap<Memory, u32>,
    /// Memory that is left out: that of captures and of the host.
    other: HashSet<Memory>,
    left_out: u64,
    steps: u64,
}

/// Returns the key of an allocation.
fn key(memory: Memory) -> u64 {
    u64::from(memory.id.0) << 32 | memory.generation & 0xFFFF_FFFF
}

impl Programs {
    fn new() -> Self {
        // Only the state is needed here. `millpond check` reports what is wrong with the program.
        let settings = Settings { races: false, leaks: false, advice: false, unused_graphs: false };
        Self {
            checker: Checker::new(settings),
            by_device: BTreeMap::new(),
            live: HashMap::new(),
            other: HashSet::new(),
            left_out: 0,
            steps: 0,
        }
    }

    /// Adds an operation. The program made it even if the checker refuses it.
    fn step(&mut self, op: &Op, names: &Names) -> Result<(), Refusal> {
        self.steps += 1;
        let (effects, _) = self.checker.check_with_effects(op, names, &mut Vec::new());
        match op.what {
            What::Alloc { memory, .. } if effects.captured.is_some() => self.leave_out(memory),
            What::Alloc { memory, stream, bytes, .. } => {
                self.alloc(memory, bytes, effects.device.map_or(0, |device| device.0), stream)?;
            }
            What::AllocNow { memory, space: Space::Host, .. } => self.leave_out(memory),
            What::AllocNow { memory, space, bytes, .. } => {
                let device = if let Space::Device(device) = space { device.0 } else { 0 };
                self.alloc(memory, bytes, device, StreamId::LEGACY)?
            }
            What::Free { memory, stream, .. } if effects.captured.is_none() => self.free(memory, Some(stream))?,
            What::FreeNow { memory } | What::Drop { memory } => self.free(memory, None)?,
            _ => {}
        }
        Ok(())
    }

    fn leave_out(&mut self, memory: Memory) {
        self.left_out += 1;
        self.other.insert(memory);
    }

    fn alloc(&mut self, memory: Memory, bytes: u64, device: u32, stream: StreamId) -> Result<(), Refusal> {
        let at = self.at();
        self.live.insert(memory, device);
        let recorder = self.by_device.entry(device).or_insert_with(|| {
            Recorder::new(Keys::Recycled, |memory| format!("allocation {}", memory >> 32), "operation")
        });
        recorder.alloc(key(memory), bytes, stream.0.into(), at).map_err(|refusal| again(refusal, at.number))
    }

    /// A free of memory that is not live is the program's mistake, which `check` reports. It is ignored here.
    fn free(&mut self, memory: Memory, stream: Option<StreamId>) -> Result<(), Refusal> {
        if self.other.remove(&memory) {
            return Ok(());
        }
        let at = self.at();
        let recorder = self.live.remove(&memory).and_then(|device| self.by_device.get_mut(&device));
        let freed = recorder.map(|it| it.free(key(memory), stream.map(|stream| stream.0.into()), at));
        freed.transpose().map(drop).map_err(|refusal| again(refusal, at.number))
    }

    fn at(&self) -> At {
        At { place: Place::Whole, number: self.steps }
    }

    fn finish(self, name: &str, is_whole: bool) -> Result<Vec<Recorded>, Refusal> {
        let (steps, is_alone) = (self.steps, self.by_device.len() == 1);
        let mut found = Vec::new();
        for (at, (device, mut recorder)) in self.by_device.into_iter().enumerate() {
            recorder.skipped.other_memory = if at == 0 { self.left_out } else { 0 };
            recorder.skipped.is_cut = !is_whole;
            let program = recorder.finish(name, Place::Whole).map_err(|refusal| again(refusal, steps))?;
            let mut recorded = Recorded::new(Format::Operations, program);
            recorded.gpu = (!is_alone).then_some(device);
            found.push(recorded);
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

fn again(refusal: Refusal, operation: u64) -> Refusal {
    refusal.help(format!("operation {operation}: record the program again"))
}

#[cfg(test)]
mod tests {
    use millpond_core::ids::{AllocId, DeviceId, EventId, GraphId, HostId, PoolId};
    use millpond_core::op::{CaptureMode, EventKind, Place as Line, StreamRole, Trust};
    use millpond_core::trace::ops::Writer;

    use super::*;

    fn traced(all: &[What]) -> Result<Vec<Recorded>, Refusal> {
        let mut writer = Writer::new();
        for what in all {
            writer.push(&Op { host: HostId(0), place: Line::Unknown, what: what.clone() }, &Names::new());
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
        let events: Vec<_> = found.iter().map(|it| (it.gpu, it.program.events.len())).collect();
        assert_eq!(events, [(Some(0), 2), (Some(1), 1)]);
    }

    #[test]
    fn memory_that_is_there_at_once_is_its_devices() {
        let now = |number, space| What::AllocNow { memory: memory(number), space, bytes: 4096, name: None };
        let on = |device| Space::Device(DeviceId(device));
        let found = traced(&[now(0, on(0)), now(1, on(1)), now(2, on(1)), now(3, Space::Host)]).expect("a right trace");
        let events: Vec<_> = found.iter().map(|it| (it.gpu, it.program.events.len())).collect();
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
            What::EventRecord { event, stream: StreamId(1), external: false, kind: EventKind::default() },
            What::EventWait { event, stream: StreamId(2), external: false },
            alloc(0, 2),
            What::Free { memory: memory(0), stream: StreamId(2), trust: Trust::None },
            What::CaptureEnd { stream: StreamId(1) },
            What::EventWait { event, stream: StreamId(2), external: false },
            alloc(1, 2),
        ]);
        let found = found.expect("a right trace");
        assert_eq!((found.len(), found[0].program.events.len(), found[0].skipped.other_memory), (1, 1, 1));
        let nothing = traced(&[stream(1, 0)]).expect_err("no allocation is there");
        assert!(nothing.to_string().contains("nothing to serve"));
    }
}
