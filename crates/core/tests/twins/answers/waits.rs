//! The waits that the checker returns are all that a device needs: repeated in plain reachability, they give the
//! checker's order.

use std::collections::BTreeMap;

use fastrand::Rng;
use millpond_core::check::{Checker, Done};
use millpond_core::ids::{AllocId, ChainIndex, Point, Seq, StreamId};
use millpond_core::op::{Names, Op, What};
use millpond_reach::Past;

use super::asked::{VIOLATIONS, step_at_once};
use super::program::{Kinds, Program};

/// A chain: what comes before its next operation, and what came before each of its positions.
#[derive(Default)]
struct Chain {
    past: Past,
    positions: BTreeMap<Seq, Past>,
}

/// A device that gets only the checker's answers: it has no event, no default stream and no graph.
#[derive(Default)]
struct Device {
    chains: BTreeMap<ChainIndex, Chain>,
    /// The work that the threads of the process know to have completed.
    known: Past,
    /// The points of the program, as named by both.
    points: Vec<(Point, millpond_reach::Point)>,
    /// The uses of live memory.
    uses: BTreeMap<(AllocId, u64), Vec<millpond_reach::Point>>,
    ended: u64,
}

impl Device {
    fn at(&self, point: Point) -> Past {
        let positions = &self.chains.get(&point.chain).expect("a chain that was told of").positions;
        positions.range(..=point.seq).next_back().map_or_else(Past::default, |(_, past)| past.clone())
    }

    fn is_new(&self, point: Point) -> bool {
        self.points.last().is_none_or(|last| last.0 != point)
    }

    /// Follows a step that was judged.
    fn follow(&mut self, op: &Op, done: &Done, is_done: bool) {
        for opened in &done.opened {
            let (known, chain) = (self.known.clone(), self.chains.entry(opened.chain).or_default());
            chain.past.join(&known);
            chain.positions.insert(opened.seq, chain.past.clone());
        }
        let waits: Vec<Past> = done.waits.iter().map(|wait| self.at(wait.point)).collect();
        if let Some(point) = done.point {
            let known = self.known.clone();
            let chain = self.chains.get_mut(&point.chain).expect("a chain that was told of");
            waits.iter().for_each(|before| chain.past.join(before));
            let takes_a_point = matches!(
                op.what,
                What::Launch { .. }
                    | What::Copy { .. }
                    | What::Alloc { .. }
                    | What::Free { .. }
                    | What::GraphLaunch { .. }
                    | What::HostAccess { .. }
            );
            if takes_a_point && is_done {
                chain.past.join(&known);
                let named = chain.past.step(point.chain.index());
                chain.positions.insert(point.seq, chain.past.clone());
                assert!(self.is_new(point), "{op:?}: {point}");
                self.points.push((point, named));
                self.note_uses(op, named);
            } else {
                chain.positions.insert(point.seq, chain.past.clone());
            }
        } else {
            assert!(waits.is_empty(), "{op:?}: of which stream?");
        }
        for point in &done.learned {
            let before = self.at(*point);
            self.known.join(&before);
        }
        self.end_lives(op, done);
    }

    fn note_uses(&mut self, op: &Op, named: millpond_reach::Point) {
        let (What::Launch { accesses, .. } | What::Copy { accesses, .. } | What::HostAccess { accesses }) = &op.what
        else {
            return;
        };
        for access in accesses {
            self.uses.entry((access.memory.id, access.memory.generation)).or_default().push(named);
        }
    }

    /// Checks that the points of an end come after all uses of the memory.
    fn end_lives(&mut self, op: &Op, done: &Done) {
        for begun in &done.begun {
            let birth = self.points.last().map(|last| last.1).filter(|_| Some(begun.point) == done.point);
            self.uses.insert((begun.memory.id, begun.memory.generation), birth.into_iter().collect());
        }
        for ended in &done.ended {
            let uses = self.uses.remove(&(ended.memory.id, ended.memory.generation)).expect("it was begun");
            let after: Vec<Past> = ended.after.iter().map(|point| self.at(*point)).collect();
            let is_before = |named: &millpond_reach::Point| after.iter().any(|past| past.covers(*named));
            assert!(uses.iter().all(is_before), "{op:?} ends {ended:?}, used at {uses:?}");
            self.ended += 1;
        }
    }

    /// Compares the order with the checker's, for all existing streams.
    fn compare(&self, checker: &Checker, program: &str) {
        for stream in (0..8).map(StreamId) {
            let Some(snapshot) = checker.snapshot(stream) else { continue };
            let past = &self.chains[&snapshot.point().chain].past;
            for (point, named) in &self.points {
                let (is, should) = (snapshot.covers(*point), past.covers(*named));
                // The upper bound adds what the next operation learns, or what a refused one did.
                let may = should || self.known.covers(*named);
                assert!(is >= should && is <= may, "{stream} after {point}: {is}, told {should} in {program}");
            }
        }
    }
}

fn run(seed: u64) -> [u64; 3] {
    let kinds = Kinds { graphs: seed.is_multiple_of(2), ..Kinds::of(seed) };
    let ops = Program::random(&mut Rng::with_seed(seed), kinds, 40);
    let (mut checker, names, mut device) = (Checker::new(VIOLATIONS), Names::new(), Device::default());
    let mut waits = 0;
    for (at, op) in ops.iter().enumerate() {
        let (done, refused) = step_at_once(&mut checker, op, &names);
        waits += done.waits.len() as u64;
        device.follow(op, &done, refused.is_none());
        device.compare(&checker, &format!("program {seed}, operation {at}: {op:?}"));
    }
    [waits, device.points.len() as u64, device.ended]
}

#[test]
fn the_waits_that_are_told_give_the_order_that_is_judged() {
    let [mut waits, mut points, mut ended] = [0; 3];
    for seed in 0..20_000 {
        let told = run(seed);
        [waits, points, ended] = [waits + told[0], points + told[1], ended + told[2]];
    }
    assert!(waits > 40_000 && points > 100_000 && ended > 10_000, "{waits} waits, {points} points, {ended} ends");
}
