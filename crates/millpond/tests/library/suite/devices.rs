//! Several devices in one process: each works independently, and refuses, with a clear message, what belongs to
//! another.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use millpond::check::Kind;
use millpond::config::Schedule;
use millpond::error::Invalid;
use millpond::pool::PeerAccess;
use millpond::{Device, DeviceConfig, Error, HostConfig, PoolConfig, Stream};
use millpond_driver::HostDriver;

use crate::common::{Make, Subject, makes, on_every_device, visit};

fn devices() -> Vec<Device> {
    if !makes().contains(&Make::Parallel) {
        // Two of the selected kind.
        return makes().into_iter().cycle().take(2).map(|make| Subject::new(make).device).collect();
    }
    let host = |schedule| Device::host(HostConfig::default().schedule(schedule)).unwrap();
    vec![
        host(Schedule::Parallel),
        host(Schedule::Parallel),
        host(Schedule::Seeded(7)),
        Device::host(HostConfig::default().memory(false)).unwrap(),
    ]
}

/// Runs a body on all ordered pairs of different devices.
fn on_pairs(body: impl Fn(&Device, &Device)) {
    let devices = devices();
    for (i, here) in devices.iter().enumerate() {
        for (_, there) in devices.iter().enumerate().filter(|(j, _)| *j != i) {
            body(here, there);
        }
    }
}

/// Returns `true` if devices of two kinds can have access to each other's memory.
fn are_peers(here: &Device, there: &Device) -> bool {
    let are_cuda = makes().iter().all(|it| matches!(it, Make::Fake | Make::Cuda));
    are_cuda || here.properties().has_memory && there.properties().has_memory
}

#[track_caller]
fn assert_no_access<R>(result: Result<R, impl Into<Error>>, here: &Device, what: &str) {
    let error: Error = result.err().expect("it is refused").into();
    assert!(error.violation().is_some_and(|it| it.kind == Kind::NoAccess), "{error}");
    let text = error.report().to_string();
    assert!(text.contains(what) && text.contains(&here.name().to_string()) && text.contains("pool.grant("), "{text}");
}

#[track_caller]
fn assert_stranger<R>(result: Result<R, impl Into<Error>>, what: &str, with: &str) {
    let error: Error = result.err().expect("it is refused").into();
    let expected = Invalid::OtherDevice { what: what.into(), with: with.into() };
    assert_eq!(error.invalid(), Some(&expected));
    let sentence = format!("{what} belongs to another device than {with}: both must be of one device");
    assert_eq!(error.report().to_string(), sentence);
}

#[test]
fn strangers_are_refused() {
    on_pairs(|here, there| {
        let (stream, strange) = (here.stream().unwrap(), there.stream().unwrap());
        let x = stream.alloc::<u8>(&here.default_pool(), 100).unwrap();
        let y = strange.alloc::<u8>(&there.default_pool(), 100).unwrap();
        let other = y.id().unwrap().to_string();
        let (pool, own) = (format!("pool 0 of {}", there.name()), format!("{} of {}", stream.id(), here.name()));
        let waited = stream.wait(&strange.record().unwrap());
        match are_peers(here, there) {
            true => waited.unwrap(),
            false => assert!(matches!(waited.unwrap_err().invalid(), Some(Invalid::NotPeers { .. }))),
        }
        assert_stranger(stream.alloc::<u8>(&there.default_pool(), 5), &pool, &own);
        assert_stranger(here.set_current_pool(&there.default_pool()), &pool, &here.name().to_string());
        assert_no_access(visit(&stream, y.read()), here, &other);
        assert_no_access(visit(&stream, (x.write(), y.read())), here, &other);
        assert_no_access(visit(&stream, y.view().write()), here, &other);
        assert_no_access(stream.copy(y.read(), x.write()), here, &other);
        assert_no_access(stream.memset(y.write(), 0), here, &other);
        assert_no_access(stream.copy_to_host(y.read()), here, &other);
        assert_no_access(stream.copy_from_host(y.write(), &[0; 100]), here, &other);
        // A refused free returns the buffer, to be freed on its own device.
        let refused = stream.free(y).unwrap_err();
        let Some(Invalid::OtherDevice { what, .. }) = refused.error.invalid() else { panic!("{}", refused.error) };
        assert!(what.ends_with(&there.name().to_string()) && what.contains("devices.rs"), "{what}");
        let refused = here.free(refused.buffer).unwrap_err();
        assert!(matches!(refused.error.invalid(), Some(Invalid::OtherDevice { .. })), "{}", refused.error);
        visit(&strange, refused.buffer.write()).unwrap();
        strange.free(refused.buffer).unwrap();
    });
}

/// Addresses of another device are unknown here.
#[test]
fn strange_addresses_are_nobodys() {
    on_pairs(|here, there| {
        let (stream, strange) = (here.stream().unwrap(), there.stream().unwrap());
        let y = strange.alloc::<u8>(&there.default_pool(), 100).unwrap();
        // Simulated addresses are made up, and may equal those of another device.
        if !here.properties().has_memory || !there.properties().has_memory {
            return;
        }
        for refused in [stream.free_address(y.address()), here.free_address(y.address())] {
            let text = refused.unwrap_err().report().to_string();
            assert!(text.contains(&format!("it is of {}: allocation ", there.name())), "{text}");
        }
        strange.free(y).unwrap();
    });
}

#[test]
fn devices_work_side_by_side() {
    let devices: Vec<Device> = devices().into_iter().filter(|device| device.properties().has_memory).collect();
    let streams: Vec<Stream> = devices.iter().map(|device| device.stream().unwrap()).collect();
    let mut held = Vec::new();
    for round in 0..20u32 {
        for (device, stream) in devices.iter().zip(&streams) {
            let x = stream.alloc::<u32>(&device.default_pool(), 5000).unwrap();
            stream.launch(x.write(), move |x| x.fill(round)).unwrap();
            held.push((stream, x, round));
        }
    }
    // Data passes from one device to the other through the host.
    for (stream, x, round) in &held {
        let found = stream.copy_to_host(x.read()).unwrap();
        assert!(found.iter().all(|x| x == round));
        for (device, other) in devices.iter().zip(&streams) {
            let y = other.alloc::<u32>(&device.default_pool(), found.len()).unwrap();
            other.copy_from_host(y.write(), &found).unwrap();
            other.free(y).unwrap();
        }
    }
    for device in &devices {
        assert_eq!(device.default_pool().statistics().used_bytes, 20 * 20_000);
    }
    drop(held);
    for device in &devices {
        device.synchronize().unwrap();
        assert_eq!(device.default_pool().statistics().reserved_bytes, 0);
    }
}

/// One device ends while others are in use. What it made outlives the handle.
#[test]
fn a_device_lives_as_long_as_what_it_made() {
    for device in devices() {
        let pool = device.pool(PoolConfig::default()).unwrap();
        let stream = device.stream().unwrap();
        let has_memory = device.properties().has_memory;
        drop(device);
        let x = stream.alloc::<u8>(&pool, 1000).unwrap();
        stream.memset(x.write(), 3).unwrap();
        let event = stream.record().unwrap();
        let found = stream.copy_to_host(x.read()).unwrap();
        assert!(!has_memory || found == [3; 1000]);
        drop((pool, stream));
        event.synchronize().unwrap();
        assert!(event.is_over().unwrap());
        drop(x);
    }
}

/// Another handle on another thread uses and frees it, in order. Memory left on the stream to be dropped is freed as
/// well.
#[test]
fn memory_outlives_the_stream_that_allocated_it() {
    on_every_device(|on| {
        let (pool, stream) = (on.device.default_pool(), on.stream());
        let (x, dropped) = (stream.alloc::<u8>(&pool, 5000).unwrap(), stream.alloc::<u8>(&pool, 5000).unwrap());
        stream.memset(x.write(), 5).unwrap();
        let made = stream.record().unwrap();
        drop(stream);
        let (device, has_memory) = (on.device.clone(), on.has_memory);
        let elsewhere = std::thread::spawn(move || {
            let stream = device.stream().unwrap();
            let early = visit(&stream, x.read()).unwrap_err();
            assert_eq!(crate::common::kind_of(&early), millpond::check::Kind::UseBeforeAlloc);
            stream.wait(&made).unwrap();
            let found = stream.copy_to_host(x.read()).unwrap();
            assert!(!has_memory || found == [5; 5000]);
            stream.free(x).unwrap();
        });
        elsewhere.join().unwrap();
        drop(dropped);
        on.device.synchronize().unwrap();
        assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    });
}

/// Returns two host devices with threads, if host devices are to be tested.
fn parallel_pair() -> Option<(Device, Device)> {
    let host = || Device::host(HostConfig::default()).unwrap();
    makes().contains(&Make::Parallel).then(|| (host(), host()))
}

/// Runs a body that must not hang.
fn soon(body: impl FnOnce() + Send + 'static) {
    let (done, seen) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    if seen.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap();
}

/// More streams than a device has threads wait for another device, which waits for the first one.
#[test]
fn hundreds_of_streams_wait_for_another_device() {
    let Some((here, there)) = parallel_pair() else { return };
    soon(move || {
        let (first, across) = (here.stream().unwrap(), there.stream().unwrap());
        let (go, gate) = std::sync::mpsc::channel::<()>();
        first.launch((), move |()| gate.recv().unwrap_or_default()).unwrap();
        (0..200).for_each(|_| first.launch((), |()| ()).unwrap());
        across.wait(&first.record().unwrap()).unwrap();
        across.launch((), |()| ()).unwrap();
        let event = across.record().unwrap();
        let streams: Vec<Stream> = (0..400).map(|_| here.stream().unwrap()).collect();
        for stream in &streams {
            stream.wait(&event).unwrap();
            stream.launch((), |()| ()).unwrap();
        }
        drop(go);
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
    });
}

/// A kernel owns the last handles of a device whose work waits for that kernel.
#[test]
fn a_kernel_drops_a_device_that_waits_for_it() {
    let Some((here, there)) = parallel_pair() else { return };
    soon(move || {
        let (left, right) = (here.stream().unwrap(), there.stream().unwrap());
        let (send, receive) = std::sync::mpsc::channel::<(Device, Stream)>();
        let (done, seen) = std::sync::mpsc::channel();
        right.launch((), move |()| drop(receive.recv().unwrap())).unwrap();
        left.wait(&right.record().unwrap()).unwrap();
        left.launch((), move |()| done.send(()).unwrap()).unwrap();
        send.send((here, left)).unwrap();
        right.synchronize().unwrap();
        assert_eq!(seen.recv(), Ok(()), "its work is done all the same");
    });
}

/// A kernel panics. A kernel behind it owns a guard that synchronises when it is dropped.
#[test]
fn a_guard_among_lost_kernels_synchronises() {
    struct Flush(Stream, std::sync::mpsc::Sender<bool>);
    impl Drop for Flush {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.synchronize().is_err());
        }
    }
    let Some((device, _)) = parallel_pair() else { return };
    soon(move || {
        let stream = device.stream().unwrap();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (said, heard) = std::sync::mpsc::channel();
        let boom = move |()| {
            let _ = gate.recv();
            std::panic::resume_unwind(Box::new("boom"));
        };
        stream.launch((), boom).unwrap();
        let guard = Flush(stream.clone(), said);
        let held = move |()| {
            let _held = &guard;
        };
        stream.launch((), held).unwrap();
        drop(go);
        assert!(stream.synchronize().is_err());
        assert_eq!(heard.recv(), Ok(true));
    });
}

/// A kernel that waits for its own stream gets an error.
#[test]
fn a_kernel_that_waits_for_itself_is_told() {
    let Some((device, _)) = parallel_pair() else { return };
    soon(move || {
        let stream = device.stream().unwrap();
        let (own, all) = (stream.clone(), device.clone());
        let (said, heard) = std::sync::mpsc::channel();
        let ask = move |()| said.send([own.synchronize(), all.synchronize()]).unwrap();
        stream.launch((), ask).unwrap();
        for answer in heard.recv().unwrap() {
            assert!(answer.unwrap_err().report().to_string().contains("waits for the work that blocks on it"));
        }
        stream.synchronize().unwrap();
    });
}

/// A device that used another's memory ends with its own last handle, and need not wait for the other to end.
#[test]
fn a_device_is_not_kept_by_those_whose_memory_it_used() {
    let home = Device::host(HostConfig::default()).unwrap();
    let stream = home.stream().unwrap();
    let pool = home.pool(PoolConfig::default()).unwrap();
    let buffer = stream.alloc::<u32>(&pool, 64).unwrap();
    let mut drivers = Vec::new();
    for _ in 0..20 {
        let driver = Arc::new(HostDriver::new(Default::default()).unwrap());
        drivers.push(Arc::downgrade(&driver));
        let visitor = Device::with_driver(driver, DeviceConfig::default()).unwrap();
        pool.grant(&visitor, PeerAccess::ReadWrite).unwrap();
        let there = visitor.stream().unwrap();
        there.wait(&stream.record().unwrap()).unwrap();
        there.launch(buffer.write(), |_| ()).unwrap();
        stream.wait(&there.record().unwrap()).unwrap();
        there.synchronize().unwrap();
    }
    // Its uses count as before.
    stream.launch(buffer.write(), |_| ()).unwrap();
    home.synchronize().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while drivers.iter().any(|driver| driver.strong_count() > 0) {
        assert!(
            Instant::now() < end,
            "a driver is kept: {:?}",
            drivers.iter().map(|it| it.strong_count()).collect::<Vec<_>>()
        );
        std::thread::yield_now();
    }
    stream.free(buffer).unwrap();
    assert_eq!(pool.statistics().used_bytes, 0);
    pool.trim_to(0).unwrap();
}

/// Objects of another device that a call looks up are released after the stream's lock, because that device may end
/// there, no matter how the call ends. Builds with debug assertions check that.
#[test]
fn a_view_of_another_device_whose_memory_is_gone_is_refused() {
    on_pairs(|here, there| {
        let (stream, theirs) = (here.stream().unwrap(), there.stream().unwrap());
        let pool = there.pool(PoolConfig::default()).unwrap();
        let buffer = theirs.alloc::<u64>(&pool, 8).unwrap();
        let view = buffer.view();
        theirs.free(buffer).unwrap();
        theirs.synchronize().unwrap();
        drop((pool, theirs));
        let error = visit(&stream, view.write()).unwrap_err();
        assert_eq!(error.invalid(), Some(&Invalid::Stale), "{error}");
    });
}
