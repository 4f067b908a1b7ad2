//! What connections have of their exporter: the bell that calls its thread, and the counters.

use std::os::fd::OwnedFd;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_driver::locks::{Mutex, lock, wait_timeout};

use crate::sync::ranks;

/// How often things happened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) issued: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) lent: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl Counters {
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lent(&self) {
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn released(&self) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }

    /// An importer is gone, which held so many.
    pub(super) fn reclaimed(&self, held: usize) {
        self.reclaimed.fetch_add(held as u64, Ordering::Relaxed);
        self.lost.fetch_add(u64::from(held > 0), Ordering::Relaxed);
    }
}

/// Calls the thread to connections that it has to see to.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) file: OwnedFd,
    pub(super) rung: Mutex<ranks::BellRung, Vec<u64>>,
    pub(super) is_stopped: AtomicBool,
    /// Rounds of the thread that were asked for, and those that it has made.
    pub(super) asked: AtomicU64,
    pub(super) made: Mutex<ranks::BellMade, u64>,
    pub(super) turned: Condvar,
}

impl Bell {
    /// The thread has to see to a connection.
    pub(super) fn ring(&self, connection: u64) {
        lock(&self.rung).push(connection);
        self.sound();
    }

    /// The thread has to look.
    pub(super) fn sound(&self) {
        // Where it has no room for one more it is readable already.
        let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
    }

    /// Waits until the thread has seen to all that it was called for, for a moment.
    pub(super) fn wait(&self) {
        let wanted = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.sound();
        let until = Instant::now() + Duration::from_secs(1);
        let mut made = lock(&self.made);
        while *made < wanted {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            made = wait_timeout(&self.turned, made, rest);
        }
    }

    /// The connections that it was rung for.
    pub(super) fn answer(&self) -> Vec<u64> {
        let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
        std::mem::take(&mut *lock(&self.rung))
    }
}
