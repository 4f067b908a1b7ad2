//! Graphs that the driver runs itself: one driver call for each launch.
//!
//! Depends on the driver's nodes, not on what they were made from: see `graph/native_nodes.rs`. The driver needs the
//! memory that nodes name to be mapped, and a graph's own memory is bound by a launch. So the caller of
//! [`Native::make`] must ensure that it is there.

use std::sync::{Arc, OnceLock};

use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, DriverError, Node, NodeWork, RawExec, RawGraph, RawStream};

use crate::clock::device_event::CountedDriver;
use crate::names::error::Result;
use crate::pool::shell::{self, TRIES};
use crate::state::context::Context;
use crate::sync::ranks;

/// An executable graph of the driver. Launches in flight outlive it.
#[derive(Debug)]
pub(crate) struct Native {
    made: OnceLock<RawExec>,
    /// The nodes to make it of; empty once it is made.
    nodes: Mutex<ranks::Table, Vec<Node>>,
    driver: Arc<CountedDriver>,
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(raw) = self.made.get() {
            // If the driver refuses every time, it keeps the graph until the device is gone.
            let _ = (0..TRIES).any(|_| self.driver.destroy_exec(*raw).is_ok());
        }
    }
}

impl Native {
    /// Returns an executable graph of these nodes that is not made yet.
    pub(crate) fn planned(context: &Context, nodes: Vec<Node>) -> Self {
        Self { made: OnceLock::new(), nodes: Mutex::new(nodes), driver: Arc::clone(&context.driver) }
    }

    /// Makes the graph on the device, if that was not done yet. The memory that its nodes name must be there.
    #[cold]
    pub(crate) fn make(&self, context: &Context) -> Result<()> {
        let mut nodes = lock(&self.nodes);
        if self.made.get().is_none() {
            let raw = shell::instantiate_graph(context, &nodes)?;
            // The device keeps what the nodes own.
            *nodes = Vec::new();
            let _ = self.made.set(raw);
        }
        Ok(())
    }

    #[inline]
    fn raw(&self) -> Result<RawExec> {
        let unmade = || DriverError::Failed { call: "launch", reason: "the graph was not made on the device".into() };
        Ok(*self.made.get().ok_or_else(unmade)?)
    }

    /// Submits a launch to the driver.
    #[inline]
    pub(crate) fn launch(&self, context: &Context, stream: RawStream) -> Result<()> {
        Ok(shell::launch_graph(context, self.raw()?, stream)?)
    }

    pub(crate) fn upload(&self, stream: RawStream) -> Result<()> {
        Ok(self.driver.upload(self.raw()?, stream)?)
    }
}

/// Work of foreign code, captured from a stream.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) raw: RawGraph,
    /// The executable graph of this work alone, for instances that run lane by lane.
    alone: Native,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // If the driver refuses every time, it keeps the graph until the device is gone.
        let _ = (0..TRIES).any(|_| self.alone.driver.destroy_graph(self.raw).is_ok());
    }
}

impl Foreign {
    pub(crate) fn new(context: &Context, raw: RawGraph) -> Self {
        let node = Node { work: NodeWork::Captured(raw), after: Vec::new() };
        Self { raw, alone: Native::planned(context, vec![node]) }
    }

    /// Makes an executable graph of the work. Call it before the first [`launch`](Self::launch).
    pub(crate) fn prepare(&self, context: &Context) -> Result<()> {
        self.alone.make(context)
    }

    /// Submits the work to a lane.
    pub(crate) fn launch(&self, context: &Context, lane: RawStream) -> Result<()> {
        self.prepare(context)?; // Done before, unless it stands alone in a stream.
        self.alone.launch(context, lane)
    }
}
