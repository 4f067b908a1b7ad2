//! What the threads of a program share: devices, mailboxes, streams that all use; and how it all ends.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use millpond::config::{ReusePolicy, Slack};
use millpond::cuda::CudaConfig;
use millpond::ids::StreamId;
use millpond::{Buffer, Device, DeviceConfig, Event, GIB, Pool, PoolConfig, Stream};
use millpond_driver::{CallKind, Checked, Counting, CudaDriver, Driver, Failing, HostDriver, Schedule, Tapped};

use crate::dawdle::Dawdle;
use crate::finding::{finding, lock};
use crate::kind::Kind;
use crate::life::Life;
use crate::oracle::{Line, Oracle, Tie};
use crate::random::Random;
use crate::replay::Replay;
use crate::settings::{DeviceKind, Pools, Setting};
use millpond_reach::Past;

/// A driver that is late now and then, counts what reaches the device, and fails on demand before.
pub(crate) type StressDriver = Failing<Counting<Tapped<Arc<dyn Driver>, Dawdle>>>;

/// A device of the program.
#[derive(Debug)]
pub(crate) struct Dev {
    /// Goes when the program drops it.
    pub(crate) device: RwLock<Option<Device>>,
    /// Stays to the end.
    pub(crate) driver: Arc<StressDriver>,
    /// What it is, where that can be asked what it still has.
    inner: Inner,
}

/// The driver behind the taps.
#[derive(Debug)]
enum Inner {
    Host(Arc<HostDriver>),
    Checked(Arc<Checked<HostDriver>>),
    Other,
}

/// A stream at hand.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The library's.
    pub(crate) stream: Stream,
    /// What is known of it.
    pub(crate) line: Arc<Line>,
}

/// A pool at hand.
#[derive(Clone, Debug)]
pub(crate) struct HeldPool {
    /// The library's.
    pub(crate) pool: Pool,
    /// Its number in the program.
    pub(crate) number: u64,
    /// Its device.
    pub(crate) device: usize,
    /// Bytes that the program has of it.
    pub(crate) used: Arc<AtomicU64>,
    /// Whether it adds no waits of its own, so that every reuse must be in order or after the work.
    pub(crate) is_strict: bool,
    /// Whether it is for other processes.
    pub(crate) is_shareable: bool,
}

/// A buffer at hand.
#[derive(Debug)]
pub(crate) struct Buf {
    /// The library's.
    pub(crate) buffer: Buffer<u64>,
    /// What is known of it.
    pub(crate) life: Life,
    /// An event after its uses, from the thread that gave it.
    pub(crate) after: Option<(Event, Past)>,
}

/// What all threads of a program share.
#[derive(Debug)]
pub(crate) struct World {
    /// Its surroundings.
    pub(crate) setting: &'static Setting,
    /// Which kind the devices are.
    pub(crate) kind: DeviceKind,
    /// The devices.
    pub(crate) devices: Vec<Dev>,
    /// What is known beside the library.
    pub(crate) oracle: Arc<Oracle>,
    /// What the host knows of each device.
    pub(crate) hosts: Vec<Mutex<Past>>,
    /// Buffers on their way to another thread.
    pub(crate) mail: Vec<Mutex<Option<Buf>>>,
    /// Streams that all use.
    pub(crate) shared: Vec<Mutex<Option<Held>>>,
    /// Default streams that are known.
    defaults: Mutex<Vec<(usize, StreamId, Arc<Line>)>>,
    /// Whether something was ordered that the program did not follow.
    has_lost_track: AtomicBool,
    next: AtomicU64,
    log: Option<Mutex<File>>,
}

impl World {
    /// Fresh devices.
    pub(crate) fn new(setting: &'static Setting, kind: DeviceKind, seed: u64, log: Option<File>) -> Self {
        let devices = (0..setting.devices).map(|at| open(setting, kind, seed + at as u64)).collect();
        Self {
            setting,
            kind,
            devices,
            oracle: Arc::default(),
            hosts: (0..setting.devices).map(|_| Mutex::default()).collect(),
            mail: (0..4).map(|_| Mutex::default()).collect(),
            shared: (0..3).map(|_| Mutex::default()).collect(),
            defaults: Mutex::default(),
            has_lost_track: AtomicBool::new(false),
            next: AtomicU64::new(1),
            log: log.map(Mutex::new),
        }
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a default stream, which may have been met before.
    pub(crate) fn default_line(&self, device: usize, stream: &Stream, tie: Tie, knows: Past) -> Arc<Line> {
        let mut defaults = lock(&self.defaults);
        if let Some((.., line)) = defaults.iter().find(|(at, id, _)| (*at, *id) == (device, stream.id())) {
            return Arc::clone(line);
        }
        let line = self.oracle.open(device, tie, knows);
        defaults.push((device, stream.id(), Arc::clone(&line)));
        line
    }

    /// Something is ordered that the program does not follow: what is wrong is not known from now on.
    pub(crate) fn lose_track(&self) {
        self.has_lost_track.store(true, Ordering::Relaxed);
    }

    /// Whether every verdict is known before.
    pub(crate) fn is_exact(&self) -> bool {
        self.setting.is_exact() && !self.has_lost_track.load(Ordering::Relaxed)
    }

    /// Whether kernels are closures that really run.
    pub(crate) fn runs_kernels(&self) -> bool {
        matches!(self.kind, DeviceKind::Host | DeviceKind::Seeded)
    }

    /// Whether memory is real.
    pub(crate) fn has_memory(&self) -> bool {
        !matches!(self.kind, DeviceKind::Sim | DeviceKind::SimLate)
    }

    /// Whether memory is lent to other processes.
    pub(crate) fn shares(&self) -> bool {
        self.setting.has(Kind::Lend)
    }

    /// Writes a call down, where calls are written down.
    pub(crate) fn say(&self, thread: usize, call: std::fmt::Arguments<'_>) {
        if let Some(log) = &self.log {
            // Unbuffered: the next call may end the process.
            let _ = writeln!(lock(log), "/* thread {thread} */ {call}");
        }
    }

    /// Settings of a pool.
    pub(crate) fn pool_config(&self, number: u32) -> (PoolConfig, bool) {
        pool_config(self.setting, self.kind, number)
    }

    /// Everything is dropped: nothing may be left. Where the devices are waited for first, they have given everything
    /// back by their own calls; else what is in use goes with the driver.
    pub(crate) fn end(self, waits: bool) {
        for slot in &self.mail {
            if let Some(buf) = lock(slot).take() {
                self.oracle.release(buf.life.id, buf.buffer.address(), &buf.life.uses);
                drop(buf);
            }
        }
        self.shared.iter().for_each(|slot| drop(lock(slot).take()));
        self.devices.iter().for_each(|dev| dev.driver.disarm());
        let device = |dev: &Dev| dev.device.write().unwrap_or_else(|it| it.into_inner()).take();
        let devices: Vec<Option<Device>> = self.devices.iter().map(device).collect();
        let is_over = |device: &Option<Device>| device.as_ref().is_some_and(|device| device.synchronize().is_ok());
        // Once more for what kernels that own things launch when they are dropped, which may be after they had
        // completed.
        let is_over = waits && devices.iter().all(is_over) && self.await_owners() && devices.iter().all(is_over);
        drop(devices);
        for (at, dev) in self.devices.iter().enumerate() {
            check_gone(&format!("device {at}"), dev, is_over, self.shares());
        }
    }
}

impl World {
    /// Kernels that had completed, or were dropped with their graphs, drop what they own.
    fn await_owners(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.oracle.owners.load(Ordering::Acquire) {
                0 => return true,
                left if Instant::now() > until => {
                    finding(&format!("all work has completed, and {left} kernels are not dropped with what they own"))
                }
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

impl Dev {
    /// What reached a device without memory is in order there: by the calls of the driver alone.
    pub(crate) fn check_calls(&self, is_instant: bool) {
        if let Inner::Checked(checked) = &self.inner
            && let Err(wrong) = Replay::read(&checked.take_calls(), is_instant)
        {
            finding(&wrong);
        }
    }
}

/// Nothing of the library holds the driver, and the driver holds nothing: `waits` where other processes may have to let
/// go first.
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
            // A lane of a graph that the driver refuses to close stays.
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

/// What was made was ended, call by call.
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

/// Settings of a pool, and whether it adds no waits of its own.
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

/// Calls that are made to fail.
pub(crate) const FAILING: [CallKind; 14] = [
    CallKind::Create,
    CallKind::Map,
    CallKind::Unmap,
    CallKind::Destroy,
    CallKind::Mark,
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
