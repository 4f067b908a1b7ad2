//! A kernel compiled by NVRTC, launched by cudarc on Millpond's memory: declared, checked, freed in stream order.
//!
//! Run it with `cargo run --release -p millpond-cudarc --example nvrtc`. Without a CUDA device it says so.

mod common;

use common::{Outcome, report};
use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;
use millpond_cudarc::{Context, Error};

const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float *y, const float *x, float a, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"#;

fn main() -> Outcome {
    match common::context() {
        Some(context) if common::load("nvrtc") => show(&context),
        _ => Ok(()),
    }
}

fn show(context: &Context) -> Outcome {
    let saxpy = context.cudarc().load_module(compile_ptx(SAXPY)?)?.load_function("saxpy")?;
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();

    let (n, a) = (1_000_003_usize, 3.0_f32);
    let xs: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let x = left.alloc::<f32>(&pool, n)?;
    let y = left.alloc::<f32>(&pool, n)?;
    x.set_name("x");
    left.run(x.write(), |s, mut x| s.memcpy_htod(&xs, &mut x))?;
    left.run(y.write(), |s, mut y| s.memset_zeros(&mut y))?;

    // On its own stream, twice.
    for _ in 0..2 {
        left.run((y.write(), x.read()), |s, (mut y, x)| {
            let mut launch = s.launch_builder(&saxpy);
            launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
            // SAFETY: these are the kernel's arguments, and it accesses `n` elements of each.
            unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.map(drop)
        })?;
    }

    // On a stream that does not come after that: refused before cudarc gets it. The error has the missing edge.
    let refused = right.run(x.read(), |s, x| s.clone_dtoh(&x)).expect_err("unordered");
    println!("\nrefused, as it should be:\n{refused}\n");
    report(
        "the read on another stream is a violation",
        matches!(refused, Error::Millpond(millpond::Error::Violation(_))),
    )?;
    right.wait(&left.record()?)?;
    let ys = right.run(y.read(), |s, y| s.clone_dtoh(&y))?;
    report("y = 2 a x, all of it", ys.iter().zip(&xs).all(|(y, x)| *y == 2.0 * a * x))?;

    // Code that needs a `CudaSlice` gets one: the same memory, ordered by cudarc's own events until it is returned.
    let (mut y, x) = (context.slice(&right, y)?, context.slice(&right, x)?);
    let mut launch = right.cudarc().launch_builder(&saxpy);
    launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
    // SAFETY: as above.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
    drop(launch);
    let part = right.cudarc().clone_dtoh(&y.slice(1000..2000))?;
    let is_right = part.iter().zip(&xs[1000..]).all(|(y, x)| *y == 3.0 * a * x);
    report("y = 3 a x, seen through a view of cudarc's", is_right)?;
    let (y, x) = (y.into_buffer()?, x.into_buffer()?);

    right.free(y)?;
    right.free(x)?;
    report("nothing is live", pool.statistics().used_bytes == 0)
}
