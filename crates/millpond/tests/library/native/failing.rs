//! Every driver call fails once, in a program of graphs: a failed call can be repeated, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use millpond::device::CallKind;
use millpond::graph::Instantiate;
use millpond::{Buffer, Device, DeviceConfig};
use millpond_driver::{CudaDriver, Driver, Failing};

use super::{Foreign, config, fill_by};
use crate::common::again::again;

fn program(device: &Device, foreign: &Foreign) {
    let stream = again(|| device.stream());
    let pool = device.default_pool();
    let x: Buffer<u8> = again(|| stream.alloc(&pool, 8192));
    let event = device.external_event();
    for is_external in [false, true] {
        let graph = again(|| {
            let graph = stream.capture(|s| {
                let scratch = s.alloc::<u8>(&pool, 8192)?;
                fill_by(foreign, s, &scratch, 5)?;
                if is_external {
                    s.record_external(&event)?;
                }
                s.copy(scratch.read(), x.write())?;
                s.declare(x.write())?;
                s.copy(scratch.read(), x.write())
            })?;
            Ok(graph.0)
        });
        let exec = again(|| graph.instantiate(Instantiate::default()));
        again(|| exec.upload(&stream));
        for _ in 0..2 {
            again(|| stream.memset(x.write(), 1));
            again(|| exec.launch(&stream).map(drop));
            again(|| stream.copy_to_host(x.read()).map(|found| assert!(found.iter().all(|byte| *byte == 5))));
        }
    }
    again(|| device.synchronize());
}

#[test]
fn every_call_fails_once() {
    let mut kinds = BTreeSet::new();
    for n in 0.. {
        let Some(config) = config() else { return };
        let foreign = Foreign(Arc::new(CudaDriver::new(config.clone()).expect("a CUDA device")));
        let driver: Arc<dyn Driver> = Arc::new(CudaDriver::new(config).expect("a CUDA device"));
        let driver = Arc::new(Failing::new(driver));
        driver.fail_at(n);
        // Printed in case the program fails.
        eprintln!("call {n} is to fail");
        let device = again(|| Device::with_driver(driver.clone(), DeviceConfig::default()));
        program(&device, &foreign);
        drop(device);
        let struck = driver.struck();
        if struck.is_empty() {
            assert!(n > 60, "the program makes more than {n} calls");
            break;
        }
        kinds.extend(struck);
    }
    let graphs = CallKind::ALL.into_iter().filter(|kind| kind.is_graph());
    let missed: Vec<CallKind> = graphs.filter(|kind| !kinds.contains(kind)).collect();
    assert_eq!(missed, [], "every kind of call of graphs has failed");
}
