//! Captures: by Millpond, by cudarc, and by whole programs whose allocations are served.

use cudarc::driver::{result, sys};
use millpond::graph::Instantiate;
use millpond_cudarc::{Error, interpose};

use crate::{Outcome, context, give, take};

#[test]
fn captures_take_what_is_promised_to_last() -> Outcome {
    let Some(context) = context("captures::captures_take_what_is_promised_to_last") else { return Ok(()) };
    let (left, pool) = (context.stream()?, context.device().default_pool());
    let x = left.alloc::<u8>(&pool, 4096)?;
    left.run(x.write(), |s, mut x| s.memcpy_htod(&[5_u8; 4096], &mut x))?;
    let y = left.alloc::<u8>(&pool, 4096)?;
    let (graph, refused) = left.capture(|s| {
        let refused = left.run(x.write(), |s, mut x| s.memset_zeros(&mut x)).expect_err("it captures");
        // A GPU's driver copies only from and to memory that exists already. The memory that the graph allocates does
        // not yet.
        let scratch = s.alloc::<u8>(&pool, 4096)?;
        s.copy(x.read(), scratch.write())?;
        s.copy(scratch.read(), y.write())?;
        // SAFETY: it uses no other memory.
        unsafe { s.enqueue((y.read(), x.write()), |s, (from, mut to)| s.memcpy_dtod(&from, &mut to)) }?;
        // SAFETY: as above.
        unsafe { s.enqueue(x.write(), |s, mut x| s.memset_zeros(&mut x.try_slice_mut(..1024).expect("within"))) }?;
        s.free(scratch)?;
        Ok(refused)
    })?;
    assert!(matches!(refused, Error::Millpond(millpond::Error::InvalidArgument(_))), "{refused}");
    assert_eq!(left.run(x.read(), |s, x| s.clone_dtoh(&x))?, [5; 4096]);
    let _ = graph.instantiate(Instantiate::default())?.launch(&left)?;
    let found = left.run(x.read(), |s, x| s.clone_dtoh(&x))?;
    assert!(found[..1024].iter().all(|byte| *byte == 0) && found[1024..].iter().all(|byte| *byte == 5));
    Ok(())
}

const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// At each launch, a graph uses memory that was allocated before its capture. A free in the capture gives that memory
/// to nobody.
#[test]
fn memory_is_not_freed_by_a_capture() -> Outcome {
    const N: usize = 1 << 20;
    let Some(context) = context("captures::memory_is_not_freed_by_a_capture") else { return Ok(()) };
    let stream = context.cudarc().new_stream()?;
    let pool = interpose::pool(0)?;
    let used = take(N, &stream)?;
    stream.synchronize()?;
    stream.begin_capture(RELAXED)?;
    // SAFETY: it has as many bytes.
    unsafe { result::memset_d8_async(used, 0x11, N, stream.cu_stream()) }?;
    assert!(give(used, &stream).is_err());
    // SAFETY: it captures.
    let graph = unsafe { result::stream::end_capture(stream.cu_stream()) }?;
    let other = take(N, &stream)?;
    assert_ne!(other, used);
    // SAFETY: it has as many bytes.
    unsafe { result::memset_d8_async(other, 0x77, N, stream.cu_stream()) }?;
    let mut exec = std::mem::MaybeUninit::uninit();
    // SAFETY: a place for an instance.
    unsafe { sys::cuGraphInstantiateWithFlags(exec.as_mut_ptr(), graph, 0) }.result()?;
    // SAFETY: it was made just now.
    let exec = unsafe { exec.assume_init() };
    // SAFETY: the instance of this graph, whose memory is live.
    unsafe { sys::cuGraphLaunch(exec, stream.cu_stream()) }.result()?;
    for (address, value) in [(used, 0x11), (other, 0x77)] {
        let mut found = vec![0_u8; N];
        // SAFETY: both have as many, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(&mut found, address, stream.cu_stream()) }?;
        stream.synchronize()?;
        assert!(found.iter().all(|byte| *byte == value));
        // After the capture it is an ordinary free.
        give(address, &stream)?;
    }
    assert_eq!(pool.statistics().used_bytes, 0);
    Ok(())
}

/// A capture that cudarc began: a launch of its graph would repeat the work when the memory belongs to another.
#[test]
fn work_in_a_capture_of_cudarc_is_refused() -> Outcome {
    let Some(context) = context("captures::work_in_a_capture_of_cudarc_is_refused") else { return Ok(()) };
    let stream = context.stream()?;
    let x = stream.alloc::<u8>(&context.device().default_pool(), 4096)?;
    stream.run(x.write(), |s, mut x| s.memset_zeros(&mut x))?;
    stream.cudarc().begin_capture(RELAXED)?;
    let refused = stream.run(x.write(), |s, mut x| s.memset_zeros(&mut x)).expect_err("it would be a node");
    assert!(refused.to_string().contains("capturing"), "{refused}");
    let declared = stream.declare(x.write()).expect_err("work would follow that is a node");
    assert!(declared.to_string().contains("capturing"), "{declared}");
    // SAFETY: it captures.
    let graph = unsafe { result::stream::end_capture(stream.cudarc().cu_stream()) }?;
    // SAFETY: it was made just now.
    unsafe { sys::cuGraphDestroy(graph) }.result()?;
    stream.run(x.write(), |s, mut x| s.memset_zeros(&mut x))?;
    stream.free(x)?;
    Ok(())
}

/// One stream captures, another one allocates.
#[test]
fn captures_suffer_nothing_from_allocations() -> Outcome {
    let Some(context) = context("captures::captures_suffer_nothing_from_allocations") else { return Ok(()) };
    let (left, right) = (context.cudarc().new_stream()?, context.cudarc().new_stream()?);
    let _pool = interpose::pool(0)?;
    let freed = take(8 << 20, &left)?;
    // SAFETY: it has as many bytes.
    unsafe { result::memset_d8_async(freed, 1, 8 << 20, left.cu_stream()) }?;
    give(freed, &left)?;
    let kept = take(1 << 20, &left)?;
    left.begin_capture(RELAXED)?;
    // SAFETY: it has as many bytes.
    unsafe { result::memset_d8_async(kept, 0x11, 1 << 20, left.cu_stream()) }?;
    let other = take(4 << 20, &right)?;
    // SAFETY: it captures.
    unsafe { result::stream::end_capture(left.cu_stream()) }?;
    give(other, &right)?;
    give(kept, &left)?;
    Ok(())
}

/// A stream is adopted during a capture, after the program has dropped another one.
#[test]
fn streams_are_taken_over_beside_a_capture() -> Outcome {
    let Some(context) = context("captures::streams_are_taken_over_beside_a_capture") else { return Ok(()) };
    let left = context.stream()?;
    let x = left.alloc::<u8>(&context.device().default_pool(), 4096)?;
    for drops_one in [false, true] {
        if drops_one {
            drop(context.stream()?);
        }
        left.begin_capture()?;
        left.memset(x.write(), 1)?;
        std::thread::scope(|scope| {
            let open = || context.stream().map(drop).map_err(|error| error.to_string());
            scope.spawn(open).join().expect("no panic")
        })?;
        assert_eq!(left.end_capture()?.len(), 1);
    }
    Ok(())
}
