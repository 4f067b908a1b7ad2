//! Threads are stopped, and continue as if nothing had happened.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use millpond_stress::preempt::{start, stops};

#[test]
fn threads_are_stopped_and_go_on() {
    start(Duration::from_micros(200), 7).expect("a handler and a thread");
    start(Duration::from_micros(300), 7).expect("once more is nothing new");
    let (sum, begun) = (Mutex::new(0), Instant::now());
    let mut rounds = 0;
    while stops() < 100 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} stops in a minute", stops());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| *sum.lock().expect("nobody panics") += 1));
            }
        });
        rounds += 1;
    }
    assert_eq!(*sum.lock().expect("nobody panics"), rounds * 3000);
    let missing = std::fs::read("/no/such/file").unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound, "what a call says is its own");
}
