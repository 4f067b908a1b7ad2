//! The threads that wait for the device, so that no caller does: imports that were given back while their uses may run,
//! and events of other processes that the device has open.
//!
//! The exporter knows of a release already. Sent here are two more things: *over*, when the device is past the
//! uses, after which the exporter's memory serves again; and *known*, when this process's host knows that they are
//! over, after which whatever it says comes after them. The first is observed and orders nothing, the second is the
//! program's own order.
//!
//! What waits for the same streams comes to its end one after the other: such a *group* has one thread, which starts
//! with its first and ends with its last. No group waits for another's streams, on which work may run for long, or
//! until another process has got its memory back. Knows windows and peers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::ids::{Point, Slot};
use millpond_core::pool::Frontier;
use millpond_core::share::{LeaseId, Request};
use millpond_driver::locks::{Mutex, lock};

use super::line::Closing;
use super::peer::Peer;
use super::window::Window;
use crate::clock::mark::insist;
use crate::clock::progress::EndThen;
use crate::state::context::Context;
use crate::sync::ranks;

/// Releases remembered until the host knows that their uses have completed; the oldest are forgotten.
const UNKNOWN_MAX: usize = 4096;
/// Threads that wait at a time, at most; a group more waits for the end of one.
const THREADS_MAX: usize = 64;

/// An import on its way back.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) peer: Arc<Peer>,
    pub(super) lease: LeaseId,
    /// The uses that may run.
    pub(super) points: Vec<Point>,
    pub(super) window: Option<Window>,
    /// The ends of their streams as of the release, after which other work may come that waits for the exporter.
    pub(super) ends: Vec<Result<EndThen, Point>>,
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

    /// The streams that it waits for; none for an event, which the device is past in no time.
    fn streams(&self) -> Vec<Slot> {
        let points = self.as_import().map_or(&[][..], |import| &import.points);
        let mut streams: Vec<_> = points.iter().map(|point| point.slot).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    fn as_import(&self) -> Option<&Returning> {
        match self {
            Waiting::Import(returning) => Some(returning),
            Waiting::Event(_) => None,
        }
    }

    fn into_import(self) -> Option<Returning> {
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
    groups: Vec<Group>,
    /// How many of them have a thread.
    threads: usize,
    unknown: Vec<(Arc<Peer>, LeaseId, Vec<Point>)>,
    /// What the driver refused to take back.
    rest: Vec<Window>,
}

/// What waits for the same streams.
#[derive(Debug)]
struct Group {
    streams: Vec<Slot>,
    waiting: VecDeque<Waiting>,
    has_thread: bool,
    /// Whether its thread has taken an import out.
    is_busy: bool,
}

impl Group {
    fn imports(&self) -> usize {
        self.waiting.iter().filter_map(Waiting::as_import).count() + usize::from(self.is_busy)
    }
}

impl Queue {
    /// One more waits; without a thread, until one can be had, the host knows that its uses have completed, or the
    /// device ends.
    fn wait_for(&mut self, context: &Arc<Context>, waiting: Waiting) {
        let streams = waiting.streams();
        let known = self.groups.iter().position(|group| group.streams == streams);
        let at = known.unwrap_or_else(|| {
            let (waiting, has_thread, is_busy) = Default::default();
            self.groups.push(Group { streams: streams.clone(), waiting, has_thread, is_busy });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.waiting.push_back(waiting);
        if !group.has_thread && self.threads < THREADS_MAX {
            let own = Arc::clone(context);
            let thread = std::thread::Builder::new().name("millpond returns".into());
            group.has_thread = thread.spawn(move || run(&own, streams)).is_ok();
            self.threads += usize::from(group.has_thread);
        }
    }

    /// The next one of a thread's group; of another that has none, where that is at its end. The thread ends without.
    fn take_next(&mut self, streams: &mut Vec<Slot>) -> Option<Waiting> {
        if let Some(at) = self.groups.iter().position(|group| group.streams == *streams) {
            let group = &mut self.groups[at];
            group.is_busy = group.waiting.front().is_some_and(|next| next.as_import().is_some());
            match group.waiting.pop_front() {
                Some(next) => return Some(next),
                None => drop(self.groups.swap_remove(at)),
            }
        }
        match self.groups.iter_mut().find(|group| !group.has_thread) {
            Some(group) => {
                group.has_thread = true;
                streams.clone_from(&group.streams);
                self.take_next(streams)
            }
            None => {
                self.threads -= 1;
                None
            }
        }
    }

    /// Takes out of the groups without a thread what meets `is_wanted`.
    fn take_left(&mut self, is_wanted: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut left = Vec::new();
        for group in self.groups.iter_mut().filter(|group| !group.has_thread) {
            let (taken, stays) = std::mem::take(&mut group.waiting).into_iter().partition::<VecDeque<_>, _>(&is_wanted);
            group.waiting = stays;
            left.extend(taken);
        }
        self.groups.retain(|group| group.has_thread || !group.waiting.is_empty());
        left
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
        let left = lock(&self.queue).take_left(|_| true);
        left.into_iter().for_each(|waiting| waiting.finish(context));
    }

    /// Imports that were given back and are still mapped.
    pub(super) fn count(&self) -> usize {
        let queue = lock(&self.queue);
        queue.groups.iter().map(Group::imports).sum::<usize>() + queue.rest.len()
    }

    /// These exporters have hung up: nothing is said to them any more.
    pub(super) fn forget(&self, gone: &[Arc<Peer>]) {
        if gone.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        let is_gone = |peer: &Arc<Peer>| gone.iter().any(|gone| Arc::ptr_eq(gone, peer));
        let forgotten: Vec<_> = queue.unknown.extract_if(.., |(peer, ..)| is_gone(peer)).collect();
        self.unknown.store(queue.unknown.len(), Ordering::Release);
        drop(queue);
        // Behind the lock: files are closed.
        drop(forgotten);
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
        // Where no thread could be had no other one does it. There is nothing to wait for: their streams may have work
        // behind the uses that waits for this host.
        let is_over = |waiting: &Waiting| waiting.as_import().is_some_and(|import| is_known(&import.points));
        let left = queue.take_left(is_over);
        drop(queue);
        left.into_iter().filter_map(Waiting::into_import).for_each(|import| import.give_back(context));
        known.iter().for_each(|(peer, lease, _)| peer.tell(&Request::Known(*lease)));
    }
}

impl Returning {
    /// The ends that the streams of uses have now; the use where the device refuses to mark one.
    pub(super) fn ends_now(context: &Context, uses: &[Point]) -> Vec<Result<EndThen, Point>> {
        uses.iter().filter_map(|point| context.chains.end_now(*point, &context.driver)).collect()
    }

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
        for end in &self.ends {
            insist(|| match end {
                Ok(end) => end.block(),
                Err(point) => context.chains.each(&Frontier::of([*point]), |chain| chain.block(&*context.driver)),
            });
        }
        self.give_back(context);
    }

    /// The uses have completed: gives all back.
    fn give_back(mut self, context: &Context) {
        if let Some(window) = self.window.take() {
            context.share().returns.close(context, window);
        }
        self.peer.tell(&Request::Over(self.lease));
    }
}

/// A thread, which begins with the group of these streams.
fn run(context: &Context, mut streams: Vec<Slot>) {
    loop {
        let next = lock(&context.share().returns.queue).take_next(&mut streams);
        let Some(next) = next else { return };
        next.finish(context);
    }
}
