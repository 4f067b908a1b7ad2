//! A kernel that panics loses its device: every later call says so, and nothing hangs or crashes.

use millpond::{Device, Error, HostConfig};

#[test]
fn a_panicking_kernel_loses_the_device_and_buffers_still_drop() {
    let device = Device::host(HostConfig::default()).unwrap();
    let (pool, stream) = (device.default_pool(), device.stream().unwrap());
    let x = stream.alloc::<u32>(&pool, 1000).unwrap();
    let y = stream.alloc::<u32>(&pool, 1000).unwrap();
    stream.launch(x.write(), |x| x.fill(1)).unwrap();
    stream.launch(x.read(), |x| assert_eq!(x[0], 2, "a planted mistake")).unwrap();
    let lost = stream.synchronize().unwrap_err();
    assert!(matches!(&lost, Error::DeviceLost { reason } if reason.contains("a planted mistake")), "{lost}");
    assert!(matches!(stream.launch(y.write(), |y| y.fill(1)), Err(Error::DeviceLost { .. })));
    assert!(matches!(stream.copy_to_host(y.read()), Err(Error::DeviceLost { .. })));
    assert!(matches!(device.synchronize(), Err(Error::DeviceLost { .. })));
    // Another device of the process is not affected.
    let other = Device::host(HostConfig::default()).unwrap();
    let elsewhere = other.stream().unwrap();
    let z = elsewhere.alloc::<u32>(&other.default_pool(), 10).unwrap();
    elsewhere.memset(z.write(), 0).unwrap();
    assert_eq!(elsewhere.copy_to_host(z.read()).unwrap(), vec![0; 10]);
    drop(x);
    let _ = stream.free(y);
}

#[test]
fn a_kernel_that_owns_buffers_can_be_refused() {
    // The refusal drops the closure, and with it a buffer that the same launch declares: no lock may be held then.
    let device = Device::host(HostConfig::default()).unwrap();
    let (pool, stream) = (device.default_pool(), device.stream().unwrap());
    stream.launch((), |()| panic!("planted")).unwrap();
    let _ = stream.synchronize();
    let owned = stream.alloc::<u8>(&pool, 100);
    if let Ok(buffer) = owned {
        let view = buffer.view();
        let refused = stream.launch(view.write(), move |_| {
            let _ = buffer.len();
        });
        assert!(matches!(refused, Err(Error::DeviceLost { .. })), "{refused:?}");
    }
}
