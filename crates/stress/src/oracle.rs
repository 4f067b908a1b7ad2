//! What is known beside the library: who comes after what, who owns which bytes, which kernels run, what has run.
//!
//! Kernels hold this and no handle of the library. It is naive on purpose: lists, and maps by address. Where several
//! threads use a stream at once it knows less than the library does, never more: it takes down what a call did after
//! the call, and what a call may rely on before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::finding::{finding, lock};
use crate::party::{Part, Party};
use millpond_reach::{Past, Point};

/// Set by a kernel when it has done its work.
pub type Done = Arc<AtomicBool>;

/// How a stream stands to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tie {
    /// It is that stream.
    Legacy,
    /// Ordered with it.
    Blocking,
    /// Not ordered with it.
    Free,
}

/// What the program knows of one stream.
#[derive(Debug)]
pub struct Line {
    /// Its number among all streams of the program.
    pub chain: usize,
    /// Its device.
    pub device: usize,
    /// How it stands to the legacy default stream.
    pub tie: Tie,
    /// What its next operation comes after.
    pub past: Mutex<Past>,
    /// Of the legacy default stream: what blocking streams come after.
    pub published: Mutex<Past>,
    /// Whether something happened to it that the program did not see: other threads use it, or kernels do.
    pub is_unsure: AtomicBool,
    /// Whether anything was ever done on it: what only its opener knew, the legacy default stream does not come after.
    pub has_worked: AtomicBool,
    pending: Mutex<VecDeque<(u64, Done)>>,
}

/// One use of a buffer.
#[derive(Clone, Debug)]
pub struct Use {
    /// Where.
    pub point: Point,
    /// What of it.
    pub part: Part,
    /// Whether it wrote.
    pub writes: bool,
    /// Whether it only ended a hold: nothing but a free must come after it.
    pub frees: bool,
    /// The other process that did it.
    pub party: Option<Arc<Party>>,
    /// Set when it has run; none for what has no kernel to say so.
    pub done: Option<Done>,
}

/// What was done to a range of addresses by who had it before.
#[derive(Clone, Debug)]
struct Former {
    end: u64,
    life: u64,
    uses: Arc<Vec<Use>>,
}

/// Who has which addresses: the live ones, and the former uses of the others.
#[derive(Debug, Default)]
struct Shadow {
    live: BTreeMap<u64, (u64, u64)>,
    former: BTreeMap<u64, Former>,
}

/// What was counted.
#[derive(Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct Figures {
    pub operations: AtomicU64,
    pub refusals: AtomicU64,
    pub words: AtomicU64,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Oracle {
    lines: Mutex<Vec<Arc<Line>>>,
    shadow: Mutex<Shadow>,
    /// Ranges that kernels use at this moment: start, end, whether it writes, whose.
    running: Mutex<Vec<(u64, u64, bool, u64)>>,
    /// Whether a kernel has panicked, by device.
    pub lost: [AtomicBool; 2],
    /// Kernels that own handles of the library and are not dropped yet.
    pub owners: AtomicUsize,
    /// What was counted.
    pub figures: Figures,
}

impl Line {
    /// Something was done on it, by a kernel that says when it has run.
    pub fn step(&self, done: Option<&Done>) -> Point {
        let mut past = lock(&self.past);
        let point = past.step(self.chain);
        if let Some(done) = done {
            lock(&self.pending).push_back((point.seq, Arc::clone(done)));
        }
        point
    }

    /// What its next operation comes after.
    pub fn now(&self) -> Past {
        lock(&self.past).clone()
    }

    /// Whether no other thread uses it.
    pub fn is_sure(&self) -> bool {
        !self.is_unsure.load(Ordering::Relaxed)
    }
}

impl Oracle {
    /// A stream was opened, by a thread that knows so much.
    pub fn open(&self, device: usize, tie: Tie, knows: Past) -> Arc<Line> {
        let mut lines = lock(&self.lines);
        let line = Arc::new(Line {
            chain: lines.len(),
            device,
            tie,
            past: Mutex::new(knows),
            published: Mutex::default(),
            is_unsure: AtomicBool::new(false),
            has_worked: AtomicBool::new(false),
            pending: Mutex::default(),
        });
        lines.push(Arc::clone(&line));
        line
    }

    /// The streams of a device, closed ones too.
    pub fn lines_of(&self, device: usize) -> Vec<Arc<Line>> {
        lock(&self.lines).iter().filter(|line| line.device == device).cloned().collect()
    }

    /// A thread knows that everything up to `past` has completed: it must be so.
    pub fn check_over(&self, past: &Past, call: &str) {
        for line in lock(&self.lines).iter() {
            let mut pending = lock(&line.pending);
            while let Some((seq, done)) =
                pending.front().filter(|(seq, _)| past.covers(Point { chain: line.chain, seq: *seq }))
            {
                if !done.load(Ordering::Acquire) {
                    finding(&format!("{call} came back before kernel {seq} of stream s{} had run", line.chain));
                }
                pending.pop_front();
            }
        }
    }

    /// `life` has these addresses from now on. `knows` is what its first use comes after, where that is known for sure
    /// and the pool adds no order of its own: then all former uses come before it or have run.
    pub fn claim(&self, life: u64, start: u64, bytes: u64, knows: Option<&Past>) {
        let (mut shadow, end) = (lock(&self.shadow), start + bytes);
        let below = shadow.live.range(..end).next_back().map(|(&start, &(end, life))| (start, end, life));
        if let Some((other, stop, whose)) = below.filter(|&(_, stop, _)| stop > start) {
            finding(&format!("b{life} got {start:#x}..{end:#x}, and b{whose} has {other:#x}..{stop:#x}"));
        }
        shadow.live.insert(start, (end, life));
        for (at, former) in shadow.cut(start, end) {
            let open = |it: &&Use| it.done.as_ref().is_some_and(|done| !done.load(Ordering::Acquire));
            let Some(knows) = knows else { continue };
            if let Some(it) = former.uses.iter().filter(open).find(|it| !knows.covers(it.point)) {
                finding(&format!(
                    "b{life} got {start:#x}..{end:#x}; b{} had {at:#x}..{:#x}, its use {} on s{} has not run, and \
                     nothing orders it before",
                    former.life, former.end, it.point.seq, it.point.chain
                ));
            }
        }
    }

    /// `life` is about to end: what was done to its addresses.
    pub fn release(&self, life: u64, start: u64, uses: &[Use]) {
        let mut shadow = lock(&self.shadow);
        if let Some((end, _)) = shadow.live.get(&start).copied().filter(|(_, whose)| *whose == life) {
            shadow.live.remove(&start);
            shadow.cut(start, end);
            shadow.former.insert(start, Former { end, life, uses: Arc::new(uses.to_vec()) });
        }
    }

    /// The end of a life was refused: it has its addresses still.
    pub fn restore(&self, life: u64, start: u64, bytes: u64) {
        let mut shadow = lock(&self.shadow);
        shadow.cut(start, start + bytes);
        shadow.live.insert(start, (start + bytes, life));
    }

    /// A kernel begins to use a range.
    pub fn enter(&self, words: &[u64], writes: bool, whose: u64) {
        let start = words.as_ptr() as u64;
        let end = start + size_of_val(words) as u64;
        let mut running = lock(&self.running);
        let meets = |it: &&(u64, u64, bool, u64)| it.0 < end && start < it.1 && (writes || it.2);
        if let Some(&(from, to, other, life)) = running.iter().find(meets) {
            let verb = |writes| if writes { "writes" } else { "reads" };
            finding(&format!(
                "a kernel of b{whose} {} {start:#x}..{end:#x} while one of b{life} {} {from:#x}..{to:#x}",
                verb(writes),
                verb(other)
            ));
        }
        running.push((start, end, writes, whose));
    }

    /// It has done so.
    pub fn leave(&self, words: &[u64], writes: bool, whose: u64) {
        let start = words.as_ptr() as u64;
        let entry = (start, start + size_of_val(words) as u64, writes, whose);
        let mut running = lock(&self.running);
        let at = running.iter().position(|it| *it == entry).expect("it entered");
        running.swap_remove(at);
    }
}

impl Shadow {
    /// Takes the former uses out of a range; what lies beyond its ends stays.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, Former)> {
        let below = self.former.range(..start).next_back().map(|(&at, it)| (at, it.end)).filter(|&(_, it)| it > start);
        let first = below.map_or(start, |(at, _)| at);
        let found: Vec<u64> = self.former.range(first..end).map(|(&at, _)| at).collect();
        let mut taken = Vec::new();
        for at in found {
            let former = self.former.remove(&at).expect("found just now");
            if at < start {
                self.former.insert(at, Former { end: start, ..former.clone() });
            }
            if former.end > end {
                self.former.insert(end, former.clone());
            }
            taken.push((at, former));
        }
        taken
    }
}
