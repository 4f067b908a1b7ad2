//! A library that is missing, is not a library, or lacks a function; devices that do not exist.

use std::path::{Path, PathBuf};

use millpond_driver::{CudaConfig, CudaDriver, Driver, DriverError, RawStream};

use crate::{Wishes, config, driver, finish, stream};

fn refusal(config: CudaConfig) -> String {
    match CudaDriver::new(config).map(drop) {
        Err(DriverError::Failed { call: "open CUDA", reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn with_library(path: &Path) -> CudaConfig {
    CudaConfig::default().library(path.to_owned())
}

/// Copies the library with one name in it changed, so that nobody looks it up.
fn without(symbol: &str, file: &str) -> PathBuf {
    let mut bytes = std::fs::read(fakecuda::library()).unwrap();
    let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "{symbol}");
    places.into_iter().for_each(|at| bytes[at + 1] = b'X');
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_missing_library_is_named_with_what_to_do() {
    let reason = refusal(with_library(Path::new("/nowhere/libcuda.so.1")));
    assert!(reason.contains("/nowhere/libcuda.so.1") && reason.contains("MILLPOND_LIBCUDA"), "{reason}");
    assert!(reason.contains("No such file"), "{reason}");
}

#[test]
fn another_library_is_not_a_driver() {
    let reason = refusal(with_library(Path::new("libc.so.6")));
    assert!(reason.contains("libc.so.6 has no function `cuInit`"), "{reason}");
}

#[test]
fn a_missing_function_is_named() {
    for function in ["cuInit", "cuGetErrorName", "cuMemSetAccess", "cuStreamDestroy", "cuLaunchHostFunc"] {
        let wishes = Wishes::new();
        wishes.0.hide(function);
        let reason = refusal(config());
        assert!(reason.contains(&format!("has no function `{function}`")), "{reason}");
    }
}

/// A driver from before `cuGetProcAddress_v2`: functions are looked up under the header's names.
#[test]
fn an_older_driver_is_asked_by_names() {
    let driver = CudaDriver::new(with_library(&without("cuGetProcAddress_v2", "libolder.so"))).unwrap();
    let stream = stream(&driver);
    finish(&driver, stream);
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let reason = refusal(config().ordinal(65));
    assert_eq!(reason, "there is no device 65: 65 are visible");
    assert!(refusal(config().ordinal(u32::MAX)).contains("65 are visible"));
}

/// A failed attempt leaves nothing behind: the next attempt succeeds.
#[test]
fn opening_fails_at_every_call_and_then_does_not() {
    let calls = [
        "cuInit",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem",
        "cuCtxGetCurrent",
        "cuMemGetAllocationGranularity",
    ];
    let config = config();
    for call in calls {
        for (code, said) in [(999, "CUDA_ERROR_UNKNOWN (999): said by fakecuda"), (31_415, "result code 31415, which")]
        {
            let wishes = Wishes::new();
            wishes.fail(call, code);
            let error = CudaDriver::new(config.clone()).map(drop).expect_err(call).to_string();
            assert!(error.contains(said), "{call}: {error}");
        }
    }
    CudaDriver::new(config).unwrap();
    drop(driver());
}

/// Functions that a program can do without are looked up when they are used, and named in the error then.
#[test]
fn a_device_without_times_and_host_memory_says_what_is_missing() {
    let wishes = Wishes::new();
    for (function, ask) in [
        ("cuEventElapsedTime", (|driver, stream| driver.record_time(stream).map(drop)) as Ask),
        ("cuMemHostAlloc", |driver, _| driver.alloc_host(4096).map(drop)),
        ("cuMemFreeHost", |driver, _| driver.alloc_host(4096).map(drop)),
    ] {
        wishes.0.hide(function);
        let driver = driver();
        let stream = stream(&driver);
        let refused = ask(&driver, stream).expect_err("it is missing").to_string();
        assert!(refused.contains(&format!("`{function}`")), "{refused}");
        finish(&driver, stream);
    }
}

/// A request to a driver.
type Ask = fn(&CudaDriver, RawStream) -> millpond_driver::Result<()>;
