//! A kernel from PTX, launched by cuda-core on Millpond's memory: on two streams, in a graph, and through a
//! `DeviceBuffer`.
//!
//! Run it with `cargo run --release --example kernel`. Without a CUDA device it says so.

mod common;

use common::{Outcome, launch, report, scale};
use cuda_core::{LaunchConfig, PinnedHostBuffer, launch_kernel_on_stream};
use millpond::graph::Instantiate;
use millpond_cuda_core::{Context, Error, argument};

const N: usize = 1_000_003;

fn main() -> Outcome {
    match common::context() {
        Some(context) => show(&context),
        None => Ok(()),
    }
}

fn show(context: &Context) -> Outcome {
    let scale = scale(context)?;
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let ones: Vec<f32> = (0..N).map(|i| (i % 1000) as f32).collect();
    let is = |found: &[f32], factor: f32| found.iter().zip(&ones).all(|(y, x)| *y == factor * x);

    // On one stream, from a pinned buffer of cuda-core's.
    let x = left.alloc::<f32>(&pool, N)?;
    let y = left.alloc::<f32>(&pool, N)?;
    x.set_name("x");
    y.set_name("y");
    let host = left.copy_from_pinned_host(x.write(), PinnedHostBuffer::from_slice(context.cuda_core(), &ones)?)?;
    left.run((y.write(), x.read()), |s, (y, x)| launch(&scale, s, &y, &x))?;

    // On a stream that does not come after that: refused before cuda-core gets it. The error has the missing edge.
    let refused = right.run((x.write(), y.read()), |s, (x, y)| launch(&scale, s, &x, &y)).expect_err("unordered");
    println!("\nrefused, as it should be:\n{refused}\n");
    let is_violation = matches!(refused, Error::Millpond(millpond::Error::Violation(_)));
    report("the launch on another stream is a violation", is_violation)?;
    right.wait(&left.record()?)?;
    right.run((x.write(), y.read()), |s, (x, y)| launch(&scale, s, &x, &y))?;
    report("x = 4 x, by two streams", is(&right.copy_to_host(x.read())?, 4.0))?;
    let host = right.copy_to_pinned_host(y.read(), host.wait()?)?.wait()?;
    report("y = 2 x, in a pinned buffer", is(&host, 2.0))?;

    // In a graph that owns the memory between two launches.
    left.wait(&right.record()?)?;
    let graph = left
        .capture(|s| {
            let between = s.alloc::<f32>(&pool, N)?;
            // SAFETY: the kernel and its declared memory exist at each launch.
            unsafe { s.enqueue((between.write(), x.read()), |s, (y, x)| launch(&scale, s, &y, &x)) }?;
            // SAFETY: as above.
            unsafe { s.enqueue((x.write(), between.read()), |s, (y, x)| launch(&scale, s, &y, &x)) }?;
            Ok(s.free(between)?)
        })?
        .0;
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..2 {
        let _ = exec.launch(&left)?;
    }
    report("x = 64 x, by a graph launched twice", is(&left.copy_to_host(x.read())?, 64.0))?;

    // Code that needs a `DeviceBuffer` gets one that owns the memory, and returns it later.
    let lent = context.device_buffer(&left, y)?;
    let (mut address, n) = (lent.cu_deviceptr(), N as u32);
    let config = LaunchConfig::for_num_elems(n);
    let arguments = &mut [(&raw mut address).cast(), (&raw mut address).cast(), argument(&n)];
    // SAFETY: these are the kernel's arguments, and it accesses `n` elements.
    unsafe { launch_kernel_on_stream(&scale, config.grid_dim, config.block_dim, 0, left.cuda_core(), arguments) }?;
    report("y = 4 x, through a `DeviceBuffer`", is(&lent.to_host_vec(left.cuda_core())?, 4.0))?;
    let y = context.buffer(lent)?;

    left.free(y)?;
    left.free(x)?;
    report("nothing is live", pool.statistics().used_bytes == 0)
}
