//! Memory that outlives its graph, ordered by events: one graph allocates it in one stream, a kernel uses it in a
//! second, another graph frees it in a third.
//!
//! Run with `cargo run -p millpond --example graph_three_streams`.

use millpond::graph::Instantiate;
use millpond::{Device, HostConfig};

fn main() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let (first, second, third) = (device.stream()?, device.stream()?, device.stream()?);

    let mut producer = device.graph()?;
    let out = producer.add_alloc::<u32>(&[], 1 << 20)?;
    let alloc = producer.node_of(out).expect("made by this graph");
    producer.add_kernel(&[alloc], out.write(), |out| out.fill(7))?;
    let mut freer = device.graph()?;
    freer.add_free(&[], out)?;
    let produce = producer.instantiate(Instantiate::default())?;
    let free = freer.instantiate(Instantiate::default())?;

    for round in 0..3 {
        produce.launch(&first)?;
        // Nothing makes `second` wait yet: the launch is refused, with both sides.
        if let Err(refused) = second.launch(out.read(), |_| ()) {
            println!("error: {}\n", refused.report());
        }
        second.wait(&first.record()?)?;
        second.launch(out.write(), |out| out.iter_mut().for_each(|out| *out *= 3))?;
        let host = second.copy_to_host(out.read())?;
        assert!(host.iter().all(|x| *x == 21));
        third.wait(&second.record()?)?;
        free.launch(&third)?;
        println!("round {round}: {} elements are 21, and are freed by another graph", host.len());
    }
    Ok(())
}
