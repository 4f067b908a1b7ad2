//! Devices of one process that meet: by an event that another's stream waits for, by memory that another's work uses.
//!
//! All chains of a process have numbers of their own, whichever device they are of, so a point means the same to every
//! device, and what one stream recorded another of any device can learn. What is kept apart is what hosts know: each
//! device knows of its own synchronisations. A thread that waited for one device and then submits to another comes
//! after what it waited for all the same: that is looked up where it would be missed ([`Context::learn_abroad`]), and
//! costs nothing before. Locks: leaves; nothing is dropped under them that could own a device.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Weak};

use millpond_core::order::Numbers;
use millpond_driver::locks::{Guard, Mutex, lock};
use millpond_driver::{Driver, process};

use crate::clock::hosts::Knowledge;
use crate::clock::mark::Mark;
use crate::names::device_name::DeviceName;
use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::state::context::FoundContext;
use crate::state::device::{State, StreamShared};
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// Chains of all devices of the process.
static NUMBERS: LazyLock<Numbers> = LazyLock::new(Numbers::default);
/// The devices of the process.
static DEVICES: Mutex<ranks::Devices, Devices> = Mutex::new(Vec::new());
type Devices = Vec<Open>;

/// A device that is open.
struct Open {
    number: u32,
    /// Whether others may have to do with it.
    has_peers: bool,
    context: Weak<Context>,
    tracer: Option<Arc<Tracer>>,
}
/// What hosts know of those devices that have met others.
static MET: Mutex<ranks::Met, Vec<(u32, Weak<Knowledge>)>> = Mutex::new(Vec::new());
/// What hosts knew of those among them that are gone.
static GONE: LazyLock<Arc<Knowledge>> = LazyLock::new(|| Arc::new(Knowledge::new(0)));

/// Where chains get their numbers from.
pub(crate) fn numbers() -> &'static Numbers {
    &NUMBERS
}

thread_local! {
    /// The devices, from before this thread forks until that is done: a forked process finds the list whole.
    static FORKING: RefCell<Option<Guard<'static, Devices>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(lock(&DEVICES)));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}

/// Every stream has something to learn from now on, and is refused where it would learn it.
extern "C" fn in_child() {
    let _ = FORKING.try_with(|forking| {
        for device in forking.borrow_mut().take().iter().flat_map(|devices| devices.iter()) {
            if let Some(context) = device.context.upgrade() {
                context.hosts.advance();
                // The parent's threads have it, too, here for ever.
                std::mem::forget(context);
            }
        }
    });
}

/// A device is open.
pub(crate) fn enter(context: &Arc<Context>) {
    process::watch_forks(before_fork, in_parent, in_child);
    let (number, has_peers, tracer) = (context.number, context.driver.peer().is_some(), context.tracer.clone());
    lock(&DEVICES).push(Open { number, has_peers, context: Arc::downgrade(context), tracer });
}

/// A device goes. What its hosts know stays true.
pub(crate) fn leave(context: &Context) {
    let knowledge = &context.hosts.knowledge;
    if knowledge.has_met.load(Ordering::Acquire) {
        GONE.join(&knowledge.base());
    }
    lock(&DEVICES).retain(|other| other.number != context.number);
    lock(&MET).retain(|(other, _)| *other != context.number);
}

/// The device of a number, while it is open.
pub(crate) fn find(number: u32) -> Option<FoundContext> {
    let devices = lock(&DEVICES);
    FoundContext::upgrade(&devices.iter().find(|other| other.number == number)?.context)
}

/// The numbers of all open devices.
pub(crate) fn open() -> Vec<u32> {
    lock(&DEVICES).iter().map(|device| device.number).collect()
}

/// What traces the device of a number, while it is open.
pub(crate) fn tracer_of(number: u32) -> Option<Arc<Tracer>> {
    lock(&DEVICES).iter().find(|other| other.number == number)?.tracer.clone()
}

/// The other devices of the process that this one may have points of.
pub(crate) fn met(context: &Context) -> Vec<FoundContext> {
    let has_met = |context: &Context| context.hosts.knowledge.has_met.load(Ordering::Acquire);
    if !has_met(context) {
        return Vec::new();
    }
    others(context).into_iter().filter(|other| has_met(other)).collect()
}

/// The numbers of all open devices that others may have to do with.
pub(crate) fn numbers_of_peers() -> Vec<u32> {
    lock(&DEVICES).iter().filter(|other| other.has_peers).map(|other| other.number).collect()
}

/// The other devices of the process.
pub(crate) fn others(context: &Context) -> Vec<FoundContext> {
    let devices = lock(&DEVICES);
    let others = devices.iter().filter(|other| other.number != context.number);
    others.filter_map(|other| FoundContext::upgrade(&other.context)).collect()
}

/// From now on two devices may have each other's points.
fn meet(both: [&Arc<Knowledge>; 2]) {
    for hosts in both {
        if !hosts.has_met.swap(true, Ordering::AcqRel) {
            lock(&MET).push((hosts.number, Arc::downgrade(hosts)));
        }
    }
}

impl Context {
    /// What messages call it.
    pub(crate) fn name(&self) -> DeviceName {
        DeviceName::new(self.number, self.properties.name.clone())
    }

    /// From now on this device and another may have each other's points.
    pub(crate) fn meet(&self, other: &Context) {
        meet([&self.hosts.knowledge, &other.hosts.knowledge]);
    }

    /// The program has synchronised with other devices, too: that counts here. Whether that is news.
    #[cold]
    pub(crate) fn learn_abroad(&self) -> bool {
        let others: Vec<_> = match self.hosts.knowledge.has_met.load(Ordering::Acquire) {
            true => lock(&MET).iter().filter_map(|(_, known)| known.upgrade()).chain([Arc::clone(&GONE)]).collect(),
            false => return false,
        };
        let others = others.iter().filter(|other| !Arc::ptr_eq(other, &self.hosts.knowledge));
        let mut is_news = false;
        for base in others.map(|other| other.base()) {
            let own = self.hosts.base();
            if base.points().any(|point| !own.covers(point)) {
                self.hosts.join(&base);
                is_news = true;
            }
        }
        is_news
    }

    /// Refuses two devices that can have nothing to do with each other.
    pub(crate) fn check_peers(&self, other: &Context) -> Result<()> {
        match (self.driver.peer(), other.driver.peer()) {
            (Some(own), Some(their)) if std::mem::discriminant(&own) == std::mem::discriminant(&their) => Ok(()),
            _ => Err(Invalid::NotPeers { device: self.name(), other: other.name() }.into()),
        }
    }

    /// Makes a stream of this device wait for a mark of another.
    pub(crate) fn wait_foreign(&self, raw: millpond_driver::RawStream, mark: &Mark) -> Result<()> {
        Ok(self.driver.wait_foreign(raw, &mark.fence()?)?)
    }
}

impl StreamShared {
    /// As [`Context::learn_abroad`], and the stream learns of it.
    #[inline]
    pub(crate) fn learn_abroad(&self, state: &mut State) -> bool {
        self.context.hosts.knowledge.has_met.load(Ordering::Acquire) && self.learn_from_others(state)
    }

    #[cold]
    fn learn_from_others(&self, state: &mut State) -> bool {
        let (hosts, is_news) = (&self.context.hosts, self.context.learn_abroad());
        if is_news {
            hosts.tell(&mut state.chain);
        }
        is_news
    }
}
