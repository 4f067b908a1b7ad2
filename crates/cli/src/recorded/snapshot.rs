//! PyTorch memory snapshots: the files of `torch.cuda.memory._dump_snapshot` after `_record_memory_history`.
//!
//! The pickle holds a dict; `device_traces` has one list of entries for each device. Of an entry, `action`, `addr`,
//! `size` (as requested), `stream` and `time_us` are used. The actions:
//!
//! | action | here |
//! |---|---|
//! | `alloc` | an allocation |
//! | `free_requested` | ignored: other streams may still use the block, and PyTorch keeps it until they are done |
//! | `free_completed` (`free`) | the free: from here on the block may be used again |
//! | `segment_*` | memory that PyTorch's own allocator reserved (`history.rs`, with the `frames` of each entry) |
//! | `oom`, `snapshot`, `workspace_snapshot` | ignored |
//!
//! The history is a ring and may have lost its beginning. Frees of memory whose allocation it does not have are left
//! out and counted. So are the live blocks in `segments` that it does not have. The recorder's positions are indexes
//! into the device's list of entries, from 0.

use std::collections::HashSet;

use super::around::{self, Stage};
use super::history::{self, Histories};
use super::input::shown;
use super::pickle::{Pickle, Value};
use super::program::{At, Keys, Recorder};
use super::{Format, Place, Recorded, Refusal};

const RECORD: &str = "call torch.cuda.memory._record_memory_history() before the program allocates, and \
    torch.cuda.memory._dump_snapshot(\"file\") after it ran";

/// Reads a snapshot: one program for each device that has events.
///
/// # Errors
/// The pickle is broken, holds more than plain data or is not a snapshot. The refusal has the byte.
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
    /// Returns the device's program, if it has an allocation.
    fn read(&self, name: &str) -> Result<Option<Recorded>, Refusal> {
        let unit = if self.gpu == 0 { "entry".to_owned() } else { format!("gpu {} entry", self.gpu) };
        let mut recorder = Recorder::new(Keys::Recycled, |address| format!("address {address:#x}"), unit);
        let (mut pending, mut history) = (HashSet::new(), Histories::new(self.pickle, self.segments));
        let mut times: Option<(f64, f64)> = None;
        for index in 0..self.entries.len() {
            if let Some(now) = self.step(&mut recorder, (&mut pending, &mut history), index)? {
                times = Some((times.map_or(now, |(first, _)| first), now));
            }
        }
        if recorder.len() == 0 {
            return Ok(None);
        }
        recorder.skipped.pending_frees = pending.len() as u64;
        let history = history.finish(self.segments, self.stages, |address| recorder.is_live(address));
        let mut recorded = Recorded::new(Format::Snapshot, recorder.finish(name, Place::Whole)?);
        let seconds = times.map(|(first, last)| (last - first) / 1e6);
        recorded.program.seconds = seconds.filter(|seconds| *seconds > 0.0);
        recorded.gpu = Some(self.gpu);
        recorded.recorded_reserved_bytes = history.peak_reserved();
        recorded.history = Some(history);
        Ok(Some(recorded))
    }

    /// Reads one entry. Returns its time in microseconds.
    fn step(
        &self,
        recorder: &mut Recorder,
        (pending, history): (&mut HashSet<u64>, &mut Histories<'_>),
        index: usize,
    ) -> Result<Option<f64>, Refusal> {
        let (entry, before, earlier) = (self.entries[index], recorder.len(), recorder.skipped.earlier_frees);
        let action = self.field(index, "action")?;
        let action = self.pickle.text(action).ok_or_else(|| self.wrong(index, "`action` is not text"))?;
        let at = At { place: self.pickle.place(entry), number: index as u64 };
        match action {
            b"alloc" => {
                let (key, bytes) = (self.number(index, "addr")?, self.number(index, "size")?);
                recorder.alloc(key, bytes, self.number(index, "stream")?, at)?;
            }
            b"free_completed" | b"free" => {
                let key = self.number(index, "addr")?;
                pending.remove(&key);
                recorder.free_if_seen(key, Some(self.number(index, "stream")?), at)?;
            }
            b"free_requested" => {
                let key = self.number(index, "addr")?;
                if recorder.is_live(key) {
                    pending.insert(key);
                }
            }
            b"oom" => recorder.skipped.failed_allocs += 1,
            b"snapshot" | b"workspace_snapshot" => {}
            other if other.starts_with(b"segment_") => {
                let at = (self.number(index, "addr").unwrap_or(0), self.number(index, "size").unwrap_or(0));
                history.segment(other, at, before as u64);
            }
            _ => recorder.skipped.unknown_entries += 1,
        }
        if recorder.len() > before {
            history.event(entry);
        }
        if recorder.skipped.earlier_frees > earlier {
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

    /// Returns a field that is a count, a size or an address.
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
