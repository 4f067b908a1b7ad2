//! Pinned host memory, on every device: copies both ways, each refusal with its correct counterpart, and memory that is
//! dropped while copies run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use millpond::check::Kind;
use millpond::config::{Reporter, Violations};
use millpond::device::CallKind;
use millpond::error::Invalid;
use millpond::graph::Instantiate;
use millpond::{Buffer, DeviceConfig, Error, HostConfig, PinnedBuffer, Stream};
use millpond_driver::DriverError;

use crate::common::{
    Subject, kind_of, makes, on_devices_that_hold, on_devices_that_run_closures, on_every_device, order,
};

const LEN: usize = 10_000;

/// Makes a buffer of the device, and one of the host with these elements.
fn both(on: &Subject, stream: &Stream, value: u32) -> (Buffer<u32>, PinnedBuffer<u32>) {
    let x = stream.alloc_zeroed(&on.device.default_pool(), LEN).unwrap();
    let mut host = on.device.pinned(LEN).unwrap();
    host.as_mut_slice().unwrap().fill(value);
    (x, host)
}

#[track_caller]
fn refused<T>(what: &str, result: Result<T, Error>) -> String {
    let Err(error) = result else { panic!("{what} is not refused") };
    assert_eq!(kind_of(&error), Kind::Race, "{what}");
    error.report().to_string()
}

fn address(host: &PinnedBuffer<u32>) -> *const u32 {
    host.as_slice().unwrap().as_ptr()
}

#[test]
fn what_is_copied_comes_back() {
    on_every_device(|on| {
        let s = on.stream();
        let (x, mut host) = both(on, &s, 7);
        let mut back = on.device.pinned::<u32>(LEN).unwrap();
        assert!(address(&host).addr().is_multiple_of(4096));
        s.copy_from_pinned(x.write(), host.read()).unwrap();
        s.copy_to_pinned(x.read(), back.write()).unwrap();
        s.synchronize().unwrap();
        let is_there = |found: &[u32], value| !on.has_memory || found.iter().all(|it| *it == value);
        assert!(is_there(back.as_slice().unwrap(), 7));
        // A part, and both ways in one buffer.
        host.as_mut_slice().unwrap()[10..20].fill(1);
        s.copy_from_pinned(x.slice(..10).unwrap().write(), host.read().slice(10..20).unwrap()).unwrap();
        s.copy_to_pinned(x.slice(5..15).unwrap().read(), host.write().slice(LEN - 10..).unwrap()).unwrap();
        s.synchronize().unwrap();
        let (ones, sevens) = host.as_slice().unwrap()[LEN - 10..].split_at(5);
        assert!(is_there(ones, 1) && is_there(sevens, 7));
        assert!(host.as_slice().unwrap()[..10].iter().all(|it| *it == 7), "the rest is as it was");
        s.free(x).unwrap();
    });
}

#[test]
fn what_has_no_bytes_needs_no_memory() {
    on_every_device(|on| {
        let (s, pool) = (on.stream(), on.device.default_pool());
        let before = on.device.driver_calls();
        let mut none = on.device.pinned::<u32>(0).unwrap();
        let mut units = on.device.pinned::<[u8; 0]>(5).unwrap();
        assert!(none.is_empty() && none.id().is_none() && (units.len(), units.bytes()) == (5, 0));
        assert_eq!(units.as_slice().unwrap().len(), 5);
        none.as_mut_slice().unwrap().fill(1);
        let x = s.alloc::<u32>(&pool, 0).unwrap();
        s.copy_from_pinned(x.write(), none.read()).unwrap();
        s.copy_to_pinned(x.read(), none.write()).unwrap();
        let y = s.alloc::<[u8; 0]>(&pool, 5).unwrap();
        s.copy_to_pinned(y.read(), units.write()).unwrap();
        drop((none, units));
        assert_eq!((on.device.driver_calls() - before)[CallKind::AllocHost], 0);
    });
}

#[test]
fn what_cannot_be_had_is_refused() {
    on_every_device(|on| {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let Err(Error::Driver(error)) = on.device.pinned::<u32>(len) else { panic!("{len} elements") };
            assert!(matches!(*error, DriverError::OutOfHostMemory { .. }), "{error}");
        }
        let s = on.stream();
        let (x, mut host) = both(on, &s, 1);
        let short = s.copy_from_pinned(x.slice(1..).unwrap().write(), host.read()).unwrap_err();
        let (left, right) = (LEN as u64, LEN as u64 - 1);
        assert_eq!(short.invalid(), Some(&Invalid::Length { what: "copy_from_pinned", left, right }));
        let out = host.write().slice(1..=LEN).unwrap_err();
        assert!(matches!(out.invalid(), Some(Invalid::Bounds { .. })), "{out}");
        let other = on.another();
        let strange = other.device.pinned::<u32>(LEN).unwrap();
        let elsewhere = s.copy_from_pinned(x.write(), strange.read()).unwrap_err();
        assert!(matches!(elsewhere.invalid(), Some(Invalid::OtherDevice { .. })), "{elsewhere}");
        host.as_mut_slice().expect("nothing has happened to it");
    });
}

/// The host may read it only after it has synchronised, even if the copy has completed long before.
#[test]
fn the_host_reads_what_is_known_to_have_come() {
    on_every_device(|on| {
        let s = on.stream().named("loader");
        let (x, mut host) = both(on, &s, 7);
        host.set_name("batch");
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        let text = refused("a read", host.as_slice());
        for part in [
            "`batch`",
            "is read by the host",
            "wait for the write on stream `loader`",
            "pinned.rs:",
            "synchronize stream `loader`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        refused("a write", host.as_mut_slice());
        s.synchronize().unwrap();
        assert!(!on.has_memory || host.as_slice().unwrap() == [0; LEN]);
        host.as_mut_slice().unwrap().fill(3);

        // An event, and a query that returns yes.
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        let (early, late) = (s.record().unwrap(), s.copy_to_pinned(x.read(), host.write()));
        late.unwrap();
        early.synchronize().unwrap();
        refused("a read after the first of two copies", host.as_slice());
        let late = s.record().unwrap();
        late.synchronize().unwrap();
        host.as_slice().unwrap();
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        let event = s.record().unwrap();
        refused("a read", host.as_slice());
        while !event.is_over().unwrap() {
            if on.make == crate::common::Make::Sim(millpond::config::Schedule::AtWait) {
                s.synchronize().unwrap();
            }
            std::thread::yield_now();
        }
        host.as_slice().unwrap();
        s.free(x).unwrap();
    });
}

#[test]
fn the_host_writes_what_no_copy_reads() {
    on_every_device(|on| {
        let s = on.stream();
        let (x, mut host) = both(on, &s, 7);
        s.copy_from_pinned(x.write(), host.read()).unwrap();
        assert_eq!(host.as_slice().expect("the copy reads it, too"), [7; LEN]);
        let text = refused("a write", host.as_mut_slice());
        assert!(text.contains("written by the host") && text.contains("read on stream"), "{text}");
        s.synchronize().unwrap();
        host.as_mut_slice().unwrap().fill(8);
        assert!(!on.has_memory || s.copy_to_host(x.read()).unwrap() == [7; LEN], "the copy had what was there");
    });
}

#[test]
fn copies_of_two_streams_need_an_order() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let (x, mut host) = both(on, &s, 7);
        let y = t.alloc_zeroed::<u32>(&on.device.default_pool(), LEN).unwrap();
        // Both only read it, so no order is needed.
        s.copy_from_pinned(x.write(), host.read()).unwrap();
        t.copy_from_pinned(y.write(), host.read()).unwrap();
        let text = refused("a copy to what two copies read", t.copy_to_pinned(y.read(), host.write()));
        assert!(text.contains("wait for an event recorded on"), "{text}");
        order(&s, &t);
        t.copy_to_pinned(y.read(), host.write()).unwrap();
        refused("a copy from what is written", s.copy_from_pinned(x.write(), host.read()));
        refused("a copy to what is written", s.copy_to_pinned(x.read(), host.write()));
        order(&t, &s);
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        // Copies of different parts need no order either.
        t.copy_to_pinned(y.slice(..1).unwrap().read(), host.write().slice(..1).unwrap()).expect_err("the same bytes");
        s.synchronize().unwrap();
        t.copy_to_pinned(y.slice(..5).unwrap().read(), host.write().slice(..5).unwrap()).unwrap();
        s.copy_to_pinned(x.slice(5..).unwrap().read(), host.write().slice(5..).unwrap()).unwrap();
        on.device.synchronize().unwrap();
        host.as_slice().unwrap();
    });
}

/// If one side of a copy is refused, the other side is not used either.
#[test]
fn a_copy_is_refused_as_a_whole() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let (x, mut host) = both(on, &s, 7);
        let error = t.copy_to_pinned(x.read(), host.write()).unwrap_err();
        assert_eq!(kind_of(&error), Kind::UseBeforeAlloc);
        host.as_mut_slice().expect("nothing was submitted");
        let gone = x.view();
        s.free(x).unwrap();
        let error = s.copy_from_pinned(gone.write(), host.read()).unwrap_err();
        assert_eq!(kind_of(&error), Kind::UseAfterFree);
        host.as_mut_slice().expect("nothing was submitted");
    });
}

#[test]
fn a_reporter_puts_streams_in_order_and_not_the_host() {
    for make in makes() {
        eprintln!("on {make:?}:");
        let met = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&met);
        let reporter = Reporter::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let on = Subject::with(make, DeviceConfig::default().violations(Violations::Report(reporter)));
        let [s, t] = on.streams();
        let (x, mut host) = both(&on, &s, 7);
        order(&s, &t);
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        t.copy_from_pinned(x.write(), host.read()).expect("it waits for the other stream");
        assert_eq!(met.load(Ordering::Relaxed), 1);
        refused("a read", host.as_slice());
        assert_eq!(met.load(Ordering::Relaxed), 2);
        t.synchronize().unwrap();
        host.as_mut_slice().unwrap();
        on.assert_contract();
    }
}

#[test]
fn a_capture_takes_no_such_copies_and_goes_on() {
    on_every_device(|on| {
        let s = on.stream();
        let (x, mut host) = both(on, &s, 7);
        let (graph, ()) = s
            .capture(|s| {
                for (call, error) in [
                    ("copy_from_pinned", s.copy_from_pinned(x.write(), host.read()).unwrap_err()),
                    ("copy_to_pinned", s.copy_to_pinned(x.read(), host.write()).unwrap_err()),
                ] {
                    assert_eq!(error.invalid(), Some(&Invalid::Uncapturable { call }), "{error}");
                }
                host.as_slice().expect("the host is not captured");
                s.copy_from_host(x.write(), host.as_slice()?)
            })
            .unwrap();
        host.as_mut_slice().unwrap().fill(9);
        drop(host);
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        drop(exec.launch(&s).unwrap());
        assert!(!on.has_memory || s.copy_to_host(x.read()).unwrap() == [7; LEN]);
    });
}

/// The memory of a dropped buffer is not used again while a copy runs. After that it is, and a synchronisation of the
/// device gives it back.
#[test]
fn what_is_dropped_stays_until_its_copies_have_completed() {
    on_devices_that_hold(|on| {
        for to_host in [true, false] {
            let s = on.stream();
            let (x, mut host) = both(on, &s, 7);
            s.synchronize().unwrap();
            let first = address(&host);
            let busy = on.hold(&s, ());
            match to_host {
                true => s.copy_to_pinned(x.read(), host.write()).unwrap(),
                false => s.copy_from_pinned(x.write(), host.read()).unwrap(),
            }
            let before = on.device.driver_calls();
            drop(host);
            assert_eq!((on.device.driver_calls() - before).total(), 0, "a drop asks the driver nothing");
            let mut second = on.device.pinned::<u32>(LEN).unwrap();
            assert_ne!(address(&second), first, "a copy runs there");
            second.as_mut_slice().unwrap().fill(5);
            drop(busy);
            s.synchronize().unwrap();
            assert_eq!(second.as_slice().unwrap(), [5; LEN]);
            let third = on.device.pinned::<u32>(LEN - 1).unwrap();
            assert_eq!(address(&third), first, "it serves again");
            assert_eq!((on.device.driver_calls() - before)[CallKind::AllocHost], 1);
            drop((second, third));
            on.device.synchronize().unwrap();
            assert_eq!((on.device.driver_calls() - before)[CallKind::FreeHost], 2);
            assert!(!on.has_memory || s.copy_to_host(x.read()).unwrap() == [if to_host { 0 } else { 7 }; LEN]);
        }
    });
}

/// Its stream, its device's handle and the device's memory may be dropped first.
#[test]
fn a_buffer_outlives_what_made_it() {
    for make in makes() {
        eprintln!("on {make:?}:");
        let on = Subject::new(make);
        let s = on.stream();
        let (x, mut host) = both(&on, &s, 7);
        let left = on.device.pinned::<u32>(LEN).unwrap();
        s.copy_from_pinned(x.write(), left.read()).unwrap();
        drop(left);
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        let event = s.record().unwrap();
        drop((s, x));
        drop(on);
        event.synchronize().unwrap();
        host.as_mut_slice().unwrap().fill(1);
        drop(event);
        assert_eq!(host.as_slice().unwrap(), [1; LEN]);
    }
}

#[test]
fn threads_share_it_and_pass_it_on() {
    on_every_device(|on| {
        let s = on.stream();
        let (x, host) = both(on, &s, 7);
        let y = s.alloc_zeroed::<u32>(&on.device.default_pool(), LEN).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|_| s.copy_from_pinned(x.write(), host.read()).unwrap()));
            scope.spawn(|| (0..100).for_each(|_| s.copy_from_pinned(y.write(), host.read()).unwrap()));
            (0..100).for_each(|_| assert_eq!(host.as_slice().unwrap(), [7; LEN]));
        });
        let mut host = std::thread::spawn(move || {
            let mut host = host;
            refused("a write on another thread", host.as_mut_slice());
            host
        })
        .join()
        .unwrap();
        s.synchronize().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| host.as_mut_slice().expect("what one thread waited for, all did").fill(1));
        });
    });
}

/// Closures may have it: they are host code, on any thread.
#[test]
fn a_kernel_that_has_it_is_a_host() {
    on_devices_that_run_closures(|on| {
        let s = on.stream();
        let (x, mut host) = both(on, &s, 7);
        let shared = Arc::new(on.device.pinned::<u32>(LEN).unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (theirs, sees) = (Arc::clone(&shared), Arc::clone(&seen));
        s.launch_once(x.write(), move |x| {
            x.copy_from_slice(theirs.as_slice().unwrap());
            sees.lock().unwrap().push(theirs.len());
        })
        .unwrap();
        drop(shared);
        s.scope(|scope| {
            scope.launch(x.read(), |x| host.as_mut_slice().unwrap().copy_from_slice(x))?;
            Ok(())
        })
        .unwrap();
        assert_eq!(*seen.lock().unwrap(), [LEN]);
        assert_eq!(host.as_slice().unwrap(), [0; LEN]);
    });
}

#[test]
fn a_lost_device_leaves_it_alone() {
    let device = millpond::Device::host(HostConfig::default()).unwrap();
    let s = device.stream().unwrap();
    let x = s.alloc_zeroed::<u32>(&device.default_pool(), LEN).unwrap();
    let mut host = device.pinned::<u32>(LEN).unwrap();
    let mut idle = device.pinned::<u32>(LEN).unwrap();
    s.launch(x.write(), |_| panic!("planted")).unwrap();
    let submitted = s.copy_to_pinned(x.read(), host.write()).is_ok();
    assert!(matches!(s.synchronize(), Err(Error::DeviceLost { .. })));
    assert_eq!(host.as_slice().is_err(), submitted, "of what was submitted nothing is known");
    idle.as_mut_slice().expect("no copy was at it").fill(1);
    assert!(matches!(s.copy_to_pinned(x.read(), idle.write()), Err(Error::DeviceLost { .. })));
    assert_eq!(idle.as_slice().unwrap(), [1; LEN]);
    drop((host, idle));
    device.pinned::<u32>(LEN).unwrap().as_mut_slice().unwrap().fill(2);
}

#[test]
fn a_handle_is_one_line() {
    on_every_device(|on| {
        let host = on.device.pinned::<u32>(100).unwrap();
        assert_eq!(format!("{host:?}"), format!("PinnedBuffer(100 x 4 B, {})", host.id().unwrap()));
    });
}
