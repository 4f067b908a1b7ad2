//! Runs a program with its first driver call failing, then with its second, and so on to its last.

use std::collections::BTreeSet;
use std::sync::Arc;

use millpond::{Buffer, Device, DeviceConfig, Stream};
use millpond_driver::{CallKind, Checked, Driver, Failing, HostDriver};

use crate::common::again::again;

/// Runs the program with the `n`-th call failing, for every `n`. Returns the kinds of calls that failed. The program
/// makes more than `least` calls, and takes the device.
pub(crate) fn fail_each_call(
    least: u64,
    program: impl Fn(Device),
    open: impl Fn() -> (Arc<dyn Driver>, Option<Arc<Checked<HostDriver>>>),
) -> BTreeSet<CallKind> {
    let mut kinds = BTreeSet::new();
    for n in 0.. {
        let (driver, checked) = open();
        let driver = Arc::new(Failing::new(driver));
        driver.fail_at(n);
        let device = again(|| Device::with_driver(driver.clone(), DeviceConfig::default()));
        // Printed in case the program fails.
        eprintln!("call {n} is to fail");
        program(device);
        let struck = driver.struck();
        drop(driver);
        if let Some(checked) = checked {
            eprintln!("{struck:?} failed");
            checked.assert_clean();
        }
        if struck.is_empty() {
            assert!(n > least, "the program makes more than {n} calls");
            return kinds;
        }
        kinds.extend(struck);
    }
    unreachable!("a program makes finitely many calls")
}

/// Repeats a refused free, which returns the buffer.
#[track_caller]
pub(crate) fn free_again(stream: &Stream, buffer: Buffer<u32>) {
    let mut kept = Some(buffer);
    again(|| {
        stream.free(kept.take().expect("a refusal gives it back")).map_err(|refused| {
            kept = Some(refused.buffer);
            refused.error
        })
    });
}
