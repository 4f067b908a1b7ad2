//! PyTorch memory snapshots: what `torch.cuda.memory._dump_snapshot` writes after `_record_memory_history`.
//!
//! The pickle holds a dict; `device_traces` has one list of entries for each device. Of an entry, `action`, `addr`,
//! `size` (as asked for), `stream` and `time_us` matter. The actions:
//!
//! | action | here |
//! |---|---|
//! | `alloc` | an allocation |
//! | `free_requested` | passed over: other streams may still use the block, and PyTorch keeps it until they are done |
//! | `free_completed` (`free`) | the free: from here on the block may be used again |
//! | `segment_*` | what PyTorch's own allocator reserved (`history.rs`, with the `frames` of each entry) |
//! | `oom`, `snapshot`, `workspace_snapshot` | passed over |
//!
//! The history is a ring: it may have lost its beginning, so frees of what it never saw allocated are left out and
//! counted; so are the blocks in `segments` that live and that it never saw. A place counted by the recorder is an
//! entry of the device's list, from 0.

use std::collections::HashSet;

use millpond_core::trace::Fault;

use super::around::{self, Stage};
use super::fault;
use super::history::{self, Histories};
use super::input::shown;
use super::pickle::{Pickle, Value};
use super::steps::Steps;
use super::{Format, Place, Recorded, Refusal};

const RECORD: &str = "call torch.cuda.memory._record_memory_history() before the program allocates, and \
    torch.cuda.memory._dump_snapshot(\"file\") after it ran";

/// Reads a snapshot: one program for each device that has events.
///
/// # Errors
/// Where the pickle is broken, holds more than plain data or is no snapshot, with the byte.
pub fn read(name: &str, bytes: &[u8]) -> Result<Vec<Recorded>, Refusal> {
    let pickle = Pickle::read(bytes)?;
    let wrong = |value: Value, reason: &str| Refusal::new(pickle.place(value), reason).help(RECORD);
    let top = pickle.top();
    if pickle.entries(top).is_none() {
        return Err(wrong(top, "the pickle is not a snapshot: it holds no dict"));
    }
    let traces = pickle.under(top, "device_traces");
    let traces = traces.ok_or_else(|| wrong(top, "the snapshot has no `device_traces`: no history was recorded"))?;
    let devices = pickle.items(traces).ok_or_else(|| wrong(top, "`device_traces` is not a list"))?;
    let (mut found, mut met, segments) = (Vec::new(), HashSet::new(), history::segments(&pickle));
    let stages = around::stages(&pickle);
    for (gpu, &device) in devices.iter().enumerate() {
        let entries = pickle.items(device).ok_or_else(|| wrong(traces, "a device's trace is not a list"))?;
        if let Value::List(node) | Value::Tuple(node) = device
            && !entries.is_empty()
            && !met.insert(node)
        {
            return Err(wrong(traces, "two devices have one list of events"));
        }
        let segments = segments.get(&(gpu as u64)).map_or(&[][..], Vec::as_slice);
        let stages = stages.get(&(gpu as u64)).map_or(&[][..], Vec::as_slice);
        let entries = Entries { pickle: &pickle, segments, stages, gpu: gpu as u32, entries };
        found.extend(entries.read(name)?);
    }
    if found.is_empty() {
        return Err(wrong(traces, "no device has any allocation in its history"));
    }
    if let [only] = &mut found[..] {
        only.gpu = None;
    }
    Ok(found)
}

/// The history of one device.
struct Entries<'a> {
    pickle: &'a Pickle<'a>,
    segments: &'a [Value],
    stages: &'a [Stage],
    gpu: u32,
    entries: &'a [Value],
}

impl Entries<'_> {
    /// The device's program, if there is an allocation in it.
    fn read(&self, name: &str) -> Result<Option<Recorded>, Refusal> {
        let mut steps = Steps::new();
        let (mut pending, mut history) = (HashSet::new(), Histories::new(self.pickle, self.segments));
        let mut times: Option<(f64, f64)> = None;
        for index in 0..self.entries.len() {
            if let Some(now) = self.step(&mut steps, (&mut pending, &mut history), index)? {
                times = Some((times.map_or(now, |(first, _)| first), now));
            }
        }
        steps.skipped.pending_frees = pending.len() as u64;
        let history = history.finish(self.segments, self.stages, |address| steps.is_live(address));
        let (program, skipped) = match steps.finish(name) {
            Ok(program) => program,
            Err(Fault::Empty) => return Ok(None),
            Err(fault) => return Err(fault::refused(Place::Whole, &fault, address, "entry")),
        };
        let seconds = times.map(|(first, last)| (last - first) / 1e6).filter(|seconds| *seconds > 0.0);
        Ok(Some(Recorded {
            program: program.with_seconds(seconds),
            format: Format::Snapshot,
            gpu: Some(self.gpu),
            skipped,
            recorded_reserved_bytes: history.peak_reserved(),
            history: Some(history),
        }))
    }

    /// One entry; its time in microseconds.
    fn step(
        &self,
        steps: &mut Steps,
        (pending, history): (&mut HashSet<u64>, &mut Histories<'_>),
        index: usize,
    ) -> Result<Option<f64>, Refusal> {
        let (entry, before, earlier) = (self.entries[index], steps.len(), steps.skipped.earlier_frees);
        let action = self.field(index, "action")?;
        let action = self.pickle.text(action).ok_or_else(|| self.wrong(index, "`action` is not text"))?;
        let place = index as u64;
        let done = match action {
            b"alloc" => {
                let (key, bytes) = (self.number(index, "addr")?, self.number(index, "size")?);
                steps.alloc(key, bytes, self.number(index, "stream")?, place)
            }
            b"free_completed" | b"free" => {
                let key = self.number(index, "addr")?;
                pending.remove(&key);
                steps.free_if_seen(key, Some(self.number(index, "stream")?), place)
            }
            b"free_requested" => {
                let key = self.number(index, "addr")?;
                if steps.is_live(key) {
                    pending.insert(key);
                }
                Ok(())
            }
            b"oom" => {
                steps.skipped.failed_allocs += 1;
                Ok(())
            }
            b"snapshot" | b"workspace_snapshot" => Ok(()),
            other if other.starts_with(b"segment_") => {
                let at = (self.number(index, "addr").unwrap_or(0), self.number(index, "size").unwrap_or(0));
                history.segment(other, at, before as u64);
                Ok(())
            }
            _ => {
                steps.skipped.unknown_entries += 1;
                Ok(())
            }
        };
        let unit = if self.gpu == 0 { "entry".to_owned() } else { format!("gpu {} entry", self.gpu) };
        done.map_err(|fault| fault::refused(self.pickle.place(entry), &fault, address, &unit))?;
        if steps.len() > before {
            history.event(entry);
        }
        if steps.skipped.earlier_frees > earlier {
            history.earlier(self.number(index, "size").unwrap_or(0));
        }
        Ok(match self.pickle.under(entry, "time_us") {
            Some(Value::Int(time)) => Some(time as f64),
            _ => None,
        })
    }

    fn field(&self, index: usize, key: &str) -> Result<Value, Refusal> {
        let entry = self.entries[index];
        if self.pickle.entries(entry).is_none() {
            return Err(self.wrong(index, "not a dict"));
        }
        self.pickle.under(entry, key).ok_or_else(|| self.wrong(index, &format!("no `{key}`")))
    }

    /// A number that counts or addresses something.
    fn number(&self, index: usize, key: &str) -> Result<u64, Refusal> {
        match self.field(index, key)? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| self.wrong(index, &format!("`{key}` is negative ({number})")))
            }
            Value::Huge => Err(self.wrong(index, &format!("`{key}` has more than 63 bits"))),
            other => Err(self.wrong(index, &format!("`{key}` is not a number but {}", self.kind(other)))),
        }
    }

    fn kind(&self, value: Value) -> String {
        match value {
            Value::None => "None".to_owned(),
            Value::Bool(_) => "a truth value".to_owned(),
            Value::Int(_) | Value::Huge => "a whole number".to_owned(),
            Value::Float(number) => format!("{number}"),
            Value::Text(..) => {
                format!("the text `{}`", shown(&String::from_utf8_lossy(self.pickle.text(value).unwrap_or(&[]))))
            }
            Value::Bytes => "bytes".to_owned(),
            Value::List(_) | Value::Tuple(_) | Value::Dict(_) => "a container".to_owned(),
        }
    }

    #[cold]
    fn wrong(&self, index: usize, reason: &str) -> Refusal {
        let place = self.pickle.place(self.entries[index]);
        Refusal::new(place, format!("entry {index} of gpu {}: {reason}", self.gpu))
            .help("the file is damaged, or written by a version of PyTorch that is not known: write it again")
    }
}

fn address(key: u64) -> String {
    format!("address {key:#x}")
}
