//! Memory that outlives its graph, ordered by event nodes inside the graphs. A stream uses it while the graph that
//! allocated it still runs, and a wait node in the graph that frees it waits for that stream.
//!
//! Run with `cargo run -p millpond --example graph_events`.

use std::sync::mpsc::channel;

use millpond::graph::Instantiate;
use millpond::{Device, HostConfig, Result};

fn main() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let (left, right, outside) = (device.stream()?, device.stream()?, device.stream()?);
    let (is_made, is_used) = (device.external_event(), device.external_event());

    // alloc -> make -> record -> a long rest, for which the stream outside does not wait
    let (go, wait) = channel::<()>();
    let mut producer = device.graph()?;
    let out = producer.add_alloc::<u32>(&[], 1024)?;
    let alloc = producer.node_of(out).expect("made by this graph");
    let make = producer.add_kernel(&[alloc], out.write(), |out| out.fill(7))?;
    let record = producer.add_event_record(&[make], &is_made)?;
    producer.add_host_function(&[record], move || {
        // Does not complete before the stream outside has used the memory.
        let _ = wait.recv();
    })?;

    // wait -> free, beside work that waits for nothing
    let mut freer = device.graph()?;
    let waits = freer.add_event_wait(&[], &is_used)?;
    freer.add_free(&[waits], out)?;
    freer.add_host_function(&[], || ())?;

    let (produce, free) = (producer.instantiate(Instantiate::default())?, freer.instantiate(Instantiate::default())?);
    produce.launch(&left)?;
    // Nothing makes `outside` wait yet: the launch is refused, with both sides.
    if let Err(refused) = outside.launch(out.read(), |_| ()) {
        println!("error: {}\n", refused.report());
    }
    outside.wait_external(&is_made)?;
    outside.launch(out.write(), move |out| {
        out.iter_mut().for_each(|x| *x *= 3);
        go.send(()).expect("the graph still runs");
    })?;
    // The event is not recorded yet, so the wait node would wait for nothing: the free comes after no use.
    if let Err(refused) = free.launch(&right) {
        println!("error: {}\n", refused.report());
    }
    let host = outside.copy_to_host(out.read())?;
    assert!(host.iter().all(|x| *x == 21));
    outside.record_external(&is_used)?;
    free.launch(&right)?;
    println!("{} elements are 21, made and freed by graphs that met the outside at their nodes", host.len());
    device.synchronize()
}
