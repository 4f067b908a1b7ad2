//! The places that texts show. If the program is in another language, lines of Rust source belong to a library: they
//! mean nothing to the program's author, and no text shows them.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::check::Place;

static IS_OF_ANOTHER_LANGUAGE: AtomicBool = AtomicBool::new(false);

/// Records that the program of this process is in another language.
pub(crate) fn hide_rust() {
    IS_OF_ANOTHER_LANGUAGE.store(true, Ordering::Relaxed);
}

/// Returns a place as texts show it.
pub(crate) fn shown(place: Place) -> Place {
    match place {
        Place::Source(_) if IS_OF_ANOTHER_LANGUAGE.load(Ordering::Relaxed) => Place::Unknown,
        place => place,
    }
}
