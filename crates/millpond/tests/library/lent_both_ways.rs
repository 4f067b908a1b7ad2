//! Devices that hold imports of each other can be dropped all the same, whatever their hosts know.

use std::time::{Duration, Instant};

use millpond::{Device, HostConfig, PoolConfig};

use crate::common::process::alone;

/// Two devices lent memory to each other, and neither host knows that the other's uses have completed.
#[test]
fn devices_that_lent_to_each_other_go() {
    alone(|| {
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.starts_with("millpond share")).count()
        };
        let make = || {
            let device = Device::host(HostConfig::default()).unwrap();
            let pool = device.pool(PoolConfig::default().shareable(true)).unwrap();
            let stream = device.stream().unwrap();
            let lent = stream.alloc::<u8>(&pool, 64).unwrap();
            stream.synchronize().unwrap();
            (device, stream, lent)
        };
        let (one, other) = (make(), make());
        for (exporter, importer) in [(&one, &other), (&other, &one)] {
            let ticket = exporter.2.export().unwrap();
            #[allow(unsafe_code)]
            // SAFETY: nobody writes it.
            let import = unsafe { importer.0.import::<u8>(&ticket) }.unwrap();
            // In flight when it is returned.
            importer.1.launch(import.read(), |_| std::thread::sleep(Duration::from_millis(50))).unwrap();
            drop(import);
        }
        assert_eq!(threads(), 2);
        drop((one, other));
        let until = Instant::now() + Duration::from_secs(20);
        while threads() > 0 {
            assert!(Instant::now() < until, "{} exporters are left", threads());
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}
