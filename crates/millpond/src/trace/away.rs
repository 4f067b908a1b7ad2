//! Events that are waited for outside their trace: a device of another trace, or without one, waits for an event of a
//! traced device. If the host learns of the event through such a device, the event's own trace shows that, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::ids::Point;
use millpond_core::op::{Place, What};
use millpond_driver::locks::{Leaf, Mutex, lock};

use crate::trace::tracer::{TracedEvent, Tracer};

/// The events that were waited for elsewhere and that the process has not synchronised with yet, with their points.
static AWAY: Mutex<Leaf, Vec<(Point, Arc<TracedEvent>)>> = Mutex::new(Vec::new());

/// `true` once there was such an event.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Records that a device outside the event's trace waits for an event at a point.
#[cold]
pub(crate) fn leave(at: Point, event: &Arc<TracedEvent>) {
    IS_USED.store(true, Ordering::Release);
    lock(&AWAY).push((at, Arc::clone(event)));
}

/// Makes a stream wait for the events whose points it `covers`: those of its own trace are waited for there.
#[cold]
pub(crate) fn wait(tracer: &Tracer, covers: impl Fn(Point) -> bool, write: impl Fn(&TracedEvent)) {
    let is_back = |(at, event): &&(Point, Arc<TracedEvent>)| event.is_of(tracer) && covers(*at);
    let back: Vec<_> = lock(&AWAY).iter().filter(is_back).map(|(_, event)| Arc::clone(event)).collect();
    back.iter().for_each(|event| write(event));
}

/// Records that the process has synchronised with all points that it `covers`.
#[inline]
pub(crate) fn synchronize(covers: impl Fn(Point) -> bool) {
    if !IS_USED.load(Ordering::Acquire) {
        return;
    }
    let known: Vec<_> = lock(&AWAY).iter().filter(|(at, _)| covers(*at)).cloned().collect();
    for (_, event) in &known {
        event.tracer().push(Place::Unknown, What::EventSynchronize { event: event.id });
    }
    // Only now: a stream that does not find an event here comes after its synchronisation in the trace.
    lock(&AWAY).retain(|(at, event)| !known.iter().any(|(point, it)| point == at && Arc::ptr_eq(it, event)));
}
