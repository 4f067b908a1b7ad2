//! Serves recorded programs with the library.

use millpond_cli::replay::{ServeError, Server, Setup};

/// Opens a server for a program.
///
/// # Errors
/// Where the device cannot be opened.
pub(crate) fn open(setup: &Setup) -> Result<Box<dyn Server>, ServeError> {
    Err(ServeError(format!("{} is not here", setup.device.name())))
}
