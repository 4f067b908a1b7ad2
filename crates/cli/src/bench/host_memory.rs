//! mimalloc, where it is built in (the feature `mimalloc`): device memory is compared to what host memory costs.

use std::time::Duration;

#[cfg(feature = "mimalloc")]
use super::{held, loops, malloc};

/// Takes the time of so many pairs of so many bytes; none where mimalloc is not built in.
#[cfg(feature = "mimalloc")]
pub(super) fn pairs_of_mimalloc(bytes: usize) -> Option<impl Fn(u32) -> Duration + Copy + Send + Sync + 'static> {
    // As aligned as Millpond's.
    let layout = std::alloc::Layout::from_size_align(bytes, 512).ok()?;
    Some(move |calls| {
        let _held = held::Held::new(&mimalloc::MiMalloc, layout);
        let call = || {
            malloc::malloc_pair(&mimalloc::MiMalloc, layout);
            Ok::<(), std::convert::Infallible>(())
        };
        loops::timed(calls, call).unwrap_or_else(|never| match never {})
    })
}

/// As with the feature: none.
#[cfg(not(feature = "mimalloc"))]
pub(super) fn pairs_of_mimalloc(_: usize) -> Option<impl Fn(u32) -> Duration + Copy + Send + Sync + 'static> {
    None::<fn(u32) -> Duration>
}
