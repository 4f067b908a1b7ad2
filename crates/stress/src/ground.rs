//! What all threads and kernels of a program share, beside the library: who has which bytes, which kernels run, which
//! have run.
//!
//! Kernels hold this and no handle of the library. An order is a set of kernels that have not run yet: who comes after
//! a kernel has it in its set. That is naive, and knows less than the checker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::finding::{finding, lock};

/// Set by a kernel when it has done its work.
pub(crate) type Done = Arc<AtomicBool>;

/// Those of a graph's kernel, in the order of its launches, in which it runs. None once a launch failed: whether its
/// kernel runs is not known.
pub(crate) type Launches = Arc<Mutex<Option<VecDeque<Done>>>>;

/// Kernels that come before something, without those that have run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before(Vec<Done>);

fn has_run(done: &Done) -> bool {
    done.load(Ordering::Acquire)
}

impl Before {
    /// A kernel comes before it, too.
    pub(crate) fn add(&mut self, done: &Done) {
        if !self.0.iter().any(|it| Arc::ptr_eq(it, done)) {
            self.0.push(Arc::clone(done));
        }
    }

    /// So does what comes before another one.
    pub(crate) fn join(&mut self, other: &Before) {
        self.0.retain(|it| !has_run(it));
        other.0.iter().filter(|it| !has_run(it)).for_each(|it| self.add(it));
    }

    /// Whether a kernel comes before it, or has run.
    pub(crate) fn covers(&self, done: &Done) -> bool {
        has_run(done) || self.0.iter().any(|it| Arc::ptr_eq(it, done))
    }

    /// A call came back that comes after all of it.
    pub(crate) fn check_over(&self, call: &str) {
        if !self.0.iter().all(has_run) {
            finding(&format!("{call} came back before a kernel had run that comes before"));
        }
    }
}

/// What was done to a range of addresses by who had it before.
#[derive(Clone, Debug)]
struct Former {
    end: u64,
    life: u32,
    uses: Before,
}

/// A kernel that had not run when its memory's addresses served again.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) kernel: Done,
    /// Who has them now, from where to where.
    claimed: (u32, u64, u64),
    /// Who had them.
    had: (u32, u64, u64),
}

impl Pending {
    /// Nothing orders it before the memory that has its addresses.
    pub(crate) fn is_unordered(&self) -> ! {
        let ((life, start, end), (whose, from, to)) = (self.claimed, self.had);
        finding(&format!(
            "a{life} got {start:#x}..{end:#x}; a{whose} had {from:#x}..{to:#x}, a kernel of it had not run, and \
             nothing orders it before"
        ))
    }
}

/// Who has which addresses: the live ones, and the former uses of the others.
#[derive(Debug, Default)]
struct Owners {
    live: BTreeMap<u64, (u64, u32)>,
    former: BTreeMap<u64, Former>,
}

/// What was counted.
#[derive(Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub(crate) struct Figures {
    pub(crate) operations: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) words: AtomicU64,
    pub(crate) modelled: AtomicU64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    owners: Mutex<Owners>,
    /// Ranges that kernels use at this moment: start, end, whether it writes, whose.
    running: Mutex<Vec<(u64, u64, bool, u32)>>,
    /// Whether a kernel has panicked, by device.
    pub(crate) lost: [AtomicBool; 2],
    /// Kernels that own handles of the library and are not dropped yet.
    pub(crate) cargo: AtomicUsize,
    pub(crate) figures: Figures,
}

impl Ground {
    /// Whether a device is lost.
    pub(crate) fn is_any_lost(&self) -> bool {
        self.lost.iter().any(|lost| lost.load(Ordering::Acquire))
    }

    /// `life` has these addresses from now on. The kernels of who had them before that have not run: each must come
    /// before its first use where the pool adds no order of its own.
    pub(crate) fn claim(&self, life: u32, (start, bytes): (u64, u64)) -> Vec<Pending> {
        let (mut owners, end) = (lock(&self.owners), start + bytes);
        let below = owners.live.range(..end).next_back().map(|(&start, &(end, life))| (start, end, life));
        if let Some((other, stop, whose)) = below.filter(|&(_, stop, _)| stop > start) {
            finding(&format!("a{life} got {start:#x}..{end:#x}, and a{whose} has {other:#x}..{stop:#x}"));
        }
        owners.live.insert(start, (end, life));
        let pending = |(at, Former { end: stop, life: whose, uses }): (u64, Former)| {
            let left = uses.0.into_iter().filter(|done| !has_run(done));
            left.map(move |kernel| Pending { kernel, claimed: (life, start, end), had: (whose, at, stop) })
        };
        owners.cut(start, end).into_iter().flat_map(pending).collect()
    }

    /// A life is about to end: what was done to its addresses.
    pub(crate) fn release(&self, life: u32, start: u64, uses: &Before) {
        let mut owners = lock(&self.owners);
        if let Some((end, _)) = owners.live.get(&start).copied().filter(|(_, whose)| *whose == life) {
            owners.live.remove(&start);
            owners.cut(start, end);
            owners.former.insert(start, Former { end, life, uses: uses.clone() });
        }
    }

    /// The end of a life was refused: it has its addresses still.
    pub(crate) fn restore(&self, life: u32, (start, bytes): (u64, u64)) {
        let mut owners = lock(&self.owners);
        owners.cut(start, start + bytes);
        owners.live.insert(start, (start + bytes, life));
    }

    /// A kernel begins to use a range.
    pub(crate) fn enter(&self, bytes: &[u8], writes: bool, whose: u32) {
        let (start, end) = (bytes.as_ptr() as u64, bytes.as_ptr() as u64 + bytes.len() as u64);
        let mut running = lock(&self.running);
        let meets = |it: &&(u64, u64, bool, u32)| it.0 < end && start < it.1 && (writes || it.2);
        if let Some(&(from, to, other, life)) = running.iter().find(meets) {
            let verb = |writes| if writes { "writes" } else { "reads" };
            finding(&format!(
                "a kernel of a{whose} {} {start:#x}..{end:#x} while one of a{life} {} {from:#x}..{to:#x}",
                verb(writes),
                verb(other)
            ));
        }
        running.push((start, end, writes, whose));
    }

    /// It has done so.
    pub(crate) fn leave(&self, bytes: &[u8], writes: bool, whose: u32) {
        let start = bytes.as_ptr() as u64;
        let entry = (start, start + bytes.len() as u64, writes, whose);
        let mut running = lock(&self.running);
        let at = running.iter().position(|it| *it == entry).expect("it entered");
        running.swap_remove(at);
    }
}

impl Owners {
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
