//! Times of events, on every device: taken when the stream reaches the event. If there is none, the error says why.

use std::time::Duration;

use millpond::device::CallKind;
use millpond::error::Invalid;
use millpond::{Error, Event, HostConfig};

use crate::common::{on_devices_that_hold, on_every_device};

const PAUSE: Duration = Duration::from_millis(20);

#[track_caller]
fn refused(result: Result<Duration, Error>) -> Invalid {
    let error = result.expect_err("there is no such time");
    error.invalid().unwrap_or_else(|| panic!("{error}")).clone()
}

#[test]
fn the_time_between_events_is_that_of_the_work() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let start = s.record_timed().unwrap();
        on.run(&s, (), || std::thread::sleep(PAUSE));
        let middle = s.record_timed().unwrap();
        t.wait(&middle).unwrap();
        on.run(&t, (), || std::thread::sleep(PAUSE));
        let end = t.record_timed().unwrap();
        end.synchronize().unwrap();
        let first = middle.elapsed_since(&start).unwrap();
        let both = end.elapsed_since(&start).unwrap();
        assert!(Duration::ZERO < first && first < both, "{first:?} {both:?}");
        if on.is_parallel {
            assert!(first >= PAUSE && both >= 2 * PAUSE, "{first:?} {both:?}");
        } else {
            assert!(both < PAUSE, "items are counted, {both:?}");
        }
        assert_eq!(start.elapsed_since(&end).unwrap(), Duration::ZERO, "it came first");
        assert_eq!(end.elapsed_since(&end.clone()).unwrap(), Duration::ZERO);
        assert_eq!(end.elapsed_since(&start).unwrap(), both, "a time stays");
    });
}

/// A returned time orders like a query: what the host does next comes after the event.
#[test]
fn a_time_orders_as_a_query_does() {
    on_every_device(|on| {
        let s = on.stream();
        let start = s.record_timed().unwrap();
        let x = s.alloc_zeroed::<u8>(&on.device.default_pool(), 100).unwrap();
        let end = s.record_timed().unwrap();
        let x = on.device.free(x).expect_err("nothing was learned yet").buffer;
        let is_early = |error: Error| matches!(error.invalid(), Some(Invalid::NotCompleted { .. }));
        while end.elapsed_since(&start).is_err_and(is_early) {
            if !on.is_parallel && !on.has_memory {
                // Time passes only while a thread waits.
                s.synchronize().unwrap();
            }
            std::thread::yield_now();
        }
        end.elapsed_since(&start).unwrap();
        on.device.free(x).unwrap();
    });
}

#[test]
fn an_event_without_a_time_says_so() {
    on_every_device(|on| {
        let s = on.stream();
        let (timed, plain) = (s.record_timed().unwrap(), s.record().unwrap());
        s.synchronize().unwrap();
        for (later, earlier, which) in [(&timed, &plain, "the earlier event"), (&plain, &timed, "the later event")] {
            assert_eq!(refused(later.elapsed_since(earlier)), Invalid::NotTimed { which });
        }
        timed.elapsed_since(&timed).unwrap();
    });
}

#[test]
fn an_event_that_has_not_completed_says_so() {
    on_devices_that_hold(|on| {
        let s = on.stream();
        let start = s.record_timed().unwrap();
        s.synchronize().unwrap();
        let busy = on.hold(&s, ());
        let end = s.record_timed().unwrap();
        let not_yet = |which| Invalid::NotCompleted { which };
        assert_eq!(refused(end.elapsed_since(&start)), not_yet("the later event"));
        assert_eq!(refused(start.elapsed_since(&end)), not_yet("the earlier event"));
        drop(busy);
        end.synchronize().unwrap();
        end.elapsed_since(&start).unwrap();
    });
}

#[test]
fn devices_have_times_of_their_own() {
    on_every_device(|on| {
        let other = on.another();
        let (own, stranger) = (on.stream().record_timed().unwrap(), other.stream().record_timed().unwrap());
        assert!(matches!(refused(own.elapsed_since(&stranger)), Invalid::OtherDevice { .. }));
    });
}

#[test]
fn a_capture_takes_no_times_and_goes_on() {
    on_every_device(|on| {
        let s = on.stream();
        let before = s.record_timed().unwrap();
        let (graph, _) = s
            .capture(|s| {
                let refused = s.record_timed().expect_err("a capture has no times");
                assert!(matches!(refused.invalid(), Some(Invalid::Uncapturable { call: "record_timed" })));
                s.launch((), |()| ()).or_else(|_| s.declare(()))
            })
            .unwrap();
        drop(graph);
        let captured: Event = {
            s.begin_capture().unwrap();
            let event = s.record().unwrap();
            assert!(event.elapsed_since(&before).unwrap_err().violation().is_some(), "it is an edge of a graph");
            assert!(s.end_capture().is_err(), "who asks about what is captured ends the capture");
            event
        };
        assert!(before.elapsed_since(&captured).unwrap_err().violation().is_some());
        s.synchronize().unwrap();
        before.elapsed_since(&before).unwrap();
    });
}

#[test]
fn a_lost_device_has_no_times() {
    let device = millpond::Device::host(HostConfig::default()).unwrap();
    let s = device.stream().unwrap();
    let start = s.record_timed().unwrap();
    start.synchronize().unwrap();
    s.launch((), |()| panic!("planted")).unwrap();
    let end = s.record_timed();
    assert!(s.synchronize().is_err());
    if let Ok(end) = end {
        assert!(matches!(end.elapsed_since(&start), Err(Error::DeviceLost { .. })));
    }
    assert!(matches!(s.record_timed(), Err(Error::DeviceLost { .. })));
}

/// An event without a time costs no more than before: one call to record it and one to forget it.
#[test]
fn only_times_that_are_asked_for_are_taken() {
    on_every_device(|on| {
        let s = on.stream();
        s.record().unwrap();
        for (is_timed, calls) in [(false, 1), (true, 2)] {
            let before = on.device.driver_calls();
            let event = if is_timed { s.record_timed() } else { s.record() }.unwrap();
            drop(event);
            let made = on.device.driver_calls() - before;
            assert_eq!((made[CallKind::Record], made[CallKind::Forget], made.total()), (calls, calls, 2 * calls));
        }
    });
}
