//! The end of a stream, where it was marked last: the same mark serves while nothing came to the stream since.
//!
//! Knows marks; not what is submitted. The simple version records an event each time that a mark is asked for, and lets
//! a stream wait each time that it is asked to, at a few hundred nanoseconds a call. That is also what is done for all
//! streams but non-blocking ones that only this driver submits to: of others it cannot say what came to them, and
//! blocking ones come after the legacy default stream's work, too.
//!
//! Invariants: `noted-after`: what is submitted is noted here after it was, so that a mark from before it may be handed
//! out only until then; `held-here`: a mark that is kept here is counted, so that its handle is not used again.

use super::abi::Stream;
use super::marks::Marks;
use crate::{BiasedLock, RawMark, Result};

/// What is known of the end of a stream.
#[derive(Debug, Default)]
pub(super) struct End(BiasedLock<State>);

#[derive(Debug, Default)]
struct State {
    /// The last mark, if nothing came since.
    last: Option<RawMark>,
    /// What the stream waited for last.
    waited: Option<RawMark>,
}

impl End {
    /// Marks the end of the stream, which the caller holds.
    pub(super) fn mark(&self, marks: &Marks, stream: Stream) -> Result<RawMark> {
        // Held until the record is made: what comes meanwhile is noted after it.
        let mut known = self.0.lock();
        if let Some(last) = known.last.filter(|&last| marks.share(last)) {
            return Ok(last);
        }
        let mark = marks.record(stream)?;
        known.last = Some(mark).filter(|&mark| marks.share(mark));
        Ok(mark)
    }

    /// The stream waits for a mark as `wait` does it, where it did not just do that.
    pub(super) fn wait(&self, marks: &Marks, mark: RawMark, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut known = self.0.lock();
        if known.waited == Some(mark) {
            return Ok(());
        }
        wait()?;
        let waited = Some(mark).filter(|&mark| marks.share(mark));
        let former = [known.last.take(), std::mem::replace(&mut known.waited, waited)];
        former.into_iter().flatten().for_each(|mark| marks.forget(mark));
        Ok(())
    }

    /// Something was submitted to the stream (noted-after).
    pub(super) fn note(&self, marks: &Marks) {
        let last = self.0.lock().last.take();
        last.into_iter().for_each(|mark| marks.forget(mark));
    }

    /// Nothing is known any more.
    pub(super) fn clear(&self, marks: &Marks) {
        let State { last, waited } = std::mem::take(&mut *self.0.lock());
        last.into_iter().chain(waited).for_each(|mark| marks.forget(mark));
    }
}
