//! A kernel that faults, in its own process: the device is lost with a clear error, all its objects can still be
//! dropped, and the process ends well.
//!
//! On a GPU (`MILLPOND_TEST_DEVICE=cuda`) a kernel writes to an unmapped address. Over `fakecuda` the library answers
//! like one after that.

use std::ffi::c_void;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use millpond::cuda::CudaConfig;
use millpond::graph::Instantiate;
use millpond::raw::Queue;
use millpond::{Buffer, Device, DeviceConfig, Error, PoolConfig, Result, Stream};
use millpond_driver::RawStream;
use millpond_driver::cuda::LIBRARY_VARIABLE;
use millpond_driver::cuda::abi::{Code, Function};

use crate::common::process;
use crate::oracle::table;

/// Tells this program that it is the process that faults.
const ROLE: &str = "MILLPOND_FAULT_CHILD";
/// The last line of its output.
const SURVIVED: &str = "everything is dropped";

const PTX: &std::ffi::CStr = c"
.version 7.0
.target sm_80
.address_size 64
.visible .entry astray()
{
    .reg .b64 %rd1;
    .reg .b32 %r1;
    mov.u64 %rd1, 16;
    mov.u32 %r1, 7;
    st.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn a_fault_loses_the_device_and_the_process_ends_well() {
    let kind = match std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default().as_str() {
        "cuda" => "cuda",
        "" | "fake" => {
            println!("skipped on Cuda: MILLPOND_TEST_DEVICE is not `cuda`");
            "fake"
        }
        other => return println!("skipped: MILLPOND_TEST_DEVICE={other}"),
    };
    let mut command = process::test("fault::a_child_that_faults");
    let mut child = command.env(ROLE, kind).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
    let streams: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
    let readers = streams.map(|mut stream| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match child.try_wait().expect("it is a child") {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if status.is_none() {
        child.kill().expect("it can be killed");
    }
    let [said, complained] = readers.map(|reader| reader.join().expect("it reads"));
    println!("{said}{complained}");
    let status = status.unwrap_or_else(|| panic!("it did not end within a minute:\n{said}{complained}"));
    assert!(status.success(), "it ended with {status}:\n{said}{complained}");
    assert!(said.contains(SURVIVED), "it did not come to its end:\n{said}{complained}");
}

/// The process that faults. Does nothing if it was not started as one.
#[test]
fn a_child_that_faults() {
    let Ok(kind) = std::env::var(ROLE) else { return };
    let library = (kind == "fake").then(fakecuda::library);
    let config = CudaConfig::default().library(library);
    let device = Device::cuda_with(config.clone(), DeviceConfig::default()).expect("a CUDA device");
    run(&device, &config, &kind).expect("what comes before the fault");
    drop(device);
    println!("{SURVIVED}");
}

fn run(device: &Device, config: &CudaConfig, kind: &str) -> Result<()> {
    let (stream, other) = (device.stream()?, device.non_blocking_stream()?);
    let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX))?;
    let [x, y, z]: [Buffer<u8>; 3] =
        [stream.alloc(&pool, 4096)?, stream.alloc(&pool, 64 << 20)?, other.alloc(&device.default_pool(), 4096)?];
    stream.memset(x.write(), 1)?;
    other.memset(z.write(), 2)?;
    let (graph, out) = stream.capture(|s| {
        let out = s.alloc::<u8>(&pool, 4096)?;
        s.memset(out.write(), 3)?;
        Ok(out.into_alloc_node())
    })?;
    let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    let kept = exec.launch(&stream)?.take(out)?;
    let (before, external) = (stream.record()?, device.external_event());
    device.synchronize()?;
    assert_eq!(stream.copy_to_host(x.read())?, [1; 4096]);

    provoke(kind, &stream, &x)?;
    is_lost("the stream's synchronise", stream.synchronize());
    is_lost("the other stream's", other.synchronize());
    is_lost("the device's", device.synchronize());
    is_lost("a fill", stream.memset(x.write(), 4));
    is_lost("a copy to the host", stream.copy_to_host(y.read()));
    is_lost("a copy from the host", other.copy_from_host(z.write(), &[5; 4096]));
    is_lost("a launch of a graph", exec.launch(&stream).map(drop));
    is_lost("a new stream", device.stream());
    // These need no answer of the context. In both cases nothing hangs or panics.
    println!("memory to be mapped: {:?}", stream.alloc::<u8>(&device.default_pool(), 512 << 20).map(drop));
    println!("a small allocation: {:?}", stream.alloc::<u8>(&pool, 4096).map(drop));
    println!("an event: {:?}", stream.record().map(drop));
    println!("a look at an event: {:?}", before.is_over());
    println!("a capture: {:?}", stream.capture(|s| s.memset(y.write(), 6)).map(drop));
    println!("a trim: {:?}", pool.trim_to(0));
    println!("a free: {:?}", stream.free(y).map_err(|refused| refused.error));
    println!("a free without a stream: {:?}", device.free(z).map_err(|refused| refused.error));
    another_device(config);
    drop((kept, x, before, external, pool, stream));
    println!("buffers, events, pools and a stream are dropped");
    drop((exec, graph, other));
    Ok(())
}

/// Another device object in this process reports the fault, when it is made or when it is first used.
fn another_device(config: &CudaConfig) {
    let error = match Device::cuda_with(config.clone(), DeviceConfig::default()) {
        Err(error) => error,
        Ok(second) => {
            println!("another device object: made");
            let used = second.stream().and_then(|stream| {
                let x = stream.alloc::<u8>(&second.default_pool(), 4096)?;
                stream.memset(x.write(), 1)?;
                stream.synchronize()
            });
            used.expect_err("its context is lost")
        }
    };
    println!("another device object: {error}");
    assert!(error.report().to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error:?}");
}

#[track_caller]
fn is_lost<T>(what: &str, result: Result<T>) {
    match result {
        Err(Error::DeviceLost { ref reason }) if reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS") => {
            println!("{what}: {}", result.err().map_or_else(String::new, |error| error.report().to_string()));
        }
        other => panic!("{what}: {:?}, and not that the device is lost by an illegal address", other.map(drop)),
    }
}

/// Causes the loss of the device, as soon as it reaches this point.
fn provoke(kind: &str, stream: &Stream, x: &Buffer<u8>) -> Result<()> {
    if kind == "fake" {
        fakecuda::Hooks::load().fail("cuEventSynchronize", 0, Code::ILLEGAL_ADDRESS);
        return Ok(());
    }
    let name = std::env::var_os(LIBRARY_VARIABLE).unwrap_or_else(|| "libcuda.so.1".into());
    let table = table::Table::open(std::path::Path::new(&name)).expect("the driver library");
    let must = |call: &str, code: Code| assert!(code == Code::SUCCESS, "{call}: {}", table.explain(code));
    let (mut module, mut kernel) = (0, Function::default());
    must("cuModuleLoadData", table.load(&raw mut module, PTX.as_ptr().cast::<c_void>()));
    must("cuModuleGetFunction", table.kernel_of(&raw mut kernel, module, c"astray".as_ptr()));
    let launch = |queue: &Queue<'_>, _| {
        let (RawStream(native), none) = (queue.raw_stream(), std::ptr::null_mut());
        let native = millpond_driver::cuda::abi::Stream(native as usize);
        must("cuLaunchKernel", table.launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, native, none, none));
        Ok(())
    };
    // SAFETY: none for the kernel, because its fault is the purpose. It writes to memory of nobody.
    unsafe { stream.enqueue(x.write(), launch) }
}
