//! Patterns of cuda-core's own bug reports, with cuda-core's buffers and with Millpond's.

use std::time::Duration;

use cuda_core::{DeviceBuffer, DriverError, sys};
use fakecuda::Hooks;
use millpond::PoolConfig;
use millpond::config::ReusePolicy;
use millpond_cuda_core::Stream;

use crate::{Outcome, context, fill, hold};

/// The calls by which a thread waits for a device.
const WAITS: [&str; 3] = ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"];

fn is_fake() -> bool {
    std::env::var("MILLPOND_TEST_DEVICE").as_deref() != Ok("cuda")
}

/// Returns how often this thread waited, made an event for the host, or freed by a call of the driver. 0 on a GPU,
/// which does not count calls.
fn calls_of_a_drop() -> u64 {
    if !is_fake() {
        return 0;
    }
    let hooks = Hooks::load();
    let functions = WAITS.iter().chain(&["cuEventCreate", "cuMemFree", "cuMemFreeAsync"]);
    functions.map(|function| hooks.calls(function)).sum()
}

/// Returns a buffer of cuda-core's own. Its bytes must not be read.
fn uninitialized(stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>, DriverError> {
    // SAFETY: the bytes are written before they are read, if ever.
    unsafe { DeviceBuffer::uninitialized_async(stream.cuda_core(), bytes) }
}

/// Memory of one stream is used on another stream that waits for the first one, and is dropped. cuda-core refuses the
/// use of its own buffer until the host sees the first stream idle. Millpond's buffer is used, and only the wrong order
/// is refused.
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

/// A launch on another stream, which cuda-core does not track, and then a drop. cuda-core frees memory that the launch
/// still uses. Here the declared use keeps the memory from other allocations, and nothing waits.
#[test]
fn a_drop_after_a_launch_on_another_stream_is_right() -> Outcome {
    const BYTES: usize = 1 << 20;
    let Some(context) = context("beside::a_drop_after_a_launch_on_another_stream_is_right") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();

    // Millpond's buffer: the drop neither waits nor makes an event for the host.
    let x = left.alloc::<u8>(&pool, BYTES)?;
    right.wait(&left.record()?)?;
    let go = hold(right.cuda_core());
    right.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 7, x.len()))?;
    let before = calls_of_a_drop();
    drop(x);
    assert_eq!(calls_of_a_drop(), before, "a drop waits, or makes an event for the host to look at");
    let y = left.alloc::<u8>(&pool, BYTES)?;
    left.memset(y.write(), 1)?;
    drop(go);
    right.synchronize()?;
    assert_eq!(left.copy_to_host(y.read())?, vec![1; BYTES], "the launch wrote memory that was used again");

    // cuda-core's buffer: its thread frees the memory before the launch begins, and the launch writes the next owner's
    // bytes.
    let x = uninitialized(&left, BYTES)?;
    let address = x.cu_deviceptr();
    right.cuda_core().join(left.cuda_core())?;
    let go = hold(right.cuda_core());
    fill(right.cuda_core(), address, 7, BYTES)?;
    drop(x);
    std::thread::sleep(Duration::from_millis(100));
    let mut y = uninitialized(&left, BYTES)?;
    assert_eq!(y.cu_deviceptr(), address, "the memory was kept for the launch");
    y.zero_async(left.cuda_core())?;
    left.synchronize()?;
    drop(go);
    right.synchronize()?;
    assert_eq!(y.to_host_vec(left.cuda_core())?, vec![7; BYTES], "cuda-core got it right");
    Ok(())
}

/// Memory that is dropped while its stream is busy serves the next allocation of that stream at once. cuda-core's own
/// memory comes back only when its thread has seen the stream idle, also if the element type was cast.
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
    let before = calls_of_a_drop();
    drop(x);
    let y = stream.alloc::<u8>(&pool, BYTES)?;
    assert_eq!(y.address(), address);
    assert_eq!(calls_of_a_drop(), before, "a drop waits, or makes an event for the host to look at");

    for is_cast in [false, true] {
        let mut x = uninitialized(&stream, BYTES)?;
        let address = x.cu_deviceptr();
        x.zero_async(stream.cuda_core())?;
        match is_cast {
            true => drop(x.cast_elem::<i8>()),
            false => drop(x),
        }
        std::thread::sleep(Duration::from_millis(50));
        let y = uninitialized(&stream, BYTES)?;
        assert_ne!(y.cu_deviceptr(), address, "cuda-core's own memory was free before its stream was idle");
    }
    drop(go);
    Ok(())
}

/// A buffer of cuda-core's `zeroed` is freed by `cuMemFree`, which waits for every stream of the context. It runs on
/// cuda-core's thread, so nothing else that was dropped comes back meanwhile. A drop here waits for no stream.
#[test]
fn a_drop_waits_for_no_other_stream() -> Outcome {
    const BYTES: usize = 1 << 20;
    let Some(context) = context("beside::a_drop_waits_for_no_other_stream") else { return Ok(()) };
    let (stream, busy) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let zeroed = stream.alloc_zeroed::<u8>(&pool, BYTES)?;
    let theirs_zeroed = DeviceBuffer::<u8>::zeroed(stream.cuda_core(), BYTES)?;
    let go = hold(busy.cuda_core());

    let (first, before) = (zeroed.address(), calls_of_a_drop());
    drop(zeroed);
    assert_eq!(calls_of_a_drop(), before, "a drop waits, or makes an event for the host to look at");
    assert_eq!(stream.alloc::<u8>(&pool, BYTES)?.address(), first);

    // If the other stream has no work and there is no `zeroed` buffer, the memory is reused at once.
    let reused = || {
        let x = uninitialized(&stream, BYTES)?;
        let address = x.cu_deviceptr();
        drop(x);
        std::thread::sleep(Duration::from_millis(50));
        Ok::<_, DriverError>(uninitialized(&stream, BYTES)?.cu_deviceptr() == address)
    };
    assert!(reused()?, "nothing uses it");
    drop(theirs_zeroed);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!reused()?, "cuda-core's thread does not wait for the other stream");
    drop(go);
    busy.cuda_core().synchronize()?;
    assert!(!is_fake() || calls_of_a_drop() > before, "calls are not counted");
    // An idle pool of CUDA's may return other addresses.
    let mut polls = 0;
    while is_fake() && !reused()? {
        polls += 1;
        assert!(polls < 100, "cuda-core's thread frees nothing more");
    }
    Ok(())
}

/// An element cast keeps the owner and the order of its free. The memory comes back to Millpond once, when the last
/// view is gone, after the work that used it.
#[test]
fn a_cast_keeps_the_owner() -> Outcome {
    let Some(context) = context("beside::a_cast_keeps_the_owner") else { return Ok(()) };
    let (stream, other) = (context.stream()?, context.stream()?);
    let reuse = ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = context.device().pool(PoolConfig::default().reuse(reuse))?;
    let mut lent = context.device_buffer(&stream, stream.alloc::<f32>(&pool, 1 << 18)?)?;
    let address = lent.cu_deviceptr();
    let go = hold(stream.cuda_core());
    lent.zero_async(stream.cuda_core())?;
    let before = calls_of_a_drop();
    drop(lent.cast_elem::<u32>());
    assert_eq!(calls_of_a_drop(), before);
    std::thread::sleep(Duration::from_millis(50));
    let elsewhere = other.alloc::<f32>(&pool, 1 << 18)?;
    assert_ne!(elsewhere.address(), address, "the fill is not over");
    other.free(elsewhere)?;
    drop(go);
    let mut polls = 0;
    while pool.statistics().used_bytes != 0 {
        std::thread::sleep(Duration::from_millis(1));
        polls += 1;
        assert!(polls < 5000, "the memory did not come back");
    }
    stream.synchronize()?;
    assert_eq!(stream.alloc::<f32>(&pool, 1 << 18)?.address(), address, "cuda-core freed it");
    Ok(())
}
