//! Memory that passes between processes: exported, used there, and ordered back; in right and wrong orders.
//!
//! The library checks each process against what it knew of the others at the import. So wrong operations are made there
//! only if they must be refused. Whatever the library cannot see is ordered first, by events, or left out. The naive
//! order has an importer's streams like any other. An importer does its commands at once, so with one thread all of its
//! verdicts are known.

use std::sync::Arc;

use millpond::share::Ticket;
use millpond_reach::Past;

use super::importer::STREAMS;
use super::life::{Expect, Life};
use super::oracle::{Line, Use};
use super::party::{Act, Doubt, Party};
use super::process::Process;
use super::world::{Buf, Held};
use super::{Thread, pick};
use crate::bytes::Content;
use crate::finding::{finding, lock};
use crate::import::import;
use crate::maker::{Tie, place};
use crate::op::Op;
use crate::random::{Random, mix};

/// Another process.
#[derive(Debug)]
pub(super) struct Importer {
    pub(super) process: Process,
    pub(super) party: Arc<Party>,
    /// Its streams.
    pub(super) lines: Vec<Arc<Line>>,
    /// The knowledge of its host.
    pub(super) host: Past,
    /// Its imports.
    pub(super) loans: Vec<Loan>,
    /// Its own allocations, by the numbers of their lives.
    pub(super) own: Vec<u32>,
    /// `true` if the answer of its last command was not read yet.
    pub(super) owes: bool,
}

/// An import of an importer.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    /// The number of the importer's handle.
    pub(super) name: u32,
    /// The life of the memory.
    pub(super) life: u32,
    /// The uses that the importer knew at the import, and must come after.
    seen: Vec<Use>,
    /// The uses by other processes that were not over at the import. The importer may have learned of these, too.
    open: Vec<Use>,
    /// The importer's uses.
    uses: Vec<Use>,
}

/// A ticket.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    ticket: Ticket,
    life: u32,
    /// The knowledge of the host when the ticket was made.
    base: Past,
    is_used: bool,
}

impl Loan {
    /// Returns `true` if all uses of the import come before.
    pub(super) fn is_done(&self, knows: &Past) -> bool {
        self.uses.iter().all(|it| knows.covers(it.point))
    }
}

impl Importer {
    /// Returns what the next operation of a stream comes after.
    pub(super) fn knows(&self, on: usize) -> Past {
        let mut knows = self.lines[on].now();
        knows.join(&self.host);
        knows
    }

    /// Notes that the host knows that all work of a stream has completed.
    pub(super) fn learn(&mut self, on: usize) {
        let knows = self.knows(on);
        self.host.join(&knows);
        lock(&self.party.known).join(&knows);
    }

    /// Returns the chains of its streams.
    fn chains(&self) -> Vec<usize> {
        self.lines.iter().map(|line| line.chain).collect()
    }
}

impl Thread<'_> {
    /// Gives an importer a command, and judges the answer. Returns it unless the importer refused.
    pub(super) fn ask(&mut self, who: usize, line: &str, expect: Expect) -> Option<String> {
        self.collect(who);
        let Some(importer) = &mut self.importers[who] else { return None };
        importer.process.tell(line);
        let answer = importer.process.answer();
        let call = format!("`{line}` of process {}", importer.process.id());
        self.say(format_args!("// {call}: {answer}"));
        self.judge_answer(&call, expect, &answer).then_some(answer)
    }

    /// Reads an answer that was not waited for.
    pub(super) fn collect(&mut self, who: usize) {
        let Some(importer) = self.importers[who].as_mut().filter(|it| it.owes) else { return };
        importer.owes = false;
        let answer = importer.process.answer();
        self.judge_answer("the last command of an importer", Expect::Accepted, &answer);
    }

    fn judge_answer(&self, call: &str, expect: Expect, answer: &str) -> bool {
        if answer.starts_with("wrong") {
            finding(&format!("{call}: {answer}"));
        }
        let is_done = answer.starts_with("ok") || answer == "right";
        match (is_done, expect) {
            (true, Expect::Refused) => finding(&format!("{call}: accepted, and it is wrong")),
            (false, Expect::Accepted) => finding(&format!("{call}: refused, and it is right: {answer}")),
            _ => {}
        }
        if !is_done {
            self.world.stage.ground.figures.refusals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        is_done
    }

    /// Returns the ticket in an answer.
    pub(super) fn ticket_of(answer: &str) -> Ticket {
        let text = answer.strip_prefix("ok ").unwrap_or(answer);
        text.parse().unwrap_or_else(|error| finding(&format!("`{answer}` has no ticket: {error}")))
    }

    pub(super) fn spawn(&mut self, op: Op) {
        let at = op.a as usize % self.importers.len();
        if self.importers[at].is_some() {
            return;
        }
        let process = Process::take();
        self.say(format_args!("// process {} comes", process.id()));
        let lines = (0..STREAMS).map(|_| {
            let is_here = false;
            self.world.oracle.open(is_here, Tie::Free, Past::default())
        });
        let (lines, party) = (lines.collect(), Arc::default());
        let (host, loans, own) = Default::default();
        self.importers[at] = Some(Importer { process, party, lines, host, loans, own, owes: false });
    }

    /// Returns a life of this thread, or one whose buffer was dropped while others had it.
    pub(super) fn life_of(&mut self, id: u32) -> Option<&mut Life> {
        let live = self.bufs.iter_mut().flatten().map(|buf| &mut buf.life);
        live.chain(self.parked.iter_mut().map(|(life, _)| life)).find(|life| life.id == id)
    }

    /// Returns `true` if an importer has this memory.
    pub(super) fn is_lent_out(&self, life: &Life) -> bool {
        self.importers.iter().flatten().any(|it| it.loans.iter().any(|loan| loan.life == life.id))
    }

    /// Returns `true` if the uses by others that this process does not know of come before a use. If they do not, tries
    /// to order them.
    pub(super) fn is_safe(&mut self, held: &Held, at: usize, act: Act) -> bool {
        let is_open = |thread: &Self| {
            let knows = thread.before_next(&held.line);
            let Some(buf) = &thread.bufs[at] else { return true };
            let loans = thread.importers.iter().flatten().flat_map(|it| &it.loans);
            let mut uses = loans.filter(|loan| loan.life == buf.life.id).flat_map(|loan| &loan.uses);
            uses.any(|it| it.meets(act) && !knows.covers(it.point))
        };
        if is_open(self) {
            self.order_foreign(held, at);
        }
        !is_open(self)
    }

    /// Orders a stream after all uses of a buffer by other processes, by events of theirs.
    pub(super) fn order_foreign(&mut self, held: &Held, at: usize) {
        for who in 0..self.importers.len() {
            for on in 0..STREAMS {
                let knows = self.before_next(&held.line);
                let (Some(importer), Some(buf)) = (&self.importers[who], &self.bufs[at]) else { break };
                let chain = importer.lines[on].chain;
                let points = buf.life.uses.iter().map(|it| it.point).chain([buf.life.born]);
                if points.filter(|point| point.chain == chain).all(|point| knows.covers(point)) {
                    continue;
                }
                if let Some((event, past)) = self.event_foreign(who, on) {
                    self.wait_for(held, &event, &past);
                }
            }
        }
    }

    /// Imports an event of another process. Returns it with what comes before it.
    pub(super) fn event_foreign(&mut self, who: usize, on: usize) -> Option<(millpond::Event, Past)> {
        let answer = self.ask(who, &format!("record {on}"), Expect::Accepted)?;
        let importer = self.importers[who].as_ref()?;
        let mut past = importer.knows(on);
        // The event is not believed about streams of this process.
        self.world.oracle.lines().iter().for_each(|line| past.forget(line.chain));
        lock(&importer.party.reached).join(&past);
        let event = self.device().import_event(&Self::ticket_of(&answer));
        self.judge("import_event", Expect::Accepted, event.as_ref().err());
        event.ok().map(|event| (event, past))
    }

    /// Orders a stream of an importer after what a stream of this process comes after.
    pub(super) fn order_importer(&mut self, who: usize, on: usize, held: &Held) {
        let Some((event, mut past)) = self.event_of(held) else { return };
        let ticket = event.export();
        self.judge("Event::export", Expect::Accepted, ticket.as_ref().err());
        let Ok(ticket) = ticket else { return };
        if self.ask(who, &format!("wait {on} {ticket}"), Expect::Accepted).is_some()
            && let Some(importer) = &self.importers[who]
        {
            importer.chains().into_iter().for_each(|chain| past.forget(chain));
            lock(&importer.lines[on].past).join(&past);
        }
    }

    pub(super) fn lend(&mut self, op: Op) {
        let (Some(held), Some(at), Some(who)) =
            (self.stream(op.a), pick(&self.bufs, op.b), pick(&self.importers, op.c))
        else {
            return;
        };
        let mut random = Random::new(u64::from(op.c));
        let how = random.below(4);
        self.order(&held, at);
        if how == 0 {
            self.synchronize();
        }
        let base = self.host();
        let Some(buf) = &mut self.bufs[at] else { return };
        let expect = match buf.life.is_shareable && buf.life.from.is_none() {
            true => Expect::Accepted,
            false => Expect::Refused,
        };
        let id = buf.life.id;
        self.world.stage.say(self.number, format_args!("let ticket = b{id}.export()?;"));
        let ticket = buf.buffer.export();
        buf.life.is_lent |= ticket.is_ok();
        self.judge(&format!("export of b{id}"), expect, ticket.as_ref().err());
        let Ok(ticket) = ticket else { return };
        let mut offered = Offered { ticket, life: id, base, is_used: false };
        if random.chance(85) {
            let on = random.below(STREAMS as u64) as usize;
            if how == 1 {
                self.order_importer(who, on, &held);
            }
            self.import_there(who, &mut offered);
            if how == 2 {
                self.order_importer(who, on, &held);
            }
        }
        if !offered.is_used || random.chance(20) {
            let to = place(&self.tickets, op.a);
            self.tickets[to] = Some(offered);
        }
    }

    /// Lets an importer import.
    fn import_there(&mut self, who: usize, offered: &mut Offered) {
        let name = self.world.stage.number();
        let live = self.bufs.iter().flatten().find(|buf| buf.life.id == offered.life);
        let seen = live.map(|buf| {
            let born = Use { point: buf.life.born, writes: true, frees: false, party: None, done: None };
            let uses = buf.life.uses.iter().filter(|it| it.party.is_none()).cloned();
            let is_open = |it: &&Use| it.party.as_ref().is_some_and(|party| !party.is_over(it.point));
            let open: Vec<Use> = buf.life.uses.iter().filter(is_open).cloned().collect();
            (uses.chain([born]).filter(|it| !offered.base.covers(it.point)).collect(), open)
        });
        let expect = match seen.is_some() && !offered.is_used {
            true => Expect::Accepted,
            false => Expect::Refused,
        };
        if self.ask(who, &format!("import {name} {}", offered.ticket), expect).is_some()
            && let (Some(importer), Some((seen, open))) = (&mut self.importers[who], seen)
        {
            offered.is_used = true;
            importer.loans.push(Loan { name, life: offered.life, seen, open, uses: Vec::new() });
        }
    }

    pub(super) fn redeem(&mut self, op: Op) {
        let (Some(at), Some(who)) = (pick(&self.tickets, op.a), pick(&self.importers, op.b)) else { return };
        let Some(mut offered) = self.tickets[at].take() else { return };
        if op.c.is_multiple_of(8) {
            self.say(format_args!("device.revoke(&ticket);"));
            let was_good = self.device().revoke(&offered.ticket);
            if was_good && offered.is_used {
                finding("a ticket that was used can be revoked");
            }
            offered.is_used = true;
        }
        self.import_there(who, &mut offered);
        if op.c & 1 == 0 {
            self.tickets[at] = Some(offered);
        }
    }

    /// Returns `true` if a use by an importer's stream is right there. Orders what the library does not see there, and
    /// the rest at random. Returns `None` if the former cannot be ordered.
    pub(super) fn ready(&mut self, who: usize, loan: &Loan, on: usize, act: Act, orders: bool) -> Option<bool> {
        let look = |thread: &mut Self| {
            let life = thread.life_of(loan.life)?.clone();
            let importer = thread.importers[who].as_ref()?;
            let knows = importer.knows(on);
            let is_among = |list: &[Use], it: &Use| list.iter().any(|other| other.point == it.point);
            let is_open = |it: &&Use| it.meets(act) && !knows.covers(it.point);
            let is_right = !loan.seen.iter().any(|it| is_open(&it)) && !loan.uses.iter().any(|it| is_open(&it));
            // The uses that the library does not know of there. Completed uses by others need no order.
            let is_unseen = |it: &&Use| !is_among(&loan.seen, it) && !is_among(&loan.uses, it);
            let is_over = |it: &Use| it.party.as_ref().is_some_and(|party| party.is_over(it.point));
            let ended = |it: &&Use| is_over(it) && !is_among(&loan.open, it);
            let mut unseen = life.uses.iter().chain(&loan.open).filter(is_unseen).filter(|it| !it.frees && !ended(it));
            let is_safe = !unseen.any(|it| is_open(&it));
            Some((is_right, is_safe))
        };
        let (is_right, is_safe) = look(self)?;
        if is_safe && (is_right || !orders) {
            return Some(is_right);
        }
        let at = self.bufs.iter().position(|buf| buf.as_ref().is_some_and(|buf| buf.life.id == loan.life))?;
        let held = self.stream(loan.name)?;
        self.order(&held, at);
        self.order_importer(who, on, &held);
        let (is_right, is_safe) = look(self)?;
        is_safe.then_some(is_right)
    }

    /// Returns the expected answer of an importer.
    pub(super) fn expect_there(&self, is_right: bool) -> Expect {
        match is_right {
            true => Expect::Accepted,
            false if self.world.stage.is_exact() => Expect::Refused,
            false => Expect::Either,
        }
    }

    /// Picks one of an importer's imports.
    pub(super) fn loan(&self, op: Op) -> Option<(usize, usize, Loan)> {
        let who = pick(&self.importers, op.a)?;
        let loans = &self.importers[who].as_ref()?.loans;
        let at = (op.b as usize).checked_rem(loans.len())?;
        Some((who, at, loans[at].clone()))
    }

    pub(super) fn work(&mut self, op: Op) {
        let Some((who, at, loan)) = self.loan(op) else { return };
        let on = op.c as usize % STREAMS;
        let act = if op.c >> 3 & 1 == 0 { Act::Read } else { Act::Write };
        let Some(is_right) = self.ready(who, &loan, on, act, op.c >> 4 & 3 != 0) else { return };
        let expect = self.expect_there(is_right);
        let content = match act {
            Act::Read => self.life_of(loan.life).map(|life| life.content).filter(|_| is_right),
            _ => Some(Content::Words(mix(u64::from(self.world.stage.number()) ^ u64::from(op.c) << 32))),
        };
        let content = content.unwrap_or(Content::Unknown);
        let text = content.to_text();
        let name = loan.name;
        let (micros, is_late) = (self.world.stage.micros(op.c) * 4, expect == Expect::Accepted && op.c >> 6 & 1 == 0);
        let line = match act {
            Act::Read => format!("check {on} {name} {text}"),
            _ if op.c >> 7 & 3 == 0 => format!("put {on} {name} {text}"),
            _ => format!("fill {on} {name} {text} {micros}"),
        };
        if act == Act::Write && is_late {
            self.collect(who);
            self.say(format_args!("// an importer gets `{line}`"));
            let Some(importer) = &mut self.importers[who] else { return };
            importer.process.tell(&line);
            importer.owes = true;
        } else if self.ask(who, &line, expect).is_none() {
            return;
        }
        self.used_there(who, at, on, act);
        match act {
            Act::Write => {
                if let Some(life) = self.life_of(loan.life) {
                    life.content = content;
                }
            }
            // The importer has waited for the copy.
            _ => self.importers[who].iter_mut().for_each(|importer| importer.learn(on)),
        }
    }

    /// Notes that an importer used an import.
    pub(super) fn used_there(&mut self, who: usize, at: usize, on: usize, act: Act) {
        let Some(importer) = &mut self.importers[who] else { return };
        let point = importer.lines[on].step(None);
        let party = Arc::clone(&importer.party);
        let (writes, frees) = (act == Act::Write, act == Act::Free);
        let done = Use { point, writes, frees, party: Some(Arc::clone(&party)), done: None };
        let Some(loan) = importer.loans.get_mut(at) else { return };
        let id = loan.life;
        loan.uses.push(done.clone());
        if let Some(life) = self.life_of(id) {
            life.uses.push(done);
            if writes {
                life.doubt = Some(Doubt { party, point });
            }
        }
    }

    /// Lets an importer allocate memory and export it to this process.
    pub(super) fn borrow(&mut self, op: Op) {
        let Some(who) = pick(&self.importers, op.a) else { return };
        let mut random = Random::new(u64::from(op.c));
        let (id, len, on) =
            (self.world.stage.number(), 1 + random.below(1 << 13), random.below(STREAMS as u64) as usize);
        let content = Content::Words(mix(random.number()));
        let commands =
            [format!("alloc {on} {id} {len}"), format!("fill {on} {id} {} {}", content.to_text(), random.below(300))];
        if commands.iter().any(|line| self.ask(who, line, Expect::Accepted).is_none()) {
            return;
        }
        let points = self.importers[who].as_ref().map(|it| (it.lines[on].step(None), it.lines[on].step(None)));
        if random.chance(40) && self.ask(who, &format!("sync {on}"), Expect::Accepted).is_some() {
            self.importers[who].iter_mut().for_each(|importer| importer.learn(on));
        }
        let Some(answer) = self.ask(who, &format!("export {id}"), Expect::Accepted) else { return };
        let (Some(importer), Some((mut born, mut filled))) = (&mut self.importers[who], points) else { return };
        importer.own.push(id);
        let party = Arc::clone(&importer.party);
        let doubt = Doubt { party: Arc::clone(&party), point: filled };
        if importer.host.covers(filled) {
            // The ticket carries that this has completed.
            (born.seq, filled.seq) = (0, 0);
        }
        if random.chance(10) {
            return self.leave_ticket(who, &answer);
        }
        self.say(format_args!("let b{id} = device.import(ticket)?;"));
        let buffer = import(&self.device(), &Self::ticket_of(&answer));
        self.judge("import", Expect::Accepted, buffer.as_ref().err());
        let Ok(buffer) = buffer else { return };
        self.world.stage.ground.claim(id, (buffer.address(), buffer.bytes()));
        let party_of = Some(Arc::clone(&party));
        let wrote = Use { point: filled, writes: true, frees: false, party: party_of, done: None };
        let (uses, from, doubt) = (vec![wrote], Some(party), Some(doubt));
        let life = Life { uses, from, doubt, ..Life::new(id, born, content) };
        let at = place(&self.bufs, op.b);
        self.put(at, Buf { buffer, life });
    }
}
