//! Host time of an allocation and its free through the C library, beside the same pair through the Rust library. The
//! stream's cache serves both, on a host device.
//!
//!   cargo build --release -p millpond-capi
//!   cargo bench -p millpond-capi --bench pair
//!   cargo bench -p millpond-capi --bench pair -- /tmp/before/libmillpond.so target/release/libmillpond.so
//!
//! Each argument is a libmillpond.so; two builds of it are compared in one run. All peers take turns in short rounds,
//! each round begins with another peer, and each library is compared with Rust's pair of the same round.

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::Instant;

use libloading::{Library, Symbol};
use millpond::{Buffer, Device, HostConfig, Pool, Stream};

const ROUNDS: usize = 400;
/// The pairs of a round: it is over in a millisecond or two, before another program has the core.
const PAIRS: u32 = 20_000;
const SIZES: [usize; 3] = [512, 1 << 16, 1 << 20];

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, *const c_void) -> i32;
type Malloc = unsafe extern "C" fn(*mut Handle, usize, Handle) -> i32;
type Free = unsafe extern "C" fn(Handle, Handle) -> i32;

/// A libmillpond.so, with a stream of a host device of its own.
struct Peer {
    name: String,
    stream: Handle,
    malloc: Malloc,
    free: Free,
}

impl Peer {
    fn open(path: &str) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the library runs nothing when it is loaded.
        let library = unsafe { Library::new(path) }?;
        // It stays loaded.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the types are those of millpond.h.
        let create_device: Symbol<'_, Create> = unsafe { library.get("millpond_device_create_host") }?;
        // SAFETY: as above.
        let create_stream: Symbol<'_, Create> = unsafe { library.get("millpond_stream_create") }?;
        // SAFETY: as above.
        let malloc: Malloc = *unsafe { library.get("millpond_malloc_async") }?;
        // SAFETY: as above.
        let free: Free = *unsafe { library.get("millpond_free_async") }?;
        let (mut device, mut stream) = (null_mut(), null_mut());
        // SAFETY: the place is valid for the call, and null means the defaults.
        if unsafe { create_device(&mut device, null_mut()) } != 0 {
            return Err(format!("{path}: no device").into());
        }
        // SAFETY: as above; the second argument is a device's handle.
        if unsafe { create_stream(&mut stream, device) } != 0 {
            return Err(format!("{path}: no stream").into());
        }
        Ok(Self { name: path.into(), stream, malloc, free })
    }

    #[inline]
    fn pair(&self, bytes: usize) {
        let mut pointer = null_mut();
        // SAFETY: the place is valid for the call.
        let made = unsafe { (self.malloc)(&mut pointer, bytes, self.stream) };
        // SAFETY: the call checks its arguments.
        let freed = unsafe { (self.free)(black_box(pointer), self.stream) };
        assert_eq!((made, freed), (0, 0), "{}", self.name);
    }
}

#[inline]
fn pair(stream: &Stream, pool: &Pool, bytes: usize) {
    let buffer: Buffer<u8> = stream.alloc(pool, bytes).expect("memory");
    stream.free(black_box(buffer)).expect("a right free");
}

/// Returns the nanoseconds of one pair, of a round.
fn round(mut pair: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..PAIRS).for_each(|_| pair());
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

/// Returns the number at a tenth of the way up, the middle one, and the one at nine tenths.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    [1, 5, 9].map(|tenths| numbers[numbers.len() * tenths / 10])
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.iter().any(|word| word == "--test") {
        return Ok(());
    }
    let target = std::env::current_exe()?.ancestors().nth(2).map(PathBuf::from).unwrap_or_default();
    let built = target.join("libmillpond.so").to_string_lossy().into_owned();
    let paths = if words.is_empty() { vec![built] } else { words };
    let peers: Vec<Peer> = paths.iter().map(|path| Peer::open(path)).collect::<Result<_, _>>()?;
    let device = Device::host(HostConfig::default())?;
    let (stream, pool) = (device.stream()?, device.default_pool());
    println!("{ROUNDS} rounds of {PAIRS} pairs in turns; ns a pair, and the ratio to Rust's pair of the same round");
    println!(
        "{:>9}  {:>7} {:>7}  {:>17} {:>14}  peer",
        "bytes", "least", "median", "ratio (10%..90%)", "ratio of least"
    );
    for bytes in SIZES {
        let mut times = vec![Vec::new(); peers.len() + 1];
        // The first rounds are not counted: in them the thread becomes the owner of the locks.
        for number in 0..ROUNDS + 10 {
            for turn in 0..times.len() {
                let who = (number + turn) % times.len();
                let time = match who.checked_sub(1) {
                    None => round(|| pair(&stream, &pool, bytes)),
                    Some(peer) => round(|| peers[peer].pair(bytes)),
                };
                if number >= 10 {
                    times[who].push(time);
                }
            }
        }
        let rust = times[0].clone();
        for (who, times) in times.into_iter().enumerate() {
            let name = who.checked_sub(1).map_or("Rust: alloc + free", |peer| &peers[peer].name);
            let [low, ratio, high] = spread(times.iter().zip(&rust).map(|(it, rust)| it / rust).collect());
            let (least, of_least) = (least(&times), least(&times) / least(&rust));
            let [_, median, _] = spread(times);
            let ratio = format!("{ratio:.2} ({low:.2}..{high:.2})");
            println!("{bytes:>9}  {least:>7.1} {median:>7.1}  {ratio:>17} {of_least:>14.2}  {name}");
        }
    }
    Ok(())
}
