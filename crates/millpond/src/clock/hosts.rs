//! What the host threads of a device's program have synchronised with, and when streams must learn of it.
//!
//! Knows the order's [`Host`]s; nothing of memory. Usually all threads are one host: whatever a thread has learned by a
//! synchronisation holds for what any thread submits afterwards. With [`HostThreads::Separate`] each thread learns
//! for itself, and [`HostKnowledge`] carries knowledge from one to another, where the program does so by its own means.
//!
//! The one number that the hot path looks at is the epoch: it changes when a host has learned something or the legacy
//! default stream has work that other streams must wait for. A stream that has seen the epoch has nothing to learn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use millpond_core::ids::{Point, Slot};
use millpond_core::order::{Base, Chain, Host, Knows, Snapshot};
use millpond_driver::locks::{Mutex, lock};
use smallvec::SmallVec;

use crate::names::config::HostThreads;
use crate::sync::ranks;
use crate::trace::tracer::TracedKnowledge;

/// What a thread knew when it made this, for another thread to learn: only with
/// [`HostThreads::Separate`](crate::config::HostThreads::Separate) does that matter.
///
/// ```
/// use millpond::config::{HostConfig, HostThreads};
///
/// # fn main() -> millpond::Result<()> {
/// let device = millpond::Device::host(HostConfig::default().host_threads(HostThreads::Separate))?;
/// let (left, right) = (device.stream()?, device.stream()?);
/// let x = left.upload(&device.default_pool(), &[1, 2, 3])?;
/// left.synchronize()?; // this thread knows that the copy has completed
/// let known = device.knowledge();
/// std::thread::scope(|scope| {
///     let other = scope.spawn(|| {
///         assert!(right.copy_to_host(x.read()).is_err()); // the other one does not,
///         device.learn(&known); // until it learns it
///         right.copy_to_host(x.read())
///     });
///     assert_eq!(other.join().expect("it does not panic")?, [1, 2, 3]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct HostKnowledge {
    pub(crate) base: Arc<Base>,
    /// Who stands for it in a trace.
    pub(crate) traced: Option<TracedKnowledge>,
}

impl fmt::Debug for HostKnowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKnowledge")
    }
}

/// A host as a party of the order: after all that it knows to have completed.
pub(crate) struct HostKnows<'a>(pub(crate) &'a Base);

impl Knows for HostKnows<'_> {
    fn slot(&self) -> Slot {
        Slot(u32::MAX)
    }

    fn covers(&self, point: Point) -> bool {
        self.0.covers(point)
    }
}

/// The hosts of one device.
#[derive(Debug)]
#[repr(align(128))] // Every operation reads the epoch: no lock that is taken shares its cache line.
pub(crate) struct Hosts {
    pub(crate) knowledge: Arc<Knowledge>,
    epoch: AtomicU64,
}

/// What they know; other devices of the process ask for it, too.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) number: u32,
    threads: HostThreads,
    one: Mutex<ranks::Host, Host>,
    /// Whether the order of the device and another's may know points of each other.
    pub(crate) has_met: AtomicBool,
    /// Whether the device is gone: its threads' hosts are then known as one.
    is_gone: AtomicBool,
}

/// What a thread knows of devices that keep threads apart.
struct Own {
    /// Its host on each of them, by the device's number.
    hosts: HashMap<u32, (Arc<Knowledge>, Host)>,
    /// What it knew of those that are gone, and had met others.
    gone: Host,
}

/// A number for another host: bases of several devices may meet.
pub(crate) fn next_host() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::new(Own { hosts: HashMap::new(), gone: Host::new(next_host()) });
}

impl Hosts {
    pub(crate) fn new(number: u32, threads: HostThreads) -> Self {
        let knowledge = Arc::new(Knowledge { number, threads, ..Knowledge::default() });
        // Streams begin with 0, so that their first operation learns what there is.
        Self { knowledge, epoch: AtomicU64::new(1) }
    }

    /// Whether every operation must ask, since threads differ.
    pub(crate) fn are_separate(&self) -> bool {
        self.knowledge.threads == HostThreads::Separate
    }

    /// Changes whenever there is something to learn.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// There is something new to learn.
    pub(crate) fn advance(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// What the calling thread knows.
    pub(crate) fn base(&self) -> Arc<Base> {
        self.knowledge.base()
    }

    /// A chain that the calling thread submits to learns what that knows.
    pub(crate) fn tell(&self, chain: &mut Chain) {
        self.knowledge.with(|host| chain.learn_from(host));
    }

    /// What the calling thread knows, as a party of the order.
    pub(crate) fn with<R>(&self, ask: impl FnOnce(&Host) -> R) -> R {
        self.knowledge.with(|host| ask(host))
    }

    /// The calling thread knows that everything up to these has completed.
    pub(crate) fn learn<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot>) {
        self.change(|host| host.learn_all(snapshots));
    }

    /// The calling thread learns what another knew.
    pub(crate) fn join(&self, other: &HostKnowledge) {
        self.change(|host| host.learn_base(&other.base));
    }

    /// Changes what the calling thread knows. The epoch moves before anybody else can find that there is no news: that
    /// one's next operation must learn of it as well.
    fn change(&self, change: impl FnOnce(&mut Host) -> bool) {
        self.knowledge.with(|host| {
            if change(host) {
                self.advance();
            }
        });
    }
}

impl Default for Knowledge {
    /// What one host knows that has synchronised with nothing.
    fn default() -> Self {
        let one = Mutex::new(Host::new(next_host()));
        let (has_met, is_gone) = Default::default();
        Self { number: 0, threads: HostThreads::One, one, has_met, is_gone }
    }
}

impl Knowledge {
    /// The calling thread learns what another knew; whether that is news.
    pub(crate) fn join(self: &Arc<Self>, base: &Base) -> bool {
        self.with(|host| host.learn_base(base))
    }

    /// What the calling thread knows.
    pub(crate) fn base(self: &Arc<Self>) -> Arc<Base> {
        self.with(|host| Arc::clone(host.base()))
    }

    /// The device is gone. What its hosts know stays true: each thread keeps its own, and what all threads know is
    /// given back, for those who go on.
    pub(crate) fn end(self: &Arc<Self>) -> Option<Arc<Base>> {
        self.is_gone.store(true, Ordering::Release);
        (self.threads == HostThreads::One).then(|| self.base())
    }

    /// What the calling thread knows of other devices that keep threads apart, too, where that is news here.
    pub(crate) fn beside(&self) -> SmallVec<[(Arc<Knowledge>, Arc<Base>); 1]> {
        let news = |own: &Own| {
            let here = own.hosts.get(&self.number).map(|(_, host)| host.base());
            let is_news = |base: &Base| base.points().any(|point| !here.is_some_and(|here| here.covers(point)));
            let is_other = |of: &Arc<Knowledge>| of.number != self.number && !of.is_gone.load(Ordering::Acquire);
            let others = own.hosts.values().filter(|(of, host)| is_other(of) && is_news(host.base()));
            others.map(|(of, host)| (Arc::clone(of), Arc::clone(host.base()))).collect()
        };
        OWN.try_with(|own| news(&own.borrow())).unwrap_or_default()
    }

    fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Host) -> R) -> R {
        if self.threads == HostThreads::One {
            return f(&mut lock(&self.one));
        }
        let mut f = Some(f);
        let mut call = |host: &mut Host| f.take().map(|f| f(host));
        let done = OWN.try_with(|own| call(self.own(&mut own.borrow_mut())));
        // A thread that ends has lost what it knew: from here on it is a new host at each call.
        done.ok().flatten().or_else(|| call(&mut Host::new(next_host()))).expect("it is called once")
    }

    fn own<'a>(self: &Arc<Self>, own: &'a mut Own) -> &'a mut Host {
        if !own.hosts.contains_key(&self.number) {
            own.sweep();
        }
        &mut own.hosts.entry(self.number).or_insert_with(|| (Arc::clone(self), Host::new(next_host()))).1
    }
}

impl Own {
    /// Devices that are gone are known as one.
    fn sweep(&mut self) {
        for (_, (of, host)) in self.hosts.extract_if(|_, (of, _)| of.is_gone.load(Ordering::Acquire)) {
            if of.has_met.load(Ordering::Acquire) {
                self.gone.learn_base(host.base());
            }
        }
    }
}

/// What the calling thread knew of devices that are gone and kept threads apart.
pub(crate) fn known_of_gone() -> Option<Arc<Base>> {
    let known = |own: &mut Own| {
        own.sweep();
        Arc::clone(own.gone.base())
    };
    OWN.try_with(|own| known(&mut own.borrow_mut())).ok()
}
