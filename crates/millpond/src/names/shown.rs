//! Which places texts show. Lines of Rust are those of a library where the program is of another language: they say
//! nothing to it, and no text has them.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::check::Place;

static IS_OF_ANOTHER_LANGUAGE: AtomicBool = AtomicBool::new(false);

/// The program of this process is of another language.
pub(crate) fn hide_rust() {
    IS_OF_ANOTHER_LANGUAGE.store(true, Ordering::Relaxed);
}

/// A place as a text shows it.
pub(crate) fn shown(place: Place) -> Place {
    match place {
        Place::Source(_) if IS_OF_ANOTHER_LANGUAGE.load(Ordering::Relaxed) => Place::Unknown,
        place => place,
    }
}
