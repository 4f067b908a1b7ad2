//! Memory: allocated, used as a whole and in parts, passed on and freed, in right and wrong orders.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millpond_core::ids::{EventId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Part, StreamRole, Trust, What};
use millpond_runner::Work;

use super::{Buf, PoolAt, Thread, device_id, pick, place};
use crate::bytes::{Content, Look, Of};
use crate::finding::{finding, lock};
use crate::ground::{Before, Done};
use crate::kind::Kind;
use crate::op::Op;
use crate::random::{Random, mix};
use crate::settings::DeviceKind;
use crate::stage::Mail;

impl Thread<'_> {
    /// Returns a flag for a kernel, if kernels run.
    pub(super) fn flag(&self) -> Option<Done> {
        self.stage.runs_kernels().then(|| Arc::new(AtomicBool::new(false)))
    }

    /// Returns a new name of memory.
    pub(super) fn new_memory(&self) -> Memory {
        Memory::first(self.stage.number())
    }

    pub(super) fn alloc(&mut self, op: Op) {
        let (Some(on), Some(at)) = (pick(&self.streams, op.a), pick(&self.pools, op.b)) else { return };
        let (Some(line), Some(pool)) = (self.streams[on].clone(), self.pools[at].clone()) else { return };
        let mut random = Random::new(u64::from(op.c));
        let bits = if random.chance(6) { 19 } else { random.below(15) };
        let words = 1 + random.below(1 << bits) as usize;
        if pool.device != line.device {
            let both = self.run.stream_of(line.id).zip(self.run.pool(pool.id));
            if both.is_some_and(|(stream, pool)| stream.alloc::<u8>(pool, 8).is_ok()) {
                finding("memory of another device's pool is allocated");
            }
            return;
        }
        let memory = self.new_memory();
        self.before(on);
        let what = What::Alloc { memory, pool: pool.id, stream: line.id, bytes: words as u64 * 8, name: None };
        if !self.perform(what) {
            return self.check_full(&pool, line.id, words);
        }
        self.after(on, None);
        let (is_sure, born) = (pool.is_strict && !line.is_shared && self.is_exact(), self.ops.len() as u32);
        let Some(buffer) = self.run.buffer(memory) else { return };
        let range = (buffer.address(), buffer.bytes());
        self.stage.say(self.number, format_args!("# at {:#x}", range.0));
        let former = self.stage.ground.claim(memory.id.0, range);
        self.reused.extend(former.into_iter().filter(|_| is_sure).map(|pending| (pending, born)));
        let (device, pool, uses) = (line.device, Some(pool.id), Before::default());
        let content = Content::Unknown;
        let at = place(&self.bufs, op.b);
        self.put(at, Buf { memory, words, device, pool, content, launched_by: None, is_in_graph: false, uses });
        // If memory is never written, an error in its address is not noticed.
        if random.chance(80) {
            self.write_on(on, at, Of { first: 0, all: words }, words, op.c);
        }
    }

    /// Checks that memory was exhausted because of other allocations: with nothing in use, a pool must serve.
    fn check_full(&mut self, pool: &PoolAt, stream: StreamId, words: usize) {
        let setting = self.stage.setting;
        let is_empty = self.bufs.iter().flatten().all(|buf| buf.pool != Some(pool.id));
        let bytes = words as u64 * 8;
        let fits = pool.config.max_bytes.is_none_or(|limit| bytes.next_multiple_of(2 << 20) <= limit);
        if !self.is_exact() || setting.has(Kind::Fail) || !is_empty || !fits || setting.total_bytes < 1 << 32 {
            return;
        }
        // Work of another device may use memory that was dropped since.
        (0..self.stage.devices.len()).for_each(|at| self.synchronize(at));
        let both = self.run.stream_of(stream).zip(self.run.pool(pool.id));
        if let Some(Err(error)) = both.map(|(stream, pool)| stream.alloc::<u8>(pool, bytes as usize)) {
            finding(&format!("a pool of which nothing is used, on idle devices, has no {bytes} B: {error}"));
        }
    }

    /// Puts memory in a place. Memory that was there is dropped.
    pub(super) fn put(&mut self, at: usize, buf: Buf) {
        if let Some(old) = self.bufs[at].replace(buf) {
            self.let_go(old);
        }
    }

    /// Drops memory.
    pub(super) fn let_go(&mut self, buf: Buf) {
        self.release(&buf);
        if !self.perform(What::Drop { memory: buf.memory }) {
            // The library has no call for this, so the memory stays with the run.
            return;
        }
        let at = place(&self.stale, buf.memory.id.0);
        self.stale[at] = Some(buf.memory);
    }

    /// Releases the addresses of memory that is about to end. Returns them, to be restored if the end is refused.
    pub(super) fn release(&self, buf: &Buf) -> Option<(u64, u64)> {
        let buffer = self.run.buffer(buf.memory)?;
        self.stage.ground.release(buf.memory.id.0, buffer.address(), &buf.uses);
        Some((buffer.address(), buffer.bytes()))
    }

    /// Restores memory whose end was refused.
    pub(super) fn restore(&mut self, at: usize, buf: Buf, range: Option<(u64, u64)>) {
        if let Some(range) = range {
            self.stage.ground.restore(buf.memory.id.0, range);
        }
        self.bufs[at] = Some(buf);
    }

    /// Chooses a stream and memory, and orders them at random.
    fn choose(&mut self, op: Op, act: Act) -> Option<(usize, usize)> {
        let (on, at) = (pick(&self.streams, op.a)?, pick(&self.bufs, op.b)?);
        if !op.c.is_multiple_of(4) {
            let memory = self.bufs[at].as_ref()?.memory;
            self.order(on, &[Access::whole(memory, act)]);
        }
        Some((on, at))
    }

    /// Returns a range of words of memory: all, or a part that mostly ends where others begin.
    fn part(&self, at: usize, chance: u32, is_part: bool) -> Option<(Of, usize)> {
        let all = self.bufs[at].as_ref()?.words;
        if !is_part {
            return Some((Of { first: 0, all }, all));
        }
        let mut random = Random::new(u64::from(chance) ^ 0x9A27);
        let mut cut = || match random.below(8) {
            0 => random.below(all as u64 + 1) as usize,
            quarter => all * (quarter as usize % 5) / 4,
        };
        let (one, two) = (cut(), cut());
        (one != two).then_some((Of { first: one.min(two), all }, one.abs_diff(two)))
    }

    pub(super) fn write(&mut self, op: Op, is_part: bool) {
        let Some(at) = pick(&self.bufs, op.b) else { return };
        let Some((of, words)) = self.part(at, op.c, is_part) else { return };
        let act = if is_part { Act::Read } else { Act::Write };
        if let Some((on, at)) = self.choose(op, act) {
            self.write_on(on, at, of, words, op.c);
        }
    }

    /// Makes a kernel for memory.
    fn kernel(&self, buf: &Buf, after: Content, of: Of, done: Option<Done>, chance: u32) -> Look {
        let (ground, micros) = (Arc::clone(&self.stage.ground), self.stage.micros(chance));
        Look { ground, life: buf.memory.id.0, before: buf.content, doubt: None, after, done, micros, of }
    }

    /// Makes an access to some words.
    fn access(memory: Memory, act: Act, of: Of, words: usize) -> Access {
        let part = Part::new(of.first as u64 * 8, (of.first + words) as u64 * 8).map(|it| it.within(of.all as u64 * 8));
        Access { memory, act, part: part.unwrap_or(Part::WHOLE) }
    }

    fn write_on(&mut self, on: usize, at: usize, of: Of, words: usize, chance: u32) {
        let (Some(line), Some(buf)) = (self.streams[on].clone(), self.bufs[at].clone()) else { return };
        let is_whole = words == of.all;
        // A part keeps its content, because several streams write parts without an order among them.
        let mut after = match is_whole {
            true => Content::Words(mix(u64::from(self.stage.number()) ^ u64::from(chance) << 32)),
            false => buf.content,
        };
        let how = if self.stage.runs_kernels() { chance >> 8 & 7 } else { 5 + (chance >> 8 & 1) };
        let mut done = None;
        let work = match how {
            5 if is_whole => {
                after = Content::Bytes(chance as u8);
                Work::Fill(chance as u8)
            }
            5.. if is_whole || after != Content::Unknown => Work::FromHost(after.bytes(of.first, words)),
            5.. => Work::Fill(0xA5),
            _ => {
                done = self.flag();
                Work::Kernel(self.kernel(&buf, after, of, done.clone(), chance).kernel())
            }
        };
        let accesses = [Self::access(buf.memory, Act::Write, of, words)];
        if self.use_on(on, &[at], line.id, &accesses, work, done.as_ref())
            && let Some(buf) = &mut self.bufs[at]
        {
            buf.content = after;
        }
    }

    /// Launches work on a stream that uses memory at these places.
    fn use_on(
        &mut self,
        on: usize,
        places: &[usize],
        stream: StreamId,
        accesses: &[Access],
        work: Work,
        done: Option<&Done>,
    ) -> bool {
        self.before(on);
        let what = What::Launch { stream, accesses: accesses.into(), trust: Trust::None, name: None };
        let is_done = self.perform_with(what, Some(work));
        if is_done {
            self.after(on, done);
            for at in places {
                if let (Some(buf), Some(done)) = (&mut self.bufs[*at], done) {
                    buf.uses.join(&Before::default());
                    buf.uses.add(done);
                }
            }
        }
        is_done
    }

    pub(super) fn read(&mut self, op: Op, is_part: bool) {
        let Some((on, at)) = self.choose(op, Act::Read) else { return };
        let Some((of, words)) = self.part(at, op.c, is_part) else { return };
        let (Some(line), Some(buf)) = (self.streams[on].clone(), self.bufs[at].clone()) else { return };
        let accesses = [Self::access(buf.memory, Act::Read, of, words)];
        if op.c >> 8 & 3 != 0 && self.stage.runs_kernels() {
            let done = self.flag();
            let look = self.kernel(&buf, buf.content, of, done.clone(), op.c);
            self.use_on(on, &[at], line.id, &accesses, Work::Kernel(look.kernel()), done.as_ref());
            return;
        }
        let (ground, content) = (Arc::clone(&self.stage.ground), buf.content);
        let (has_memory, who) = (self.stage.has_memory(), format!("the host reads a{}", buf.memory.id.0));
        let look = move |bytes: Vec<u8>| {
            if has_memory {
                content.check(&bytes, of, &ground, &who);
            }
        };
        let struck = self.submitted(line.device);
        self.before(on);
        let what =
            What::Launch { stream: line.id, accesses: accesses.as_slice().into(), trust: Trust::None, name: None };
        let was_refused = self.refused.len();
        if self.perform_with(what, Some(Work::ToHost(Box::new(look)))) {
            self.after(on, None);
            // The host has waited for the copy.
            self.check_over(on, "copy_to_host");
            self.tell(What::StreamSynchronize { stream: line.id });
        } else if self.refused.len() == was_refused && self.submitted(line.device) > struck {
            // Only the wait failed. It is not known whether the copy counts as a use, or what comes after it.
            self.lose_track();
            if let Some(buf) = self.bufs[at].take() {
                self.let_go(buf);
            }
        }
    }

    /// Returns the number of submissions to a device.
    fn submitted(&self, device: usize) -> u64 {
        self.stage.devices[device].driver.device().counts()[millpond_driver::CallKind::Submit]
    }

    pub(super) fn copy(&mut self, op: Op) {
        let (Some(on), Some(from), Some(to)) =
            (pick(&self.streams, op.a), pick(&self.bufs, op.b), pick(&self.bufs, op.c >> 8))
        else {
            return;
        };
        let (Some(line), Some(source), Some(target)) =
            (self.streams[on].clone(), self.bufs[from].clone(), self.bufs[to].clone())
        else {
            return;
        };
        let words = source.words.min(target.words);
        let part = |buf: &Buf, act| Self::access(buf.memory, act, Of { first: 0, all: buf.words }, words);
        let accesses = [part(&source, Act::Read), part(&target, Act::Write)];
        if from == to {
            return;
        }
        if !op.c.is_multiple_of(4) {
            self.order(on, &accesses);
        }
        // Of large memory only some words are known. Which ones depends on its size.
        let is_alike = source.words == target.words || source.words <= 4096;
        let content = match words == target.words && (is_alike || matches!(source.content, Content::Bytes(_))) {
            true => source.content,
            false => Content::Unknown,
        };
        if op.c >> 4 & 3 == 0 && self.stage.runs_kernels() && source.words == target.words {
            // A kernel that reads the source and writes the target.
            let done = self.flag();
            let after = Content::Words(mix(u64::from(self.stage.number())));
            let of = Of { first: 0, all: words };
            let look = self.kernel(&source, after, of, done.clone(), op.c);
            let work = Work::Kernel(look.kernel());
            if self.use_on(on, &[from, to], line.id, &accesses, work, done.as_ref())
                && let Some(buf) = &mut self.bufs[to]
            {
                buf.content = after;
            }
            return;
        }
        self.before(on);
        if self.perform(What::Copy { stream: line.id, accesses: accesses.as_slice().into() }) {
            self.after(on, None);
            if let Some(buf) = &mut self.bufs[to] {
                buf.content = content;
            }
        }
    }

    pub(super) fn free(&mut self, op: Op) {
        let Some((on, at)) = self.choose(op, Act::Write) else { return };
        let (Some(line), Some(buf)) = (self.streams[on].clone(), self.bufs[at].take()) else { return };
        let range = self.release(&buf);
        if line.device != buf.device {
            let freed = self.run.stream_of(line.id).zip(range).map(|(stream, (at, _))| stream.free_address(at));
            if freed.is_some_and(|freed| freed.is_ok()) {
                finding("memory is freed on a stream of another device");
            }
            return self.restore(at, buf, range);
        }
        self.before(on);
        let (memory, stream) = (buf.memory, line.id);
        let what = What::Free { memory, stream, trust: Trust::None };
        let by_address = (op.kind == Kind::FreeAddress && buf.pool.is_some() && line.device == buf.device)
            .then(|| self.run.stream_of(stream).cloned().zip(range));
        let is_done = match by_address.flatten() {
            Some((stream, (address, _))) => {
                let freed = stream.free_address(address);
                let is_done = self.perform_by(what, Act::Free, freed);
                if is_done {
                    // The buffer owns nothing any more.
                    drop(self.run.take_buffer(memory));
                }
                is_done
            }
            None => self.perform(what),
        };
        if !is_done {
            return self.restore(at, buf, range);
        }
        self.after(on, None);
        let at = place(&self.stale, op.c);
        self.stale[at] = Some(memory);
    }

    pub(super) fn drop_buf(&mut self, op: Op) {
        if let Some(buf) = pick(&self.bufs, op.b).and_then(|at| self.bufs[at].take()) {
            self.let_go(buf);
        }
    }

    pub(super) fn free_now(&mut self, op: Op) {
        let Some(at) = pick(&self.bufs, op.b) else { return };
        if !op.c.is_multiple_of(3)
            && let Some(device) = self.bufs[at].as_ref().map(|buf| buf.device)
        {
            self.synchronize(device);
        }
        let Some(buf) = self.bufs[at].take() else { return };
        let range = self.release(&buf);
        if !self.perform(What::FreeNow { memory: buf.memory }) {
            return self.restore(at, buf, range);
        }
        let at = place(&self.stale, op.c);
        self.stale[at] = Some(buf.memory);
    }

    /// Uses memory that is gone.
    pub(super) fn use_stale(&mut self, op: Op) {
        let (Some(on), Some(at)) = (pick(&self.streams, op.a), pick(&self.stale, op.b)) else { return };
        let (Some(line), Some(memory)) = (self.streams[on].clone(), self.stale[at]) else { return };
        let accesses = [Access::whole(memory, Act::Write)];
        self.before(on);
        let what =
            What::Launch { stream: line.id, accesses: accesses.as_slice().into(), trust: Trust::None, name: None };
        if self.perform_with(what, Some(Work::Fill(0xDE))) {
            finding("a use of memory that is gone is accepted");
        }
    }

    pub(super) fn give(&mut self, op: Op) {
        let (Some(at), slot) = (pick(&self.bufs, op.b), op.c as usize % self.stage.mail.len()) else { return };
        let Some(buf) = self.bufs[at].clone().filter(|it| it.launched_by.is_none() && !it.is_in_graph) else { return };
        let mut after = None;
        if let Some(on) = pick(&self.streams, op.a).filter(|_| op.c >> 8 & 7 != 0) {
            let all = [Access::whole(buf.memory, Act::Write)];
            self.order(on, &all);
            let is_ordered =
                self.streams[on].as_ref().map(|line| line.id).is_some_and(|id| self.misses(id, &all).is_none());
            after = self
                .event_of(on)
                .filter(|_| is_ordered)
                .and_then(|it| Some((self.run.event_of(it.id)?.clone(), it.before)));
        }
        self.bufs[at] = None;
        let Some(buffer) = self.run.take_buffer(buf.memory) else { return };
        self.tell(What::Drop { memory: buf.memory });
        self.stage.say(self.number, format_args!("# a{} is given away, to slot {slot}", buf.memory.id.0));
        let Buf { memory, device, content, uses, .. } = buf;
        let mail = Mail { buffer, life: memory.id.0, device, content, uses, after };
        let old = lock(&self.stage.mail[slot]).replace(mail);
        if let Some(old) = old {
            self.stage.ground.release(old.life, old.buffer.address(), &old.uses);
            drop(old);
        }
    }

    /// Takes memory that another thread gave, as if a stream of this thread had allocated it.
    pub(super) fn take(&mut self, op: Op) {
        let slot = op.c as usize % self.stage.mail.len();
        let Some(Mail { buffer, life, device, content, uses, after }) = lock(&self.stage.mail[slot]).take() else {
            return;
        };
        let (stream, memory) = (StreamId(self.stage.number()), Memory::first(life));
        // This thread may have used the same name before. Each name is given only once.
        let memory = Memory { generation: u64::from(stream.0), ..memory };
        let words = buffer.bytes() as usize / 8;
        self.tell(What::StreamCreate { stream, role: StreamRole::NonBlocking, device: device_id(device) });
        self.tell(What::Alloc { memory, pool: PoolId(0), stream, bytes: buffer.bytes(), name: None });
        self.stage.say(self.number, format_args!("# a{life} is taken from slot {slot}"));
        self.run.give_buffer(memory, (stream, device_id(device)), buffer);
        if let Some((event, _)) = after {
            let id = EventId(self.stage.number());
            self.tell(What::EventRecord { event: id, stream, external: false, kind: EventKind::Completion });
            self.run.give_event(id, event);
            self.stubs.insert(stream, id);
        }
        let (launched_by, is_in_graph, pool) = (None, false, None);
        let at = place(&self.bufs, op.b);
        self.put(at, Buf { memory, words, device, pool, content, launched_by, is_in_graph, uses });
    }

    /// Returns `true` if kernels of graphs are closures, which they are not on CUDA.
    pub(super) fn runs_closures(&self) -> bool {
        matches!(self.stage.kind, DeviceKind::Host | DeviceKind::Seeded)
    }
}
