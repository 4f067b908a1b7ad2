//! What a panic said, as text.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a caught panic carries. Dropping it runs a caller's code.
pub(crate) type Payload = Box<dyn Any + Send>;

/// The message of a caught panic. A payload that panics while it is dropped is let go.
pub(crate) fn message(payload: Payload) -> String {
    let text = text(&payload);
    drop_quietly(payload);
    text
}

/// The message of a caught panic, whose payload is dropped where that may run a caller's code.
pub(crate) fn text(payload: &Payload) -> String {
    let text = match payload.downcast_ref::<&'static str>() {
        Some(text) => Some((*text).to_owned()),
        None => payload.downcast_ref::<String>().cloned(),
    };
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Drops a value of a caller, whose destructor may panic.
pub(crate) fn drop_quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // Dropping this one could panic again, and so on: it is the caller's own loop to leak.
        std::mem::forget(payload);
    }
}
