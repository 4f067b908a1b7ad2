//! Importers that are killed at any moment: no byte, file or mapping is lost.

use std::fs;
use std::time::Duration;

use super::child::Child;
use super::{Side, eventually, random};
use crate::common::process::alone;

/// Returns the open files and mappings of this process. Threads make and remove mappings of their own, so mappings are
/// counted by what is mapped: chunks and memory files.
pub(crate) fn held() -> (usize, usize) {
    let files = fs::read_dir("/proc/self/fd").expect("it is there").count();
    let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
    (files, maps.lines().filter(|line| line.contains("memfd:millpond")).count())
}

#[test]
fn a_hundred_children_are_killed_in_the_middle() {
    alone(|| {
        let side = Side::new();
        // Opens the socket.
        side.filled(1000, 0).export().unwrap();
        side.assert_empty();
        let before = held();
        for round in 0..100 {
            let buffer = side.filled(100_000, round);
            let mut child = Child::new();
            let ticket = buffer.export().unwrap();
            child.tell(format!("import x {ticket}"));
            child.tell(format!("check x {round}"));
            child.tell(format!("fill x {}", round + 1000));
            child.tell("free x");
            // Before, during, or after the command.
            if round % 4 != 0 {
                child.hear();
            }
            std::thread::sleep(Duration::from_micros(random() % 3000));
            child.kill();
            // The child has ended, so what it held is returned.
            side.stream.free(buffer).unwrap();
        }
        side.assert_reclaimed();
        assert_eq!(held(), before);
    });
}

#[test]
fn a_thousand_imports_by_eight_processes_with_kills_leave_nothing() {
    alone(|| {
        let side = Side::new();
        side.filled(1000, 0).export().unwrap();
        side.assert_empty();
        let before = held();
        let mut imports = 0;
        let mut kills = 0;
        let mut children: Vec<Child> = (0..8).map(|_| Child::new()).collect();
        while imports < 1000 {
            // Each of the eight gets a few at once, and works on them while the others do.
            let mut buffers = Vec::new();
            for child in &mut children {
                for name in ["a", "b", "c", "d"] {
                    let seed = imports as u32;
                    let buffer = side.filled(2000 + 700 * (imports % 7), seed);
                    child.tell(format!("import {name} {}", buffer.export().unwrap()));
                    child.tell(format!("check {name} {seed}"));
                    child.tell(format!("{} {name}", if imports % 3 == 0 { "drop" } else { "free" }));
                    child.tell("sync");
                    imports += 1;
                    buffers.push(buffer);
                }
            }
            for child in &mut children {
                if random().is_multiple_of(8) {
                    std::thread::sleep(Duration::from_micros(random() % 1000));
                    std::mem::replace(child, Child::new()).kill();
                    kills += 1;
                    continue;
                }
                for _ in 0..4 {
                    let says: Vec<_> = (0..4).map(|_| child.hear().expect("it lives")).collect();
                    assert_eq!(says, ["ok", "right", "ok", "ok"]);
                }
            }
            for buffer in buffers {
                side.stream.free(buffer).unwrap();
            }
        }
        for child in &mut children {
            // Imports, imports being returned, chunks.
            eventually("a child has nothing", || child.must("counts") == "0 0 0");
        }
        children.into_iter().for_each(Child::end);
        side.assert_empty();
        let sharing = side.device.sharing();
        println!("{kills} kills, {sharing:?}");
        assert_eq!((sharing.leases, sharing.importers), (0, 0));
        assert_eq!(sharing.lent, sharing.released + sharing.reclaimed);
        assert!(kills > 0);
        assert_eq!(held(), before);
    });
}
