//! The code that the examples share: a device, or the notice that there is none; a kernel; a check.

// Each example uses its own part of this file.
#![allow(dead_code)]

use cuda_core::{CudaFunction, DriverError, LaunchConfig, launch_kernel_on_stream};
use millpond_cuda_core::{Context, In, Out, argument};

/// The result of an example.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Returns the first CUDA device. If there is none, prints that: the example has nothing to show.
pub(crate) fn context() -> Option<Context> {
    match Context::open(0) {
        Ok(context) => {
            println!("device 0: {}", context.device().properties().name);
            Some(context)
        }
        Err(error) => {
            println!("nothing to show: there is no CUDA device here ({error})");
            None
        }
    }
}

/// Loads the kernel of `scale.ptx`.
pub(crate) fn scale(context: &Context) -> Result<CudaFunction, DriverError> {
    context.cuda_core().load_module_from_ptx_src(include_str!("scale.ptx"))?.load_function("scale")
}

/// Submits `y = 2 x` to the stream on which both were declared.
pub(crate) fn launch(
    scale: &CudaFunction,
    stream: &cuda_core::CudaStream,
    y: &Out<'_, f32>,
    x: &In<'_, f32>,
) -> Result<(), DriverError> {
    let n = u32::try_from(y.len().min(x.len())).unwrap_or(u32::MAX);
    let config = LaunchConfig::for_num_elems(n);
    let arguments = &mut [y.argument(), x.argument(), argument(&n)];
    // SAFETY: these are the kernel's arguments, and it accesses `n` elements of each.
    unsafe { launch_kernel_on_stream(scale, config.grid_dim, config.block_dim, 0, stream, arguments) }
}

/// Prints one line about one check.
pub(crate) fn report(what: &str, is_right: bool) -> Outcome {
    println!("{} {what}", if is_right { "ok   " } else { "WRONG" });
    if is_right { Ok(()) } else { Err(format!("not so: {what}").into()) }
}
