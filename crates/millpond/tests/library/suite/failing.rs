//! Every driver call fails once, in a program that uses everything: a failed call has no effect and can be repeated, no
//! data is lost, and in the end all memory is given back.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use millpond::config::{ReusePolicy, Schedule};
use millpond::{Buffer, Device, DeviceConfig, Error, GIB, MIB, Pool, PoolConfig, Read, Stream, Write};
use millpond_driver::{CallKind, Checked, Driver, DriverError, Failing, HostConfig, HostDriver, Tap, Tapped};

use crate::common::again::again;
use crate::common::each_call::{fail_each_call, free_again};
use crate::common::{Make, makes, sim};

fn pattern(seed: u32, index: usize) -> u32 {
    (index as u32).wrapping_mul(2_654_435_761) ^ seed
}

/// Everything that a program can do. Each call is repeated if the driver refuses it.
struct Program {
    device: Device,
    has_memory: bool,
    pool: Pool,
    tight: Pool,
    guarded: Pool,
    a: Stream,
    b: Stream,
}

const LEN: usize = 300_000;

impl Program {
    fn new(device: Device) -> Program {
        let pool = |config: PoolConfig| again(|| device.pool(config.clone()));
        let reuse = ReusePolicy { allow_opportunistic: false, ..Default::default() };
        Program {
            has_memory: device.properties().has_memory,
            pool: pool(PoolConfig::default().chunk_bytes_max(2 * MIB).release_threshold(4 * MIB)),
            tight: pool(PoolConfig::default().max_bytes(2 * MIB).reuse(reuse)),
            guarded: pool(PoolConfig::default().guard(true)),
            a: again(|| device.stream()),
            b: again(|| device.stream()),
            device,
        }
    }

    fn fill(&self, stream: &Stream, x: &Buffer<u32>, seed: u32) {
        let kernel = move |x: &mut [u32]| x.iter_mut().enumerate().for_each(|(i, x)| *x = pattern(seed, i));
        again(|| stream.launch(x.write(), kernel));
    }

    #[track_caller]
    fn check(&self, stream: &Stream, x: Read<'_, u32>, seed: u32) {
        let found = again(|| stream.copy_to_host(x));
        let right = |(i, x): (usize, &u32)| *x == pattern(seed, i);
        assert!(!self.has_memory || found.iter().enumerate().all(right), "pattern {seed}");
    }

    fn run(&self) {
        let Program { device, pool, a, b, .. } = self;
        let x: Buffer<u32> = again(|| a.alloc(pool, LEN));
        let y: Buffer<u32> = again(|| a.alloc(pool, LEN));
        self.fill(a, &x, 1);
        let event = again(|| a.record());
        again(|| b.wait(&event));
        again(|| b.copy(x.read(), y.write()));
        self.check(b, y.read(), 1);
        self.fill(b, &y, 2);

        self.pass_through_the_host(&x);
        self.copy_beside(&x);
        self.make_wait();
        self.guard();
        self.pass_by_the_legacy_stream(&y);
        self.close_streams(&x);

        let timed = again(|| a.record_timed());
        again(|| a.is_idle());
        again(|| event.is_over());
        again(|| event.synchronize());
        again(|| timed.synchronize());
        again(|| timed.elapsed_since(&timed));
        again(|| pool.trim_to(MIB));
        // Freed on another stream, then at once, then dropped.
        let z: Buffer<u32> = again(|| b.alloc(pool, LEN / 2));
        self.fill(b, &z, 3);
        self.check(b, z.view().read(), 3);
        free_again(b, z);
        let z: Buffer<u32> = again(|| a.alloc(pool, LEN / 2));
        drop(z);
        again(|| device.synchronize());
        self.check(a, x.read(), 1);
        self.check(b, y.read(), 2);
        let address = x.into_address();
        again(|| device.synchronize());
        again(|| device.free_address(address));
        free_again(b, y);
    }

    fn pass_through_the_host(&self, x: &Buffer<u32>) {
        let a = &self.a;
        let on_host: Vec<u32> = (0..LEN).map(|i| pattern(1, i)).collect();
        again(|| a.memset(x.write(), 0));
        again(|| a.copy_from_host(x.write(), &on_host));
        self.check(a, x.read(), 1);
    }

    /// Copies pinned memory both ways. A failed copy leaves it as it was.
    fn copy_beside(&self, x: &Buffer<u32>) {
        let a = &self.a;
        for seed in [11, 1] {
            let mut host = again(|| self.device.pinned::<u32>(LEN));
            let pinned = host.as_mut_slice().expect("no copy is at it");
            pinned.iter_mut().enumerate().for_each(|(i, x)| *x = pattern(seed, i));
            again(|| a.copy_from_pinned(x.write(), host.read()));
            again(|| a.synchronize());
            host.as_mut_slice().expect("the copy has completed").fill(0);
            again(|| a.copy_to_pinned(x.read(), host.write()));
            again(|| a.synchronize());
            let found = host.as_slice().expect("the copy has completed");
            assert!(!self.has_memory || found.iter().enumerate().all(|(i, x)| *x == pattern(seed, i)));
            again(|| a.copy_from_pinned(x.write(), host.read()));
        }
    }

    /// The tight pool has room for one of two buffers: the second stream is made to wait.
    fn make_wait(&self) {
        let (a, b) = (&self.a, &self.b);
        let x: Buffer<u32> = again(|| a.alloc(&self.tight, 300_000));
        self.fill(a, &x, 4);
        free_again(a, x);
        let x: Buffer<u32> = again(|| b.alloc(&self.tight, 300_000));
        self.fill(b, &x, 5);
        self.check(b, x.read(), 5);
        free_again(b, x);
    }

    fn guard(&self) {
        for seed in 6..9 {
            let x: Buffer<u32> = again(|| self.a.alloc(&self.guarded, 5000));
            self.fill(&self.a, &x, seed);
            self.check(&self.a, x.read(), seed);
            free_again(&self.a, x);
        }
    }

    fn pass_by_the_legacy_stream(&self, y: &Buffer<u32>) {
        let legacy = self.device.legacy_stream();
        self.fill(&legacy, y, 10);
        self.check(&self.a, y.read(), 10);
        let free = again(|| self.device.non_blocking_stream());
        let event = again(|| self.a.record());
        again(|| free.wait(&event));
        self.fill(&free, y, 2);
        let event = again(|| free.record());
        for stream in [&self.a, &self.b] {
            again(|| stream.wait(&event));
        }
    }

    /// Streams are opened and closed, and leave buffers, freed memory and work behind.
    fn close_streams(&self, x: &Buffer<u32>) {
        for round in 0..3 {
            let stream = again(|| self.device.stream());
            let event = again(|| self.a.record());
            again(|| stream.wait(&event));
            let y: Buffer<u32> = again(|| stream.alloc(&self.pool, LEN / 3));
            let z: Buffer<u32> = again(|| stream.alloc(&self.pool, 1000));
            again(|| stream.copy(x.view().slice(..LEN / 3)?.read(), y.write()));
            free_again(&stream, z);
            again(|| stream.copy_from_host(y.view().slice(..1000)?.write(), &[7; 1000]));
            let event = again(|| stream.record());
            again(|| self.a.wait(&event));
            drop(stream);
            let found = again(|| self.a.copy_to_host(y.read()));
            let right = |(i, x): (usize, &u32)| *x == if i < 1000 { 7 } else { pattern(1, i) };
            assert!(!self.has_memory || found.iter().enumerate().all(right));
            if round == 1 {
                again(|| self.device.synchronize());
            }
        }
    }

    /// At the end nothing is used, and nothing reserved.
    #[track_caller]
    fn end(self) {
        again(|| self.device.synchronize());
        for pool in [&self.pool, &self.tight, &self.guarded] {
            again(|| pool.trim_to(0));
            let statistics = pool.statistics();
            assert_eq!((statistics.used_bytes, statistics.reserved_bytes), (0, 0), "{}", pool.id());
        }
    }
}

fn is_wanted(make: Make) -> bool {
    makes().iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&make))
}

fn run(device: Device) {
    let program = Program::new(device);
    program.run();
    program.end();
}

#[test]
fn every_call_fails_once_without_memory() {
    for schedule in [Schedule::AtOnce, Schedule::AtWait] {
        if !is_wanted(Make::Sim(schedule)) {
            continue;
        }
        let kinds = fail_each_call(150, run, || {
            let sim = sim(schedule, 64 * GIB);
            (sim.clone(), Some(sim))
        });
        // `native` tests the device's own graphs, where they exist. This program shares nothing.
        let is_sharing = |kind| matches!(kind, CallKind::Export | CallKind::Import | CallKind::LetIn);
        let is_called = |kind: &CallKind| kind.can_fail() && !kind.is_graph() && !is_sharing(*kind);
        let all = CallKind::ALL.into_iter().filter(is_called);
        let all: BTreeSet<CallKind> = all.collect();
        assert_eq!(kinds, all, "every kind of call has failed");
    }
}

#[test]
fn every_call_fails_once_on_the_host() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(1)] {
        if is_wanted(Make::Parallel) {
            fail_each_call(150, run, || {
                let config = HostConfig { schedule, ..Default::default() };
                (Arc::new(HostDriver::new(config).expect("a host device")), None)
            });
        }
    }
}

/// Runs a body on a device that refuses one kind of call for a while.
fn refusing(kind: CallKind, during: impl Fn(&Device, &Stream, &Pool, &Buffer<u32>)) {
    let sim = sim(Schedule::AtOnce, 64 * GIB);
    let driver = Arc::new(Failing::new(sim.clone()));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.pool(PoolConfig::default()).unwrap());
    let x = stream.alloc::<u32>(&pool, LEN).unwrap();
    let error = match kind {
        CallKind::Create => DriverError::OutOfMemory { call: "create", bytes: 0 },
        _ => DriverError::Failed { call: kind.name(), reason: "made to fail".into() },
    };
    driver.fail_every(kind, error);
    during(&device, &stream, &pool, &x);
    driver.disarm();
    // Everything works again.
    stream.launch(x.write(), |_| ()).unwrap();
    let y = stream.alloc::<u32>(&pool, 10 * LEN).unwrap();
    drop((x, y));
    device.synchronize().unwrap();
    assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    drop((stream, pool, device, driver));
    sim.assert_clean();
}

#[test]
fn a_device_that_gives_no_memory_is_out_of_memory() {
    refusing(CallKind::Create, |_, stream, pool, x| {
        let before = pool.statistics();
        let Err(Error::OutOfMemory(report)) = stream.alloc::<u32>(pool, 10 * LEN) else { panic!("it has none") };
        assert_eq!(report.largest[0].range.start, x.address());
        assert_eq!(pool.statistics().used_bytes, before.used_bytes);
        assert_eq!(pool.statistics().reserved_bytes, before.reserved_bytes);
        // The memory that exists can still be used.
        let freed = stream.alloc::<u32>(pool, 100).unwrap();
        stream.free(freed).unwrap();
    });
}

#[test]
fn a_device_that_does_not_map_serves_what_is_mapped() {
    refusing(CallKind::Map, |device, stream, pool, _| {
        for _ in 0..10 {
            assert!(matches!(stream.alloc::<u32>(pool, 10 * LEN), Err(Error::Driver(_))));
        }
        drop(stream.alloc::<u32>(pool, 100).unwrap());
        device.synchronize().unwrap();
    });
}

#[test]
fn a_device_that_takes_nothing_back_keeps_it_well() {
    for kind in [CallKind::Unmap, CallKind::Destroy] {
        refusing(kind, |device, stream, pool, _| {
            let y = stream.alloc::<u32>(pool, 10 * LEN).unwrap();
            stream.free(y).unwrap();
            device.synchronize().unwrap();
            assert!(matches!(pool.trim_to(0), Err(Error::Driver(_))));
            // It can be used all the same.
            let y = stream.alloc::<u32>(pool, 10 * LEN).unwrap();
            stream.launch(y.write(), |_| ()).unwrap();
        });
    }
}

#[test]
fn a_device_that_submits_nothing_changes_nothing() {
    refusing(CallKind::Submit, |_, stream, pool, x| {
        let y = stream.alloc::<u32>(pool, LEN).unwrap();
        for _ in 0..3 {
            assert!(matches!(stream.launch((x.read(), y.write()), |_| ()), Err(Error::Driver(_))));
            assert!(matches!(stream.memset(y.write(), 0), Err(Error::Driver(_))));
            assert!(matches!(stream.copy(x.read(), y.write()), Err(Error::Driver(_))));
            assert!(matches!(stream.copy_from_host(y.write(), &vec![0; LEN]), Err(Error::Driver(_))));
            assert!(matches!(stream.copy_to_host(y.read()), Err(Error::Driver(_))));
        }
        stream.free(y).unwrap();
    });
}

/// Accesses of a refused launch are not recorded: nothing has to be ordered after it.
#[test]
fn what_was_refused_has_not_happened() {
    refusing(CallKind::Submit, |device, stream, pool, _| {
        let (other, x) = (device.stream().unwrap(), stream.alloc::<u32>(pool, 10).unwrap());
        other.wait(&stream.record().unwrap()).unwrap();
        let write: Write<'_, u32> = x.write();
        assert!(matches!(other.launch(write, |_| ()), Err(Error::Driver(_))));
        stream.free(x).unwrap();
    });
}

/// The legacy stream comes after work that it did not follow with an operation of its own. If a wait of the host fails,
/// it gives the host none of that order.
#[test]
fn a_wait_of_the_host_that_fails_orders_nothing() {
    refusing(CallKind::BlockOn, |device, stream, _, x| {
        let (legacy, other) = (device.legacy_stream(), device.stream().unwrap());
        legacy.launch((), |()| ()).unwrap();
        stream.launch(x.write(), |_| ()).unwrap();
        assert!(!legacy.is_capturing().unwrap());
        assert!(matches!(device.synchronize(), Err(Error::Driver(_))));
        assert!(matches!(other.launch(x.write(), |_| ()), Err(Error::Violation(_))));
    });
}

/// An action to run while a call of a kind is on its way to the device.
type AtCall = (CallKind, Box<dyn FnOnce()>);

thread_local! {
    /// The action for this thread's next such call.
    static MEANWHILE: RefCell<Option<AtCall>> = RefCell::default();
}

#[derive(Debug, Default)]
struct Meanwhile;

impl Tap for Meanwhile {
    fn before(&self, kind: CallKind, _: u64) -> Result<(), DriverError> {
        if let Some((_, act)) = MEANWHILE.with_borrow_mut(|act| act.take_if(|(at, _)| *at == kind)) {
            act();
        }
        Ok(())
    }
}

/// While another thread records an event on a stream, the stream cannot be closed, because the device forgets it then.
#[test]
fn an_event_is_recorded_or_its_stream_is_closed() {
    let checked = Arc::new(Checked::new(HostDriver::new(HostConfig::default()).unwrap()));
    let driver = Arc::new(Tapped::<_, Meanwhile>::new(checked.clone() as Arc<dyn Driver>));
    let device = Device::with_driver(driver, DeviceConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.pool(PoolConfig::default()).unwrap());
    let (go, gate) = channel::<()>();
    let x = stream.alloc::<u8>(&pool, 64).unwrap();
    stream.launch(x.write(), move |_| gate.recv().unwrap_or(())).unwrap();
    drop((x, pool));
    let (tell, closed) = channel();
    MEANWHILE.set(Some((
        CallKind::Record,
        Box::new(move || {
            let closes = std::thread::spawn(move || drop(stream));
            // If nothing delays it, it has completed by then.
            std::thread::sleep(Duration::from_millis(50));
            tell.send(closes).unwrap();
        }),
    )));
    device.reclaim();
    drop(go);
    closed.recv().expect("an event is recorded in the stream").join().unwrap();
    assert_eq!(checked.violations(), []);
}

/// The legacy stream collects the ends of the blocking streams one by one. One of them is closed meanwhile, and the
/// device refuses to record its end. The legacy stream and everything after it come after that stream's work, or are
/// refused.
#[test]
fn the_legacy_stream_comes_after_a_stream_that_is_badly_closed_meanwhile() {
    let sim = || sim(Schedule::AtOnce, 64 * GIB) as Arc<dyn Driver>;
    let host = || Arc::new(HostDriver::new(HostConfig::default()).unwrap()) as Arc<dyn Driver>;
    for (device, refusals) in [(sim(), 1), (sim(), 2), (host(), 1), (host(), 2)] {
        let driver = Arc::new(Failing::new(Tapped::<_, Meanwhile>::new(device)));
        let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
        let [first, closed, other] = [(); 3].map(|()| device.stream().unwrap());
        first.launch((), |()| ()).unwrap();
        let x = closed.alloc::<u32>(&device.default_pool(), LEN).unwrap();
        closed.launch(x.read(), |_| ()).unwrap();
        let (legacy, fails) = (device.legacy_stream(), driver.clone());
        let close = move || {
            (0..refusals).for_each(|nth| fails.fail_at_kind(CallKind::Record, nth));
            drop(closed);
        };
        let act = move || std::thread::spawn(close).join().expect("it does not panic");
        MEANWHILE.set(Some((CallKind::Wait, Box::new(act))));
        if refusals > 1 {
            assert!(matches!(legacy.launch((), |()| ()), Err(Error::Driver(_))));
        }
        legacy.launch((), |()| ()).unwrap();
        assert_eq!(driver.struck(), vec![CallKind::Record; refusals as usize]);
        other.launch(x.write(), |_| ()).unwrap();
        other.free(x).unwrap();
    }
}
