//! The devices that programs run on, the checks at their end, and the pools that are made of them.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use millpond::config::{ReusePolicy, Slack};
use millpond::cuda::CudaConfig;
use millpond::{Device, DeviceConfig, Error, GIB, Pool, PoolConfig};
use millpond_driver::{CallKind, Checked, Counting, CudaDriver, Driver, Failing, HostDriver, Schedule, Tapped};

use crate::dawdle::Dawdle;
use crate::finding::finding;
use crate::kind::Kind;
use crate::random::Random;
use crate::replay::Replay;
use crate::settings::{DeviceKind, Pools, Setting};

/// A driver that delays some calls, counts the calls that reach the device, and fails on demand before that.
pub(crate) type StressDriver = Failing<Counting<Tapped<Arc<dyn Driver>, Dawdle>>>;

/// A device of a program.
#[derive(Debug)]
pub(crate) struct Dev {
    /// The library's device. `None` once the program has dropped it.
    pub(crate) device: RwLock<Option<Device>>,
    /// The driver, which stays until the end.
    pub(crate) driver: Arc<StressDriver>,
    /// The inner driver, which can list what it still has, if it is of such a kind.
    inner: Inner,
}

/// The driver behind the wrappers.
#[derive(Debug)]
enum Inner {
    Host(Arc<HostDriver>),
    Checked(Arc<Checked<HostDriver>>),
    Other,
}

impl Dev {
    /// Checks the order of the calls that reached a device without memory, from the driver's calls alone.
    pub(crate) fn check_calls(&self, is_instant: bool) {
        if let Inner::Checked(checked) = &self.inner
            && let Err(wrong) = Replay::read(&checked.take_calls(), is_instant)
        {
            finding(&wrong);
        }
    }
}

/// Checks that the library no longer holds the driver, and that the driver holds nothing. `waits` is `true` if other
/// processes may have to release something first.
pub(crate) fn check_gone(name: &str, dev: &Dev, is_over: bool, waits: bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while Arc::strong_count(&dev.driver) > 1 {
        if Instant::now() > until {
            let count = Arc::strong_count(&dev.driver) - 1;
            finding(&format!("{name} is not gone: {count} references are left after everything was dropped"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    if let Inner::Checked(checked) = &dev.inner {
        let violations = checked.violations();
        if !violations.is_empty() {
            finding(&format!("{name}: the driver's contract was broken: {violations:?}"));
        }
    }
    if !is_over {
        return;
    }
    match &dev.inner {
        Inner::Checked(checked) => {
            // If the driver refuses to close a lane of a graph, the lane stays open.
            let may_stay =
                |it: &String| it.ends_with("is open") && dev.driver.struck().contains(&CallKind::CloseStream);
            let leaks = checked.leaks().into_iter().filter(|it| !may_stay(it));
            let leaks: Vec<String> = leaks.collect();
            if !leaks.is_empty() {
                finding(&format!("{name} leaks: {leaks:?}"));
            }
        }
        Inner::Host(host) => {
            while waits && host.used_bytes() > 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(200));
            }
            if host.used_bytes() > 0 {
                let counts = dev.driver.device().counts();
                let calls = [CallKind::Create, CallKind::Destroy, CallKind::Map, CallKind::Unmap];
                let calls = calls.map(|kind| format!("{} {}", counts[kind], kind.name())).join(", ");
                finding(&format!("{name} leaks {} B of memory: {calls}", host.used_bytes()))
            }
        }
        Inner::Other => {}
    }
    check_pairs(name, dev);
}

/// Checks by calls that everything that was made was also ended.
fn check_pairs(name: &str, dev: &Dev) {
    let counts = dev.driver.device().counts();
    let pairs = [
        (CallKind::Reserve, CallKind::Unreserve),
        (CallKind::OpenStream, CallKind::CloseStream),
        (CallKind::Instantiate, CallKind::DestroyExec),
    ];
    let struck = dev.driver.struck();
    for (made, ended) in pairs {
        if counts[made] != counts[ended] && !struck.contains(&ended) {
            finding(&format!(
                "{name} leaks: {} calls of {}, {} of {}",
                counts[made],
                made.name(),
                counts[ended],
                ended.name()
            ));
        }
    }
}

pub(crate) fn open(setting: &Setting, kind: DeviceKind, seed: u64) -> Dev {
    let total_bytes = setting.total_bytes.min(64 * GIB);
    let host = |schedule, memory| {
        let config = millpond_driver::HostConfig { total_bytes, schedule, memory, ..Default::default() };
        HostDriver::new(config).unwrap_or_else(|error| finding(&format!("no host device: {error}")))
    };
    let (driver, inner): (Arc<dyn Driver>, _) = match kind {
        DeviceKind::Host | DeviceKind::Seeded => {
            let schedule = if kind == DeviceKind::Host { Schedule::Parallel } else { Schedule::Seeded(seed) };
            let host = Arc::new(host(schedule, true));
            (host.clone(), Inner::Host(host))
        }
        DeviceKind::Sim | DeviceKind::SimLate => {
            let schedule = if kind == DeviceKind::Sim { Schedule::AtOnce } else { Schedule::AtWait };
            let checked = Arc::new(Checked::recording(host(schedule, false)));
            (checked.clone(), Inner::Checked(checked))
        }
        DeviceKind::Cuda => {
            let library = std::env::var_os("MILLPOND_STRESS_CUDA_LIBRARY").map(PathBuf::from);
            let config = CudaConfig::default().library(library).limit_bytes(total_bytes);
            let cuda = CudaDriver::new(config).unwrap_or_else(|error| {
                eprintln!("no CUDA device: {error}");
                std::process::exit(2)
            });
            (Arc::new(cuda), Inner::Other)
        }
    };
    let driver = Arc::new(StressDriver::new(Counting::new(Tapped::new(driver))));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default());
    let device = device.unwrap_or_else(|error| finding(&format!("no device: {error}")));
    Dev { device: RwLock::new(Some(device)), driver, inner }
}

/// Returns the settings of a pool, and `true` if it adds no waits of its own.
pub(crate) fn pool_config(setting: &Setting, kind: DeviceKind, number: u32) -> (PoolConfig, bool) {
    let mut random = Random::new(u64::from(number));
    let strict = match setting.pools {
        Pools::Any => random.chance(40),
        Pools::Strict | Pools::Tight => true,
    };
    let reuse = ReusePolicy {
        follow_event_dependencies: random.chance(75),
        allow_opportunistic: random.chance(60),
        allow_internal_dependencies: !strict && random.chance(70),
    };
    let is_strict = !reuse.allow_internal_dependencies;
    let max_bytes = match setting.pools {
        Pools::Tight => Some((1 + random.below(3)) << 21),
        _ if random.chance(20) => Some((1 + random.below(8)) << 21),
        _ => None,
    };
    let config = PoolConfig::default()
        .release_threshold([0, 4 << 20, u64::MAX][random.below(3) as usize])
        .max_bytes(max_bytes)
        .reuse(reuse)
        .slack(if random.chance(50) { Slack::Adaptive } else { Slack::Fixed(0.5 * random.below(3) as f64) })
        .chunk_bytes_max(if random.chance(30) { 2 << 20 } else { 512 << 20 })
        .guard(setting.guards && matches!(kind, DeviceKind::Host | DeviceKind::Seeded) && random.chance(60))
        .shareable(matches!(kind, DeviceKind::Host) && random.chance(if setting.has(Kind::Lend) { 85 } else { 8 }));
    (config, is_strict)
}

/// Makes a pool. Some pools share more memory than was exported.
pub(crate) fn make_pool(device: &Device, config: PoolConfig, chance: u32) -> Result<Pool, Error> {
    match config.shareable && chance >> 20 & 3 == 0 {
        true => device.pool_sharing_chunks(config),
        false => device.pool(config),
    }
}

/// Changes a pool's settings.
pub(crate) fn set_pool(pool: &Pool, config: &PoolConfig, was_strict: bool, is_strict: bool) {
    pool.set_release_threshold(config.release_threshold);
    // A pool that added waits earlier may have done so for blocks that are still free.
    if is_strict || !was_strict {
        pool.set_reuse(config.reuse);
    }
}

/// The calls that are made to fail.
pub(crate) const FAILING: [CallKind; 14] = [
    CallKind::Create,
    CallKind::Map,
    CallKind::Unmap,
    CallKind::Destroy,
    CallKind::Record,
    CallKind::Wait,
    CallKind::Submit,
    CallKind::OpenStream,
    CallKind::CloseStream,
    CallKind::IsOver,
    CallKind::BlockOn,
    CallKind::Reserve,
    CallKind::Unreserve,
    CallKind::LaunchGraph,
];
