//! Is the program's own order right?
//!
//! A verdict depends on the operations alone: who did what to an allocation, at which points, and which points come
//! before which. This module never sees a pool or an address; where memory is placed and what the device has
//! finished cannot change what it says (*timing-blind*).

mod history;
mod violation;

pub use history::{Fault, History, Use};
pub use violation::{Act, Kind, Place, Site, Subject, Violation};
