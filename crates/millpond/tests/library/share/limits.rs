//! The cost of unknown processes, of many processes and of scarce files: nothing is used up for good, and nobody else
//! waits.

use std::time::{Duration, Instant};

use millpond::Error;
use millpond::error::ShareError;
use millpond::share::{Peers, Refusal, Ticket};
use millpond_core::share::Reply;

use super::child::Child;
use super::kills::held;
use super::raw::{Raw, claim};
use super::{Side, eventually, fill, gate, import, is_filled};
use crate::common::process::alone;

fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Refusal {
    match outcome {
        Err(Error::Share(error)) => match *error {
            ShareError::Refused { why, .. } => why,
            other => panic!("{other}"),
        },
        other => panic!("not refused: {other:?}"),
    }
}

/// Runs one importer after the other. Each returns memory with work whose end its host never learns.
fn importers(count: u32) {
    let there = Side::new();
    let buffer = there.filled(1000, 1);
    for round in 0..count {
        let here = Side::new();
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        let event = there.stream.record().unwrap().export().unwrap();
        here.stream.wait(&here.device.import_event(&event).unwrap()).unwrap();
        fill(&here.stream, &imported, round).unwrap();
        here.stream.free(imported).unwrap();
        drop(here);
        eventually("it is gone", || there.device.sharing().connections == 0);
        fill(&there.stream, &buffer, 1).unwrap();
        if round % 64 == 0 {
            there.stream.synchronize().unwrap();
            let sharing = there.device.sharing();
            assert_eq!((sharing.leases, sharing.foreign_chains, sharing.connections), (0, 0, 0), "{sharing:?}");
        }
        there.stream.record().unwrap().export().unwrap_or_else(|error| panic!("after {round} importers: {error}"));
    }
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}

#[test]
fn importers_one_after_another_leave_nothing() {
    importers(150);
}

/// So many that one chain left by each would fill an event.
#[test]
#[ignore = "takes a while"]
fn thousands_of_importers_leave_nothing() {
    importers(4500);
}

/// One importer returns `count` imports, all at once or in the order that is forgotten last, repeatedly.
fn gives_back(rounds: usize, count: usize) {
    let (there, here) = (Side::new(), Side::new());
    let (kept, buffer) = (there.filled(1000, 1), there.filled(1000, 1));
    let import_one = |_| import(&here.device, &buffer.export().unwrap()).unwrap();
    let held = import(&here.device, &kept.export().unwrap()).unwrap();
    for round in 0..rounds {
        let all: Vec<_> = (0..count).map(import_one).collect();
        all.into_iter().rev().for_each(|imported| here.stream.free(imported).unwrap());
        if count > 4096 {
            eventually("they are given back", || here.device.sharing().returning == 0);
        }
        here.stream.synchronize().unwrap();
        let sharing = there.device.sharing();
        assert_eq!((sharing.importers, sharing.leases), (1, 1), "round {round}: {sharing:?}");
    }
    drop(held);
    there.stream.free(kept).unwrap();
    there.stream.free(buffer).unwrap();
}

/// The host learns the end of the work before one of its threads reports it to the exporter, or long after.
#[test]
fn who_gives_back_for_long_is_heard() {
    gives_back(400, 30);
}

#[test]
#[ignore = "takes a while"]
fn who_is_told_of_much_late_is_heard() {
    gives_back(12, 5000);
}

#[test]
fn exporters_one_after_another_leave_no_file() {
    alone(|| {
        let here = Side::new();
        drop(here.filled(1000, 0));
        here.assert_empty();
        let before = held();
        for round in 0..100 {
            let there = Side::new();
            let buffer = there.filled(1000, round);
            let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
            assert!(is_filled(&here.stream, &imported, round).unwrap());
            here.stream.free(imported).unwrap();
            here.stream.synchronize().unwrap();
            there.stream.free(buffer).unwrap();
            drop(there);
            // It takes a moment until the threads of dropped devices end.
            eventually("files are closed", || {
                here.device.sharing();
                held().0 < before.0 + 20
            });
        }
        eventually("the last is let go", || here.device.sharing().exporters == 0);
        here.assert_empty();
        assert_eq!(here.device.sharing().foreign_chains, 0);
        eventually("all files are closed", || held() == before);
    });
}

#[test]
fn tickets_end_and_can_be_revoked() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    there.device.set_ticket_life(Duration::from_millis(20));
    let (short, event) = (buffer.export().unwrap(), there.stream.record().unwrap().export().unwrap());
    there.device.set_ticket_life(Duration::from_secs(600));
    let (long, revoked) = (buffer.export().unwrap(), buffer.export().unwrap());
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(refusal(import(&here.device, &short)), Refusal::Expired);
    assert_eq!(refusal(here.device.import_event(&event)), Refusal::Expired);
    assert!(there.device.revoke(&revoked) && !there.device.revoke(&revoked) && !here.device.revoke(&long));
    assert_eq!(refusal(import(&here.device, &revoked)), Refusal::Expired);
    eventually("they are put away", || there.device.sharing().expired == 3);
    let imported = import(&here.device, &long).unwrap();
    assert!(!there.device.revoke(&long), "it is used");
    assert!(is_filled(&here.stream, &imported, 1).unwrap());
    drop(imported);
    assert_eq!(there.device.sharing().unused_tickets, 0);
}

#[test]
fn tickets_that_nobody_uses_keep_nobody_from_exporting() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let (first, event) = (buffer.export().unwrap(), there.stream.record().unwrap());
    for _ in 0..66_000 {
        event.export().unwrap();
    }
    let sharing = there.device.sharing();
    assert!(sharing.unused_tickets <= 1 << 16 && sharing.expired >= 460, "{sharing:?}");
    drop(import(&here.device, &buffer.export().unwrap()).unwrap());
    assert_eq!(refusal(import(&here.device, &first)), Refusal::Expired);
}

#[test]
fn guests_who_claim_nothing_are_few_and_go() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let ticket = buffer.export().unwrap();
    let (mut crowd, mut honest) = (Child::new(), Child::new());
    crowd.must(format!("raw-idle {ticket} 200"));
    eventually("they are there", || side.device.sharing().connections > 0);
    std::thread::sleep(Duration::from_millis(100));
    assert!(side.device.sharing().connections <= 64, "{:?}", side.device.sharing());
    honest.must(format!("import x {ticket}"));
    assert_eq!(honest.must("check x 1"), "right");
    eventually("they have gone", || side.device.sharing().connections == 1);
    assert_eq!(honest.must("check x 1"), "right");
    crowd.kill();
    honest.end();
    side.stream.free(buffer).unwrap();
}

#[test]
fn a_full_table_of_files_costs_no_launch_anything() {
    let mut exporter = Child::new();
    exporter.must("alloc x 1000 1");
    exporter.must("sync");
    let ticket: Ticket = exporter.must("export x").parse().unwrap();
    let holder = Raw::connect(&ticket).unwrap();
    holder.claim(&ticket);
    let next: Ticket = exporter.must("export x").parse().unwrap();
    exporter.must("limit 100");
    exporter.must("eat");
    // Nobody can accept them.
    let waiting: Vec<_> = (0..50).map(|_| Raw::connect(&next).unwrap()).collect();
    let longest: u64 = exporter.must("launches x 200").parse().unwrap();
    assert!(longest < 1_000_000, "a launch on lent memory took {longest} us");
    exporter.must("uneat");
    drop(waiting);
    let late = Raw::connect(&next).unwrap();
    late.claim(&next);
}

/// Without a file of its process an importer is lent nothing: the lease would end with its socket.
#[test]
fn without_a_file_of_the_importers_process_nothing_is_lent() {
    let mut exporter = Child::new();
    exporter.must("alloc x 1000 1");
    exporter.must("sync");
    let ticket: Ticket = exporter.must("export x").parse().unwrap();
    let raw = Raw::connect(&ticket).unwrap();
    eventually("it is let in", || exporter.must("sharing").starts_with("0 1 "));
    exporter.must("limit 60");
    exporter.must("eat");
    assert!(matches!(raw.ask(&claim(&ticket)), Some((Reply::Refused(Refusal::Full), _))));
    exporter.must("uneat");
    raw.claim(&ticket);
    // The connection is closed, but the process lives: the lease stays.
    drop(raw);
    std::thread::sleep(Duration::from_millis(50));
    let refused = exporter.ask("free x");
    assert!(refused.contains("holds it"), "{refused}");
}

#[test]
fn an_importer_without_files_says_so_and_goes_on() {
    let side = Side::new();
    let buffer = side.filled(3_000_000, 1);
    let mut child = Child::new();
    child.must("alloc own 10 1");
    child.must("limit 60");
    child.must("eat");
    let refused = child.ask(format!("import x {}", buffer.export().unwrap()));
    assert!(refused.contains("Too many open files"), "{refused}");
    child.must("uneat");
    child.must(format!("import x {}", buffer.export().unwrap()));
    assert_eq!(child.must("check x 1"), "right");
    child.end();
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

/// A process outside of the exporter's namespace has the number 0 there, and vice versa.
#[test]
fn processes_of_other_namespaces_share() {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    let can = std::process::Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: this user may make no process namespace");
        return;
    }
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let mut child = Child::started_by(&unshare, "host", &[]);
    child.must(format!("import x {}", buffer.export().unwrap()));
    assert_eq!(child.must("check x 1"), "right");
    assert!(side.stream.free(buffer).map_err(|refused| drop(refused.buffer)).is_err());
    child.must("alloc y 1000 2");
    child.must("sync");
    let imported = import(&side.device, &child.must("export y").parse().unwrap()).unwrap();
    assert!(is_filled(&side.stream, &imported, 2).unwrap());
    drop(imported);
    child.kill();
    eventually("what it held is back", || side.device.sharing().leases == 0);
    side.assert_empty();
}

/// Returns `true` if another program, which becomes another user, can start this one: its folder may be closed to
/// others.
fn can_be_started_by(starter: &[&str]) -> bool {
    let program = std::env::current_exe().expect("this program");
    let tried = std::process::Command::new(starter[0]).args(&starter[1..]).args(["test", "-x"]).arg(program).status();
    tried.is_ok_and(|status| status.success())
}

/// All users that a user namespace does not know look like one user: none of them counts as the own user.
#[test]
fn users_that_look_the_same_are_not() {
    let unshare = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "unshare", "-U"];
    if !can_be_started_by(&unshare) {
        return println!("skipped: this user may make no user namespace, or others may not run this program here");
    }
    let mut child = Child::started_by(&unshare, "host", &[]);
    child.must("alloc x 1000 1");
    let ticket: Ticket = child.must("export x").parse().unwrap();
    let side = Side::new();
    side.device.set_peers(Peers::Anyone);
    assert_eq!(refusal(import(&side.device, &ticket)), Refusal::OtherUser);
    child.end();
}

/// Returns the microseconds of the launch itself: the median and the 99th percentile.
fn launches(side: &Side, buffer: &millpond::Buffer<u32>) -> (f64, f64) {
    let mut times = Vec::new();
    for _ in 0..3000 {
        let begin = Instant::now();
        side.stream.launch(buffer.read(), |_| ()).unwrap();
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        side.stream.synchronize().unwrap();
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Sixteen hostile processes of every kind at once, and the cost of launches meanwhile, in one run. The figures are in
/// bench/results/share.txt.
#[test]
#[ignore = "takes a while, and every core"]
fn sixteen_hostile_clients_cost_no_launch_anything() {
    let side = Side::new();
    let (lent, other, bait) = (side.filled(1000, 1), side.filled(1000, 2), side.filled(1000, 3));
    let mut honest = Child::new();
    honest.must(format!("import x {}", lent.export().unwrap()));
    let quiet = [launches(&side, &lent), launches(&side, &other)];
    let kinds = ["connect", "idle", "garbage", "talk", "claim", "fetch", "release", "connect"];
    let mut crowd = Vec::new();
    for kind in kinds.iter().cycle().take(16) {
        let tickets: Vec<String> = (0..20).map(|_| bait.export().unwrap().to_string()).collect();
        let mut child = Child::new();
        child.tell(format!("raw-storm {kind} {} {}", bait.export().unwrap(), tickets.join(" ")));
        assert_eq!(child.hear().as_deref(), Some("storm"));
        crowd.push(child);
    }
    std::thread::sleep(Duration::from_millis(500));
    let loud = [launches(&side, &lent), launches(&side, &other)];
    let begin = Instant::now();
    honest.must(format!("import y {}", lent.export().unwrap()));
    println!("an honest import meanwhile: {:?}; {:?}", begin.elapsed(), side.device.sharing());
    crowd.into_iter().for_each(Child::kill);
    for (what, quiet, loud) in [("lent", quiet[0], loud[0]), ("unrelated", quiet[1], loud[1])] {
        let ratio = loud.0 / quiet.0;
        println!(
            "launch on {what} memory: quiet {:.2} us (99 of 100: {:.1}), loud {:.2} us ({:.1}), ratio {ratio:.2}",
            quiet.0, quiet.1, loud.0, loud.1
        );
        assert!(ratio < 3.0, "{what}: {ratio}");
    }
    honest.end();
    eventually("all that they held is back", || side.device.sharing().leases == 0);
}

/// Processes one after the other: compares what is open, and what is used, before and after.
#[test]
#[ignore = "takes a while"]
fn processes_one_after_another_leave_nothing() {
    alone(|| {
        let count: u32 =
            std::env::var("MILLPOND_SHARE_PROCESSES").map_or(200, |count| count.parse().expect("a number"));
        let side = Side::new();
        let buffer = side.filled(1000, 7);
        buffer.export().unwrap();
        let (before, begin) = (held(), Instant::now());
        for _ in 0..count {
            let mut child = Child::new();
            child.must(format!("import x {}", buffer.export().unwrap()));
            child.must(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
            child.must("fill x 7");
            child.must("free x");
            child.kill();
        }
        let importers = begin.elapsed();
        eventually("importers are gone", || side.device.sharing().connections == 0);
        let begin = Instant::now();
        for _ in 0..count {
            let mut child = Child::new();
            child.must("alloc x 1000 5");
            child.must("sync");
            let imported = import(&side.device, &child.must("export x").parse().unwrap()).unwrap();
            assert!(is_filled(&side.stream, &imported, 5).unwrap());
            side.stream.free(imported).unwrap();
            side.stream.synchronize().unwrap();
            child.kill();
        }
        eventually("exporters are let go", || side.device.sharing().exporters == 0);
        eventually("files are closed", || held() == before);
        let sharing = side.device.sharing();
        assert_eq!((sharing.leases, sharing.foreign_chains, sharing.connections), (0, 0, 0), "{sharing:?}");
        side.stream.record().unwrap().export().unwrap();
        println!(
            "{count} importers in {importers:?}, {count} exporters in {:?}; files and mappings {before:?} before, {:?} \
             after; {sharing:?}",
            begin.elapsed(),
            held()
        );
        side.stream.free(buffer).unwrap();
        side.assert_empty();
    });
}

/// An import is returned while its uses run, and no thread can be created to wait for them. The memory is returned once
/// the importer's host knows that they have completed.
#[test]
fn what_gets_no_thread_to_wait_is_given_back_all_the_same() {
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    if !can_be_started_by(&other) {
        return println!("skipped: this user may not become another one, or others may not run this program here");
    }
    let there = Side::new();
    there.device.set_peers(Peers::Anyone);
    let buffer = there.filled(1000, 1);
    let mut child = Child::started_by(&other, "host", &[]);
    child.must("anyone");
    child.must(format!("import a {}", buffer.export().unwrap()));
    // Threads that it has already: those of the device, and one for late reports.
    assert_eq!(child.must("check a 1"), "right");
    child.must("gate");
    child.must("fill a 2");
    child.must("threads 1");
    child.must("drop a");
    drop(buffer);
    assert_eq!(child.must("counts").split(' ').nth(1), Some("1"), "it waits to be given back");
    child.must("open");
    child.must("sync");
    eventually("it comes back", || there.device.sharing().leases == 0 && there.pool.statistics().used_bytes == 0);
    assert_eq!(child.must("counts"), "0 0 0");
    child.end();
}

/// An exporter destroys a chunk while its import, from an imported pool, waits to be unmapped: then the importer
/// removes it, too.
#[test]
fn a_chunk_that_goes_while_it_is_mapped_is_not_kept() {
    let (there, here) = (Side::new(), Side::new());
    let shared = here.device.import_pool(&there.pool.export().unwrap()).unwrap();
    // SAFETY: nobody else uses what this test imports.
    let take = |buffer: &millpond::Buffer<u32>| unsafe { shared.import::<u32>(&buffer.export().unwrap()) }.unwrap();
    let (first, second) = (there.filled(1000, 1), there.filled(1000, 2));
    // One that waits for its last use, and one behind it whose use the host knows to have completed.
    let (waits, behind) = (take(&first), take(&second));
    let (stream, other) = (&here.stream, here.device.stream().unwrap());
    let go = gate(stream).unwrap();
    stream.launch(waits.read(), |_| ()).unwrap();
    stream.free(waits).unwrap();
    other.launch(behind.read(), |_| ()).unwrap();
    other.free(behind).unwrap();
    other.synchronize().unwrap();
    there.stream.free(second).unwrap();
    there.stream.synchronize().unwrap();
    there.pool.trim_to(0).unwrap();
    assert_eq!(there.pool.statistics().reserved_bytes, 2 * millpond::MIB, "one is left");
    let third = there.filled(1000, 3);
    let imported = take(&third);
    drop(go);
    eventually("both are unmapped", || here.device.sharing().returning == 0);
    drop(imported);
    eventually("it is unmapped", || here.device.sharing().returning == 0);
    assert_eq!(shared.chunks(), 2, "those that are there");
}
