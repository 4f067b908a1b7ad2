//! Delays calls of the driver now and then, so that more of the work of other threads falls in between.
//!
//! The seed alone determines the operations of a program. The interleaving of its threads is random anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use millpond_driver::{CallKind, Result, Tap};

use crate::random::mix;

/// One call in this many sleeps.
const SLEEPS: u64 = 128;

/// Delays the calls of a device; see the module.
#[derive(Debug, Default)]
pub(crate) struct Dawdle(AtomicU64);

impl Tap for Dawdle {
    fn before(&self, kind: CallKind, _: u64) -> Result<()> {
        use CallKind::{CloseStream, IsOver, OpenStream, Record, Submit, Wait};
        if matches!(kind, OpenStream | CloseStream | Submit | Record | Wait | IsOver) {
            let chance = mix(self.0.fetch_add(1, Ordering::Relaxed));
            match chance % SLEEPS {
                0 => thread::sleep(Duration::from_micros(chance >> 32 & 0xff)),
                1..8 => thread::yield_now(),
                _ => {}
            }
        }
        Ok(())
    }
}
