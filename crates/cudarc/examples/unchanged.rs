//! A program that uses cudarc alone, in safe code, without Millpond: for `millpond check` and `millpond run`.
//!
//! A second stream reads a slice, which is then dropped. With `wrong` a third stream reads it first: cudarc keeps one
//! event for the reads of a slice, so its free waits only for the later reader. With `pairs` it prints the cost of a
//! slice that is made, filled with zeros and dropped, and the memory that the device then has in use.
//!
//! `cargo build --release -p millpond-cudarc --example unchanged`, then
//! `millpond check -- target/release/examples/unchanged wrong`. It needs a CUDA device.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaStream};

const WORDS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let word = std::env::args().nth(1).unwrap_or_default();
    let is_wrong = word == "wrong";
    let context = CudaContext::new(0)?;
    let (main, slow, fast) = (context.new_stream()?, context.new_stream()?, context.new_stream()?);
    if word == "pairs" {
        return pairs(&context, &main);
    }
    for turn in 0..10_u32 {
        let x = main.clone_htod(&vec![turn; WORDS])?;
        let (mut first, mut second) = (slow.alloc_zeros::<u32>(WORDS)?, fast.alloc_zeros::<u32>(WORDS)?);
        if is_wrong {
            slow.memcpy_dtod(&x, &mut first)?;
        }
        fast.memcpy_dtod(&x, &mut second)?;
        drop(x);
        let read = fast.clone_dtoh(&second)?;
        slow.synchronize()?;
        assert!(read.iter().all(|word| *word == turn), "turn {turn}");
    }
    println!("done");
    Ok(())
}

fn pairs(context: &CudaContext, stream: &Arc<CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
    const ROUNDS: usize = 2000;
    let mut least = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for round in 0..ROUNDS {
            stream.alloc_zeros::<u8>((1 + round % 16) << 16)?;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
        stream.synchronize()?;
    }
    let (free, total) = context.mem_get_info()?;
    println!("{least:.0} ns a slice, {} MiB of the device in use", (total - free) >> 20);
    Ok(())
}
