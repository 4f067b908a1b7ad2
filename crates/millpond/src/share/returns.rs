//! Imports that were given back while their uses may run: a thread waits for those, so that no caller does.
//!
//! The exporter knows of the release already. Sent here are two more things: *over*, when the device is past the
//! uses, after which the exporter's memory serves again; and *known*, when this process's host knows that they are
//! over, after which whatever it says comes after them. The first is observed and orders nothing, the second is the
//! program's own order.
//!
//! The thread starts with the first such import and ends with the last. Knows windows and peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::ids::Point;
use millpond_core::pool::Frontier;
use millpond_core::share::{LeaseId, Request};
use millpond_driver::locks::{Mutex, lock};

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

/// What is on its way back.
#[derive(Debug, Default)]
pub(super) struct Returns {
    queue: Mutex<ranks::Returns, Queue>,
    /// How many releases the host has still to learn of.
    unknown: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Returning>,
    unknown: Vec<(Arc<Peer>, LeaseId, Vec<Point>)>,
    /// What the driver refused to take back.
    rest: Vec<Window>,
    has_thread: bool,
    /// Whether it has taken one out.
    is_busy: bool,
}

impl Returns {
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
        waiting.into_iter().for_each(|returning| returning.finish(context));
    }

    /// Imports that were given back and are still mapped.
    pub(super) fn count(&self) -> usize {
        let queue = lock(&self.queue);
        queue.waiting.len() + queue.rest.len() + usize::from(queue.is_busy)
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
        let is_over = |returning: &mut Returning| is_known(&returning.points);
        let left: Vec<_> = match queue.has_thread {
            true => Vec::new(),
            false => queue.waiting.extract_if(.., is_over).collect(),
        };
        drop(queue);
        left.into_iter().for_each(|returning| returning.give_back(context));
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
        queue.waiting.push(returning);
        if !queue.has_thread {
            let own = Arc::clone(context);
            let thread = std::thread::Builder::new().name("millpond returns".into());
            // Without a thread they wait for the next release, until the host knows that they have completed, or for
            // the device's end.
            queue.has_thread = thread.spawn(move || run(&own)).is_ok();
        }
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
        queue.is_busy = !queue.waiting.is_empty();
        if !queue.is_busy {
            queue.has_thread = false;
            return;
        }
        let next = queue.waiting.remove(0);
        drop(queue);
        next.finish(context);
    }
}
