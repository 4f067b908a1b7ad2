//! The adaptor over the real cuda-core: on a GPU with `MILLPOND_TEST_DEVICE=cuda`, otherwise over `fakecuda`.
//!
//! Each test starts itself again as a process of its own. cuda-core finds the driver library by its plain name, so a
//! folder on the loader's path has `fakecuda` under that name.

mod beside;
mod lent;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cuda_core::{CudaContext, CudaStream, PinnedHostBuffer, sys};
use millpond::cuda::CudaConfig;
use millpond::graph::Instantiate;
use millpond::{DeviceConfig, PoolConfig};
use millpond_cuda_core::{Context, Error, Stream};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Set when the test runs in its own process.
const CHILD: &str = "MILLPOND_CUDA_CORE_CHILD";

/// Returns a device to test on. Returns `None` if another process has run the test, or if it is skipped.
fn context(test: &str) -> Option<Context> {
    let wish = std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default();
    if std::env::var_os(CHILD).is_some() {
        // A test that hangs must fail.
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
            eprintln!("it hangs");
            std::process::exit(1);
        });
        return Some(Context::open(0).expect("a CUDA device"));
    }
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"));
    child.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
    match wish.as_str() {
        "cuda" => {}
        "" | "fake" => {
            child.env("LD_LIBRARY_PATH", folder()).env_remove("MILLPOND_LIBCUDA");
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
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-core-{}", std::process::id()));
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
fn hold(stream: &CudaStream) -> Sender<()> {
    let (go, gate) = channel::<()>();
    let wait = move || {
        let _ = gate.recv();
    };
    stream.launch_host_function(wait).expect("a host function");
    go
}

/// Fills memory with cuda-core, as any of its work.
fn fill(stream: &CudaStream, address: u64, value: u8, bytes: usize) -> Result<(), cuda_core::DriverError> {
    stream.context().bind_to_thread()?;
    // SAFETY: the callers' memory has that many bytes.
    unsafe { cuda_core::memory::memset_d8_async(address, value, bytes, stream.cu_stream()) }
}

fn is_violation(error: &Error) -> bool {
    matches!(error, Error::Millpond(millpond::Error::Violation(_)))
}

#[test]
fn work_of_cuda_core_is_checked() -> Outcome {
    let Some(context) = context("work_of_cuda_core_is_checked") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let values: Vec<u32> = (0..1000).collect();
    let (x, y) = (left.upload(&pool, &values)?, left.alloc_zeroed::<u32>(&pool, 500)?);

    let refused = right.run(x.read(), |s, x| x.buffer()?.to_host_vec(s)).expect_err("unordered");
    assert!(is_violation(&refused), "{refused}");
    let Error::Millpond(why) = &refused else { panic!("{refused}") };
    assert!(why.report().to_string().contains("main.rs:"), "no line of the program: {}", why.report());
    let overlap = left.run((x.read(), x.write()), |_, _| Ok::<_, Error>(())).expect_err("aliased");
    assert!(matches!(overlap, Error::Millpond(millpond::Error::InvalidArgument(_))), "{overlap}");

    right.wait(&left.record()?)?;
    // Copies between parts of the buffers: slices of Millpond's view, and slices of the declared views.
    right.run((x.view().slice(100..700)?.read(), y.write()), |s, (x, mut y)| {
        assert_eq!((x.len(), y.len()), (600, 500));
        let (low, mut high) = y.try_split_at_mut(200).expect("it has as many");
        assert!(x.try_slice(..601).is_none() && high.try_slice_mut(301..).is_none());
        let from = x.try_slice(..200).expect("within");
        // SAFETY: the argument points to the slice's own address, which has 8 bytes.
        assert_eq!(unsafe { from.argument().cast::<u64>().read() }, from.cu_deviceptr());
        s.context().bind_to_thread()?;
        let copy = |to: u64, from: u64, len: usize| {
            // SAFETY: both have that many elements.
            unsafe { cuda_core::memory::memcpy_dtod_async(to, from, 4 * len, s.cu_stream()) }
        };
        copy(low.cu_deviceptr(), from.cu_deviceptr(), low.len())?;
        copy(high.cu_deviceptr(), x.try_slice(300..).expect("within").cu_deviceptr(), high.len())
    })?;
    let found = right.run(y.read(), |s, y| y.buffer()?.to_host_vec(s))?;
    assert!(found[..200].iter().copied().eq(100..300) && found[200..].iter().copied().eq(400..700));

    let refused = left.free(x).expect_err("read on the other stream");
    right.free(refused.buffer)?;
    right.free(y)?;
    assert_eq!(pool.statistics().used_bytes, 0);
    Ok(())
}

/// cuda-core's calls take declared memory only on the stream on which it was declared.
#[test]
fn another_stream_is_refused_declared_memory() -> Outcome {
    let Some(context) = context("another_stream_is_refused_declared_memory") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let x = left.upload(&context.device().default_pool(), &[7_u8; 4096])?;
    let refused = left.run(x.read(), |_, x| x.buffer()?.to_host_vec(right.cuda_core())).expect_err("another stream");
    let why = std::error::Error::source(&refused).and_then(|it| it.downcast_ref::<cuda_core::DriverError>());
    assert_eq!(why, Some(&cuda_core::DriverError(sys::cudaError_enum_CUDA_ERROR_NOT_READY)), "{refused}");
    // SAFETY: the closure does not move the buffer out.
    left.run(x.write(), |s, mut x| unsafe { x.with_buffer_mut(|x| x.zero_async(s)) }?)?;
    assert_eq!(left.run(x.read(), |s, x| x.buffer()?.to_host_vec(s))?, [0; 4096]);
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
            left.run(x.write(), |s, x| {
                fill(s, x.cu_deviceptr(), 1, x.len())?;
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
fn streams_are_adopted_once_and_stay_open() -> Outcome {
    let Some(context) = context("streams_are_adopted_once_and_stay_open") else { return Ok(()) };
    let theirs = context.cuda_core().new_stream()?;
    let stream = context.adopt(&theirs)?;
    assert_eq!(context.adopt(&theirs)?.id(), stream.id());
    assert_ne!(context.stream()?.id(), stream.id());
    let default = context.adopt(&context.cuda_core().default_stream())?;
    assert_eq!(default.id(), context.device().legacy_stream().id());

    // Millpond's handle alone keeps the stream open, also after the context has dropped it: no new stream of cuda-core
    // gets its handle.
    let ours = millpond::Stream::clone(&stream);
    let handle = theirs.cu_stream();
    drop((theirs, stream));
    for _ in 0..3 {
        assert_ne!(context.stream()?.cuda_core().cu_stream(), handle);
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
    let other = CudaContext::new(1)?.new_stream()?;
    assert!(matches!(context.adopt(&other), Err(Error::OtherContext)));
    Ok(())
}

#[test]
fn a_context_that_is_not_primary_is_refused() -> Outcome {
    let Some(context) = context("a_context_that_is_not_primary_is_refused") else { return Ok(()) };
    let theirs = context.cuda_core();
    // SAFETY: it is the primary context, which `theirs` keeps.
    let same = unsafe { CudaContext::borrow_raw(theirs.cu_ctx().cast(), theirs.cu_device(), 0) };
    assert!(Context::new(&same).is_ok());
    // SAFETY: the handle is only compared. No call uses it.
    let other = unsafe { CudaContext::borrow_raw(std::ptr::without_provenance_mut(64), theirs.cu_device(), 0) };
    assert!(matches!(Context::new(&other), Err(Error::NotPrimary)));
    Ok(())
}

#[test]
fn without_a_driver_library_there_is_an_error() {
    let config = CudaConfig::default().library(PathBuf::from("no/such/libcuda.so"));
    let error = Context::open_with(config, DeviceConfig::default()).expect_err("no library");
    assert!(error.to_string().contains("no/such/libcuda.so"), "{error}");
}

#[test]
fn pinned_buffers_come_back_when_they_are_copied() -> Outcome {
    let Some(context) = context("pinned_buffers_come_back_when_they_are_copied") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let x = left.alloc::<u32>(&pool, 1000)?;
    let host = || PinnedHostBuffer::from_slice(context.cuda_core(), &(0..1000).collect::<Vec<u32>>());

    let go = hold(left.cuda_core());
    let up = left.copy_from_pinned_host(x.write(), host()?)?;
    assert!(!up.is_over()?);
    let refused = right.copy_to_pinned_host(x.read(), host()?).expect_err("unordered");
    assert!(is_violation(&refused.error), "{refused}");
    let short = PinnedHostBuffer::<u32>::zeroed(context.cuda_core(), 10)?;
    let refused = left.copy_from_pinned_host(x.write(), short).expect_err("too short");
    assert!(matches!(refused.error, Error::Length { host: 10, device: 1000 }), "{refused}");
    assert!(refused.host.is_some(), "nothing was submitted");
    let down = left.copy_to_pinned_host(x.read(), host()?)?;
    // A dropped copy keeps its buffer and does not wait: the stream is still held here.
    drop(left.copy_from_pinned_host(x.write(), host()?)?);
    drop(go);
    assert!(up.wait()?.iter().copied().eq(0..1000));
    assert!(down.wait()?.iter().copied().eq(0..1000));
    left.free(x)?;
    Ok(())
}

#[test]
fn an_event_of_cuda_core_stands_for_a_point_of_ours() -> Outcome {
    let Some(context) = context("an_event_of_cuda_core_stands_for_a_point_of_ours") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let unknown = context.cuda_core().new_stream()?;
    let x = left.upload(&context.device().default_pool(), &[5_u8; 64])?;
    let go = hold(left.cuda_core());
    let event = context.cuda_core().new_event()?;
    let point = left.record_with(&event)?;
    assert!(!event.query()?);
    // Millpond's event orders the memory for `right`. cuda-core's event orders `unknown`, a stream that Millpond does
    // not know, and `back` orders `right` after it.
    right.wait(&point)?;
    unknown.wait(&event)?;
    let back = unknown.record_event(None)?;
    right.wait_for(&back)?;
    assert!(!right.is_idle()?);
    drop(go);
    assert_eq!(right.copy_to_host(x.read())?, [5; 64]);
    assert!(event.query()? && back.query()?);
    Ok(())
}

#[test]
fn captures_take_what_is_promised_to_last() -> Outcome {
    let Some(context) = context("captures_take_what_is_promised_to_last") else { return Ok(()) };
    let (left, pool) = (context.stream()?, context.device().default_pool());
    let (x, y) = (left.upload(&pool, &[5_u8; 4096])?, left.alloc::<u8>(&pool, 4096)?);
    let (graph, refused) = left.capture(|s| {
        let refused = left.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 0, x.len())).expect_err("it captures");
        let scratch = s.alloc::<u8>(&pool, 4096)?;
        s.copy(x.read(), scratch.write())?;
        s.copy(scratch.read(), y.write())?;
        // SAFETY: it uses no other memory.
        unsafe { s.enqueue(x.write(), |s, x| fill(s, x.cu_deviceptr(), 9, 1024)) }?;
        s.free(scratch)?;
        Ok(refused)
    })?;
    assert!(matches!(refused, Error::Millpond(millpond::Error::InvalidArgument(_))), "{refused}");
    assert_eq!(left.copy_to_host(x.read())?, [5; 4096]);
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..2 {
        let _ = exec.launch(&left)?;
    }
    let (found, copied) = (left.copy_to_host(x.read())?, left.copy_to_host(y.read())?);
    assert!(found[..1024].iter().all(|byte| *byte == 9) && found[1024..].iter().all(|byte| *byte == 5));
    assert!(copied[..1024].iter().all(|byte| *byte == 9) && copied[1024..].iter().all(|byte| *byte == 5));
    Ok(())
}

/// A capture returns the value of its closure, or its error, and the stream goes on.
#[test]
fn a_capture_comes_to_what_its_closure_returns() -> Outcome {
    let Some(context) = context("a_capture_comes_to_what_its_closure_returns") else { return Ok(()) };
    let stream = context.stream()?;
    let x = stream.alloc::<u8>(&context.device().default_pool(), 4096)?;
    // SAFETY: it submits nothing.
    let failed = stream.capture(|s| unsafe { s.enqueue(x.write(), |_, _| Err::<(), _>("not today")) });
    let failed = failed.expect_err("the closure fails");
    let why = std::error::Error::source(&failed).map(ToString::to_string);
    assert_eq!(why.as_deref(), Some("not today"), "{failed}");
    let panics = || stream.capture(|_| -> Result<(), Error> { panic!("as it should be") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    stream.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 1, 4096))?;
    let (graph, number) = stream.capture(|s| {
        s.memset(x.write(), 7)?;
        Ok(5)
    })?;
    let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
    assert_eq!((stream.copy_to_host(x.read())?, number), (vec![7; 4096], 5));
    Ok(())
}

/// cuda-core began this capture. A launch of its graph would repeat the work when the memory has another owner.
#[test]
fn work_in_a_capture_of_cuda_core_is_refused() -> Outcome {
    let Some(context) = context("work_in_a_capture_of_cuda_core_is_refused") else { return Ok(()) };
    let stream: Stream = context.stream()?;
    let pool = context.device().pool(PoolConfig::default())?;
    let x = stream.alloc::<u8>(&pool, 4096)?;
    // SAFETY: the context is current, and the stream does not capture.
    unsafe { stream.cuda_core().begin_capture(sys::CUstreamCaptureMode_enum_CU_STREAM_CAPTURE_MODE_RELAXED) }?;
    let refused = stream.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 0, 1)).expect_err("it would be a node");
    assert!(refused.to_string().contains("capturing"), "{refused}");
    // SAFETY: the stream captures.
    let graph = unsafe { stream.cuda_core().end_capture() }?;
    // SAFETY: the graph was made just now.
    assert_eq!(unsafe { sys::cuGraphDestroy(graph) }, 0);
    stream.run(x.write(), |s, x| fill(s, x.cu_deviceptr(), 0, 1))?;
    stream.free(x)?;
    Ok(())
}
