//! The cost of a buffer that is made, used by one launch and dropped: cuda-core's own, and Millpond's.
//!
//! Four columns: the thread's time for all of it, its time for the drop alone (the median), the longest of those drops,
//! and the memory that the device has taken for that many buffers while the stream is busy.
//!
//! Run it with `cargo run --release --example drop`. Without a CUDA device it says so.

mod common;

use std::time::{Duration, Instant};

use common::{Outcome, launch, scale};
use cuda_core::{CudaFunction, DeviceBuffer, DriverError, LaunchConfig, launch_kernel_on_stream};
use millpond_cuda_core::{Context, Stream, argument};

const N: usize = 1 << 20;
const ROUNDS: u32 = 200;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let Some(context) = common::context() else { return Ok(()) };
    let (scale, stream) = (scale(&context)?, context.stream()?);
    let pool = context.device().default_pool();
    let input = stream.alloc_zeroed::<f32>(&pool, N)?;
    for name in ["warm-up", "measured"] {
        println!("\n{name}: {ROUNDS} buffers of {} KiB", N * 4 / 1024);
        println!("us each  us of a drop  us of the longest  MiB more on the device");
        measure("cuda-core, `zeroed`, which waits for the stream", &stream, || {
            tracked(&scale, &stream, DeviceBuffer::zeroed(stream.cuda_core(), N)?)
        })?;
        measure("cuda-core, `uninitialized_async`", &stream, || tracked(&scale, &stream, uninitialized(&stream)?))?;
        measure("the same, and the context synchronised in the drop", &stream, || {
            let buffer = tracked(&scale, &stream, uninitialized(&stream)?)?;
            Ok(Synchronised { context: &context, _buffer: buffer })
        })?;
        measure("Millpond", &stream, || {
            let x = stream.alloc::<f32>(&pool, N)?;
            stream.run((x.write(), input.read()), |s, (x, input)| launch(&scale, s, &x, &input))?;
            Ok(x)
        })?;
    }
    stream.free(input)?;
    Ok(())
}

/// Prints one line of figures. The memory is the decrease of the device's free memory.
fn measure<T>(what: &str, stream: &Stream, make: impl Fn() -> Result<T>) -> Outcome {
    stream.synchronize()?;
    std::thread::sleep(Duration::from_millis(20));
    let before = free_bytes()?;
    let (begin, mut drops) = (Instant::now(), [Duration::ZERO; ROUNDS as usize]);
    for time in &mut drops {
        let made = make()?;
        let begin = Instant::now();
        drop(made);
        *time = begin.elapsed();
    }
    let (all, after) = (begin.elapsed(), free_bytes()?);
    stream.synchronize()?;
    drops.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (each, drop, longest) = (us(all) / f64::from(ROUNDS), us(drops[drops.len() / 2]), us(drops[drops.len() - 1]));
    println!("{each:7.2}  {drop:12.2}  {longest:17.2}  {:22}  {what}", before.saturating_sub(after) >> 20);
    Ok(())
}

/// Synchronises the context before the buffer is dropped, as the `cuda-core` 0.2 of cuda-oxide does.
struct Synchronised<'a> {
    context: &'a Context,
    _buffer: DeviceBuffer<f32>,
}

impl Drop for Synchronised<'_> {
    fn drop(&mut self) {
        self.context.cuda_core().synchronize().expect("the device is there");
    }
}

fn free_bytes() -> std::result::Result<u64, DriverError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are of two numbers, and the callers' context is current.
    cuda_core::IntoResult::result(unsafe { cuda_core::sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok(free as u64)
}

fn uninitialized(stream: &Stream) -> std::result::Result<DeviceBuffer<f32>, DriverError> {
    // SAFETY: the values that the kernel reads do not matter.
    unsafe { DeviceBuffer::uninitialized_async(stream.cuda_core(), N) }
}

/// cuda-core's own launch on a buffer of its own. cuda-core does not track such a launch: a lease keeps the memory
/// until it has completed.
fn tracked(scale: &CudaFunction, stream: &Stream, x: DeviceBuffer<f32>) -> Result<DeviceBuffer<f32>> {
    let (mut address, n) = (x.cu_deviceptr(), N as u32);
    let config = LaunchConfig::for_num_elems(n);
    let arguments = &mut [(&raw mut address).cast(), (&raw mut address).cast(), argument(&n)];
    let lease = x.storage().acquire(stream.cuda_core(), true, false)?;
    // SAFETY: these are the kernel's arguments, and it accesses `n` elements.
    unsafe { launch_kernel_on_stream(scale, config.grid_dim, config.block_dim, 0, stream.cuda_core(), arguments) }?;
    lease.retain_until_complete(stream.cuda_core())?;
    Ok(x)
}
