//! A program of cudarc alone, in safe code, that knows nothing of Millpond: for `millpond check` and `millpond run`.
//!
//! A slice is read by a second stream and dropped. With `wrong` a third stream reads it before that one does: cudarc
//! keeps one event for the reads of a slice, so that its free waits for the later reader alone.
//!
//! `cargo build --release -p millpond-cudarc --example unchanged`, then
//! `millpond check -- target/release/examples/unchanged wrong`. It needs a CUDA device.

use cudarc::driver::CudaContext;

const WORDS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_wrong = std::env::args().nth(1).is_some_and(|word| word == "wrong");
    let context = CudaContext::new(0)?;
    let (main, slow, fast) = (context.new_stream()?, context.new_stream()?, context.new_stream()?);
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
