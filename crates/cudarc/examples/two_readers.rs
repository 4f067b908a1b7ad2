//! Two readers on two streams, then the memory is freed and reused: what the slower reader reads.
//!
//! cudarc's safe code orders the uses of a slice by events, and keeps one event for reads: the second read's replaces
//! the first one's. A later free or write waits only for the second reader. Here the first reader is slower, and its
//! result is checked. Then the same with Millpond's buffers and cudarc's copies.
//!
//! Only safe code. Run it with `cargo run --release -p millpond-cudarc --example two_readers`. Without a CUDA device it
//! says so.

mod common;

use std::sync::Arc;

use common::{Outcome, report};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use millpond_cudarc::{Context, Stream};

/// The number of bytes that are read.
const BYTES: usize = 64 << 20;
/// The work that keeps the slower reader's stream busy: memsets of this many bytes, and their number.
const BUSY: (usize, usize) = (1 << 30, 100);

fn main() -> Outcome {
    let Some(context) = common::context() else { return Ok(()) };
    println!("\ncudarc's own slices, safe code:");
    let runs = 5;
    let mut found = [0; 2];
    for after in [After::Free, After::Write] {
        for _ in 0..runs {
            found[after as usize] += usize::from(with_cudarc(&context, after)?);
        }
    }
    println!("       {} of {runs} runs: the slower reader read what came after the free", found[0]);
    println!("       {} of {runs} runs: the slower reader read what was written afterwards", found[1]);
    println!("\nMillpond's buffers, cudarc's copies, safe code:");
    for _ in 0..runs {
        with_millpond(&context)?;
    }
    report("the slower reader read what was there, in all runs", true)
}

/// The operation after the two reads.
#[derive(Clone, Copy)]
enum After {
    /// The slice is dropped, and its memory is reused by another one.
    Free,
    /// The slice is written.
    Write,
}

/// Returns `true` if the slower reader read other values than those before.
fn with_cudarc(context: &Context, after: After) -> Result<bool, Box<dyn std::error::Error>> {
    let context = context.cudarc();
    let (main, slow, fast) = (context.new_stream()?, context.new_stream()?, context.new_stream()?);
    let mut busy = slow.alloc_zeros::<u8>(BUSY.0)?;
    let (mut from_slow, mut from_fast) = (slow.alloc_zeros::<u8>(BYTES)?, fast.alloc_zeros::<u8>(BYTES)?);
    let mut x = main.clone_htod(&vec![1_u8; BYTES])?;
    for stream in [&main, &slow, &fast] {
        stream.synchronize()?;
    }

    for _ in 0..BUSY.1 {
        slow.memset_zeros(&mut busy)?;
    }
    slow.memcpy_dtod(&x, &mut from_slow)?; // the first reader: its event is recorded on `slow`
    fast.memcpy_dtod(&x, &mut from_fast)?; // the second reader: the same event, recorded on `fast`
    match after {
        After::Free => {
            let before = address(&x, &main);
            drop(x); // waits for the event, and is free on `main`
            let z = main.alloc_zeros::<u8>(BYTES)?;
            if address(&z, &main) != before {
                println!("       (the memory was not used again at once: this run shows nothing)");
            }
            main.synchronize()?;
        }
        After::Write => {
            main.memset_zeros(&mut x)?;
            main.synchronize()?;
        }
    }
    Ok(slow.clone_dtoh(&from_slow)?.iter().any(|byte| *byte != 1))
}

fn address(slice: &CudaSlice<u8>, stream: &Arc<CudaStream>) -> u64 {
    slice.device_ptr(stream).0
}

fn with_millpond(context: &Context) -> Outcome {
    let pool = context.device().default_pool();
    let (main, slow, fast): (Stream, Stream, Stream) = (context.stream()?, context.stream()?, context.stream()?);
    let busy = slow.alloc::<u8>(&pool, BUSY.0)?;
    let (from_slow, from_fast) = (slow.alloc::<u8>(&pool, BYTES)?, fast.alloc::<u8>(&pool, BYTES)?);
    let x = main.alloc::<u8>(&pool, BYTES)?;
    x.set_name("x");
    main.run(x.write(), |s, mut x| s.memcpy_htod(&vec![1_u8; BYTES], &mut x))?;
    let written = main.record()?;
    slow.wait(&written)?;
    fast.wait(&written)?;

    slow.run(busy.write(), |s, mut busy| (0..BUSY.1).try_for_each(|_| s.memset_zeros(&mut busy)))?;
    slow.run((x.read(), from_slow.write()), |s, (x, mut to)| s.memcpy_dtod(&x, &mut to))?;
    fast.run((x.read(), from_fast.write()), |s, (x, mut to)| s.memcpy_dtod(&x, &mut to))?;
    main.wait(&fast.record()?)?; // the edge that cudarc makes: after the second reader alone

    // Millpond knows both readers: the free is refused, and the error has the missing edge.
    let refused = main.free(x).expect_err("the first reader is unordered");
    println!("       refused: {}", refused.to_string().replace('\n', "\n       "));
    // Dropped, it is free after both reads, without a wait: a new allocation gets other memory, or is ordered later.
    drop(refused.buffer);
    let z = main.alloc::<u8>(&pool, BYTES)?;
    main.run(z.write(), |s, mut z| s.memset_zeros(&mut z))?;
    main.synchronize()?;
    let read = slow.run(from_slow.read(), |s, from| s.clone_dtoh(&from))?;
    if read.iter().any(|byte| *byte != 1) {
        return report("the slower reader read what was there", false);
    }
    Ok(())
}
