//! The system's limits on a process, reached deliberately: each is an error that names the limit, and nothing is lost.
//!
//! A limit holds for a whole process, so each case runs in its own process: this test binary again, with the case in an
//! environment variable.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use millpond_driver::{Driver, DriverError, HostConfig, HostDriver, RawStream, Result, StreamFlags, Work};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CASE: &str = "MILLPOND_LIMIT_CASE";
const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;

fn limit(resource: Resource, current: u64) {
    setrlimit(resource, Rlimit { current: Some(current), maximum: getrlimit(resource).maximum }).unwrap();
}

/// Leaves the process `bytes` bytes of addresses.
fn leave_addresses(bytes: u64) {
    // A new thread needs some addresses at first, and gives some back.
    std::thread::sleep(Duration::from_millis(100));
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    limit(Resource::As, pages * rustix::param::page_size() as u64 + bytes);
}

/// Leaves the process no file descriptor.
fn leave_no_file() {
    let next = std::fs::File::open("/dev/null").unwrap();
    limit(Resource::Nofile, std::os::fd::AsRawFd::as_raw_fd(&next) as u64);
}

fn device() -> HostDriver {
    HostDriver::new(HostConfig::default()).expect("a device")
}

#[track_caller]
fn assert_says<T>(outcome: Result<T>, words: &[&str]) {
    let Err(error) = outcome else { panic!("it is not refused") };
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// The file of a device grows to the limit, and not beyond.
fn files_of_a_size() {
    let device = device();
    limit(Resource::Fsize, 64 * MIB + MIB);
    let chunks: Vec<_> = (0..32).map(|_| device.create(GRANULE).unwrap()).collect();
    assert_says(device.create(GRANULE), &["create", "RLIMIT_FSIZE", "68157440"]);
    assert_says(device.create_shareable(128 * MIB), &["create", "RLIMIT_FSIZE"]);
    assert_eq!(device.used_bytes(), 64 * MIB, "what was refused is not counted");
    device.create_shareable(64 * MIB).unwrap();
    device.destroy(chunks[3]).unwrap();
    let again = device.create(GRANULE).unwrap();
    let at = device.reserve(GRANULE).unwrap();
    // SAFETY: the range is fresh.
    unsafe { device.map(again, at, GRANULE) }.unwrap();
    limit(Resource::Fsize, 1 << 30);
    device.create(128 * MIB).unwrap();
}

fn few_addresses() {
    let device = device();
    leave_addresses(1024 * MIB);
    let refused = device.reserve(64 << 30);
    assert!(matches!(refused, Err(DriverError::OutOfAddresses { call: "reserve", bytes, .. }) if bytes == 64 << 30));
    assert_says(refused, &["RLIMIT_AS", "ulimit -v", "max_bytes"]);
    // The addresses that are left can be used, but not all of them.
    let mut ranges = Vec::new();
    for bytes in [256 * MIB, 64 * MIB, 16 * MIB] {
        while let Ok(at) = device.reserve(bytes) {
            ranges.push((at, bytes));
        }
    }
    assert!(ranges.len() >= 3, "{ranges:?}");
    std::thread::spawn(|| vec![1u8; MIB as usize]).join().expect("a thread still has addresses");
    for (at, bytes) in ranges {
        // SAFETY: nothing was mapped there.
        unsafe { device.unreserve(at, bytes) }.unwrap();
    }
    device.reserve(256 * MIB).unwrap();
}

fn no_files() {
    let device = device();
    let chunk = device.create_shareable(GRANULE).unwrap();
    leave_no_file();
    let words = ["RLIMIT_NOFILE", "ulimit -n"];
    assert_says(HostDriver::new(HostConfig::default()), &words);
    assert_says(device.create_shareable(GRANULE), &words);
    assert_says(device.export(chunk), &words);
    assert_eq!(device.used_bytes(), GRANULE);
    // Other chunks take no file.
    device.create(GRANULE).unwrap();
}

fn stream(device: &HostDriver) -> RawStream {
    device.open_stream(StreamFlags::default()).unwrap()
}

fn run(device: &HostDriver, stream: RawStream, task: impl FnOnce() + Send + 'static) {
    // SAFETY: the closures touch no device memory.
    unsafe { device.submit(stream, &mut Some(Work::Run(Box::new(task)))) }.unwrap();
}

/// A device without a thread is refused. A device that has one thread does all its work with it.
fn no_threads() {
    let device = device();
    // Less than the stack of a thread.
    leave_addresses(MIB);
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit holds");
    assert_says(HostDriver::new(HostConfig::default()), &["thread", "RLIMIT_NPROC", "ulimit -u", "RLIMIT_AS"]);
    let streams: Vec<RawStream> = (0..8).map(|_| stream(&device)).collect();
    let (done, seen) = mpsc::channel();
    for round in 0..100 {
        for (number, &stream) in streams.iter().enumerate() {
            let done = done.clone();
            run(&device, stream, move || done.send(number).unwrap());
            device.wait(streams[(number + round) % 8], device.record(stream).unwrap()).unwrap();
        }
    }
    for _ in 0..800 {
        seen.recv_timeout(Duration::from_secs(60)).expect("all work is done");
    }
    assert_eq!(device.workers(), 1);
}

/// Threads that were refused are requested again: work that waits for other work is not left waiting.
fn threads_later() {
    let device = device();
    let (first, second) = (stream(&device), stream(&device));
    leave_addresses(MIB);
    let (hand, handed) = mpsc::channel();
    run(&device, first, move || handed.recv().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    run(&device, second, move || hand.send(()).unwrap());
    limit(Resource::As, getrlimit(Resource::As).maximum.unwrap_or(1 << 46));
    // No call reports that threads are possible again. The waiting call finds out.
    device.block_on(device.record(first).unwrap()).unwrap();
}

#[test]
fn in_a_process_of_its_own() {
    match std::env::var(CASE).as_deref() {
        Ok("files of a size") => files_of_a_size(),
        Ok("few addresses") => few_addresses(),
        Ok("no files") => no_files(),
        Ok("no threads") => no_threads(),
        Ok("threads later") => threads_later(),
        _ => {}
    }
}

#[track_caller]
fn check(case: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_process_of_its_own", "--nocapture"])
        .env(CASE, case)
        .spawn()
        .unwrap();
    for _ in 0..1200 {
        if let Some(status) = child.try_wait().unwrap() {
            return assert!(status.success(), "{case}: {status}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    panic!("{case}: it hangs");
}

#[test]
fn a_limit_on_file_sizes_is_an_error() {
    check("files of a size");
}

#[test]
fn a_limit_on_addresses_leaves_room_for_others() {
    check("few addresses");
}

#[test]
fn a_limit_on_files_is_named() {
    check("no files");
}

#[test]
fn a_device_makes_do_with_one_thread() {
    check("no threads");
}

#[test]
fn refused_threads_are_asked_for_again() {
    check("threads later");
}
