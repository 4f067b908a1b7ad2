//! Graphs of the device's own: one call of the driver a launch.
//!
//! Knows the driver's nodes, not what they are of: see `graph/native_nodes.rs`. A driver wants memory to be there where
//! nodes name it, and a graph's own is bound by a launch: who asks for [`Native::make`] sees to that.

use std::sync::{Arc, OnceLock};

use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, DriverError, Node, NodeWork, RawExec, RawGraph, RawStream};

use crate::clock::device_event::CountedDriver;
use crate::names::error::Result;
use crate::pool::shell::{self, TRIES};
use crate::state::context::Context;
use crate::sync::ranks;

/// A graph of the device. Launches in flight outlive it.
#[derive(Debug)]
pub(crate) struct Native {
    made: OnceLock<RawExec>,
    /// What it is to be made of, until it is.
    nodes: Mutex<ranks::Table, Vec<Node>>,
    driver: Arc<CountedDriver>,
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(raw) = self.made.get() {
            // A device that refuses time and again keeps it until it goes.
            let _ = (0..TRIES).any(|_| self.driver.destroy_exec(*raw).is_ok());
        }
    }
}

impl Native {
    /// A graph of the device of these nodes, yet to be made.
    pub(crate) fn planned(context: &Context, nodes: Vec<Node>) -> Self {
        Self { made: OnceLock::new(), nodes: Mutex::new(nodes), driver: Arc::clone(&context.driver) }
    }

    /// Makes it, if that was not done yet. The memory that its nodes name is there.
    #[cold]
    pub(crate) fn make(&self, context: &Context) -> Result<()> {
        let mut nodes = lock(&self.nodes);
        if self.made.get().is_none() {
            let raw = shell::instantiate_graph(context, &nodes)?;
            // The device keeps what they own.
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

    /// Gives a launch to the driver.
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
    driver: Arc<CountedDriver>,
    /// For instances that run lane by lane.
    alone: Mutex<ranks::NativeAlone, Option<Native>>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // A device that refuses time and again keeps it until it goes.
        let _ = (0..TRIES).any(|_| self.driver.destroy_graph(self.raw).is_ok());
    }
}

impl Foreign {
    pub(crate) fn new(context: &Context, raw: RawGraph) -> Self {
        Self { raw, driver: Arc::clone(&context.driver), alone: Mutex::default() }
    }

    /// To be called before the first [`launch`](Self::launch): makes a graph of the device of it.
    pub(crate) fn prepare(&self, context: &Context) -> Result<()> {
        let mut alone = lock(&self.alone);
        if alone.is_none() {
            let node = Node { work: NodeWork::Captured(self.raw), after: Vec::new() };
            let native = Native::planned(context, vec![node]);
            native.make(context)?;
            *alone = Some(native);
        }
        Ok(())
    }

    /// Submits it to a lane.
    pub(crate) fn launch(&self, context: &Context, lane: RawStream) -> Result<()> {
        self.prepare(context)?; // Nothing, but where it stands alone in a stream.
        lock(&self.alone).as_ref().expect("prepared just now").launch(context, lane)
    }
}
