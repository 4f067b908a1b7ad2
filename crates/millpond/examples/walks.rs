//! The calls that ARCHITECTURE.md follows through the layers, each made once, in a function of its own. `bench/walks`
//! counts the functions that each call passes through.
//!
//! Run with `cargo run -p millpond --example walks`.

use millpond::graph::{GraphExec, Instantiate};
use millpond::share::Ticket;
use millpond::{Buffer, Device, HostConfig, Pool, PoolConfig, Result, Stream};

#[inline(never)]
fn walk_hit(stream: &Stream, pool: &Pool) -> Result<Buffer<f32>> {
    stream.alloc::<f32>(pool, 1024)
}

#[inline(never)]
fn walk_free(stream: &Stream, buffer: Buffer<f32>) -> Result<()> {
    Ok(stream.free(buffer)?)
}

#[inline(never)]
fn walk_miss(stream: &Stream, pool: &Pool) -> Result<Buffer<f32>> {
    stream.alloc::<f32>(pool, 1024)
}

#[inline(never)]
fn walk_cross(stream: &Stream, buffer: Buffer<f32>) -> Result<()> {
    Ok(stream.free(buffer)?)
}

#[inline(never)]
fn walk_graph(exec: &GraphExec, stream: &Stream) -> Result<()> {
    exec.launch(stream).map(drop)
}

#[inline(never)]
fn walk_export(buffer: &Buffer<f32>) -> Result<Ticket> {
    buffer.export()
}

fn main() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let (stream, other) = (device.stream()?, device.stream()?);
    let pool = device.pool(PoolConfig::default())?;

    // Often enough for this thread to own the locks of both streams.
    for stream in [&stream, &other] {
        for _ in 0..4096 {
            let buffer = stream.alloc::<f32>(&pool, 1024)?;
            stream.free(buffer)?;
        }
    }
    let buffer = walk_hit(&stream, &pool)?;
    walk_free(&stream, buffer)?;

    let fresh = device.pool(PoolConfig::default())?;
    drop(walk_miss(&stream, &fresh)?);
    let buffer = stream.alloc::<f32>(&pool, 1024)?;
    other.wait(&stream.record()?)?;
    walk_cross(&other, buffer)?;

    let mut graph = device.graph()?;
    let memory = graph.add_alloc::<u32>(&[], 1024)?;
    let alloc = graph.node_of(memory).expect("made by this graph");
    let fill = graph.add_kernel(&[alloc], memory.write(), |words| words.fill(7))?;
    graph.add_free(&[fill], memory)?;
    let exec = graph.instantiate(Instantiate::default())?;
    exec.launch(&stream).map(drop)?;
    walk_graph(&exec, &stream)?;

    let shared = device.pool(PoolConfig::default().shareable(true))?;
    let buffer = stream.alloc::<f32>(&shared, 1024)?;
    buffer.export()?;
    let ticket = walk_export(&buffer)?;
    println!("{} bytes of ticket", ticket.to_bytes().len());
    device.synchronize()
}
