//! Wrong calls are refused, and no refusal loses anything. Single wrong pointers are in `pointers.rs`.

use std::panic::Location;

use millpond::check::Kind;
use millpond::error::{Invalid, Nearest};
use millpond::{Buffer, Error, MIB, PoolConfig, Stream};

use crate::common::{Subject, kind_of, on_every_device, order, touch, visit};

/// Returns the allocation nearest to a pointer that was refused.
#[track_caller]
fn nearest(error: Error) -> Nearest {
    match error.invalid() {
        Some(Invalid::Pointer { nearest, .. }) => nearest.clone(),
        other => panic!("{other:?}: {error}"),
    }
}

/// Makes a buffer with a name. Returns it and the place where it was made.
#[track_caller]
fn named(on: &Subject, stream: &Stream, name: &str, len: usize) -> (Buffer<u8>, String) {
    let x = stream.alloc::<u8>(&on.device.default_pool(), len).unwrap();
    x.set_name(name);
    (x, format!("misuse.rs:{}", Location::caller().line()))
}

#[test]
fn no_bytes_have_no_address() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let x = stream.alloc::<u64>(&pool, 0).unwrap();
        assert_eq!((x.address(), x.len(), x.bytes(), x.id()), (0, 0, 0, None));
        assert!(x.is_empty());
        x.set_name("nothing");
        visit(&stream, (x.read(), x.write())).unwrap();
        stream.memset(x.write(), 1).unwrap();
        assert_eq!(stream.copy_to_host(x.read()).unwrap(), []);
        // No stream owns it: any stream may free it, in any order.
        on.stream().free(x).unwrap();
        assert_eq!(pool.statistics().reserved_bytes, 0);
        assert_eq!(on.device.free(stream.alloc::<u8>(&pool, 0).unwrap()).map_err(Error::from), Ok(()));
    });
}

#[test]
fn more_than_there_is_is_out_of_memory() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let (x, place) = named(on, &stream, "the only one", 3000);
        let before = pool.statistics();
        let total = on.device.properties().total_bytes;
        for bytes in [1 << 50, total + 1, usize::MAX as u64, isize::MAX as u64, usize::MAX as u64 - 511] {
            let Err(Error::OutOfMemory(report)) = stream.alloc::<u8>(&pool, bytes as usize) else {
                panic!("{bytes} B were had");
            };
            assert_eq!((report.exhausted.requested, report.device_bytes), (bytes, total));
            let text = report.to_string();
            assert!(text.contains("`the only one`") && text.contains(&place), "{text}");
        }
        // Sizes that cannot even be represented.
        for refused in [stream.alloc::<u64>(&pool, usize::MAX), stream.alloc::<u64>(&pool, 1 << 61)] {
            assert!(matches!(refused, Err(Error::OutOfMemory(_))));
        }
        assert_eq!(pool.statistics().used_bytes, before.used_bytes);
        assert_eq!(pool.statistics().reserved_bytes, before.reserved_bytes);
        touch(&stream, &x);
        stream.free(x).unwrap();
    });
}

/// Beyond the last allocation, and between two: both neighbours are named with their distances.
#[test]
fn pointers_between_name_both_neighbours() {
    on_every_device(|on| {
        let stream = on.stream();
        let (low, _) = named(on, &stream, "low", MIB as usize);
        let (middle, _) = named(on, &stream, "middle", MIB as usize);
        let (high, _) = named(on, &stream, "high", MIB as usize);
        let hole = middle.address();
        assert!(low.address() < hole && hole < high.address(), "a fresh pool is filled from below");
        let beyond = high.address() + MIB + 4096;
        assert_eq!(
            nearest(stream.free_address(beyond).unwrap_err()),
            Nearest::Between { below: Some((describe(on, &high), 4096)), above: None }
        );
        stream.free(middle).unwrap();
        stream.synchronize().unwrap();
        let pointer = hole + 4096;
        let refused = stream.free_address(pointer).unwrap_err();
        let text = refused.report().to_string();
        let Nearest::Between { below: Some((below, under)), above: Some((above, over)) } = nearest(refused) else {
            panic!("{text}");
        };
        assert!(below.contains("`low`") && above.contains("`high`"), "{text}");
        assert_eq!((under, over), (pointer - low.address() - MIB, high.address() - pointer));
        assert!(text.contains("4096 B before"), "{text}");
    });
}

/// Returns the text for a live buffer in messages.
fn describe(on: &Subject, x: &Buffer<u8>) -> String {
    match nearest(on.stream().free_address(x.address() + 1).unwrap_err()) {
        Nearest::Inside { allocation, .. } => allocation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_pool_says_so() {
    on_every_device(|on| {
        let stream = on.stream();
        let (x, _) = named(on, &stream, "x", MIB as usize);
        let address = x.address();
        stream.free(x).unwrap();
        stream.synchronize().unwrap();
        let refused = stream.free_address(address + 64).unwrap_err();
        assert!(refused.report().to_string().ends_with("its pool has no allocations"), "{refused}");
    });
}

#[test]
fn a_second_free_says_where_the_first_was() {
    on_every_device(|on| {
        let stream = on.stream();
        let (x, _) = named(on, &stream, "x", 4096);
        let address = x.address();
        stream.free(x).unwrap();
        let refused = stream.free_address(address).unwrap_err();
        let text = refused.report().to_string();
        let Nearest::Freed { allocation } = nearest(refused) else { panic!("{text}") };
        assert!(allocation.contains("`x`") && allocation.contains("freed on stream 1 at"), "{text}");
        assert!(allocation.contains("misuse.rs:"), "{text}");
        assert_eq!(nearest(on.device.free_address(address).unwrap_err()), Nearest::Freed { allocation });
        // A new lifetime at the same address is independent.
        let (y, _) = named(on, &stream, "y", 4096);
        assert_eq!(y.address(), address);
        stream.free_address(address).unwrap();
        // The buffer owns nothing any more: using it is a use after free, and dropping it does nothing.
        let refused = visit(&stream, y.read()).unwrap_err();
        assert_eq!(kind_of(&refused), Kind::UseAfterFree);
        let refused = stream.free(y).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::DoubleFree);
        drop(refused.buffer);
        assert_eq!(on.device.default_pool().statistics().used_bytes, 0);
    });
}

/// A buffer whose memory was freed by its address, and then used by another buffer, can be dropped without harm.
#[test]
fn a_stale_buffer_is_harmless() {
    on_every_device(|on| {
        let stream = on.stream();
        let (old, _) = named(on, &stream, "old", 4096);
        stream.free_address(old.address()).unwrap();
        let (new, _) = named(on, &stream, "new", 4096);
        assert_eq!(old.address(), new.address());
        old.set_name("still old");
        assert!(visit(&stream, old.read()).is_err());
        let old = stream.free(old).unwrap_err().buffer;
        drop(old);
        touch(&stream, &new);
        assert!(describe(on, &new).contains("`new`"));
        stream.free(new).unwrap();
        assert_eq!(on.device.default_pool().statistics().used_bytes, 0);
    });
}

#[test]
fn memory_passes_through_a_bare_address() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let address = stream.alloc::<u8>(&pool, 4096).unwrap().into_address();
        assert_eq!(pool.statistics().used_bytes, 4096);
        stream.free_address(address).unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
        assert_eq!(stream.alloc::<u8>(&pool, 0).unwrap().into_address(), 0);
    });
}

/// The advice names one edge for everything that the other stream did, and that edge is enough.
#[test]
fn the_help_names_an_operation_that_is_late_enough() {
    on_every_device(|on| {
        let [stream, other] = on.streams();
        let (x, _) = named(on, &stream, "x", 4096);
        let early = stream.record().unwrap();
        stream.memset(x.write(), 1).unwrap();
        let refused = other.memset(x.write(), 2).unwrap_err();
        assert_eq!(kind_of(&refused), Kind::UseBeforeAlloc);
        assert!(refused.report().to_string().contains("recorded on stream 1 at or after op 3"), "{refused}");
        other.wait(&early).unwrap();
        let refused = other.memset(x.write(), 2).unwrap_err();
        assert!(refused.report().to_string().contains("recorded on stream 1 at or after op 3"), "{refused}");
        order(&stream, &other);
        other.memset(x.write(), 2).unwrap();
        other.free(x).unwrap();
    });
}

/// CUDA frees it and reports nothing.
#[test]
fn a_free_on_an_unordered_stream_is_refused() {
    on_every_device(|on| {
        let [stream, other] = on.streams();
        let (x, place) = named(on, &stream, "x", 4096);
        let refused = other.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc);
        let x = refused.buffer;
        let refused = other.free_address(x.address()).unwrap_err();
        let text = refused.report().to_string();
        for part in [
            "`x`",
            "is freed on stream 2, but nothing makes that free wait for the allocation on stream 1",
            &place,
            "stream 2 never waits for stream 1",
            "help: make stream 2 wait for an event recorded on stream 1 at or after op 1",
        ] {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
        // The advice is enough.
        order(&stream, &other);
        touch(&stream, &x);
        let refused = other.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
        let text = refused.error.report().to_string();
        assert!(text.contains("stream 2 comes after stream 1 up to op 2 only"), "{text}");
        assert!(text.contains("at or after op 3"), "{text}");
        order(&stream, &other);
        other.free(refused.buffer).unwrap();
    });
}

/// CUDA: memory of a stream may be freed at once after the host has waited for all its uses.
#[test]
fn a_free_without_a_stream_needs_the_host_to_know() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let (x, _) = named(on, &stream, "x", 4096);
        touch(&stream, &x);
        let refused = on.device.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeAlloc);
        stream.synchronize().unwrap();
        touch(&stream, &refused.buffer);
        let refused = on.device.free(refused.buffer).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
        stream.synchronize().unwrap();
        on.device.free(refused.buffer).unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
        let address = stream.alloc::<u8>(&pool, 64).unwrap().into_address();
        assert!(on.device.free_address(address).is_err());
        on.device.synchronize().unwrap();
        on.device.free_address(address).unwrap();
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

#[test]
fn lengths_and_bounds_are_checked() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let (x, y) = (stream.alloc::<u32>(&pool, 10).unwrap(), stream.alloc::<u32>(&pool, 9).unwrap());
        let invalid = |error: Error| error.invalid().cloned();
        let length = |what, left, right| Some(Invalid::Length { what, left, right });
        let refused = stream.copy_from_host(x.write(), &[0; 9]).unwrap_err();
        assert_eq!(invalid(refused), length("copy_from_host", 9, 10));
        assert_eq!(invalid(stream.copy(x.read(), y.write()).unwrap_err()), length("copy", 10, 9));
        stream.copy(x.view().slice(1..).unwrap().read(), y.write()).unwrap();
        let bounds = |start, end| Some(Invalid::Bounds { start, end, len: 10 });
        assert_eq!(invalid(x.view().slice(3..11).unwrap_err()), bounds(3, 11));
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = x.view().slice(4..3);
        assert_eq!(invalid(backwards.unwrap_err()), bounds(4, 3));
        assert_eq!(invalid(x.view().slice(..=usize::MAX).unwrap_err()), bounds(0, u64::MAX));
        let inner = x.view().slice(2..8).unwrap().slice(1..=2).unwrap();
        assert_eq!((inner.len(), x.view().slice(10..).unwrap().is_empty()), (2, true));
        assert!(inner.slice(..3).is_err());
    });
}
