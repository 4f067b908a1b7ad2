//! The end of imports: memory is returned, requested back, or left by a process that is killed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::importer::STREAMS;
use super::life::Expect;
use super::loans::Importer;
use super::party::Act;
use super::world::Buf;
use super::{Thread, pick};
use crate::bytes::Content;
use crate::import::import;
use crate::kind::Kind;
use crate::op::Op;
use crate::random::{Random, mix};

impl Thread<'_> {
    /// Lets an importer return an import.
    pub(super) fn give_return(&mut self, op: Op) {
        let Some((who, at, loan)) = self.loan(op) else { return };
        let (on, name) = (op.c as usize % STREAMS, loan.name);
        if op.c >> 3 & 1 == 0 {
            self.unpark(loan.life, 1);
            self.ask(who, &format!("drop {name}"), Expect::Accepted);
        } else {
            // The free must come after the importer's own uses, but not after uses that it knew of at the import.
            let is_right = self.importers[who].as_ref().is_some_and(|it| loan.is_done(&it.knows(on)));
            let expect = if is_right { Expect::Accepted } else { Expect::Refused };
            self.unpark(loan.life, 1);
            if self.ask(who, &format!("free {on} {name}"), expect).is_none() {
                return;
            }
            self.used_there(who, at, on, Act::Free);
        }
        self.importers[who].iter_mut().for_each(|it| drop(it.loans.remove(at)));
    }

    /// Releases the addresses of memory that was dropped here, if at most `holders` importers still have it.
    fn unpark(&mut self, id: u32, holders: usize) {
        let loans = self.importers.iter().flatten().flat_map(|it| &it.loans);
        if loans.filter(|loan| loan.life == id).count() > holders {
            return;
        }
        if let Some(at) = self.parked.iter().position(|(life, _)| life.id == id) {
            let (life, address) = self.parked.swap_remove(at);
            self.world.stage.ground.release(life.id, address, &life.kernels());
        }
    }

    /// Orders work: an importer synchronises, orders its streams, waits, or is waited for.
    pub(super) fn ask_importer(&mut self, op: Op) {
        let Some(who) = pick(&self.importers, op.a) else { return };
        let on = op.c as usize % STREAMS;
        match op.c >> 3 & 7 {
            0 | 1 => {
                if self.ask(who, &format!("sync {on}"), Expect::Accepted).is_some() {
                    self.importers[who].iter_mut().for_each(|importer| importer.learn(on));
                }
            }
            2 => {
                let other = (on + 1) % STREAMS;
                self.ask(who, &format!("order {on} {other}"), Expect::Accepted);
                let Some(importer) = &self.importers[who] else { return };
                let knows = importer.knows(other);
                crate::finding::lock(&importer.lines[on].past).join(&knows);
            }
            3 | 4 => {
                if let Some(held) = self.stream(op.b) {
                    self.order_importer(who, on, &held);
                }
            }
            5 => {
                let Some((event, past)) = self.event_foreign(who, on) else { return };
                self.say(format_args!("event.synchronize()?; // of another process, after {past:?}"));
                let waited = event.synchronize();
                self.judge("Event::synchronize", Expect::Accepted, waited.as_ref().err());
                if waited.is_ok() {
                    self.learn(&past, "Event::synchronize");
                }
            }
            _ => {
                if let (Some(held), Some((event, past))) = (self.stream(op.b), self.event_foreign(who, on)) {
                    self.wait_for(&held, &event, &past);
                }
            }
        }
    }

    /// Lets an importer return its own memory. A free is right only if this process has let go of it.
    pub(super) fn repay(&mut self, op: Op) {
        let Some(who) = pick(&self.importers, op.a) else { return };
        let Some(importer) = &self.importers[who] else { return };
        let Some(at) = (op.b as usize).checked_rem(importer.own.len()) else { return };
        let name = importer.own[at];
        let is_held = self.bufs.iter().flatten().any(|buf| buf.life.id == name);
        let on = op.c as usize % STREAMS;
        let (line, expect) = match op.c >> 3 & 1 {
            0 => (format!("drop {name}"), Expect::Accepted),
            _ if is_held => (format!("free {on} {name}"), Expect::Refused),
            _ => (format!("free {on} {name}"), Expect::Either),
        };
        if self.ask(who, &line, expect).is_some() {
            self.importers[who].iter_mut().for_each(|it| it.own.retain(|own| *own != name));
        }
    }

    /// Kills the exporter of a ticket before the ticket is used, or leaves the ticket unused.
    pub(super) fn leave_ticket(&mut self, who: usize, answer: &str) {
        if self.world.stage.number() & 1 == 0 {
            return;
        }
        self.kill(who);
        let refused = import(&self.device(), &Self::ticket_of(answer));
        self.judge("import from a process that was killed", Expect::Refused, refused.as_ref().err());
    }

    /// Gives an importer many commands, and kills it while it does them.
    pub(super) fn flood(&mut self, op: Op) {
        let Some(who) = pick(&self.importers, op.a) else { return };
        let mut random = Random::new(u64::from(op.c));
        let on = random.below(STREAMS as u64) as usize;
        let mut lines = Vec::new();
        let loans = self.importers[who].as_ref().map(|it| it.loans.clone()).unwrap_or_default();
        for loan in loans {
            if self.ready(who, &loan, on, Act::Write, true) != Some(true) {
                continue;
            }
            if let Some(life) = self.life_of(loan.life) {
                (life.content, life.doubt) = (Content::Unknown, None);
            }
            let content = Content::Words(mix(random.number())).to_text();
            lines.push(format!("fill {on} {} {content} {}", loan.name, random.below(800)));
            if random.chance(40) {
                lines.push(format!("{} {}", if random.chance(50) { "drop" } else { "free 0" }, loan.name));
            }
        }
        if let Some(buf) = pick(&self.bufs, op.b).and_then(|at| self.bufs[at].as_mut())
            && let Ok(ticket) = buf.buffer.export()
        {
            buf.life.is_lent = true;
            lines.push(format!("import {} {ticket}", self.world.stage.number()));
        }
        if let Some(held) = self.stream(op.b)
            && let Some((event, _)) = self.event_of(&held)
            && let Ok(ticket) = event.export()
        {
            lines.push(format!("wait {on} {ticket}"));
        }
        lines.extend([format!("alloc {on} 0 5000"), "export 0".to_owned(), format!("record {on}")]);
        self.collect(who);
        let Some(importer) = &mut self.importers[who] else { return };
        let shift = random.below(lines.len() as u64) as usize;
        lines.rotate_left(shift);
        let lines: Vec<String> = lines.into_iter().take_while(|line| line != "export 0" || shift == 0).collect();
        self.world.stage.say(self.number, format_args!("// process {} gets {lines:?}", importer.process.id()));
        lines.iter().for_each(|line| importer.process.tell(line));
        std::thread::sleep(Duration::from_micros(random.below(2500)));
        self.kill(who);
    }

    pub(super) fn end_importer(&mut self, op: Op) {
        let Some(who) = pick(&self.importers, op.a) else { return };
        match op.kind {
            Kind::Kill => self.kill(who),
            _ => self.hang_up(who),
        }
    }

    /// Removes an importer. Its imports end with it.
    fn part(&mut self, who: usize) -> Option<Importer> {
        let mut importer = self.importers[who].take()?;
        let loans = std::mem::take(&mut importer.loans);
        loans.iter().for_each(|loan| self.unpark(loan.life, 0));
        Some(importer)
    }

    /// Kills an importer. The content of memory that it may not have written is then unknown.
    fn kill(&mut self, who: usize) {
        let Some(importer) = self.part(who) else { return };
        self.say(format_args!("// process {} is killed", importer.process.id()));
        importer.party.is_gone.store(true, Ordering::Release);
        importer.process.kill();
        let lives = self.bufs.iter_mut().flatten().map(|buf| &mut buf.life);
        for life in lives.chain(self.parked.iter_mut().map(|(life, _)| life)) {
            if life.doubt.as_ref().is_some_and(|doubt| doubt.is_true()) {
                life.content = Content::Unknown;
            }
        }
    }

    /// Gives an importer no more commands. It ends by itself after all earlier commands.
    fn hang_up(&mut self, who: usize) {
        self.collect(who);
        let Some(mut importer) = self.part(who) else { return };
        self.say(format_args!("// process {} is left alone", importer.process.id()));
        (0..STREAMS).for_each(|on| importer.learn(on));
        importer.process.hang_up();
        importer.party.is_gone.store(true, Ordering::Release);
    }

    /// Drops all imports of an exporter's memory. Its device lives as long as an import exists, and until the host
    /// knows that the uses of the imports have completed.
    fn drop_imports_of(&mut self, who: usize) {
        let Some(party) = self.importers[who].as_ref().map(|it| std::sync::Arc::clone(&it.party)) else { return };
        let is_of = |buf: &mut Buf| buf.life.from.as_ref().is_some_and(|from| std::sync::Arc::ptr_eq(from, &party));
        let bufs: Vec<Buf> = self.bufs.iter_mut().filter_map(|buf| buf.take_if(is_of)).collect();
        for buf in bufs {
            self.say(format_args!("drop(b{});", buf.life.id));
            self.world.stage.ground.release(buf.life.id, buf.buffer.address(), &buf.life.kernels());
            drop(buf);
        }
        self.synchronize();
    }

    /// Ends the importers of the program. Most of them serve the next program.
    pub(super) fn end_importers(&mut self, chance: u32) {
        let mut random = Random::new(u64::from(chance));
        for who in 0..self.importers.len() {
            match random.below(12) {
                0 => self.kill(who),
                1 => self.hang_up(who),
                _ => {
                    self.collect(who);
                    self.drop_imports_of(who);
                    let Some(mut importer) = self.part(who) else { continue };
                    self.say(format_args!("// process {} has nothing any more", importer.process.id()));
                    importer.process.tell("reset");
                    let answer = importer.process.answer();
                    if answer != "ok" {
                        crate::finding::finding(&format!("an importer that should begin anew says {answer}"));
                    }
                    importer.party.is_gone.store(true, Ordering::Release);
                    importer.process.put();
                }
            }
        }
    }
}
