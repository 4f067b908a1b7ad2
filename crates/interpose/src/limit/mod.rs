//! The limit of device memory: `millpond run --limit`.
//!
//! Each call that makes or ends memory of a device is counted where it reaches the driver library: calls of the program
//! that no server answers, and calls of Millpond's own driver, which make the chunks of its pool. `table` has what each
//! call does ([`Change`]). So all memory is counted at one place, whoever asked for it.
//!
//! | file | what it does |
//! |---|---|
//! | `amounts` | the amounts that the command passes on |
//! | `account` | the accounting file, which all processes of the program map |
//! | `process` | which processes have ended |
//! | `shared_lock` | the lock of the accounting file |
//! | `owned` | what this process has made, by the keys that the program ends it with |
//! | `counted` | the changes, and a call with its change |
//! | `arrays` | the sizes of arrays |
//! | `nvml` | the answers of NVML, a library of its own |
//! | `nvml_use` | what NVML says that this process uses |
//! | `rest` | what the process uses beyond all that is counted |
//! | `refused` | the message about a refused allocation, and the report to the command |
//!
//! CUDA's own pools and graphs decide themselves when they take memory and give it back. The driver says how much they
//! have reserved, and that figure is taken over.

mod account;
mod amounts;
pub(crate) mod arrays;
mod counted;
pub(crate) mod nvml;
mod nvml_use;
mod owned;
mod process;
pub(crate) mod refused;
mod rest;
mod shared_lock;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_driver::cuda::abi::pool::attribute;
use millpond_driver::locks::{Guard, InDriver, Mutex, RwLock, lock, read};
use millpond_driver::output::say;
use rustc_hash::FxHashSet;

pub(crate) use account::Kind;
pub(crate) use counted::{Change, Door, counted};
pub(crate) use owned::Key;

use crate::abi::Pool;
use crate::once::Once;
use crate::signals::{self, End, Who};
use crate::{ask, capturing, mode, report};
use account::{Account, Shared};
use amounts::DEVICES_MAX;
use owned::{Object, Owned};
use rest::Rest;

/// The limit of a device.
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// The device's place in the account.
    place: usize,
    bytes: u64,
}

/// The state of a process.
struct State {
    account: Account,
    owned: Mutex<InDriver, Owned>,
    /// The pools of CUDA's from which memory was allocated, with their devices. While they are asked, no pool is
    /// destroyed.
    drawn: RwLock<InDriver, FxHashSet<(Pool, i32)>>,
    limits: [OnceLock<Option<Limited>>; DEVICES_MAX],
    /// The devices whose pools and graphs are to be measured, as bits.
    measured: AtomicU64,
    /// `true` once a graph may have memory.
    has_nodes: AtomicBool,
    rest: Rest,
    refused: AtomicU64,
}

/// The state, from the first call that counts on.
static STATE: Once<State> = Once::new();
/// The accounting file, mapped. A program may later change its user or its root, close files, or fork: it has the
/// mapping all the same.
static FILE: OnceLock<Option<&'static Shared>> = OnceLock::new();

/// Runs when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static MAP: extern "C" fn() = map;

#[cfg_attr(test, expect(dead_code, reason = "it is called by the loader"))]
extern "C" fn map() {
    report::find();
    if let Some(limit) = mode::limit() {
        FILE.get_or_init(|| Shared::map(&limit.account));
    }
}

/// Returns `true` if there is a limit.
#[inline]
pub(crate) fn is_on() -> bool {
    mode::limit().is_some()
}

/// Returns the state, if there is a limit.
fn state() -> Option<&'static State> {
    let limit = mode::limit()?;
    let known = STATE.get();
    if let Some(state) = known.filter(|state| state.account.is_of_this_process()) {
        return Some(state);
    }
    // A process may also be forked without the handlers of forks.
    known.into_iter().for_each(|state| STATE.forget_this(state));
    STATE.get_or_make(|| begin(limit))
}

fn begin(limit: &mode::Limit) -> Option<State> {
    let account = FILE.get().copied().flatten().and_then(Account::enter).or_else(|| {
        let file = limit.account.display();
        say(format_args!("millpond: {file} cannot be used: the limit counts for process {} alone", std::process::id()));
        Account::enter(Shared::alone()?)
    })?;
    signals::watch(Who::Limit, End { finish, forget, leave: Some(leave), save: None });
    Some(State {
        account,
        owned: Mutex::new(Owned::default()),
        drawn: RwLock::new(FxHashSet::default()),
        limits: [const { OnceLock::new() }; DEVICES_MAX],
        measured: AtomicU64::new(0),
        has_nodes: AtomicBool::new(false),
        rest: Rest::new(),
        refused: AtomicU64::new(0),
    })
}

/// Returns the state, if this process has one.
fn current() -> Option<&'static State> {
    // A process that shares this one's memory (vfork) has none of its own.
    STATE.get().filter(|state| state.account.is_of_this_process())
}

/// Starts anew in a forked process: the memory is the parent's.
fn forget() {
    STATE.forget();
}

/// The memory ends with the program that is replaced.
fn leave() {
    current().into_iter().for_each(|state| state.account.leave());
}

fn finish() {
    refused::report();
    current().into_iter().for_each(|state| state.account.end());
}

/// Makes CUDA's pools and graphs give back what the process does not use. No stream captures.
pub(crate) fn trim() {
    let Some(state) = current() else { return };
    read(&state.drawn).iter().for_each(|it| ask::trim_pool(it.0));
    if state.has_nodes.load(Ordering::Relaxed) {
        (0..DEVICES_MAX as i32).filter(|device| state.is_measured(*device)).for_each(ask::trim_graphs);
    }
}

impl State {
    fn owned(&self) -> Guard<'_, Owned> {
        lock(&self.owned)
    }

    /// Returns the limit of a device.
    fn limited(&self, device: i32) -> Option<Limited> {
        let known = self.limits.get(usize::try_from(device).ok()?)?;
        if let Some(known) = known.get() {
            return *known;
        }
        // Before the driver is initialised it does not answer, and no memory can be made.
        let total = ask::total_bytes_of(device)?;
        Some(*known.get_or_init(|| {
            let bytes = amounts::of(&mode::limit()?.amounts, device)?.bytes(total);
            let by_number = || u128::MAX.wrapping_sub(device as u128).to_be_bytes();
            let place = self.account.place(ask::uuid_of(device).unwrap_or_else(by_number), bytes)?;
            Some(Limited { place, bytes })
        }))?
    }

    /// Counts memory that is about to be made. Returns `false` if that would pass the limit.
    fn take(&self, device: i32, limited: Limited, kind: Kind, bytes: u64) -> bool {
        let Limited { place, bytes: limit } = limited;
        self.measure(device);
        let take = |now| {
            let is_known = self.rest.measure(&self.account, device, place, now);
            (bytes == 0 || self.account.take(place, limit, kind, bytes), is_known)
        };
        // What NVML said may be of an earlier time.
        let is_within = match take(false) {
            (false, true) => take(true).0,
            (is_within, _) => is_within,
        };
        refused::set((!is_within).then_some((device, bytes)));
        is_within
    }

    fn give(&self, object: Object) {
        self.account.give(object.place, object.kind, object.bytes);
    }

    /// From now on the pools and the graphs of a device are measured.
    fn will_measure(&self, device: i32) {
        self.measured.fetch_or(1 << device.clamp(0, 63), Ordering::Relaxed);
    }

    fn is_measured(&self, device: i32) -> bool {
        self.measured.load(Ordering::Relaxed) & 1 << device.clamp(0, 63) != 0
    }

    /// Takes over what CUDA's pools and graphs have reserved on a device. Their figures stay as they are while a stream
    /// captures: `cuMemPoolGetAttribute` makes a capture invalid.
    fn measure(&self, device: i32) {
        if !self.is_measured(device) {
            return;
        }
        let Some(Limited { place, .. }) = self.limited(device) else { return };
        let has_nodes = self.has_nodes.load(Ordering::Relaxed);
        let pending = self.account.own(place, Kind::Pending);
        let measured = capturing::while_none(|| {
            let drawn = read(&self.drawn);
            let pools = drawn.iter().filter(|it| it.1 == device);
            let reserved: u64 = pools.filter_map(|it| ask::pool_bytes(it.0, attribute::RESERVED)).sum();
            drop(drawn);
            (reserved, if has_nodes { ask::graph_bytes_of(device) } else { None })
        });
        if let Some((of_pools, of_graphs)) = measured {
            self.owned().unmeasured.retain(|_, it| it.0 != place);
            // Pools may have taken already what is pending.
            self.account.set(place, Kind::CudaPool, of_pools.saturating_sub(pending));
            of_graphs.into_iter().for_each(|bytes| self.account.set(place, Kind::Graph, bytes));
        }
    }

    /// NVML is asked anew about each device that it was asked about.
    fn measure_rest(&self) {
        for device in self.rest.asked() {
            if let Some(Limited { place, .. }) = self.limited(device) {
                self.rest.measure(&self.account, device, place, true);
            }
        }
    }

    fn measure_all(&self) {
        if self.measured.load(Ordering::Relaxed) != 0 {
            (0..DEVICES_MAX as i32).for_each(|device| self.measure(device));
        }
    }
}
