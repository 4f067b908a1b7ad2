//! Importers and exporters that lie: nothing that they claim is believed unless the system confirms it.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use millpond::Error;
use millpond::check::Kind;
use millpond::error::ShareError;
use millpond::share::{Refusal, Ticket, TicketKind};
use millpond_core::share::{ChunkName, LeaseId, MemoryGrant, Part, Reply, Request};

use super::child::Child;
use super::raw::{Raw, RawExporter, claim, one_use};
use super::{Side, eventually, fill, gate, import};

#[test]
fn an_importer_cannot_settle_the_exporters_own_work() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let other = side.device.stream().unwrap();
    other.wait(&side.stream.record().unwrap()).unwrap();
    let open = gate(&other).unwrap();
    other.launch(buffer.read(), |_| ()).unwrap();
    let mut evil = Child::new();
    let device = evil.must(format!("raw {}", buffer.export().unwrap()));
    evil.must("raw-release granted");
    evil.must("raw-say over");
    evil.must("raw-say known");
    evil.kill();
    let refused = side.stream.free(buffer).unwrap_err();
    assert_eq!(refused.error.violation().map(|found| found.kind), Some(Kind::FreeBeforeUse), "{}", refused.error);
    // And by number, as if it were that device.
    let mut evil = Child::new();
    evil.must(format!("raw {}", refused.buffer.export().unwrap()));
    evil.must(format!("raw-release {device}"));
    evil.must("raw-say known");
    evil.kill();
    let refused = side.stream.free(refused.buffer).unwrap_err();
    assert_eq!(refused.error.violation().map(|found| found.kind), Some(Kind::FreeBeforeUse), "{}", refused.error);
    drop(open);
    other.synchronize().unwrap();
    side.stream.free(refused.buffer).unwrap();
    side.assert_empty();
    assert_eq!(side.device.sharing().foreign_chains, 0);
}

/// The second process has work in progress. A third one claims to be the second, and that the work has completed.
#[test]
fn a_third_process_speaks_for_no_other() {
    let side = Side::new();
    let (mut second, mut third) = (Child::new(), Child::new());
    second.must("gate");
    second.must("alloc m 1000 5");
    let ticket: Ticket = second.must("export m").parse().unwrap();
    let device = third.must(format!("raw {}", second.must("export m")));
    assert_ne!(device, format!("{:x}", ticket.exporter), "everybody can see the name of a socket");
    let imported = import(&side.device, &ticket).unwrap();
    let own = side.filled(1000, 1);
    third.must(format!("raw {}", own.export().unwrap()));
    third.must(format!("raw-release {device}"));
    third.must("raw-say over");
    third.must("raw-say known");
    eventually("it is heard", || side.device.sharing().leases == 0);
    third.kill();
    eventually("what it said is forgotten, and the second is not", || side.device.sharing().foreign_chains == 1);
    side.device.synchronize().unwrap();
    let refused = side.stream.launch(imported.read(), |_| ()).unwrap_err();
    assert_eq!(refused.violation().map(|found| found.kind), Some(Kind::UseBeforeAlloc));
    second.must("open");
    drop(imported);
    side.stream.free(own).unwrap();
    second.end();
    side.assert_empty();
}

#[test]
fn a_release_that_cannot_be_true_loses_nothing() {
    let side = Side::new();
    for what in ["untrue", "many"] {
        for is_dropped in [false, true] {
            let buffer = side.filled(100_000, 1);
            let mut evil = Child::new();
            evil.must(format!("raw {}", buffer.export().unwrap()));
            evil.must(format!("raw-release {what}"));
            eventually("it is heard no more", || side.device.sharing().importers == 0);
            assert_eq!(side.device.sharing().leases, 1, "what it has it keeps until it ends");
            evil.kill();
            match is_dropped {
                false => side.stream.free(buffer).unwrap(),
                true => drop(buffer),
            }
            eventually("its lease is back", || side.device.sharing().leases == 0);
            side.assert_empty();
        }
    }
    let sharing = side.device.sharing();
    assert_eq!((sharing.released, sharing.reclaimed, sharing.foreign_chains), (0, 4, 0), "{sharing:?}");
}

#[test]
fn words_about_leases_of_others_change_nothing() {
    let side = Side::new();
    let (mine, theirs) = (side.filled(1000, 1), side.filled(1000, 2));
    let honest = Side::new();
    let imported = import(&honest.device, &theirs.export().unwrap()).unwrap();
    let raw = Raw::connect(&mine.export().unwrap()).unwrap();
    raw.claim(&mine.export().unwrap());
    for lease in (0..100).map(LeaseId) {
        raw.say(&Request::Over(lease)).unwrap();
        raw.say(&Request::Known(lease)).unwrap();
    }
    assert_eq!(side.device.sharing().leases, 2);
    let lease = (0..100).map(LeaseId).find(|lease| raw.say(&Request::Release { lease: *lease, uses: vec![] }).is_err());
    assert!(lease.is_some() || raw.is_hung_up(), "a lease that it does not have");
    let refused = side.stream.free(theirs).unwrap_err();
    drop(imported);
    honest.device.synchronize().unwrap();
    side.stream.free(refused.buffer).unwrap();
}

#[test]
fn an_importer_that_asks_and_does_not_read_is_heard_no_more() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let (mut evil, mut honest) = (Child::new(), Child::new());
    evil.must(format!("raw {}", buffer.export().unwrap()));
    let asked: u32 = evil.must("raw-fetch 1000").parse().unwrap();
    assert!(asked < 10, "{asked} times 64 files");
    honest.must(format!("import x {}", buffer.export().unwrap()));
    assert_eq!(honest.must("check x 1"), "right");
    evil.kill();
    honest.end();
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

/// Closing an unknown file may block for any time, so an exporter never accepts files.
#[test]
fn nobody_sends_an_exporter_files() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let raw = Raw::connect(&buffer.export().unwrap()).unwrap();
    raw.claim(&buffer.export().unwrap());
    let file = File::open("/dev/null").unwrap();
    let sent = raw.send(&Request::Over(LeaseId(1)).to_bytes(), &[file.as_fd()]);
    assert!(sent.is_err() || raw.is_hung_up());
}

#[test]
fn a_question_before_the_answer_ends_the_talk() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let raw = Raw::connect(&buffer.export().unwrap()).unwrap();
    for _ in 0..1000 {
        let _ = raw.say(&claim(&buffer.export().unwrap()));
    }
    eventually("it is heard no more", || side.device.sharing().importers == 0);
}

/// An exporter that answers each question, but slowly, and without end.
#[test]
fn an_import_has_one_deadline() {
    let here = Side::new();
    here.device.set_import_patience(Duration::from_millis(400));
    let name = u128::from(std::process::id()) << 64 | 7;
    let exporter = RawExporter::new(name);
    let served = std::thread::spawn(move || {
        let raw = exporter.accept();
        let part = |serial| Part { chunk: ChunkName { pool: 0, serial }, bytes: 2 << 20 };
        let mut serial = 0;
        while let Ok(Some((bytes, _))) = raw.receive() {
            let reply = match Request::from_bytes(&bytes).unwrap() {
                Request::Claim { .. } => {
                    let (gone, uses, born) = (Vec::new(), Vec::new(), one_use(9, 0, 1));
                    let (lease, parts) = (LeaseId(77), vec![part(0)]);
                    let (bytes, offset, part_count, device, can_write) = (4000, 0, 6000, 9, true);
                    Reply::Memory(MemoryGrant {
                        lease,
                        bytes,
                        offset,
                        part_count,
                        parts,
                        gone,
                        born,
                        uses,
                        device,
                        can_write,
                    })
                }
                Request::Parts { .. } => {
                    std::thread::sleep(Duration::from_millis(50));
                    serial += 1;
                    Reply::Parts(vec![part(serial)])
                }
                Request::Release { lease, .. } => return lease,
                other => panic!("{other:?}"),
            };
            let _ = raw.send(&reply.to_bytes(), &[]);
        }
        panic!("nothing was given back");
    });
    let begin = Instant::now();
    let ticket = Ticket { kind: TicketKind::Memory, exporter: name, nonce: 1, bytes: 4000 };
    let refused = import(&here.device, &ticket).unwrap_err().report().to_string();
    assert!(refused.contains("does not answer in time"), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(served.join().unwrap(), LeaseId(77));
}

/// After some refusals an exporter closes the connection, and the importer may ask again before that.
#[test]
fn a_connection_that_is_closed_under_a_question_is_made_anew() {
    let here = Side::new();
    let name = u128::from(std::process::id()) << 64 | 8;
    let exporter = RawExporter::new(name);
    let served = std::thread::spawn(move || {
        let refuse = |raw: &Raw, why| raw.send(&Reply::Refused(why).to_bytes(), &[]);
        let first = exporter.accept();
        assert!(first.receive().unwrap().is_some());
        refuse(&first, Refusal::OtherUser).unwrap();
        assert!(first.receive().unwrap().is_some());
        drop(first);
        let second = exporter.accept();
        assert!(second.receive().unwrap().is_some());
        refuse(&second, Refusal::Stale).unwrap();
    });
    for why in [Refusal::OtherUser, Refusal::Stale] {
        let ticket = Ticket { kind: TicketKind::Memory, exporter: name, nonce: 1, bytes: 4000 };
        match import(&here.device, &ticket) {
            Err(Error::Share(error)) => assert_eq!(*error, ShareError::Refused { what: TicketKind::Memory, why }),
            other => panic!("{other:?}"),
        }
    }
    served.join().unwrap();
}

/// An exporter that answers after its importer has given up: the lease that it grants is returned, and the next import
/// works.
#[test]
fn a_late_answer_is_given_back() {
    let side = Side::new();
    side.device.set_import_patience(Duration::from_millis(300));
    let mut exporter = Child::new();
    exporter.must("alloc x 1000 7");
    exporter.must("sync");
    let (first, second) = (exporter.must("export x").parse().unwrap(), exporter.must("export x").parse().unwrap());
    exporter.signal("-STOP");
    let refused = import(&side.device, &first).unwrap_err().report().to_string();
    assert!(refused.contains("does not answer in time"), "{refused}");
    exporter.signal("-CONT");
    eventually("the late lease is back", || exporter.must("sharing").starts_with("0 "));
    side.device.set_import_patience(Duration::from_secs(30));
    let imported = import(&side.device, &second).unwrap();
    assert!(super::is_filled(&side.stream, &imported, 7).unwrap());
    drop(imported);
    side.device.synchronize().unwrap();
    exporter.must("free x");
    exporter.end();
}

/// An exporter that claims that its importer's own work comes first is not believed: the importer orders its own
/// streams.
#[test]
fn what_an_event_says_of_its_importers_own_streams_is_not_believed() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = here.filled(1000, 1);
    let open = gate(&here.stream).unwrap();
    fill(&here.stream, &buffer, 2).unwrap();
    // For the exporter that work comes first. This gives the importer no order of its own streams.
    there.stream.wait(&there.device.import_event(&here.stream.record().unwrap().export().unwrap()).unwrap()).unwrap();
    let event = here.device.import_event(&there.stream.record().unwrap().export().unwrap()).unwrap();
    let other = here.device.stream().unwrap();
    other.wait(&event).unwrap();
    let refused = other.launch(buffer.read(), |_| ()).unwrap_err();
    assert_eq!(refused.violation().map(|found| found.kind), Some(Kind::Race));
    drop(open);
    here.stream.synchronize().unwrap();
    here.stream.free(buffer).unwrap();
}
