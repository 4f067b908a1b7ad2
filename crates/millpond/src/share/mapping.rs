//! The addresses at which an exporter's chunks are mapped, and when they are unmapped.
//!
//! An import that is freed while its uses may run stays mapped until the device has completed them. The device's
//! thread waits for that (`thread.rs`), separately for each import, because work on other streams may run for long,
//! or even until another process has got its memory back. The exporter knows of the release already. Two more
//! messages follow: *over*, when the device has completed the uses, after which the exporter's memory can be used
//! again; and *known*, when this process's host knows that they have completed, after which everything that it sends
//! comes after them. The first is observed and orders nothing. The second is the program's own order.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millpond_core::ids::Point;
use millpond_core::share::{Handle, LeaseId};
use millpond_core::units::Range;
use millpond_driver::Driver;
use millpond_driver::locks::lock;

use super::peer::{Claimed, Peer};
use super::thread::{Called, Entry, Next, Pace, wait_for_event};
use super::{Shared, Sharing};
use crate::clock::device_event::insist;
use crate::clock::hosts;
use crate::clock::progress::{Ahead, EndThen};
use crate::names::error::Result;
use crate::pool::shell;
use crate::state::context::Context;

/// A range of addresses at which an exporter's chunks are mapped.
#[derive(Debug)]
pub(super) struct Window {
    peer: Arc<Peer>,
    pub(super) range: Range,
    mapped: Vec<(u64, u64, Handle)>,
}

impl Window {
    /// Maps claimed memory. If the driver refuses, nothing is left mapped, except what it refuses to unmap: that is
    /// tried again later.
    pub(super) fn open(context: &Context, peer: &Arc<Peer>, claimed: &Claimed<'_>) -> Result<Window> {
        let handles = claimed.handles();
        let can_write = claimed.grant()?.can_write;
        let bytes = handles.iter().map(|(part, _)| part.bytes).sum();
        let start = context.driver.reserve(bytes)?;
        let mut window = Window { peer: Arc::clone(peer), range: Range::new(start, bytes), mapped: Vec::new() };
        let mut at = start;
        for (part, raw) in handles {
            if let Err(error) = shell::map_import(context, raw, at, part.bytes) {
                // Both the window and the claim return the mapped chunks.
                peer.tell(context, true, |end| window.mapped.iter().for_each(|(_, _, name)| end.use_again(*name)));
                context.share.close(context, window);
                return Err(error.into());
            }
            window.mapped.push((at, part.bytes, (part.chunk, can_write)));
            at += part.bytes;
        }
        Ok(window)
    }

    /// Unmaps everything. What the driver refuses can be tried again.
    fn close(&mut self, context: &Context) -> millpond_driver::Result<()> {
        let mut unmapped = Vec::new();
        let closed = self.unmap(context, &mut unmapped);
        self.peer.tell(context, false, |end| end.unuse(unmapped));
        closed
    }

    fn unmap(&mut self, context: &Context, unmapped: &mut Vec<Handle>) -> millpond_driver::Result<()> {
        while let Some((at, bytes, name)) = self.mapped.last().copied() {
            shell::unmap_import(context, at, bytes)?;
            self.mapped.pop();
            unmapped.push(name);
        }
        if self.range.bytes > 0 {
            shell::unreserve_import(context, self.range)?;
            self.range.bytes = 0;
        }
        Ok(())
    }
}

/// An import that is being returned.
#[derive(Debug)]
pub(super) struct Returning {
    peer: Arc<Peer>,
    lease: LeaseId,
    window: Window,
    /// The uses that may still run.
    points: Vec<Point>,
    /// The ends of their streams as of the release, after which other work may come that waits for the exporter. The
    /// use where the device refused to record one.
    ends: Vec<std::result::Result<EndThen, Point>>,
}

impl Returning {
    /// Takes the ends as of now, before anything can follow from the release that these streams wait for.
    pub(super) fn new(context: &Context, peer: &Arc<Peer>, lease: LeaseId, window: Window, points: Vec<Point>) -> Self {
        let ends = points.iter().filter_map(|point| context.chains.end_now(*point, &context.driver)).collect();
        Self { peer: Arc::clone(peer), lease, window, points, ends }
    }

    /// Returns its addresses, if no use may run.
    pub(super) fn into_window(self) -> Window {
        self.window
    }

    fn is_known(&self) -> bool {
        let base = hosts::base();
        self.points.iter().all(|point| base.covers(*point))
    }

    /// Blocks the calling thread until the uses have completed.
    fn block(&mut self, context: &Context) {
        loop {
            match self.ahead(context) {
                Ahead::Nothing => return,
                Ahead::Event(event) => insist(|| event.driver().block_on(event.raw)),
                Ahead::Unrecorded => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Returns what the device must complete first, or that it has completed the uses.
    fn ahead(&mut self, context: &Context) -> Ahead {
        while let Some(end) = self.ends.last_mut() {
            if let Err(point) = *end {
                match context.chains.end_now(point, &context.driver) {
                    Some(again) => *end = again,
                    None => {
                        self.ends.pop();
                        continue;
                    }
                }
            }
            match end {
                Ok(end) => match end.ahead() {
                    Ahead::Nothing => drop(self.ends.pop()),
                    ahead => return ahead,
                },
                Err(_) => return Ahead::Unrecorded,
            }
        }
        Ahead::Nothing
    }

    /// Unmaps everything and tells the exporter, when the uses have completed.
    fn give_back(self, context: &Context, waits: bool) {
        context.share.close(context, self.window);
        self.peer.tell(context, waits, |end| end.completed(self.lease));
    }
}

/// An import that the thread waits for.
#[derive(Debug)]
struct Waiting {
    context: Arc<Context>,
    returning: Option<Returning>,
    pace: Pace,
}

impl Entry for Waiting {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn ready(&mut self, called: Called<'_>) -> Next {
        let Self { context, returning, pace } = self;
        let Some(waiting) = returning else { return Next::Done };
        if !waiting.is_known() {
            match waiting.ahead(context) {
                Ahead::Nothing => {}
                Ahead::Event(event) => return Next::Again(wait_for_event(&event, called, pace)),
                Ahead::Unrecorded => return Next::Again(Some(pace.next())),
            }
        }
        if let Some(returning) = returning.take() {
            returning.give_back(context, false);
        }
        lock(&context.share.shared).returning.remove(&called.number);
        Next::Done
    }
}

impl Shared {
    /// Makes the thread wait for an import, if there can be a thread.
    fn wait_for(&mut self, context: &Arc<Context>, returning: Returning) {
        let (watch, points) = (Arc::clone(&returning.peer.watch), returning.points.clone());
        let waiting = Waiting { context: Arc::clone(context), returning: Some(returning), pace: Pace::default() };
        match watch.add(waiting) {
            Ok(number) => drop(self.returning.insert(number, (watch, points))),
            Err(waiting) => self.stranded.extend(waiting.returning),
        }
    }
}

impl Sharing {
    /// Returns an import once its uses have completed; the exporter knows of the release already. If no thread can be
    /// started, it is done once one can be, once the host knows that the uses have completed, or when the device
    /// ends.
    pub(super) fn return_later(&self, context: &Arc<Context>, returning: Returning) {
        let points = returning.points.clone();
        let mut shared = lock(&self.shared);
        let all = std::mem::take(&mut shared.stranded).into_iter().chain([returning]);
        all.for_each(|returning| shared.wait_for(context, returning));
        self.has_unknown.store(true, Ordering::Release);
        drop(shared);
        // The host may have learned it through another thread before this was in the list.
        let base = hosts::base();
        if points.iter().all(|point| base.covers(*point)) {
            self.learn(context);
        }
    }

    /// Tells exporters what the host now knows to have completed, and returns it.
    pub(crate) fn host_learned(&self, context: &Context) {
        if !self.has_unknown.load(Ordering::Acquire) {
            return;
        }
        self.learn(context);
    }

    #[cold]
    fn learn(&self, context: &Context) {
        self.has_unknown.store(false, Ordering::Release);
        let base = hosts::base();
        let mut shared = lock(&self.shared);
        let peers: Vec<_> = shared.peers.values().cloned().collect();
        let is_known = |points: &[Point]| points.iter().all(|point| base.covers(*point));
        for (number, (watch, points)) in &shared.returning {
            if is_known(points) {
                watch.call(*number);
            }
        }
        // If no thread could be started, no other thread does it. There is nothing to wait for. Their streams may
        // have work after the uses that waits for this host.
        let known: Vec<_> = shared.stranded.extract_if(.., |returning| is_known(&returning.points)).collect();
        let is_left = !shared.returning.is_empty() || !shared.stranded.is_empty();
        drop(shared);
        known.into_iter().for_each(|returning| returning.give_back(context, true));
        let has_unknown = peers.iter().fold(is_left, |left, peer| peer.host_learned() || left);
        if has_unknown {
            self.has_unknown.store(true, Ordering::Release);
        }
    }

    /// Unmaps a window. What the driver refuses is tried again with the next one.
    pub(super) fn close(&self, context: &Context, window: Window) {
        lock(&self.shared).unclosed.push(window);
        self.close_rest(context);
    }

    /// Tries again what the driver refused.
    pub(super) fn close_rest(&self, context: &Context) {
        let mut all = std::mem::take(&mut lock(&self.shared).unclosed);
        all.retain_mut(|window| window.close(context).is_err());
        if !all.is_empty() {
            lock(&self.shared).unclosed.append(&mut all);
        }
    }

    /// Returns the imports that no thread waits for, when the device is gone.
    pub(super) fn return_rest(&self, context: &Context) {
        let stranded = std::mem::take(&mut lock(&self.shared).stranded);
        for mut returning in stranded {
            returning.block(context);
            returning.give_back(context, true);
        }
    }
}
