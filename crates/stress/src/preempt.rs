//! Stops threads of this process for a moment at random places: between any two instructions, under any lock.
//!
//! A bug that needs a preemption at one place is seen once in a million runs. If threads are stopped all the time, it
//! is seen in one of a hundred. A thread sends the others a signal, one after the other, at random; the handler sleeps.
//! Blocking system calls continue afterwards, as far as `SA_RESTART` provides this.

#![allow(unsafe_code)] // See the file.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The largest number of threads that are stopped at once. If all were stopped, with a next signal pending, none would
/// make progress.
const STOPPED_MAX: u64 = 2;
/// A stop that has not begun after this time never will: its thread has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// The longest duration of a stop, in nanoseconds.
static LONGEST: AtomicU64 = AtomicU64::new(0);
/// The number of stops that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// The number of stops that have ended.
static STOPS: AtomicU64 = AtomicU64::new(0);

/// Starts to stop threads at random, each time for up to `longest`, until the process ends. It may be called again with
/// another `longest`.
///
/// It uses the signal `SIGRTMIN + 7`. Processes that this one starts are not affected.
///
/// # Errors
/// The system refuses the handler or the thread.
pub fn start(longest: Duration, seed: u64) -> std::io::Result<()> {
    let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).clamp(1, 999_999_999);
    if LONGEST.swap(longest, Ordering::AcqRel) != 0 {
        return Ok(());
    }
    handle()?;
    std::thread::Builder::new().name("preempt".to_owned()).spawn(move || {
        // SAFETY: it only returns a number.
        let own = unsafe { libc::gettid() };
        let (mut random, mut sent) = (seed, 0);
        loop {
            let threads = threads().into_iter().filter(|thread| *thread != own).collect::<Vec<_>>();
            // Listing the threads takes time, so each list is used for several stops.
            for _ in 0..20 {
                random = next(random);
                await_stops(&mut sent);
                if !threads.is_empty() && stop(threads[(random >> 33) as usize % threads.len()]) {
                    sent += 1;
                }
                std::thread::sleep(Duration::from_nanos(20_000 + random % 100_000));
            }
        }
    })?;
    Ok(())
}

/// Returns the number of stops so far.
pub fn stops() -> u64 {
    STOPS.load(Ordering::Relaxed)
}

fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// Returns the threads of this process.
fn threads() -> Vec<libc::pid_t> {
    let Ok(folder) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Waits until fewer than [`STOPPED_MAX`] threads are stopped, given the number of stops that were sent.
fn await_stops(sent: &mut u64) {
    // Stops that were given up may still happen.
    *sent = (*sent).max(stops());
    let begun = Instant::now();
    while *sent >= stops() + STOPPED_MAX {
        if begun.elapsed() > PATIENCE.max(2 * Duration::from_nanos(LONGEST.load(Ordering::Relaxed))) {
            *sent = stops();
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Stops a thread. Returns `true` if it still existed.
fn stop(thread: libc::pid_t) -> bool {
    // SAFETY: the signal has a handler, which every thread of this process may run at any time.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id() as libc::pid_t, thread, signal()) == 0 }
}

fn handle() -> std::io::Result<()> {
    // SAFETY: all zeros is an action with no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler calls nothing but what a handler may call, and leaves `errno` as it was.
    match unsafe { libc::sigaction(signal(), &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Sleeps. Allocates, locks and throws nothing, and leaves `errno` unchanged.
extern "C" fn on_signal(_: i32) {
    let random = next(BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let nanos = (random >> 20) % LONGEST.load(Ordering::Relaxed).max(1);
    // SAFETY: the address is that of the thread's own `errno`, which exists as long as the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos as libc::c_long };
    // SAFETY: the time outlives the call, and the remaining time is not requested.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { *errno = before };
    STOPS.fetch_add(1, Ordering::Relaxed);
}

fn next(random: u64) -> u64 {
    let mut bits = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^ (bits >> 27)
}
