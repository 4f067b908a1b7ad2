//! Memory of another process, as this device's allocations know it: whose it is here, and whom to tell of its end.

use std::fmt;
use std::sync::Arc;

use millpond_core::check::Use;
use millpond_core::ids::AllocId;
use millpond_driver::locks::BiasedGuard;

use crate::state::allocation::Life;
use crate::state::types::DeviceTypes;

/// What the floor that speaks with other processes does where an import ends.
pub(crate) trait ImportEnd<C: DeviceTypes>: fmt::Debug + Send + Sync {
    /// The life ended, with this free: the exporter is to learn of it now.
    fn freed(&self, context: &Arc<C>, id: AllocId, life: BiasedGuard<'_, Life<C>>, free: Option<Use>);
}

/// Where an imported allocation is from.
#[derive(Debug)]
pub(crate) struct Imported<C: DeviceTypes> {
    pub(crate) context: Arc<C>,
    /// Whether it may be written to.
    pub(crate) can_write: bool,
    end: Box<dyn ImportEnd<C>>,
}

impl<C: DeviceTypes> Imported<C> {
    pub(crate) fn new(context: &Arc<C>, can_write: bool, end: Box<dyn ImportEnd<C>>) -> Self {
        Self { context: Arc::clone(context), can_write, end }
    }

    /// The life of an import ended with this free: the exporter learns of it now.
    pub(crate) fn freed(&self, id: AllocId, life: BiasedGuard<'_, Life<C>>, free: Option<Use>) {
        self.end.freed(&Arc::clone(&self.context), id, life, free);
    }
}
