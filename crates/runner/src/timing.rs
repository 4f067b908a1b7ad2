//! The timing of a program on the host device: fast, in an order by a seed, or with sleeps.

use std::time::Duration;

use millpond::config::Schedule;

/// The timing of a program.
#[derive(Clone, Copy, Debug)]
pub enum Timing {
    /// Runs threads, as fast as they go.
    Fast,
    /// Runs the work in one order, which the seed determines.
    Seeded(u64),
    /// Runs threads, while the host and some kernels sleep now and then, as the seed determines.
    Sleepy(u64),
}

impl Timing {
    pub(crate) fn schedule(self) -> Schedule {
        match self {
            Timing::Seeded(seed) => Schedule::Seeded(seed),
            Timing::Fast | Timing::Sleepy(_) => Schedule::Parallel,
        }
    }

    /// Returns the time to sleep, which may be zero.
    pub(crate) fn pause(&mut self) -> Duration {
        let Timing::Sleepy(seed) = self else { return Duration::ZERO };
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros(if *seed >> 63 == 0 { 0 } else { *seed >> 56 & 0x7f })
    }
}
