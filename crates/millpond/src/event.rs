//! An event: a recorded position of a stream (CUDA: `cudaEvent_t` after `cudaEventRecord`).
//!
//! An [`Event`] *is* what was recorded and never changes: recording again makes another event. So the questions which
//! record a wait meant, and whether an event was recorded at all, do not arise.

use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_driver::{Driver, RawMark};

use crate::context::{Context, CountedDriver};
use crate::error::Result;

/// A position of a stream with everything that comes before it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) snapshot: Snapshot,
    pub(crate) mark: Arc<Mark>,
    pub(crate) context: Arc<Context>,
}

/// The driver's side of an event; given back when nobody needs it any more.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) raw: RawMark,
    driver: Arc<CountedDriver>,
}

impl Mark {
    pub(crate) fn new(raw: RawMark, driver: &Arc<CountedDriver>) -> Self {
        Self { raw, driver: Arc::clone(driver) }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.driver.forget(self.raw);
    }
}

impl Event {
    /// Whether everything before it is over (CUDA: `cudaEventQuery`). A yes orders what the host submits from then on
    /// after it, as a synchronisation does.
    ///
    /// # Errors
    /// The device is lost.
    pub fn is_over(&self) -> Result<bool> {
        let context = &self.context;
        let over = context.driver.is_over(self.mark.raw)?;
        if over {
            context.told([&self.snapshot]);
        }
        Ok(over)
    }

    /// Waits until everything before it is over (CUDA: `cudaEventSynchronize`).
    ///
    /// # Errors
    /// The device is lost.
    pub fn synchronize(&self) -> Result<()> {
        let context = &self.context;
        context.driver.block_on(self.mark.raw)?;
        context.synchronized([&self.snapshot]);
        Ok(())
    }
}
