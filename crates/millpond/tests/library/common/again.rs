//! Repeats calls that the driver refused.

use millpond::{Error, Result};

/// Repeats a call that the driver refused. The second time it must succeed.
#[track_caller]
pub(crate) fn again<R>(mut act: impl FnMut() -> Result<R>) -> R {
    act().unwrap_or_else(|first| {
        assert!(matches!(first, Error::Driver(_) | Error::OutOfMemory(_)), "the driver's failure shows as: {first}");
        act().unwrap_or_else(|second| panic!("after {first}\nand once more: {second}"))
    })
}
