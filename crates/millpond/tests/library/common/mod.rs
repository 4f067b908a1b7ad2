//! The common parts of the tests: the devices under test, streams that are kept busy, and random numbers.
//!
//! A body is written once and run on a new device of every kind. `MILLPOND_TEST_DEVICE` selects one kind: `host`, `sim`
//! (the host device without memory), `fake` (CUDA over `fakecuda`) or `cuda` (a real GPU, which must exist then). If it
//! is not set, all kinds but `cuda` run. A test prints that it skips a kind if that lacks a feature.

pub(crate) mod again;
pub(crate) mod each_call;
pub(crate) mod gpus;
pub(crate) mod process;
pub(crate) mod traced;
pub(crate) mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use millpond::check::Kind;
use millpond::config::{ReusePolicy, Schedule};
use millpond::cuda::CudaConfig;
use millpond::error::Invalid;
use millpond::{Access, Buffer, Device, DeviceConfig, Error, GIB, Pool, PoolConfig, Stream};
use millpond_driver::{Checked, HostConfig, HostDriver};

/// A device under test.
pub(crate) struct Subject {
    pub(crate) make: Make,
    pub(crate) device: Device,
    /// `true` if written memory can be read back.
    pub(crate) has_memory: bool,
    /// `true` if work of different streams runs at once, so that a stream can be kept busy while others continue.
    pub(crate) is_parallel: bool,
    /// `true` if closures run as kernels.
    pub(crate) runs_closures: bool,
    /// `true` if work has completed as soon as it is submitted.
    pub(crate) is_instant: bool,
    checked: Option<Arc<Checked<HostDriver>>>,
}

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Make {
    Parallel,
    Seeded(u64),
    /// The host device without memory.
    Sim(Schedule),
    /// CUDA over `fakecuda`.
    Fake,
    /// CUDA on a GPU.
    Cuda,
}

const ALL: [Make; 8] = [
    Make::Parallel,
    Make::Seeded(1),
    Make::Seeded(2),
    Make::Seeded(3),
    Make::Sim(Schedule::AtOnce),
    Make::Sim(Schedule::AtWait),
    Make::Fake,
    Make::Cuda,
];

impl Make {
    /// Returns the schedule of a host device, and `true` if it has memory.
    fn host(self) -> Option<(Schedule, bool)> {
        match self {
            Make::Parallel => Some((Schedule::Parallel, true)),
            Make::Seeded(seed) => Some((Schedule::Seeded(seed), true)),
            Make::Sim(schedule) => Some((schedule, false)),
            Make::Fake | Make::Cuda => None,
        }
    }
}

/// Makes a host device that checks that its caller keeps the contract.
fn checked(schedule: Schedule, memory: bool, total_bytes: u64) -> Arc<Checked<HostDriver>> {
    let config = HostConfig { schedule, total_bytes, memory, ..Default::default() };
    Arc::new(Checked::new(HostDriver::new(config).expect("a host device")))
}

/// Makes one without memory.
pub(crate) fn sim(schedule: Schedule, total_bytes: u64) -> Arc<Checked<HostDriver>> {
    checked(schedule, false, total_bytes)
}

impl Subject {
    pub(crate) fn new(make: Make) -> Subject {
        Self::with(make, DeviceConfig::default())
    }

    pub(crate) fn with(make: Make, config: DeviceConfig) -> Subject {
        Self::sized(make, config, 64 * GIB)
    }

    /// Makes a device with so many bytes.
    pub(crate) fn sized(make: Make, config: DeviceConfig, total_bytes: u64) -> Subject {
        let (device, checked) = match make.host() {
            Some((schedule, memory)) => {
                let checked = checked(schedule, memory, total_bytes);
                (Device::with_driver(checked.clone(), config), Some(checked))
            }
            None => (Device::cuda_with(cuda(make, total_bytes), config), None),
        };
        let is_parallel = matches!(make, Make::Parallel | Make::Fake | Make::Cuda);
        let is_instant = make == Make::Sim(Schedule::AtOnce);
        let device = device.expect("a device");
        let (runs_closures, has_memory) = (device.properties().runs_closures, device.properties().has_memory);
        Subject { make, device, has_memory, is_parallel, runs_closures, is_instant, checked }
    }

    /// Makes a second device of the same kind.
    pub(crate) fn another(&self) -> Subject {
        Self::new(self.make)
    }

    pub(crate) fn stream(&self) -> Stream {
        self.device.stream().expect("a stream")
    }

    pub(crate) fn streams<const N: usize>(&self) -> [Stream; N] {
        std::array::from_fn(|_| self.stream())
    }

    pub(crate) fn pool(&self, config: PoolConfig) -> Pool {
        self.device.pool(config).expect("a pool")
    }

    /// Returns `true` if a stream can be kept busy while the program continues.
    pub(crate) fn can_hold(&self) -> bool {
        self.is_parallel || (!self.has_memory && !self.is_instant)
    }

    /// Keeps a stream busy, using `accesses`, until the returned value is dropped, or if time is simulated, until a
    /// thread waits.
    #[track_caller]
    pub(crate) fn hold(&self, stream: &Stream, accesses: impl Access) -> Hold {
        assert!(self.can_hold());
        let (go, gate) = channel::<()>();
        let waits = self.is_parallel;
        self.run(stream, accesses, move || {
            if waits {
                let _ = gate.recv();
            }
        });
        Hold { _go: go }
    }

    /// Runs a closure that uses no slices, in stream order.
    #[track_caller]
    pub(crate) fn run(&self, stream: &Stream, accesses: impl Access, mut task: impl FnMut() + Send + 'static) {
        let ran = match self.runs_closures {
            true => stream.launch(accesses, move |_| task()),
            // SAFETY: a host function uses no memory of the device.
            false => unsafe { stream.enqueue(accesses, |queue, _| queue.host_function(task)) },
        };
        ran.expect("a launch in order");
    }

    /// Asserts that the driver's contract was kept, if it was checked.
    #[track_caller]
    pub(crate) fn assert_contract(&self) {
        let violations = self.checked.as_ref().map_or_else(Vec::new, |checked| checked.violations());
        assert!(violations.is_empty(), "breaches of the driver's contract: {violations:#?}");
    }
}

/// Uses memory without reading it.
#[track_caller]
pub(crate) fn visit<A: Access + Clone>(stream: &Stream, accesses: A) -> Result<(), Error> {
    visit_for(stream, accesses, || ())
}

/// As [`visit`], for as long as `work` takes. If kernels are not closures the use is declared, and nothing runs.
#[track_caller]
pub(crate) fn visit_for<A: Access + Clone>(
    stream: &Stream,
    accesses: A,
    mut work: impl FnMut() + Send + 'static,
) -> Result<(), Error> {
    match stream.launch(accesses.clone(), move |_| work()) {
        Err(error) if matches!(error.invalid(), Some(Invalid::NoClosures { .. })) => stream.declare(accesses),
        outcome => outcome,
    }
}

/// Returns the settings of a CUDA device with at most so many bytes. Over `fakecuda` tests run in parallel, each on a
/// device of its own. On a GPU they share one, so tests that use its legacy stream have to run one after the other.
pub(crate) fn cuda(make: Make, total_bytes: u64) -> CudaConfig {
    let config = match make {
        Make::Fake => fake(),
        _ => {
            gpus::keep();
            CudaConfig::default()
        }
    };
    config.limit_bytes(Some(total_bytes))
}

/// Returns a device of `fakecuda` that no other test uses. Ordinal 0 is for `share`, whose processes have it in common.
pub(crate) fn fake() -> CudaConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ordinal = 1 + NEXT.fetch_add(1, Ordering::Relaxed) % 63;
    CudaConfig::default().ordinal(ordinal).library(fakecuda::library())
}

/// Makes a buffer that only operations after `stream`'s present end may use.
pub(crate) fn witness(pool: &Pool, stream: &Stream) -> Buffer<u8> {
    let x = stream.alloc::<u8>(pool, 64).expect("memory");
    touch(stream, &x);
    x
}

/// Returns `true` if the next operation of `stream` comes after the witness. This adds no order.
pub(crate) fn comes_after(stream: &Stream, witness: &Buffer<u8>) -> bool {
    match visit(stream, witness.read()) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(kind_of(&error), Kind::UseBeforeAlloc);
            false
        }
    }
}

/// Keeps a stream busy until it is dropped.
#[must_use = "the stream is busy only as long as this lives"]
pub(crate) struct Hold {
    _go: Sender<()>,
}

/// Runs a body on a new device of every kind. All of them must keep the driver's contract.
pub(crate) fn on_every_device(body: impl Fn(&Subject)) {
    on(|_| true, "", body);
}

/// As [`on_every_device`], on every kind whose memory can be read.
pub(crate) fn on_devices_with_memory(body: impl Fn(&Subject)) {
    on(|subject| subject.has_memory, "its memory cannot be looked at", body);
}

/// As [`on_every_device`], on every kind that runs closures as kernels.
pub(crate) fn on_devices_that_run_closures(body: impl Fn(&Subject)) {
    on(|subject| subject.runs_closures && subject.has_memory, "its kernels are no closures", body);
}

/// As [`on_every_device`], on every kind where work of several streams runs at once: the host with threads, and CUDA.
pub(crate) fn on_parallel_devices(body: impl Fn(&Subject) -> Result<(), Error>) {
    on(|subject| subject.is_parallel, "its work does not run at once", in_order(body));
}

/// As [`on_parallel_devices`], on those that run closures as kernels.
pub(crate) fn on_parallel_devices_that_run_closures(body: impl Fn(&Subject) -> Result<(), Error>) {
    on(|subject| subject.is_parallel && subject.runs_closures, "its kernels are no closures", in_order(body));
}

/// Makes a body of a test that expects no refusal.
fn in_order(body: impl Fn(&Subject) -> Result<(), Error>) -> impl Fn(&Subject) {
    move |subject| body(subject).unwrap_or_else(|error| panic!("{error}"))
}

/// As [`on_every_device`], on every kind where a stream can be kept busy.
pub(crate) fn on_devices_that_hold(body: impl Fn(&Subject)) {
    on(Subject::can_hold, "no stream of it can be kept busy", body);
}

/// As [`on_every_device`], with so many bytes of memory.
pub(crate) fn on_every_device_of(total_bytes: u64, body: impl Fn(&Subject)) {
    for make in makes() {
        eprintln!("on {make:?}:");
        let subject = Subject::sized(make, DeviceConfig::default(), total_bytes);
        body(&subject);
        subject.assert_contract();
    }
}

fn on(fits: impl Fn(&Subject) -> bool, why_not: &str, body: impl Fn(&Subject)) {
    for make in makes() {
        let subject = Subject::new(make);
        if fits(&subject) {
            // Printed in case the body fails.
            eprintln!("on {make:?}:");
            body(&subject);
            subject.assert_contract();
        } else {
            eprintln!("skipped on {make:?}: {why_not}");
        }
    }
}

/// Returns the kinds of devices that the environment selects. If it selects none: all but a GPU.
pub(crate) fn makes() -> Vec<Make> {
    let wish = std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default();
    let kind = |make: &Make| match make {
        Make::Parallel | Make::Seeded(_) => "host",
        Make::Sim(_) => "sim",
        Make::Fake => "fake",
        Make::Cuda => "cuda",
    };
    match wish.as_str() {
        "" => {
            eprintln!("skipped on Cuda: MILLPOND_TEST_DEVICE is not `cuda`");
            ALL.into_iter().filter(|make| kind(make) != "cuda").collect()
        }
        "host" | "sim" | "fake" | "cuda" => ALL.into_iter().filter(|make| kind(make) == wish).collect(),
        other => panic!("MILLPOND_TEST_DEVICE={other}: not one of host, sim, fake, cuda"),
    }
}

/// Returns a reuse policy by its three settings, in the order of CUDA's attributes.
pub(crate) fn reuse(follow_event_dependencies: bool, allow_opportunistic: bool, allow_internal: bool) -> ReusePolicy {
    ReusePolicy { follow_event_dependencies, allow_opportunistic, allow_internal_dependencies: allow_internal }
}

/// Makes `stream` use a buffer, without reading it.
#[track_caller]
pub(crate) fn touch(stream: &Stream, buffer: &Buffer<u8>) {
    visit(stream, buffer.write()).expect("a use in order");
}

/// Makes `later` come after all that is in `earlier`.
#[track_caller]
pub(crate) fn order(earlier: &Stream, later: &Stream) {
    later.wait(&earlier.record().expect("an event")).expect("a wait");
}

/// Returns the kind of violation of an error.
#[track_caller]
pub(crate) fn kind_of(error: &Error) -> millpond::check::Kind {
    error.violation().unwrap_or_else(|| panic!("not a violation: {error}")).kind
}
