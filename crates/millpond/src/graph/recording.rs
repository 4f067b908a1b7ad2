//! All captures of a device in progress: core's, and the bodies of their graphs. What they do is in `capture.rs`.

use std::sync::Arc;

use millpond_core::graph::{CaptureId, Captures, Uses};
use millpond_core::ids::StreamId;
use rustc_hash::FxHashMap;

use super::body::Body;
use crate::state::session::Session;

/// A graph that is being captured; its core is with the [`Captures`] meanwhile.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) session: Arc<Session>,
    pub(super) origin: StreamId,
    pub(super) body: Body,
    /// What its nodes did to memory.
    pub(super) uses: Uses,
}

/// All captures of a device in progress.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The number of their device.
    pub(super) device: u32,
    pub(super) captures: Captures,
    pub(super) open: FxHashMap<CaptureId, Open>,
}

impl Recording {
    pub(super) fn new(device: u32) -> Self {
        Self { device, captures: Captures::new(), open: FxHashMap::default() }
    }
}
