//! Stops threads of this process for a moment, wherever they are: between any two instructions, under any lock.
//!
//! What goes wrong only where a thread is preempted at one place is seen once in a million runs, and in one of a
//! hundred where threads are stopped all the time. A thread sends the others a signal, one after the other, at random;
//! its handler sleeps. System calls that wait go on afterwards, as far as `SA_RESTART` does that.

#![allow(unsafe_code)] // See the file.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So many threads are stopped at once at most: where all were, with the next signal waiting, none would come on.
const STOPPED_MAX: u64 = 2;
/// A stop that was not made after so long never is: its thread has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long a stop takes at most, in nanoseconds.
static LONGEST: AtomicU64 = AtomicU64::new(0);
/// How many have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// How many have ended.
static STOPS: AtomicU64 = AtomicU64::new(0);

/// From now on, until the process ends, its threads are stopped at random, each time for up to `longest`. It may be
/// called again, for another `longest`.
///
/// The signal `SIGRTMIN + 7` is used for that. Processes that this one starts are left alone.
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
            // Listing them is not free: each list serves for some stops.
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

/// How often threads were stopped so far.
pub fn stops() -> u64 {
    STOPS.load(Ordering::Relaxed)
}

fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// The threads of this process.
fn threads() -> Vec<libc::pid_t> {
    let Ok(folder) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Waits until fewer threads than may be are stopped, of so many stops that were asked for.
fn await_stops(sent: &mut u64) {
    // Stops that were given up may come late.
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

/// Stops a thread; whether it was still there.
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

/// Sleeps. Nothing is allocated, locked or thrown here, and `errno` stays what it was.
extern "C" fn on_signal(_: i32) {
    let random = next(BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let nanos = (random >> 20) % LONGEST.load(Ordering::Relaxed).max(1);
    // SAFETY: the address is that of the thread's own number, which is there as long as it runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos as libc::c_long };
    // SAFETY: the time is there while it is read, and what is left is not asked for.
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
