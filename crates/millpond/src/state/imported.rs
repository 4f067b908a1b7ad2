//! Memory of another process, as this device's allocations know it: whose it is here.

use std::sync::Arc;

use crate::state::types::DeviceTypes;

/// Where an imported allocation is from.
#[derive(Debug)]
pub(crate) struct Imported<C: DeviceTypes> {
    pub(crate) context: Arc<C>,
    /// Whether it may be written to.
    pub(crate) can_write: bool,
}
