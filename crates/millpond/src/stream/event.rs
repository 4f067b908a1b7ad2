//! An event: a recorded position of a stream (CUDA: `cudaEvent_t` after `cudaEventRecord`).
//!
//! An [`Event`] *is* what was recorded and never changes: recording again makes another event. So the questions which
//! record a wait meant, and whether an event was recorded at all, do not arise.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::order::Snapshot;
use millpond_driver::{Driver, RawTime, process};

use crate::clock::device_event::DeviceEvent;
use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::state::session::CapturedAt;
use crate::trace::tracer::{TracedEvent, Tracer};

/// A position of a stream with everything that comes before it. Cheap to clone.
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
    /// Its end is known before the device's can come.
    pub(crate) traced: Option<Arc<TracedEvent>>,
    pub(crate) at: At,
}

/// How a trace has a question that was refused.
type Asked = fn(&Tracer, &TracedEvent, &'static Location<'static>);

/// A record: what comes before it, for the order and for the device.
pub(crate) type Record = (Snapshot, Arc<DeviceEvent>);

/// Where an event was recorded.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// On a stream of the device.
    Live {
        /// What comes before it.
        snapshot: Snapshot,
        /// The driver's side.
        device_event: Arc<DeviceEvent>,
        /// The device.
        context: Arc<Context>,
    },
    /// In a capture: an edge of the graph, and nothing that can be waited for by the host.
    Captured(Arc<CapturedAt>),
}

impl Event {
    /// A record of a stream of this device.
    #[inline]
    pub(crate) fn at(
        (snapshot, device_event): Record,
        traced: Option<Arc<TracedEvent>>,
        context: &Arc<Context>,
    ) -> Self {
        let at = At::Live { snapshot, device_event, context: Arc::clone(context) };
        Self { traced, at }
    }

    /// Whether everything before it has completed (CUDA: `cudaEventQuery`). A yes orders what the host submits from
    /// then on after it, as a synchronisation does.
    ///
    /// # Errors
    /// The device is lost; it is not asked again about what is known to have completed. A capture forbids it
    /// ([`begin_capture_in`](crate::Stream::begin_capture_in)), and is invalid then.
    #[track_caller]
    pub fn is_over(&self) -> Result<bool> {
        let caller = Location::caller();
        self.refuse_unsafe("is_over", caller, Tracer::event_over)?;
        self.poll(caller)
    }

    /// As [`is_over`](Self::is_over), where no capture can forbid it: it is not a call of the program, or was allowed.
    #[doc(hidden)]
    pub fn poll(&self, caller: &'static Location<'static>) -> Result<bool> {
        let (snapshot, device_event, context) = self.live(caller, Tracer::event_over)?;
        let over = context.driver.is_over(device_event.raw)? && context.is_side_work_over(snapshot)?;
        if over {
            context.host_learned([snapshot], |tracer| {
                if let Some(event) = &self.traced {
                    tracer.event_over(event, caller);
                }
            });
        }
        Ok(over)
    }

    /// Waits until everything before it has completed (CUDA: `cudaEventSynchronize`).
    ///
    /// # Errors
    /// The device is lost. A capture forbids it ([`begin_capture_in`](crate::Stream::begin_capture_in)), and is invalid
    /// then.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let caller = Location::caller();
        self.refuse_unsafe("synchronize", caller, Tracer::synchronized_with)?;
        self.wait(caller)
    }

    /// As [`synchronize`](Self::synchronize), where that was allowed.
    pub(crate) fn wait(&self, caller: &'static Location<'static>) -> Result<()> {
        let (snapshot, device_event, context) = self.live(caller, Tracer::synchronized_with)?;
        context.driver.block_on(device_event.raw)?;
        context.block_on_side_work(snapshot)?;
        context.synchronized([snapshot], |tracer| {
            if let Some(event) = &self.traced {
                tracer.synchronized_with(event, caller);
            }
        });
        Ok(())
    }

    /// How long after an earlier event this one was reached by its stream (CUDA: `cudaEventElapsedTime`). Both are
    /// [recorded with their times](crate::Stream::record_timed), on streams of one device, and have completed, which
    /// is asked for as by [`is_over`](Self::is_over). Zero where this one was reached first.
    ///
    /// A GPU's clock is as exact as CUDA says, half a microsecond. A host device with a seeded
    /// schedule, count a microsecond for each item of work that they ran.
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
    /// [`Invalid::NotTimed`] for an event without a time, [`Invalid::NotCompleted`] for one that has not completed,
    /// [`Invalid::OtherDevice`] for one of another device, an error of the capture for one that was recorded in a
    /// capture; the device is lost.
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

    /// Its time, as its device knows it.
    #[track_caller]
    fn time(&self, which: &'static str) -> Result<(RawTime, &Context)> {
        let (_, device_event, context) = self.live(Location::caller(), Tracer::event_over)?;
        Ok((device_event.time.ok_or(Invalid::NotTimed { which })?, context))
    }

    /// The number of its device.
    pub(crate) fn device(&self) -> u32 {
        match &self.at {
            At::Live { context, .. } => context.number,
            At::Captured(at) => at.device(),
        }
    }

    /// Captures may forbid that the program asks; of an event that is in one, that one says so.
    fn refuse_unsafe(&self, call: &'static str, caller: &'static Location<'static>, asked: Asked) -> Result<()> {
        let At::Live { context, .. } = &self.at else { return Ok(()) };
        context.graphs.refuse_unsafe(call).inspect_err(|error| {
            if let Some(event) = &self.traced {
                Tracer::refused(context.tracer.as_ref(), error, |tracer| asked(tracer, event, caller));
            }
        })
    }

    /// What the host can ask the device about; asking for a captured event ends that capture.
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
