//! Streams, pools and devices: opened, shared, closed and dropped at any time; kernels that own them; failing drivers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond::pool::PeerAccess;
use millpond_driver::DriverError;

use crate::finding::{MEANT, finding, lock};
use crate::kind::Kind;
use crate::life::Expect;
use crate::op::Op;
use crate::oracle::Tie;
use crate::random::Random;
use crate::settings::DeviceKind;
use crate::thread::{Thread, pick, place};
use crate::work::{Cargo, NEW, QUEUED, RUN, pause};
use crate::world::{Buf, FAILING, Held, HeldPool};
use millpond_reach::Past;

impl Thread<'_> {
    pub(crate) fn open(&mut self, op: Op) {
        let at = op.b as usize % self.world.devices.len();
        let Some(device) = self.device(at) else { return };
        let mut random = Random::new(u64::from(op.c));
        let knows = self.host(at);
        let (opened, tie, name) = match random.below(10) {
            0 => return self.take_default(op, at),
            1..=4 => (device.stream(), Tie::Blocking, "stream"),
            _ => (device.non_blocking_stream(), Tie::Free, "non_blocking_stream"),
        };
        self.judge("opening a stream", Expect::Accepted, opened.as_ref().err());
        let Ok(stream) = opened else { return };
        let line = self.world.oracle.open(at, tie, knows);
        self.say(format_args!("let s{} = device{at}.{name}()?;", line.chain));
        let to = place(&self.streams, op.a);
        self.streams[to] = Some(Held { stream, line });
    }

    /// The legacy default stream, or this thread's own one. There is one of each: they may be known already.
    fn take_default(&mut self, op: Op, at: usize) {
        let Some(device) = self.device(at) else { return };
        let knows = self.host(at);
        // On CUDA no other thread can submit to a thread's own stream.
        let is_legacy = op.c >> 16 & 1 == 0 || (self.world.kind == DeviceKind::Cuda && self.world.setting.threads > 1);
        let (stream, tie, name) = match is_legacy {
            true => (Ok(device.legacy_stream()), Tie::Legacy, "legacy_stream"),
            false => (device.per_thread_stream(), Tie::Blocking, "per_thread_stream"),
        };
        self.judge("taking a default stream", Expect::Accepted, stream.as_ref().err());
        let Ok(stream) = stream else { return };
        // The legacy default stream was there before anybody knew anything.
        let knows = if is_legacy { Past::default() } else { knows };
        let line = self.world.default_line(at, &stream, tie, knows);
        if tie == Tie::Legacy && self.world.setting.threads > 1 {
            line.is_unsure.store(true, Ordering::Relaxed);
        }
        self.say(format_args!("let s{} = device{at}.{name}();", line.chain));
        let to = place(&self.streams, op.a);
        self.streams[to] = Some(Held { stream, line });
    }

    pub(crate) fn share(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        held.line.is_unsure.store(true, Ordering::Relaxed);
        let slot = op.b as usize % self.world.shared.len();
        self.say(format_args!("shared[{slot}] = s{}.clone();", held.line.chain));
        let old = lock(&self.world.shared[slot]).replace(held);
        drop(old);
    }

    pub(crate) fn use_shared(&mut self, op: Op) {
        let slot = op.b as usize % self.world.shared.len();
        let shared = lock(&self.world.shared[slot]).clone();
        if let Some(held) = shared {
            self.say(format_args!("let s{} = shared[{slot}].clone();", held.line.chain));
            let to = place(&self.streams, op.a);
            self.streams[to] = Some(held);
        }
    }

    pub(crate) fn close(&mut self, op: Op) {
        if let Some(held) = pick(&self.streams, op.a).and_then(|at| self.streams[at].take()) {
            self.say(format_args!("drop(s{});", held.line.chain));
            drop(held);
        }
    }

    pub(crate) fn drop_device(&mut self, op: Op) {
        if op.c.is_multiple_of(8) {
            let at = op.a as usize % self.world.devices.len();
            self.say(format_args!("drop(device{at});"));
            let device = self.world.devices[at].device.write().unwrap_or_else(|it| it.into_inner()).take();
            drop(device);
        }
    }

    pub(crate) fn make_pool(&mut self, op: Op) {
        let at = op.b as usize % self.world.devices.len();
        let Some(device) = self.device(at) else { return };
        let (config, is_strict) = self.world.pool_config(op.c);
        let number = self.world.number();
        self.say(format_args!("let p{number} = device{at}.pool({config:?})?;"));
        // Some lend more than was asked for.
        let is_shareable = config.shareable;
        let pool = match config.shareable && op.c >> 20 & 3 == 0 {
            true => device.pool_sharing_chunks(config),
            false => device.pool(config),
        };
        self.judge("making a pool", Expect::Accepted, pool.as_ref().err());
        if let Ok(pool) = pool {
            let to = place(&self.pools, op.a);
            self.pools[to] = Some(HeldPool { pool, number, device: at, used: Arc::default(), is_strict, is_shareable });
        }
    }

    pub(crate) fn drop_pool(&mut self, op: Op) {
        if let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].take()) {
            self.say(format_args!("drop(p{});", pool.number));
            drop(pool);
        }
    }

    pub(crate) fn set_pool(&mut self, op: Op) {
        let Some(at) = pick(&self.pools, op.a) else { return };
        let (config, is_strict) = self.world.pool_config(op.c);
        let Some(pool) = &mut self.pools[at] else { return };
        self.world.say(self.number, format_args!("p{}.set_..({config:?});", pool.number));
        pool.pool.set_release_threshold(config.release_threshold);
        // A pool that added waits once may have done so for blocks that are still free.
        if is_strict || !pool.is_strict {
            pool.pool.set_reuse(config.reuse);
        }
    }

    pub(crate) fn trim(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let keep = if op.c & 1 == 0 { 0 } else { u64::from(op.c) << 4 };
        self.say(format_args!("p{}.trim_to({keep})?;", pool.number));
        let trimmed = pool.pool.trim_to(keep);
        self.judge("trim_to", Expect::Accepted, trimmed.as_ref().err());
    }

    pub(crate) fn look(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let statistics = pool.pool.statistics();
        if let Err(error) = pool.pool.audit() {
            finding(&format!("the audit of p{}: {error}", pool.number));
        }
        let used = pool.used.load(Ordering::Relaxed);
        let setting = self.world.setting;
        if setting.is_exact() && !setting.has(Kind::Owning) && !setting.has(Kind::Lend) && statistics.used_bytes != used
        {
            let counted = statistics.used_bytes;
            finding(&format!("p{} counts {counted} B as used, and the program has {used} B of it", pool.number));
        }
        if setting.is_exact() && statistics.reserved_bytes < statistics.used_bytes {
            finding(&format!("p{} has less than is used of it: {statistics:?}", pool.number));
        }
    }

    pub(crate) fn hold(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        if self.world.kind != DeviceKind::Host {
            return;
        }
        self.before_next(&held.line);
        let micros = u64::from(op.c) % (self.world.setting.slow * 4 + 1);
        self.say(format_args!("s{}.launch((), |()| sleep({micros} us))?;", held.line.chain));
        let done = self.flag();
        let set = done.clone();
        let launched = held.stream.launch((), move |()| {
            pause(micros);
            set.iter().for_each(|done| done.store(true, Ordering::Release));
        });
        self.judge("launch of a slow kernel", Expect::Accepted, launched.as_ref().err());
        if launched.is_ok() {
            held.line.step(done.as_ref());
            self.publish(&held.line);
        }
    }

    /// A kernel gets handles of the library, and drops them when it is dropped itself.
    pub(crate) fn own_by_kernel(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        if !self.world.runs_kernels() {
            return;
        }
        let mut random = Random::new(u64::from(op.c));
        let buffer = if random.chance(60) { self.take_to_own(op.b) } else { None };
        let stream = pick(&self.streams, op.c >> 3)
            .filter(|_| random.chance(50))
            .and_then(|at| if random.chance(50) { self.streams[at].take() } else { self.streams[at].clone() });
        let pool = pick(&self.pools, op.c >> 5)
            .filter(|_| random.chance(40))
            .and_then(|at| if random.chance(50) { self.pools[at].take() } else { self.pools[at].clone() });
        let device = random.chance(30).then(|| self.device(op.b as usize % self.world.devices.len())).flatten();
        stream.iter().for_each(|it| it.line.is_unsure.store(true, Ordering::Relaxed));
        self.before_next(&held.line);
        let (micros, acts) = (self.micros(op.c), random.number() as u32);
        self.say(format_args!(
            "s{}.launch((), /* owns {:?}, {:?}, {:?}, a device: {}; acts {acts:#x} */)?;",
            held.line.chain,
            buffer.as_ref().map(|it| it.life.id),
            stream.as_ref().map(|it| it.line.chain),
            pool.as_ref().map(|it| it.number),
            device.is_some(),
        ));
        let mut cargo = Cargo::new(&self.world.oracle, held.line.device, acts);
        cargo.buffer = buffer.map(|it| (it.buffer, it.life.id, it.life.uses));
        (cargo.stream, cargo.pool) = (stream.map(|it| it.stream), pool.map(|it| it.pool));
        cargo.device = device;
        let stage = Arc::clone(&cargo.stage);
        let done = self.flag();
        let set = done.clone();
        let launched = held.stream.launch((), move |()| {
            let cargo = &cargo;
            pause(micros);
            cargo.stage.store(RUN, Ordering::Release);
            set.iter().for_each(|done| done.store(true, Ordering::Release));
        });
        if launched.is_ok() {
            // Unless it has begun already.
            let _ = stage.compare_exchange(NEW, QUEUED, Ordering::AcqRel, Ordering::Acquire);
        }
        self.judge("launch of a kernel that owns", Expect::Accepted, launched.as_ref().err());
        if launched.is_ok() {
            held.line.step(done.as_ref());
            self.publish(&held.line);
        }
    }

    /// A buffer for a kernel to own: none that a launch may free.
    pub(crate) fn take_to_own(&mut self, number: u32) -> Option<Buf> {
        let at = pick(&self.bufs, number)?;
        self.bufs[at].take_if(|buf| !buf.life.stays())
    }

    pub(crate) fn panic(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        if self.world.kind != DeviceKind::Host {
            return;
        }
        let (oracle, device, micros) = (Arc::clone(&self.world.oracle), held.line.device, self.micros(op.c));
        self.say(format_args!("s{}.launch((), |()| panic!())?;", held.line.chain));
        let launched = held.stream.launch((), move |()| {
            pause(micros);
            oracle.lost[device].store(true, Ordering::Release);
            std::panic::panic_any(MEANT);
        });
        self.judge("launch of a kernel that panics", Expect::Accepted, launched.as_ref().err());
    }

    pub(crate) fn fail(&mut self, op: Op) {
        let driver = &self.world.devices[op.a as usize % self.world.devices.len()].driver;
        let kind = FAILING[op.b as usize % FAILING.len()];
        let error = DriverError::Failed { call: kind.name(), reason: "the program wants it so".into() };
        match op.c >> 8 & 7 {
            0 => driver.fail_every(kind, error),
            1 => driver.fail_at(u64::from(op.c % 20)),
            2 => driver.fail_next(kind, error),
            _ => driver.fail_at_kind(kind, u64::from(op.c % 6)),
        }
        let (at, nth) = (u64::from(op.c % 20), op.c % 6);
        match op.c >> 8 & 7 {
            0 => self.say(format_args!("driver.fail_every(CallKind::{kind:?}, ..);")),
            1 => self.say(format_args!("driver.fail_at({at});")),
            2 => self.say(format_args!("driver.fail_next(CallKind::{kind:?}, ..);")),
            _ => self.say(format_args!("driver.fail_at_kind(CallKind::{kind:?}, {nth});")),
        }
    }

    pub(crate) fn end_failure(&mut self, _: Op) {
        self.say(format_args!("driver.disarm();"));
        self.world.devices.iter().for_each(|it| it.driver.disarm());
    }

    pub(crate) fn grant(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let Some(device) = self.device(op.b as usize % self.world.devices.len()) else { return };
        let access =
            [PeerAccess::ReadWrite, PeerAccess::ReadWrite, PeerAccess::Read, PeerAccess::None][op.c as usize % 4];
        self.say(format_args!("p{}.grant(&device{}, {access:?})?;", pool.number, op.b % 2));
        let granted = pool.pool.grant(&device, access);
        self.judge("grant", Expect::Either, granted.as_ref().err());
    }

    pub(crate) fn give(&mut self, op: Op) {
        let (Some(at), slot) = (pick(&self.bufs, op.b), op.c as usize % self.world.mail.len()) else { return };
        if self.bufs[at].as_ref().is_some_and(|buf| buf.life.stays()) {
            return;
        }
        if let Some(held) = self.stream(op.a).filter(|_| op.c >> 8 & 7 != 0) {
            self.order(&held, at);
            if let Some(event) = self.event_of(&held)
                && let Some(buf) = &mut self.bufs[at]
            {
                buf.after = Some(event);
            }
        }
        let buf = self.bufs[at].take();
        if let Some(buf) = &buf {
            self.say(format_args!("mail[{slot}] = (b{}, event);", buf.life.id));
        }
        let old = std::mem::replace(&mut *lock(&self.world.mail[slot]), buf);
        if let Some(old) = old {
            self.end_by_drop(old);
        }
    }

    pub(crate) fn take(&mut self, op: Op) {
        let slot = op.c as usize % self.world.mail.len();
        let buf = lock(&self.world.mail[slot]).take();
        if let Some(buf) = buf {
            self.say(format_args!("let b{} = mail[{slot}];", buf.life.id));
            self.put(place(&self.bufs, op.b), buf);
        }
    }
}
