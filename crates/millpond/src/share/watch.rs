//! The thread that waits for the sockets of a device: of importers, of exporters, of events.
//!
//! What waits for a file is a [`Watched`]. The thread calls it when its file is ready or its time has come; what it
//! does then takes no time and waits for nothing. The thread starts with the first and ends with the last. Knows files
//! and times, and nothing of what is said.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::io::{Errno, Result};

use crate::sync::ranks;

/// What waits for a file.
pub(super) trait Watched: Send + fmt::Debug {
    /// The file. It is watched once at a time: who needs it both ways duplicates it.
    fn file(&self) -> BorrowedFd<'_>;

    /// Whether it waits until it can send; else until there is something to receive.
    fn is_to_send(&self) -> bool {
        false
    }

    /// The file is ready, or its other end is gone, or the time has come. Called with no locks held.
    fn ready(&mut self) -> Next;
}

/// What follows.
pub(super) enum Next {
    /// It waits no more.
    Done,
    /// It waits again, until then at the latest.
    Again(Option<Instant>),
}

/// Files that become ready at a time; others follow in the next round.
const READY_MAX: usize = 64;

/// The files that a device waits for.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
    waiting: Mutex<ranks::Watch, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    all: FxHashMap<u64, (Option<Instant>, Box<dyn Watched>)>,
    next: u64,
    has_thread: bool,
}

impl Watch {
    pub(super) fn new() -> Result<Arc<Watch>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new(Watch { epoll, waiting: Mutex::default() }))
    }

    /// Waits for one more file. Where the system has no room for that, the caller gets it back.
    pub(super) fn add<W: Watched + 'static>(self: &Arc<Self>, watched: W) -> std::result::Result<(), W> {
        let mut waiting = lock(&self.waiting);
        if !waiting.has_thread {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("millpond share".into());
            waiting.has_thread = thread.spawn(move || own.run()).is_ok();
        }
        let number = waiting.next;
        let (data, flags) = (epoll::EventData::new_u64(number), flags(&watched));
        if !waiting.has_thread || epoll::add(&self.epoll, watched.file(), data, flags).is_err() {
            return Err(watched);
        }
        waiting.next += 1;
        waiting.all.insert(number, (None, Box::new(watched)));
        Ok(())
    }

    /// The thread.
    fn run(&self) {
        while let Some(until) = self.next_end() {
            self.wait(until).into_iter().for_each(|number| self.attend(number));
        }
    }

    /// When the first one's time comes; none where nothing is waited for, and the thread ends.
    fn next_end(&self) -> Option<Option<Instant>> {
        let mut waiting = lock(&self.waiting);
        waiting.has_thread = !waiting.all.is_empty();
        waiting.has_thread.then(|| waiting.all.values().filter_map(|(until, _)| *until).min())
    }

    /// Waits for the next ones.
    fn wait(&self, until: Option<Instant>) -> Vec<u64> {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let rest = rest.and_then(|rest| rest.min(Duration::from_secs(3600)).try_into().ok());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), rest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Not in a hot loop, whatever is wrong.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        let mut ready: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        if until.is_some() {
            let now = Instant::now();
            let waiting = lock(&self.waiting);
            let due = waiting.all.iter().filter(|(_, (until, _))| until.is_some_and(|until| until <= now));
            ready.extend(due.map(|(number, _)| *number));
        }
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    fn attend(&self, number: u64) {
        let Some((_, mut watched)) = lock(&self.waiting).all.remove(&number) else { return };
        // What panics waits no more, and the others do: the last handle of a device may go here, with what it keeps.
        let next = unless_panic(|| watched.ready()).unwrap_or(Next::Done);
        if let Next::Again(until) = next {
            let data = epoll::EventData::new_u64(number);
            if epoll::modify(&self.epoll, watched.file(), data, flags(&*watched)).is_ok() {
                lock(&self.waiting).all.insert(number, (until, watched));
                return;
            }
        }
        let _ = epoll::delete(&self.epoll, watched.file());
        unless_panic(|| drop(watched));
    }
}

/// Does something. What a panic carries is let go: to drop it may panic again.
fn unless_panic<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).map_err(std::mem::forget).ok()
}

/// Each is reported once, until it waits again.
fn flags(watched: &(impl Watched + ?Sized)) -> epoll::EventFlags {
    let what = if watched.is_to_send() { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
    what | epoll::EventFlags::ONESHOT
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::socket;
    use super::*;

    /// Counts how often it was called, and ends with the first byte.
    #[derive(Debug)]
    struct Counted(OwnedFd, Arc<AtomicU64>, Option<Duration>);

    impl Watched for Counted {
        fn file(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn ready(&mut self) -> Next {
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
            // The other end is gone: that is called, too.
            drop(second.1);
            eventually(|| calls.load(Ordering::Acquire) == 2 && is_idle());
            assert_eq!(Arc::strong_count(&calls), 1);
        }
    }

    /// Panics once it is called, and again when it is dropped.
    #[derive(Debug)]
    struct Panics(OwnedFd);

    impl Watched for Panics {
        fn file(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn ready(&mut self) -> Next {
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
        // It gets its time by a call for nothing, and the thread learns of that in the next round.
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
