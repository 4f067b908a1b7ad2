//! Three other ways to free memory that outlives its graph: an immediate free after a synchronisation, a captured free
//! node of another graph, and the next launch of a graph with auto-free.
//!
//! Run with `cargo run -p millpond --example graph_frees`.

use millpond::graph::Instantiate;
use millpond::{Device, Error, HostConfig};

fn main() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let (graph, out) = stream.capture(|s| {
        let out = s.alloc::<u8>(&device.default_pool(), 1 << 20)?;
        s.memset(out.write(), 9)?;
        Ok(out.into_alloc_node())
    })?;

    let exec = graph.instantiate(Instantiate::default())?;
    let buffer = exec.launch(&stream)?.take(out)?;
    // The host has not waited yet: the free is refused, and returns the buffer.
    let refused = device.free(buffer).expect_err("nothing orders the host after the launch");
    println!("error: {}\n", refused.report());
    stream.synchronize()?;
    assert!(stream.copy_to_host(refused.buffer.read())?.iter().all(|byte| *byte == 9));
    device.free(refused.buffer)?;
    println!("freed at once, after a synchronisation");

    let buffer = exec.launch(&stream)?.take(out)?;
    let (freeing, ()) = stream.capture(|s| s.free(buffer).map_err(Error::from))?;
    freeing.instantiate(Instantiate::default())?.launch(&stream)?;
    println!("freed by another graph's free node");

    let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    exec.launch(&stream)?;
    let last = exec.launch(&stream)?.take(out)?;
    println!("freed by the next launch");
    drop(exec);
    assert!(stream.copy_to_host(last.read())?.iter().all(|byte| *byte == 9));
    stream.free(last)?;
    println!("the last one outlived its exec, and is freed by hand");
    Ok(())
}
