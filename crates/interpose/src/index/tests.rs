//! The index against a simple list, and its answers for freed memory.

use super::*;
use fastrand::Rng;

/// The simple version: a list.
#[derive(Default)]
struct Twin(Vec<(u64, u64, Memory)>);

impl Twin {
    fn find(&self, at: u64) -> Option<Memory> {
        self.0.iter().find(|it| it.0 <= at && at < it.1).map(|it| it.2)
    }
}

fn touched(index: &Index, at: u64) -> Option<&Entry> {
    index.touched(at, index.number(at))
}

#[test]
fn it_answers_as_a_list_does() {
    let mut random = Rng::with_seed(7);
    let (mut index, mut twin) = (Index::default(), Twin::default());
    for _ in 0..30_000 {
        let start = 0x7f00_0000_0000 + random.u64(..1 << 14) * 1600;
        let bytes = match random.u64(..3) {
            0 => 1 + random.u64(..700),
            1 => 1 + random.u64(..100_000),
            _ => 1 + random.u64(..8 << 20),
        };
        match random.u64(..3) {
            0 if !twin.0.is_empty() => {
                let (_, _, memory) = twin.0.swap_remove(random.usize(..twin.0.len()));
                index.free(memory);
            }
            _ => {
                let mut gone = Vec::new();
                let memory = index.insert(start, bytes, Kind::Device, 0, |entry| gone.push(entry.memory()));
                twin.0.retain(|it| !(it.0 < start + bytes && start < it.1));
                twin.0.push((start, start + bytes, memory));
            }
        }
        for at in [start, start + bytes - 1, start + bytes, start.wrapping_sub(1), start + random.u64(..1 << 22)] {
            let found = index.find(at).filter(|entry| entry.is_live).map(|entry| entry.memory());
            assert_eq!(found, twin.find(at), "{at:#x}");
        }
        assert_eq!(index.len(), twin.0.len());
    }
}

#[test]
fn the_ends_of_the_space_are_addresses_too() {
    let mut index = Index::default();
    for (start, bytes) in [(u64::MAX - 100, 4096), (u64::MAX - (5 << 20), 4 << 20), (0, 1), (1, u64::from(u32::MAX))] {
        let memory = index.insert(start, bytes, Kind::Mapped, 0, |_| {});
        assert_eq!(index.find(start).map(|it| it.memory()), Some(memory), "{start:#x}");
        index.free(memory);
    }
}

#[test]
fn freed_memory_is_known_until_something_else_is_there() {
    let mut index = Index::default();
    let none = |_| panic!("nothing is displaced");
    let old = index.insert(0x1000_0000, 4096, Kind::Ordered, 0, none);
    index.free(old);
    let found = index.find(0x1000_0010).expect("it is remembered");
    assert!(found.memory() == old && !found.is_live);
    let new = index.insert(0x1000_0000, 1024, Kind::Ordered, 0, none);
    assert_eq!(index.find(0x1000_0010).map(|it| it.memory()), Some(new));
    assert_eq!(index.find(0x1000_0800).map(|it| it.memory()), Some(old), "behind the new one");
    assert!(touched(&index, 0x1000_0400).is_none(), "one past the end of the new one");
}

#[test]
fn freed_memory_of_the_host_is_nowhere() {
    let mut index = Index::default();
    let none = |_| panic!("nothing is displaced");
    for bytes in [4096, 8 << 20, 100] {
        let memory = index.insert(0x4000_0000, bytes, Kind::Host, 0, none);
        assert!(index.find(0x4000_0040).is_some());
        index.free(memory);
        assert!(index.find(0x4000_0040).is_none() && touched(&index, 0x4000_0000).is_none());
    }
}

#[test]
fn memory_whose_free_was_refused_lives_on() {
    let mut index = Index::default();
    for kind in [Kind::Ordered, Kind::Host] {
        let memory = index.insert(0x1000_0000, 4096, kind, 0, |_| {});
        index.free(memory);
        index.revive(memory);
        assert!(index.starting_at(0x1000_0000).is_some_and(|it| it.is_live && it.memory() == memory));
        index.free(memory);
        let other = index.insert(0x1000_0800, 4096, kind, 0, |_| {});
        index.revive(memory);
        assert!(index.entry(memory).is_some_and(|it| !it.is_live), "another one lies there");
        index.free(other);
    }
    assert_eq!(index.len(), 0);
}

#[test]
fn what_was_freed_long_ago_is_forgotten_and_its_number_used_again() {
    let mut index = Index::default();
    let none = |_| panic!("nothing is displaced");
    let old = index.insert(0x1000, 512, Kind::Host, 0, none);
    index.free(old);
    for at in 0..FREED as u64 {
        let memory = index.insert(0x10_0000_0000 + at * 512, 512, Kind::Ordered, 0, none);
        index.free(memory);
    }
    assert!(index.find(0x1000).is_none());
    let new = index.insert(0x2000, 512, Kind::Host, 0, none);
    assert_eq!((new.id, new.generation), (old.id, 1));
}

#[test]
fn a_mapping_at_the_place_of_one_that_is_gone_has_its_name() {
    const MIB: u64 = 1 << 20;
    let (mut index, at) = (Index::default(), 0x7f00_0000_0000);
    let none = |_| panic!("nothing is displaced");
    let memory = index.insert(at, 2 * MIB, Kind::Mapped, 0, none);
    assert_eq!(index.map_again(at, 2 * MIB), None, "it is there");
    index.free(memory);
    assert_eq!(index.map_again(at, 4 * MIB), None, "another size");
    assert_eq!(index.map_again(at, 2 * MIB), Some(memory));
    assert!(index.find(at).is_some_and(|it| it.is_live) && index.len() == 1);
    index.free(memory);
    let other = index.insert(at + MIB, 2 * MIB, Kind::Mapped, 0, none);
    assert_eq!(index.map_again(at, 2 * MIB), None, "another one lies there");
    index.free(other);
    let device = index.insert(at, 2 * MIB, Kind::Device, 0, none);
    index.free(device);
    assert_eq!(index.map_again(at, 2 * MIB), None, "it was no mapping");
}

#[test]
fn mappings_that_are_opened_at_once_are_one_range() {
    const MIB: u64 = 1 << 20;
    let (mut index, at) = (Index::default(), 0x7f00_0000_0000);
    let map = |index: &mut Index, number: u64| index.insert(at + number * MIB, MIB, Kind::Mapped, 0, |_| {});
    let all: Vec<Memory> = (0..5).map(|number| map(&mut index, number)).collect();
    let behind = |index: &Index, number: u64| -> Vec<Memory> {
        let entry = index.find(at + number * MIB).expect("it is there");
        index.joined(entry).map(|it| it.memory()).collect()
    };
    assert!(behind(&index, 0).is_empty(), "each by itself");
    index.join(at, at + 3 * MIB);
    index.join(at + 3 * MIB, at + 5 * MIB);
    assert_eq!((behind(&index, 0), behind(&index, 1)), (all[1..3].to_vec(), all[2..3].to_vec()));
    assert_eq!((behind(&index, 2), behind(&index, 3)), (vec![], all[4..].to_vec()));
    index.free(all[1]);
    assert!(behind(&index, 0).is_empty(), "the next one is gone");
    index.join(at + 64 * MIB, u64::MAX);
}

#[test]
fn what_alloc_nodes_have_can_be_forgotten() {
    let mut index = Index::default();
    assert!(!index.forget_nodes(), "there is none");
    let at = |number: u64| 0x7f00_0000_0000 + (number << 21);
    let memory = [Kind::Node, Kind::Ordered, Kind::Node]
        .into_iter()
        .zip(0..)
        .map(|(kind, number)| index.insert(at(number), 1 << 20, kind, 0, |_| ()))
        .collect::<Vec<_>>();
    index.free(memory[2]);
    index.revive(memory[2]);
    assert!(index.forget_nodes());
    assert_eq!([0, 1, 2].map(|number| index.find(at(number)).map(Entry::memory)), [None, Some(memory[1]), None]);
    assert!(!index.forget_nodes(), "they are forgotten");
    // Other memory may lie there, and no number is reused.
    let next = index.insert(at(0), 1 << 20, Kind::Node, 0, |_| ());
    assert!(!memory.contains(&next) && memory.iter().all(|it| it.id != next.id));
    index.free(next);
    assert!(!index.forget_nodes(), "it is freed");
}

#[test]
fn what_the_host_has_by_now_is_forgotten_where_it_is_freed() {
    let mut index = Index::default();
    let freed = index.insert(0x7f00_0000_0000, 4 << 20, Kind::Device, 0, |_| {});
    let live = index.insert(0x7f00_0040_0000, 4096, Kind::Device, 0, |_| {});
    index.free(freed);
    let (inside, beside) = (0x7f00_0000_0000 + 4096, 0x7f00_0040_0000);
    assert_eq!(index.used(inside, |_| false).map(Entry::memory), Some(freed), "the host has not got it");
    assert_eq!(index.used(beside, |_| unreachable!("it lives")).map(Entry::memory), Some(live));
    assert!(index.used(inside, |_| true).is_none());
    assert!(index.used(inside, |_| unreachable!("it is forgotten")).is_none() && touched(&index, inside).is_none());
}

#[test]
fn memory_of_a_node_keeps_its_place_between_its_lives() {
    let mut index = Index::default();
    let node = index.insert(0x7f00_0000_0200, 4096, Kind::Node, 0, |_| {});
    let is_plain = |index: &Index| index.find(0x7f00_0000_0300).unwrap().is_plainly_at(0x7f00_0000_0300);
    assert!(is_plain(&index));
    index.set_allocated(node, false);
    assert!(!is_plain(&index) && index.find(0x7f00_0000_0300).unwrap().is_live);
    index.set_allocated(node, true);
    assert!(is_plain(&index));
    index.set_allocated(node, false);
    assert!(index.used(0x7f00_0000_0300, |_| true).is_none() && index.len() == 0, "the host has its addresses");
    assert!(!index.forget_nodes());
}
