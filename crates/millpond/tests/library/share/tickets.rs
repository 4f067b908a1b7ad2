//! Tickets that are forged, stale, used, truncated, or of another kind; and users that may not connect.

use millpond::error::ShareError;
use millpond::share::{Peers, Refusal, Ticket, TicketKind};
use millpond::{Device, Error, Event, HostConfig, PoolConfig};

use super::{Side, import};

#[track_caller]
fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>) -> ShareError {
    match outcome {
        Err(Error::Share(error)) => *error,
        other => panic!("not refused for sharing: {other:?}"),
    }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Error>, expected: Refusal) {
    match refusal(outcome) {
        ShareError::Refused { why, .. } => assert_eq!(why, expected),
        other => panic!("{other}"),
    }
}

#[test]
fn a_ticket_is_good_once() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let ticket = buffer.export().unwrap();
    let imported = import(&here.device, &ticket).unwrap();
    assert_refused(import(&here.device, &ticket), Refusal::Used);
    drop(imported);
    assert_refused(import(&here.device, &ticket), Refusal::Used);
    // Another ticket for the same buffer is another right.
    drop(import(&here.device, &buffer.export().unwrap()).unwrap());
    assert_eq!(there.device.sharing().refused, 2);
}

#[test]
fn forged_and_damaged_tickets_are_refused() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let ticket = buffer.export().unwrap();
    for nonce in [0, 1, ticket.nonce ^ 1, u128::MAX] {
        assert_refused(import(&here.device, &Ticket { nonce, ..ticket }), Refusal::Unknown);
    }
    let elsewhere = Ticket { exporter: ticket.exporter ^ 1, ..ticket };
    assert_eq!(refusal(import(&here.device, &elsewhere)), ShareError::ExporterGone);
    let bytes = ticket.to_bytes();
    assert!((0..bytes.len()).all(|len| Ticket::from_bytes(&bytes[..len]).is_err()));
    let mut damaged = bytes;
    damaged[20] ^= 4;
    assert!(Ticket::from_bytes(&damaged).is_err());
    // After all that the right ticket is still valid.
    drop(import(&here.device, &ticket).unwrap());
}

/// An answer names each use that may not have completed. If there are too many, the error says what to do.
#[test]
fn memory_with_too_many_uses_is_refused_by_that_name() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let filled = there.stream.record().unwrap();
    let streams: Vec<_> = (0..=1024).map(|_| there.device.stream().unwrap()).collect();
    for stream in &streams {
        stream.wait(&filled).unwrap();
        stream.declare(buffer.read()).unwrap();
    }
    assert_refused(import(&here.device, &buffer.export().unwrap()), Refusal::Uses);
    there.device.synchronize().unwrap();
    drop(import(&here.device, &buffer.export().unwrap()).unwrap());
}

#[test]
fn a_lied_about_size_changes_nothing() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let ticket = buffer.export().unwrap();
    let imported = import(&here.device, &Ticket { bytes: 1 << 40, ..ticket }).unwrap();
    assert_eq!(imported.len(), 1000, "the exporter's word counts");
}

#[test]
fn a_ticket_for_freed_memory_is_stale() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let (first, second) = (buffer.export().unwrap(), buffer.export().unwrap());
    let address = buffer.address();
    there.stream.free(buffer).unwrap();
    assert_refused(import(&here.device, &first), Refusal::Stale);
    // The same block is used again. The ticket is not valid for that lifetime.
    let next = there.filled(1000, 2);
    assert_eq!(next.address(), address);
    assert_refused(import(&here.device, &second), Refusal::Stale);
    let text = import(&here.device, &second).unwrap_err().report().to_string();
    assert!(text.contains("the ticket was used before"), "{text}");
}

#[test]
fn a_ticket_of_another_kind_is_refused_and_stays_good() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let memory = buffer.export().unwrap();
    let event = there.stream.record().unwrap().export().unwrap();
    let pool = there.pool.export().unwrap();
    assert!(matches!(refusal(import(&here.device, &event)), ShareError::Kind { .. }));
    assert!(matches!(refusal(here.device.import_event(&pool)), ShareError::Kind { .. }));
    assert!(matches!(refusal(here.device.import_pool(&memory)), ShareError::Kind { .. }));
    // A ticket that lies about its kind.
    let lie = Ticket { kind: TicketKind::Memory, bytes: 4000, ..event };
    assert_refused(import(&here.device, &lie), Refusal::OtherKind);
    here.device.import_event(&event).unwrap();
    let shared = here.device.import_pool(&pool).unwrap();
    // SAFETY: nothing uses it.
    drop(unsafe { shared.import::<u32>(&memory) }.unwrap());
    let other = there.device.pool(PoolConfig::default().shareable(true)).unwrap();
    let elsewhere = there.stream.alloc::<u32>(&other, 1000).unwrap();
    // SAFETY: nothing uses it.
    let refused = unsafe { shared.import::<u32>(&elsewhere.export().unwrap()) };
    assert_eq!(refusal(refused), ShareError::OtherPool);
    assert_eq!(there.device.sharing().leases, 0, "what was refused is given back");
}

#[test]
fn elements_must_fit() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1001, 1);
    let ticket = buffer.export().unwrap();
    // SAFETY: nothing uses it.
    let refused = unsafe { here.device.import::<u64>(&ticket) };
    assert_eq!(refusal(refused), ShareError::Length { bytes: 4004, element: 8 });
    // The ticket was not used up. If it lies, the exporter's answer reveals that, and the memory is returned.
    // SAFETY: as above.
    let refused = unsafe { here.device.import::<u64>(&Ticket { bytes: 8, ..ticket }) };
    assert_eq!(refusal(refused), ShareError::Length { bytes: 4004, element: 8 });
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}

#[test]
fn only_allowed_users_are_served() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(1000, 1);
    let ticket = buffer.export().unwrap();
    let other = rustix_uid() + 1;
    there.device.set_peers(Peers::Users(vec![other]));
    assert_refused(import(&here.device, &ticket), Refusal::OtherUser);
    there.device.set_peers(Peers::SameUser);
    here.device.set_peers(Peers::Users(vec![other]));
    assert_eq!(refusal(import(&here.device, &ticket)), ShareError::OtherUser { user: other - 1 });
    here.device.set_peers(Peers::Anyone);
    drop(import(&here.device, &ticket).unwrap());
    assert_eq!(there.device.sharing().refused, 1);
}

/// Returns the user of this process: the owner of its files.
fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").expect("it is there").uid()
}

#[test]
fn what_cannot_be_shared_says_so() {
    let (there, here) = (Side::new(), Side::new());
    let plain = there.stream.alloc::<u32>(&there.device.default_pool(), 1000).unwrap();
    let refused = refusal(plain.export());
    assert!(
        matches!(refused, ShareError::NotShareable { .. }) && refused.to_string().contains("PoolConfig::shareable")
    );
    assert!(matches!(refusal(there.device.default_pool().export()), ShareError::NotShareable { .. }));
    let empty = there.stream.alloc::<u32>(&there.pool, 0).unwrap();
    assert!(matches!(refusal(empty.export()), ShareError::NotExportable { .. }));
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    assert!(matches!(refusal(imported.export()), ShareError::Imported { .. }));
    let captured = there.stream.capture(|stream| {
        let event: Event = stream.record()?;
        assert!(matches!(refusal(event.export()), ShareError::NotExportable { .. }));
        Ok(())
    });
    captured.unwrap();
    let captured = here.stream.capture(|stream| stream.launch(imported.read(), |_| ()));
    assert!(matches!(refusal(captured), ShareError::NotInGraphs { .. }));
}

#[test]
fn a_device_that_shares_nothing_makes_no_shareable_pool() {
    let device = Device::host(HostConfig::default().memory(false)).unwrap();
    let refused = device.pool(PoolConfig::default().shareable(true)).unwrap_err();
    assert!(refused.report().to_string().contains("cannot hand memory to other processes"), "{refused}");
}

#[test]
fn chunks_must_fit_the_importers_granules() {
    let there = Side::of(Device::host(HostConfig::default().granularity(1 << 16)).unwrap());
    let here = Side::new();
    let buffer = there.filled(1000, 1);
    let refused = refusal(import(&here.device, &buffer.export().unwrap()));
    assert!(matches!(refused, ShareError::Answer(_)), "{refused}");
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}
