//! Marks of other processes that this device has open: each is kept until the device is past it.
//!
//! An exporter that says that its event has completed is followed by the device in no time, and the mark is closed
//! before the exporter learns of it: it must not destroy what others have open. The mark of one that is gone before it
//! could say so stays open: the device may wait for it for ever, and knows no way to stop. Knows marks and lines; no
//! order.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::line::{Closing, Line};
use super::returns::Waiting;
use super::socket::{self, Received};
use super::watch::{Next, Watched};
use crate::clock::mark::Mark;
use crate::state::context::Context;

/// A mark of another process, until the exporter says that its event has completed.
#[derive(Debug)]
pub(super) struct Opened {
    context: Arc<Context>,
    /// The mark, and that of this device behind it.
    marks: Option<(Mark, Arc<Mark>)>,
    line: Arc<Line>,
}

impl Opened {
    /// Keeps a mark until the device is `past` it. Where the system has no room for that, the caller waits.
    pub(super) fn keep(context: &Arc<Context>, mark: Mark, past: &Arc<Mark>, line: Line) {
        let marks = Some((mark, Arc::clone(past)));
        let opened = Opened { context: Arc::clone(context), marks, line: Arc::new(line) };
        let watch = Arc::clone(&opened.line.peer.watch);
        if let Err(mut opened) = watch.add(opened) {
            socket::wait_for(&opened.line.file);
            opened.ready();
        }
    }
}

impl Watched for Opened {
    fn file(&self) -> BorrowedFd<'_> {
        self.line.file.as_fd()
    }

    fn ready(&mut self) -> Next {
        let received = self.line.receive();
        if let Ok(Received::Nothing) = received {
            return Next::Again(None);
        }
        if let Some((mark, past)) = self.marks.take() {
            match received {
                Ok(Received::Packet(..)) => {
                    let closing = Closing { mark, past, line: Arc::clone(&self.line) };
                    self.context.share().returns.wait_for(&self.context, Waiting::Event(closing));
                }
                // The exporter is gone, and the device may wait for the mark.
                _ => std::mem::forget(mark),
            }
        }
        Next::Done
    }
}
