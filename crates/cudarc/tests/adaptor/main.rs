//! The adaptor over the real cudarc: on a GPU with `MILLPOND_TEST_DEVICE=cuda`, otherwise over `fakecuda`.
//!
//! Each test starts itself again, as a process of its own. cudarc finds the driver library by its name only, so
//! `fakecuda` has that name in a folder on that process's loader path. Also, the interposed functions serve a whole
//! process, which reports to them the streams that it closes. cudarc's own streams do not report that in a test, so the
//! streams of one test must not meet those of the next.

mod captures;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DeviceSlice, DriverError, result, sys};
use millpond::config::ReusePolicy;
use millpond::cuda::CudaConfig;
use millpond::{DeviceConfig, PoolConfig};
use millpond_cudarc::{Context, Error, Stream, interpose};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Set when the test runs for the second time.
const CHILD: &str = "MILLPOND_CUDARC_CHILD";

/// Returns a device to test on, or `None` if the test is done in another process, or not at all.
fn context(test: &str) -> Option<Context> {
    let wish = std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default();
    if std::env::var_os(CHILD).is_some() {
        return Some(Context::open(0).expect("a CUDA device"));
    }
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"));
    child.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
    match wish.as_str() {
        "cuda" => {}
        "" | "fake" => {
            child.env("LD_LIBRARY_PATH", folder()).env_remove("MILLPOND_LIBCUDA");
            // cudarc copies from and to vectors, and does not wait.
            child.env("FAKECUDA_PAGEABLE", "1");
        }
        _ => {
            eprintln!("skipped: MILLPOND_TEST_DEVICE={wish}");
            return None;
        }
    }
    let output = child.output().expect("the test starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}:\n{text}", output.status);
    eprint!("{text}");
    None
}

/// Returns a folder in which the driver library is `fakecuda`.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cudarc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libcuda.so", "libcuda.so.1"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(fakecuda::library(), link).expect("a link");
        }
        folder
    };
    FOLDER.get_or_init(make).clone()
}

/// Keeps a stream busy until the returned sender is dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (go, gate) = channel::<()>();
    let wait = move || {
        let _ = gate.recv();
    };
    // SAFETY: it touches no memory.
    unsafe { millpond::Stream::enqueue(stream, (), |queue, ()| queue.host_function(wait)) }.expect("a host function");
    go
}

#[test]
fn work_of_cudarc_is_checked() -> Outcome {
    let Some(context) = context("work_of_cudarc_is_checked") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let (x, y) = (left.alloc::<u32>(&pool, 1000)?, left.alloc::<u32>(&pool, 500)?);
    let values: Vec<u32> = (0..1000).collect();
    left.run(x.write(), |s, mut x| s.memcpy_htod(&values, &mut x))?;

    let refused = right.run(x.read(), |s, x| s.clone_dtoh(&x)).expect_err("unordered");
    assert!(matches!(refused, Error::Millpond(millpond::Error::Violation(_))), "{refused}");
    let overlap = left.run((x.read(), x.write()), |s, (x, mut y)| s.memcpy_dtod(&x, &mut y)).expect_err("aliased");
    assert!(matches!(overlap, Error::Millpond(millpond::Error::InvalidArgument(_))), "{overlap}");

    right.wait(&left.record()?)?;
    // A part of one and a part of the other; a view of ours, and one of the views.
    right.run((x.view().slice(100..700)?.read(), y.write()), |s, (x, mut y)| {
        assert_eq!((x.len(), DeviceSlice::len(&y)), (600, 500));
        let (mut low, mut high) = y.try_split_at_mut(200).expect("it has as many");
        assert!(x.try_slice(..601).is_none() && high.try_slice_mut(301..).is_none());
        s.memcpy_dtod(&x.try_slice(..200).expect("within"), &mut low)?;
        s.memcpy_dtod(&x.try_slice(300..).expect("within"), &mut high)
    })?;
    let found = right.run(y.read(), |s, y| s.clone_dtoh(&y))?;
    assert!(found[..200].iter().copied().eq(100..300) && found[200..].iter().copied().eq(400..700));

    let refused = left.free(x).expect_err("read on the other stream");
    right.free(refused.buffer)?;
    right.free(y)?;
    assert_eq!(pool.statistics().used_bytes, 0);
    Ok(())
}

#[test]
fn failing_closures_lose_no_use() -> Outcome {
    let Some(context) = context("failing_closures_lose_no_use") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    for panics in [false, true] {
        let x = left.alloc::<u8>(&pool, 4096)?;
        right.wait(&left.record()?)?;
        let fail = || {
            left.run(x.write(), |s, mut x| {
                s.memset_zeros(&mut x)?;
                assert!(!panics, "as it should be");
                Err::<(), Box<dyn std::error::Error + Send + Sync>>("not today".into())
            })
        };
        match catch_unwind(AssertUnwindSafe(fail)) {
            Ok(failed) => {
                let failed = failed.expect_err("it fails");
                let why = std::error::Error::source(&failed).map(ToString::to_string);
                assert_eq!(why.as_deref(), Some("not today"), "{failed}");
            }
            Err(_) => assert!(panics),
        }
        let refused = right.free(x).expect_err("the fill may be under way");
        left.free(refused.buffer)?;
    }
    Ok(())
}

#[test]
fn another_stream_is_put_in_between() -> Outcome {
    let Some(context) = context("another_stream_is_put_in_between") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let x = left.alloc::<u8>(&context.device().default_pool(), 4096)?;
    // Without this, the other stream's work would complete before it.
    let nap = || std::thread::sleep(Duration::from_millis(20));
    // SAFETY: it touches no memory.
    unsafe { millpond::Stream::enqueue(&left, (), |queue, ()| queue.host_function(nap)) }?;
    left.memset(x.write(), 7)?;
    left.run(x.write(), |_, mut x| right.cudarc().memset_zeros(&mut x))?;
    assert_eq!(left.run(x.read(), |s, x| s.clone_dtoh(&x))?, [0; 4096]);
    Ok(())
}

#[test]
fn a_slice_is_one_of_cudarc_and_comes_back() -> Outcome {
    let Some(context) = context("a_slice_is_one_of_cudarc_and_comes_back") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let x = left.alloc::<u8>(&pool, 4096)?;
    let address = x.address();
    let refused = context.slice(&right, x).expect_err("unordered");
    let mut slice = context.slice(&left, refused.buffer)?;
    left.cudarc().memset_zeros(&mut slice)?;
    right.cudarc().memcpy_htod(&[9_u8; 96], &mut slice.as_view_mut().slice_mut(4000..))?;
    let found = left.cudarc().clone_dtoh(&slice.as_view())?;
    assert!(found[..4000].iter().all(|byte| *byte == 0) && found[4000..] == [9; 96]);
    let back = slice.into_buffer()?;
    assert_eq!(back.address(), address);
    assert_eq!(left.run(back.read(), |s, x| s.clone_dtoh(&x))?, found);
    left.free(back)?;
    assert_eq!(pool.statistics().used_bytes, 0);
    Ok(())
}

/// A gate that keeps streams of cudarc busy, without Millpond's knowledge.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn gate(_: *mut c_void) {
    while !IS_OPEN.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps a stream of cudarc busy until [`IS_OPEN`].
fn keep_busy(stream: &CudaStream) {
    // SAFETY: an open stream; the function needs nothing.
    unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(gate), std::ptr::null_mut()) }
        .result()
        .expect("a host function");
}

/// cudarc's own events cover only the last reader, and to Millpond the readers are the program's own work.
#[test]
fn a_slice_that_comes_back_waits_for_all_readers() -> Outcome {
    const N: usize = 1 << 20;
    let Some(context) = context("a_slice_that_comes_back_waits_for_all_readers") else { return Ok(()) };
    let (home, slow, fast) = (context.stream()?, context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    // Copies to memory of another device handle, so that no use of these streams is declared.
    let own = millpond::Device::cuda(0)?;
    let reader = own.non_blocking_stream()?;
    let copies: Vec<_> = (0..2).map(|_| reader.alloc::<u8>(&own.default_pool(), N)).collect::<millpond::Result<_>>()?;
    reader.synchronize()?;
    let mut x = Some(home.alloc::<u8>(&pool, N)?);
    for round in 0..2 {
        let mut slice = context.slice(&home, x.take().expect("it comes back"))?;
        home.cudarc().memset_zeros(&mut slice)?;
        if round == 1 {
            keep_busy(slow.cudarc());
            for (stream, copy) in [&slow, &fast].into_iter().zip(&copies) {
                let (from, _used) = slice.device_ptr(stream.cudarc());
                // SAFETY: both have as many bytes.
                unsafe { result::memcpy_dtod_async(copy.address(), from, N, stream.cudarc().cu_stream()) }?;
            }
        }
        x = Some(slice.into_buffer()?);
    }
    let x = x.expect("it came back");
    home.memset(x.write(), 0xBB)?;
    std::thread::sleep(Duration::from_millis(50));
    assert!(!home.is_idle()?, "the slow reader has not begun");
    IS_OPEN.store(true, Ordering::Release);
    context.device().synchronize()?;
    slow.cudarc().synchronize()?;
    for copy in &copies {
        assert!(reader.copy_to_host(copy.read())?.iter().all(|byte| *byte == 0));
    }
    Ok(())
}

/// cudarc's own events cover only the last reader.
#[test]
fn a_slice_that_is_dropped_waits_for_all_readers() -> Outcome {
    let Some(context) = context("a_slice_that_is_dropped_waits_for_all_readers") else { return Ok(()) };
    let (home, slow, fast) = (context.stream()?, context.stream()?, context.stream()?);
    let reuse = ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = context.device().pool(PoolConfig::default().reuse(reuse))?;
    let slice = |of: &Stream| -> millpond::Result<_> { Ok(context.slice(of, of.alloc::<u8>(&pool, 1 << 20)?)?) };
    let (mut x, mut a, mut b) = (slice(&home)?, slice(&slow)?, slice(&fast)?);
    home.cudarc().memset_zeros(&mut x)?;
    let address = x.device_ptr(home.cudarc()).0;
    let go = hold(&slow);
    slow.cudarc().memcpy_dtod(&x, &mut a)?;
    fast.cudarc().memcpy_dtod(&x, &mut b)?;
    drop(x);
    let other = home.alloc::<u8>(&pool, 1 << 20)?;
    assert_ne!(other.address(), address, "the slow reader is not over");
    drop(go);
    context.device().synchronize()?;
    drop((a, b));
    let bytes = other.bytes();
    assert_eq!(pool.statistics().used_bytes, bytes);
    Ok(())
}

#[test]
fn streams_are_taken_over_once_and_stay_open() -> Outcome {
    let Some(context) = context("streams_are_taken_over_once_and_stay_open") else { return Ok(()) };
    let theirs = context.cudarc().new_stream()?;
    let stream = context.adopt(&theirs)?;
    assert_eq!(context.adopt(&theirs)?.id(), stream.id());
    assert_ne!(context.stream()?.id(), stream.id());
    let default = context.adopt(&context.cudarc().default_stream())?;
    assert_eq!(default.id(), context.device().legacy_stream().id());

    // Only Millpond's handle keeps it open, even after the context has released it.
    let ours = millpond::Stream::clone(&stream);
    drop((theirs, stream));
    for _ in 0..3 {
        drop(context.stream()?);
    }
    let x = ours.alloc::<u8>(&context.device().default_pool(), 512)?;
    ours.memset(x.write(), 3)?;
    assert_eq!(ours.copy_to_host(x.read())?, [3; 512]);
    Ok(())
}

#[test]
fn a_stream_of_another_context_is_refused() -> Outcome {
    let Some(context) = context("a_stream_of_another_context_is_refused") else { return Ok(()) };
    if CudaContext::device_count()? < 2 {
        eprintln!("skipped: one device");
        return Ok(());
    }
    let other: Result<_, DriverError> = CudaContext::new(1)?.new_stream();
    assert!(matches!(context.adopt(&other?), Err(Error::OtherContext)));
    Ok(())
}

#[test]
fn without_a_driver_library_there_is_an_error() {
    let config = CudaConfig::default().library(PathBuf::from("no/such/libcuda.so"));
    let error = Context::open_with(config, DeviceConfig::default()).expect_err("no library");
    assert!(error.to_string().contains("no/such/libcuda.so"), "{error}");
}

/// Calls of programs that link the driver library and do not know about Millpond.
#[test]
fn allocations_of_whole_programs_are_served() -> Outcome {
    let Some(context) = context("allocations_of_whole_programs_are_served") else { return Ok(()) };
    let theirs = context.cudarc();
    let (left, right) = (theirs.new_stream()?, theirs.new_stream()?);
    let pool = interpose::pool(0)?;
    let alloc = |bytes| {
        let mut address = 0;
        // SAFETY: an open stream of the current context.
        unsafe { interpose::cuMemAllocAsync(&mut address, bytes, left.cu_stream()) }.result().map(|()| address)
    };
    // SAFETY: as above.
    let free = |address, stream: &CudaStream| unsafe { interpose::cuMemFreeAsync(address, stream.cu_stream()) };

    let address = alloc(1 << 20)?;
    assert_eq!(pool.statistics().used_bytes, 1 << 20);
    let mut found = [0_u8; 64];
    // SAFETY: it has more bytes.
    unsafe { result::memset_d8_async(address, 4, 64, left.cu_stream()) }?;
    // SAFETY: both have as many, and the copy is waited for.
    unsafe { result::memcpy_dtoh_async(&mut found, address, left.cu_stream()) }?;
    left.synchronize()?;
    assert_eq!(found, [4; 64]);
    free(address, &left).result()?;
    assert_eq!((pool.statistics().used_bytes, alloc(1 << 20)?), (0, address));
    // On another stream: after the work of both.
    free(address, &right).result()?;
    assert_eq!(pool.statistics().used_bytes, 0);

    // Memory that is not Millpond's belongs to the library.
    assert!(free(address, &left).result().is_err(), "it is freed");
    left.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let _ = alloc(512);
    assert_eq!(pool.statistics().used_bytes, 0);
    // SAFETY: it captures.
    unsafe { result::stream::end_capture(left.cu_stream()) }?;
    Ok(())
}

/// Allocates on a stream, as a whole program does.
fn take(bytes: usize, stream: &CudaStream) -> Result<u64, DriverError> {
    let mut address = 0;
    // SAFETY: an open stream of the current context.
    unsafe { interpose::cuMemAllocAsync(&mut address, bytes, stream.cu_stream()) }.result().map(|()| address)
}

/// Frees on a stream, as a whole program does.
fn give(address: u64, stream: &CudaStream) -> Result<(), DriverError> {
    // SAFETY: as above.
    unsafe { interpose::cuMemFreeAsync(address, stream.cu_stream()) }.result()
}

/// The next stream may get the handle of a closed one. It does not come after the closed stream's work.
#[test]
fn memory_of_a_closed_stream_waits_for_its_work() -> Outcome {
    const N: usize = 2 << 20;
    let Some(context) = context("memory_of_a_closed_stream_waits_for_its_work") else { return Ok(()) };
    let pool = interpose::pool(0)?;
    pool.set_reuse(ReusePolicy { allow_internal_dependencies: false, ..Default::default() });
    let open = || {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a place for a stream.
        unsafe { sys::cuStreamCreate(&mut stream, 1) }.result().map(|()| stream)
    };
    let alloc = |stream| {
        let mut address = 0;
        // SAFETY: an open stream of the current context.
        unsafe { interpose::cuMemAllocAsync(&mut address, N, stream) }.result().map(|()| address)
    };
    context.cudarc().bind_to_thread()?;
    let closed = open()?;
    let freed = alloc(closed)?;
    // SAFETY: an open stream; the function needs nothing.
    unsafe { sys::cuLaunchHostFunc(closed, Some(gate), std::ptr::null_mut()) }.result()?;
    // SAFETY: it has as many bytes.
    unsafe { result::memset_d8_async(freed, 1, N, closed) }?;
    // SAFETY: an open stream.
    unsafe { interpose::cuMemFreeAsync(freed, closed) }.result()?;
    // SAFETY: an open stream, for the last time.
    unsafe { interpose::cuStreamDestroy_v2(closed) }.result()?;
    let others: Vec<_> = (0..8).map(|_| open()).collect::<Result<_, _>>()?;
    for other in &others {
        assert_ne!(alloc(*other)?, freed, "its fill has not begun");
    }
    IS_OPEN.store(true, Ordering::Release);
    Ok(())
}
