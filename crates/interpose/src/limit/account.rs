//! The accounting file: what each process of the program uses on each device, in memory that they all map.
//!
//! * Each process has an entry, and only that process writes its figures. So they are right whatever other processes do
//!   and wherever one of them is killed. The entry has the process's number, its start time and its namespace. The
//!   entry of a dead process is dropped by the next process that reaches the limit or asks for free memory.
//! * An allocation adds to its process's figures before the driver is called, and only if the sum stays within the
//!   limit. Sum and addition are under one lock, a word of the file. A lock whose holder is dead is taken over.
//! * Devices have different numbers in processes with different `CUDA_VISIBLE_DEVICES`, so a place of the file belongs
//!   to a device's identifier.
//!
//! It knows no calls of CUDA.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::amounts::DEVICES_MAX;

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
    /// Modules, estimated.
    Module,
    /// Allocations from CUDA's pools and by graphs that are being made.
    Pending,
}

/// The name of each kind, in the order of the kinds.
const NAMES: [&str; 9] = [
    "Millpond's pool",
    "cuMemAlloc",
    "managed memory",
    "virtual memory",
    "arrays",
    "CUDA's pools",
    "graphs",
    "modules",
    "allocations in progress",
];
const KINDS: usize = NAMES.len();

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
    process: AtomicU64,
    start: AtomicU64,
    namespace: AtomicU64,
    used: [[AtomicU64; KINDS]; DEVICES_MAX],
}

/// The file. All zeros is the state without processes.
#[repr(C)]
struct Shared {
    /// The holder of the lock; 0 if there is none.
    lock: AtomicU64,
    places: [Place; DEVICES_MAX],
    entries: [Entry; PROCESSES_MAX],
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Process {
    number: u32,
    start: u64,
}

impl Process {
    fn own() -> Self {
        let number = std::process::id();
        Self { number, start: state_of(number).map_or(0, |it| it.start) }
    }

    /// Returns the process as one word, which is not 0.
    fn word(self) -> u64 {
        u64::from(self.number) | self.start << 32
    }

    /// Returns `true` unless the process has ended. `mask` has the bits of the start time that are known.
    fn is_alive(self, mask: u64) -> bool {
        match state_of(self.number) {
            Some(state) => !state.has_ended && (self.start == 0 || state.start & mask == self.start),
            None => {
                // SAFETY: signal 0 is not delivered.
                let sent = unsafe { libc::kill(self.number as i32, 0) };
                sent == 0 || !is_missing()
            }
        }
    }
}

fn is_missing() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// What the system says of a process.
struct State {
    /// `true` if only its exit status is left.
    has_ended: bool,
    start: u64,
}

fn state_of(process: u32) -> Option<State> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in parentheses, and may have any characters.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let threads = fields.get(17)?.parse::<u64>().ok()?;
    // A process whose first thread has ended runs on while it has others.
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
    Some(State { has_ended, start: fields.get(19)?.parse().ok()? })
}

/// Returns the number of this process's namespace of processes; 0 if it is not known.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino())
}

/// The account of this process.
pub(super) struct Account {
    shared: &'static Shared,
    own: Process,
    namespace: u64,
    /// The index of this process's entry.
    entry: usize,
    /// `true` if the processes of the program share the file.
    pub(super) is_shared: bool,
}

/// The longest time to wait for the lock. Its holder does nothing but add numbers, so only one that is stopped takes
/// longer. The figures are right without the lock, too; only two allocations at once may then pass the limit.
const PATIENCE: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_micros(20);

impl Account {
    /// Opens the file, and takes an entry of it. If that is not possible, this process is counted by itself. `None` if
    /// the system has no memory for that.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let shared = map_file(path).and_then(|shared| Self::enter(shared, true));
        shared.or_else(|| Self::enter(map(-1, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?, false))
    }

    fn enter(shared: &'static Shared, is_shared: bool) -> Option<Self> {
        let mut account = Self { shared, own: Process::own(), namespace: namespace(), entry: 0, is_shared };
        account.entry = account.locked(|| {
            // A program that replaced another one in this process has its entry. That one's memory is gone.
            let own = account.entries().position(|entry| account.is_own(entry));
            let free = || account.entries().position(|entry| entry.process.load(Ordering::Relaxed) == 0);
            let found = own.or_else(free).or_else(|| {
                account.drop_dead();
                free()
            })?;
            let Entry { process, start, namespace, used } = shared.entries.get(found)?;
            used.iter().flatten().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
            start.store(account.own.start, Ordering::Relaxed);
            namespace.store(account.namespace, Ordering::Relaxed);
            process.store(u64::from(account.own.number), Ordering::Release);
            Some(found)
        })?;
        Some(account)
    }

    /// Returns `true` unless another process has this one's memory.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.own.number == std::process::id()
    }

    fn entries(&self) -> impl Iterator<Item = &'static Entry> {
        self.shared.entries.iter()
    }

    fn is_own(&self, entry: &Entry) -> bool {
        entry.process.load(Ordering::Acquire) == u64::from(self.own.number)
            && entry.start.load(Ordering::Relaxed) == self.own.start
            && entry.namespace.load(Ordering::Relaxed) == self.namespace
    }

    /// Calls `act` under the lock.
    fn locked<R>(&self, act: impl FnOnce() -> R) -> R {
        let (lock, own, begin) = (&self.shared.lock, self.own.word(), Instant::now());
        let mut looks = 0_u32;
        while let Err(holder) = lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            looks += 1;
            match looks {
                ..64 => std::hint::spin_loop(),
                _ => std::thread::sleep(REST),
            }
            let is_late = looks.is_multiple_of(128);
            let process = Process { number: holder as u32, start: holder >> 32 };
            if is_late && holder != 0 && !process.is_alive(u64::from(u32::MAX)) {
                // Another process may do the same: one of them succeeds.
                let _ = lock.compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            if is_late && begin.elapsed() > PATIENCE {
                break;
            }
        }
        let done = act();
        let _ = lock.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
        done
    }

    /// Drops the entries of processes that have ended. A process of another namespace has another number there, so
    /// nothing is known of it.
    fn drop_dead(&self) {
        for entry in self.entries() {
            let number = entry.process.load(Ordering::Acquire) as u32;
            let process = Process { number, start: entry.start.load(Ordering::Relaxed) };
            let is_near = entry.namespace.load(Ordering::Relaxed) == self.namespace;
            if number != 0 && is_near && process != self.own && !process.is_alive(u64::MAX) {
                entry.used.iter().flatten().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
                entry.process.store(0, Ordering::Release);
            }
        }
    }

    /// Returns the place of a device with this limit.
    pub(super) fn place(&self, identifier: [u8; 16], limit: u64) -> Option<usize> {
        let wanted = halves(identifier);
        let places = &self.shared.places;
        let found = self.locked(|| {
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

    /// Returns the bytes that all processes use, also those that have ended.
    pub(super) fn sum(&self, place: usize) -> u64 {
        let all = self.entries().filter(|entry| entry.process.load(Ordering::Relaxed) != 0);
        let bytes = all.filter_map(|entry| entry.used.get(place)).flatten();
        bytes.fold(0, |sum, bytes| sum.saturating_add(bytes.load(Ordering::Relaxed)))
    }

    fn own_word(&self, place: usize, kind: Kind) -> Option<&'static AtomicU64> {
        self.shared.entries.get(self.entry)?.used.get(place)?.get(kind as usize)
    }

    fn note_peak(&self, place: usize, sum: u64) {
        if let Some(place) = self.shared.places.get(place) {
            place.peak.fetch_max(sum, Ordering::Relaxed);
        }
    }

    /// Counts memory that is about to be made. Returns `false`, and counts nothing, if that would pass the limit.
    pub(super) fn take(&self, place: usize, limit: u64, kind: Kind, bytes: u64) -> bool {
        let Some(word) = self.own_word(place, kind) else { return true };
        self.locked(|| {
            let mut sum = self.sum(place).saturating_add(bytes);
            if sum > limit {
                self.drop_dead();
                sum = self.sum(place).saturating_add(bytes);
            }
            let is_within = sum <= limit;
            if is_within {
                word.fetch_add(bytes, Ordering::Relaxed);
                self.note_peak(place, sum);
            }
            is_within
        })
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
            self.note_peak(place, self.sum(place));
        }
    }

    /// Returns the bytes that all living processes use.
    pub(super) fn used(&self, place: usize) -> u64 {
        self.locked(|| {
            self.drop_dead();
            self.sum(place)
        })
    }

    /// Returns the bytes by kind: of all processes, and of those other than this one.
    pub(super) fn by_kind(&self, place: usize) -> (ByKind, u64) {
        let (mut sums, mut others) = (ByKind::default(), 0_u64);
        for entry in self.entries().filter(|entry| entry.process.load(Ordering::Relaxed) != 0) {
            let used = entry.used.get(place).into_iter().flatten().map(|bytes| bytes.load(Ordering::Relaxed));
            let is_other = !self.is_own(entry);
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

/// Maps the file, and gives it its size if it has none yet.
fn map_file(path: &Path) -> Option<&'static Shared> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    let bytes = size_of::<Shared>();
    if file.metadata().ok()?.len() < bytes as u64 {
        // The blocks are reserved: a write to the mapping must not fail later because the disk is full.
        // SAFETY: an open file.
        let refused = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
        if refused != 0 {
            return None;
        }
    }
    map(file.as_raw_fd(), libc::MAP_SHARED)
}

fn map(file: i32, flags: i32) -> Option<&'static Shared> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), access, flags, file, 0) };
    // SAFETY: it has that size, is never unmapped, and zeros are a value of each field.
    (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Shared>() })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Opens a new file, which no process shares.
    fn account(name: &str) -> Account {
        let path = std::env::temp_dir().join(format!("millpond-account-{name}-{}", std::process::id()));
        File::create(&path).unwrap();
        let account = Account::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        assert!(account.is_shared);
        account
    }

    /// Returns the number of a process that has ended.
    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// Adds a process that has 10 bytes on the first device.
    fn add(account: &Account, process: u32, start: u64, namespace: u64) -> &'static Entry {
        let entry = account.entries().find(|entry| entry.process.load(Ordering::Relaxed) == 0).unwrap();
        entry.start.store(start, Ordering::Relaxed);
        entry.namespace.store(namespace, Ordering::Relaxed);
        entry.used[0][0].store(10, Ordering::Relaxed);
        entry.process.store(process.into(), Ordering::Release);
        entry
    }

    #[test]
    fn entries_of_dead_processes_are_dropped_and_others_stay() {
        let account = account("entries");
        let here = namespace();
        let parent = std::os::unix::process::parent_id();
        let start = state_of(parent).unwrap().start;
        add(&account, parent, start, here);
        assert_eq!(account.used(0), 10, "it lives");
        add(&account, parent, start + 1, here);
        assert_eq!(account.used(0), 10, "the number belongs to another process now");
        let dead = ended();
        add(&account, dead, 0, here);
        assert_eq!(account.used(0), 10, "it has ended");
        add(&account, dead, 0, here + 1);
        assert_eq!(account.used(0), 20, "nothing is known of a process of another namespace");
    }

    #[test]
    fn the_figures_of_dead_processes_do_not_count() {
        let account = account("figures");
        let dead = ended();
        for _ in 1..PROCESSES_MAX {
            add(&account, dead, 0, namespace());
        }
        assert!(account.take(0, 20, Kind::Memory, 20), "what dead processes had does not count");
        assert!(!account.take(0, 20, Kind::Memory, 1));
        account.give(0, Kind::Memory, 30);
        assert_eq!((account.used(0), account.peak(0)), (0, 20), "a figure is never below 0");
    }

    #[test]
    fn a_lock_is_taken_over_from_a_dead_holder_and_waited_for_otherwise() {
        let account = account("lock");
        account.shared.lock.store(ended().into(), Ordering::Relaxed);
        let begin = Instant::now();
        assert!(account.take(0, 20, Kind::Memory, 20));
        assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
        let parent = std::os::unix::process::parent_id();
        let holder = Process { number: parent, start: state_of(parent).unwrap().start };
        account.shared.lock.store(holder.word(), Ordering::Relaxed);
        let begin = Instant::now();
        assert!(!account.take(0, 20, Kind::Memory, 1), "a holder that is stopped does not stop others");
        assert!(begin.elapsed() >= PATIENCE, "{:?}", begin.elapsed());
        assert_eq!(account.shared.lock.load(Ordering::Relaxed), holder.word(), "it is still the holder's");
    }

    #[test]
    fn a_device_has_its_place_by_its_identifier() {
        let account = account("places");
        let places: Vec<_> = [[1; 16], [2; 16], [1; 16]].map(|identifier| account.place(identifier, 7)).into();
        assert_eq!(places, [Some(0), Some(1), Some(0)]);
        assert_eq!((account.known([2; 16]), account.known([3; 16])), (Some((1, 7)), None));
    }
}
