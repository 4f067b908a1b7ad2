//! Buffers: allocated, used and freed, in right and wrong orders.

use std::sync::Arc;

use millpond_reach::Past;
use millpond_runner::Kernel;

use super::life::{Expect, Life};
use super::party::Act;
use super::world::{Buf, Held};
use super::{Thread, pick};
use crate::bytes::{Content, Look, Of};
use crate::ground::Done;
use crate::maker::place;
use crate::op::Op;
use crate::random::{Random, mix};

impl Thread<'_> {
    pub(super) fn alloc(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.pools, op.b)) else { return };
        let Some(pool) = self.pools[at].clone() else { return };
        let mut random = Random::new(u64::from(op.c));
        let bits = if random.chance(6) { 19 } else { random.below(15) };
        let len = 1 + random.below(1 << bits) as usize;
        let id = self.world.stage.number();
        let knows = self.before_next(&held.line);
        let call = format!("alloc b{id}");
        self.say(format_args!("let b{id} = s{}.alloc::<u8>(&p{}, {len} * 8)?;", held.line.chain, pool.number));
        let got = held.stream.alloc::<u8>(&pool.pool, len * 8);
        self.judge(&call, Expect::Accepted, got.as_ref().err());
        let Ok(buffer) = got else { return };
        let born = held.line.step(None);
        self.publish(&held.line);
        // Another thread may have ordered the stream after more work, by the host or the legacy default stream.
        let is_sure = pool.is_strict && held.line.is_sure() && self.world.stage.is_exact();
        let knows = is_sure.then(|| self.world.oracle.kernels(&knows));
        self.say(format_args!("// b{id} is at {:#x}", buffer.address()));
        let former = self.world.stage.ground.claim(id, (buffer.address(), buffer.bytes()));
        if let Some(pending) = former.iter().find(|it| knows.as_ref().is_some_and(|knows| !knows.covers(&it.kernel))) {
            pending.is_unordered();
        }
        let life = Life { is_shareable: pool.is_shareable, ..Life::new(id, born, Content::Unknown) };
        let at = place(&self.bufs, op.b);
        self.put(at, Buf { buffer, life });
        // If memory is never written, an error in its address is not noticed.
        if random.chance(80) {
            self.write_on(&held, at, op.c);
        }
    }

    /// Puts a buffer in a place. A buffer that was there is dropped.
    pub(super) fn put(&mut self, at: usize, buf: Buf) {
        if let Some(old) = self.bufs[at].replace(buf) {
            self.end_by_drop(old);
        }
    }

    pub(super) fn end_by_drop(&mut self, buf: Buf) {
        let Buf { buffer, life } = buf;
        self.say(format_args!("drop(b{});", life.id));
        let at = place(&self.stale, life.id);
        self.stale[at] = Some(buffer.view());
        match self.is_lent_out(&life) {
            true => self.parked.push((life, buffer.address())),
            false => self.world.stage.ground.release(life.id, buffer.address(), &life.kernels()),
        }
        drop(buffer);
    }

    /// Orders a stream after all uses of a buffer: by events, or by the host for uses on closed streams.
    pub(super) fn order(&mut self, held: &Held, at: usize) {
        let Some(buf) = &self.bufs[at] else { return };
        let life = buf.life.clone();
        let misses = |knows: &Past| {
            let is_import = life.from.is_some();
            let uses = life.uses.iter().filter(|it| !it.is_before(knows, is_import));
            let uses = uses.map(|it| it.point);
            uses.chain([life.born]).filter(|point| !knows.covers(*point)).collect::<Vec<_>>()
        };
        if life.stays() {
            self.order_foreign(held, at);
        }
        let knows = self.before_next(&held.line);
        for point in misses(&knows) {
            let other = self.streams.iter().flatten().find(|it| it.line.chain == point.chain).cloned();
            let Some(other) = other.filter(|_| !self.before_next(&held.line).covers(point)) else { continue };
            if let Some((event, past)) = self.event_of(&other) {
                self.wait_for(held, &event, &past);
            }
        }
        if !misses(&self.before_next(&held.line)).is_empty() {
            self.synchronize();
        }
    }

    pub(super) fn write(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.bufs, op.b)) else { return };
        if !op.c.is_multiple_of(4) {
            self.order(&held, at);
        }
        self.write_on(&held, at, op.c);
    }

    fn write_on(&mut self, held: &Held, at: usize, chance: u32) {
        if !self.is_safe(held, at, Act::Write) {
            return;
        }
        let knows = self.before_next(&held.line);
        let Some(buf) = &self.bufs[at] else { return };
        let life = buf.life.clone();
        let expect = self.expect_of(held, &life, &knows, Act::Write);
        let tag = mix(u64::from(self.world.stage.number()) ^ u64::from(chance) << 32);
        let (done, after) = (Done::default(), Content::Words(tag));
        let (line, id) = (held.line.chain, life.id);
        let how = chance >> 8 & 7;
        let (mut content, mut flag) = (after, None);
        let wrote = match how {
            0..=4 => {
                let mut kernel = self.kernel(buf, after, &done, chance);
                flag = Some(done);
                self.say(format_args!("s{line}.launch(b{id}.write(), |x| /* fills */)?;"));
                match how {
                    4 => held.stream.launch(buf.buffer.view().write(), move |x| kernel(&[], &mut [x])),
                    _ => held.stream.launch(buf.buffer.write(), move |x| kernel(&[], &mut [x])),
                }
            }
            5 => {
                content = Content::Bytes(chance as u8);
                self.say(format_args!("s{line}.memset(b{id}.write(), {})?;", chance as u8));
                held.stream.memset(buf.buffer.write(), chance as u8)
            }
            _ => {
                self.say(format_args!("s{line}.copy_from_host(b{id}.write(), &bytes)?;"));
                held.stream.copy_from_host(buf.buffer.write(), &after.bytes(0, buf.buffer.len() / 8))
            }
        };
        self.judge(&format!("write of b{id} on s{line}"), expect, wrote.as_ref().err());
        if wrote.is_ok() {
            self.used(held, at, true, flag);
            if let Some(buf) = &mut self.bufs[at] {
                (buf.life.content, buf.life.doubt) = (content, None);
            }
        }
    }

    /// Notes an accepted use.
    pub(super) fn used(&mut self, held: &Held, at: usize, writes: bool, done: Option<Done>) {
        if let Some(buf) = &mut self.bufs[at] {
            buf.life.used(&held.line, writes, done);
        }
        self.publish(&held.line);
    }

    /// Makes a kernel for a buffer.
    fn kernel(&self, buf: &Buf, after: Content, done: &Done, chance: u32) -> Kernel {
        let (ground, micros) = (Arc::clone(&self.world.stage.ground), self.world.stage.micros(chance));
        let Life { id, content, ref doubt, .. } = buf.life;
        let (doubt, done, of) = (doubt.clone(), Some(Arc::clone(done)), Of { first: 0, all: buf.buffer.len() / 8 });
        Look { ground, life: id, before: content, doubt, after, done, micros, of }.kernel()
    }

    /// Returns the expected answer of a use or a free.
    pub(super) fn expect_of(&self, held: &Held, life: &Life, knows: &Past, act: Act) -> Expect {
        if act == Act::Free && self.is_lent_out(life) {
            return Expect::Refused;
        }
        let foreign = life.expect_foreign(knows, act);
        foreign.unwrap_or_else(|| self.expect(life.is_right(knows, act), &held.line))
    }

    pub(super) fn read(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.bufs, op.b)) else { return };
        if !op.c.is_multiple_of(4) {
            self.order(&held, at);
        }
        if !self.is_safe(&held, at, Act::Read) {
            return;
        }
        let knows = self.before_next(&held.line);
        let Some(buf) = &self.bufs[at] else { return };
        let (life, line) = (buf.life.clone(), held.line.chain);
        let expect = self.expect_of(&held, &life, &knows, Act::Read);
        let call = format!("read of b{} on s{line}", life.id);
        if op.c >> 8 & 3 == 0 {
            self.say(format_args!("s{line}.copy_to_host(b{}.read())?;", life.id));
            let bytes = held.stream.copy_to_host(buf.buffer.read());
            self.judge(&call, expect, bytes.as_ref().err());
            if let Ok(bytes) = bytes {
                if life.doubt.as_ref().is_none_or(|doubt| !doubt.is_true()) {
                    let who = format!("the host reads b{}", life.id);
                    life.content.check(&bytes, Of::whole(&bytes), &self.world.stage.ground, &who);
                }
                self.used(&held, at, false, None);
                let over = self.end_of(&held.line, knows);
                self.learn(&over, "copy_to_host");
            }
            return;
        }
        let done = Done::default();
        let mut kernel = self.kernel(buf, life.content, &done, op.c);
        self.say(format_args!("s{line}.launch(b{}.read(), |x| /* looks */)?;", life.id));
        let read = held.stream.launch(buf.buffer.read(), move |x| kernel(&[x], &mut []));
        self.judge(&call, expect, read.as_ref().err());
        if read.is_ok() {
            self.used(&held, at, false, Some(done));
        }
    }

    pub(super) fn copy(&mut self, op: Op) {
        let (Some(held), Some(from), Some(to)) =
            (self.stream(op.a), pick(&self.bufs, op.b), pick(&self.bufs, op.c >> 8))
        else {
            return;
        };
        if !op.c.is_multiple_of(4) {
            self.order(&held, from);
            self.order(&held, to);
        }
        if !self.is_safe(&held, from, Act::Read) || !self.is_safe(&held, to, Act::Write) {
            return;
        }
        let knows = self.before_next(&held.line);
        let (Some(source), Some(target)) = (&self.bufs[from], &self.bufs[to]) else { return };
        if from == to {
            return;
        }
        let len = source.buffer.len().min(target.buffer.len());
        let is_whole = len == target.buffer.len();
        let (Ok(read), Ok(write)) = (source.buffer.view().slice(..len), target.buffer.view().slice(..len)) else {
            return;
        };
        let both = [(&source.life, Act::Read), (&target.life, Act::Write)];
        let expect = Expect::of_all(both.map(|(life, act)| self.expect_of(&held, life, &knows, act)));
        let doubt = source.life.doubt.clone();
        // Of a large buffer only some words are known. Which ones depends on its length.
        let content = match source.life.content {
            Content::Words(_) if source.buffer.len() != target.buffer.len() && source.buffer.len() > 8 * 4096 => {
                Content::Unknown
            }
            content => content,
        };
        let (one, two, line) = (source.life.id, target.life.id, held.line.chain);
        self.say(format_args!(
            "s{line}.copy(b{one}.view().slice(..{len})?.read(), b{two}.view().slice(..{len})?.write())?;"
        ));
        let copied = held.stream.copy(read.read(), write.write());
        self.judge(&format!("copy of b{one} to b{two} on s{line}"), expect, copied.as_ref().err());
        if copied.is_ok() {
            self.used(&held, from, false, None);
            self.used(&held, to, true, None);
            if let Some(buf) = &mut self.bufs[to] {
                buf.life.content = if is_whole { content } else { Content::Unknown };
                buf.life.doubt = doubt;
            }
        }
    }

    pub(super) fn free(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.bufs, op.b)) else { return };
        if !op.c.is_multiple_of(4) {
            self.order(&held, at);
        }
        let knows = self.before_next(&held.line);
        let Some(Buf { buffer, life }) = self.bufs[at].take() else { return };
        let (id, line, address, bytes) = (life.id, held.line.chain, buffer.address(), buffer.bytes());
        let expect = self.expect_of(&held, &life, &knows, Act::Free);
        self.world.stage.ground.release(id, address, &life.kernels());
        let call = format!("free of b{id} on s{line}");
        let view = buffer.view();
        self.say(format_args!("s{line}.free(b{id})?;"));
        match held.stream.free(buffer) {
            Ok(()) => {
                self.judge(&call, expect, None);
                let at = place(&self.stale, op.c);
                self.stale[at] = Some(view);
                held.line.step(None);
                self.publish(&held.line);
            }
            Err(refused) => {
                self.judge(&call, expect, Some(&refused.error));
                self.world.stage.ground.restore(id, (address, bytes));
                self.bufs[at] = Some(Buf { buffer: refused.buffer, life });
            }
        }
    }

    pub(super) fn drop_buf(&mut self, op: Op) {
        if let Some(buf) = pick(&self.bufs, op.b).and_then(|at| self.bufs[at].take()) {
            self.end_by_drop(buf);
        }
    }

    pub(super) fn free_now(&mut self, op: Op) {
        let Some(at) = pick(&self.bufs, op.b) else { return };
        let Some(Buf { buffer, life }) = self.bufs[at].take() else { return };
        if !op.c.is_multiple_of(3) {
            self.synchronize();
        }
        let knows = self.host();
        let expect = match (life.is_right(&knows, Act::Free), life.expect_foreign(&knows, Act::Free)) {
            _ if self.is_lent_out(&life) => Expect::Refused,
            (true, _) => Expect::Accepted,
            (false, Some(expect)) => expect,
            (false, None) if self.world.stage.is_exact() => Expect::Refused,
            (false, None) => Expect::Either,
        };
        let (id, address, bytes, view) = (life.id, buffer.address(), buffer.bytes(), buffer.view());
        self.world.stage.ground.release(id, address, &life.kernels());
        self.say(format_args!("device.free(b{id})?;"));
        let freed = self.device().free(buffer);
        self.judge(&format!("Device::free of b{id}"), expect, freed.as_ref().err().map(|refused| &refused.error));
        match freed {
            Ok(()) => {
                let at = place(&self.stale, op.c);
                self.stale[at] = Some(view);
            }
            Err(refused) => {
                self.world.stage.ground.restore(id, (address, bytes));
                self.bufs[at] = Some(Buf { buffer: refused.buffer, life });
            }
        }
    }

    /// Uses memory that is gone.
    pub(super) fn use_stale(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.stale, op.b)) else { return };
        let Some(view) = self.stale[at] else { return };
        self.before_next(&held.line);
        self.say(format_args!("s{}.launch(old_view.write(), ..)?; // its memory is gone", held.line.chain));
        let used = held.stream.launch(view.write(), |x: &mut [u8]| x.fill(0xDE));
        self.judge("a use of memory that is gone", Expect::Refused, used.as_ref().err());
    }
}
