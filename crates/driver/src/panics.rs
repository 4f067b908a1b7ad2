//! The messages of panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The payload of a caught panic. Dropping it runs a caller's code.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Returns the message of a caught panic. A payload that panics while it is dropped is leaked.
pub(crate) fn message(payload: Payload) -> String {
    let text = text(&payload);
    drop_quietly(payload);
    text
}

/// Returns the message of a caught panic. The caller drops the payload where a caller's code may run.
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
        // Dropping this payload could panic again, and so on, so it is leaked.
        std::mem::forget(payload);
    }
}
