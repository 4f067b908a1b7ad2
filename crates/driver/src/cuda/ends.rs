//! The last mark of a stream, which serves again while nothing was submitted to the stream since.
//!
//! Knows marks; not what is submitted. The simple version records an event for each mark and calls
//! `cuStreamWaitEvent` for each wait, at a few hundred nanoseconds a call. Streams that other code may submit to are
//! marked like that, and so are blocking streams, which also come after the legacy default stream's work.
//!
//! Invariants: `noted-after`: work is noted here after it was submitted, and before the submission returns;
//! `held-here`: this holds the marks that it keeps, so that their events are not used again.

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

    /// Calls `wait` to make the stream wait for a mark, unless that was the stream's last wait.
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

    /// Forgets both marks.
    pub(super) fn clear(&self, marks: &Marks) {
        let State { last, waited } = std::mem::take(&mut *self.0.lock());
        last.into_iter().chain(waited).for_each(|mark| marks.forget(mark));
    }
}
