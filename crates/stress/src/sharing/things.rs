//! Streams and pools, opened and closed at any time.

use std::sync::atomic::Ordering;

use millpond_reach::Past;

use super::life::Expect;
use super::world::{Held, HeldPool};
use super::{Thread, pick};
use crate::device::{make_pool, pool_config, set_pool};
use crate::finding::finding;
use crate::maker::{Tie, place};
use crate::op::Op;
use crate::random::Random;

impl Thread<'_> {
    pub(super) fn open(&mut self, op: Op) {
        let device = self.device();
        let mut random = Random::new(u64::from(op.c));
        let knows = self.host();
        let (opened, tie, name) = match random.below(10) {
            0 => return self.take_default(op),
            1..=4 => (device.stream(), Tie::Blocking, "stream"),
            _ => (device.non_blocking_stream(), Tie::Free, "non_blocking_stream"),
        };
        self.judge("opening a stream", Expect::Accepted, opened.as_ref().err());
        let Ok(stream) = opened else { return };
        let line = self.world.oracle.open(true, tie, knows);
        self.say(format_args!("let s{} = device.{name}()?;", line.chain));
        let to = place(&self.streams, op.a);
        self.streams[to] = Some(Held { stream, line });
    }

    /// Takes the legacy default stream, or this thread's own default stream. Each exists once and may be known already.
    fn take_default(&mut self, op: Op) {
        let device = self.device();
        let knows = self.host();
        let is_legacy = op.c >> 16 & 1 == 0;
        let (stream, tie, name) = match is_legacy {
            true => (Ok(device.legacy_stream()), Tie::Legacy, "legacy_stream"),
            false => (device.per_thread_stream(), Tie::Blocking, "per_thread_stream"),
        };
        self.judge("taking a default stream", Expect::Accepted, stream.as_ref().err());
        let Ok(stream) = stream else { return };
        // The legacy default stream existed before any thread knew anything.
        let knows = if is_legacy { Past::default() } else { knows };
        let line = self.world.default_line(&stream, tie, knows);
        if tie == Tie::Legacy && !self.world.stage.is_exact() {
            line.is_unsure.store(true, Ordering::Relaxed);
        }
        self.say(format_args!("let s{} = device.{name}();", line.chain));
        let to = place(&self.streams, op.a);
        self.streams[to] = Some(Held { stream, line });
    }

    pub(super) fn close(&mut self, op: Op) {
        if let Some(held) = pick(&self.streams, op.a).and_then(|at| self.streams[at].take()) {
            self.say(format_args!("drop(s{});", held.line.chain));
            drop(held);
        }
    }

    pub(super) fn make_pool(&mut self, op: Op) {
        let device = self.device();
        let (config, is_strict) = pool_config(self.world.stage.setting, self.world.stage.kind, op.c);
        let number = self.world.stage.number();
        self.say(format_args!("let p{number} = device.pool({config:?})?;"));
        let is_shareable = config.shareable;
        let pool = make_pool(&device, config, op.c);
        self.judge("making a pool", Expect::Accepted, pool.as_ref().err());
        if let Ok(pool) = pool {
            let to = place(&self.pools, op.a);
            self.pools[to] = Some(HeldPool { pool, number, is_strict, is_shareable });
        }
    }

    pub(super) fn drop_pool(&mut self, op: Op) {
        if let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].take()) {
            self.say(format_args!("drop(p{});", pool.number));
            drop(pool);
        }
    }

    pub(super) fn set_pool(&mut self, op: Op) {
        let Some(at) = pick(&self.pools, op.a) else { return };
        let (config, is_strict) = pool_config(self.world.stage.setting, self.world.stage.kind, op.c);
        let Some(pool) = &mut self.pools[at] else { return };
        self.world.stage.say(self.number, format_args!("p{}.set_..({config:?});", pool.number));
        set_pool(&pool.pool, &config, pool.is_strict, is_strict);
    }

    pub(super) fn trim(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let keep = if op.c & 1 == 0 { 0 } else { u64::from(op.c) << 4 };
        self.say(format_args!("p{}.trim_to({keep})?;", pool.number));
        let trimmed = pool.pool.trim_to(keep);
        self.judge("trim_to", Expect::Accepted, trimmed.as_ref().err());
    }

    pub(super) fn look(&mut self, op: Op) {
        let Some(pool) = pick(&self.pools, op.a).and_then(|at| self.pools[at].clone()) else { return };
        let statistics = pool.pool.statistics();
        if let Err(error) = pool.pool.audit() {
            finding(&format!("the audit of p{}: {error}", pool.number));
        }
        if self.world.stage.is_exact() && statistics.reserved_bytes < statistics.used_bytes {
            finding(&format!("p{} has less than is used of it: {statistics:?}", pool.number));
        }
    }
}
