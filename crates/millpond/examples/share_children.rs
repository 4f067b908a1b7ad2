//! One parent and two children. Each child imports memory, checks what the parent wrote, writes its own values, and
//! frees its import. The parent waits for both, checks, and frees last. Run with
//! `cargo run -p millpond --example share_children`.
//!
//! Tickets are text. They pass through pipes here, because every user of the machine can read arguments.

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use millpond::share::Ticket;
use millpond::{Buffer, Device, HostConfig, PoolConfig};

const LEN: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(number) => {
            let mut tickets = std::io::stdin().lines();
            let mut ticket = || Ok::<Ticket, Box<dyn Error>>(tickets.next().ok_or("a ticket")??.parse()?);
            child(&ticket()?, &ticket()?, number.parse()?)
        }
        None => parent(),
    }
}

fn parent() -> Result<(), Box<dyn Error>> {
    let device = Device::host(HostConfig::default())?;
    let pool = device.pool(PoolConfig::default().shareable(true))?;
    let stream = device.stream()?;
    let mut shares: Vec<(Buffer<u32>, Child)> = Vec::new();
    for number in 1..=2 {
        let share = stream.alloc::<u32>(&pool, LEN)?;
        stream.launch(share.write(), move |x| x.fill(number))?;
        // The child's work comes after this, although the parent does not wait here.
        let (memory, event) = (share.export()?, stream.record()?.export()?);
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(number.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        writeln!(child.stdin.take().ok_or("a pipe")?, "{memory}\n{event}")?;
        shares.push((share, child));
    }
    for (number, (share, mut child)) in (1..=2).zip(shares) {
        let mut said = String::new();
        child.stdout.take().ok_or("a pipe")?.read_to_string(&mut said)?;
        if !child.wait()?.success() {
            return Err("a child failed".into());
        }
        // The child has exited, so its work has completed. A child that goes on working would export an event.
        let written = stream.copy_to_host(share.read())?;
        assert!(written.iter().all(|x| *x == number * 10));
        stream.free(share)?;
        print!("{said}");
    }
    stream.synchronize()?;
    println!("used at the end: {} B; {:?}", pool.statistics().used_bytes, device.sharing());
    Ok(())
}

fn child(memory: &Ticket, event: &Ticket, number: u32) -> Result<(), Box<dyn Error>> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    // SAFETY: the parent does not use it until this process has exited.
    let share: Buffer<u32> = unsafe { device.import(memory)? };
    // Nothing orders this after the parent's launch: it is refused before it runs.
    let refused = stream.launch(share.read(), |_| ()).err().ok_or("it is not ordered")?;
    println!("child {number}: refused: {}", refused.report());
    stream.wait(&device.import_event(event)?)?;
    assert!(stream.copy_to_host(share.read())?.iter().all(|x| *x == number));
    stream.launch(share.write(), move |x| x.fill(number * 10))?;
    stream.free(share)?;
    stream.synchronize()?;
    println!("child {number}: checked, filled, freed");
    Ok(())
}
