//! The text of messages: streams and pools by their names everywhere, sizes in readable units, and the end of memory
//! whose buffer was dropped.

use millpond::graph::{CaptureMode, Instantiate};
use millpond::pool::PeerAccess;
use millpond::{Buffer, Device, Error, HostConfig, MIB, PoolConfig, Stream};

fn device() -> (Device, Stream, Stream) {
    let device = Device::host(HostConfig::default()).unwrap();
    let (left, right) = (device.stream().unwrap().named("left"), device.stream().unwrap().named("right"));
    (device, left, right)
}

#[track_caller]
fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.report().to_string();
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    for number in ["stream 1", "stream 2"] {
        assert!(!text.contains(number), "{number} has a name: {text}");
    }
}

#[test]
fn captures_call_streams_by_their_names() {
    let (device, left, right) = device();
    let outside = device.stream().unwrap().record().unwrap();
    left.begin_capture().unwrap();
    assert_says(
        &left.wait(&outside).unwrap_err(),
        &["stream `left` is being captured and waits for an event from outside"],
    );
    let _ = left.end_capture();

    left.begin_capture().unwrap();
    let twice = left.begin_capture().unwrap_err();
    assert_says(&twice, &["stream `left` is being captured already"]);
    right.wait(&left.record().unwrap()).unwrap();
    right.launch((), |()| ()).unwrap();
    assert_says(&right.end_capture().unwrap_err(), &["stream `right` joined a capture that began on stream `left`"]);
    let _ = left.end_capture();

    left.begin_capture().unwrap();
    right.wait(&left.record().unwrap()).unwrap();
    right.launch((), |()| ()).unwrap();
    let unjoined = left.end_capture().unwrap_err();
    let parts = ["stream `right` was not joined", "make stream `left` wait for an event recorded on stream `right`"];
    assert_says(&unjoined, &parts);
    assert_says(&left.end_capture().unwrap_err(), &["stream `left` is not being captured"]);

    left.begin_capture_in(CaptureMode::Relaxed).unwrap();
    let implicit = device.legacy_stream().launch((), |()| ()).unwrap_err();
    assert_says(&implicit, &["while stream `left`, a blocking stream, is captured"]);
    let _ = left.end_capture();
}

#[test]
fn a_lost_device_calls_the_stream_by_its_name() {
    let (_device, left, _) = device();
    left.launch((), |()| std::panic::resume_unwind(Box::new("a planted mistake"))).unwrap();
    let lost = left.synchronize().unwrap_err();
    assert_says(&lost, &["the device is lost: stream `left`: a kernel panicked: a planted mistake"]);
}

#[test]
fn a_kernel_of_a_graph_that_panics_is_one_of_a_launch() {
    let (device, left, _) = device();
    let mut graph = device.graph().unwrap();
    for _ in 0..2 {
        graph.add_kernel(&[], (), |()| std::panic::resume_unwind(Box::new("a planted mistake"))).unwrap();
    }
    let launched = graph.instantiate(Instantiate::default()).unwrap().launch(&left).map(drop);
    // The first kernel may lose the device while the second one is launched.
    let text = launched.and_then(|()| left.synchronize()).unwrap_err().to_string();
    assert!(
        text.contains("stream `left`: a kernel") || text.contains("lane 1 of a graph's launch: a kernel"),
        "{text}"
    );
}

#[test]
fn what_is_refused_for_a_stream_has_its_name() {
    let (device, left, _) = device();
    let other = Device::host(HostConfig::default()).unwrap();
    let stream = other.stream().unwrap().named("visitor");
    let x = left.alloc::<u8>(&device.default_pool(), 64).unwrap();
    device.default_pool().grant(&other, PeerAccess::Read).unwrap();
    stream.wait(&left.record().unwrap()).unwrap();
    let refused = stream.memset(x.write(), 0).unwrap_err();
    assert_says(&refused, &["stream `visitor`", ", op 2", "pool 0 grants it read access"]);
    let refused = stream.free(x).unwrap_err();
    assert_says(&refused.error, &["belongs to another device than stream `visitor` of device"]);
    assert!(format!("{stream:?}").starts_with("Stream(stream `visitor` of device "), "{stream:?}");
}

/// Allocates at this line. Returns a view after dropping the buffer.
fn dropped(stream: &Stream, device: &Device) -> (millpond::View<u8>, u32) {
    let x: Buffer<u8> = stream.alloc(&device.default_pool(), 64).unwrap();
    (x.view(), line!() - 1)
}

#[test]
fn a_view_of_a_dropped_buffer_says_so_and_where_it_was_allocated() {
    let (device, left, right) = device();
    let (view, line) = dropped(&left, &device);
    let place = format!("messages.rs:{line}");
    for stream in [&left, &right] {
        let gone = stream.memset(view.write(), 1).unwrap_err();
        assert_says(&gone, &["but it is dropped already", "its buffer was dropped", "stream `left`", &place]);
    }
    // Memory that was used on another stream is freed after that use. The message is the same.
    let x: Buffer<u8> = left.alloc(&device.default_pool(), 64).unwrap();
    let view = x.view();
    right.wait(&left.record().unwrap()).unwrap();
    right.memset(x.write(), 1).unwrap();
    drop(x);
    let place = format!("messages.rs:{}", line!() - 5);
    let gone = left.memset(view.write(), 1).unwrap_err();
    assert_says(&gone, &["but it is dropped already", &place]);
    // For a free, the message is as before.
    let x: Buffer<u8> = left.alloc(&device.default_pool(), 64).unwrap();
    let view = x.view();
    left.free(x).unwrap();
    let gone = left.memset(view.write(), 1).unwrap_err().report().to_string();
    assert!(gone.contains("but it is freed already") && !gone.contains("dropped"), "{gone}");
}

#[test]
fn sizes_that_no_memory_has_are_said_sensibly() {
    let (device, left, _) = device();
    for len in [usize::MAX / 8, usize::MAX / 2] {
        let text = left.alloc::<u64>(&device.default_pool(), len).unwrap_err().report().to_string();
        assert!(text.contains("EiB") && !text.contains("TiB of"), "{text}");
        assert!(!text.contains("16777216.00 TiB"), "{text}");
    }
}

#[test]
fn pools_are_called_by_their_names() {
    let device = Device::host(HostConfig::default().total_bytes(64 * MIB)).unwrap();
    let (other, stream) = (Device::host(HostConfig::default()).unwrap(), device.stream().unwrap());
    let pool = device.pool(PoolConfig::default().max_bytes(4 * MIB)).unwrap();
    let number = pool.id().to_string();
    assert_eq!(pool.name(), None);
    assert!(format!("{pool:?}").starts_with(&format!("Pool({number} of device ")), "{pool:?}");
    let pool = pool.named("kv cache");
    let says = |error: &Error, part: &str| {
        let text = error.report().to_string();
        assert!(text.contains(part) && !text.contains(&number), "no {part:?} in: {text}");
    };
    assert_eq!(pool.clone().name().as_deref(), Some("kv cache"), "clones name the same pool");
    assert!(format!("{pool:?}").starts_with("Pool(pool `kv cache` of device "), "{pool:?}");
    assert_eq!(device.default_pool().name(), None);

    let full = stream.alloc::<u8>(&pool, 8 << 20).unwrap_err();
    says(&full, "out of memory in pool `kv cache`: ");
    let report = full.out_of_memory().unwrap();
    assert_eq!((report.pool.id, report.pool.name.as_deref()), (pool.id(), Some("kv cache")));
    says(&other.set_current_pool(&pool).unwrap_err(), "pool `kv cache` of device ");
    says(&other.stream().unwrap().alloc::<u8>(&pool, 64).unwrap_err(), "pool `kv cache` of device ");
    says(&pool.grant(&device, PeerAccess::Read).unwrap_err(), "pool `kv cache` is of device ");
    says(&pool.export().unwrap_err(), "pool `kv cache`");

    let x = stream.alloc::<u8>(&pool, 64).unwrap();
    stream.memset(x.write(), 0).unwrap();
    let visitor = other.stream().unwrap();
    visitor.wait(&stream.record().unwrap()).unwrap();
    says(&visitor.copy_to_host(x.read()).unwrap_err(), ", and pool `kv cache` does not grant it that");
    pool.grant(&other, PeerAccess::ReadWrite).unwrap();
    visitor.memset(x.write(), 1).unwrap();
    says(&pool.revoke(&other).unwrap_err(), "pool `kv cache` of device ");

    pool.set_name("a `new` one");
    says(&stream.alloc::<u8>(&pool, 8 << 20).unwrap_err(), r"out of memory in pool `a \`new\` one`: ");
}
