//! Random programs of copies with pinned memory: a refused call has no effect, and the others act as if all had run in
//! the order of the program. If the host gets access to memory that a copy still uses, the bytes reveal it.

use fastrand::Rng;
use millpond::check::Kind;
use millpond::{Buffer, Error, Event, PinnedBuffer, Stream};

use crate::common::{Subject, kind_of, on_devices_with_memory, order};

/// Large enough that a copy takes some time.
const LEN: usize = 40_000;
const PART: usize = LEN / 4;
const STEPS: usize = 600;

/// Buffers with the contents of each part, by the order of the program.
struct Modelled<B> {
    buffer: B,
    parts: [u32; 4],
}

struct Program<'a> {
    on: &'a Subject,
    random: Rng,
    streams: [Stream; 3],
    device: Vec<Modelled<Buffer<u32>>>,
    host: Vec<Modelled<PinnedBuffer<u32>>>,
    events: Vec<Event>,
    /// The number of calls that were done, and of those that were refused.
    counts: [u32; 2],
}

/// Returns `true` if the call was done. It may be refused only for its order.
fn done(counts: &mut [u32; 2], result: Result<(), Error>) -> bool {
    let is_done = result.map_err(|error| assert_eq!(kind_of(&error), Kind::Race)).is_ok();
    counts[usize::from(!is_done)] += 1;
    is_done
}

fn fresh(on: &Subject, value: u32) -> Modelled<PinnedBuffer<u32>> {
    let mut buffer = on.device.pinned::<u32>(LEN).unwrap();
    buffer.as_mut_slice().expect("no copy has it").fill(value);
    Modelled { buffer, parts: [value; 4] }
}

impl Program<'_> {
    fn copy(&mut self) {
        let Self { random, streams, device, host, counts, .. } = self;
        let stream = &streams[random.usize(..3)];
        let device = &mut device[random.usize(..2)];
        let host = &mut host[random.usize(..2)];
        let (here, there) = (random.usize(..4), random.usize(..4));
        let x = device.buffer.slice(here * PART..(here + 1) * PART).unwrap();
        let part = there * PART..(there + 1) * PART;
        if random.u64(..100) < 50 {
            let to_host = stream.copy_to_pinned(x.read(), host.buffer.write().slice(part).unwrap());
            if done(counts, to_host) {
                host.parts[there] = device.parts[here];
            }
        } else if done(counts, stream.copy_from_pinned(x.write(), host.buffer.read().slice(part).unwrap())) {
            device.parts[here] = host.parts[there];
        }
    }

    fn look(&mut self) {
        let Self { random, host, counts, .. } = self;
        let host = &mut host[random.usize(..2)];
        let is_right = |(part, value): (&[u32], &u32)| part.iter().all(|it| it == value);
        let looked = host.buffer.as_slice().map(|all| {
            assert!(all.chunks(PART).zip(&host.parts).all(is_right), "{:?}", host.parts);
        });
        done(counts, looked);
        let value = random.u32(..);
        let written = host.buffer.as_mut_slice().map(|all| all.fill(value));
        if done(counts, written) {
            host.parts = [value; 4];
        }
    }

    fn step(&mut self) {
        match self.random.u64(..100) {
            0..45 => self.copy(),
            45..70 => self.look(),
            70..78 => {
                let (one, other) = (self.random.usize(..3), self.random.usize(..3));
                order(&self.streams[one], &self.streams[other]);
            }
            78..84 => self.events.push(self.streams[self.random.usize(..3)].record().unwrap()),
            84..90 if !self.events.is_empty() => {
                let at = self.random.usize(..self.events.len());
                self.events.swap_remove(at).synchronize().unwrap();
            }
            90..94 => _ = self.streams[self.random.usize(..3)].is_idle().unwrap(),
            94..98 => {
                // Its memory is used again once its copies have completed.
                let at = self.random.usize(..2);
                let value = self.random.u32(..);
                self.host[at] = fresh(self.on, value);
            }
            98 => self.on.device.synchronize().unwrap(),
            _ => {}
        }
    }
}

#[test]
fn the_host_finds_what_the_order_says() {
    on_devices_with_memory(|on| {
        for seed in 0..4 {
            let streams: [Stream; 3] = on.streams();
            let make = |_| {
                let buffer = streams[0].alloc_zeroed(&on.device.default_pool(), LEN).unwrap();
                Modelled { buffer, parts: [0; 4] }
            };
            let device: Vec<_> = (0..2).map(make).collect();
            on.device.synchronize().unwrap();
            let host = vec![fresh(on, 1), fresh(on, 2)];
            let random = Rng::with_seed(seed);
            let mut program = Program { on, random, streams, device, host, events: Vec::new(), counts: [0; 2] };
            (0..STEPS).for_each(|_| program.step());
            on.device.synchronize().unwrap();
            (0..4).for_each(|_| program.look());
            for Modelled { buffer, parts } in &program.device {
                let found = program.streams[0].copy_to_host(buffer.read()).unwrap();
                assert!(found.chunks(PART).zip(parts).all(|(part, value)| part.iter().all(|it| it == value)));
            }
            let [did, refused] = program.counts;
            assert!(did > 50 && refused > 50, "{did} acts were done, {refused} refused");
        }
    });
}
