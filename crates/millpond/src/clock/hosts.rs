//! The synchronisations of the process's host threads, and the times at which streams must learn of them.
//!
//! All threads of the process are one [`Host`]: what one of them has learned by a synchronisation with any device holds
//! for later operations of all threads, on all devices. Knows nothing of memory.
//!
//! The hot path reads only one number, the epoch. It changes when the host has learned something, or when the legacy
//! default stream of the device has work that other streams must wait for. A stream that has seen the epoch has nothing
//! to learn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use millpond_core::order::{Base, Chain, Host, Snapshot};
use millpond_driver::locks::{Mutex, lock};

use crate::sync::ranks;
use crate::trace::away;

/// The host that stands for the process.
static HOST: LazyLock<Mutex<ranks::Table, Host>> = LazyLock::new(|| Mutex::new(Host::new(next_host())));

/// Counts what the process has learned. Streams begin with epoch 0, so that their first operation learns everything
/// that is known.
static LEARNED: Alone = Alone(AtomicU64::new(1));

/// Every operation reads it, so no lock shares its cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// Returns a number for another host. Numbers distinguish the bases of several hosts.
pub(crate) fn next_host() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The epoch of one device's streams.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// Counts the operations of its legacy default stream that other streams must wait for.
    legacy: Alone,
}

impl Epoch {
    pub(crate) fn new() -> Self {
        Self { legacy: Alone(AtomicU64::new(0)) }
    }

    /// Returns a number that changes whenever there is something to learn: the sum of two counts that only grow.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        LEARNED.0.load(Ordering::Acquire).wrapping_add(self.legacy.0.load(Ordering::Acquire))
    }

    /// Records that the legacy default stream has new work.
    pub(crate) fn advance(&self) {
        self.legacy.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns what the process knows.
pub(crate) fn base() -> Arc<Base> {
    Arc::clone(lock(&HOST).base())
}

/// Tells a chain to which the process submits what the process knows.
pub(crate) fn tell(chain: &mut Chain) {
    chain.learn_from(&lock(&HOST));
}

/// Records that everything up to these snapshots has completed and that the process has synchronised with it. `write`
/// writes the synchronisation into a trace, before any thread acts on it and after every refusal that lacked it.
pub(crate) fn learn<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, write: impl FnOnce()) {
    let mut host = lock(&HOST);
    write();
    if host.learn_all(snapshots) {
        away::synchronize(|point| host.base().covers(point));
        // Before another thread finds nothing new to learn: its next operation must learn this as well.
        advance();
    }
}

/// Writes a refusal into a trace, before the process learns more. Returns `false` and writes nothing if the process has
/// learned something that was not taken into account.
pub(crate) fn write_refusal(has_news: impl FnOnce(&Host) -> bool, write: impl FnOnce()) -> bool {
    let host = lock(&HOST);
    let is_known = !has_news(&host);
    if is_known {
        write();
    }
    is_known
}

/// Tells every stream of the process that there is something to learn.
pub(crate) fn advance() {
    LEARNED.0.fetch_add(1, Ordering::AcqRel);
}
