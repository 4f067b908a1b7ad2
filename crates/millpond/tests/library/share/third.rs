//! Three processes, or devices: what one did with another's memory orders what a third does. The third may learn of it
//! in any way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use millpond::check::{Finding, Kind};
use millpond::share::Ticket;
use millpond::{Buffer, Error};

use super::child::Child;
use super::{Side, eventually, fill, import, is_filled};

#[track_caller]
fn violation(error: &Error) -> &Finding {
    error.violation().unwrap_or_else(|| panic!("no violation: {error}"))
}

/// Puts a stream of `here` after the present end of `there`'s.
fn follow(here: &Side, there: &Side) {
    follow_ticket(here, &there.stream.record().unwrap().export().unwrap());
}

fn follow_ticket(here: &Side, ticket: &Ticket) {
    here.stream.wait(&here.device.import_event(ticket).unwrap()).unwrap();
}

/// The advice is to use an event of the process that did it.
#[test]
fn an_event_of_the_third_process_itself_orders_what_the_exporter_told_of_it() {
    let (there, here, mut second) = (Side::new(), Side::new(), Child::new());
    let buffer = there.filled(1000, 1);
    second.must(format!("import x {}", buffer.export().unwrap()));
    let early = second.must("record");
    second.must("fill x 2");
    second.must("free x");
    let late = second.must("record");
    eventually("it has given it back", || there.device.sharing().leases == 0);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let wait_for = |ticket: String| here.stream.wait(&here.device.import_event(&ticket.parse().unwrap()).unwrap());
    wait_for(early).unwrap();
    let refused = here.stream.launch(imported.read(), |_| ()).unwrap_err().report().to_string();
    let help = format!("wait for an event that process {} records on its stream 1", second.id());
    assert!(refused.contains(&help), "{refused}");
    wait_for(late).unwrap();
    assert!(is_filled(&here.stream, &imported, 2).unwrap());
}

/// A second process imports memory and returns it with work in flight that waits for its gate. A third one imports it
/// after that.
fn after_work_of_a_second(there: &Side, here: &Side, second: &mut Child, buffer: &Buffer<u32>) -> Buffer<u32> {
    second.must(format!("import x {}", buffer.export().unwrap()));
    second.must("gate");
    second.must("fill x 2");
    second.must("free x");
    eventually("it has given it back", || there.device.sharing().leases == 0);
    import(&here.device, &buffer.export().unwrap()).unwrap()
}

/// The exporter tells a third process what a second one did, and that it has completed. The exporter learns that from
/// the second process, or from its end.
#[test]
fn what_a_third_process_did_is_over_for_all() {
    for is_killed in [false, true] {
        let (there, here, mut second) = (Side::new(), Side::new(), Child::new());
        let buffer = there.filled(1000, 1);
        let imported = after_work_of_a_second(&there, &here, &mut second, &buffer);
        let refused = fill(&here.stream, &imported, 3).unwrap_err();
        assert_eq!(violation(&refused).kind, Kind::Race);
        assert!(refused.report().to_string().contains(&format!("process {}", second.id())), "{refused}");
        // An event of the exporter does not come after it yet.
        let wait_for = |side: &Side| {
            let event = there.stream.record().unwrap().export().unwrap();
            side.stream.wait(&side.device.import_event(&event).unwrap()).unwrap();
        };
        wait_for(&here);
        assert!(fill(&here.stream, &imported, 3).is_err());
        let second = (!is_killed).then_some(second);
        let second = second.map(|mut second| {
            second.must("open");
            second.must("sync");
            second
        });
        eventually("it is over", || {
            wait_for(&here);
            fill(&here.stream, &imported, 3).is_ok()
        });
        here.stream.free(imported).unwrap();
        here.stream.synchronize().unwrap();
        there.stream.free(buffer).unwrap();
        drop((here, second));
        eventually("nobody of another process is known", || there.device.sharing().foreign_chains == 0);
    }
}

/// An importer knows a third process through its exporter, and also directly, before or after that.
#[test]
fn who_is_met_and_told_of_is_one() {
    for meets_first in [true, false] {
        let (there, here, second) = (Side::new(), Side::new(), Side::new());
        let buffer = there.filled(1000, 1);
        let meet = |does: bool| {
            if does {
                follow(&here, &second);
            }
        };
        let theirs = import(&second.device, &buffer.export().unwrap()).unwrap();
        meet(meets_first);
        fill(&second.stream, &theirs, 2).unwrap();
        second.stream.free(theirs).unwrap();
        eventually("it has given it back", || there.device.sharing().leases == 0);
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        meet(false);
        let early = here.device.stream().unwrap();
        if !meets_first {
            let event = second.device.stream().unwrap().record().unwrap().export().unwrap();
            early.wait(&here.device.import_event(&event).unwrap()).unwrap();
        }
        assert_eq!(violation(&fill(&here.stream, &imported, 3).unwrap_err()).kind, Kind::Race);
        follow(&there, &second);
        follow(&here, &there);
        assert!(is_filled(&here.stream, &imported, 2).unwrap(), "the exporter passes it on");
    }
}

/// Its chains keep their names while an import's history has them: no other chain takes these names.
#[test]
fn who_is_gone_keeps_its_name_while_an_import_needs_it() {
    let (there, here, mut second) = (Side::new(), Side::new(), Child::new());
    let buffer = there.filled(1000, 1);
    second.must(format!("import x {}", buffer.export().unwrap()));
    follow_ticket(&here, &second.must("record").parse().unwrap());
    second.must("fill x 2");
    second.must("free x");
    eventually("it has given it back", || there.device.sharing().leases == 0);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    // An event of another stream of the exporter, which has many operations and was made before the second process
    // ended.
    let other = there.device.stream().unwrap();
    for _ in 0..50 {
        other.launch((), |()| ()).unwrap();
    }
    let unrelated = other.record().unwrap().export().unwrap();
    second.kill();
    eventually("it is gone", || {
        here.device.sharing();
        here.device.sharing().exporters == 1
    });
    follow_ticket(&here, &unrelated);
    assert!(fill(&here.stream, &imported, 3).is_err(), "nothing orders it");
    eventually("the exporter says that it is over", || {
        follow(&here, &there);
        fill(&here.stream, &imported, 3).is_ok()
    });
}

/// A process that is ending has closed its sockets but has not ended yet: its exporter still passes on its chains.
#[test]
fn who_is_about_to_end_keeps_its_name() {
    let (there, here, mut second) = (Side::new(), Side::new(), Child::new());
    let (buffer, other) = (there.filled(1000, 1), there.filled(1000, 1));
    second.must(format!("import x {}", buffer.export().unwrap()));
    second.must(format!("import y {}", other.export().unwrap()));
    second.must("fill x 2");
    second.must("free x");
    follow_ticket(&here, &second.must("record").parse().unwrap());
    here.stream.synchronize().unwrap();
    second.must("hang-up");
    // The connection over which the event was imported is closed a moment later.
    for _ in 0..5 {
        here.device.sharing();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    assert!(is_filled(&here.stream, &imported, 2).unwrap());
    second.kill();
    eventually("it has gone", || here.device.sharing().exporters == 1);
}

/// The owner learned of its importer's work from a third process before the importer itself reported anything.
#[test]
fn what_a_third_passes_on_before_the_first_release_counts() {
    for _ in 0..10 {
        let (owner, importer, third) = (Side::new(), Side::new(), Side::new());
        let buffer = owner.filled(1000, 1);
        let imported = import(&importer.device, &buffer.export().unwrap()).unwrap();
        fill(&importer.stream, &imported, 2).unwrap();
        follow(&third, &importer);
        follow(&owner, &third);
        drop(imported);
        owner.stream.free(buffer).unwrap();
    }
}

/// The reports of importers are passed on to the next importer, and are in the next event, in any amount.
#[test]
fn what_was_said_before_is_told() {
    for round in 0..10 {
        let (there, here, second) = (Side::new(), Side::new(), Side::new());
        let buffer = there.filled(1000, 1);
        let others: Vec<Buffer<u32>> = (0..150).map(|_| there.filled(10, 1)).collect();
        let import_all = |side: &Side| -> Vec<Buffer<u32>> {
            others.iter().map(|other| import(&side.device, &other.export().unwrap()).unwrap()).collect()
        };
        let (theirs, all) = (import(&second.device, &buffer.export().unwrap()).unwrap(), import_all(&second));
        let ticket = buffer.export().unwrap();
        fill(&second.stream, &theirs, 2).unwrap();
        all.into_iter().for_each(|other| second.stream.free(other).unwrap());
        second.stream.free(theirs).unwrap();
        let imported = import(&here.device, &ticket).unwrap();
        let refused = here.stream.launch(imported.read(), |_| ()).expect_err("a race");
        assert_eq!(violation(&refused).kind, Kind::Race, "round {round}");
        second.stream.synchronize().unwrap();
        follow(&here, &there);
        assert!(is_filled(&here.stream, &imported, 2).unwrap(), "round {round}");
    }
}

/// Memory that is lent and returned repeatedly, ordered by events only, has a history that does not grow.
#[test]
fn what_is_lent_a_thousand_times_can_be_lent_again() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    for round in 0..1500 {
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        fill(&here.stream, &imported, round).unwrap();
        here.stream.free(imported).unwrap();
        follow(&there, &here);
        follow(&here, &there);
    }
    assert!(is_filled(&there.stream, &buffer, 1499).unwrap());
}

/// The workers of a host device are limited: incomplete events of another process leave some workers for the work that
/// those events wait for.
#[test]
fn hundreds_of_imported_events_leave_workers_for_other_work() {
    let (there, here) = (Side::new(), Side::new());
    let (theirs, ours) = (there.filled(8, 1), here.filled(8, 1));
    let (release, held) = channel::<()>();
    there.stream.launch_once(theirs.read(), move |_| _ = held.recv()).unwrap();
    let tickets: Vec<Ticket> = (0..400).map(|_| there.stream.record().unwrap().export().unwrap()).collect();
    let imported = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ticket in &tickets {
                here.device.import_event(ticket).unwrap();
                imported.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Until no more are imported: the rest wait on their own thread.
        let mut seen = 0;
        while seen == 0 || seen != imported.load(Ordering::Relaxed) {
            seen = imported.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        here.stream.launch_once(ours.read(), move |_| drop(release)).unwrap();
    });
    assert_eq!(imported.into_inner(), 400);
}

/// Processes that an importer knows only through its exporter are forgotten in time.
#[test]
fn hearsay_keeps_nobody_from_importing() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    for _ in 0..24 {
        let worker = Side::new();
        let imported = import(&worker.device, &buffer.export().unwrap()).unwrap();
        for _ in 0..300 {
            let stream = worker.device.stream().unwrap();
            stream.launch(imported.read(), |_| ()).unwrap();
            worker.stream.wait(&stream.record().unwrap()).unwrap();
        }
        worker.stream.free(imported).unwrap();
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        follow(&there, &worker);
        follow(&here, &there);
        assert!(is_filled(&here.stream, &imported, 1).unwrap());
        here.stream.free(imported).unwrap();
        worker.stream.synchronize().unwrap();
    }
    let known = here.device.sharing().foreign_chains;
    assert!(known <= 4096 + 700, "{known} chains are remembered");
    assert!(import(&here.device, &buffer.export().unwrap()).is_ok());
}

/// An importer that claims another process's device as its own: everybody treats the completion that it reports as that
/// of its own work.
#[test]
fn who_takes_anothers_number_says_nothing_of_its_work() {
    let (there, here) = (Side::new(), Side::new());
    let (mut second, mut evil) = (Child::new(), Child::new());
    let (buffer, bait) = (there.filled(1000, 1), there.filled(1000, 1));
    second.must("alloc m 1000 1");
    let number = evil.must(format!("raw {}", second.must("export m")));
    let imported = after_work_of_a_second(&there, &here, &mut second, &buffer);
    evil.must(format!("raw {}", bait.export().unwrap()));
    evil.must(format!("raw-release {number}"));
    evil.must("raw-say over");
    evil.must("raw-say known");
    let is_refused = || {
        follow(&here, &there);
        let refused = fill(&here.stream, &imported, 3).unwrap_err();
        assert!(refused.report().to_string().contains(&format!("process {}", second.id())), "{refused}");
    };
    eventually("it is heard", || there.device.sharing().leases == 1);
    is_refused();
    evil.kill();
    eventually("it is gone", || there.device.sharing().importers == 2);
    is_refused();
    second.must("open");
    second.must("sync");
    follow(&here, &there);
    fill(&here.stream, &imported, 3).unwrap();
}
