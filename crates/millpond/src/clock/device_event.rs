//! The driver's side of an event, and the driver as the library calls it.

use std::sync::Arc;
use std::time::Duration;

use millpond_driver::{Counting, Driver, DriverError, Fence, RawEvent, RawTime};

/// A device's driver, with the number of calls of each kind.
pub(crate) type CountedDriver = Counting<Arc<dyn Driver>>;

/// The driver's side of an event; forgotten with its last holder.
#[derive(Debug)]
pub(crate) struct DeviceEvent {
    pub(crate) raw: RawEvent,
    /// The time at which its stream reached it, if that was requested.
    pub(crate) time: Option<RawTime>,
    driver: Arc<CountedDriver>,
}

impl DeviceEvent {
    pub(crate) fn new(raw: RawEvent, driver: &Arc<CountedDriver>) -> Self {
        Self::with_time(raw, None, driver)
    }

    #[inline]
    pub(crate) fn with_time(raw: RawEvent, time: Option<RawTime>, driver: &Arc<CountedDriver>) -> Self {
        Self { raw, time, driver: Arc::clone(driver) }
    }

    /// Replaces the event by another one, and forgets the former.
    #[inline]
    pub(crate) fn become_another(&mut self, raw: RawEvent, driver: &Arc<CountedDriver>) {
        if !Arc::ptr_eq(&self.driver, driver) {
            *self = Self::new(raw, driver);
            return;
        }
        self.give_back();
        (self.raw, self.time) = (raw, None);
    }

    #[inline]
    fn give_back(&self) {
        self.driver.forget(self.raw);
        if let Some(time) = self.time {
            self.driver.forget_time(time);
        }
    }

    pub(crate) fn is_over(&self) -> millpond_driver::Result<bool> {
        self.driver.is_over(self.raw)
    }

    /// Returns `true` if the device is known to be past the event, without waiting; `false` after an error.
    pub(crate) fn has_passed(&self) -> bool {
        self.driver.peek(self.raw) == Ok(true)
    }

    /// Returns the driver that made it.
    pub(crate) fn driver(&self) -> &CountedDriver {
        &self.driver
    }

    /// Returns the event for streams of other devices, valid as long as this exists.
    pub(crate) fn fence(&self) -> millpond_driver::Result<Fence> {
        self.driver.fence(self.raw)
    }
}

impl Drop for DeviceEvent {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The longest pause before another attempt to wait for a device that refused.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Waits for the device, and tries again while it refuses, because before that nothing says that the work has
/// completed. A lost device runs nothing any more.
pub(crate) fn insist(mut wait: impl FnMut() -> millpond_driver::Result<()>) {
    let mut pause = Duration::from_millis(1);
    while wait().is_err_and(|error| !matches!(error, DriverError::Lost { .. })) {
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}
