//! The items of streams that the calling thread runs now, one inside the other.
//!
//! With this list a call detects that it would wait for itself: a block on an event after the item that blocks, and the
//! end of a device inside an item of any device. Knows no queue.

use std::cell::{Cell, RefCell};

use super::slot::{Packed, SlotIndex};
use super::sync::thread_local;
use crate::panics::Payload;

thread_local! {
    /// `true` if the thread is a worker of some device.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// The items that the thread runs.
    static ITEMS: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
    /// The values that these items leave, which are dropped after the items.
    static LEFT: RefCell<Vec<Payload>> = const { RefCell::new(Vec::new()) };
}

/// An item that runs now.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Item {
    /// The address of its device's streams, which do not move while the item runs.
    device: usize,
    slot: SlotIndex,
    ticket: u64,
}

/// Marks the calling thread as a worker from now on, also while it ends.
pub(super) fn become_worker() {
    IS_WORKER.with(|is_worker| is_worker.set(true));
}

/// Returns `true` if the calling thread is a worker of some device.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.with(Cell::get)
}

/// Returns `true` if the calling thread runs work of any device. Then it must not wait, because the work that it waits
/// for may need this thread.
pub(super) fn is_at_work() -> bool {
    is_worker() || is_in_item()
}

/// Returns `true` if the calling thread runs an item that the event covers.
pub(super) fn runs_before(device: usize, event: Packed) -> bool {
    let covers = |item: &Item| item.device == device && item.slot == event.slot() && item.ticket <= event.number();
    ITEMS.try_with(|items| items.borrow().iter().any(covers)).unwrap_or(false)
}

/// Returns `true` if the calling thread runs an item of a host device.
pub fn is_in_item() -> bool {
    ITEMS.try_with(|items| !items.borrow().is_empty()).unwrap_or(false)
}

/// Drops a value once the item of a host device that the calling thread runs has completed, and another thread has its
/// stream; at once if the thread runs no item. So the drop may wait for work, also for work of the item's own stream.
pub fn drop_after_item(value: Payload) {
    let mut value = Some(value);
    if is_in_item() {
        let _ = LEFT.try_with(|left| left.borrow_mut().extend(value.take()));
    }
    drop(value);
}

/// Runs an item's code, which does not unwind. The values that it leaves are added to `left`.
pub(super) fn run<T>(
    device: usize,
    slot: SlotIndex,
    ticket: u64,
    left: &mut Vec<Payload>,
    code: impl FnOnce() -> T,
) -> T {
    // A thread that ends has no list any more, so items that its last destructors run are not in it.
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
