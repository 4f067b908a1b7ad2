//! Memory that outlives its graph, ordered by one stream: launch, kernel, free.
//!
//! Run with `cargo run -p millpond --example graph_one_stream`.

use millpond::graph::Instantiate;
use millpond::{Device, HostConfig};

fn main() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;

    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], 1 << 20)?;
    let alloc = graph.node_of(out).expect("made by this graph");
    graph.add_kernel(&[alloc], out.write(), |out| out.iter_mut().zip(0..).for_each(|(out, i)| *out = i))?;
    let exec = graph.instantiate(Instantiate::default())?;

    for round in 1..=3 {
        let buffer = exec.launch(&stream)?.take(out)?;
        stream.launch(buffer.write(), move |x| x.iter_mut().for_each(|x| *x *= round))?;
        let host = stream.copy_to_host(buffer.read())?;
        assert!(host.iter().zip(0..).all(|(x, i)| *x == round * i));
        println!("round {round}: {} elements at {:#x} are right", host.len(), buffer.address());

        // A launch before the free is refused. After the free it needs no wait.
        let refused = exec.launch(&stream).expect_err("an allocation of the launch before is live");
        println!("  refused: {}", refused.report());
        let view = buffer.view();
        stream.free(buffer)?;
        let refused = stream.launch(view.read(), |_| ()).expect_err("it is freed");
        println!("  error: {}", refused.report());
    }
    Ok(())
}
