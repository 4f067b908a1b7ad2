//! Buffers: allocated, used, handed on and freed, in right orders and wrong ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::{Error, View};
use millpond_driver::CallKind;

use crate::kind::Kind;
use crate::life::{Expect, Life};
use crate::op::Op;
use crate::oracle::Done;
use crate::party::{ALL, Act, Part};
use crate::random::{Random, mix};
use crate::thread::{Thread, pick, place};
use crate::work::{Content, Kernel};
use crate::world::{Buf, Held};
use millpond_reach::Past;

impl Thread<'_> {
    /// A flag for a kernel, where kernels run.
    pub(crate) fn flag(&self) -> Option<Done> {
        self.world.runs_kernels().then(|| Arc::new(AtomicBool::new(false)))
    }

    /// How long a kernel takes.
    pub(crate) fn micros(&self, chance: u32) -> u64 {
        let mut random = Random::new(u64::from(chance));
        match random.below(4) {
            _ if self.world.setting.slow == 0 => 0,
            0 => random.below(self.world.setting.slow),
            1 => random.below(40),
            _ => 0,
        }
    }

    pub(crate) fn alloc(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.pools, op.b)) else { return };
        let Some(pool) = self.pools[at].clone() else { return };
        let mut random = Random::new(u64::from(op.c));
        let bits = if random.chance(6) { 19 } else { random.below(15) };
        let len = 1 + random.below(1 << bits) as usize;
        let id = self.world.number();
        let knows = self.before_next(&held.line);
        let call = format!("alloc b{id}");
        self.say(format_args!("let b{id} = s{}.alloc::<u64>(&p{}, {len})?;", held.line.chain, pool.number));
        let expect = match pool.device == held.line.device {
            true => Expect::Accepted,
            false => Expect::Refused,
        };
        let got = held.stream.alloc::<u64>(&pool.pool, len);
        self.judge(&call, expect, got.as_ref().err());
        let buffer = match got {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(report)) => return self.check_full(&held, &pool, len, &report.to_string()),
            Err(_) => return,
        };
        let born = held.line.step(None);
        self.publish(&held.line);
        let is_sure = pool.is_strict && held.line.is_sure() && self.world.runs_kernels();
        // Another thread may have synchronised the stream with more, by the host or the legacy default stream.
        let is_sure = is_sure && self.world.is_exact();
        self.say(format_args!("// b{id} is at {:#x}", buffer.address()));
        self.world.oracle.claim(id, buffer.address(), buffer.bytes(), is_sure.then_some(&knows));
        pool.used.fetch_add(buffer.bytes(), Ordering::Relaxed);
        let new = Life::new(id, born, Content::Unknown, held.line.device);
        let life = Life { used: Some(Arc::clone(&pool.used)), is_shareable: pool.is_shareable, ..new };
        let at = place(&self.bufs, op.b);
        self.put(at, Buf { buffer, life, after: None });
        // What is never written could lie anywhere unnoticed.
        if random.chance(80) {
            self.write_on(&held, at, op.c);
        }
    }

    /// Out of memory is right only where others have memory: alone, with nothing in use, a pool serves.
    fn check_full(&mut self, held: &Held, pool: &crate::world::HeldPool, len: usize, why: &str) {
        let is_alone =
            self.world.is_exact() && !self.world.setting.has(Kind::Lend) && !self.world.setting.has(Kind::Fail);
        let is_empty = pool.used.load(Ordering::Relaxed) == 0 && self.pools.iter().flatten().count() <= 3;
        let limit = pool.pool.config().max_bytes;
        let bytes = len as u64 * 8;
        let fits = limit.is_none_or(|limit| bytes.next_multiple_of(2 << 20) <= limit);
        if is_alone && is_empty && fits && self.world.setting.total_bytes >= 1 << 32 && held.line.is_sure() {
            let Some(device) = self.device(pool.device) else { return };
            if device.synchronize().is_ok()
                && let Err(error) = held.stream.alloc::<u64>(&pool.pool, len)
            {
                crate::finding::finding(&format!(
                    "a pool of which nothing is used, on an idle device, has no {bytes} B: {error} (before: {why})"
                ));
            }
            let pasts: Vec<_> = self.world.oracle.lines_of(pool.device).iter().map(|line| line.now()).collect();
            pasts.iter().for_each(|past| self.learn(pool.device, past, "Device::synchronize"));
        }
    }

    /// A buffer comes to a place; what was there goes.
    pub(crate) fn put(&mut self, at: usize, buf: Buf) {
        if let Some(old) = self.bufs[at].replace(buf) {
            self.end_by_drop(old);
        }
    }

    pub(crate) fn end_by_drop(&mut self, buf: Buf) {
        let Buf { buffer, life, .. } = buf;
        self.say(format_args!("drop(b{});", life.id));
        let (stale, bytes) = (place(&self.stale, life.id as u32), buffer.bytes());
        self.forget(stale, buffer.view(), bytes, &life);
        match self.is_lent_out(&life) {
            true => self.parked.push((life, buffer.address())),
            false => self.world.oracle.release(life.id, buffer.address(), &life.uses),
        }
        drop(buffer);
    }

    /// A life ends, if that is not refused: its name stays, to be tried later; its bytes are counted off.
    fn forget(&mut self, at: usize, view: View<u64>, bytes: u64, life: &Life) {
        self.stale[at] = Some((view, life.device));
        if let Some(used) = &life.used {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Puts a stream after all that a buffer was used for, as far as events can: what was used on closed streams is
    /// waited for by the host.
    pub(crate) fn order(&mut self, held: &Held, at: usize) {
        self.order_before(held, at, Act::Free, ALL);
    }

    /// As `order`, as far as something that is about to be done must come after it.
    pub(crate) fn order_before(&mut self, held: &Held, at: usize, act: Act, part: Part) {
        let Some(buf) = &self.bufs[at] else { return };
        let (life, after) = (buf.life.clone(), buf.after.clone());
        let misses = |knows: &Past| {
            let is_import = life.from.is_some();
            let uses = life.uses.iter().filter(|it| it.meets(act, part) && !it.is_before(knows, is_import));
            let uses = uses.map(|it| it.point);
            uses.chain([life.born]).filter(|point| !knows.covers(*point)).collect::<Vec<_>>()
        };
        if life.stays() {
            self.order_abroad(held, at);
        }
        let mut knows = self.before_next(&held.line);
        if let Some((event, past)) = after.filter(|_| !misses(&knows).is_empty()) {
            self.wait_for(held, &event, &past);
            knows = self.before_next(&held.line);
        }
        for point in misses(&knows) {
            let other = self.streams.iter().flatten().find(|it| it.line.chain == point.chain).cloned();
            let Some(other) = other.filter(|_| !self.before_next(&held.line).covers(point)) else { continue };
            if let Some((event, past)) = self.event_of(&other) {
                self.wait_for(held, &event, &past);
            }
        }
        if !misses(&self.before_next(&held.line)).is_empty() {
            self.synchronize(life.device);
        }
    }

    pub(crate) fn write(&mut self, op: Op) {
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
        let expect = self.expect_of(held, &life, &knows, Act::Write, ALL);
        let tag = mix(self.world.number() ^ u64::from(chance) << 32);
        let (mut done, after) = (self.flag(), Content::Words(tag));
        let (line, id) = (held.line.chain, life.id);
        let runs = self.world.kind != crate::settings::DeviceKind::Cuda;
        let how = if runs { chance >> 8 & 7 } else { 5 + (chance >> 8 & 1) };
        let mut content = after;
        let wrote = match how {
            0..=4 => {
                let kernel = self.kernel(&life, after, done.clone(), chance);
                self.say(format_args!("s{line}.launch(b{id}.write(), |x| /* fills, {} us */)?;", kernel.micros));
                match how {
                    4 => held.stream.launch(buf.buffer.view().write(), move |x| kernel.write(x)),
                    _ => held.stream.launch(buf.buffer.write(), move |x| kernel.write(x)),
                }
            }
            5 => {
                (content, done) = (Content::Bytes(chance as u8), None);
                self.say(format_args!("s{line}.memset(b{id}.write(), {})?;", chance as u8));
                held.stream.memset(buf.buffer.write(), chance as u8)
            }
            _ => {
                done = None;
                self.say(format_args!("s{line}.copy_from_host(b{id}.write(), &words)?;"));
                held.stream.copy_from_host(buf.buffer.write(), &after.words(buf.buffer.len()))
            }
        };
        self.judge(&format!("write of b{id} on s{line}"), expect, wrote.as_ref().err());
        if wrote.is_ok() {
            self.used(held, at, ALL, true, done);
            if let Some(buf) = &mut self.bufs[at] {
                (buf.life.content, buf.life.doubt) = (content, None);
            }
        }
    }

    /// A use was accepted.
    pub(crate) fn used(&mut self, held: &Held, at: usize, part: Part, writes: bool, done: Option<Done>) {
        if let Some(buf) = &mut self.bufs[at] {
            buf.life.used(&held.line, part, writes, done);
        }
        self.publish(&held.line);
    }

    /// How often work was submitted to a device.
    pub(crate) fn submitted(&self, device: usize) -> u64 {
        self.world.devices[device].driver.device().counts()[CallKind::Submit]
    }

    /// A use was refused, and may have been done in part.
    pub(crate) fn may_be_used(&mut self, held: &Held, at: usize, writes: bool) {
        if let Some(buf) = &mut self.bufs[at] {
            buf.life.used(&held.line, ALL, writes, None);
            buf.life.may_be_freed = true;
            if writes {
                buf.life.content = Content::Unknown;
            }
        }
    }

    /// A copy to the host may have been refused when it was submitted already: then it is a use.
    pub(crate) fn may_be_read(&mut self, held: &Held, (at, part): (usize, Part), before: u64, error: Option<&Error>) {
        if matches!(error, Some(Error::Driver(_) | Error::DeviceLost { .. })) {
            match self.world.setting.threads {
                1 if self.submitted(held.line.device) > before => self.used(held, at, part, false, None),
                1 => {}
                // Whether it was only the wait that failed is not known.
                _ => self.may_be_used(held, at, false),
            }
        }
    }

    /// A kernel of a buffer.
    pub(crate) fn kernel(&self, life: &Life, after: Content, done: Option<Done>, chance: u32) -> Kernel {
        let (doubt, micros) = (life.doubt.clone(), self.micros(chance));
        Kernel { doubt, done, micros, ..Kernel::new(&self.world.oracle, life.id, life.content, after) }
    }

    /// What is expected of a use or a free: of another device's memory that is not known, for that must be let in.
    pub(crate) fn expect_of(&self, held: &Held, life: &Life, knows: &Past, act: Act, part: Part) -> Expect {
        if act == Act::Free && (held.line.device != life.device || self.is_lent_out(life)) {
            return Expect::Refused;
        }
        match (held.line.device == life.device && !life.may_be_freed, life.expect_abroad(knows, act, part)) {
            (true, None) => self.expect(life.is_right(knows, act, part), &held.line),
            (true, Some(expect)) => expect,
            (false, _) => Expect::Either,
        }
    }

    pub(crate) fn read(&mut self, op: Op) {
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
        let expect = self.expect_of(&held, &life, &knows, Act::Read, ALL);
        let call = format!("read of b{} on s{line}", life.id);
        if op.c >> 8 & 3 == 0 || self.world.kind == crate::settings::DeviceKind::Cuda {
            self.say(format_args!("s{line}.copy_to_host(b{}.read())?;", life.id));
            let before = self.submitted(held.line.device);
            let words = held.stream.copy_to_host(buf.buffer.read());
            self.judge(&call, expect, words.as_ref().err());
            self.may_be_read(&held, (at, ALL), before, words.as_ref().err());
            if let Ok(words) = words {
                if self.world.has_memory() && life.doubt.as_ref().is_none_or(|doubt| !doubt.is_true()) {
                    life.content.check(&words, &self.world.oracle, &format!("the host reads b{}", life.id));
                }
                self.used(&held, at, ALL, false, None);
                let over = self.end_of(&held.line, knows);
                self.learn(held.line.device, &over, "copy_to_host");
            }
            return;
        }
        let done = self.flag();
        let kernel = self.kernel(&life, life.content, done.clone(), op.c);
        self.say(format_args!("s{line}.launch(b{}.read(), |x| /* looks, {} us */)?;", life.id, kernel.micros));
        let read = held.stream.launch(buf.buffer.read(), move |x| kernel.read(x));
        self.judge(&call, expect, read.as_ref().err());
        if read.is_ok() {
            self.used(&held, at, ALL, false, done);
        }
    }

    pub(crate) fn copy(&mut self, op: Op) {
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
        let part = Part { from: 0, to: len };
        let expect = Expect::of_all(both.map(|(life, act)| self.expect_of(&held, life, &knows, act, part)));
        let doubt = source.life.doubt.clone();
        // Of a large buffer only some words are known, and which depends on its length.
        let content = match source.life.content {
            Content::Words(_) if source.buffer.len() != target.buffer.len() && source.buffer.len() > 4096 => {
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
            self.used(&held, from, part, false, None);
            self.used(&held, to, part, true, None);
            if let Some(buf) = &mut self.bufs[to] {
                buf.life.content = if is_whole { content } else { Content::Unknown };
                buf.life.doubt = doubt;
            }
        }
    }

    pub(crate) fn free(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.bufs, op.b)) else { return };
        if !op.c.is_multiple_of(4) {
            self.order(&held, at);
        }
        let knows = self.before_next(&held.line);
        let Some(Buf { buffer, life, after }) = self.bufs[at].take() else { return };
        let (id, line, address, bytes) = (life.id, held.line.chain, buffer.address(), buffer.bytes());
        let expect = self.expect_of(&held, &life, &knows, Act::Free, ALL);
        self.world.oracle.release(id, address, &life.uses);
        let call = format!("free of b{id} on s{line}");
        if op.kind == Kind::FreeAddress && life.used.is_some() {
            self.say(format_args!("s{line}.free_address(b{id}.address())?;"));
            let freed = held.stream.free_address(address);
            self.judge(&call, expect, freed.as_ref().err());
            if freed.is_err() {
                // The buffer has it still.
                self.world.oracle.restore(id, address, bytes);
                self.bufs[at] = Some(Buf { buffer, life, after });
                return;
            }
            held.line.step(None);
            self.publish(&held.line);
            self.forget(place(&self.stale, id as u32), buffer.view(), bytes, &life);
            // It owns nothing any more.
            drop(buffer);
            return;
        }
        let view = buffer.view();
        self.say(format_args!("s{line}.free(b{id})?;"));
        match held.stream.free(buffer) {
            Ok(()) => {
                self.judge(&call, expect, None);
                self.forget(place(&self.stale, op.c), view, bytes, &life);
                held.line.step(None);
                self.publish(&held.line);
            }
            Err(refused) => {
                self.judge(&call, expect, Some(&refused.error));
                self.world.oracle.restore(id, address, bytes);
                self.bufs[at] = Some(Buf { buffer: refused.buffer, life, after });
            }
        }
    }

    pub(crate) fn drop_buf(&mut self, op: Op) {
        if let Some(buf) = pick(&self.bufs, op.b).and_then(|at| self.bufs[at].take()) {
            self.end_by_drop(buf);
        }
    }

    pub(crate) fn free_now(&mut self, op: Op) {
        let Some(at) = pick(&self.bufs, op.b) else { return };
        let Some(Buf { buffer, life, after }) = self.bufs[at].take() else { return };
        if !op.c.is_multiple_of(3) {
            self.synchronize(life.device);
        }
        let Some(device) = self.device(life.device) else {
            self.bufs[at] = Some(Buf { buffer, life, after });
            return;
        };
        let knows = self.host(life.device);
        let expect = match (life.is_right(&knows, Act::Free, ALL), life.expect_abroad(&knows, Act::Free, ALL)) {
            _ if self.is_lent_out(&life) => Expect::Refused,
            _ if life.may_be_freed => Expect::Either,
            (true, _) => Expect::Accepted,
            (false, Some(expect)) => expect,
            (false, None) if self.world.is_exact() => Expect::Refused,
            (false, None) => Expect::Either,
        };
        let (id, address, bytes, view) = (life.id, buffer.address(), buffer.bytes(), buffer.view());
        self.world.oracle.release(id, address, &life.uses);
        self.say(format_args!("device{}.free(b{id})?;", life.device));
        let freed = device.free(buffer);
        self.judge(&format!("Device::free of b{id}"), expect, freed.as_ref().err().map(|refused| &refused.error));
        match freed {
            Ok(()) => self.forget(place(&self.stale, op.c), view, bytes, &life),
            Err(refused) => {
                self.world.oracle.restore(id, address, bytes);
                self.bufs[at] = Some(Buf { buffer: refused.buffer, life, after });
            }
        }
    }

    /// Memory that is gone is named once more.
    pub(crate) fn use_stale(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.stale, op.b)) else { return };
        let Some((view, _)) = self.stale[at] else { return };
        self.before_next(&held.line);
        self.say(format_args!("s{}.launch(old_view.write(), ..)?; // its memory is gone", held.line.chain));
        let used = match self.world.kind == crate::settings::DeviceKind::Cuda {
            true => held.stream.declare(view.write()),
            false => held.stream.launch(view.write(), |x: &mut [u64]| x.fill(0xDEAD)),
        };
        // A failing driver may refuse before the name is looked at.
        self.judge("a use of memory that is gone", Expect::Refused, used.as_ref().err());
    }
}
