//! The parts of a PyTorch snapshot that surround its events: the time of each event, the annotations
//! (`record_function`) that were open, and the PyTorch pools that the memory came from.
//!
//! Works on pickled values, not on programs. A snapshot has only the segments that exist at its end. If a segment was
//! given back, or a later one took its addresses, the pool of its memory is unknown.

use std::collections::HashMap;

use super::input::shown_up_to;
use super::pickle::{Pickle, Value, number};
use crate::view::Span;

/// The largest number of annotations of a snapshot that are kept.
const ANNOTATIONS_MAX: usize = 10_000;
/// The longest name of an annotation, in characters.
const NAME_MAX: usize = 200;

/// The data around the events of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Around {
    /// The time of each event in microseconds since the first one, ascending; empty if no event has a time.
    pub times: Vec<u64>,
    /// The annotations, sorted by their begin.
    pub annotations: Vec<Span>,
    /// The names of the pools; empty if there is only the default pool.
    pub pools: Vec<String>,
    /// The pool of each event's memory: its index in `pools` plus 1, or 0 if it is unknown.
    pub event_pools: Vec<u32>,
}

/// The begin or the end of an annotation. These are in the order of the file.
pub(super) struct Stage {
    name: Value,
    is_end: bool,
    time: i64,
}

/// Returns the begins and ends of annotations, by device.
pub(super) fn stages(pickle: &Pickle<'_>) -> HashMap<u64, Vec<Stage>> {
    let mut by_device: HashMap<u64, Vec<Stage>> = HashMap::new();
    let all = pickle.under(pickle.top(), "external_annotations").and_then(|all| pickle.items(all)).unwrap_or_default();
    for &entry in all.iter().take(2 * ANNOTATIONS_MAX) {
        let (name, stage) = (pickle.under(entry, "name"), pickle.under(entry, "stage"));
        let is_end = match stage.and_then(|stage| pickle.text(stage)) {
            Some(b"START") => false,
            Some(b"END") => true,
            _ => continue,
        };
        if let (Some(name @ Value::Text(..)), Some(Value::Int(time))) = (name, pickle.under(entry, "time_us")) {
            let device = number(pickle.under(entry, "device"));
            by_device.entry(device).or_default().push(Stage { name, is_end, time });
        }
    }
    by_device
}

/// A segment that exists at the end of the snapshot.
struct Segment {
    from: u64,
    to: u64,
    pool: u32,
    /// The first event at which it existed.
    since: usize,
}

/// Collects an [`Around`].
pub(super) struct Surroundings {
    around: Around,
    /// The time of the first event that has one.
    begin: Option<i64>,
    segments: Vec<Segment>,
    pools: Vec<(u64, u64)>,
    /// The segment of each event's address: its index plus 1, or 0.
    held: Vec<u32>,
}

impl Surroundings {
    /// Starts for a device with these segments at the end.
    pub(super) fn new(pickle: &Pickle<'_>, segments: &[Value]) -> Self {
        let mut pools: Vec<(u64, u64)> = Vec::new();
        let mut places: HashMap<(u64, u64), u32> = HashMap::new();
        let mut found: Vec<Segment> = Vec::new();
        for &segment in segments {
            let ids = pickle.under(segment, "segment_pool_id").and_then(|id| pickle.items(id));
            let Some(&[first, second]) = ids else { continue };
            let id = (number(Some(first)), number(Some(second)));
            let pool = *places.entry(id).or_insert_with(|| {
                pools.push(id);
                pools.len() as u32 - 1
            });
            let from = number(pickle.under(segment, "address"));
            let to = from.saturating_add(number(pickle.under(segment, "total_size")));
            found.push(Segment { from, to, pool, since: 0 });
        }
        // With the default pool alone there are no pools to tell apart.
        if pools.iter().all(|id| *id == (0, 0)) {
            (pools, found) = Default::default();
        }
        found.sort_by_key(|segment| segment.from);
        Self { around: Around::default(), begin: None, segments: found, pools, held: Vec::new() }
    }

    fn segment(&self, address: u64) -> Option<usize> {
        let at = self.segments.partition_point(|segment| segment.from <= address).checked_sub(1)?;
        (address < self.segments[at].to).then_some(at)
    }

    /// Adds an event of the program.
    pub(super) fn event(&mut self, pickle: &Pickle<'_>, entry: Value) {
        let before = self.around.times.last().copied().unwrap_or(0);
        let time = match pickle.under(entry, "time_us") {
            Some(Value::Int(time)) => self.since_begin(time),
            _ => before,
        };
        self.around.times.push(time.max(before));
        if !self.segments.is_empty() {
            let held = self.segment(number(pickle.under(entry, "addr")));
            self.held.push(held.map_or(0, |at| at as u32 + 1));
        }
    }

    fn since_begin(&mut self, time: i64) -> u64 {
        u64::try_from(time.saturating_sub(*self.begin.get_or_insert(time))).unwrap_or(0)
    }

    /// A segment was allocated at this address: earlier memory at its addresses belonged to another segment.
    pub(super) fn segment_alloc(&mut self, address: u64) {
        let event = self.around.times.len();
        if let Some(at) = self.segment(address) {
            self.segments[at].since = event;
        }
    }

    /// Returns the collected data.
    pub(super) fn finish(mut self, pickle: &Pickle<'_>, stages: &[Stage]) -> Around {
        if self.begin.is_none() {
            self.around.times.clear();
        }
        self.annotate(pickle, stages);
        let Self { mut around, segments, pools, held, .. } = self;
        let pool = |(event, held): (usize, u32)| {
            let segment = segments.get((held as usize).checked_sub(1)?)?;
            (event >= segment.since).then_some(segment.pool + 1)
        };
        around.event_pools = held.into_iter().enumerate().map(|it| pool(it).unwrap_or(0)).collect();
        let name = |(first, second)| match (first, second) {
            (0, 0) => "default pool".to_owned(),
            _ => format!("pool ({first}, {second})"),
        };
        around.pools = pools.into_iter().map(name).collect();
        around
    }

    /// Pairs begins with ends: an end closes the last open annotation of its name. An annotation that began before the
    /// history, or ended after it, is cut at the history's border.
    fn annotate(&mut self, pickle: &Pickle<'_>, stages: &[Stage]) {
        let Some(begin) = self.begin else { return };
        let (times, mut found) = (&self.around.times, Vec::new());
        let place = |time: i64| match u64::try_from(time.saturating_sub(begin)) {
            Ok(time) => times.partition_point(|&event| event < time) as u64,
            Err(_) => 0,
        };
        let mut open: HashMap<&[u8], Vec<(usize, i64)>> = HashMap::new();
        for stage in stages {
            let Some(name) = pickle.text(stage.name) else { continue };
            let named = |from, to| {
                let shown = &name[..name.len().min(4 * NAME_MAX)];
                Span { name: shown_up_to(NAME_MAX, &String::from_utf8_lossy(shown)), from, to, micros: None }
            };
            match (stage.is_end, open.entry(name).or_default()) {
                (false, open) => {
                    open.push((found.len(), stage.time));
                    found.push(named(place(stage.time), times.len() as u64));
                }
                (true, open) => match open.pop() {
                    Some((at, from)) => {
                        found[at].to = place(stage.time);
                        found[at].micros = u64::try_from(stage.time.saturating_sub(from)).ok();
                    }
                    None => found.push(named(0, place(stage.time))),
                },
            }
        }
        // An annotation without an event in it has no place.
        found.retain(|annotation| annotation.from < annotation.to);
        found.sort_by_key(|annotation| (annotation.from, u64::MAX - annotation.to));
        found.truncate(ANNOTATIONS_MAX);
        self.around.annotations = found;
    }
}
