//! Refusals between processes, with both sides named, and the order that makes the calls right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::check::{Finding, Kind};
use millpond::config::Schedule;
use millpond::error::Nearest;
use millpond::pool::PeerAccess;
use millpond::{Device, Error, HostConfig};

use super::{Side, eventually, fill, import, is_filled};

#[track_caller]
fn violation(error: &Error) -> &Finding {
    error.violation().unwrap_or_else(|| panic!("no violation: {error}"))
}

#[test]
fn a_use_before_the_exporters_event_is_refused() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.stream.alloc::<u32>(&there.pool, 1000).unwrap();
    fill(&there.stream, &buffer, 1).unwrap();
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let refused = here.stream.launch(imported.read(), |_| ()).unwrap_err();
    assert_eq!(violation(&refused).kind, Kind::UseBeforeAlloc);
    let text = refused.report().to_string();
    let process = std::process::id();
    assert!(text.contains(&format!("on stream 1 of process {process}")), "{text}");
    assert!(text.contains("and exports"), "{text}");
    // An event after the allocation does not order what comes after the event.
    let event = there.stream.record().unwrap();
    fill(&there.stream, &buffer, 2).unwrap();
    here.stream.wait(&here.device.import_event(&event.export().unwrap()).unwrap()).unwrap();
    assert!(is_filled(&here.stream, &imported, 1).is_ok(), "it knew of the first only when it imported");
    drop(imported);
    drop(buffer);
}

#[test]
fn an_event_too_early_is_found() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.stream.alloc::<u32>(&there.pool, 1000).unwrap();
    let early = there.stream.record().unwrap();
    fill(&there.stream, &buffer, 1).unwrap();
    let late = there.stream.record().unwrap();
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    here.stream.wait(&here.device.import_event(&early.export().unwrap()).unwrap()).unwrap();
    let refused = here.stream.launch(imported.read(), |_| ()).unwrap_err();
    assert_eq!(violation(&refused).kind, Kind::Race);
    here.stream.wait(&here.device.import_event(&late.export().unwrap()).unwrap()).unwrap();
    assert!(is_filled(&here.stream, &imported, 1).unwrap());
}

#[test]
fn order_passes_through_other_processes() {
    let (a, b, c) = (Side::new(), Side::new(), Side::new());
    let buffer = a.stream.alloc::<u32>(&a.pool, 1000).unwrap();
    fill(&a.stream, &buffer, 1).unwrap();
    let imported = import(&c.device, &buffer.export().unwrap()).unwrap();
    // From a to b, and from b to c: c comes after a's write, although it has no event of a's.
    b.stream.wait(&b.device.import_event(&a.stream.record().unwrap().export().unwrap()).unwrap()).unwrap();
    c.stream.wait(&c.device.import_event(&b.stream.record().unwrap().export().unwrap()).unwrap()).unwrap();
    assert!(is_filled(&c.stream, &imported, 1).unwrap());
    // And back again: a comes after c's write.
    fill(&c.stream, &imported, 2).unwrap();
    let back = c.stream.record().unwrap();
    c.stream.free(imported).unwrap();
    let other = a.device.stream().unwrap();
    a.stream.wait(&a.device.import_event(&back.export().unwrap()).unwrap()).unwrap();
    assert!(is_filled(&a.stream, &buffer, 2).unwrap());
    drop(other);
}

#[test]
fn what_the_exporter_knew_to_be_over_needs_no_event() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    assert!(is_filled(&here.stream, &imported, 1).unwrap());
}

/// A synchronisation with another device of the process orders streams, and ends no lease.
#[test]
fn news_of_another_device_does_not_end_a_lease() {
    let (there, here, other) = (Side::new(), Side::new(), Side::new());
    there.stream.wait(&other.stream.record().unwrap()).unwrap();
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    drop(other.filled(1000, 2));
    let refused = there.stream.free(buffer).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeWhileImported);
    drop(other.filled(1000, 3));
    let refused = there.device.free(refused.buffer).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeWhileImported);
    assert!(is_filled(&here.stream, &imported, 1).unwrap());
    drop((refused.buffer, imported));
}

#[test]
fn the_owner_frees_last() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let refused = there.stream.free(buffer).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeWhileImported);
    let refused = there.device.free(refused.buffer).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeWhileImported);
    fill(&here.stream, &imported, 2).unwrap();
    here.stream.free(imported).unwrap();
    // The importer has freed it, but the owner is not ordered after that yet.
    let refused = there.stream.free(refused.buffer).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeBeforeUse);
    let refused = {
        let read = there.stream.launch(refused.buffer.read(), |_| ()).unwrap_err();
        assert_eq!(violation(&read).kind, Kind::Race, "the importer's write is not ordered before it");
        refused
    };
    let event = here.stream.record().unwrap().export().unwrap();
    there.stream.wait(&there.device.import_event(&event).unwrap()).unwrap();
    assert!(is_filled(&there.stream, &refused.buffer, 2).unwrap());
    there.stream.free(refused.buffer).unwrap();
    there.assert_empty();
}

#[test]
fn what_the_importers_host_was_told_needs_no_event() {
    let (there, here) = (Side::new(), Side::new());
    // Synchronised before the free, and after it.
    for late in [false, true] {
        let buffer = there.filled(1000, 1);
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        fill(&here.stream, &imported, 2).unwrap();
        if late {
            here.stream.free(imported).unwrap();
            here.stream.synchronize().unwrap();
        } else {
            here.stream.synchronize().unwrap();
            here.device.free(imported).unwrap();
        }
        there.stream.free(buffer).unwrap();
    }
    there.assert_empty();
    let sharing = here.device.sharing();
    eventually("all is unmapped", || here.device.sharing().returning == 0);
    assert_eq!(sharing.imports, 0);
}

/// One thread drops an import, another waits for its last use: in either order, the exporter learns that the use has
/// completed.
#[test]
fn an_import_that_is_dropped_while_the_host_is_told_is_known_to_be_over() {
    let (there, here) = (Side::new(), Side::new());
    for _ in 0..3000 {
        let buffer = there.filled(100, 1);
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        fill(&here.stream, &imported, 2).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| here.stream.synchronize().unwrap());
            drop(imported);
        });
        there.stream.free(buffer).unwrap();
    }
}

#[test]
fn an_importer_frees_after_its_own_uses() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    fill(&here.stream, &imported, 2).unwrap();
    let other = here.device.stream().unwrap();
    let refused = other.free(imported).unwrap_err();
    assert_eq!(violation(&refused.error).kind, Kind::FreeBeforeUse);
    other.wait(&here.stream.record().unwrap()).unwrap();
    other.free(refused.buffer).unwrap();
    other.synchronize().unwrap();
    there.stream.free(buffer).unwrap();
}

#[test]
fn a_dropped_import_is_released_when_its_uses_are_over() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(100_000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    here.stream
        .launch(imported.write(), move |x| {
            let _ = gate.recv();
            x.fill(9);
        })
        .unwrap();
    drop((buffer, imported));
    assert_eq!(there.device.sharing().leases, 0, "it is given back in the order of the program");
    assert_eq!(there.pool.statistics().used_bytes, 400_000, "its last use is still to come");
    assert_eq!(here.device.sharing().returning, 1);
    go.send(()).unwrap();
    there.assert_given_back_by(&here);
}

/// The last use of a part by a stream stands for everything that the stream did before, to any part.
#[test]
fn many_parts_are_lent_and_given_back() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(4000, 1);
    for at in 0..2000 {
        there.stream.memset(buffer.slice(2 * at..2 * at + 1).unwrap().write(), 1).unwrap();
    }
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    there.stream.synchronize().unwrap();
    let told = here.device.import_event(&there.stream.record().unwrap().export().unwrap()).unwrap();
    here.stream.wait(&told).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let part = |at: usize| imported.slice(2 * at..2 * at + 1).unwrap().write();
    (0..2000).for_each(|at| here.stream.memset(part(at), 2).unwrap());
    let wait = move |_: &mut [u32]| {
        let _ = gate.recv();
    };
    here.stream.launch(part(0), wait).unwrap();
    drop((buffer, imported));
    here.device.sharing();
    assert_eq!(there.device.sharing().leases, 0);
    assert_eq!(there.pool.statistics().used_bytes, 16_000, "its last use is still to come");
    go.send(()).unwrap();
    there.assert_given_back_by(&here);
}

#[test]
fn imports_are_known_by_address_and_by_view() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    here.stream.launch(imported.view().slice(10..20).unwrap().read(), |x| assert_eq!(x.len(), 10)).unwrap();
    let address = imported.address();
    let inside = here.stream.free_address(address + 4).unwrap_err();
    let Some(millpond::error::Invalid::Pointer { nearest: Nearest::Inside { offset: 4, .. }, .. }) = inside.invalid()
    else {
        panic!("{inside}")
    };
    let view = imported.view();
    let kept = imported.into_address();
    here.stream.free_address(kept).unwrap();
    assert!(here.stream.free_address(kept).is_err(), "freed once");
    assert!(here.stream.launch(view.read(), |_| ()).is_err(), "the view is stale");
    here.stream.synchronize().unwrap();
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}

#[test]
fn an_imports_address_that_nobody_frees_goes_with_its_device() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    imported.into_address();
    drop(here);
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}

/// An own event that comes back through another process orders nothing here. The event itself still does.
#[test]
fn an_own_event_that_comes_back_takes_no_edge_away() {
    let (there, here) = (Side::new(), Side::new());
    let (second, third) = (here.device.stream().unwrap(), here.device.stream().unwrap());
    let buffer = here.stream.alloc::<u32>(&here.pool, 1000).unwrap();
    fill(&here.stream, &buffer, 1).unwrap();
    second.wait(&here.stream.record().unwrap()).unwrap();
    let event = second.record().unwrap();
    let foreign = there.device.import_event(&event.export().unwrap()).unwrap();
    third.wait(&here.device.import_event(&foreign.export().unwrap()).unwrap()).unwrap();
    assert_eq!(violation(&fill(&third, &buffer, 2).unwrap_err()).kind, Kind::UseBeforeAlloc);
    third.wait(&event).unwrap();
    fill(&third, &buffer, 2).unwrap();
}

/// Two devices of one process: one uses the other's memory, and passes on the order that the other one knows.
#[test]
fn devices_of_one_process_name_their_chains_alike() {
    for meets_first in [false, true] {
        let (there, other, second, here) = (Side::new(), Side::new(), Side::new(), Side::new());
        let follow = |stream: &millpond::Stream, from: &millpond::Stream| {
            let event = from.record().unwrap().export().unwrap();
            stream.wait(&here.device.import_event(&event).unwrap()).unwrap();
        };
        if meets_first {
            follow(&here.device.stream().unwrap(), &other.device.stream().unwrap());
        }
        there.pool.grant(&other.device, PeerAccess::ReadWrite).unwrap();
        let buffer = there.filled(1000, 1);
        other.stream.wait(&there.stream.record().unwrap()).unwrap();
        fill(&other.stream, &buffer, 2).unwrap();
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        assert_eq!(violation(&fill(&here.stream, &imported, 3).unwrap_err()).kind, Kind::Race);
        follow(&here.stream, &other.stream);
        assert!(is_filled(&here.stream, &imported, 2).unwrap());
        // From a third process to one device, to the other device, and on.
        let far = second.stream.alloc::<u32>(&second.pool, 1000).unwrap();
        fill(&second.stream, &far, 4).unwrap();
        let imported = import(&here.device, &far.export().unwrap()).unwrap();
        let event = second.stream.record().unwrap().export().unwrap();
        other.stream.wait(&other.device.import_event(&event).unwrap()).unwrap();
        there.stream.wait(&other.stream.record().unwrap()).unwrap();
        follow(&here.stream, &there.stream);
        assert!(is_filled(&here.stream, &imported, 4).unwrap());
    }
}

/// A seeded device runs work only while a thread waits. An importer counts as such.
#[test]
fn an_event_of_a_seeded_device_completes() {
    let seeded = || Side::of(Device::host(HostConfig::default().schedule(Schedule::Seeded(3))).unwrap());
    let (here, there) = (Side::new(), seeded());
    for importer in [here, seeded()] {
        let ran = Arc::new(AtomicU64::new(0));
        let kernel = Arc::clone(&ran);
        there.stream.launch((), move |()| _ = kernel.fetch_add(1, Ordering::SeqCst)).unwrap();
        let ticket = there.stream.record().unwrap().export().unwrap();
        importer.stream.wait(&importer.device.import_event(&ticket).unwrap()).unwrap();
        importer.stream.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }
}
