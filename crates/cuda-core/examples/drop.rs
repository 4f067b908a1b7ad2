//! What a buffer costs that is made, used by one launch and dropped: cuda-core's own, and Millpond's.
//!
//! Two columns: the thread's time for one, and how much memory the device has taken for it while the stream is busy.
//!
//! Run it with `cargo run --release --example drop`. Without a CUDA device it says so.

mod common;

use std::time::{Duration, Instant};

use common::{Outcome, launch, scale};
use cuda_core::{CudaFunction, DeviceBuffer, LaunchConfig, launch_kernel_on_stream};
use millpond_cuda_core::{Context, Stream, argument};

const N: usize = 1 << 20;
const ROUNDS: u32 = 200;

fn main() -> Outcome {
    let Some(context) = common::context() else { return Ok(()) };
    let (scale, stream) = (scale(&context)?, context.stream()?);
    let input = stream.alloc_zeroed::<f32>(&context.device().default_pool(), N)?;
    for name in ["warm-up", "measured"] {
        println!("\n{name}, {ROUNDS} buffers of {} KiB, us each:", N * 4 / 1024);
        let times = [
            ("cuda-core, `zeroed` (waits for the stream)", zeroed(&scale, &stream)?),
            ("cuda-core, `uninitialized_async`, an access tracked", uninitialized(&scale, &stream)?),
            ("cuda-core, context synchronised before the free", synchronised(&context, &scale, &stream)?),
            ("Millpond", millpond(&context, &scale, &stream, &input)?),
        ];
        for (what, (time, memory)) in times {
            let each = time.as_secs_f64() * 1e6 / f64::from(ROUNDS);
            println!("{each:9.2}  {:6} MiB more on the device  {what}", memory >> 20);
        }
    }
    stream.free(input)?;
    Ok(())
}

/// The time, and by how much the device's free memory has fallen meanwhile.
fn measured(stream: &Stream, round: impl Fn() -> Outcome) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    stream.synchronize()?;
    std::thread::sleep(Duration::from_millis(20));
    let before = free_bytes()?;
    let begin = Instant::now();
    (0..ROUNDS).try_for_each(|_| round())?;
    let (time, after) = (begin.elapsed(), free_bytes()?);
    stream.synchronize()?;
    Ok((time, before.saturating_sub(after)))
}

fn free_bytes() -> Result<u64, cuda_core::DriverError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: places for two numbers; the callers' context is current.
    cuda_core::IntoResult::result(unsafe { cuda_core::sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok(free as u64)
}

/// cuda-core's own launch on a buffer of its own.
fn plain(scale: &CudaFunction, stream: &Stream, x: &DeviceBuffer<f32>) -> Outcome {
    let (mut address, n) = (x.cu_deviceptr(), N as u32);
    let config = LaunchConfig::for_num_elems(n);
    let arguments = &mut [(&raw mut address).cast(), (&raw mut address).cast(), argument(&n)];
    // SAFETY: the kernel's arguments, and it touches `n` elements.
    unsafe { launch_kernel_on_stream(scale, config.grid_dim, config.block_dim, 0, stream.cuda_core(), arguments) }?;
    Ok(())
}

fn zeroed(scale: &CudaFunction, stream: &Stream) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    measured(stream, || {
        let x = DeviceBuffer::<f32>::zeroed(stream.cuda_core(), N)?;
        plain(scale, stream, &x)?;
        // The launch is not tracked: a lease keeps the memory until it has completed.
        Ok(x.storage().acquire(stream.cuda_core(), true, false)?.retain_until_complete(stream.cuda_core())?)
    })
}

fn uninitialized(scale: &CudaFunction, stream: &Stream) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    measured(stream, || {
        // SAFETY: what the kernel reads does not matter.
        let x = unsafe { DeviceBuffer::<f32>::uninitialized_async(stream.cuda_core(), N) }?;
        plain(scale, stream, &x)?;
        Ok(x.storage().acquire(stream.cuda_core(), true, false)?.retain_until_complete(stream.cuda_core())?)
    })
}

/// What `cuda-core` did at each drop before 0.5.
fn synchronised(
    context: &Context,
    scale: &CudaFunction,
    stream: &Stream,
) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    measured(stream, || {
        // SAFETY: what the kernel reads does not matter.
        let x = unsafe { DeviceBuffer::<f32>::uninitialized_async(stream.cuda_core(), N) }?;
        plain(scale, stream, &x)?;
        Ok(context.cuda_core().synchronize()?)
    })
}

fn millpond(
    context: &Context,
    scale: &CudaFunction,
    stream: &Stream,
    input: &millpond::Buffer<f32>,
) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    let pool = context.device().default_pool();
    measured(stream, || {
        let x = stream.alloc::<f32>(&pool, N)?;
        stream.run((x.write(), input.read()), |s, (x, input)| launch(scale, s, &x, &input))?;
        drop(x);
        Ok(())
    })
}
