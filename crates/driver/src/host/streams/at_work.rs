//! What the calling thread runs at this moment: items of streams, one inside the other.
//!
//! By this a call finds out that it would wait for itself: a block on an event behind the item that blocks, and the end
//! of a device inside an item of any device. Knows no queue.

use std::cell::{Cell, RefCell};

use super::slot::{Packed, SlotIndex};
use super::sync::thread_local;
use crate::panics::Payload;

thread_local! {
    /// Whether the thread is a worker of some device.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// The items that the thread runs.
    static ITEMS: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
    /// What those items leave, to be dropped behind them.
    static LEFT: RefCell<Vec<Payload>> = const { RefCell::new(Vec::new()) };
}

/// An item that is being run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Item {
    /// The address of its device's streams, which stay there while the item runs.
    device: usize,
    slot: SlotIndex,
    ticket: u64,
}

/// The calling thread is a worker from now on, also while it ends.
pub(super) fn become_worker() {
    IS_WORKER.with(|is_worker| is_worker.set(true));
}

/// Whether the calling thread is a worker of some device.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.with(Cell::get)
}

/// Whether the calling thread runs work of any device: nothing that it waits for may need it.
pub(super) fn is_at_work() -> bool {
    is_worker() || is_in_item()
}

/// Whether the calling thread runs an item that the event covers.
pub(super) fn runs_before(device: usize, event: Packed) -> bool {
    let covers = |item: &Item| item.device == device && item.slot == event.slot() && item.ticket <= event.number();
    ITEMS.try_with(|items| items.borrow().iter().any(covers)).unwrap_or(false)
}

/// Whether the calling thread runs an item of a host device.
pub fn is_in_item() -> bool {
    ITEMS.try_with(|items| !items.borrow().is_empty()).unwrap_or(false)
}

/// Drops a value once the item of a host device that the calling thread runs has completed, and its stream is with
/// another thread; at once where the thread runs none. So the drop may wait for work, also for that of the item's own
/// stream.
pub fn drop_after_item(value: Payload) {
    let mut value = Some(value);
    if is_in_item() {
        let _ = LEFT.try_with(|left| left.borrow_mut().extend(value.take()));
    }
    drop(value);
}

/// Runs an item's code, which does not unwind. What it leaves goes to `left`.
pub(super) fn run<T>(
    device: usize,
    slot: SlotIndex,
    ticket: u64,
    left: &mut Vec<Payload>,
    code: impl FnOnce() -> T,
) -> T {
    // A thread that ends has no list any more: what its last destructors run is not known here.
    let is_known = ITEMS.try_with(|items| items.borrow_mut().push(Item { device, slot, ticket })).is_ok();
    let before = LEFT.try_with(|left| left.borrow().len()).unwrap_or(0);
    let outcome = code();
    if is_known {
        let _ = ITEMS.try_with(|items| items.borrow_mut().pop());
    }
    let _ = LEFT.try_with(|all| {
        if all.borrow().len() > before {
            left.extend(all.borrow_mut().drain(before..));
        }
    });
    outcome
}
