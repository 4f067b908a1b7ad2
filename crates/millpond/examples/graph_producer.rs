//! One producer, varying consumers. The producer's graph has auto-free: each launch frees what the one before left, so
//! the loop need not know what it allocates. The last outputs are freed explicitly.
//!
//! Run with `cargo run -p millpond --example graph_producer`.

use millpond::graph::{GraphExec, Instantiate, MemAllocNode};
use millpond::{Device, HostConfig, Result};

const LEN: usize = 1 << 18;

fn main() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let pool = device.default_pool();
    let (producer, (ones, tens)) = stream.capture(|s| {
        let (ones, tens) = (s.alloc::<u32>(&pool, LEN)?, s.alloc::<u32>(&pool, LEN)?);
        let mut round = 0;
        s.launch((ones.write(), tens.write()), move |(ones, tens)| {
            round += 1;
            ones.fill(round);
            tens.fill(10 * round);
        })?;
        Ok((ones.into_alloc_node(), tens.into_alloc_node()))
    })?;
    let produce = producer.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    drop(producer); // The exec keeps the addresses.

    let result = stream.alloc::<u32>(&pool, LEN)?;
    let consumer = |from: MemAllocNode<u32>| -> Result<GraphExec> {
        let (graph, ()) = stream.capture(|s| s.copy(from.read(), result.write()))?;
        graph.instantiate(Instantiate::default())
    };
    let consumers = [consumer(ones)?, consumer(tens)?];
    for round in 1..=6u32 {
        produce.launch(&stream)?;
        let which = round as usize % 2;
        consumers[which].launch(&stream)?;
        let expected = [round, 10 * round][which];
        assert!(stream.copy_to_host(result.read())?.iter().all(|x| *x == expected));
        println!("round {round}: consumer {which} got {expected}");
    }
    // A consumer on another stream, after which the next launch does not come: the auto-free would free memory in use.
    let other = device.stream()?;
    other.wait(&stream.record()?)?;
    other.launch(ones.read(), |_| ())?;
    if let Err(refused) = produce.launch(&stream) {
        println!("error: {}\n", refused.report());
    }
    stream.wait(&other.record()?)?;
    let launch = produce.launch(&stream)?;
    let (ones, tens) = (launch.take(ones)?, launch.take(tens)?);
    drop((launch, produce)); // Frees nothing that was taken.
    assert!(stream.copy_to_host(ones.read())?.iter().all(|x| *x == 7));
    assert!(stream.copy_to_host(tens.read())?.iter().all(|x| *x == 70));
    stream.free(ones)?;
    stream.free(tens)?;
    println!("the last ones are freed by hand");
    Ok(())
}
