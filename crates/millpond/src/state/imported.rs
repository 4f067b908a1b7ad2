//! Memory of another process, as this device's allocations know it: whose it is here, and whom to tell of its end.

use std::fmt;
use std::sync::Arc;

use millpond_core::check::{Act, Place, Site, Use};
use millpond_core::ids::AllocId;
use millpond_driver::process;

use crate::state::allocation::{Allocation, Life, Origin};
use crate::state::context::Context;
use crate::sync::locks::BiasedGuard;
use crate::sync::ranks;

/// What the floor that speaks with other processes does where an import ends.
pub(crate) trait ImportEnd: fmt::Debug + Send + Sync {
    /// The life ended, with this free: the exporter is to learn of it now.
    fn freed(
        &self,
        context: &Arc<Context>,
        id: AllocId,
        life: BiasedGuard<'_, { ranks::LIFE }, Life>,
        free: Option<Use>,
    );
}

/// Where an imported allocation is from.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) context: Arc<Context>,
    /// Whether it may be written to.
    pub(crate) can_write: bool,
    end: Box<dyn ImportEnd>,
}

impl Imported {
    pub(crate) fn new(context: &Arc<Context>, can_write: bool, end: Box<dyn ImportEnd>) -> Self {
        Self { context: Arc::clone(context), can_write, end }
    }
}

/// The life of an import ended with this free: the exporter learns of it now.
pub(crate) fn free_import(
    allocation: &Arc<Allocation>,
    life: BiasedGuard<'_, { ranks::LIFE }, Life>,
    free: Option<Use>,
) {
    let Origin::Imported(imported) = &allocation.origin else { return };
    imported.end.freed(&Arc::clone(&imported.context), allocation.id, life, free);
}

/// The buffer of an import was dropped: freed after everything declared so far.
pub(crate) fn drop_import(allocation: &Arc<Allocation>, generation: u64) {
    if process::is_forked() {
        return;
    }
    let mut life = allocation.life();
    if life.freed.is_some() || life.generation != generation {
        return;
    }
    let last = life.history.uses().last().copied().unwrap_or(life.history.born());
    life.freed = Some(Use { point: last.point, site: Site { act: Act::Free, place: Place::Unknown, ..last.site } });
    if let Some(tracer) = allocation.tracer() {
        tracer.dropped(allocation.id, generation);
    }
    free_import(allocation, life, None);
}
