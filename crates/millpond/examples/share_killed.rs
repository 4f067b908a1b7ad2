//! A child is killed in the middle of its work with imported memory, a hundred times. The parent gets all bytes back.
//! Run with `cargo run -p millpond --example share_killed`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use millpond::share::Ticket;
use millpond::{Buffer, Device, HostConfig, PoolConfig};

const LEN: usize = 1 << 18;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(_) => child(&std::io::stdin().lines().next().ok_or("a ticket")??.parse()?),
        None => parent(),
    }
}

fn parent() -> Result<(), Box<dyn Error>> {
    let device = Device::host(HostConfig::default())?;
    let pool = device.pool(PoolConfig::default().shareable(true))?;
    let stream = device.stream()?;
    for round in 0..100 {
        let buffer = stream.alloc::<u32>(&pool, LEN)?;
        stream.launch(buffer.write(), move |x| x.fill(round))?;
        // The ticket covers all work that the host has synchronised with: the child needs no event.
        stream.synchronize()?;
        let ticket = buffer.export()?;
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // Through a pipe: every user of the machine can read arguments.
        writeln!(child.stdin.take().ok_or("a pipe")?, "{ticket}")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().ok_or("a pipe")?).read_line(&mut said)?;
        child.kill()?;
        child.wait()?;
        // The child is gone, and so is its lease.
        stream.free(buffer)?;
    }
    stream.synchronize()?;
    pool.trim_to(0)?;
    let (statistics, sharing) = (pool.statistics(), device.sharing());
    println!("{} B used, {} B reserved; {sharing:?}", statistics.used_bytes, statistics.reserved_bytes);
    assert_eq!((statistics.used_bytes, statistics.reserved_bytes, sharing.leases), (0, 0, 0));
    Ok(())
}

fn child(ticket: &Ticket) -> Result<(), Box<dyn Error>> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    // SAFETY: the parent does not use it until this process has exited.
    let buffer: Buffer<u32> = unsafe { device.import(ticket)? };
    println!("at work");
    loop {
        stream.launch(buffer.write(), |x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(3)))?;
        stream.synchronize()?;
    }
}
