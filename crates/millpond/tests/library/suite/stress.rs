//! Streams and pools that are made and dropped under load, from several threads at once, with every byte checked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use millpond::config::Slack;
use millpond::{Buffer, Device, Event, Pool, PoolConfig, Stream};
use millpond_driver::CallKind;

use crate::common::{Subject, on_devices_with_memory};

const THREADS: u64 = 3;
const ROUNDS: u64 = 40;
const OPERATIONS: u64 = 60;

/// A buffer on its way to another thread, with its contents and its last use.
struct Parcel {
    buffer: Buffer<u64>,
    tag: u64,
    after: Event,
}

/// The state that the threads share.
struct Load<'d> {
    device: &'d Device,
    /// Used by all threads. Each thread also makes pools of its own and drops them.
    common: Pool,
    parcels: Mutex<Vec<Parcel>>,
    asked: AtomicU64,
    /// Right and wrong contents, counted by kernels, or by the threads if the device runs no closures.
    right: Arc<[AtomicU64; 2]>,
}

impl Load<'_> {
    /// Runs a thread: streams and a pool for each round, all dropped with work in flight and live buffers.
    fn run(&self, thread: u64) {
        let mut random = Rng::with_seed(0x9E37_79B9_7F4A_7C15 ^ (thread + 1));
        for round in 0..ROUNDS {
            let streams = [self.device.stream().unwrap(), self.device.non_blocking_stream().unwrap()];
            let slack = if random.u64(..100) < 50 { Slack::Adaptive } else { Slack::Fixed(0.0) };
            let pool = self.device.pool(PoolConfig::default().slack(slack)).unwrap();
            let mut live = Vec::new();
            for operation in 0..OPERATIONS {
                let tag = (thread * ROUNDS + round) * OPERATIONS + operation;
                let stream = &streams[random.usize(..2)];
                match random.u64(..10) {
                    0..5 => live.push(self.fill(stream, &pool, tag, &mut random)),
                    5..7 if !live.is_empty() => {
                        let parcel = live.swap_remove(random.usize(..live.len()));
                        self.end(stream, parcel, &mut random);
                    }
                    7 if !live.is_empty() => self.parcels.lock().unwrap().push(live.swap_remove(0)),
                    8 => {
                        let parcel = self.parcels.lock().unwrap().pop();
                        parcel.into_iter().for_each(|parcel| self.end(stream, parcel, &mut random));
                    }
                    _ if (random.u64(..100) < 20) => stream.synchronize().unwrap(),
                    _ => {}
                }
            }
            // Dropped in a random order: pool, streams, and the buffers that are left.
            match random.u64(..3) {
                0 => drop((pool, streams, live)),
                1 => drop((streams, live, pool)),
                _ => drop((live, pool, streams)),
            }
        }
    }

    fn fill(&self, stream: &Stream, own: &Pool, tag: u64, random: &mut Rng) -> Parcel {
        let pool = if random.u64(..100) < 50 { own } else { &self.common };
        let bits = random.u64(..18);
        let len = 1 + random.u64(..1 << bits) as usize;
        let buffer = stream.alloc::<u64>(pool, len).unwrap();
        match self.device.properties().runs_closures {
            true => stream.launch(buffer.write(), move |words| words.fill(tag)).unwrap(),
            false => stream.copy_from_host(buffer.write(), &vec![tag; len]).unwrap(),
        }
        Parcel { after: stream.record().unwrap(), buffer, tag }
    }

    /// Checks the contents on any stream, in order. Then the buffer is freed there, or dropped.
    fn end(&self, stream: &Stream, parcel: Parcel, random: &mut Rng) {
        let Parcel { buffer, tag, after } = parcel;
        stream.wait(&after).unwrap();
        let right = Arc::clone(&self.right);
        self.asked.fetch_add(1, Ordering::Relaxed);
        let check = move |words: &[u64]| {
            let wrong = words.iter().any(|&word| word != tag);
            right[usize::from(wrong)].fetch_add(1, Ordering::Relaxed);
        };
        match self.device.properties().runs_closures {
            true => stream.launch(buffer.read(), check).unwrap(),
            false => check(&stream.copy_to_host(buffer.read()).unwrap()),
        }
        if random.u64(..100) < 70 {
            stream.free(buffer).unwrap();
        }
    }
}

fn stress(on: &Subject) {
    let load = Load {
        device: &on.device,
        common: on.pool(PoolConfig::default()),
        parcels: Mutex::default(),
        asked: AtomicU64::new(0),
        right: Default::default(),
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| {
            scope.spawn({
                let load = &load;
                move || load.run(thread)
            });
        });
    });
    let Load { device, common, parcels, asked, right } = load;
    drop((common, parcels));
    device.synchronize().unwrap();
    let [right, wrong] = [0, 1].map(|at| right[at].load(Ordering::Relaxed));
    assert!(right > 0 && (right, wrong) == (asked.into_inner(), 0), "{right} found right, {wrong} wrong");
    let calls = device.driver_calls();
    assert!(calls[CallKind::Create] > 0);
    assert_eq!(calls[CallKind::Create], calls[CallKind::Destroy], "all memory of dropped pools went back");
    assert_eq!(calls[CallKind::Map], calls[CallKind::Unmap]);
}

#[test]
fn streams_and_pools_come_and_go_under_load() {
    on_devices_with_memory(stress);
}
