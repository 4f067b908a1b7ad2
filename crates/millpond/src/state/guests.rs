//! Memory of other devices that this device's work may use. The driver keeps it in place, also after its device is
//! gone.
//!
//! It is released once its device is gone and all work that this device had by then has completed: no buffer or view is
//! left that could name it in later work. Depends on numbers of devices and on points.

use std::sync::Arc;

use millpond_core::ids::Point;
use millpond_core::order::Completed;
use millpond_driver::HeldMemory;

/// Memory of another device.
pub(crate) struct Guest {
    memory: HeldMemory,
    /// The number of its device.
    device: u32,
    /// The work that may use it. Set once its device is gone.
    after: Option<Vec<Point>>,
}

/// All memory that the driver keeps.
#[derive(Default)]
pub(crate) struct Guests(Vec<Guest>);

impl Guests {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that memory of a device is kept. Returns `true` if that is new.
    pub(crate) fn add(&mut self, device: u32, memory: &HeldMemory) -> bool {
        let is_news = self.0.iter().all(|guest| !Arc::ptr_eq(&guest.memory, memory));
        if is_news {
            self.0.push(Guest { memory: Arc::clone(memory), device, after: None });
        }
        is_news
    }

    /// Takes out the memory that no work uses any more. `unfinished` returns what the device has not completed.
    pub(crate) fn take_over(
        &mut self,
        is_open: impl Fn(u32) -> bool,
        unfinished: impl Fn() -> Vec<Point>,
        completed: &impl Completed,
    ) -> Vec<HeldMemory> {
        let is_over = |guest: &mut Guest| {
            if guest.after.is_none() && !is_open(guest.device) {
                guest.after = Some(unfinished());
            }
            guest.after.as_mut().is_some_and(|after| {
                after.retain(|point| !completed.is_over(*point));
                after.is_empty()
            })
        };
        self.0.extract_if(.., is_over).map(|guest| guest.memory).collect()
    }
}
