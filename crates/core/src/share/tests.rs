//! Tests of both ends of a connection, in memory: every order of events that sockets allow, with late replies, full
//! sockets, a cut connection, and a process that is killed at any point.
//!
//! The model knows the true state of the importer: its leases, and whether their uses run. Each step checks that
//! memory that the importer may still use has not come back (**held-by-all**), that no handle of a mapped chunk is
//! destroyed, and that an importer that obeys the rules is never disconnected. At the end everything is back, on both
//! sides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::exporter::{COMPLETED_MAX, STRAYS_MAX};
use super::*;
use crate::check::Act;
use crate::ids::{ChainIndex, Point};

const MIB: u64 = 1 << 20;
const LIMITS: Limits = Limits { granularity: 2 * MIB, alignment: 512, total_bytes: 1 << 40 };
const IMPORTER: u128 = 9;

fn a_use(seq: u64) -> ForeignUse {
    let point = ForeignPoint { device: IMPORTER, chain: 0, seq };
    ForeignUse { point, act: Act::Read, stream: 0, op: 0, process: 0 }
}

/// An allocation of the exporter.
#[derive(Clone, Debug)]
struct Life {
    parts: Vec<Part>,
    is_owned: bool,
    holders: BTreeMap<LeaseId, Phase>,
    has_ended: bool,
}

/// The true state of a lease at the importer.
#[derive(Clone, Debug)]
struct Truth {
    life: usize,
    mapped: Vec<(Part, u64)>,
    is_released: bool,
    runs: bool,
    seq: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Issue,
    Ask,
    Request,
    Answer,
    Reply,
    Late,
    Send,
    Release,
    ReleaseSettled,
    /// Uses have completed.
    End,
    /// The importer's device is observed to have passed them.
    Complete,
    /// The importer's host learns of it.
    Learn,
    DropOwner,
    Cut,
    Kill,
}

/// The most that a run may do of each thing.
#[derive(Clone, Copy, Debug)]
struct Budget {
    lives: usize,
    chunks: usize,
    tickets: usize,
    late: usize,
    can_be_cut: bool,
    /// The number of packets that the socket holds.
    room: usize,
}

#[derive(Clone, Debug)]
struct World {
    budget: Budget,
    tickets: Tickets<usize>,
    exporter: ExporterEnd,
    lives: Vec<Life>,
    lent: usize,
    returned: usize,
    reclaimed: usize,
    leased: BTreeMap<LeaseId, usize>,
    next: u128,
    importer: ImporterEnd<u64>,
    wallet: Vec<Ticket>,
    claim: Option<Claim>,
    /// `true` while a reply that did not come in time is awaited.
    is_late: bool,
    truths: BTreeMap<LeaseId, Truth>,
    /// Positions that the importer's host knows to have completed.
    known: BTreeSet<u64>,
    seq: u64,
    handles: BTreeSet<u64>,
    requests: VecDeque<Vec<u8>>,
    replies: VecDeque<(Vec<u8>, usize)>,
    is_cut: bool,
    is_alive: bool,
}

impl World {
    fn new(budget: Budget) -> World {
        let part = |serial| Part { chunk: ChunkName { pool: 0, serial }, bytes: 2 * MIB };
        let life = |at: usize| Life {
            parts: (0..budget.chunks).map(|chunk| part((at * budget.chunks + chunk) as u64)).collect(),
            is_owned: true,
            holders: BTreeMap::new(),
            has_ended: false,
        };
        let (tickets, exporter, lent, returned, reclaimed, leased, next) = Default::default();
        let (importer, wallet, claim, truths, known, seq, handles) = Default::default();
        let (requests, replies, is_cut, is_late) = Default::default();
        let lives = (0..budget.lives).map(life).collect();
        let is_alive = true;
        World {
            budget,
            tickets,
            exporter,
            lives,
            lent,
            returned,
            reclaimed,
            leased,
            next,
            importer,
            wallet,
            claim,
            truths,
            known,
            seq,
            handles,
            requests,
            replies,
            is_cut,
            is_late,
            is_alive,
        }
    }

    /// Returns what can happen now.
    fn enabled(&self) -> Vec<Event> {
        let mut acts = Vec::new();
        let mut may = |act, is_possible: bool| acts.extend(is_possible.then_some(act));
        let truths = || self.truths.values();
        let room = self.requests.len() < self.budget.room;
        may(Event::Issue, self.budget.tickets > 0);
        may(Event::Request, self.exporter.stage() == Stage::Talks && (self.is_cut || !self.requests.is_empty()));
        may(Event::Answer, self.exporter.has_question());
        may(Event::DropOwner, self.lives.iter().any(|life| life.is_owned));
        if self.is_alive {
            let is_waited_for = self.claim.is_some() || self.is_late;
            may(Event::Ask, !is_waited_for && !self.wallet.is_empty() && room);
            may(Event::Reply, is_waited_for && (self.is_cut || !self.replies.is_empty()));
            may(Event::Late, self.claim.is_some() && self.replies.is_empty() && self.budget.late > 0);
            may(Event::Send, self.importer.unsent().is_some() && (room || self.is_cut));
            may(Event::Release, truths().any(|it| !it.is_released));
            may(Event::ReleaseSettled, truths().any(|it| !it.is_released));
            may(Event::End, truths().any(|it| it.is_released && it.runs));
            may(Event::Complete, truths().any(|it| it.is_released && !it.runs && !it.mapped.is_empty()));
            may(Event::Learn, truths().any(|it| it.is_released && !it.runs && !self.known.contains(&it.seq)));
            may(Event::Cut, self.budget.can_be_cut && !self.is_cut);
            may(Event::Kill, self.budget.can_be_cut);
        }
        acts
    }

    fn step(&mut self, act: Event) {
        match act {
            Event::Issue => {
                self.budget.tickets -= 1;
                self.next += 1;
                let what = self.next as usize % self.lives.len();
                self.tickets.issue(self.next, TicketKind::Memory, what, u64::MAX);
                self.wallet.push(Ticket { kind: TicketKind::Memory, exporter: 1, nonce: self.next, bytes: 0 });
            }
            Event::Ask => {
                assert!(self.importer.begin_question());
                let ticket = self.wallet.pop().expect("there is one");
                self.claim = Some(Claim::default());
                self.ask(&Claim::question(&ticket));
            }
            Event::Request => self.request(),
            Event::Answer => self.answer(),
            Event::Reply => self.reply(),
            Event::Late => {
                self.budget.late -= 1;
                self.importer.is_late();
                self.is_late = true;
                let claim = self.claim.take().expect("it waits");
                self.importer.give_up(claim);
                self.destroy();
            }
            Event::Send => {
                let packet = self.importer.unsent().expect("there is one").to_vec();
                self.importer.sent();
                if !self.is_cut {
                    self.requests.push_back(packet);
                }
            }
            Event::Release | Event::ReleaseSettled => self.release(act == Event::Release),
            Event::End => {
                let runs = self.truths.values_mut().find(|it| it.is_released && it.runs);
                runs.expect("one runs").runs = false;
            }
            Event::Complete => {
                let is_ready = |it: &Truth| it.is_released && !it.runs && !it.mapped.is_empty();
                let (id, truth) = self.truths.iter_mut().find(|(_, it)| is_ready(it)).expect("one is ready");
                let (id, mapped) = (*id, std::mem::take(&mut truth.mapped));
                self.importer.unuse(mapped.iter().map(|(part, _)| (part.chunk, true)));
                self.importer.completed(id);
                self.destroy();
            }
            Event::Learn => {
                // A host that learns of uses knows that they have completed.
                let over = self.truths.values().filter(|it| it.is_released && !it.runs).map(|it| it.seq);
                self.known.extend(over);
                let known = &self.known;
                self.importer.host_knows(|point| known.contains(&point.seq));
            }
            Event::DropOwner => {
                let at = self.lives.iter().position(|life| life.is_owned).expect("one is");
                self.lives[at].is_owned = false;
                self.end_life(at);
            }
            Event::Cut => self.is_cut = true,
            Event::Kill => {
                (self.is_cut, self.is_alive) = (true, false);
                self.truths.clear();
            }
        }
        self.leave_if_gone();
        self.check();
    }

    fn ask(&mut self, request: &Request) {
        if !self.is_cut {
            self.requests.push_back(request.to_bytes());
        }
    }

    /// The exporter receives a packet, or the end.
    fn request(&mut self) {
        let Some(packet) = self.requests.pop_front() else { return self.exporter.leave() };
        let request = Request::from_bytes(&packet).expect("it is one");
        let effects = self.exporter.receive(request).expect("this importer obeys the rules");
        effects.into_iter().for_each(|effect| self.apply(&effect));
    }

    fn apply(&mut self, effect: &Effect) {
        let (Effect::Returned { lease: id, .. } | Effect::Completed(id) | Effect::Known(id) | Effect::Forgotten(id)) =
            effect;
        let at = self.leased[id];
        let holders = &mut self.lives[at].holders;
        match effect {
            Effect::Returned { .. } => {
                self.returned += 1;
                assert_eq!(holders.insert(*id, Phase::Returned), Some(Phase::Held));
            }
            Effect::Completed(_) => {
                assert_eq!(holders.insert(*id, Phase::Completed), Some(Phase::Returned));
            }
            Effect::Known(_) | Effect::Forgotten(_) => assert!(holders.remove(id).is_some()),
        }
        self.end_life(at);
    }

    fn end_life(&mut self, at: usize) {
        let life = &mut self.lives[at];
        life.has_ended |= !life.is_owned && life.holders.values().all(|phase| *phase == Phase::Completed);
    }

    fn leave_if_gone(&mut self) {
        let Some(left) = self.exporter.end(!self.is_alive) else { return };
        self.reclaimed += left.held;
        for id in left.leases {
            let at = self.leased[&id];
            self.lives[at].holders.remove(&id);
            self.end_life(at);
        }
    }

    /// Lets the exporter answer.
    fn answer(&mut self) {
        let question = self.exporter.take_question().expect("there is one");
        let reply = match question {
            Request::Claim { kind, nonce } => self.lend(kind, nonce).unwrap_or_else(Reply::Refused),
            Request::Parts { lease, from } => {
                self.exporter.parts(lease, from).map_or_else(Reply::Refused, Reply::Parts)
            }
            Request::Fetch(chunks) => match self.exporter.may_fetch(&chunks) {
                Ok(_) => {
                    self.exporter.fetched(&chunks);
                    Reply::Chunks(chunks.len() as u32)
                }
                Err(why) => Reply::Refused(why),
            },
            other => panic!("no question: {other:?}"),
        };
        let files = if let Reply::Chunks(count) = &reply { *count as usize } else { 0 };
        self.replies.push_back((reply.to_bytes(), files));
    }

    fn lend(&mut self, kind: TicketKind, nonce: u128) -> Result<Reply, Refusal> {
        let at = self.tickets.redeem(nonce, kind, 0)?;
        if !self.lives[at].is_owned {
            return Err(Refusal::Stale);
        }
        let parts = self.lives[at].parts.clone();
        self.next += 1;
        let lease = LeaseId(self.next as u64);
        assert!(self.exporter.lend(lease, parts.clone().into(), true));
        self.lent += 1;
        self.leased.insert(lease, at);
        self.lives[at].holders.insert(lease, Phase::Held);
        let lives = &self.lives;
        let exists =
            |name: &ChunkName| lives.iter().any(|it| !it.has_ended && it.parts.iter().any(|p| p.chunk == *name));
        let gone = self.exporter.forget_gone(exists);
        Ok(Reply::Memory(MemoryGrant {
            lease,
            bytes: parts.len() as u64 * 2 * MIB,
            offset: 0,
            part_count: parts.len() as u32,
            // One part at a time, so that the rest is asked for.
            parts: parts[..1].to_vec(),
            gone,
            born: a_use(0),
            uses: Vec::new(),
            device: 1,
            can_write: true,
        }))
    }

    /// The importer receives an answer, or the end.
    fn reply(&mut self) {
        let reply = self.replies.pop_front();
        let Some(mut claim) = self.claim.take() else {
            self.is_late = false;
            return self.importer.late_answer(reply.and_then(|(bytes, _)| Reply::from_bytes(&bytes).ok()));
        };
        let Some((bytes, files)) = reply else {
            self.importer.give_up(claim);
            self.importer.end_question();
            return self.destroy();
        };
        let reply = Reply::from_bytes(&bytes).expect("it is one");
        let mut next = self.importer.answered(&mut claim, reply, files, LIMITS);
        while let Ok(Next::Import(parts)) = &next {
            for part in parts.clone() {
                self.seq += 1;
                self.handles.insert(self.seq);
                self.importer.imported(&mut claim, &part, self.seq);
            }
            next = self.importer.proceed(&mut claim, LIMITS);
        }
        match next {
            Ok(Next::Ask(request)) => {
                self.ask(&request);
                self.claim = Some(claim);
            }
            Ok(_) => {
                let (lease, mapped) = (claim.grant().expect("it was granted").lease, self.importer.handles(&claim));
                self.importer.end_question();
                let life = self.leased[&lease];
                self.seq += 1;
                let truth = Truth { life, mapped, is_released: false, runs: true, seq: self.seq };
                self.truths.insert(lease, truth);
            }
            Err(why) => {
                assert!(matches!(why, Wrong::Refused(_)), "{why:?}");
                self.importer.give_up(claim);
                self.importer.end_question();
                self.destroy();
            }
        }
    }

    /// Lets the importer return a lease. With `runs`, its uses still run.
    fn release(&mut self, runs: bool) {
        let (id, truth) = self.truths.iter_mut().find(|(_, it)| !it.is_released).expect("there is one");
        (truth.is_released, truth.runs) = (true, runs);
        let (id, seq) = (*id, truth.seq);
        if runs {
            let point = Point { chain: ChainIndex(0), seq };
            return self.importer.release(id, vec![a_use(seq)], &[point]);
        }
        let mapped = std::mem::take(&mut truth.mapped);
        self.importer.unuse(mapped.iter().map(|(part, _)| (part.chunk, true)));
        self.importer.release(id, Vec::new(), &[]);
        self.destroy();
    }

    fn destroy(&mut self) {
        for handle in self.importer.take_unused() {
            assert!(self.handles.remove(&handle), "destroyed twice");
        }
    }

    fn check(&self) {
        for truth in self.truths.values() {
            let is_in_use = truth.runs || !truth.is_released;
            assert!(!is_in_use || !self.lives[truth.life].has_ended, "held-by-all: {truth:?}");
            assert!(!is_in_use || truth.mapped.len() == self.budget.chunks);
            let mut mapped = truth.mapped.iter();
            assert!(mapped.all(|(_, handle)| self.handles.contains(handle)), "its handle is there: {truth:?}");
        }
    }

    /// Runs on until nothing more happens, and checks that everything is back.
    fn finish(mut self, mut choose: impl FnMut(usize) -> usize) {
        (self.budget.tickets, self.budget.late, self.budget.can_be_cut) = (0, 0, false);
        loop {
            let acts = self.enabled();
            // A ticket stays unused if its claim never gets a reply.
            if acts.is_empty() || acts == [Event::Ask] && self.is_cut {
                break;
            }
            self.step(acts[choose(acts.len())]);
        }
        if self.is_cut {
            self.is_alive = false;
            self.leave_if_gone();
            assert_eq!(self.exporter.stage(), Stage::Gone);
        } else {
            assert_eq!((self.importer.chunk_count(), self.handles.len()), (0, 0));
        }
        assert!(!self.exporter.has_leases());
        assert!(self.lives.iter().all(|life| life.has_ended && life.holders.is_empty()), "{:?}", self.lives);
        assert_eq!(self.lent, self.returned + self.reclaimed);
    }
}

/// Visits every state that can be reached, runs each to the end, and returns the number of states.
fn every_state(budget: Budget) -> usize {
    let (mut seen, mut open) = (BTreeSet::new(), vec![World::new(budget)]);
    while let Some(world) = open.pop() {
        let mut state = DefaultHasher::new();
        format!("{world:?}").hash(&mut state);
        if !seen.insert(state.finish()) {
            continue;
        }
        for act in world.enabled() {
            let mut next = world.clone();
            next.step(act);
            open.push(next);
        }
        // Test two ways on from here: always the first possible event, and always the last.
        world.clone().finish(|_| 0);
        world.finish(|count| count - 1);
    }
    seen.len()
}

impl World {
    /// Runs once: first any events, then to the end.
    fn run(mut self, mut choose: impl FnMut(usize) -> usize) {
        loop {
            let acts = self.enabled();
            if acts.is_empty() || !self.is_alive {
                break;
            }
            self.step(acts[choose(acts.len())]);
        }
        self.finish(choose);
    }
}

#[test]
fn every_state_of_two_imports_is_right() {
    let states = every_state(Budget { lives: 1, chunks: 1, tickets: 2, late: 1, can_be_cut: false, room: 2 });
    assert!(states > 1000, "{states}");
}

#[test]
fn every_state_of_an_import_whose_importer_may_go_is_right() {
    let states = every_state(Budget { lives: 1, chunks: 2, tickets: 1, late: 1, can_be_cut: true, room: 2 });
    assert!(states > 200, "{states}");
}

#[test]
fn many_imports_are_right_in_orders_at_random() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..3000 {
        let budget = Budget {
            lives: random.usize(1..4),
            chunks: random.usize(1..4),
            tickets: random.usize(1..12),
            late: random.usize(0..3),
            can_be_cut: round % 4 == 0,
            room: random.usize(1..5),
        };
        World::new(budget).run(|of| random.usize(0..of));
    }
}

fn lease(exporter: &mut ExporterEnd, id: u64) -> LeaseId {
    let parts = vec![Part { chunk: ChunkName { pool: 0, serial: id }, bytes: 2 * MIB }];
    assert!(exporter.lend(LeaseId(id), parts.into(), id.is_multiple_of(2)));
    LeaseId(id)
}

/// Whatever an importer sends, each lease is returned once, through its own messages or its end.
#[test]
fn an_importer_that_says_anything_ends_no_lease_twice() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut broken = 0;
    for _ in 0..2000 {
        let mut exporter = ExporterEnd::default();
        let mut phases: BTreeMap<LeaseId, Phase> = (0..4).map(|id| (lease(&mut exporter, id), Phase::Held)).collect();
        for _ in 0..12 {
            let id = LeaseId(random.u64(0..6));
            let uses = (0..random.u64(0..3)).map(a_use).collect();
            let request = match random.u8(0..8) {
                0 => Request::Claim { kind: TicketKind::Memory, nonce: 0 },
                1..4 => Request::Release { lease: id, uses },
                4 | 5 => Request::Over(id),
                _ => Request::Known(id),
            };
            let before = phases.get(&id).copied();
            let Ok(effects) = exporter.receive(request) else {
                broken += 1;
                break;
            };
            for effect in effects {
                let is = match effect {
                    Effect::Returned { lease, ref uses } if random.u8(0..8) == 0 && !uses.is_empty() => {
                        exporter.disbelieve(lease);
                        assert_eq!((exporter.held(), exporter.stage()), (held(&phases), Stage::Leaves));
                        continue;
                    }
                    Effect::Returned { lease, .. } => (lease, before == Some(Phase::Held), Some(Phase::Returned)),
                    Effect::Completed(lease) => (lease, before == Some(Phase::Returned), Some(Phase::Completed)),
                    Effect::Known(lease) => (lease, phases[&lease] != Phase::Held, None),
                    Effect::Forgotten(_) => panic!("too few for that"),
                };
                assert!(is.1 && is.0 == id, "{is:?}");
                match is.2 {
                    Some(phase) => drop(phases.insert(id, phase)),
                    None => drop(phases.remove(&id)),
                }
            }
            drop(exporter.take_question().filter(|_| random.bool()));
        }
        assert_eq!(exporter.held(), held(&phases));
        exporter.leave();
        let needs_nothing = phases.values().all(|phase| *phase == Phase::Completed);
        assert_eq!(exporter.end(false).is_some(), needs_nothing);
        if !needs_nothing {
            let mut left = exporter.end(true).expect("its process has ended");
            left.leases.sort();
            assert_eq!(left, Left { leases: phases.keys().copied().collect(), held: held(&phases) });
        }
    }
    assert!(broken > 200, "{broken} broke the rules");
}

fn held(phases: &BTreeMap<LeaseId, Phase>) -> usize {
    phases.values().filter(|phase| **phase == Phase::Held).count()
}

#[test]
fn a_second_question_ends_the_talk() {
    let mut exporter = ExporterEnd::default();
    let claim = Request::Claim { kind: TicketKind::Pool, nonce: 3 };
    assert_eq!(exporter.receive(claim.clone()), Ok(Effects::new()));
    assert_eq!(exporter.take_question(), Some(claim.clone()));
    assert_eq!(exporter.receive(claim.clone()), Ok(Effects::new()));
    assert_eq!(exporter.receive(claim.clone()), Err(Broken));
    assert_eq!((exporter.stage(), exporter.take_question()), (Stage::Leaves, None));
    assert!(!exporter.lend(LeaseId(1), Vec::new().into(), true), "it talks no more");
    exporter.name_event();
    assert_eq!(exporter.end(false), None, "it knows an event");
    exporter.close_event();
    assert!(exporter.end(false).is_some());
}

#[test]
fn an_importer_speaks_for_one_device() {
    let mut exporter = ExporterEnd::default();
    let (first, second) = (lease(&mut exporter, 1), lease(&mut exporter, 2));
    let release = |lease, uses| Request::Release { lease, uses };
    exporter.receive(release(first, vec![a_use(1)])).expect("the first says which device it is");
    let mut other = a_use(2);
    other.point.device = IMPORTER + 1;
    assert_eq!(exporter.receive(release(second, vec![a_use(2), other])), Err(Broken));
    assert_eq!(exporter.held(), 1, "nothing of it counts");
}

#[test]
fn it_fetches_what_it_holds() {
    let mut exporter = ExporterEnd::default();
    let (first, second) = (lease(&mut exporter, 1), lease(&mut exporter, 2));
    let name = |serial| ChunkName { pool: 0, serial };
    assert_eq!(exporter.may_fetch(&[name(2), name(1)]), Ok(vec![true, false]));
    assert_eq!(exporter.may_fetch(&[name(1), name(3)]), Err(Refusal::NotLent));
    exporter.fetched(&[name(1), name(2)]);
    exporter.receive(Request::Release { lease: first, uses: vec![a_use(1)] }).expect("it holds it");
    assert_eq!(exporter.may_fetch(&[name(1)]), Err(Refusal::NotLent));
    assert_eq!(exporter.parts(first, 0), Err(Refusal::NotLent));
    assert_eq!(exporter.parts(second, 1), Ok(Vec::new()));
    assert_eq!(exporter.forget_gone(|name| name.serial == 2), [name(1)]);
    assert_eq!(exporter.forget_gone(|name| name.serial == 2), [], "each is listed once");
}

/// Completed leases of which the importer's host never learns are forgotten. Messages about them may come late.
#[test]
fn what_is_completed_is_remembered_so_far() {
    let mut exporter = ExporterEnd::default();
    let all = COMPLETED_MAX as u64 + 10;
    let mut forgotten = Vec::new();
    for id in 0..all {
        let lease = lease(&mut exporter, id);
        exporter.receive(Request::Release { lease, uses: vec![a_use(1)] }).expect("it holds it");
        let effects = exporter.receive(Request::Over(lease)).expect("it was returned");
        assert_eq!(effects[0], Effect::Completed(lease));
        forgotten.extend(effects.into_iter().skip(1));
    }
    assert_eq!(forgotten, Vec::from_iter((0..10).map(|id| Effect::Forgotten(LeaseId(id)))), "the first go first");
    for _ in 0..10 + STRAYS_MAX {
        assert_eq!(exporter.receive(Request::Known(LeaseId(0))), Ok(Effects::new()));
    }
    assert_eq!(exporter.receive(Request::Known(LeaseId(0))), Err(Broken));
}

#[test]
fn one_asks_at_a_time_and_a_late_answer_is_given_back() {
    let mut importer = ImporterEnd::<u64>::default();
    assert!(importer.begin_question() && !importer.begin_question());
    importer.is_late();
    assert!(!importer.begin_question());
    let point = a_use(1);
    let grant = MemoryGrant {
        lease: LeaseId(4),
        bytes: 1,
        offset: 0,
        part_count: 0,
        parts: Vec::new(),
        gone: Vec::new(),
        born: point,
        uses: Vec::new(),
        device: 1,
        can_write: true,
    };
    importer.late_answer(Some(Reply::Memory(grant)));
    assert!(importer.begin_question());
    let release = Request::Release { lease: LeaseId(4), uses: Vec::new() };
    assert_eq!(importer.unsent(), Some(&release.to_bytes()[..]));
    importer.sent();
    assert_eq!(importer.unsent(), None);
    assert!(importer.is_device(1) && importer.is_device(1) && !importer.is_device(2));
}

#[test]
fn callers_wait_for_room_so_long() {
    let mut importer = ImporterEnd::<u64>::default();
    importer.waited(Duration::from_millis(1001));
    assert!(!importer.may_wait());
    importer.completed(LeaseId(1));
    importer.completed(LeaseId(2));
    importer.sent();
    assert!(!importer.may_wait());
    importer.sent();
    assert!(importer.may_wait() && importer.unsent().is_none());
}

#[test]
fn chunks_of_a_pool_that_is_imported_are_kept_until_they_are_gone() {
    let mut world = World::new(Budget { lives: 2, chunks: 2, tickets: 2, late: 0, can_be_cut: false, room: 9 });
    world.importer.keep_pool(0);
    let until = |world: &mut World, done: fn(&World) -> bool| {
        while !done(world) {
            let act = world.enabled().into_iter().find(|act| {
                matches!(act, Event::Issue | Event::Ask | Event::Request | Event::Answer | Event::Reply | Event::Send)
            });
            world.step(act.expect("it goes on"));
        }
    };
    until(&mut world, |world| world.truths.len() == 2);
    world.step(Event::ReleaseSettled);
    world.step(Event::ReleaseSettled);
    assert_eq!((world.importer.chunk_count(), world.handles.len()), (4, 4), "they are kept");
    until(&mut world, |world| world.importer.unsent().is_none() && world.requests.is_empty());
    world.step(Event::DropOwner);
    world.budget.tickets = 2;
    until(&mut world, |world| world.wallet.is_empty() && world.budget.tickets == 0 && world.claim.is_none());
    world.destroy();
    assert_eq!((world.importer.chunk_count(), world.handles.len()), (2, 2), "those of the other one are there");
    world.importer.let_pool_go(0);
    world.step(Event::ReleaseSettled);
    world.finish(|_| 0);
}
