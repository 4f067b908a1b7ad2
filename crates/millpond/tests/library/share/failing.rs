//! Every driver call fails once, at the exporter and at the importer: a failed call can be repeated, and at the end all
//! memory is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millpond::{Buffer, Device, DeviceConfig, Error, Event, PoolConfig, Result};
use millpond_driver::{Driver, DriverError, Failing, HostConfig, HostDriver};

use super::{Side, eventually, fill, gate, import, is_filled};

type Driven = Arc<Failing<Arc<dyn Driver>>>;

fn driven() -> Driven {
    Arc::new(Failing::new(Arc::new(HostDriver::new(HostConfig::default()).expect("a host device"))))
}

/// Repeats a call that a driver refused. The second time it must succeed.
#[track_caller]
fn again<R>(mut act: impl FnMut() -> Result<R>) -> R {
    match act() {
        Ok(done) => done,
        Err(first) => {
            let is_drivers = matches!(first, Error::Driver(_) | Error::OutOfMemory(_) | Error::Share(_));
            assert!(is_drivers, "the driver's failure shows as: {first}");
            act().unwrap_or_else(|second| panic!("after {first}\nand once more: {second}"))
        }
    }
}

fn side(driver: &Driven) -> Side {
    let device = again(|| Device::with_driver(driver.clone(), DeviceConfig::default()));
    let pool = again(|| device.pool(PoolConfig::default().shareable(true)));
    Side { stream: again(|| device.stream()), pool, device }
}

/// Memory and events pass in both directions. Tickets that failed calls have used up are made again.
fn program(there: &Side, here: &Side) {
    let buffer: Buffer<u32> = again(|| there.stream.alloc(&there.pool, 1_200_000));
    again(|| fill(&there.stream, &buffer, 1));
    let imported = again(|| import(&here.device, &buffer.export()?));
    let pass = |from: &Side, to: &Side| {
        let event: Event = again(|| to.device.import_event(&from.stream.record()?.export()?));
        again(|| to.stream.wait(&event));
    };
    pass(there, here);
    assert!(again(|| is_filled(&here.stream, &imported, 1)));
    again(|| fill(&here.stream, &imported, 2));
    let second = again(|| import(&here.device, &buffer.export()?));
    drop(second);
    let mut kept = Some(imported);
    again(|| {
        here.stream.free(kept.take().expect("a refusal gives it back")).map_err(|refused| {
            kept = Some(refused.buffer);
            refused.error
        })
    });
    pass(here, there);
    assert!(again(|| is_filled(&there.stream, &buffer, 2)));
    // The owner's last call may be a drop: it waits for importers that still hold the memory.
    drop(buffer);
    again(|| here.device.synchronize());
}

fn end(there: &Side, here: &Side) {
    eventually("all is given back", || {
        let _ = (here.device.synchronize(), there.device.synchronize());
        let _ = there.pool.trim_to(0);
        let (far, near) = (there.device.sharing(), here.device.sharing());
        let statistics = there.pool.statistics();
        far.leases + near.imports + near.returning + near.imported_chunks == 0
            && (statistics.used_bytes, statistics.reserved_bytes) == (0, 0)
    });
}

#[test]
fn every_call_fails_once_on_either_side() {
    for importer in [false, true] {
        let mut kinds = std::collections::BTreeSet::new();
        for n in 0.. {
            let (far, near) = (driven(), driven());
            let failing = if importer { &near } else { &far };
            failing.fail_at(n);
            let (there, here) = (side(&far), side(&near));
            program(&there, &here);
            let struck = failing.struck();
            // Printed in case the test fails.
            eprintln!("call {n} failed: {struck:?}");
            end(&there, &here);
            if struck.is_empty() {
                assert!(n > 20, "there are more than {n} calls");
                break;
            }
            kinds.extend(struck);
        }
        use millpond::device::CallKind::{
            Create, Export, Import, Map, OpenStream, Record, Reserve, Submit, Unmap, Wait,
        };
        let wanted: &[_] = match importer {
            true => &[Import, Reserve, Map, Unmap, OpenStream, Submit, Record, Wait],
            // It depends on timing if it has to wait before it announces an event.
            false => &[Create, Export, Map, OpenStream, Submit, Record],
        };
        assert!(wanted.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
}

/// Work that the importer's device refuses to wait for may still run: its memory stays mapped, and the exporter's stays
/// used.
#[test]
fn memory_in_use_stays_where_the_device_refuses_to_wait() {
    use millpond::device::CallKind::{BlockOn, Record};
    for kind in [Record, BlockOn] {
        let near = driven();
        let (there, here) = (Side::new(), side(&near));
        let buffer = there.filled(100, 1);
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        drop(buffer);
        let go = gate(&here.stream).unwrap();
        let seen = Arc::new(AtomicU32::new(0));
        let sees = Arc::clone(&seen);
        here.stream.launch(imported.read(), move |x| sees.store(x[99], Ordering::Release)).unwrap();
        near.fail_every(kind, DriverError::Failed { call: kind.name(), reason: "made to fail".into() });
        here.stream.free(imported).unwrap();
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(1));
            there.device.sharing();
            assert_eq!(here.device.sharing().returning, 1, "{kind:?}");
            assert!(there.pool.statistics().used_bytes > 0, "{kind:?}");
        }
        drop(go);
        near.disarm();
        there.assert_given_back_by(&here);
        assert_eq!(seen.load(Ordering::Acquire), super::pattern(1, 99));
    }
}
