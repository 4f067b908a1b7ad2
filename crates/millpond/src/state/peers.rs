//! Devices of one process that meet: a stream of one waits for an event of the other, or work of one uses memory of the
//! other.
//!
//! Each chain of a process has a number of its own, across all devices. So a point means the same to every device, and
//! a stream of any device can learn what another stream recorded. Locks: leaves. Nothing that could own a device is
//! dropped under them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Weak};

use millpond_core::order::Numbers;
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, process};

use crate::clock::device_event::DeviceEvent;
use crate::clock::hosts;
use crate::names::device_name::DeviceName;
use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::state::context::FoundContext;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// The numbers of the chains of all devices of the process.
static NUMBERS: LazyLock<Numbers> = LazyLock::new(Numbers::default);
/// The open devices of the process.
static DEVICES: Mutex<ranks::Table, Vec<Open>> = Mutex::new(Vec::new());

/// A device that is open.
struct Open {
    number: u32,
    /// `true` if other devices may work with it.
    has_peers: bool,
    context: Weak<Context>,
    tracer: Option<Arc<Tracer>>,
}

/// Returns the source of the numbers of chains.
pub(crate) fn numbers() -> &'static Numbers {
    &NUMBERS
}

/// Makes every stream of a forked child process learn something at its next operation, where it is then refused.
extern "C" fn in_child() {
    hosts::advance();
}

/// Enters a device that is open.
pub(crate) fn enter(context: &Arc<Context>) {
    process::watch_forks(in_child);
    let (number, has_peers, tracer) = (context.number, context.driver.peer().is_some(), context.tracer.clone());
    lock(&DEVICES).push(Open { number, has_peers, context: Arc::downgrade(context), tracer });
}

/// Removes a device that is gone.
pub(crate) fn leave(context: &Context) {
    lock(&DEVICES).retain(|other| other.number != context.number);
}

/// Returns the device with a number, while it is open.
pub(crate) fn find(number: u32) -> Option<FoundContext> {
    let devices = lock(&DEVICES);
    FoundContext::upgrade(&devices.iter().find(|other| other.number == number)?.context)
}

/// Returns the numbers of all open devices.
pub(crate) fn open() -> Vec<u32> {
    lock(&DEVICES).iter().map(|device| device.number).collect()
}

/// Returns the tracer of the device with a number, while it is open.
pub(crate) fn tracer_of(number: u32) -> Option<Arc<Tracer>> {
    lock(&DEVICES).iter().find(|other| other.number == number)?.tracer.clone()
}

/// Returns the other devices of the process that this one may have points of.
pub(crate) fn met(context: &Context) -> Vec<FoundContext> {
    let has_met = |context: &Context| context.has_met.load(Ordering::Acquire);
    if !has_met(context) {
        return Vec::new();
    }
    others(context).into_iter().filter(|other| has_met(other)).collect()
}

/// Returns the numbers of all open devices that other devices may work with.
pub(crate) fn numbers_of_peers() -> Vec<u32> {
    lock(&DEVICES).iter().filter(|other| other.has_peers).map(|other| other.number).collect()
}

/// Returns the other devices of the process.
pub(crate) fn others(context: &Context) -> Vec<FoundContext> {
    let devices = lock(&DEVICES);
    let others = devices.iter().filter(|other| other.number != context.number);
    others.filter_map(|other| FoundContext::upgrade(&other.context)).collect()
}

impl Context {
    /// Returns the name that messages use.
    pub(crate) fn name(&self) -> DeviceName {
        DeviceName::new(self.number, self.properties.name.clone())
    }

    /// Records that from now on this device and another may have each other's points.
    pub(crate) fn meet(&self, other: &Context) {
        for context in [self, other] {
            context.has_met.store(true, Ordering::Release);
        }
    }

    /// Refuses two devices that cannot work with each other.
    pub(crate) fn check_peers(&self, other: &Context) -> Result<()> {
        match (self.driver.peer(), other.driver.peer()) {
            (Some(own), Some(their)) if std::mem::discriminant(&own) == std::mem::discriminant(&their) => Ok(()),
            _ => Err(Invalid::NotPeers { device: self.name(), other: other.name() }.into()),
        }
    }

    /// Makes a stream of this device wait for an event of another.
    pub(crate) fn wait_foreign(&self, raw: millpond_driver::RawStream, event: &DeviceEvent) -> Result<()> {
        Ok(self.driver.wait_foreign(raw, &event.fence()?)?)
    }
}
