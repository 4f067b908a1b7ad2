//! Cases about chunks that are exported as files, and events as names. A device that cannot do that must say so, and do
//! nothing.

use std::fs::File;
use std::sync::mpsc;

use millpond_driver::DriverError;

use crate::subject::Subject;

/// Returns `true` if the device shares memory. Otherwise checks that it refuses all of it.
fn can_share(subject: &Subject) -> bool {
    if !subject.driver.can_share() {
        let refused = subject.driver.create_shareable(subject.granule()).unwrap_err();
        assert!(refused.to_string().contains("create_shareable: "), "{refused}");
        let chunk = subject.driver.create(subject.granule()).unwrap();
        assert!(subject.driver.export(chunk).is_err());
        subject.driver.destroy(chunk).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        assert!(subject.driver.import(file.into(), subject.granule()).is_err());
    }
    subject.driver.can_share()
}

pub(crate) fn a_file_is_another_holder_of_the_memory(subject: &Subject) {
    if !can_share(subject) {
        return;
    }
    let granule = subject.granule();
    let at = subject.driver.reserve(4 * granule).unwrap();
    let chunk = subject.driver.create_shareable(2 * granule).unwrap();
    subject.map(chunk, at, 2 * granule).unwrap();
    subject.fill(at, 2 * granule, 5);
    let file = subject.driver.export(chunk).unwrap();
    let imported = subject.driver.import(file, 2 * granule).unwrap();
    assert_ne!(imported, chunk);
    let elsewhere = at + 2 * granule;
    subject.map(imported, elsewhere, 2 * granule).unwrap();
    subject.expect(elsewhere, 2 * granule, 5);
    subject.fill(elsewhere + 10, 100, 6);
    subject.expect(at + 10, 100, 6);
    // It exists until the last holder drops it.
    subject.unmap(at, 2 * granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.expect(elsewhere + 10, 100, 6);
    subject.unmap(elsewhere, 2 * granule).unwrap();
    subject.driver.destroy(imported).unwrap();
    subject.unreserve(at, 4 * granule).unwrap();
}

pub(crate) fn a_size_that_is_a_lie_is_found_out(subject: &Subject) {
    if !can_share(subject) {
        return;
    }
    let granule = subject.granule();
    let at = subject.driver.reserve(4 * granule).unwrap();
    let chunk = subject.driver.create_shareable(2 * granule).unwrap();
    for lie in [0, granule - 1, granule, 4 * granule, u64::MAX] {
        let Ok(imported) = subject.driver.import(subject.driver.export(chunk).unwrap(), lie) else { continue };
        assert!(subject.map(imported, at, lie).is_err(), "{lie} B of {} B", 2 * granule);
        subject.driver.destroy(imported).unwrap();
    }
    // Nothing is left of it.
    subject.map(chunk, at, 2 * granule).unwrap();
    subject.unmap(at, 2 * granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.unreserve(at, 4 * granule).unwrap();
}

pub(crate) fn only_what_was_made_for_it_is_handed_out(subject: &Subject) {
    if !can_share(subject) {
        return;
    }
    let granule = subject.granule();
    let (plain, shareable) =
        (subject.driver.create(granule).unwrap(), subject.driver.create_shareable(granule).unwrap());
    let refused = subject.driver.export(plain).unwrap_err();
    assert!(matches!(refused, DriverError::Failed { call: "export", .. }), "{refused}");
    subject.driver.destroy(plain).unwrap();
    subject.driver.destroy(shareable).unwrap();
    assert!(matches!(subject.driver.export(shareable), Err(DriverError::UnknownHandle { .. })));
    let file = File::open("/proc/self/exe").unwrap();
    assert!(subject.driver.import(file.into(), granule).is_err(), "no memory of anybody's");
    assert!(matches!(subject.driver.create_shareable(granule + 1), Err(DriverError::Failed { .. })));
}

/// The tests with several processes check what other processes see of it.
pub(crate) fn an_event_for_others_is_an_event_like_any(subject: &Subject) {
    let (stream, driver) = (subject.stream(), &subject.driver);
    if let Err(refused) = driver.export_event(stream).map(|(event, _)| driver.forget(event)) {
        assert!(matches!(refused, DriverError::Failed { call: "export_event", .. }), "{refused}");
        assert!(driver.import_event(&[0; 64]).is_err());
        return subject.close(stream);
    }
    let (go, gate) = mpsc::channel::<()>();
    subject.run(stream, move || gate.recv().unwrap_or_default());
    let (event, name) = driver.export_event(stream).unwrap();
    let (second, other) = driver.export_event(stream).unwrap();
    assert!(event != second && name != other, "each has a name of its own");
    assert_eq!(driver.is_over(event), Ok(false));
    // A stream waits for it as for any other event.
    let waiting = subject.stream();
    subject.wait(waiting, event);
    let after = subject.record(waiting);
    assert_eq!(driver.is_over(after), Ok(false));
    assert!(driver.import_event(&name).is_err(), "no process opens its own");
    let mut damaged = name;
    damaged[0] ^= 0xFF;
    assert!(driver.import_event(&damaged).is_err());
    assert!(driver.import_event(&[0xAB; 64]).is_err());
    go.send(()).unwrap();
    [event, second, after].into_iter().for_each(|event| driver.block_on(event).unwrap());
    assert_eq!(driver.is_over(event), Ok(true));
    for _ in 0..2 {
        driver.forget(event);
    }
    assert!(matches!(driver.is_over(event), Err(DriverError::UnknownHandle { what: "event", .. })));
    assert_eq!(driver.is_over(second), Ok(true));
    [second, after].into_iter().for_each(|event| driver.forget(event));
    [stream, waiting].into_iter().for_each(|stream| subject.close(stream));
}
