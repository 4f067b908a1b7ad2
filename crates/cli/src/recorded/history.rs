//! The data of a PyTorch snapshot beyond the program: the source frames of each event, the bytes that PyTorch's own
//! allocator had reserved, and the blocks that were live before the history began. `around.rs` has the rest.
//!
//! Works on pickled values, not on programs. Frames are shared, as the writer shares them. Each has at most
//! [`FRAME_MAX`] characters, so that the memory used stays in proportion to the file.

use std::collections::{HashMap, HashSet};

use super::around::{Around, Stage, Surroundings};
use super::input::shown_up_to;
use super::pickle::{Pickle, Value, number};

/// The longest frame, in characters.
const FRAME_MAX: usize = 200;
/// All frames together may be this many times as long as the file, or have this many bytes if that is more.
const SHOWN_TIMES: usize = 8;
const SHOWN_MIN: usize = 1 << 20;
/// The largest number of frames of a stack that are kept, the innermost first.
const DEPTH_MAX: usize = 64;

/// The history of a device; see the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The frames, as `function (file:line)`.
    pub frames: Vec<String>,
    /// The stacks: lists of indexes of frames, the innermost first. The first stack is empty.
    pub stacks: Vec<Vec<u32>>,
    /// The stack of each event of the program.
    pub events: Vec<u32>,
    /// The bytes that PyTorch's own allocator had reserved, each with the event from which on it applies.
    pub reserved: Vec<(u64, u64)>,
    /// The number of blocks that were live before the history began.
    pub earlier_blocks: u64,
    /// The bytes of these blocks.
    pub earlier_bytes: u64,
    /// The times, annotations and pools of the events.
    pub around: Around,
}

impl History {
    /// Returns the peak of the bytes that PyTorch's own allocator had reserved, if the snapshot has it.
    pub fn peak_reserved(&self) -> Option<u64> {
        self.reserved.iter().map(|&(_, bytes)| bytes).max().filter(|&bytes| bytes > 0)
    }

    /// Returns the frame of a stack that a reader looks for: the innermost Python frame that is not PyTorch's own.
    pub fn site(&self, stack: u32) -> Option<u32> {
        let stack = self.stacks.get(stack as usize)?;
        let is_python = |frame: &&u32| self.frames[**frame as usize].contains(".py:");
        let is_own = |frame: &&u32| {
            let text = &self.frames[**frame as usize];
            !text.contains("/torch/") && !text.contains("/site-packages/")
        };
        let found = stack.iter().filter(is_python).find(is_own).or_else(|| stack.iter().find(is_python));
        found.or_else(|| stack.first()).copied()
    }
}

/// Returns the segments of each device at the end of a snapshot.
pub(super) fn segments(pickle: &Pickle<'_>) -> HashMap<u64, Vec<Value>> {
    let mut by_device: HashMap<u64, Vec<Value>> = HashMap::new();
    let all = pickle.under(pickle.top(), "segments").and_then(|segments| pickle.items(segments)).unwrap_or_default();
    for &segment in all {
        by_device.entry(number(pickle.under(segment, "device"))).or_default().push(segment);
    }
    by_device
}

/// Collects a history.
pub(super) struct Histories<'a> {
    pickle: &'a Pickle<'a>,
    history: History,
    surroundings: Surroundings,
    /// The known frames, by name, file and line. `stacks` and `lists` have the known stacks: by their frames, and by
    /// their node in the pickle.
    frames: HashMap<(Text, Text, i64), u32>,
    /// The bytes of all frames.
    shown: usize,
    stacks: HashMap<Vec<u32>, u32>,
    lists: HashMap<u32, u32>,
    /// The change of the reserved bytes since the beginning of the history.
    change: i64,
    least: i64,
    changes: Vec<(u64, i64)>,
}

/// The range of a text in the pickle.
type Text = Option<(u32, u32)>;

impl<'a> Histories<'a> {
    /// Starts for a device with these segments at the end.
    pub(super) fn new(pickle: &'a Pickle<'a>, segments: &[Value]) -> Self {
        Self {
            pickle,
            surroundings: Surroundings::new(pickle, segments),
            history: History { stacks: vec![Vec::new()], ..History::default() },
            frames: HashMap::new(),
            shown: 0,
            stacks: HashMap::from([(Vec::new(), 0)]),
            lists: HashMap::new(),
            change: 0,
            least: 0,
            changes: Vec::new(),
        }
    }

    /// Adds an event of the program, given its entry.
    pub(super) fn event(&mut self, entry: Value) {
        let stack = self.pickle.under(entry, "frames").map_or(0, |frames| self.stack(frames));
        self.history.events.push(stack);
        self.surroundings.event(self.pickle, entry);
    }

    fn stack(&mut self, frames: Value) -> u32 {
        let (Value::List(node) | Value::Tuple(node)) = frames else { return 0 };
        if let Some(&stack) = self.lists.get(&node) {
            return stack;
        }
        let items = self.pickle.items(frames).unwrap_or_default();
        let held: Vec<u32> = items.iter().take(DEPTH_MAX).filter_map(|&frame| self.frame(frame)).collect();
        let stack = match self.stacks.get(&held) {
            Some(&stack) => stack,
            None => {
                self.history.stacks.push(held.clone());
                let stack = self.history.stacks.len() as u32 - 1;
                self.stacks.insert(held, stack);
                stack
            }
        };
        self.lists.insert(node, stack);
        stack
    }

    fn frame(&mut self, frame: Value) -> Option<u32> {
        let text = |key: &str| match self.pickle.under(frame, key) {
            Some(Value::Text(start, length)) => Some((start, length)),
            _ => None,
        };
        let (name, file) = (text("name"), text("filename"));
        let line = match self.pickle.under(frame, "line") {
            Some(Value::Int(line)) => line,
            _ => 0,
        };
        name.or(file)?;
        if let Some(&known) = self.frames.get(&(name, file, line)) {
            return Some(known);
        }
        let read = |text: Text| {
            let bytes =
                text.and_then(|(start, length)| self.pickle.text(Value::Text(start, length))).unwrap_or_default();
            shown_up_to(FRAME_MAX, &String::from_utf8_lossy(&bytes[..bytes.len().min(4 * FRAME_MAX)]))
        };
        let shown = match (read(name), read(file)) {
            (function, file) if file.is_empty() || file == "??" => function,
            (function, file) => format!("{function} ({file}:{line})"),
        };
        // A small file can name one long text in very many frames.
        self.shown += shown.len();
        if self.shown > SHOWN_MIN.max(SHOWN_TIMES * self.pickle.bytes()) {
            return None;
        }
        let number = self.history.frames.len() as u32;
        self.history.frames.push(shown);
        self.frames.insert((name, file, line), number);
        Some(number)
    }

    /// Before this event, PyTorch's own allocator took memory at this address from the device, or gave it back.
    pub(super) fn segment(&mut self, action: &[u8], (address, bytes): (u64, u64), event: u64) {
        if action == b"segment_alloc" {
            self.surroundings.segment_alloc(address);
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.change = match action {
            b"segment_alloc" | b"segment_map" => self.change.saturating_add(bytes),
            b"segment_free" | b"segment_unmap" => self.change.saturating_sub(bytes),
            _ => return,
        };
        self.least = self.least.min(self.change);
        self.changes.push((event, self.change));
    }

    /// Counts a free of a block that was live before the history began.
    pub(super) fn earlier(&mut self, bytes: u64) {
        self.history.earlier_blocks += 1;
        self.history.earlier_bytes = self.history.earlier_bytes.saturating_add(bytes);
    }

    /// Returns the history, together with the device's segments at the end, their blocks, and its annotations.
    /// `is_seen` returns `true` for an address at which the history has a live block.
    pub(super) fn finish(mut self, segments: &[Value], stages: &[Stage], is_seen: impl Fn(u64) -> bool) -> History {
        let (pickle, mut end, mut met) = (self.pickle, None, HashSet::new());
        for &segment in segments {
            let total = number(pickle.under(segment, "total_size"));
            end = Some(end.unwrap_or(0_u64).saturating_add(total));
            let blocks = pickle.under(segment, "blocks");
            // A file can name one list many times.
            let is_new = matches!(blocks, Some(Value::List(node) | Value::Tuple(node)) if met.insert(node));
            for &block in blocks.filter(|_| is_new).and_then(|blocks| pickle.items(blocks)).unwrap_or_default() {
                let state = pickle.under(block, "state").and_then(|state| pickle.text(state));
                let address = number(pickle.under(block, "address"));
                if state == Some(b"active_allocated") && address > 0 && !is_seen(address) {
                    self.earlier(number(pickle.under(block, "requested_size").or(pickle.under(block, "size"))));
                }
            }
        }
        // The bytes reserved at the end, minus the changes, are the bytes reserved at the beginning.
        let begin =
            end.map_or(0, |end| i64::try_from(end).unwrap_or(i64::MAX).saturating_sub(self.change)).max(-self.least);
        let bytes = |change: i64| begin.saturating_add(change).max(0) as u64;
        if end.is_some() || !self.changes.is_empty() {
            self.history.reserved.push((0, bytes(0)));
        }
        for &(event, change) in &self.changes {
            match self.history.reserved.last_mut() {
                Some(last) if last.0 == event => last.1 = bytes(change),
                _ => self.history.reserved.push((event, bytes(change))),
            }
        }
        self.history.around = self.surroundings.finish(pickle, stages);
        self.history
    }
}
