//! External events: what graphs and outside streams order each other by (CUDA: a `cudaEvent_t` that is recorded and
//! waited for with `cudaEventRecordExternal` and `cudaEventWaitExternal`).
//!
//! An [`Event`] never changes, and a node must name something that each launch records anew: that is an
//! [`ExternalEvent`], a place that holds the last record. Who waits waits for what it holds at that moment; before its
//! first record that is nothing, and a wait has no effect. A graph's wait nodes see what it holds at the launch.
//!
//! Knows snapshots and the driver's events; nothing of graphs. Its lock is a leaf.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::graph::EventKey;
use millpond_core::ids::StreamId;
use millpond_driver::locks::{Guard, Mutex, lock};

use crate::names::error::{Invalid, Result};
use crate::state::context::Context;
use crate::state::stream::StreamShared;
use crate::stream::event::{At, Event, Record};
use crate::sync::ranks;
use crate::trace::tracer::{TracedEvent, Tracer};

/// An event that can be recorded again and again, by streams and by launches of graphs. Clones name the same event.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let event = device.external_event();
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// for round in 0..3 {
///     stream.memset(x.write(), round)?;
///     stream.record_external(&event)?;
///     other.wait_external(&event)?; // the record of this round
///     assert_eq!(other.copy_to_host(x.read())?, [u32::from(round) * 0x0101_0101; 4]);
///     other.synchronize()?;
/// }
/// stream.free(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ExternalEvent {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    key: EventKey,
    /// Its end is known before the device's can come.
    traced: Option<Arc<TracedEvent>>,
    context: Arc<Context>,
    last: Mutex<ranks::Table, Option<Record>>,
}

/// The two kinds of nodes that order a graph with the outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventNode {
    Record,
    Wait,
}

impl ExternalEvent {
    /// One of a device, not recorded yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let key = next_key();
        let traced = context.tracer.as_ref().map(Tracer::event);
        ExternalEvent { shared: Arc::new(Shared { key, traced, context, last: Mutex::default() }) }
    }
}

impl Event {
    /// An external event that holds this record; `None` for an event of a capture, which is an edge.
    ///
    /// ```
    /// # use millpond::{Device, HostConfig};
    /// # fn main() -> millpond::Result<()> {
    /// let device = Device::host(HostConfig::default())?;
    /// let (left, right) = (device.stream()?, device.stream()?);
    /// let x = left.alloc::<u8>(&device.default_pool(), 4096)?;
    /// let event = left.record()?.to_external().expect("not of a capture");
    /// right.wait_external(&event)?;
    /// right.free(x)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_external(&self) -> Option<ExternalEvent> {
        let At::Live { snapshot, device_event, context } = &self.at else { return None };
        let last = Mutex::new(Some((snapshot.clone(), Arc::clone(device_event))));
        let traced = context.tracer.as_ref().map(|tracer| tracer.event_like(self.traced.as_deref()));
        let context = Arc::clone(context);
        Some(ExternalEvent { shared: Arc::new(Shared { key: next_key(), traced, context, last }) })
    }
}

/// While this lives no other thread records or asks an external event, where the program is traced: what a trace says
/// of them stands there in the order in which it happened. Who sees a record has its own line behind that of the
/// record.
pub(crate) fn traced_in_order(context: &Context) -> Option<Guard<'static, ()>> {
    static ORDER: Mutex<ranks::TracedEvents, ()> = Mutex::new(());
    context.tracer.as_ref().map(|_| lock(&ORDER))
}

/// A number is for one process: two devices' events never meet in a graph under one.
fn next_key() -> EventKey {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    EventKey(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl ExternalEvent {
    /// The last record, to be asked or synchronised; none before the first. Where a graph's launch recorded it, it is
    /// the record of that node: not the whole launch comes before it.
    pub fn last(&self) -> Option<Event> {
        let context = &self.shared.context;
        let _order = traced_in_order(context);
        let record = self.record()?;
        let traced = context.tracer.as_ref().map(|tracer| tracer.event_like(self.shared.traced.as_deref()));
        Some(Event::at(record, traced, context))
    }

    /// What a trace knows it as.
    pub(crate) fn traced(&self) -> Option<&TracedEvent> {
        self.shared.traced.as_deref()
    }

    pub(crate) fn key(&self) -> EventKey {
        self.shared.key
    }

    pub(crate) fn record(&self) -> Option<Record> {
        lock(&self.shared.last).clone()
    }

    pub(crate) fn set(&self, record: Record) {
        // The former one is dropped behind the lock: that is a call of the driver.
        let former = lock(&self.shared.last).replace(record);
        drop(former);
    }

    /// The device that it is of.
    pub(crate) fn owner(&self) -> &Arc<Context> {
        &self.shared.context
    }

    pub(crate) fn check_device(&self, number: u32, with: impl FnOnce() -> String) -> Result<()> {
        match self.shared.context.number == number {
            true => Ok(()),
            false => Err(Invalid::OtherDevice { what: "an external event".into(), with: with() }.into()),
        }
    }

    pub(crate) fn check_stream(&self, stream: &StreamShared) -> Result<()> {
        self.check_device(stream.context.number, || StreamId::to_string(&stream.id))
    }
}
