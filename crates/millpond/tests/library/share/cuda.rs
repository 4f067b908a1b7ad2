//! The same between CUDA devices: chunks are shareable handles there, and events are interprocess events. Over
//! `fakecuda`, and with `MILLPOND_TEST_DEVICE=cuda` on a GPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::child::Child;
use super::kills::held;
use super::{Side, copy_in, device, eventually, gate, is_filled, kind, random};
use crate::common::process::alone;

#[test]
fn memory_and_events_pass_between_processes() {
    passes(kind());
}

fn passes(kind: &str) {
    const LEN: usize = 1_200_000;
    let side = Side::of(device(kind));
    let mut children = [Child::on(kind), Child::on(kind)];
    let buffers = [0, 1].map(|seed| {
        let buffer = side.stream.alloc::<u32>(&side.pool, LEN).unwrap();
        copy_in(&side.stream, &buffer, seed).unwrap();
        buffer
    });
    for (seed, (child, buffer)) in children.iter_mut().zip(&buffers).enumerate() {
        child.must(format!("import x {}", buffer.export().unwrap()));
        let early = child.ask(format!("check x {seed}"));
        assert!(early.starts_with("error") && early.contains("but nothing makes that"), "{early}");
        child.must(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
        assert_eq!(child.must(format!("check x {seed}")), "right", "on {kind}");
        child.must(format!("copy x {}", seed + 10));
    }
    let [first, second] = buffers;
    let [mut gone, mut good] = children;
    gone.must("sync");
    gone.kill();
    // Its writes are there, and what it held is returned.
    assert!(is_filled(&side.stream, &first, 10).unwrap(), "on {kind}");
    side.stream.free(first).unwrap();
    good.must("free x");
    let back = side.device.import_event(&good.must("record").parse().unwrap()).unwrap();
    side.stream.wait(&back).unwrap();
    assert!(is_filled(&side.stream, &second, 11).unwrap(), "on {kind}");
    side.stream.free(second).unwrap();
    eventually("the child has nothing", || good.must("counts") == "0 0 0");
    good.end();
    side.assert_empty();
    let sharing = side.device.sharing();
    assert_eq!((sharing.lent, sharing.released, sharing.lost), (2, 1, 1), "on {kind}");
}

/// Submits a gate to a stream, and after it a write of new bytes.
fn gated(side: &Side, buffer: &millpond::Buffer<u32>) -> mpsc::Sender<()> {
    let go = gate(&side.stream).unwrap();
    side.stream.memset(buffer.write(), 7).unwrap();
    go
}

/// The importer waits for the event, and reports that it does, while the exporter's work cannot even begin.
#[test]
fn importing_an_event_waits_for_nothing() {
    let side = Side::of(device(kind()));
    let buffer = side.stream.alloc::<u32>(&side.pool, 100_000).unwrap();
    copy_in(&side.stream, &buffer, 1).unwrap();
    side.stream.synchronize().unwrap();
    let mut child = Child::on(kind());
    let go = gated(&side, &buffer);
    child.must(format!("import x {}", buffer.export().unwrap()));
    child.tell(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
    if kind() == "cuda" && !child.speaks_within(20, 0) {
        println!("skipped: this machine's driver lets no event pass between processes, so that importing waits");
        drop(go);
        child.hear();
        return child.kill();
    }
    assert_eq!(child.hear().unwrap(), "ok");
    child.tell("check x 1");
    drop(go);
    assert_eq!(child.hear().unwrap(), "wrong", "the bytes behind the gate are there");
    child.must("free x");
    child.must("sync");
    child.end();
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

/// If a driver opens no event of another process, the import waits for the event itself, and the order is the same.
#[test]
fn where_the_importers_driver_refuses_importing_waits() {
    let side = Side::of(device("fake"));
    let buffer = side.stream.alloc::<u32>(&side.pool, 100_000).unwrap();
    copy_in(&side.stream, &buffer, 1).unwrap();
    side.stream.synchronize().unwrap();
    for setting in [("FAKECUDA_FAIL", "cuIpcOpenEventHandle@0=801"), ("FAKECUDA_IPC_EVENTS", "0")] {
        let mut child = Child::with("fake", &[setting]);
        let go = gated(&side, &buffer);
        child.must(format!("import x {}", buffer.export().unwrap()));
        child.tell(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
        assert!(!child.speaks_within(0, 100), "it waits");
        drop(go);
        assert_eq!(child.hear().unwrap(), "ok");
        assert_eq!(child.must("check x 1"), "wrong");
        child.must("free x");
        child.must("sync");
        child.end();
        side.stream.synchronize().unwrap();
        copy_in(&side.stream, &buffer, 1).unwrap();
    }
    side.stream.synchronize().unwrap();
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

#[test]
fn where_the_exporters_driver_refuses_importing_waits() {
    let side = Side::of(device("fake"));
    for refusal in ["cuIpcGetEventHandle@0=801", "cuEventRecord@1=999"] {
        let mut child = Child::with("fake", &[("FAKECUDA_FAIL", refusal)]);
        child.must("gate");
        let ticket = child.must("record").parse().unwrap();
        let imported = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let import = scope.spawn(|| {
                let event = side.device.import_event(&ticket).unwrap();
                imported.store(true, Ordering::Release);
                side.stream.wait(&event).unwrap();
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(!imported.load(Ordering::Acquire), "it waits after {refusal}");
            child.must("open");
            import.join().unwrap();
        });
        side.stream.synchronize().unwrap();
        child.end();
    }
}

/// After any failed call of an import, the next import succeeds, and the exporter's event is released.
#[test]
fn every_call_of_an_events_import_may_fail() {
    let side = Side::of(device("fake"));
    let mut child = Child::on("fake");
    let calls = [
        "cuIpcOpenEventHandle",
        "cuStreamCreate",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamDestroy",
    ];
    let mut failed = Vec::new();
    for (call, after) in calls.into_iter().flat_map(|call| [(call, 0), (call, 1)]) {
        child.must(format!("fail {call} {after}"));
        for is_armed in [true, false] {
            let go = gate(&side.stream).unwrap();
            child.tell(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
            // If the event is not opened, the import waits for it.
            child.speaks_within(0, 200);
            drop(go);
            let said = child.hear().unwrap();
            assert!(is_armed || said == "ok", "after {call}: {said}");
            if said != "ok" {
                failed.push(call);
            }
            child.must("reset");
        }
        child.must("sync");
        side.stream.synchronize().unwrap();
    }
    failed.dedup();
    assert_eq!(failed, ["cuStreamCreate", "cuStreamWaitEvent", "cuEventRecord"], "the others are done without");
    child.end();
    side.assert_empty();
}

#[test]
fn importers_that_are_killed_leave_nothing() {
    alone(|| {
        // It takes a process a second to initialise a GPU.
        let rounds = if kind() == "cuda" { 8 } else { 40 };
        let side = Side::of(device(kind()));
        let event = |side: &Side| side.stream.record().unwrap().export().unwrap();
        let warm = side.stream.alloc::<u32>(&side.pool, 100).unwrap();
        drop((warm.export().unwrap(), event(&side), warm));
        side.assert_empty();
        let before = held();
        for round in 0..rounds {
            let buffer = side.stream.alloc::<u32>(&side.pool, 300_000).unwrap();
            copy_in(&side.stream, &buffer, 0).unwrap();
            let mut child = Child::on(kind());
            let go = gated(&side, &buffer);
            child.tell(format!("import x {}", buffer.export().unwrap()));
            child.tell(format!("wait {}", event(&side)));
            child.tell(format!("hold {}", event(&side)));
            child.tell(format!("copy x {round}"));
            child.tell("free x");
            child.tell(format!("hold {}", event(&side)));
            // Imports answer at once, unless a driver passes no events. A copy may wait for the gate.
            for _ in 0..round % 4 {
                if !child.speaks_within(5, 0) {
                    break;
                }
                child.hear();
            }
            std::thread::sleep(Duration::from_micros(random() % 3000));
            if round % 2 == 0 {
                drop(go);
                child.kill();
            } else {
                child.kill();
                drop(go);
            }
            side.stream.free(buffer).unwrap();
        }
        side.assert_reclaimed();
        if kind() == "fake" {
            // A GPU's driver has files of its own.
            eventually("no file or mapping is left", || held() == before);
        }
    });
}

#[test]
fn what_the_driver_lacks_is_said() {
    let side = Side::of(device("fake"));
    let plain = side.device.default_pool();
    let buffer = side.stream.alloc::<u32>(&plain, 10).unwrap();
    assert!(buffer.export().unwrap_err().report().to_string().contains("PoolConfig::shareable"));
}
