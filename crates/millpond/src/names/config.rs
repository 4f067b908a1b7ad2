//! The settings of devices and pools. Plain data, with CUDA's defaults where CUDA has the setting. Each setting has a
//! method of its name, so that a new setting breaks no program.

use millpond_core::op::StreamKind;
use millpond_core::pool::{ReusePolicy, Slack};
use millpond_core::units::{GIB, round_up};
use millpond_driver::Schedule;

use crate::names::error::{Invalid, Result};
use crate::names::trace_file::Trace;
use crate::names::violations::Violations;

/// Makes a method for each setting, which takes the settings and returns them changed.
macro_rules! setters {
    ($settings:ident: $($field:ident: $value:ty),* $(; $optional:ident: $some:ty)* $(,)?) => {
        impl $settings {
            $(
                #[doc = concat!("With [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> Self {
                    self.$field = $field;
                    self
                }
            )*
            $(
                #[doc = concat!("With [`", stringify!($optional), "`](Self#structfield.", stringify!($optional), ").")]
                #[must_use]
                pub fn $optional(mut self, $optional: impl Into<Option<$some>>) -> Self {
                    self.$optional = $optional.into();
                    self
                }
            )*
        }
    };
}

/// Settings of every kind of device.
///
/// ```
/// let config = millpond::DeviceConfig::default();
/// assert_eq!(config.trace, None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// The trace that the program's operations are written to. Default: the file that the environment variable
    /// `MILLPOND_TRACE` names, if it is set.
    pub trace: Option<Trace>,
    /// The handling of violations. Default: the operation is refused.
    pub violations: Violations,
}

setters!(DeviceConfig: violations: Violations; trace: Trace);

/// The settings of a host device.
///
/// ```
/// use millpond::{Device, GIB, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default().total_bytes(8 * GIB))?;
/// assert_eq!(device.properties().total_bytes, 8 * GIB);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HostConfig {
    /// The device's memory in bytes. It may be more than the machine has: memory costs nothing until it is touched.
    /// Default 64 GiB.
    pub total_bytes: u64,
    /// The sizes of physical chunks are multiples of this many bytes, a power of two. Default 2 MiB, as on a GPU.
    pub granularity: u64,
    /// The threads that run the work: threads in parallel (default), or the program's own threads while they wait, in
    /// an order chosen by a seed. [`Schedule::AtOnce`] is refused: a kernel would run inside the call that launches
    /// it.
    pub schedule: Schedule,
    /// `true` if there is memory (default). Without memory, allocations have addresses at which nothing is. Copies,
    /// fills and kernels are checked and recorded but do nothing, and nothing can be shared. This is for checking
    /// orders and footprints at sizes that no machine has.
    ///
    /// ```
    /// use millpond::{Device, GIB, HostConfig};
    ///
    /// # fn main() -> millpond::Result<()> {
    /// let device = Device::host(HostConfig::default().total_bytes(4096 * GIB).memory(false))?;
    /// let stream = device.stream()?;
    /// let x = stream.alloc::<u8>(&device.default_pool(), 3000 * GIB as usize)?;
    /// assert!(device.default_pool().statistics().reserved_bytes >= 3000 * GIB);
    /// stream.free(x)?;
    /// # Ok(())
    /// # }
    /// ```
    pub memory: bool,
    /// As [`DeviceConfig::trace`].
    pub trace: Option<Trace>,
    /// As [`DeviceConfig::violations`].
    pub violations: Violations,
}

setters!(
    HostConfig: total_bytes: u64, granularity: u64, schedule: Schedule, memory: bool, violations: Violations;
    trace: Trace
);

impl Default for HostConfig {
    fn default() -> Self {
        let millpond_driver::HostConfig { total_bytes, granularity, schedule, memory } = Default::default();
        let (trace, violations) = Default::default();
        Self { total_bytes, granularity, schedule, memory, trace, violations }
    }
}

impl HostConfig {
    pub(crate) fn split(self) -> (millpond_driver::HostConfig, DeviceConfig) {
        let Self { total_bytes, granularity, schedule, memory, trace, violations } = self;
        let device = DeviceConfig { trace, violations };
        (millpond_driver::HostConfig { total_bytes, granularity, schedule, memory }, device)
    }
}

/// The settings of a pool.
///
/// ```
/// use millpond::{Device, MIB, PoolConfig};
/// # fn main() -> millpond::Result<()> {
/// # let device = Device::host(Default::default())?;
/// let pool = device.pool(PoolConfig::default().max_bytes(64 * MIB).release_threshold(16 * MIB))?;
/// assert_eq!(pool.config().max_bytes, Some(64 * MIB));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The bytes to keep at a synchronisation (CUDA: `cudaMemPoolAttrReleaseThreshold`). Default 0.
    pub release_threshold: u64,
    /// The most bytes to reserve (CUDA: `maxSize`). Rounded up to the device's granularity. Default: no limit.
    pub max_bytes: Option<u64>,
    /// The conditions under which memory freed on one stream may serve another. Default: always.
    pub reuse: ReusePolicy,
    /// The limit of the reserved bytes beyond those held. Default: adaptive. [`Slack::Pressure`] is loose
    /// as long as the device has room.
    pub slack: Slack,
    /// The largest size of a physical chunk, in bytes. Default 2 GiB.
    pub chunk_bytes_max: u64,
    /// Make freed addresses inaccessible, so that a stray access faults instead of reading old data. Blocks are then
    /// multiples of a page and are never cached. For finding bugs, not for speed. Default off.
    pub guard: bool,
    /// Make chunks that can be shared with other processes (CUDA: `cudaMemPoolProps::handleTypes`, file descriptors).
    /// Each chunk then takes a file descriptor, and each allocation has chunks of its own, of the device's
    /// granularity. So a process that imports one allocation cannot reach another, and memory that was lent to
    /// another process is destroyed by its free instead of being reused. See
    /// [`Device::pool_sharing_chunks`](crate::Device::pool_sharing_chunks) for the alternative. Default off.
    pub shareable: bool,
}

setters!(
    PoolConfig: release_threshold: u64, reuse: ReusePolicy, slack: Slack, chunk_bytes_max: u64, guard: bool,
    shareable: bool; max_bytes: u64
);

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            release_threshold: 0,
            max_bytes: None,
            reuse: ReusePolicy::default(),
            slack: Slack::default(),
            chunk_bytes_max: 2 * GIB,
            guard: false,
            shareable: false,
        }
    }
}

/// The settings of a stream.
///
/// ```
/// use millpond::config::{StreamConfig, StreamKind};
/// # fn main() -> millpond::Result<()> {
/// # let device = millpond::Device::host(Default::default())?;
/// let copy = StreamConfig::default().kind(StreamKind::NonBlocking).priority(-1);
/// let stream = device.stream_with(copy)?.named("copy");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StreamConfig {
    /// The relation of the stream to the legacy default stream. Default: ordered with it.
    pub kind: StreamKind,
    /// The priority if the device cannot run all work at once: lower numbers go first (CUDA:
    /// `cudaStreamCreateWithPriority`, which takes the nearest number that the device knows). It is a hint: it makes
    /// no order, and only CUDA devices use it. Default 0.
    pub priority: i32,
}

setters!(StreamConfig: kind: StreamKind, priority: i32);

impl Default for StreamConfig {
    fn default() -> Self {
        Self { kind: StreamKind::Blocking, priority: 0 }
    }
}

/// The size of which guarded blocks are multiples: the system's page.
const PAGE: u64 = 4096;
/// The size of which other blocks are multiples: CUDA's alignment.
pub(crate) const GRAIN: u64 = 512;

/// More than any address space holds, in bytes.
const BYTES_MAX: u64 = 1 << 56;

/// Checks that pools can be made of such a device's memory. The granularity must be at least `least`.
pub(crate) fn check_memory(least: u64, granularity: u64, total_bytes: u64) -> Result<()> {
    let refuse = |setting, reason: String| Err(Invalid::Setting { setting, reason }.into());
    if !granularity.is_power_of_two() || granularity < least {
        return refuse("granularity", format!("{granularity} B is not a power of two of {least} B at least"));
    }
    if granularity > BYTES_MAX {
        return refuse("granularity", format!("{granularity} B is larger than any memory"));
    }
    if total_bytes > BYTES_MAX {
        return refuse("total_bytes", format!("{total_bytes} B is larger than any memory"));
    }
    Ok(())
}

/// Checks that programs can use a host device with this schedule.
pub(crate) fn check_schedule(schedule: Schedule) -> Result<()> {
    let reason = "a kernel would run inside the call that launches it, which holds the stream's lock";
    match schedule {
        Schedule::AtOnce => Err(Invalid::Setting { setting: "schedule", reason: reason.into() }.into()),
        Schedule::Parallel | Schedule::Seeded(_) | Schedule::AtWait => Ok(()),
    }
}

impl PoolConfig {
    /// Returns the settings of an open pool.
    pub(crate) fn of_core(core: millpond_core::pool::PoolConfig, guard: bool, shareable: bool) -> Self {
        let millpond_core::pool::PoolConfig { release_threshold, max_bytes, reuse, slack, chunk_bytes_max, .. } = core;
        let max_bytes = Some(max_bytes).filter(|bytes| *bytes > 0);
        Self { release_threshold, max_bytes, reuse, slack, chunk_bytes_max, guard, shareable }
    }

    /// Returns the core's settings, for a device of this granularity. With `is_apart`, each allocation has chunks of
    /// its own.
    pub(crate) fn to_core(&self, granularity: u64, is_apart: bool) -> Result<millpond_core::pool::PoolConfig> {
        let refuse = |setting, reason: &str| Err(Invalid::Setting { setting, reason: reason.into() }.into());
        if let Slack::Fixed(part) = self.slack
            && !(part.is_finite() && part >= 0.0)
        {
            return refuse("slack", "it must be a part of the held bytes, 0 or more");
        }
        if self.chunk_bytes_max < granularity {
            return refuse("chunk_bytes_max", "it must be at least the device's granularity");
        }
        let max_bytes = match self.max_bytes.map(|bytes| round_up(bytes, granularity)) {
            None => 0,
            Some(Some(0)) => return refuse("max_bytes", "no memory could be had with 0; for no limit leave it out"),
            Some(Some(bytes)) => bytes,
            Some(None) => return refuse("max_bytes", "it is larger than any memory; for no limit leave it out"),
        };
        Ok(millpond_core::pool::PoolConfig {
            grain: match (is_apart, self.guard) {
                (true, _) => granularity,
                (false, true) => PAGE,
                (false, false) => GRAIN,
            },
            granularity,
            chunk_bytes_max: if is_apart { granularity } else { self.chunk_bytes_max },
            slack: self.slack,
            reuse: self.reuse,
            release_threshold: self.release_threshold,
            max_bytes,
        })
    }
}
