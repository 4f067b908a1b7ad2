//! The cost of writing a trace: an allocation and its free, and a launch of three accesses, without and with a trace.
//!
//!     cargo bench -p millpond --bench tracing

use std::time::Instant;

use millpond::config::Trace;
use millpond::{Buffer, Device, HostConfig, PoolConfig};

/// The operations of one measurement. The best of several counts.
const OPERATIONS: u32 = 400_000;

/// Returns the nanoseconds of one `act`.
fn best(mut act: impl FnMut()) -> f64 {
    let once = |act: &mut dyn FnMut()| {
        let began = Instant::now();
        (0..OPERATIONS).for_each(|_| act());
        began.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
    };
    (0..7).map(|_| once(&mut act)).fold(f64::INFINITY, f64::min)
}

/// Returns the times of an allocation and a free, and of a launch.
fn measure(trace: Option<Trace>) -> (f64, f64) {
    let device = Device::host(HostConfig::default().memory(false).trace(trace)).expect("a device");
    let pool = device.pool(PoolConfig::default()).expect("a pool");
    let stream = device.stream().expect("a stream");
    let pair = best(|| {
        let buffer = stream.alloc::<u8>(&pool, 4096).expect("memory");
        stream.free(buffer).expect("ordered");
    });
    let buffers: [Buffer<u8>; 3] = std::array::from_fn(|_| stream.alloc::<u8>(&pool, 4096).expect("memory"));
    let [a, b, c] = &buffers;
    let launch = best(|| stream.launch((a.read(), b.read(), c.write()), |_| ()).expect("ordered"));
    (pair, launch)
}

fn main() {
    let path = std::env::temp_dir().join(format!("millpond-bench-{}.trace", std::process::id()));
    let trace = Trace::create(&path).expect("a file for the trace");
    let (off, on) = (measure(None), measure(Some(trace)));
    println!("                     off       on   each operation");
    println!("alloc and free  {:8.1} {:8.1} {:8.1} ns", off.0, on.0, (on.0 - off.0) / 2.0);
    println!("launch of 3     {:8.1} {:8.1} {:8.1} ns", off.1, on.1, on.1 - off.1);
    // Only removes the benchmark's own file.
    let _ = std::fs::remove_file(&path);
}
