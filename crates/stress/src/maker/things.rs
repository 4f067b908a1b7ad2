//! Streams, pools, devices and failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::ids::{PoolId, StreamId};
use millpond_core::op::{Reach, StreamRole, Trust, What};
use millpond_driver::DriverError;
use millpond_runner::Work;
use smallvec::smallvec;

use super::{Line, PoolAt, Thread, Tie, device_id, pick, place};
use crate::bytes::pause;
use crate::device::{FAILING, make_pool, pool_config, set_pool};
use crate::finding::{MEANT, finding, lock};
use crate::ground::Before;
use crate::op::Op;
use crate::random::Random;
use crate::settings::DeviceKind;

impl Thread<'_> {
    pub(super) fn open(&mut self, op: Op) {
        let device = op.b as usize % self.stage.devices.len();
        let mut random = Random::new(u64::from(op.c));
        // On CUDA no other thread can submit to a thread's own default stream.
        let is_legacy = op.c >> 16 & 1 == 0 || (self.stage.kind == DeviceKind::Cuda && self.stage.setting.threads > 1);
        let (role, tie) = match random.below(10) {
            0 if is_legacy => (StreamRole::Legacy, Tie::Legacy),
            0 => (StreamRole::PerThread, Tie::Blocking),
            1..=4 => (StreamRole::Blocking, Tie::Blocking),
            _ => (StreamRole::NonBlocking, Tie::Free),
        };
        let to = place(&self.streams, op.a);
        let is_default = matches!(role, StreamRole::Legacy | StreamRole::PerThread);
        if self.stage.device(device).is_none() || (is_default && !self.defaults.insert((device, role))) {
            return;
        }
        let id = StreamId(self.stage.number());
        if !self.perform(What::StreamCreate { stream: id, role, device: device_id(device) }) {
            return;
        }
        self.close_at(to);
        self.streams[to] = Some(Line { id, device, tie, is_default, is_shared: is_default, before: Before::default() });
    }

    /// Closes a stream. A default stream is not destroyed.
    pub(super) fn close_at(&mut self, at: usize) {
        let Some(line) = self.streams[at].take() else { return };
        if !line.is_default {
            self.perform(What::StreamDestroy { stream: line.id });
        }
        self.closed.push(line);
    }

    pub(super) fn close(&mut self, op: Op) {
        let Some(at) = pick(&self.streams, op.a) else { return };
        self.close_at(at);
    }

    pub(super) fn share(&mut self, op: Op) {
        let Some(at) = pick(&self.streams, op.a) else { return };
        let Some(line) = &mut self.streams[at] else { return };
        line.is_shared = true;
        let slot = op.b as usize % self.stage.shared.len();
        let handle = self.run.stream_of(line.id).cloned().map(|stream| (stream, line.device));
        self.stage.say(self.number, format_args!("# s{} is shared, in slot {slot}", line.id.0));
        let old = std::mem::replace(&mut *lock(&self.stage.shared[slot]), handle);
        drop(old);
    }

    /// Takes another thread's stream. This thread treats it as a stream of its own with more work than it knows of.
    pub(super) fn use_shared(&mut self, op: Op) {
        let slot = op.b as usize % self.stage.shared.len();
        let shared = lock(&self.stage.shared[slot]).clone();
        let Some((stream, device)) = shared else { return };
        let id = StreamId(self.stage.number());
        self.tell(What::StreamCreate { stream: id, role: StreamRole::NonBlocking, device: device_id(device) });
        self.run.give_stream(id, device_id(device), stream);
        let to = place(&self.streams, op.a);
        self.close_at(to);
        self.streams[to] =
            Some(Line { id, device, tie: Tie::Free, is_default: false, is_shared: true, before: Before::default() });
    }

    pub(super) fn drop_device(&mut self, op: Op) {
        if op.c.is_multiple_of(8) {
            let at = op.a as usize % self.stage.devices.len();
            self.stage.say(self.number, format_args!("# device {at} is dropped"));
            let device = self.stage.devices[at].device.write().unwrap_or_else(|it| it.into_inner()).take();
            drop(device);
        }
    }

    pub(super) fn make_pool(&mut self, op: Op) {
        let device = op.b as usize % self.stage.devices.len();
        let Some(handle) = self.stage.device(device) else { return };
        let (config, is_strict) = pool_config(self.stage.setting, self.stage.kind, op.c);
        let id = PoolId(self.stage.number());
        let pool = make_pool(&handle, config.clone(), op.c);
        let Some(pool) = self.is_fine(&format!("a pool of device {device}: {config:?}"), pool) else { return };
        self.tell(What::PoolCreate { pool: id, exportable: config.shareable, device: Some(device_id(device)) });
        self.run.give_pool(id, pool);
        let to = place(&self.pools, op.a);
        self.drop_pool_at(to);
        self.pools[to] = Some(PoolAt { id, device, is_strict, config });
    }

    pub(super) fn drop_pool_at(&mut self, at: usize) {
        if let Some(pool) = self.pools[at].take() {
            self.perform(What::PoolDestroy { pool: pool.id });
        }
    }

    pub(super) fn drop_pool(&mut self, op: Op) {
        if let Some(at) = pick(&self.pools, op.a) {
            self.drop_pool_at(at);
        }
    }

    pub(super) fn set_pool(&mut self, op: Op) {
        let Some(at) = pick(&self.pools, op.a) else { return };
        let (config, is_strict) = pool_config(self.stage.setting, self.stage.kind, op.c);
        let Some(known) = &mut self.pools[at] else { return };
        let Some(pool) = self.run.pool(known.id) else { return };
        self.stage.say(self.number, format_args!("# p{} from now on: {config:?}", known.id.0));
        set_pool(pool, &config, known.is_strict, is_strict);
    }

    pub(super) fn trim(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let keep = if op.c & 1 == 0 { 0 } else { u64::from(op.c) << 4 };
        let Some(trimmed) = self.run.pool(pool.id).map(|pool| pool.trim_to(keep)) else { return };
        self.is_fine(&format!("p{}.trim_to({keep})", pool.id.0), trimmed);
    }

    pub(super) fn look(&mut self, op: Op) {
        let Some(at) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let Some(pool) = self.run.pool(at.id) else { return };
        let statistics = pool.statistics();
        if let Err(error) = pool.audit() {
            finding(&format!("the audit of p{}: {error}", at.id.0));
        }
        let setting = self.stage.setting;
        if setting.threads > 1 {
            return;
        }
        let of_it = self.bufs.iter().flatten().filter(|buf| buf.pool == Some(at.id));
        let used: u64 = of_it.filter_map(|buf| self.run.buffer(buf.memory)).map(|buffer| buffer.bytes()).sum();
        if statistics.used_bytes != used {
            let counted = statistics.used_bytes;
            finding(&format!("p{} counts {counted} B as used, and the program has {used} B of it", at.id.0));
        }
        if statistics.reserved_bytes < statistics.used_bytes {
            finding(&format!("p{} has less than is used of it: {statistics:?}", at.id.0));
        }
    }

    pub(super) fn grant(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let device = op.b as usize % self.stage.devices.len();
        if device == pool.device || self.stage.device(device).is_none() {
            return;
        }
        let reach = [Reach::ReadWrite, Reach::ReadWrite, Reach::Read, Reach::None][op.c as usize % 4];
        self.perform(What::PoolAccess { pool: pool.id, device: device_id(device), reach });
    }

    /// Launches work that accesses no memory.
    pub(super) fn launch_plain(&mut self, on: usize, work: Work, done: Option<&crate::ground::Done>) -> bool {
        let Some(line) = self.streams[on].clone() else { return false };
        self.before(on);
        let what = What::Launch { stream: line.id, accesses: smallvec![], trust: Trust::None, name: None };
        let is_done = self.perform_with(what, Some(work));
        if is_done {
            self.after(on, done);
        }
        is_done
    }

    pub(super) fn hold(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a).filter(|_| self.stage.kind == DeviceKind::Host) else { return };
        let micros = u64::from(op.c) % (self.stage.setting.slow * 4 + 1);
        let done = self.flag();
        let set = done.clone();
        let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
            pause(micros);
            set.iter().for_each(|done| done.store(true, Ordering::Release));
        };
        self.launch_plain(on, Work::Kernel(Box::new(kernel)), done.as_ref());
    }

    pub(super) fn panic(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a).filter(|_| self.stage.kind == DeviceKind::Host) else { return };
        let Some(device) = self.streams[on].as_ref().map(|line| line.device) else { return };
        let (ground, micros) = (Arc::clone(&self.stage.ground), self.stage.micros(op.c));
        let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
            pause(micros);
            ground.lost[device].store(true, Ordering::Release);
            std::panic::panic_any(MEANT);
        };
        self.stage.say(self.number, format_args!("# a kernel that panics"));
        self.launch_plain(on, Work::Kernel(Box::new(kernel)), None);
    }

    pub(super) fn fail(&mut self, op: Op) {
        let driver = &self.stage.devices[op.a as usize % self.stage.devices.len()].driver;
        let kind = FAILING[op.b as usize % FAILING.len()];
        let error = DriverError::Failed { call: kind.name(), reason: "the program wants it so".into() };
        let (at, nth) = (u64::from(op.c % 20), u64::from(op.c % 6));
        match op.c >> 8 & 7 {
            0 => driver.fail_every(kind, error),
            1 => driver.fail_at(at),
            2 => driver.fail_next(kind, error),
            _ => driver.fail_at_kind(kind, nth),
        }
        self.stage.say(self.number, format_args!("# calls fail: {kind:?}, {at}, {nth}, {}", op.c >> 8 & 7));
    }
}
