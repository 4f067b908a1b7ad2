//! The one thread of a device that shares: it waits for sockets, times and devices.
//!
//! An [`Entry`] is something that waits. The thread calls an entry when its file is ready, when its time has come, or
//! when its number is called ([`Watch::call`]). The entry's work then waits for nothing. The thread starts with the
//! first entry and ends with the last.
//!
//! No file becomes ready where a device passes an event. A host device has waiters instead, which call the entry at
//! once. CUDA has a host function in a stream for that, but other host functions that block hold it up, and a stream
//! that waits may hold up streams of the program that share its queue. So CUDA is asked ([`wait_for_event`]): at pauses
//! of an eighth of the time waited so far, from a tenth of a millisecond up to 64 ms. That is some eighty questions for
//! the first second and 16 for each later one, and no thread is kept for each wait. A device that refuses to answer is
//! asked again, too.
//!
//! Knows files, times and events, and nothing of what is said.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Weak};
use std::time::{Duration, Instant};

use millpond_driver::locks::{Leaf, Mutex, lock, wait_timeout};
use millpond_driver::{Fence, HostWaiter, Waiter};
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, Result};

use crate::clock::device_event::DeviceEvent;

/// Something that the thread waits for.
pub(super) trait Entry: Send + fmt::Debug {
    /// Returns the file to wait for, if there is one. A file is watched only once at a time: an entry that needs it
    /// in both directions must duplicate it.
    fn file(&self) -> Option<BorrowedFd<'_>>;

    /// Returns `true` if it waits until it can send, `false` if it waits for something to receive.
    fn is_to_send(&self) -> bool {
        false
    }

    /// Called, with no locks held, when the file is ready or its other end is gone, when the time has come, or when
    /// the number is called.
    fn ready(&mut self, called: Called<'_>) -> Next;
}

/// The entry that is called.
#[derive(Clone, Copy)]
pub(super) struct Called<'w> {
    pub(super) watch: &'w Arc<Watch>,
    pub(super) number: u64,
}

/// The next step of an entry.
pub(super) enum Next {
    /// It does not wait any more.
    Done,
    /// It waits again, at most until this time.
    Again(Option<Instant>),
}

/// The most files reported at a time. The others follow in the next round.
const READY_MAX: usize = 64;
/// The number of the eventfd that wakes the thread.
const BELL: u64 = u64::MAX;

/// The entries of a device.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
    /// Readable if entries are called or a round is requested.
    bell: OwnedFd,
    waiting: Mutex<Leaf, Waiting>,
    /// Signalled when a round has ended.
    turned: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    all: FxHashMap<u64, (Option<Instant>, Box<dyn Entry>)>,
    next: u64,
    has_thread: bool,
    called: Vec<u64>,
    /// The number of rounds that were requested, and that were made.
    asked: u64,
    made: u64,
}

impl Watch {
    pub(super) fn new() -> Result<Arc<Watch>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Arc::new(Watch { epoll, bell, waiting: Mutex::default(), turned: Condvar::new() }))
    }

    /// Adds an entry, and returns its number. If the system has no room for it, the caller gets it back. An entry
    /// without a file is called at once.
    pub(super) fn add<E: Entry + 'static>(self: &Arc<Self>, entry: E) -> std::result::Result<u64, E> {
        let mut waiting = lock(&self.waiting);
        if !waiting.has_thread {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("millpond share".into());
            waiting.has_thread = thread.spawn(move || own.run()).is_ok();
        }
        let number = waiting.next;
        let (data, flags) = (epoll::EventData::new_u64(number), flags(&entry));
        let is_added = entry.file().is_none_or(|file| epoll::add(&self.epoll, file, data, flags).is_ok());
        if !waiting.has_thread || !is_added {
            return Err(entry);
        }
        waiting.next += 1;
        if entry.file().is_none() {
            waiting.called.push(number);
            self.ring();
        }
        waiting.all.insert(number, (None, Box::new(entry)));
        Ok(number)
    }

    /// Makes the thread call an entry.
    pub(super) fn call(&self, number: u64) {
        lock(&self.waiting).called.push(number);
        self.ring();
    }

    fn ring(&self) {
        // If it has no room for another write, it is readable already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Waits until the thread has handled everything that is there now, for a second at most.
    pub(super) fn round(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        let mut waiting = lock(&self.waiting);
        waiting.asked += 1;
        let wanted = waiting.asked;
        self.ring();
        while waiting.has_thread && waiting.made < wanted {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            waiting = wait_timeout(&self.turned, waiting, rest);
        }
    }

    /// Runs the thread.
    fn run(self: &Arc<Self>) {
        while let Some((until, asked)) = self.begin_round() {
            self.wait(until).into_iter().for_each(|number| self.attend(number));
            lock(&self.waiting).made = asked;
            self.turned.notify_all();
        }
    }

    /// Returns the time until which the thread waits, and the number of rounds requested before it looks at files:
    /// everything that was there at these requests is handled in this round. Returns `None` if there are no entries,
    /// and the thread ends.
    fn begin_round(&self) -> Option<(Option<Instant>, u64)> {
        let mut waiting = lock(&self.waiting);
        waiting.has_thread = !waiting.all.is_empty();
        if !waiting.has_thread {
            self.turned.notify_all();
            return None;
        }
        let until = match waiting.asked == waiting.made && waiting.called.is_empty() {
            true => waiting.all.values().filter_map(|(until, _)| *until).min(),
            false => Some(Instant::now()),
        };
        Some((until, waiting.asked))
    }

    /// Waits for the next entries to call.
    fn wait(&self, until: Option<Instant>) -> Vec<u64> {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600)));
        let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), rest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Whatever the error is, do not loop without a pause.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        let mut ready: Vec<u64> =
            events.iter().map(|event| event.data.u64()).filter(|number| *number != BELL).collect();
        // Read before the list is taken: later calls ring again.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        let now = Instant::now();
        let mut waiting = lock(&self.waiting);
        ready.append(&mut waiting.called);
        let due = waiting.all.iter().filter(|(_, (until, _))| until.is_some_and(|until| until <= now));
        ready.extend(due.map(|(number, _)| *number));
        drop(waiting);
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    fn attend(self: &Arc<Self>, number: u64) {
        let Some((_, mut entry)) = lock(&self.waiting).all.remove(&number) else { return };
        // An entry that panics does not wait any more, and the others go on. The last handle of a device may be
        // dropped here, with everything that it owns.
        let next = unless_panic(|| entry.ready(Called { watch: self, number })).unwrap_or(Next::Done);
        if let Next::Again(until) = next {
            let (data, flags) = (epoll::EventData::new_u64(number), flags(&*entry));
            if entry.file().is_none_or(|file| epoll::modify(&self.epoll, file, data, flags).is_ok()) {
                lock(&self.waiting).all.insert(number, (until, entry));
                return;
            }
        }
        if let Some(file) = entry.file() {
            let _ = epoll::delete(&self.epoll, file);
        }
        unless_panic(|| drop(entry));
    }
}

/// Runs a function. The payload of a panic is leaked, because its drop may panic again.
fn unless_panic<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).map_err(std::mem::forget).ok()
}

/// Each entry is reported once, until it waits again.
fn flags(entry: &(impl Entry + ?Sized)) -> epoll::EventFlags {
    let what = if entry.is_to_send() { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
    what | epoll::EventFlags::ONESHOT
}

impl HostWaiter for Watch {
    /// A host device has passed the event that an entry waits for.
    fn wake(self: Arc<Self>, entry: u64) {
        self.call(entry);
    }
}

/// The times at which a device that does not call is polled.
#[derive(Debug, Default)]
pub(super) struct Pace {
    began: Option<Instant>,
}

impl Pace {
    const MIN: Duration = Duration::from_micros(100);
    const MAX: Duration = Duration::from_millis(64);

    pub(super) fn next(&mut self) -> Instant {
        let now = Instant::now();
        let waited = now - *self.began.get_or_insert(now);
        now + (waited / 8).clamp(Self::MIN, Self::MAX)
    }
}

/// Waits for an event that the device is not known to be past: when to ask, if the device does not call the entry.
pub(super) fn wait_for_event(event: &DeviceEvent, called: Called<'_>, pace: &mut Pace) -> Option<Instant> {
    if let Ok(Fence::Host(fence)) = event.fence() {
        let device: Weak<Watch> = Arc::downgrade(called.watch);
        if fence.park(Waiter::new(device, called.number)) == Ok(false) {
            return None;
        }
    }
    Some(pace.next())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::socket;
    use super::*;

    /// Counts its calls, and ends with the first byte.
    #[derive(Debug)]
    struct Counted(OwnedFd, Arc<AtomicU64>, Option<Duration>);

    impl Entry for Counted {
        fn file(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn ready(&mut self, _: Called<'_>) -> Next {
            self.1.fetch_add(1, Ordering::AcqRel);
            match socket::receive(&self.0, &mut [0], false) {
                Ok(socket::Received::Nothing) => Next::Again(self.2.map(|time| Instant::now() + time)),
                _ => Next::Done,
            }
        }
    }

    fn eventually(what: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !what() {
            assert!(Instant::now() < until, "it does not come to pass");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_thread_ends_with_the_last_and_starts_again() {
        let watch = Watch::new().expect("there is room");
        let is_idle = || !lock(&watch.waiting).has_thread;
        for _ in 0..100 {
            let (calls, (first, second)) = (Arc::<AtomicU64>::default(), (socket::pair(), socket::pair()));
            let (first, second) = (first.expect("there is room"), second.expect("there is room"));
            for file in [first.0, second.0] {
                watch.add(Counted(file, Arc::clone(&calls), None)).expect("there is room");
            }
            socket::send(&first.1, &[1], &[], false).expect("it is there");
            eventually(|| calls.load(Ordering::Acquire) == 1);
            assert!(!is_idle());
            // The other end is gone, which is a call, too.
            drop(second.1);
            eventually(|| calls.load(Ordering::Acquire) == 2 && is_idle());
            assert_eq!(Arc::strong_count(&calls), 1);
        }
    }

    /// Panics when it is called, and again when it is dropped.
    #[derive(Debug)]
    struct Panics(OwnedFd);

    impl Entry for Panics {
        fn file(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn ready(&mut self, _: Called<'_>) -> Next {
            panic!("it is called");
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("it is dropped");
        }
    }

    #[test]
    fn a_panic_stops_none_of_the_others() {
        let watch = Watch::new().expect("there is room");
        let (calls, (file, other)) = (Arc::<AtomicU64>::default(), socket::pair().expect("there is room"));
        watch.add(Counted(file, Arc::clone(&calls), None)).expect("there is room");
        let (panics, wakes) = socket::pair().expect("there is room");
        watch.add(Panics(panics)).expect("there is room");
        drop(wakes);
        eventually(|| lock(&watch.waiting).all.len() == 1);
        drop(other);
        eventually(|| calls.load(Ordering::Acquire) == 1 && !lock(&watch.waiting).has_thread);
    }

    #[test]
    fn time_comes_without_a_word() {
        let watch = Watch::new().expect("there is room");
        let (calls, (file, other)) = (Arc::<AtomicU64>::default(), socket::pair().expect("there is room"));
        let counted = Counted(file, Arc::clone(&calls), Some(Duration::from_millis(1)));
        watch.add(counted).expect("there is room");
        // The time is set by an empty call, and the thread takes it up in the next round.
        let number = *lock(&watch.waiting).all.keys().next().expect("it waits");
        watch.attend(number);
        let (next, wake) = socket::pair().expect("there is room");
        watch.add(Counted(next, Arc::default(), None)).expect("there is room");
        drop(wake);
        eventually(|| calls.load(Ordering::Acquire) > 10);
        drop(other);
        eventually(|| !lock(&watch.waiting).has_thread);
    }
}
