//! The accounting file: what each process of the program uses on each device, in memory that they all map.
//!
//! * Each process has an entry, and only that process writes its figures. So they are right whatever other processes do
//!   and wherever one of them is killed. The entry of a dead process is dropped by the next process that reaches the
//!   limit or asks for free memory. A process that ends or is replaced says so in its entry.
//! * An allocation adds to its process's figures before the driver is called, and only if the sum stays within the
//!   limit. Sum and addition are under one lock of the file.
//! * Devices have different numbers in processes with different `CUDA_VISIBLE_DEVICES`, so a place of the file belongs
//!   to a device's identifier.
//!
//! It knows no calls of CUDA.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::amounts::DEVICES_MAX;
use super::process::Process;
use super::shared_lock::SharedLock;

/// The number of processes that the file has room for.
const PROCESSES_MAX: usize = 512;

/// The kinds of memory that are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Chunks of Millpond's pool.
    Pool,
    /// `cuMemAlloc`
    Memory,
    /// `cuMemAllocManaged`
    Managed,
    /// `cuMemCreate` by the program.
    Virtual,
    /// Arrays and mipmapped arrays.
    Array,
    /// What CUDA's own pools have reserved.
    CudaPool,
    /// What graphs have reserved.
    Graph,
    /// Modules, estimated where NVML does not know the process.
    Module,
    /// What NVML says that the process uses beyond all that: contexts, kernels, the driver's rounding.
    Rest,
    /// Allocations from CUDA's pools and by graphs that are being made.
    Pending,
}

/// The name of each kind, in the order of the kinds.
const NAMES: [&str; 10] = [
    "Millpond's pool",
    "cuMemAlloc",
    "managed memory",
    "virtual memory",
    "arrays",
    "CUDA's pools",
    "graphs",
    "modules",
    "contexts and kernels",
    "allocations in progress",
];
const KINDS: usize = NAMES.len();

/// The kinds that are in NVML's figure of a process beside [`Kind::Rest`].
const IN_NVML: [Kind; 8] =
    [Kind::Pool, Kind::Memory, Kind::Virtual, Kind::Array, Kind::CudaPool, Kind::Graph, Kind::Module, Kind::Pending];

/// Bytes by kind.
pub(super) type ByKind = [u64; KINDS];

/// Returns the kinds of which there is memory, with their names, the largest first.
pub(super) fn named(bytes: &ByKind) -> Vec<(&'static str, u64)> {
    let mut all: Vec<_> = NAMES.into_iter().zip(*bytes).filter(|it| it.1 > 0).collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.1));
    all
}

/// A device of the file.
#[repr(C)]
struct Place {
    is_taken: AtomicU64,
    identifier: [AtomicU64; 2],
    /// The limit in bytes.
    limit: AtomicU64,
    /// The most bytes that were used at any time.
    peak: AtomicU64,
}

impl Place {
    fn is_of(&self, identifier: [u64; 2]) -> bool {
        let known = self.identifier.each_ref().map(|half| half.load(Ordering::Relaxed));
        self.is_taken.load(Ordering::Acquire) != 0 && known == identifier
    }
}

/// Returns an identifier as two words.
fn halves(identifier: [u8; 16]) -> [u64; 2] {
    let whole = u128::from_be_bytes(identifier);
    [(whole >> 64) as u64, whole as u64]
}

/// A process of the file.
#[repr(C)]
struct Entry {
    /// 0 if there is no process.
    number: AtomicU64,
    start: AtomicU64,
    namespace: AtomicU64,
    /// How the process is about to leave: [`STAYS`], [`IS_REPLACED`] or [`ENDS`].
    leaves: AtomicU64,
    used: [[AtomicU64; KINDS]; DEVICES_MAX],
}

const STAYS: u64 = 0;
/// Another program replaces the process's. Its memory goes at once.
const IS_REPLACED: u64 = 1;
/// The process ends. Its memory goes with it, a while after its last call.
const ENDS: u64 = 2;

impl Entry {
    /// Returns the process; `None` if there is none.
    fn process(&self) -> Option<Process> {
        let number = self.number.load(Ordering::Acquire) as u32;
        let (start, namespace) = (self.start.load(Ordering::Relaxed), self.namespace.load(Ordering::Relaxed));
        (number != 0).then_some(Process { number, start, namespace })
    }

    /// Gives the entry to a process. A number of 0 means none.
    fn set(&self, process: Process) {
        self.number.store(0, Ordering::Relaxed);
        self.used.iter().flatten().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
        self.leaves.store(STAYS, Ordering::Relaxed);
        self.start.store(process.start, Ordering::Relaxed);
        self.namespace.store(process.namespace, Ordering::Relaxed);
        self.number.store(process.number.into(), Ordering::Release);
    }

    /// Returns `true` if the process may have memory, as far as another one knows. The end of a process of another
    /// namespace is not seen, so it counts no longer from its last call on.
    fn counts(&self, own: Process) -> bool {
        let may_have = match self.leaves.load(Ordering::Relaxed) {
            STAYS => true,
            ENDS => self.namespace.load(Ordering::Relaxed) == own.namespace,
            _ => false,
        };
        may_have && self.number.load(Ordering::Relaxed) != 0
    }
}

/// The file. All zeros is the state without processes.
#[repr(C)]
pub(super) struct Shared {
    lock: SharedLock,
    /// The entries at this index and after it were never used.
    fresh: AtomicUsize,
    places: [Place; DEVICES_MAX],
    entries: [Entry; PROCESSES_MAX],
}

// The command makes the file with this size.
const _: () = assert!(size_of::<Shared>() <= 4 << 20);

/// The account of this process.
pub(super) struct Account {
    shared: &'static Shared,
    own: Process,
    /// This process's entry.
    entry: &'static Entry,
}

impl Account {
    /// Takes an entry of the file. `None` if there is none left. Waits for the lock however long that takes.
    pub(super) fn enter(shared: &'static Shared) -> Option<Self> {
        Self::enter_as(shared, Process::own())
    }

    fn enter_as(shared: &'static Shared, own: Process) -> Option<Self> {
        let enter = || {
            shared.lock.locked_at_last(|| {
                // Where the namespace is not known, another process may have the same number.
                let is_own = |entry: &Entry| own.namespace != 0 && entry.process() == Some(own);
                let known = || shared.entries().position(is_own);
                let free = || shared.entries().position(|entry| entry.process().is_none());
                let fresh = shared.fresh.load(Ordering::Relaxed);
                // A program that replaced another one in this process has its entry. That one's memory is gone.
                let at = known().or_else(free).unwrap_or(fresh);
                let entry = shared.entries.get(at)?;
                shared.fresh.store(fresh.max(at + 1), Ordering::Relaxed);
                entry.set(own);
                Some(entry)
            })
        };
        let entry = enter().or_else(|| {
            shared.drop_dead(own);
            enter()
        })?;
        Some(Self { shared, own, entry })
    }

    /// Returns `true` unless another process has this one's memory.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.own.number == std::process::id()
    }

    /// Notes that another program is about to replace this process's. If that fails, what the process has counts again
    /// from its next question or allocation on.
    pub(super) fn leave(&self) {
        self.entry.leaves.store(IS_REPLACED, Ordering::Relaxed);
    }

    /// Notes that this process is about to end.
    pub(super) fn end(&self) {
        self.entry.leaves.store(ENDS, Ordering::Relaxed);
    }

    fn stay(&self) {
        self.entry.leaves.store(STAYS, Ordering::Relaxed);
    }

    /// Returns the place of a device with this limit. Waits for the lock however long that takes.
    pub(super) fn place(&self, identifier: [u8; 16], limit: u64) -> Option<usize> {
        let wanted = halves(identifier);
        let places = &self.shared.places;
        let found = self.shared.lock.locked_at_last(|| {
            places.iter().position(|place| place.is_of(wanted)).or_else(|| {
                let free = places.iter().position(|it| it.is_taken.load(Ordering::Relaxed) == 0)?;
                let place = places.get(free)?;
                place.identifier.iter().zip(wanted).for_each(|(half, word)| half.store(word, Ordering::Relaxed));
                place.is_taken.store(1, Ordering::Release);
                Some(free)
            })
        })?;
        places.get(found)?.limit.store(limit, Ordering::Relaxed);
        Some(found)
    }

    /// Returns the place and the limit of a device that a process has used.
    pub(super) fn known(&self, identifier: [u8; 16]) -> Option<(usize, u64)> {
        let places = &self.shared.places;
        let found = places.iter().position(|place| place.is_of(halves(identifier)))?;
        Some((found, places.get(found)?.limit.load(Ordering::Relaxed)))
    }

    fn own_word(&self, place: usize, kind: Kind) -> Option<&'static AtomicU64> {
        self.entry.used.get(place)?.get(kind as usize)
    }

    fn note_peak(&self, place: usize, sum: u64) {
        if let Some(place) = self.shared.places.get(place) {
            place.peak.fetch_max(sum, Ordering::Relaxed);
        }
    }

    /// Counts memory that is about to be made. Returns `false`, and counts nothing, if that would pass the limit.
    pub(super) fn take(&self, place: usize, limit: u64, kind: Kind, bytes: u64) -> bool {
        let Some(word) = self.own_word(place, kind) else { return true };
        self.stay();
        let take = || {
            // Without the lock, two allocations at once might pass the limit.
            let is_within = self.shared.lock.locked(|| {
                let sum = self.sum(place).saturating_add(bytes);
                let is_within = sum <= limit;
                if is_within {
                    word.fetch_add(bytes, Ordering::Relaxed);
                    self.note_peak(place, sum);
                }
                is_within
            });
            is_within == Some(true)
        };
        take() || self.shared.drop_dead(self.own) && take()
    }

    /// Counts memory that was made, whatever the limit is.
    pub(super) fn add(&self, place: usize, kind: Kind, bytes: u64) {
        let Some(word) = self.own_word(place, kind) else { return };
        word.fetch_add(bytes, Ordering::Relaxed);
        self.note_peak(place, self.sum(place));
    }

    /// Counts memory no longer.
    pub(super) fn give(&self, place: usize, kind: Kind, bytes: u64) {
        let Some(word) = self.own_word(place, kind) else { return };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(bytes)));
    }

    /// Counts memory that was pending as memory of a kind.
    pub(super) fn settle(&self, place: usize, kind: Kind, bytes: u64) {
        if let Some(word) = self.own_word(place, kind) {
            word.fetch_add(bytes, Ordering::Relaxed);
        }
        self.give(place, Kind::Pending, bytes);
    }

    /// Sets the figure of a kind of memory that the driver measures.
    pub(super) fn set(&self, place: usize, kind: Kind, bytes: u64) {
        let Some(word) = self.own_word(place, kind) else { return };
        if word.swap(bytes, Ordering::Relaxed) < bytes {
            // What is pending may be in the measured figures already.
            let pending = self.shared.sum_of(place, self.own, |kind| kind == Kind::Pending as usize);
            self.note_peak(place, self.sum(place).saturating_sub(pending));
        }
    }

    /// Returns the bytes that all living processes use.
    pub(super) fn used(&self, place: usize) -> u64 {
        self.stay();
        self.shared.drop_dead(self.own);
        self.sum(place)
    }

    /// Returns the bytes of this process that NVML counts as well, without [`Kind::Rest`].
    pub(super) fn in_nvml(&self, place: usize) -> u64 {
        let words = IN_NVML.into_iter().filter_map(|kind| self.own_word(place, kind));
        words.fold(0, |sum, bytes| sum.saturating_add(bytes.load(Ordering::Relaxed)))
    }

    /// Returns the bytes of a kind that this process has, for a figure that the driver measures together with it.
    pub(super) fn own(&self, place: usize, kind: Kind) -> u64 {
        self.own_word(place, kind).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// Returns the bytes that all processes use, also those that were killed.
    pub(super) fn sum(&self, place: usize) -> u64 {
        self.shared.sum_of(place, self.own, |_| true)
    }

    /// Returns the bytes by kind: of all processes, and of those other than this one.
    pub(super) fn by_kind(&self, place: usize) -> (ByKind, u64) {
        let (mut sums, mut others) = (ByKind::default(), 0_u64);
        for entry in self.shared.entries().filter(|entry| entry.counts(self.own)) {
            let used = entry.used.get(place).into_iter().flatten().map(|bytes| bytes.load(Ordering::Relaxed));
            let is_other = !std::ptr::eq(entry, self.entry);
            for (sum, bytes) in sums.iter_mut().zip(used) {
                *sum = sum.saturating_add(bytes);
                others = others.saturating_add(if is_other { bytes } else { 0 });
            }
        }
        (sums, others)
    }

    /// Returns the most bytes that were used at any time.
    pub(super) fn peak(&self, place: usize) -> u64 {
        self.shared.places.get(place).map_or(0, |place| place.peak.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take(self.fresh.load(Ordering::Relaxed))
    }

    /// Returns the bytes of some kinds that all processes use, also those that were killed.
    fn sum_of(&self, place: usize, own: Process, is_wanted: impl Fn(usize) -> bool) -> u64 {
        let all = self.entries().filter(|entry| entry.counts(own)).filter_map(|entry| entry.used.get(place));
        let bytes = all.flat_map(|kinds| kinds.iter().enumerate()).filter(|it| is_wanted(it.0));
        bytes.fold(0, |sum, it| sum.saturating_add(it.1.load(Ordering::Relaxed)))
    }

    /// Drops the entries of processes that have ended. Returns `true` if there were some.
    fn drop_dead(&self, own: Process) -> bool {
        // The system is asked without the lock: it is slow.
        let dead = |entry: &Entry| entry.process().filter(|process| process.has_ended(own));
        let dead: Vec<_> = self.entries().filter_map(|entry| Some((entry, dead(entry)?))).collect();
        if dead.is_empty() {
            return false;
        }
        let drop = || {
            for (entry, process) in &dead {
                // Meanwhile it may belong to another process.
                if entry.process() == Some(*process) {
                    entry.set(Process { number: 0, start: 0, namespace: 0 });
                }
            }
        };
        self.lock.locked(drop).is_some()
    }

    /// Maps the file. `None` if that is not possible.
    pub(super) fn map(path: &Path) -> Option<&'static Self> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        if file.metadata().ok()?.len() < size_of::<Self>() as u64 {
            return None;
        }
        let shared = Self::map_at(file.as_raw_fd(), libc::MAP_SHARED)?;
        if !shared.lock.is_ready() {
            // Closing the file ends this lock, and so does the end of the process.
            // SAFETY: an open file.
            let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
            (locked == 0).then_some(())?;
        }
        shared.lock.prepare().then_some(shared)
    }

    /// Makes the account of a process that cannot use the file.
    pub(super) fn alone() -> Option<&'static Self> {
        let shared = Self::map_at(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        shared.lock.prepare().then_some(shared)
    }

    fn map_at(file: i32, flags: i32) -> Option<&'static Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Self>(), access, flags, file, 0) };
        // SAFETY: it has that size, is never unmapped, and zeros are a value of each field.
        (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Self>() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::limit::process::state_of;

    fn account() -> Account {
        Account::enter(Shared::alone().unwrap()).unwrap()
    }

    fn here() -> u64 {
        Process::own().namespace
    }

    fn parent() -> Process {
        let number = std::os::unix::process::parent_id();
        Process { number, start: state_of(number).unwrap().start, namespace: here() }
    }

    /// Returns a process that has ended.
    fn ended() -> Process {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Process { number: child.id(), start: 0, namespace: here() }
    }

    /// Adds a process that has 10 bytes on the first device.
    fn add(account: &Account, process: Process) -> &'static Entry {
        let shared = account.shared;
        let at = shared.entries.iter().position(|entry| entry.process().is_none()).unwrap();
        shared.fresh.fetch_max(at + 1, Ordering::Relaxed);
        let entry = &shared.entries[at];
        entry.set(process);
        entry.used[0][0].store(10, Ordering::Relaxed);
        entry
    }

    #[test]
    fn entries_of_dead_processes_are_dropped_and_others_stay() {
        let account = account();
        let parent = parent();
        add(&account, parent);
        assert_eq!(account.used(0), 10, "it lives");
        add(&account, Process { start: parent.start + 1, ..parent });
        assert_eq!(account.used(0), 10, "the number belongs to another process now");
        let dead = ended();
        add(&account, dead);
        assert_eq!(account.used(0), 10, "it has ended");
        add(&account, Process { namespace: dead.namespace + 1, ..dead });
        assert_eq!(account.used(0), 20, "nothing is known of a process of another namespace");
    }

    #[test]
    fn the_figures_of_dead_processes_do_not_count() {
        let account = account();
        let dead = ended();
        for _ in 1..PROCESSES_MAX {
            add(&account, dead);
        }
        assert!(account.take(0, 20, Kind::Memory, 20), "what dead processes had does not count");
        assert!(!account.take(0, 20, Kind::Memory, 1));
        account.give(0, Kind::Memory, 30);
        assert_eq!((account.used(0), account.peak(0)), (0, 20), "a figure is never below 0");
    }

    #[test]
    fn a_full_file_has_room_again_once_processes_have_ended() {
        let first = account();
        let parent = parent();
        let others: Vec<_> = (1..PROCESSES_MAX).map(|_| add(&first, parent)).collect();
        first.entry.set(parent);
        assert!(Account::enter(first.shared).is_none(), "all live");
        others[7].set(ended());
        assert!(std::ptr::eq(Account::enter(first.shared).unwrap().entry, others[7]));
    }

    #[test]
    fn processes_whose_namespaces_are_not_known_share_no_entry() {
        let first = account();
        let unknown = Process { namespace: 0, ..first.own };
        let enter = || Account::enter_as(first.shared, unknown).unwrap();
        let (one, other) = (enter(), enter());
        assert!(!std::ptr::eq(one.entry, other.entry) && !std::ptr::eq(one.entry, first.entry));
        one.add(0, Kind::Memory, 5);
        assert_eq!(other.used(0), 5);
    }

    #[test]
    fn what_a_process_has_that_leaves_does_not_count_unless_it_stays() {
        let account = account();
        let other = add(&account, Process { namespace: here() + 1, ..ended() });
        assert!(account.take(0, 20, Kind::Memory, 10) && !account.take(0, 20, Kind::Memory, 1));
        other.leaves.store(ENDS, Ordering::Relaxed);
        assert_eq!(account.used(0), 10, "its end will not be seen");
        other.leaves.store(IS_REPLACED, Ordering::Relaxed);
        assert_eq!(account.used(0), 10);
        account.leave();
        assert_eq!((account.sum(0), account.by_kind(0).1), (0, 0));
        assert!(!account.take(0, 20, Kind::Memory, 11), "its program was not replaced");
        assert_eq!(account.used(0), 10);
        account.end();
        assert_eq!(account.sum(0), 10, "its memory is there until it has ended");
    }

    #[test]
    fn an_entry_that_was_dropped_and_taken_again_is_the_new_process_s() {
        let account = account();
        let (shared, dead, parent) = (account.shared, ended(), parent());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let entry = shared.lock.locked(|| add(&account, parent)).unwrap();
                        shared.drop_dead(account.own);
                        assert_eq!(entry.process(), Some(parent));
                        shared.lock.locked(|| entry.set(dead)).unwrap();
                    }
                });
            }
        });
        assert_eq!(account.used(0), 0);
    }

    #[test]
    fn a_file_is_made_ready_once_and_one_that_is_too_small_is_not_used() {
        let path = std::env::temp_dir().join(format!("millpond-account-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert!(Shared::map(&path).is_none(), "it is empty");
        file.set_len(4 << 20).unwrap();
        let (one, other) = (Shared::map(&path).unwrap(), Shared::map(&path).unwrap());
        fs::remove_file(path).unwrap();
        let account = Account::enter(one).unwrap();
        account.add(0, Kind::Memory, 5);
        assert_eq!(other.sum_of(0, account.own, |_| true), 5);
        // This process has an entry: it begins anew.
        assert_eq!(Account::enter(other).unwrap().used(0), 0);
    }

    #[test]
    fn a_device_has_its_place_by_its_identifier() {
        let account = account();
        let places: Vec<_> = [[1; 16], [2; 16], [1; 16]].map(|identifier| account.place(identifier, 7)).into();
        assert_eq!(places, [Some(0), Some(1), Some(0)]);
        assert_eq!((account.known([2; 16]), account.known([3; 16])), (Some((1, 7)), None));
    }
}
