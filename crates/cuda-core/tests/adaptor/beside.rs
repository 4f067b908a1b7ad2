//! What cuda-core's own buffers do in the same place: the patterns of its own bug reports.

use cuda_core::{DeviceBuffer, DriverError, sys};
use fakecuda::Hooks;

use crate::{Outcome, context, fill, hold};

/// The calls by which a thread waits for a device.
const WAITS: [&str; 3] = ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"];

fn is_fake() -> bool {
    std::env::var("MILLPOND_TEST_DEVICE").as_deref() != Ok("cuda")
}

/// How often this thread called the functions.
fn calls(functions: &[&str]) -> u64 {
    let hooks = Hooks::load();
    functions.iter().map(|function| hooks.calls(function)).sum()
}

/// Memory of one stream is used on another that waits for the first one, and dropped. cuda-core's own buffer is refused
/// the use until the host sees the first stream idle; Millpond's is used, and the wrong order is what is refused.
#[test]
fn an_order_by_an_event_is_enough() -> Outcome {
    let Some(context) = context("beside::an_order_by_an_event_is_enough") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let (theirs_left, theirs_right) = (left.cuda_core(), right.cuda_core());

    let mut x = DeviceBuffer::<u8>::zeroed(theirs_left, 4096)?;
    let go = hold(theirs_left);
    x.zero_async(theirs_left)?;
    theirs_right.join(theirs_left)?;
    let refused = x.zero_async(theirs_right);
    assert_eq!(refused, Err(DriverError(sys::cudaError_enum_CUDA_ERROR_NOT_READY)));
    drop(go);
    left.synchronize()?;

    let x = left.alloc::<u8>(&context.device().default_pool(), 4096)?;
    let go = hold(theirs_left);
    left.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 1, x.len()))?;
    right.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 2, x.len())).expect_err("no order");
    right.wait(&left.record()?)?;
    right.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 2, x.len()))?;
    drop(go);
    assert_eq!(right.copy_to_host(x.read())?, [2; 4096]);
    Ok(())
}

/// A launch, which cuda-core does not track, on another stream, and a drop. cuda-core frees what the launch still uses;
/// here the declared use keeps the memory from others, and nothing waits.
#[test]
fn a_drop_after_a_launch_on_another_stream_is_right() -> Outcome {
    const BYTES: usize = 1 << 20;
    let Some(context) = context("beside::a_drop_after_a_launch_on_another_stream_is_right") else { return Ok(()) };
    if !is_fake() {
        eprintln!("skipped: what cuda-core does here is undefined on a GPU");
        return Ok(());
    }
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();

    // Millpond's: the drop neither waits nor makes an event for the host to look at.
    let x = left.alloc::<u8>(&pool, BYTES)?;
    right.wait(&left.record()?)?;
    let go = hold(right.cuda_core());
    right.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 7, x.len()))?;
    let before = calls(&WAITS);
    drop(x);
    assert_eq!(calls(&WAITS), before, "a drop waits");
    let y = left.alloc::<u8>(&pool, BYTES)?;
    left.memset(y.write(), 1)?;
    drop(go);
    right.synchronize()?;
    assert_eq!(left.copy_to_host(y.read())?, vec![1; BYTES], "the launch wrote memory that was used again");

    // cuda-core's: its thread frees the memory while the launch has not begun, and that writes who has it next.
    // SAFETY: it is not read.
    let uninitialized = || unsafe { DeviceBuffer::<u8>::uninitialized_async(left.cuda_core(), BYTES) };
    let x = uninitialized()?;
    let address = x.cu_deviceptr();
    right.cuda_core().join(left.cuda_core())?;
    let go = hold(right.cuda_core());
    fill(right.cuda_core(), address, 7, BYTES)?;
    drop(x);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut y = uninitialized()?;
    assert_eq!(y.cu_deviceptr(), address, "the memory was kept for the launch");
    y.zero_async(left.cuda_core())?;
    left.synchronize()?;
    drop(go);
    right.synchronize()?;
    assert_eq!(y.to_host_vec(left.cuda_core())?, vec![7; BYTES], "cuda-core got it right");
    Ok(())
}

/// Memory that is dropped while its stream is busy serves the next allocation of that stream at once. cuda-core's own
/// comes back only when its thread has seen the stream idle.
#[test]
fn a_dropped_buffer_serves_the_next_allocation() -> Outcome {
    const BYTES: usize = 1 << 20;
    let Some(context) = context("beside::a_dropped_buffer_serves_the_next_allocation") else { return Ok(()) };
    let stream = context.stream()?;
    let pool = context.device().default_pool();
    let go = hold(stream.cuda_core());
    let x = stream.alloc::<u8>(&pool, BYTES)?;
    let address = x.address();
    stream.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 1, x.len()))?;
    let before = if is_fake() { calls(&WAITS) + calls(&["cuEventCreate"]) } else { 0 };
    drop(x);
    let y = stream.alloc::<u8>(&pool, BYTES)?;
    assert_eq!(y.address(), address);
    assert_eq!(if is_fake() { calls(&WAITS) + calls(&["cuEventCreate"]) } else { 0 }, before);

    // SAFETY: it is not read.
    let mut x = unsafe { DeviceBuffer::<u8>::uninitialized_async(stream.cuda_core(), BYTES) }?;
    let address = x.cu_deviceptr();
    x.zero_async(stream.cuda_core())?;
    drop(x);
    std::thread::sleep(std::time::Duration::from_millis(50));
    // SAFETY: as above.
    let y = unsafe { DeviceBuffer::<u8>::uninitialized_async(stream.cuda_core(), BYTES) }?;
    assert_ne!(y.cu_deviceptr(), address, "cuda-core's own memory was free before its stream was idle");
    drop(go);
    Ok(())
}

/// An element cast keeps the owner: the memory comes back to Millpond once, when the last view is gone.
#[test]
fn a_cast_keeps_the_owner() -> Outcome {
    let Some(context) = context("beside::a_cast_keeps_the_owner") else { return Ok(()) };
    let stream = context.stream()?;
    let pool = context.device().default_pool();
    let lent = context.device_buffer(&stream, stream.alloc::<f32>(&pool, 1024)?)?;
    let cast = lent.cast_elem::<u32>();
    assert!(pool.statistics().used_bytes >= 4096);
    let before = if is_fake() { calls(&["cuMemFree", "cuMemFreeAsync"]) } else { 0 };
    drop(cast);
    assert_eq!(pool.statistics().used_bytes, 0);
    assert_eq!(if is_fake() { calls(&["cuMemFree", "cuMemFreeAsync"]) } else { 0 }, before, "cuda-core freed it");
    Ok(())
}
