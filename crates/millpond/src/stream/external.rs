//! External events, which order graphs and streams outside of them (CUDA: a `cudaEvent_t` that is recorded and waited
//! for with `cudaEventRecordExternal` and `cudaEventWaitExternal`).
//!
//! An [`Event`] never changes, but a node must name something that each launch records anew. That is an
//! [`ExternalEvent`], which holds the last record. A wait is for the record that it holds at that moment. Before the
//! first record it holds none, and a wait has no effect. The wait nodes of a graph take the record that it holds at the
//! launch.
//!
//! Depends on snapshots and the driver's events, not on graphs. Its lock is a leaf.

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
    /// Dropped before `context`, so that a trace has the end of the event before the end of its device.
    traced: Option<Arc<TracedEvent>>,
    context: Arc<Context>,
    last: Mutex<ranks::Table, Option<Record>>,
}

/// The two kinds of nodes that order a graph with streams outside of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventNode {
    Record,
    Wait,
}

impl ExternalEvent {
    /// Makes an external event of a device. It is not recorded yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let key = next_key();
        let traced = context.tracer.as_ref().map(Tracer::event);
        ExternalEvent { shared: Arc::new(Shared { key, traced, context, last: Mutex::default() }) }
    }
}

impl Event {
    /// Returns an external event that holds this record, or `None` for an event of a capture, which is an edge.
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

/// Keeps other threads from recording or reading an external event while the guard lives, if the program is traced. So
/// a trace has these operations in the order in which they happened: an operation that sees a record comes after that
/// record.
pub(crate) fn traced_in_order(context: &Context) -> Option<Guard<'static, ()>> {
    static ORDER: Mutex<ranks::TracedEvents, ()> = Mutex::new(());
    context.tracer.as_ref().map(|_| lock(&ORDER))
}

/// Returns a key that no other external event of the process has: the events of two devices never have one key in a
/// graph.
fn next_key() -> EventKey {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    EventKey(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl ExternalEvent {
    /// Returns the last record, to query or to synchronise with, or `None` before the first one. If a launch of a graph
    /// recorded it, it is the record of that node: not the whole launch comes before it.
    pub fn last(&self) -> Option<Event> {
        let context = &self.shared.context;
        let _order = traced_in_order(context);
        let record = self.record()?;
        let traced = context.tracer.as_ref().map(|tracer| tracer.event_like(self.shared.traced.as_deref()));
        Some(Event::at(record, traced, context))
    }

    /// Returns the event as a trace has it.
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
        // The former record is dropped after the lock is released, because that calls the driver.
        let former = lock(&self.shared.last).replace(record);
        drop(former);
    }

    /// Returns the device of the event.
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
