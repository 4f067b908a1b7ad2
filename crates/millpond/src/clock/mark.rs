//! The driver's side of an event, and the driver as the library calls it.

use std::sync::Arc;

use millpond_driver::{Counting, Driver, Fence, RawMark};

/// A device's driver, and how often each of its calls was made.
pub(crate) type CountedDriver = Counting<Arc<dyn Driver>>;

/// The driver's side of an event; given back with its last holder.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) raw: RawMark,
    driver: Arc<CountedDriver>,
}

impl Mark {
    pub(crate) fn new(raw: RawMark, driver: &Arc<CountedDriver>) -> Self {
        Self { raw, driver: Arc::clone(driver) }
    }

    pub(crate) fn is_over(&self) -> millpond_driver::Result<bool> {
        self.driver.is_over(self.raw)
    }

    /// For streams of other devices, as long as this lives.
    pub(crate) fn fence(&self) -> millpond_driver::Result<Fence> {
        self.driver.fence(self.raw)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.driver.forget(self.raw);
    }
}
