//! The calls that captures forbid, from the words of CUDA's manual alone.
//!
//! > `CU_STREAM_CAPTURE_MODE_GLOBAL`: [...] If the local thread has an ongoing capture sequence that was not
//! > initiated with `CU_STREAM_CAPTURE_MODE_RELAXED` [...], or if any other thread has a concurrent capture sequence
//! > initiated with `CU_STREAM_CAPTURE_MODE_GLOBAL`, this thread is prohibited from potentially unsafe API calls.
//! > `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: If the local thread has an ongoing capture sequence not initiated with
//! > `CU_STREAM_CAPTURE_MODE_RELAXED`, it is prohibited from potentially unsafe API calls. Concurrent capture
//! > sequences in other threads are ignored. `CU_STREAM_CAPTURE_MODE_RELAXED`: The local thread is not prohibited
//! > [...].

use std::collections::HashMap;

use millpond_core::ids::{EventId, HostId, StreamId};
use millpond_core::op::{CaptureMode, StreamRole, What};

use crate::Program;

/// An ongoing capture, valid or invalid.
struct Capture {
    origin: StreamId,
    host: HostId,
    mode: CaptureMode,
    members: Vec<StreamId>,
}

#[derive(Default)]
struct Threads {
    modes: HashMap<HostId, CaptureMode>,
    legacy: Vec<StreamId>,
    destroyed: Vec<StreamId>,
    captures: Vec<Capture>,
    /// Events whose last record was in a capture, with the origin stream of the capture.
    captured: HashMap<EventId, StreamId>,
}

/// Returns the lines of calls that a capture forbids: potentially unsafe calls on objects that are not captured.
pub fn forbidden_calls(program: &Program) -> Vec<u32> {
    let mut threads = Threads::default();
    let forbidden = program.ops().iter().filter(|op| threads.forbids(op.host, &op.what));
    forbidden.filter_map(|op| op.place.line()).collect()
}

impl Threads {
    fn capture_of(&mut self, stream: StreamId) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|capture| capture.members.contains(&stream))
    }

    /// Performs an operation, or returns `true` if it is forbidden.
    fn forbids(&mut self, host: HostId, what: &What) -> bool {
        match *what {
            What::StreamSynchronize { stream } | What::StreamQuery { stream, .. } => {
                return self.capture_of(stream).is_none() && self.is_prohibited(host);
            }
            What::EventSynchronize { event } | What::EventQuery { event, .. } => {
                return !self.captured.contains_key(&event) && self.is_prohibited(host);
            }
            What::AllocNow { .. } | What::FreeNow { .. } | What::PoolCreate { .. } | What::Instantiate { .. } => {
                return self.is_prohibited(host);
            }
            What::CaptureModeExchange { mode } => drop(self.modes.insert(host, mode)),
            What::StreamCreate { stream, role: StreamRole::Legacy, .. } => self.legacy.push(stream),
            What::CaptureBegin { stream, mode, .. }
                if self.capture_of(stream).is_none()
                    && !self.legacy.contains(&stream)
                    && !self.destroyed.contains(&stream) =>
            {
                self.captures.push(Capture { origin: stream, host, mode, members: vec![stream] });
            }
            What::CaptureEnd { stream } => {
                let may_end = |it: &Capture| it.host == host || it.mode == CaptureMode::Relaxed;
                self.captures.retain(|capture| capture.origin != stream || !may_end(capture));
            }
            What::StreamDestroy { stream } => {
                self.destroyed.push(stream);
                self.captures.retain(|capture| capture.origin != stream);
                self.captures.iter_mut().for_each(|capture| capture.members.retain(|it| *it != stream));
            }
            What::EventRecord { event, stream, external: false, .. } => match self.capture_of(stream) {
                Some(capture) => {
                    let origin = capture.origin;
                    self.captured.insert(event, origin);
                }
                None => drop(self.captured.remove(&event)),
            },
            What::EventCreate { event, .. } | What::EventDestroy { event } => drop(self.captured.remove(&event)),
            What::EventCopy { event, from } => match self.captured.get(&from).copied() {
                Some(origin) => drop(self.captured.insert(event, origin)),
                None => drop(self.captured.remove(&event)),
            },
            What::EventWait { event, stream, external: false } => {
                let origin = self.captured.get(&event).copied();
                if self.capture_of(stream).is_none()
                    && !self.legacy.contains(&stream)
                    && let Some(capture) = self.captures.iter_mut().find(|it| Some(it.origin) == origin)
                {
                    capture.members.push(stream);
                }
            }
            _ => {}
        }
        false
    }

    /// Returns `true` if a thread is prohibited from potentially unsafe calls.
    fn is_prohibited(&self, host: HostId) -> bool {
        let has_own = self.captures.iter().any(|it| it.host == host && it.mode != CaptureMode::Relaxed);
        let has_other = self.captures.iter().any(|it| it.host != host && it.mode == CaptureMode::Global);
        match self.modes.get(&host).copied().unwrap_or_default() {
            CaptureMode::Global => has_own || has_other,
            CaptureMode::ThreadLocal => has_own,
            CaptureMode::Relaxed => false,
        }
    }
}
