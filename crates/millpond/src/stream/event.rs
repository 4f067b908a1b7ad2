//! An event: a recorded position of a stream (CUDA: `cudaEvent_t` after `cudaEventRecord`).
//!
//! An [`Event`] *is* one record and never changes: recording again makes another event. So it is always clear which
//! record a wait means, and every event was recorded.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::op::{Place, What};
use millpond_core::order::Snapshot;
use millpond_driver::{Driver, RawTime, process};

use crate::clock::device_event::DeviceEvent;
use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::state::session::CapturedAt;
use crate::trace::tracer::{TracedEvent, Tracer};

/// A recorded position of a stream. Everything before it on the stream, and everything that the stream had waited for,
/// comes before the event. Cheap to clone.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// stream.memset(x.write(), 0)?;
/// let event = stream.record()?;
/// other.wait(&event)?; // on the device
/// event.synchronize()?; // on the host
/// assert!(event.is_over()?);
/// other.free(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Event {
    /// Dropped before `at`, so that a trace has the end of the event before the end of its device.
    pub(crate) traced: Option<Arc<TracedEvent>>,
    pub(crate) at: At,
}

/// Traces a query or a synchronisation that was refused.
type Asked = fn(&Tracer, &TracedEvent, &'static Location<'static>);

/// A record: a snapshot for the order, and an event for the device.
pub(crate) type Record = (Snapshot, Arc<DeviceEvent>);

/// The place where an event was recorded.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// On a stream of the device.
    Live {
        /// Everything that comes before the event.
        snapshot: Snapshot,
        /// The driver's side.
        device_event: Arc<DeviceEvent>,
        /// The device.
        context: Arc<Context>,
    },
    /// In a capture. The event is an edge of the graph, and the host cannot wait for it.
    Captured(Arc<CapturedAt>),
}

impl Event {
    /// Makes an event of a record on a stream of this device.
    #[inline]
    pub(crate) fn at(
        (snapshot, device_event): Record,
        traced: Option<Arc<TracedEvent>>,
        context: &Arc<Context>,
    ) -> Self {
        let at = At::Live { snapshot, device_event, context: Arc::clone(context) };
        Self { traced, at }
    }

    /// Returns `true` if everything before the event has completed (CUDA: `cudaEventQuery`). Then everything that the
    /// host submits from now on comes after the event, as after a synchronisation.
    ///
    /// # Errors
    /// Returns an error if the device is lost. The device is not asked again about work that is known to have
    /// completed. If a capture forbids the call ([`begin_capture_in`](crate::Stream::begin_capture_in)), the call is
    /// refused and the capture is invalid.
    #[track_caller]
    pub fn is_over(&self) -> Result<bool> {
        let caller = Location::caller();
        self.refuse_unsafe("is_over", caller, Tracer::event_over)?;
        self.poll(caller)
    }

    /// As [`is_over`](Self::is_over), but no capture can forbid it: it is not a call of the program, or the captures
    /// have allowed it.
    #[doc(hidden)]
    pub fn poll(&self, caller: &'static Location<'static>) -> Result<bool> {
        let (snapshot, device_event, context) = self.live(caller, Tracer::event_over)?;
        let over = context.driver.is_over(device_event.raw)? && context.is_side_work_over(snapshot)?;
        if over {
            context.host_learned([snapshot], |tracer| {
                if let Some(event) = &self.traced {
                    tracer.returned(Place::Source(caller), What::EventQuery { event: event.id, is_over: true });
                }
            });
        }
        Ok(over)
    }

    /// Waits until everything before the event has completed (CUDA: `cudaEventSynchronize`).
    ///
    /// # Errors
    /// Returns an error if the device is lost. If a capture forbids the call
    /// ([`begin_capture_in`](crate::Stream::begin_capture_in)), the call is refused and the capture is invalid.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let caller = Location::caller();
        self.refuse_unsafe("synchronize", caller, Tracer::synchronized_with)?;
        self.wait(caller)
    }

    /// As [`synchronize`](Self::synchronize), once the captures have allowed it.
    pub(crate) fn wait(&self, caller: &'static Location<'static>) -> Result<()> {
        let (snapshot, device_event, context) = self.live(caller, Tracer::synchronized_with)?;
        context.driver.block_on(device_event.raw)?;
        context.block_on_side_work(snapshot)?;
        context.synchronized([snapshot], |tracer| {
            if let Some(event) = &self.traced {
                tracer.returned(Place::Source(caller), What::EventSynchronize { event: event.id });
            }
        });
        Ok(())
    }

    /// Returns the time between the moments at which the streams reached an earlier event and this one (CUDA:
    /// `cudaEventElapsedTime`). Both must be [recorded with their times](crate::Stream::record_timed), on streams of
    /// one device, and must have completed, which is checked as by [`is_over`](Self::is_over). Returns zero if this
    /// event was reached first.
    ///
    /// A GPU's clock is as exact as CUDA says, half a microsecond. A host device with a seeded schedule counts one
    /// microsecond for each item of work that it ran.
    ///
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// # let device = millpond::Device::host(Default::default())?;
    /// let stream = device.stream()?;
    /// let x = stream.alloc_zeroed::<f32>(&device.default_pool(), 1 << 20)?;
    /// let start = stream.record_timed()?;
    /// stream.launch(x.write(), |x| x.fill(1.0))?;
    /// let end = stream.record_timed()?;
    /// end.synchronize()?;
    /// println!("the fill took {:?}", end.elapsed_since(&start)?);
    /// # assert!(end.elapsed_since(&start)? > std::time::Duration::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Invalid::NotTimed`] for an event without a time, [`Invalid::NotCompleted`] for one that has not
    /// completed, [`Invalid::OtherDevice`] for one of another device, and the capture's error for one that was recorded
    /// in a capture. Returns an error if the device is lost.
    #[track_caller]
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Duration> {
        let (from, context) = earlier.time("the earlier event")?;
        let (to, own) = self.time("the later event")?;
        if context.number != own.number {
            let (what, with) = ("the earlier event".into(), format!("the later one, of {}", own.name()));
            return Err(Invalid::OtherDevice { what, with }.into());
        }
        for (event, which) in [(earlier, "the earlier event"), (self, "the later event")] {
            if !event.is_over()? {
                return Err(Invalid::NotCompleted { which }.into());
            }
        }
        Ok(own.driver.elapsed(from, to)?)
    }

    /// Returns the time of the event, as its device knows it.
    #[track_caller]
    fn time(&self, which: &'static str) -> Result<(RawTime, &Context)> {
        let (_, device_event, context) = self.live(Location::caller(), Tracer::event_over)?;
        Ok((device_event.time.ok_or(Invalid::NotTimed { which })?, context))
    }

    /// Returns the number of the event's device.
    pub(crate) fn device(&self) -> u32 {
        match &self.at {
            At::Live { context, .. } => context.number,
            At::Captured(at) => at.device(),
        }
    }

    /// Refuses a call that a capture forbids. If the event itself is in a capture, `live` refuses it.
    fn refuse_unsafe(&self, call: &'static str, caller: &'static Location<'static>, asked: Asked) -> Result<()> {
        let At::Live { context, .. } = &self.at else { return Ok(()) };
        context.graphs.refuse_unsafe(call).inspect_err(|error| {
            if let Some(event) = &self.traced {
                Tracer::refused(context.tracer.as_ref(), error, |tracer| asked(tracer, event, caller));
            }
        })
    }

    /// Returns what the host can ask the device about. Asking about an event of a capture is refused, and invalidates
    /// that capture.
    fn live(&self, caller: &'static Location<'static>, asked: Asked) -> Result<(&Snapshot, &DeviceEvent, &Context)> {
        process::refuse_forked()?;
        match &self.at {
            At::Live { snapshot, device_event, context } => Ok((snapshot, device_event, context)),
            At::Captured(at) => {
                let error = at.refuse(caller);
                if let Some(event) = &self.traced {
                    let tracer = at.session.context.tracer.as_ref();
                    Tracer::refused(tracer, &error, |tracer| asked(tracer, event, caller));
                }
                Err(error)
            }
        }
    }
}
