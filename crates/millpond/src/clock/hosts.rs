//! What the host threads of the process have synchronised with, and when streams must learn of it.
//!
//! All threads of the process are one [`Host`]: whatever one of them has learned by a synchronisation with any device
//! holds for what any of them submits afterwards, to any device. Knows nothing of memory.
//!
//! The hot path looks at one number only, the epoch: it changes when the host has learned something or the legacy
//! default stream of the device has work that other streams must wait for. A stream that has seen the epoch has nothing
//! to learn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use millpond_core::order::{Base, Chain, Host, Snapshot};
use millpond_driver::locks::{Mutex, lock};

use crate::sync::ranks;
use crate::trace::away;

/// The process.
static HOST: LazyLock<Mutex<ranks::Table, Host>> = LazyLock::new(|| Mutex::new(Host::new(next_host())));

/// Counts what the process has learned. Streams begin with epoch 0, so that their first operation learns what there is.
static LEARNED: Alone = Alone(AtomicU64::new(1));

/// Every operation reads it: no lock that is taken shares its cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// A number for another host: bases of several may meet.
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

    /// Changes whenever there is something to learn: it is a sum of two counts that only grow.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        LEARNED.0.load(Ordering::Acquire).wrapping_add(self.legacy.0.load(Ordering::Acquire))
    }

    /// The legacy default stream has new work.
    pub(crate) fn advance(&self) {
        self.legacy.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// What the process knows.
pub(crate) fn base() -> Arc<Base> {
    Arc::clone(lock(&HOST).base())
}

/// A chain that the process submits to learns what that knows.
pub(crate) fn tell(chain: &mut Chain) {
    chain.learn_from(&lock(&HOST));
}

/// Everything up to these has completed, and the process has synchronised with that, which `write` writes into a trace:
/// before anybody acts on it, and after all that is refused for want of it.
pub(crate) fn learn<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, write: impl FnOnce()) {
    let mut host = lock(&HOST);
    write();
    if host.learn_all(snapshots) {
        away::synchronize(|point| host.base().covers(point));
        // Before anybody else can find that there is no news: that one's next operation must learn of it as well.
        advance();
    }
}

/// Writes a refusal into a trace, before the process learns more: false, and nothing is written, where it has learned
/// something by now that was not asked for.
pub(crate) fn write_refusal(has_news: impl FnOnce(&Host) -> bool, write: impl FnOnce()) -> bool {
    let host = lock(&HOST);
    let is_known = !has_news(&host);
    if is_known {
        write();
    }
    is_known
}

/// Every stream of the process has something to learn.
pub(crate) fn advance() {
    LEARNED.0.fetch_add(1, Ordering::AcqRel);
}
