//! Calls of the driver that come late now and then, so that more of what other threads do falls in between.
//!
//! What a program does is its seed's alone; how its threads meet is chance anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use millpond_driver::{CallKind, Result, Tap};

use crate::random::mix;

/// One call in so many sleeps.
const SLEEPS: u64 = 128;

/// Before a device: see the module.
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
