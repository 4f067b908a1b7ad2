//! Memory between processes: real ones, of this very program, and devices of one process if that is enough.

mod child;
mod cuda;
mod exporters;
mod failing;
mod hostile;
mod isolation;
mod kills;
mod limits;
mod order;
mod plain;
mod processes;
mod raw;
mod third;
mod threads;
mod tickets;
mod traced;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use millpond::share::Ticket;
use millpond::{Buffer, Device, HostConfig, Pool, PoolConfig, Result, Stream};

/// A device with a stream and a pool for other processes.
struct Side {
    device: Device,
    pool: Pool,
    stream: Stream,
}

impl Side {
    fn new() -> Side {
        Self::of(Device::host(HostConfig::default()).expect("a host device"))
    }

    fn of(device: Device) -> Side {
        let pool = device.pool(PoolConfig::default().shareable(true)).expect("a shareable pool");
        Side { stream: device.stream().expect("a stream"), pool, device }
    }

    /// Returns a filled buffer, after waiting for the fill.
    fn filled(&self, len: usize, seed: u32) -> Buffer<u32> {
        let buffer = self.stream.alloc::<u32>(&self.pool, len).expect("memory");
        fill(&self.stream, &buffer, seed).expect("it is ordered");
        self.stream.synchronize().expect("it ends");
        buffer
    }

    /// Asserts that nothing is used any more, and nothing reserved.
    #[track_caller]
    fn assert_empty(&self) {
        self.device.synchronize().expect("it ends");
        self.pool.trim_to(0).expect("it is taken back");
        let statistics = self.pool.statistics();
        assert_eq!((statistics.used_bytes, statistics.reserved_bytes), (0, 0), "{:?}", self.device.sharing());
    }
}

impl Side {
    /// Asserts that everything that another side had imported and has dropped is returned.
    #[track_caller]
    fn assert_given_back_by(&self, here: &Side) {
        eventually("the memory is back", || {
            self.device.sharing();
            self.pool.statistics().used_bytes == 0 && here.device.sharing().returning == 0
        });
        self.assert_empty();
    }

    /// Asserts that everything that importers had is returned, even if some of them were killed.
    #[track_caller]
    fn assert_reclaimed(&self) {
        self.assert_empty();
        let sharing = self.device.sharing();
        assert_eq!((sharing.leases, sharing.importers), (0, 0), "{sharing:?}");
        assert_eq!(sharing.lent, sharing.released + sharing.reclaimed, "{sharing:?}");
        assert!(sharing.lost > 0, "some were killed while they held it: {sharing:?}");
    }
}

fn pattern(seed: u32, index: usize) -> u32 {
    (index as u32).wrapping_mul(2_654_435_761) ^ seed
}

/// Returns the kind of CUDA device to test: `cuda` if `MILLPOND_TEST_DEVICE` selects it, else `fake`.
fn kind() -> &'static str {
    match std::env::var("MILLPOND_TEST_DEVICE").as_deref() {
        Ok("cuda") => "cuda",
        _ => "fake",
    }
}

/// Makes a device of a kind that `MILLPOND_TEST_DEVICE` knows.
fn device(kind: &str) -> Device {
    let config = millpond::cuda::CudaConfig::default().library(fakecuda::library());
    let made = match kind {
        "fake" => Device::cuda_with(config, Default::default()),
        "cuda" => Device::cuda(0),
        _ => Device::host(HostConfig::default()),
    };
    made.expect("a device")
}

fn fill(stream: &Stream, buffer: &Buffer<u32>, seed: u32) -> Result<()> {
    stream.launch(buffer.write(), move |x| x.iter_mut().enumerate().for_each(|(i, x)| *x = pattern(seed, i)))
}

fn is_filled(stream: &Stream, buffer: &Buffer<u32>, seed: u32) -> Result<bool> {
    Ok(stream.copy_to_host(buffer.read())?.iter().enumerate().all(|(i, x)| *x == pattern(seed, i)))
}

/// Submits work that runs until the sender is dropped.
fn gate(stream: &Stream) -> Result<mpsc::Sender<()>> {
    let (go, gate) = mpsc::channel::<()>();
    let wait = move || gate.recv().unwrap_or_default();
    // SAFETY: it uses no memory.
    unsafe { stream.enqueue((), |queue, ()| queue.host_function(wait)) }?;
    Ok(go)
}

/// As [`fill`], for devices whose kernels are not closures.
fn copy_in(stream: &Stream, buffer: &Buffer<u32>, seed: u32) -> Result<()> {
    let bytes: Vec<u32> = (0..buffer.len()).map(|i| pattern(seed, i)).collect();
    stream.copy_from_host(buffer.write(), &bytes)
}

/// Imports into a device. The tests order their accesses, or learn that these are not ordered before anything runs.
fn import(device: &Device, ticket: &Ticket) -> Result<Buffer<u32>> {
    // SAFETY: each test orders the accesses that run by events, synchronisation, or messages.
    unsafe { device.import(ticket) }
}

/// Repeats until it is so. What others do takes some time on a busy machine.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("not within 30 s: {what}");
}

/// Returns numbers that look random and are the same on each run.
fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(1);
    let mut x = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
