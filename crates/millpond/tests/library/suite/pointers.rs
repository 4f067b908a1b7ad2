//! Wrong pointers, one test each, on every device. Calls that free or look up memory by its address refuse them, and
//! name the allocation that is there or nearest, with its state. Allocations nearby are unchanged.

use millpond::error::{Invalid, Nearest};
use millpond::units::Bytes;
use millpond::{Buffer, Error};

use crate::common::{Make, Subject, makes, on_every_device};

/// Less than the block has.
const BYTES: usize = 5000;

/// Every call that takes a pointer refuses this one. Returns the nearest allocation that they report.
#[track_caller]
fn refused(on: &Subject, pointer: u64) -> (Nearest, String) {
    let stream = on.stream();
    let errors = [
        stream.free_address(pointer).unwrap_err(),
        on.device.free_address(pointer).unwrap_err(),
        on.device.legacy_stream().free_address(pointer).unwrap_err(),
        on.device.memory_at(pointer).map(drop).unwrap_err(),
    ];
    let [first, ..] = &errors;
    for error in &errors {
        assert_eq!(error, first);
    }
    let Error::InvalidArgument(invalid) = first else { panic!("{first}") };
    let Invalid::Pointer { nearest, .. } = &**invalid else { panic!("{first}") };
    (nearest.clone(), first.to_string())
}

#[track_caller]
fn named(on: &Subject, name: &str) -> Buffer<u8> {
    let stream = on.stream();
    let buffer = stream.alloc::<u8>(&on.device.default_pool(), BYTES).unwrap();
    buffer.set_name(name);
    stream.synchronize().unwrap();
    buffer
}

/// The original is live, can be written, and is freed once.
#[track_caller]
fn is_whole(on: &Subject, buffer: Buffer<u8>) {
    let (stream, address) = (on.stream(), buffer.address());
    let memory = on.device.memory_at(address).unwrap();
    assert_eq!((memory.address(), memory.bytes()), (address, BYTES as u64));
    stream.memset(buffer.write(), 7).unwrap();
    let found = stream.copy_to_host(buffer.read()).unwrap();
    assert!(!on.has_memory || found == [7; BYTES]);
    stream.free_address(address).unwrap();
    assert!(stream.free(buffer).is_err(), "it is freed by its address");
    assert_eq!(on.device.default_pool().statistics().used_bytes, 0);
}

#[test]
fn one_byte_beyond_the_start() {
    on_every_device(|on| {
        let x = named(on, "weights");
        let (nearest, text) = refused(on, x.address() + 1);
        assert!(matches!(nearest, Nearest::Inside { offset: 1, .. }), "{text}");
        assert!(text.contains("1 B inside `weights`") && text.contains("allocated on stream"), "{text}");
        is_whole(on, x);
    });
}

/// Also beyond its bytes, as far as its block goes.
#[test]
fn in_the_middle() {
    on_every_device(|on| {
        let (x, above) = (named(on, "weights"), named(on, "above"));
        let bytes = BYTES as u64;
        for offset in [255, 256, 512, 2048, bytes - 1, bytes, 5119] {
            let (nearest, text) = refused(on, x.address() + offset);
            let Nearest::Inside { allocation, offset: found } = nearest else { panic!("{text}") };
            assert_eq!(found, offset);
            for part in ["`weights`", &Bytes(bytes).to_string(), "pointers.rs:"] {
                assert!(allocation.contains(part), "no {part} in: {allocation}");
            }
            let pointer = format!("{:#x} is not the start of a live allocation", x.address() + offset);
            assert!(text.starts_with(&pointer) && text.contains(&format!("{offset} B inside `weights`")), "{text}");
        }
        drop(above);
        is_whole(on, x);
    });
}

#[test]
fn of_the_host() {
    on_every_device(|on| {
        let x = named(on, "weights");
        let (on_stack, on_heap) = (5u8, Box::new(5u8));
        for pointer in [&raw const on_stack as u64, &raw const *on_heap as u64, 0x1000, 1, u64::MAX] {
            let (nearest, text) = refused(on, pointer);
            assert!(matches!(nearest, Nearest::Outside { nearest: Some(_) }), "{text}");
            let start =
                format!("{pointer:#x} is not the start of a live allocation: no device of this process has that");
            assert!(text.starts_with(&start), "{text}");
            assert!(text.contains("the nearest allocation is `weights`"), "{text}");
        }
        is_whole(on, x);
    });
}

/// Freeing null is fine, as in CUDA. There is no memory at it to look up.
#[test]
fn null() {
    on_every_device(|on| {
        let x = named(on, "weights");
        on.stream().free_address(0).unwrap();
        on.device.free_address(0).unwrap();
        on.device.legacy_stream().free_address(0).unwrap();
        let error = on.device.memory_at(0).unwrap_err();
        assert!(matches!(error.invalid(), Some(Invalid::Pointer { pointer: 0, .. })), "{error}");
        is_whole(on, x);
    });
}

/// In a cache, in the heap, and with its memory given back.
#[test]
fn freed() {
    on_every_device(|on| {
        let (x, other) = (named(on, "weights"), named(on, "other"));
        let (stream, address) = (on.stream(), x.address());
        stream.free(x).unwrap();
        let line = line!() - 1;
        for _ in 0..3 {
            let (nearest, text) = refused(on, address);
            assert!(matches!(nearest, Nearest::Freed { .. }), "{text}");
            assert!(text.contains("`weights`") && text.contains(&format!("pointers.rs:{line}")), "{text}");
            stream.synchronize().unwrap();
            on.device.default_pool().trim_to(0).unwrap();
        }
        is_whole(on, other);
    });
}

#[test]
fn of_another_device() {
    for make in makes() {
        let (on, there) = (Subject::new(make), Subject::new(make));
        if let Make::Sim(_) = make {
            eprintln!("skipped on {make:?}: its addresses are made up, and may be those of another");
            continue;
        }
        let (own, x) = (named(&on, "own"), named(&there, "weights"));
        let (nearest, text) = refused(&on, x.address());
        let Nearest::OtherDevice { device, what } = nearest else { panic!("{text}") };
        assert_eq!(device, there.device.name());
        assert!(what.contains("`weights`") && what.contains("allocated on stream"), "{text}");
        let (_, text) = refused(&on, x.address() + 9);
        assert!(text.contains(&format!("it is of {}: it is 9 B inside `weights`", there.device.name())), "{text}");
        is_whole(&there, x);
        is_whole(&on, own);
    }
}

/// The memory of another process at an address is unknown here: the error says only that the address is not ours.
#[test]
fn of_another_process() {
    let maps = std::process::Command::new("cat").arg("/proc/self/maps").output().expect("a process");
    let maps = String::from_utf8(maps.stdout).expect("text");
    let pointer = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).expect("an address");
    on_every_device(|on| {
        let x = named(on, "weights");
        let (nearest, text) = refused(on, pointer);
        assert!(matches!(nearest, Nearest::Outside { .. }), "{text}");
        assert!(text.contains("the nearest allocation is `weights`"), "{text}");
        is_whole(on, x);
    });
}

/// The output of a graph: before its first launch; then launched, taken and freed; and then not live again.
#[test]
fn never_launched() {
    on_every_device(|on| {
        let stream = on.stream();
        let line = line!() + 2;
        let captured = stream.capture(|s| {
            let out = s.alloc::<u8>(&on.device.default_pool(), BYTES)?;
            s.memset(out.write(), 3)?;
            Ok(out.into_alloc_node())
        });
        let (graph, out) = captured.unwrap();
        let exec = graph.instantiate(Default::default()).unwrap();
        for offset in [0, 9] {
            let (nearest, text) = refused(on, out.address() + offset);
            assert!(matches!(nearest, Nearest::OfGraph { .. }), "{text}");
            assert!(text.contains(&format!("{offset} B inside memory of graph")), "{text}");
            assert!(text.contains("only a launch of that graph makes live"), "{text}");
            assert!(text.contains(&format!("pointers.rs:{line}")), "{text}");
        }
        let buffer = exec.launch(&stream).unwrap().take(out).unwrap();
        let (_, text) = refused(on, buffer.address() + 1);
        assert!(text.contains("1 B inside allocation"), "{text}");
        let found = stream.copy_to_host(buffer.read()).unwrap();
        assert!(!on.has_memory || found == [3; BYTES]);
        stream.free_address(buffer.address()).unwrap();
        let (nearest, text) = refused(on, out.address());
        assert!(matches!(nearest, Nearest::Freed { .. }), "{text}");
        stream.synchronize().unwrap();
    });
}

/// The program can never free memory that a graph frees itself.
#[test]
fn belongs_to_a_graph() {
    on_every_device(|on| {
        let stream = on.stream();
        let mut address = 0;
        let captured = stream.capture(|s| {
            let scratch = s.alloc::<u8>(&on.device.default_pool(), BYTES)?;
            address = scratch.address();
            s.memset(scratch.write(), 3)?;
            s.free(scratch)?;
            Ok(())
        });
        let (graph, ()) = captured.unwrap();
        let exec = graph.instantiate(Default::default()).unwrap();
        for _ in 0..2 {
            let (nearest, text) = refused(on, address);
            assert!(matches!(nearest, Nearest::OfGraph { offset: 0, .. }), "{text}");
            let _ = exec.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
    });
}
