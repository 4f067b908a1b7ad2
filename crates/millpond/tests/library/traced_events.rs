//! External events of traced programs with several threads: what a thread does after it sees a record of another thread
//! comes after that record in the trace.

use std::path::Path;

use millpond::config::Trace;
use millpond::graph::{ExternalEvent, Instantiate};
use millpond::{Device, HostConfig, Result, Stream};
use millpond_core::check::Settings;

use crate::common::traced;

/// A thread records in each round, by `record`. Another thread sees that by the event, waits and reads.
fn is_right(name: &str, rounds: usize, record: impl Fn(&Device, &Stream, &ExternalEvent) -> Result<()> + Sync) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.trace", std::process::id()));
    let device = Device::host(HostConfig::default().trace(Trace::create(&path).unwrap())).unwrap();
    let (s, t) = (device.stream().unwrap(), device.stream().unwrap());
    for _ in 0..rounds {
        let event = device.external_event();
        std::thread::scope(|scope| {
            let recorded = scope.spawn(|| record(&device, &s, &event));
            while event.last().is_none() {
                std::hint::spin_loop();
            }
            t.wait_external(&event).unwrap();
            s.wait(&t.record().unwrap()).unwrap();
            recorded.join().unwrap().unwrap();
        });
    }
    device.synchronize().unwrap();
    drop((s, t, device));
    let found = traced::findings(&path, Settings::RECORDED, |_| true);
    std::fs::remove_file(&path).unwrap();
    assert!(found.iter().all(|finding| finding.kind.is_advice()), "{:?}", found.first());
    assert!(found.iter().all(|finding| finding.kind.name() != "empty-wait"), "{:?}", found.first());
}

#[test]
fn who_sees_a_stream_record_waits_for_it_in_the_trace() {
    is_right("records", 2000, |_, stream, event| stream.record_external(event));
}

#[test]
fn who_sees_a_launch_record_waits_for_it_in_the_trace() {
    is_right("launches", 200, |device, stream, event| {
        let mut graph = device.graph()?;
        graph.add_event_record(&[], event)?;
        let _ = graph.instantiate(Instantiate::default())?.launch(stream)?;
        Ok(())
    });
}
