//! Safe code cannot reach memory that is not its own.

use bytemuck::{Pod, Zeroable};
use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::{Buffer, Device, Error, HostConfig, Pool, PoolConfig};

use crate::common::{kind_of, on_devices_that_run_closures, on_every_device, order, visit};

/// An ordered reader after a write does not hide the write from a reader that is not ordered.
#[test]
fn a_write_stays_known_behind_an_ordered_read() {
    on_every_device(|on| {
        let pool = on.pool(PoolConfig::default());
        let [writer, ordered, stranger] = on.streams();
        let x = writer.alloc::<u8>(&pool, 64).unwrap();
        order(&writer, &stranger);
        visit(&writer, x.write()).unwrap();
        order(&writer, &ordered);
        visit(&ordered, x.read()).unwrap();
        let refused = visit(&stranger, x.read()).unwrap_err();
        assert_eq!(kind_of(&refused), Kind::Race);
        let violation = refused.violation().unwrap();
        assert_eq!(
            violation.earlier.as_ref().unwrap().stream,
            Some(writer.id()),
            "the write is the other side, not the ordered read"
        );
        order(&writer, &stranger);
        visit(&stranger, x.read()).unwrap();
        // All three uses must come before the free.
        let refused = writer.free(x).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
        order(&ordered, &writer);
        let refused = writer.free(refused.buffer).unwrap_err();
        order(&stranger, &writer);
        writer.free(refused.buffer).unwrap();
    });
}

/// A stale view stays stale when a new buffer uses the same table entry.
#[test]
fn a_stale_view_does_not_hide_behind_a_live_buffer() {
    on_every_device(|on| {
        let pool = on.pool(PoolConfig::default());
        let [stream] = on.streams();
        let x = stream.alloc::<u8>(&pool, 64).unwrap();
        let stale = x.view();
        let freed = line!() + 1;
        stream.free(x).unwrap();
        let y = stream.alloc::<u8>(&pool, 64).unwrap();
        for refused in [
            visit(&stream, stale.read()),
            visit(&stream, (stale.read(), y.read())),
            visit(&stream, (y.read(), stale.read())),
            visit(&stream, [y.view().read(), stale.read(), y.view().read()]),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(kind_of(&refused), Kind::UseAfterFree);
            let text = refused.violation().unwrap().to_string();
            let line = |line: u32| format!("soundness.rs:{line}");
            assert!(text.contains("by a name from before it was freed and allocated anew"), "{text}");
            assert!(text.contains(&line(freed)) && text.contains(&line(freed + 1)), "{text}");
        }
        visit(&stream, (y.read(), y.view().read())).unwrap();
    });
}

#[test]
fn a_view_of_a_freed_allocation_says_where_it_was_freed() {
    on_every_device(|on| {
        let pool = on.pool(PoolConfig::default());
        let [stream] = on.streams();
        let x = stream.alloc::<u8>(&pool, 64).unwrap();
        x.set_name("x");
        let view = x.view();
        stream.free(x).unwrap();
        let refused = visit(&stream, view.write()).unwrap_err();
        assert_eq!(kind_of(&refused), Kind::UseAfterFree);
        assert!(refused.report().to_string().contains("`x`"), "{refused}");
        assert!(refused.report().to_string().contains(file!()), "{refused}");
    });
}

/// One launch gets two slices of the same bytes only if both are for reading.
#[test]
fn one_launch_does_not_alias() {
    on_devices_that_run_closures(|on| {
        let pool = on.pool(PoolConfig::default());
        let [stream] = on.streams();
        let x = stream.alloc::<u8>(&pool, 64).unwrap();
        let (low, high) = (x.view().slice(..32).unwrap(), x.view().slice(32..).unwrap());
        let is_aliased = |result| match result {
            Err(Error::InvalidArgument(invalid)) => matches!(*invalid, Invalid::Aliased { .. }),
            _ => false,
        };
        assert!(is_aliased(visit(&stream, (x.write(), x.write()))));
        assert!(is_aliased(visit(&stream, (x.read(), x.write()))));
        let across = x.view().slice(31..63).unwrap();
        assert!(is_aliased(visit(&stream, (low.write(), across.write()))));
        assert!(is_aliased(visit(&stream, (low.read(), (high.read(), x.write())))));
        visit(&stream, (low.write(), high.write())).unwrap();
        visit(&stream, (x.read(), low.read(), high.read())).unwrap();
    });
}

/// Elements of zero size make slices of the right length and access nothing.
#[test]
fn elements_without_bytes_have_slices() {
    on_devices_that_run_closures(|on| {
        let pool = on.pool(PoolConfig::default());
        let [stream] = on.streams();
        let x: Buffer<()> = stream.alloc(&pool, 5).unwrap();
        assert_eq!((x.len(), x.bytes(), x.address()), (5, 0, 0));
        stream.launch((x.read(), x.write()), |(a, b)| assert_eq!((a.len(), b.len()), (5, 5))).unwrap();
        stream.copy_from_host(x.write(), &[(); 5]).unwrap();
        assert_eq!(stream.copy_to_host(x.view().slice(2..).unwrap().read()).unwrap(), [(); 3]);
        let empty: Buffer<f64> = stream.alloc(&pool, 0).unwrap();
        stream.launch((empty.read(), empty.write()), |(a, b)| assert!(a.is_empty() && b.is_empty())).unwrap();
        stream.synchronize().unwrap();
    });
}

#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Wide([u8; 256]);

// SAFETY: 256 zero bytes are a valid value.
unsafe impl Zeroable for Wide {}
// SAFETY: 256 bytes without padding, and any bytes are a valid value.
unsafe impl Pod for Wide {}

#[test]
fn slices_are_aligned() {
    on_devices_that_run_closures(|on| {
        let pool = on.pool(PoolConfig::default());
        let [stream] = on.streams();
        for len in [1, 2, 3, 7] {
            let _pad = stream.alloc::<u8>(&pool, 100 * len).unwrap();
            let x: Buffer<Wide> = stream.alloc(&pool, len).unwrap();
            assert_eq!(x.address() % 512, 0);
            stream.launch(x.write(), |x| x.fill(Wide([7; 256]))).unwrap();
            assert!(stream.copy_to_host(x.read()).unwrap().iter().all(|wide| wide.0 == [7; 256]));
        }
    });
}

/// On a device without memory a kernel is checked and recorded, but never gets a slice.
#[test]
fn a_device_without_memory_runs_no_kernels() {
    let device = Device::host(HostConfig::default().memory(false)).unwrap();
    let stream = device.stream().unwrap();
    let x = stream.alloc::<u8>(&device.default_pool(), 4096).unwrap();
    stream.launch(x.write(), |x| x.fill(1)).unwrap();
    stream.launch(x.read(), |_| panic!("it must not run")).unwrap();
    stream.synchronize().unwrap();
}

/// Pools are numbered on their own device: a pool with the same number on another device cannot be used here.
#[test]
fn a_pool_of_another_device_is_refused_on_every_path() {
    let devices: [Device; 2] = std::array::from_fn(|_| Device::host(HostConfig::default()).unwrap());
    let pools: [Pool; 2] = devices.each_ref().map(Device::default_pool);
    assert_eq!(pools[0].id(), pools[1].id());
    let stream = devices[0].stream().unwrap();
    let is_refused = || match stream.alloc::<u8>(&pools[1], 64) {
        Err(error) => matches!(error.invalid(), Some(Invalid::OtherDevice { .. })),
        Ok(_) => false,
    };
    assert!(is_refused());
    let own = stream.alloc::<u8>(&pools[0], 64).unwrap();
    assert!(is_refused());
    stream.free(own).unwrap();
    // Now the stream's cache has a block of that size, for its own pool with that number.
    assert!(is_refused());
}
