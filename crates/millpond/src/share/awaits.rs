//! Marks of other processes that this device has open: each is kept until the device is past it.
//!
//! One thread listens to the lines of all of them. An exporter that says that its event has completed is followed by
//! the device in no time, and the mark is closed before the exporter learns of it: it must not destroy what others have
//! open. The mark of one that is gone before it could say so stays open: the device may wait for it for ever, and knows
//! no way to stop.
//!
//! The thread starts with the first such mark and ends with the last. Knows marks and lines; no order.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_driver::Driver;
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::io::Errno;

use super::peer::Peer;
use super::socket::{self, Received};
use crate::clock::mark::Mark;
use crate::state::context::Context;
use crate::sync::ranks;

/// An importer's end of the socket that an exported event has. Its own byte, when it goes, says that nothing here needs
/// the event any more.
#[derive(Debug)]
pub(super) struct Line {
    file: OwnedFd,
    peer: Arc<Peer>,
}

impl Line {
    pub(super) fn new(file: OwnedFd, peer: Arc<Peer>) -> Line {
        Line { file, peer }
    }

    /// Waits for the byte; whether it came. Without it the exporter is gone, and its process over when this returns.
    pub(super) fn wait_end(&self) -> bool {
        socket::wait_for(&self.file);
        let is_over = matches!(socket::receive(&self.file, &mut [0], false), Ok(Received::Packet(..)));
        if !is_over && let Some(life) = &self.peer.life {
            socket::wait_for(life);
        }
        is_over
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The exporter may be gone, or need no telling.
        let _ = socket::send(&self.file, &[1], &[], false);
    }
}

/// A mark of another process: closed first, and then that is said.
#[derive(Debug)]
pub(super) struct Opened {
    mark: Mark,
    line: Line,
}

impl Opened {
    pub(super) fn new(mark: Mark, line: Line) -> Opened {
        Opened { mark, line }
    }

    /// Closes it when the device is `past` it.
    fn finish(self, context: &Context, past: &Mark) {
        let Opened { mark, line } = self;
        if line.wait_end() {
            // A device that is lost is past everything.
            let _ = context.driver.block_on(past.raw);
            drop(mark);
        } else {
            // The device may wait for it.
            std::mem::forget(mark);
        }
    }
}

/// What this device has open.
#[derive(Debug, Default)]
pub(super) struct Awaits(Mutex<ranks::Awaits, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    epoll: Option<Arc<OwnedFd>>,
    opened: FxHashMap<u64, (Opened, Arc<Mark>)>,
    next: u64,
    has_thread: bool,
}

impl Awaits {
    /// Keeps a mark until the device is `past` it. Where the system has no room for that, the caller waits.
    pub(super) fn add(&self, context: &Arc<Context>, opened: Opened, past: Arc<Mark>) {
        let mut waiting = lock(&self.0);
        let Ok(epoll) = waiting.listen(&opened.line) else {
            drop(waiting);
            return opened.finish(context, &past);
        };
        let number = waiting.next - 1;
        waiting.opened.insert(number, (opened, past));
        if waiting.has_thread {
            return;
        }
        let own = Arc::clone(context);
        let thread = std::thread::Builder::new().name("millpond events".into());
        waiting.has_thread = thread.spawn(move || run(&own, &epoll)).is_ok();
        if !waiting.has_thread
            && let Some((opened, past)) = waiting.opened.remove(&number)
        {
            drop(waiting);
            opened.finish(context, &past);
        }
    }
}

impl Waiting {
    fn listen(&mut self, line: &Line) -> rustix::io::Result<Arc<OwnedFd>> {
        let epoll = match &self.epoll {
            Some(epoll) => Arc::clone(epoll),
            None => Arc::clone(self.epoll.insert(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?))),
        };
        let data = epoll::EventData::new_u64(self.next);
        // Each is reported once: whoever takes it out listens no more.
        epoll::add(&epoll, &line.file, data, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)?;
        self.next += 1;
        Ok(epoll)
    }
}

fn run(context: &Arc<Context>, epoll: &OwnedFd) {
    loop {
        {
            let mut waiting = lock(&context.share().awaits.0);
            if waiting.opened.is_empty() {
                waiting.has_thread = false;
                return;
            }
        }
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(16);
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for event in ready {
            let taken = lock(&context.share().awaits.0).opened.remove(&event.data.u64());
            if let Some((opened, past)) = taken {
                opened.finish(context, &past);
            }
        }
    }
}
