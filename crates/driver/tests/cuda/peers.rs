//! Two devices: access to memory by device, events of one device for streams of the other, and failures of these.

use std::sync::Arc;
use std::sync::mpsc::channel;

use millpond_driver::{CopyKind, CudaDriver, Driver, Peer, PeerAccess, RawStream, Work};

use crate::{Wishes, driver, finish, memory, run, stream, submit};

fn pair() -> (Arc<CudaDriver>, Arc<CudaDriver>) {
    let (here, there) = (driver(), driver());
    assert_ne!(here.peer(), there.peer());
    there.keep(here.held_memory().unwrap());
    (here, there)
}

fn fill(driver: &CudaDriver, stream: RawStream, at: u64) -> millpond_driver::Result<()> {
    submit(driver, stream, Work::Fill { at, bytes: 4096, value: 9 })
}

fn copy(driver: &CudaDriver, stream: RawStream, from: u64, to: u64) -> millpond_driver::Result<()> {
    submit(driver, stream, Work::Copy { to, from, bytes: 4096, kind: CopyKind::DeviceToDevice })
}

fn let_in(owner: &CudaDriver, at: u64, who: &CudaDriver, access: PeerAccess) -> millpond_driver::Result<()> {
    owner.let_in(at, owner.properties().granularity, &[(who.peer().unwrap(), access)])
}

#[test]
fn memory_is_opened_and_closed_device_by_device() {
    let (here, there) = pair();
    let (third, stream, local) = (driver(), stream(&there), memory(&there));
    let at = memory(&here);
    assert!(fill(&there, stream, at).is_err() && copy(&there, stream, at, local).is_err(), "it is not let in");
    // Several devices at once, each with its own access.
    let both = [(there.peer().unwrap(), PeerAccess::Read), (third.peer().unwrap(), PeerAccess::ReadWrite)];
    here.let_in(at, here.properties().granularity, &both).unwrap();
    copy(&there, stream, at, local).unwrap();
    assert!(fill(&there, stream, at).is_err(), "it may read");
    let other = crate::stream(&third);
    fill(&third, other, at).unwrap();
    finish(&third, other);
    let_in(&here, at, &there, PeerAccess::ReadWrite).unwrap();
    fill(&there, stream, at).unwrap();
    finish(&there, stream);
    let_in(&here, at, &there, PeerAccess::None).unwrap();
    assert!(copy(&there, stream, at, local).is_err(), "it is closed again");
    fill(&third, other, at).unwrap();
    finish(&third, other);
    // After a new mapping, only its own device has access.
    let own = crate::stream(&here);
    fill(&here, own, at).unwrap();
    finish(&here, own);
    // SAFETY: nothing uses it any more.
    unsafe { here.unmap(at, here.properties().granularity) }.unwrap();
    assert!(let_in(&here, at, &there, PeerAccess::Read).is_err(), "nothing is mapped there");
}

#[test]
fn who_can_be_let_in() {
    let (here, there) = pair();
    assert_eq!(here.can_let(there.peer().unwrap()), Ok(true));
    assert_eq!(here.can_let(here.peer().unwrap()), Ok(true), "its own device");
    assert_eq!(here.can_let(Peer::Host), Ok(false));
    assert_eq!(here.can_let(Peer::Cuda(64)), Ok(false), "nobody's peer");
    assert!(here.can_let(Peer::Cuda(99)).is_err(), "no such device");
    let at = memory(&here);
    let granule = here.properties().granularity;
    assert!(here.let_in(at, granule, &[(Peer::Host, PeerAccess::Read)]).is_err());
    assert!(here.let_in(at, granule, &[(Peer::Cuda(64), PeerAccess::Read)]).is_err());
    assert!(here.let_in(at, granule, &[]).is_ok());
}

/// Work after a wait comes after the event of the other device.
#[test]
fn a_stream_waits_for_an_event_of_another_device() {
    let (here, there) = pair();
    let (early, late) = (stream(&here), stream(&there));
    let (go, gate) = channel::<()>();
    let (tell, told) = channel();
    let first = tell.clone();
    run(&here, early, move || {
        gate.recv().unwrap();
        first.send(1).unwrap();
    });
    let event = here.record(early).unwrap();
    there.wait_foreign(late, &here.fence(event).unwrap()).unwrap();
    run(&there, late, move || tell.send(2).unwrap());
    let end = there.record(late).unwrap();
    assert_eq!(there.is_over(end), Ok(false));
    // The event may be forgotten, and its `CUevent` used again, while the other stream waits.
    here.forget(event);
    here.close_stream(early).unwrap();
    let again = here.record(stream(&here)).unwrap();
    go.send(()).unwrap();
    there.block_on(end).unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2]);
    assert!(here.fence(event).is_err(), "it is forgotten");
    here.forget(again);
}

/// Each function of the library fails once: nothing changes, and the call succeeds the next time.
#[test]
fn what_fails_leaves_access_as_it_was() {
    let (here, there) = pair();
    let (stream, at, wishes) = (stream(&there), memory(&here), Wishes::new());
    wishes.fail("cuDeviceCanAccessPeer", 999);
    assert!(here.can_let(there.peer().unwrap()).is_err());
    assert_eq!(here.can_let(there.peer().unwrap()), Ok(true));
    wishes.fail("cuMemSetAccess", 2);
    assert!(let_in(&here, at, &there, PeerAccess::ReadWrite).is_err());
    assert!(fill(&there, stream, at).is_err(), "it is not let in");
    let_in(&here, at, &there, PeerAccess::ReadWrite).unwrap();
    wishes.fail("cuMemSetAccess", 999);
    assert!(let_in(&here, at, &there, PeerAccess::None).is_err());
    fill(&there, stream, at).unwrap();
    finish(&there, stream);
    let event = here.record(crate::stream(&here)).unwrap();
    wishes.fail("cuStreamWaitEvent", 999);
    assert!(there.wait_foreign(stream, &here.fence(event).unwrap()).is_err());
    there.wait_foreign(stream, &here.fence(event).unwrap()).unwrap();
    finish(&there, stream);
}
