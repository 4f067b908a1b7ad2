//! What the tests share: the devices under test, streams that are kept busy, and random numbers.
//!
//! A body is written once and run on a fresh device of every kind. `MILLPOND_TEST_DEVICE` picks one kind (`host`, `sim`
//! or `cuda`); what a kind cannot do is skipped, and said.

// Each test program uses its own part of this file.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use millpond::driver::SimDriver;
use millpond::{
    Access, Buffer, Completion, Device, DeviceConfig, Error, HostConfig, Pool, PoolConfig, ReusePolicy, Schedule,
    Stream, Watch,
};

/// A device under test.
pub(crate) struct Subject {
    pub(crate) device: Device,
    /// Whether what is written can be read back.
    pub(crate) has_memory: bool,
    /// Whether work of different streams runs at once, so that a stream can be kept busy while others go on.
    pub(crate) is_parallel: bool,
    /// Whether work is over as soon as it was submitted.
    pub(crate) is_instant: bool,
    sim: Option<Arc<SimDriver>>,
}

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Make {
    Parallel,
    Seeded(u64),
    Sim(Completion),
}

const ALL: [Make; 6] = [
    Make::Parallel,
    Make::Seeded(1),
    Make::Seeded(2),
    Make::Seeded(3),
    Make::Sim(Completion::AtOnce),
    Make::Sim(Completion::AtBlock),
];

impl Subject {
    pub(crate) fn new(make: Make) -> Subject {
        Self::with(make, DeviceConfig::default())
    }

    pub(crate) fn with(make: Make, config: DeviceConfig) -> Subject {
        let (mut is_parallel, mut is_instant) = (false, false);
        let host_threads = config.host_threads;
        let (device, sim) = match make {
            Make::Sim(completion) => {
                is_instant = completion == Completion::AtOnce;
                let sim = millpond::driver::SimConfig { completion, watch: Watch::Contract, ..Default::default() };
                let sim = Arc::new(SimDriver::new(sim));
                (Device::with_driver(sim.clone(), config), Some(sim))
            }
            Make::Parallel => {
                is_parallel = true;
                (Device::host(HostConfig { host_threads, ..Default::default() }), None)
            }
            Make::Seeded(seed) => {
                let schedule = Schedule::Seeded(seed);
                (Device::host(HostConfig { schedule, host_threads, ..Default::default() }), None)
            }
        };
        let device = device.expect("a device");
        Subject { device, has_memory: sim.is_none(), is_parallel, is_instant, sim }
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

    /// Whether a stream can be kept busy while the program goes on.
    pub(crate) fn can_hold(&self) -> bool {
        self.is_parallel || (!self.has_memory && !self.is_instant)
    }

    /// Keeps a stream busy, using `accesses`, until the answer is dropped; where time is simulated, until somebody
    /// waits.
    #[track_caller]
    pub(crate) fn hold(&self, stream: &Stream, accesses: impl Access) -> Hold {
        assert!(self.can_hold());
        let (go, gate) = channel::<()>();
        let waits = self.is_parallel;
        let kernel = move |_: &mut ()| {
            if waits {
                let _ = gate.recv();
            }
        };
        launch_any(stream, accesses, kernel);
        Hold { _go: go }
    }

    /// Asserts that the driver's contract was kept, where somebody watched.
    #[track_caller]
    pub(crate) fn assert_contract(&self) {
        let violations = self.sim.as_ref().map_or_else(Vec::new, |sim| sim.violations());
        assert!(violations.is_empty(), "breaches of the driver's contract: {violations:#?}");
    }
}

/// Launches a closure that does not look at its slices.
#[track_caller]
fn launch_any<A: Access>(stream: &Stream, accesses: A, mut kernel: impl FnMut(&mut ()) + Send + 'static) {
    stream.launch(accesses, move |_| kernel(&mut ())).expect("a launch in order");
}

/// A stream is busy as long as this lives.
#[must_use = "the stream is busy only as long as this lives"]
pub(crate) struct Hold {
    _go: Sender<()>,
}

/// Runs a body on a fresh device of every kind; all of them must keep the driver's contract.
pub(crate) fn on_every_device(body: impl Fn(&Subject)) {
    on(|_| true, "", body);
}

/// ... of every kind whose memory can be looked at.
pub(crate) fn on_devices_with_memory(body: impl Fn(&Subject)) {
    on(|subject| subject.has_memory, "its memory cannot be looked at", body);
}

/// ... of every kind where a stream can be kept busy.
pub(crate) fn on_devices_that_hold(body: impl Fn(&Subject)) {
    on(Subject::can_hold, "no stream of it can be kept busy", body);
}

fn on(fits: impl Fn(&Subject) -> bool, why_not: &str, body: impl Fn(&Subject)) {
    for make in makes() {
        let subject = Subject::new(make);
        if fits(&subject) {
            // Shown where the body fails.
            eprintln!("on {make:?}:");
            body(&subject);
            subject.assert_contract();
        } else {
            eprintln!("skipped on {make:?}: {why_not}");
        }
    }
}

/// The kinds of devices that the environment asks for: all without a wish.
pub(crate) fn makes() -> Vec<Make> {
    let wish = std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default();
    let is_host = |make: &Make| !matches!(make, Make::Sim(_));
    match wish.as_str() {
        "" => ALL.to_vec(),
        "host" => ALL.into_iter().filter(is_host).collect(),
        "sim" => ALL.into_iter().filter(|make| !is_host(make)).collect(),
        "cuda" => {
            eprintln!("skipped: this build has no CUDA device");
            Vec::new()
        }
        other => panic!("MILLPOND_TEST_DEVICE={other}: not one of host, sim, cuda"),
    }
}

/// A reuse policy by its three settings, in the order of CUDA's attributes.
pub(crate) fn reuse(follow_event_dependencies: bool, allow_opportunistic: bool, allow_internal: bool) -> ReusePolicy {
    ReusePolicy { follow_event_dependencies, allow_opportunistic, allow_internal_dependencies: allow_internal }
}

/// A pool that keeps all that it has, with this reuse policy.
pub(crate) fn keeping(reuse: ReusePolicy) -> PoolConfig {
    PoolConfig { release_threshold: u64::MAX, reuse, ..Default::default() }
}

/// `stream` uses a buffer, without looking at it.
#[track_caller]
pub(crate) fn touch(stream: &Stream, buffer: &Buffer<u8>) {
    stream.launch(buffer.write(), |_| ()).expect("a use in order");
}

/// Makes `later` come after all that is in `earlier`.
#[track_caller]
pub(crate) fn order(earlier: &Stream, later: &Stream) {
    later.wait(&earlier.record().expect("an event")).expect("a wait");
}

/// The kind of violation that an error is.
#[track_caller]
pub(crate) fn kind_of(error: &Error) -> millpond::Kind {
    error.violation().unwrap_or_else(|| panic!("not a violation: {error}")).kind
}

/// Random numbers from a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
