//! Parts of buffers: several streams write and look at different words of one, with no order among them.
//!
//! What is written is what is there, so that the content of a buffer stays one; meanwhile something else is.

use millpond::View;

use crate::life::Expect;
use crate::op::Op;
use crate::party::{Act, Part};
use crate::random::Random;
use crate::settings::DeviceKind;
use crate::thread::{Thread, pick};
use crate::work::{Content, Kernel};
use crate::world::Held;

/// Some words of a buffer, and some others of it.
struct Chosen {
    held: Held,
    /// The place of the buffer.
    at: usize,
    view: View<u64>,
    part: Part,
    others: Part,
}

impl Thread<'_> {
    /// A stream and a part, mostly one that ends where others begin. Other processes take a part for all words: what
    /// they were lent has none.
    fn choose(&mut self, op: Op, act: Act) -> Option<Chosen> {
        let (held, at) = (self.stream(op.a)?, pick(&self.bufs, op.b)?);
        let buf = self.bufs[at].as_ref().filter(|buf| !buf.life.is_lent && buf.life.from.is_none())?;
        let (len, mut random) = (buf.buffer.len(), Random::new(u64::from(op.c) ^ 0x9A27));
        let cut = |random: &mut Random| match random.below(8) {
            0 => random.below(len as u64 + 1) as usize,
            quarter => len * (quarter as usize % 5) / 4,
        };
        let (one, two) = (cut(&mut random), cut(&mut random));
        let part = Part { from: one.min(two), to: one.max(two) };
        let others = match part.from {
            0 => Part { from: part.to, to: len },
            from => Part { from: 0, to: from },
        };
        let view = buf.buffer.view();
        if part.from == part.to {
            return None;
        }
        if random.chance(70) {
            self.order_before(&held, at, act, part);
        }
        self.is_safe(&held, at, act).then_some(Chosen { held, at, view, part, others })
    }

    /// The part, what is expected, and a kernel that looks at it and leaves what it found.
    fn about(&self, it: &Chosen, act: Act, chance: u32) -> Option<(View<u64>, Expect, Kernel)> {
        let view = it.view.slice(it.part.from..it.part.to).ok()?;
        let (life, knows) = (&self.bufs[it.at].as_ref()?.life, self.before_next(&it.held.line));
        let expect = self.expect_of(&it.held, life, &knows, act, it.part);
        let kernel = self.kernel(life, life.content, self.flag(), chance);
        Some((view, expect, Kernel { part: Some((it.part.from, it.view.len())), ..kernel }))
    }

    pub(crate) fn write_part(&mut self, op: Op) {
        let Some(it) = self.choose(op, Act::Write) else { return };
        let Some((view, expect, kernel)) = self.about(&it, Act::Write, op.c) else { return };
        let (line, id, part) = (it.held.line.chain, kernel.life, it.part);
        let call = format!("write of b{id}[{}..{}] on s{line}", part.from, part.to);
        let is_known = !matches!(kernel.after, Content::Unknown);
        match op.c >> 8 & 3 {
            0 if is_known => self.write_again(&it, view, kernel.after, expect, &call),
            1 if it.others.from < it.others.to => self.copy_within(&it, view, &kernel, op.c),
            _ if self.world.kind == DeviceKind::Cuda => {
                if is_known {
                    self.write_again(&it, view, kernel.after, expect, &call);
                }
            }
            _ => {
                self.say(format_args!("s{line}.launch(b{id}.slice({}..{})?.write(), ..)?;", part.from, part.to));
                let done = kernel.done.clone();
                let wrote = it.held.stream.launch(view.write(), move |x| kernel.write(x));
                self.judge(&call, expect, wrote.as_ref().err());
                if wrote.is_ok() {
                    self.used(&it.held, it.at, part, true, done);
                }
            }
        }
    }

    /// Fills a part with something else, and writes what was there.
    fn write_again(&mut self, it: &Chosen, view: View<u64>, content: Content, expect: Expect, call: &str) {
        let (line, part) = (it.held.line.chain, it.part);
        self.say(format_args!("s{line}.memset(part.write(), 0xA5)?; // {call}"));
        let filled = it.held.stream.memset(view.write(), 0xA5);
        self.judge(call, expect, filled.as_ref().err());
        if filled.is_ok() {
            self.used(&it.held, it.at, part, true, None);
            self.restore(it, view, part, content, call);
        }
    }

    /// What was in a part is written there again.
    fn restore(&mut self, it: &Chosen, view: View<u64>, part: Part, content: Content, call: &str) {
        self.before_next(&it.held.line);
        self.say(format_args!("s{}.copy_from_host(part.write(), &words)?; // {call}", it.held.line.chain));
        let words = content.words_from(part.from, part.to - part.from);
        let restored = it.held.stream.copy_from_host(view.write(), &words);
        self.judge(call, Expect::Accepted, restored.as_ref().err());
        match (&restored, &mut self.bufs[it.at]) {
            (Ok(()), _) => self.used(&it.held, it.at, part, true, None),
            (Err(_), Some(buf)) => buf.life.content = Content::Unknown,
            (Err(_), None) => {}
        }
    }

    /// A part is copied over another one of the same buffer, and what was there is written again.
    fn copy_within(&mut self, it: &Chosen, from: View<u64>, kernel: &Kernel, chance: u32) {
        let len = (it.part.to - it.part.from).min(it.others.to - it.others.from);
        let source = Part { to: it.part.from + len, ..it.part };
        let target = Part { to: it.others.from + len, ..it.others };
        if chance >> 10 & 1 == 0 {
            self.order_before(&it.held, it.at, Act::Write, target);
        }
        let (Some(buf), knows) = (&self.bufs[it.at], self.before_next(&it.held.line)) else { return };
        let both = [(Act::Read, source), (Act::Write, target)];
        let expect = both.map(|(act, part)| self.expect_of(&it.held, &buf.life, &knows, act, part));
        let (Ok(from), Ok(to)) = (from.slice(..len), it.view.slice(target.from..target.to)) else { return };
        let (line, id) = (it.held.line.chain, kernel.life);
        let call = format!("copy of b{id}[{}..] to b{id}[{}..], {len} words, on s{line}", source.from, target.from);
        self.say(format_args!("s{line}.copy(..)?; // {call}"));
        let copied = it.held.stream.copy(from.read(), to.write());
        self.judge(&call, Expect::of_all(expect), copied.as_ref().err());
        if copied.is_ok() {
            self.used(&it.held, it.at, source, false, None);
            self.used(&it.held, it.at, target, true, None);
            if !matches!(kernel.after, Content::Unknown) {
                self.restore(it, to, target, kernel.after, &call);
            }
        }
    }

    pub(crate) fn read_part(&mut self, op: Op) {
        let Some(it) = self.choose(op, Act::Read) else { return };
        let Some((view, expect, kernel)) = self.about(&it, Act::Read, op.c) else { return };
        let (line, id, part) = (it.held.line.chain, kernel.life, it.part);
        let call = format!("read of b{id}[{}..{}] on s{line}", part.from, part.to);
        if op.c >> 8 & 3 != 0 && self.world.kind != DeviceKind::Cuda {
            self.say(format_args!("s{line}.launch(b{id}.slice({}..{})?.read(), ..)?;", part.from, part.to));
            let done = kernel.done.clone();
            let read = it.held.stream.launch(view.read(), move |x| kernel.read(x));
            self.judge(&call, expect, read.as_ref().err());
            if read.is_ok() {
                self.used(&it.held, it.at, part, false, done);
            }
            return;
        }
        let knows = self.before_next(&it.held.line);
        self.say(format_args!("s{line}.copy_to_host(b{id}.slice({}..{})?.read())?;", part.from, part.to));
        let before = self.submitted(it.held.line.device);
        let words = it.held.stream.copy_to_host(view.read());
        self.judge(&call, expect, words.as_ref().err());
        self.may_be_read(&it.held, (it.at, part), before, words.as_ref().err());
        if let Ok(words) = words {
            if self.world.has_memory() && kernel.doubt.as_ref().is_none_or(|doubt| !doubt.is_true()) {
                let who = format!("the host reads b{id}");
                kernel.before.check_part(&words, (part.from, it.view.len()), &self.world.oracle, &who);
            }
            self.used(&it.held, it.at, part, false, None);
            let over = self.end_of(&it.held.line, knows);
            self.learn(it.held.line.device, &over, "copy_to_host");
        }
    }
}
