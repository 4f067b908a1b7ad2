//! Kernels that own handles of the library, and call the library when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use millpond::{Buffer, Device, Pool, Stream};
use millpond_core::op::What;
use millpond_runner::Work;

use super::{Thread, pick};
use crate::bytes::pause;
use crate::ground::{Before, Ground};
use crate::op::Op;
use crate::random::Random;

/// The kernel is not in a queue.
const NEW: u8 = 0;
/// The kernel is in a queue. If it is dropped there, the device is lost, and the drop may wait.
const QUEUED: u8 = 1;
/// The kernel has begun to run.
const RUN: u8 = 2;

/// The handles that a kernel owns.
pub(super) struct Cargo {
    ground: Arc<Ground>,
    buffer: Option<(Buffer<u8>, u32, Before)>,
    stream: Option<Stream>,
    pool: Option<Pool>,
    device: Option<Device>,
    /// The calls that its drop makes, one bit each.
    acts: u32,
    /// The device of its kernel.
    at: usize,
    /// The state of its kernel.
    stage: Arc<AtomicU8>,
}

impl Drop for Cargo {
    fn drop(&mut self) {
        let does = |bit: u32| self.acts >> bit & 1 == 1;
        let waits = self.stage.load(Ordering::Acquire) == QUEUED && self.ground.lost[self.at].load(Ordering::Acquire);
        // The results do not matter, but no call may panic or hang.
        if let Some(stream) = &self.stream {
            if does(0) {
                let _ = stream.record().map(|event| event.is_over());
            }
            if let Some(pool) = self.pool.as_ref().filter(|_| does(1)) {
                drop(stream.alloc::<u64>(pool, 100));
            }
            if does(2) {
                let _ = stream.launch((), |()| ());
            }
            if waits && does(3) {
                let _ = stream.synchronize();
            }
        }
        if let Some(pool) = self.pool.as_ref().filter(|_| does(4)) {
            let _ = pool.trim_to(0);
        }
        if let Some(device) = &self.device {
            if does(5) {
                drop(device.stream());
            }
            if waits && does(6) {
                let _ = device.synchronize();
            }
        }
        for part in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [1, 3, 0, 2]][(self.acts >> 8 & 3) as usize] {
            match part {
                0 => drop(self.stream.take()),
                1 => drop(self.pool.take()),
                2 => drop(self.device.take()),
                _ => {
                    if let Some((buffer, life, uses)) = self.buffer.take() {
                        self.ground.release(life, buffer.address(), &uses);
                        match &self.stream {
                            Some(stream) if self.acts >> 7 & 1 == 1 => drop(stream.free(buffer)),
                            _ => drop(buffer),
                        }
                    }
                }
            }
        }
        self.ground.cargo.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Thread<'_> {
    /// Takes some of the thread's objects for a kernel on a device to own.
    pub(super) fn cargo(&mut self, op: Op, at: usize) -> Cargo {
        let mut random = Random::new(u64::from(op.c));
        let mut cargo = Cargo {
            ground: Arc::clone(&self.stage.ground),
            buffer: None,
            stream: None,
            pool: None,
            device: None,
            acts: random.number() as u32,
            at,
            stage: Arc::default(),
        };
        self.stage.ground.cargo.fetch_add(1, Ordering::AcqRel);
        // Not memory that a launch may free.
        let is_plain = |it: &super::Buf| it.launched_by.is_none() && !it.is_in_graph;
        if let Some(at) = pick(&self.bufs, op.b).filter(|_| random.chance(60))
            && let Some(buf) = self.bufs[at].take_if(|it| is_plain(it))
            && let Some(buffer) = self.run.take_buffer(buf.memory)
        {
            self.tell(What::Drop { memory: buf.memory });
            cargo.buffer = Some((buffer, buf.memory.id.0, buf.uses));
        }
        if let Some(at) = pick(&self.streams, op.c >> 3).filter(|_| random.chance(50))
            && let Some(line) = &mut self.streams[at]
        {
            line.is_shared = true;
            cargo.stream = self.run.stream_of(line.id).cloned();
            if random.chance(50) {
                self.close_at(at);
            }
        }
        if let Some(at) = pick(&self.pools, op.c >> 5).filter(|_| random.chance(40)) {
            cargo.pool = self.pools[at].as_ref().and_then(|pool| self.run.pool(pool.id)).cloned();
            if random.chance(50) {
                self.drop_pool_at(at);
            }
        }
        if random.chance(30) {
            cargo.device = self.stage.device(op.b as usize % self.stage.devices.len());
        }
        cargo
    }

    pub(super) fn own_by_kernel(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a).filter(|_| self.stage.runs_kernels()) else { return };
        let Some(stream) = self.streams[on].as_ref().map(|line| (line.id, line.device)) else { return };
        let cargo = self.cargo(op, stream.1);
        if self.streams[on].as_ref().is_none_or(|line| line.id != stream.0) {
            return;
        }
        let (micros, done) = (self.stage.micros(op.c), self.flag());
        let (stage, set) = (Arc::clone(&cargo.stage), done.clone());
        let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
            pause(micros);
            cargo.stage.store(RUN, Ordering::Release);
            set.iter().for_each(|done| done.store(true, Ordering::Release));
        };
        self.stage.say(self.number, format_args!("# a kernel that owns things"));
        if self.launch_plain(on, Work::Kernel(Box::new(kernel)), done.as_ref()) {
            // It may have begun already.
            let _ = stage.compare_exchange(NEW, QUEUED, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
