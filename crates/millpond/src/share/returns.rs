//! The thread that waits for the device, so that no caller does: imports that were given back while their uses may run,
//! and events of other processes that the device has open.
//!
//! The exporter knows of a release already. Sent here are two more things: *over*, when the device is past the
//! uses, after which the exporter's memory serves again; and *known*, when this process's host knows that they are
//! over, after which whatever it says comes after them. The first is observed and orders nothing, the second is the
//! program's own order.
//!
//! The thread starts with the first and ends with the last. Knows windows and peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::ids::Point;
use millpond_core::pool::Frontier;
use millpond_core::share::{LeaseId, Request};
use millpond_driver::locks::{Mutex, lock};

use super::line::Closing;
use super::peer::Peer;
use super::window::Window;
use crate::state::context::Context;
use crate::sync::ranks;

/// Releases remembered until the host knows that their uses have completed; the oldest are forgotten.
const UNKNOWN_MAX: usize = 4096;

/// An import on its way back.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) peer: Arc<Peer>,
    pub(super) lease: LeaseId,
    /// The uses that may run.
    pub(super) points: Vec<Point>,
    pub(super) window: Option<Window>,
}

/// What waits for the device.
#[derive(Debug)]
pub(super) enum Waiting {
    Import(Returning),
    Event(Closing),
}

impl Waiting {
    fn finish(self, context: &Context) {
        match self {
            Waiting::Import(returning) => returning.finish(context),
            Waiting::Event(closing) => closing.finish(context),
        }
    }

    fn as_import(&self) -> Option<&Returning> {
        match self {
            Waiting::Import(returning) => Some(returning),
            Waiting::Event(_) => None,
        }
    }
}

/// What is on its way back.
#[derive(Debug, Default)]
pub(super) struct Returns {
    queue: Mutex<ranks::Returns, Queue>,
    /// How many releases the host has still to learn of.
    unknown: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    unknown: Vec<(Arc<Peer>, LeaseId, Vec<Point>)>,
    /// What the driver refused to take back.
    rest: Vec<Window>,
    has_thread: bool,
    /// Whether it has taken an import out.
    is_busy: bool,
}

impl Queue {
    /// One more waits; without a thread, for the next one, until the host knows that its uses have completed, or for
    /// the device's end.
    fn wait_for(&mut self, context: &Arc<Context>, waiting: Waiting) {
        self.waiting.push(waiting);
        if !self.has_thread {
            let own = Arc::clone(context);
            let thread = std::thread::Builder::new().name("millpond returns".into());
            self.has_thread = thread.spawn(move || run(&own)).is_ok();
        }
    }
}

impl Returns {
    /// One more waits for the device.
    pub(super) fn wait_for(&self, context: &Arc<Context>, waiting: Waiting) {
        lock(&self.queue).wait_for(context, waiting);
    }

    /// Takes a window away; what the driver refuses is tried again with the next.
    pub(super) fn close(&self, context: &Context, window: Window) {
        lock(&self.queue).rest.push(window);
        self.close_rest(context);
    }

    /// Tries once more what the driver refused.
    pub(super) fn close_rest(&self, context: &Context) {
        let mut all = std::mem::take(&mut lock(&self.queue).rest);
        all.retain_mut(|window| window.close(context).is_err());
        if !all.is_empty() {
            lock(&self.queue).rest.append(&mut all);
        }
    }

    /// The device is gone: what no thread could be had for is done now.
    pub(super) fn finish_all(&self, context: &Context) {
        let waiting = std::mem::take(&mut lock(&self.queue).waiting);
        waiting.into_iter().for_each(|waiting| waiting.finish(context));
    }

    /// Imports that were given back and are still mapped.
    pub(super) fn count(&self) -> usize {
        let queue = lock(&self.queue);
        queue.waiting.iter().filter_map(Waiting::as_import).count() + queue.rest.len() + usize::from(queue.is_busy)
    }

    /// The host has learned something: what it now knows to have completed is sent to the exporters.
    pub(super) fn host_learned(&self, context: &Context) {
        if self.unknown.load(Ordering::Acquire) == 0 {
            return;
        }
        let base = context.hosts.base();
        let mut queue = lock(&self.queue);
        let is_known = |points: &[Point]| points.iter().all(|point| base.covers(*point));
        let known: Vec<_> = queue.unknown.extract_if(.., |(_, _, points)| is_known(points)).collect();
        self.unknown.store(queue.unknown.len(), Ordering::Release);
        // Where no thread could be had no other one does it.
        let is_over = |waiting: &mut Waiting| waiting.as_import().is_some_and(|import| is_known(&import.points));
        let left: Vec<_> = match queue.has_thread {
            true => Vec::new(),
            false => queue.waiting.extract_if(.., is_over).collect(),
        };
        drop(queue);
        left.into_iter().for_each(|waiting| waiting.finish(context));
        known.iter().for_each(|(peer, lease, _)| peer.tell(&Request::Known(*lease)));
    }
}

impl Returning {
    /// The exporter knows of the release; the rest is done when the uses have completed.
    pub(super) fn begin(context: &Arc<Context>, returning: Returning) {
        let returns = &context.share().returns;
        let mut queue = lock(&returns.queue);
        if queue.unknown.len() == UNKNOWN_MAX {
            queue.unknown.remove(0);
        }
        let points = returning.points.clone();
        queue.unknown.push((Arc::clone(&returning.peer), returning.lease, points.clone()));
        returns.unknown.store(queue.unknown.len(), Ordering::Release);
        queue.wait_for(context, Waiting::Import(returning));
        drop(queue);
        // The host may have learned it by another thread before this was in the list.
        let base = context.hosts.base();
        if points.iter().all(|point| base.covers(*point)) {
            returns.host_learned(context);
        }
    }

    /// Waits until the uses have completed, and gives all back.
    fn finish(self, context: &Context) {
        for point in &self.points {
            // A device that is lost runs nothing any more.
            let _ = context.chains.each(&Frontier::of([*point]), |chain| chain.block(&*context.driver));
        }
        self.give_back(context);
    }

    /// The uses have completed.
    fn give_back(mut self, context: &Context) {
        if let Some(window) = self.window.take() {
            context.share().returns.close(context, window);
        }
        self.peer.tell(&Request::Over(self.lease));
    }
}

fn run(context: &Context) {
    loop {
        let mut queue = lock(&context.share().returns.queue);
        queue.has_thread = !queue.waiting.is_empty();
        queue.is_busy = queue.waiting.first().is_some_and(|next| next.as_import().is_some());
        if !queue.has_thread {
            return;
        }
        let next = queue.waiting.remove(0);
        drop(queue);
        next.finish(context);
    }
}
