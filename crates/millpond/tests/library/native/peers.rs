//! Two CUDA devices, with every call of either driver failing in turn: a failed call can be repeated, and no grant and
//! no memory is lost.

use std::sync::Arc;

use millpond::pool::PeerAccess;
use millpond::{Device, DeviceConfig, PoolConfig};
use millpond_driver::{CudaDriver, Driver, Failing};

use super::config;
use crate::common::again::again;

const BYTES: usize = 1 << 20;

fn program(here: &Device, there: &Device) {
    let pool = again(|| here.pool(PoolConfig::default()));
    let (own, foreign) = (again(|| here.stream()), again(|| there.stream()));
    let order = |earlier: &millpond::Stream, later: &millpond::Stream| {
        let event = again(|| earlier.record());
        again(|| later.wait(&event));
    };
    let x = again(|| own.alloc::<u8>(&pool, BYTES));
    again(|| own.memset(x.write(), 3));
    let y = again(|| foreign.alloc::<u8>(&there.default_pool(), BYTES));
    order(&own, &foreign);
    assert!(foreign.copy(x.read(), y.write()).is_err(), "nothing is granted");
    for round in 0..2 {
        again(|| pool.grant(there, PeerAccess::ReadWrite));
        // Mapped under the grant.
        let more = again(|| own.alloc::<u8>(&pool, 64 << 20));
        again(|| own.memset(more.write(), 4 + round));
        order(&own, &foreign);
        again(|| foreign.copy(x.read(), y.write()));
        again(|| foreign.memset(x.write(), 3));
        again(|| foreign.copy_to_host(y.read()).map(|found| assert_eq!(found, [3; BYTES])));
        let last = again(|| foreign.copy_to_host(more.view().slice((64 << 20) - 4..)?.read()));
        assert_eq!(last, [4 + round; 4]);
        again(|| foreign.synchronize());
        drop(more);
        again(|| pool.revoke(there));
        assert_eq!(pool.access_of(there), PeerAccess::None);
        assert!(foreign.copy(x.read(), y.write()).is_err(), "it is revoked");
    }
    again(|| own.copy_to_host(x.read()).map(|found| assert_eq!(found, [3; BYTES])));
    drop((x, y));
    again(|| here.synchronize());
    again(|| there.synchronize());
    again(|| here.synchronize());
    again(|| pool.trim_to(0));
    assert_eq!(pool.statistics().reserved_bytes, 0);
}

#[test]
fn every_call_of_either_device_fails_once() {
    for fails_here in [true, false] {
        for n in 0.. {
            let (Some(first), Some(mut second)) = (config(), config()) else { return };
            if second.library.is_none() && Device::cuda(1).is_ok() {
                second.ordinal = 1;
            }
            let open = |config, fails| {
                let driver: Arc<dyn Driver> = Arc::new(CudaDriver::new(config).expect("a CUDA device"));
                let driver = Arc::new(Failing::new(driver));
                if fails {
                    driver.fail_at(n);
                }
                let device = again(|| Device::with_driver(driver.clone(), DeviceConfig::default()));
                (driver, device)
            };
            // Printed in case the program fails.
            eprintln!("call {n} of the {} device is to fail", if fails_here { "first" } else { "second" });
            let ((here, first), (there, second)) = (open(first, fails_here), open(second, !fails_here));
            program(&first, &second);
            drop((first, second));
            let struck = if fails_here { here.struck() } else { there.struck() };
            if struck.is_empty() {
                assert!(n > 20, "the program makes more than {n} calls");
                break;
            }
        }
    }
}
