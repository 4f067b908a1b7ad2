//! State that all threads and kernels of a program share, beside the library: the owners of bytes, the running kernels,
//! and those that have run.
//!
//! Kernels hold this, and no handle of the library. An order is a set of kernels that have not run yet: whatever comes
//! after a kernel has that kernel in its set. This is naive, and knows less than the checker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::finding::{finding, lock};

/// The flag that a kernel sets when it has run.
pub(crate) type Done = Arc<AtomicBool>;

/// The flags of a graph's kernel, in the order of its launches. `None` once a launch failed, because it is not known
/// whether its kernel runs.
pub(crate) type Launches = Arc<Mutex<Option<VecDeque<Done>>>>;

/// The kernels that come before something, without those that have run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before(Vec<Done>);

fn has_run(done: &Done) -> bool {
    done.load(Ordering::Acquire)
}

impl Before {
    /// Adds a kernel.
    pub(crate) fn add(&mut self, done: &Done) {
        if !self.0.iter().any(|it| Arc::ptr_eq(it, done)) {
            self.0.push(Arc::clone(done));
        }
    }

    /// Adds the kernels of another set.
    pub(crate) fn join(&mut self, other: &Before) {
        self.0.retain(|it| !has_run(it));
        other.0.iter().filter(|it| !has_run(it)).for_each(|it| self.add(it));
    }

    /// Returns `true` if a kernel is in the set, or has run.
    pub(crate) fn covers(&self, done: &Done) -> bool {
        has_run(done) || self.0.iter().any(|it| Arc::ptr_eq(it, done))
    }

    /// Checks that all of these kernels have run. `call` has returned and comes after them.
    pub(crate) fn check_over(&self, call: &str) {
        if !self.0.iter().all(has_run) {
            finding(&format!("{call} came back before a kernel had run that comes before"));
        }
    }
}

/// The uses of a range of addresses by its former owner.
#[derive(Clone, Debug)]
struct Former {
    end: u64,
    life: u32,
    uses: Before,
}

/// A kernel that had not run when its memory's addresses were reused.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) kernel: Done,
    /// The new owner, with its range.
    claimed: (u32, u64, u64),
    /// The former owner, with its range.
    had: (u32, u64, u64),
}

impl Pending {
    /// Reports that nothing orders the kernel before the memory that has its addresses.
    pub(crate) fn is_unordered(&self) -> ! {
        let ((life, start, end), (whose, from, to)) = (self.claimed, self.had);
        finding(&format!(
            "a{life} got {start:#x}..{end:#x}; a{whose} had {from:#x}..{to:#x}, a kernel of it had not run, and \
             nothing orders it before"
        ))
    }
}

/// The owners of addresses: the live ones, and the former uses of the other addresses.
#[derive(Debug, Default)]
struct Owners {
    live: BTreeMap<u64, (u64, u32)>,
    former: BTreeMap<u64, Former>,
}

/// Counters.
#[derive(Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub(crate) struct Figures {
    pub(crate) operations: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) words: AtomicU64,
    pub(crate) modelled: AtomicU64,
}

/// The shared state; see the module.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    owners: Mutex<Owners>,
    /// The ranges that kernels are using: start, end, `true` for a write, and the life.
    running: Mutex<Vec<(u64, u64, bool, u32)>>,
    /// `true` for each device on which a kernel has panicked.
    pub(crate) lost: [AtomicBool; 2],
    /// Kernels that own handles of the library and are not dropped yet.
    pub(crate) cargo: AtomicUsize,
    pub(crate) figures: Figures,
}

impl Ground {
    /// Returns `true` if a device is lost.
    pub(crate) fn is_any_lost(&self) -> bool {
        self.lost.iter().any(|lost| lost.load(Ordering::Acquire))
    }

    /// Makes `life` the owner of these addresses. Returns the kernels of former owners that have not run. If the pool
    /// adds no order of its own, each of them must come before the first use by `life`.
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

    /// Ends the ownership of a life, and keeps its uses.
    pub(crate) fn release(&self, life: u32, start: u64, uses: &Before) {
        let mut owners = lock(&self.owners);
        if let Some((end, _)) = owners.live.get(&start).copied().filter(|(_, whose)| *whose == life) {
            owners.live.remove(&start);
            owners.cut(start, end);
            owners.former.insert(start, Former { end, life, uses: uses.clone() });
        }
    }

    /// Gives a life its addresses back, because its end was refused.
    pub(crate) fn restore(&self, life: u32, (start, bytes): (u64, u64)) {
        let mut owners = lock(&self.owners);
        owners.cut(start, start + bytes);
        owners.live.insert(start, (start + bytes, life));
    }

    /// Notes that a kernel begins to use a range.
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

    /// Notes that a kernel has finished using a range.
    pub(crate) fn leave(&self, bytes: &[u8], writes: bool, whose: u32) {
        let start = bytes.as_ptr() as u64;
        let entry = (start, start + bytes.len() as u64, writes, whose);
        let mut running = lock(&self.running);
        let at = running.iter().position(|it| *it == entry).expect("it entered");
        running.swap_remove(at);
    }
}

impl Owners {
    /// Removes the former uses from a range. The parts outside of the range stay.
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
