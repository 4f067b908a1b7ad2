//! Graphs: unknown error codes, missing functions, closures that panic, invalidated captures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fakecuda::{Code, Hooks};
use millpond_driver::{CudaDriver, Driver, DriverError, Node, NodeWork, RawExec, RawStream, Work};

use crate::{Wishes, config, driver, finish, memory, run, stream, submit};

fn instantiate(driver: &CudaDriver, works: impl IntoIterator<Item = NodeWork>) -> millpond_driver::Result<RawExec> {
    let nodes: Vec<Node> = works.into_iter().map(|work| Node { work, after: Vec::new() }).collect();
    // SAFETY: the tests map what nodes use, and leave it mapped.
    unsafe { driver.instantiate(&nodes) }
}

fn launch(driver: &CudaDriver, exec: RawExec, stream: RawStream) -> millpond_driver::Result<()> {
    // SAFETY: as above.
    unsafe { driver.launch(exec, stream) }
}

fn host_node(task: impl Fn() + Send + Sync + 'static) -> NodeWork {
    NodeWork::Run(Arc::new(task))
}

/// Every call returns a code that no header has: an error, nothing is left behind, and the call succeeds right after.
#[test]
fn unknown_codes_are_errors_and_change_nothing() {
    let (driver, wishes) = (driver(), Wishes::new());
    let (stream, at, owned) = (stream(&driver), memory(&driver), Arc::new(AtomicU32::new(0)));
    submit(&driver, stream, Work::Fill { at, bytes: 8, value: 1 }).unwrap();
    let refused = |function, act: &dyn Fn() -> millpond_driver::Result<()>| wishes.refuse(function, act);
    let capture = || {
        driver.begin_capture(stream)?;
        submit(&driver, stream, Work::Fill { at, bytes: 8, value: 1 })?;
        driver.end_capture(stream)
    };
    for function in ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphGetNodes"] {
        refused(function, &|| capture().map(drop));
        // The driver takes the capture for ended. Only `fakecuda` keeps a capture whose end was made to fail.
        if function == "cuStreamEndCapture" {
            assert!(driver.end_capture(stream).is_err());
            end_by_hand(&driver, stream);
        }
        finish(&driver, stream);
    }
    let captured = capture().unwrap().expect("something was captured");
    let works = || {
        let counter = owned.clone();
        [
            NodeWork::Nothing,
            NodeWork::Fill { at, bytes: 8, value: 1 },
            NodeWork::Copy { to: at + 64, from: at, bytes: 8 },
            NodeWork::Captured(captured),
            host_node(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }),
        ]
    };
    for function in [
        "cuGraphCreate",
        "cuGraphAddEmptyNode",
        "cuGraphAddMemsetNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddChildGraphNode",
        "cuGraphAddHostNode",
        "cuUserObjectCreate",
        "cuGraphRetainUserObject",
        "cuGraphInstantiateWithFlags",
    ] {
        refused(function, &|| instantiate(&driver, works()).map(drop));
        assert_eq!(Arc::strong_count(&owned), 1, "{function}: what the nodes own is let go");
    }
    let exec = instantiate(&driver, works()).unwrap();
    refused("cuGraphUpload", &|| driver.upload(exec, stream));
    driver.upload(exec, stream).unwrap();
    refused("cuGraphLaunch", &|| launch(&driver, exec, stream));
    launch(&driver, exec, stream).unwrap();
    finish(&driver, stream);
    assert_eq!(owned.load(Ordering::Relaxed), 1);
    refused("cuGraphExecDestroy", &|| driver.destroy_exec(exec));
    driver.destroy_exec(exec).unwrap();
    refused("cuGraphDestroy", &|| driver.destroy_graph(captured));
    driver.destroy_graph(captured).unwrap();
}

/// Ends a capture that the driver takes for ended.
fn end_by_hand(driver: &CudaDriver, stream: RawStream) {
    let native = driver.native_stream(stream).expect("an open stream") as usize;
    // SAFETY: loading it runs nothing, and it is loaded already.
    let library = unsafe { libloading::Library::new(fakecuda::library()) }.unwrap();
    type End = unsafe extern "C" fn(usize, *mut usize) -> Code;
    // SAFETY: the header has this signature.
    let end = unsafe { library.get::<End>("cuStreamEndCapture") }.unwrap();
    crate::streams::Foreign::new().enter(driver);
    let mut graph = 0;
    // SAFETY: an open stream, and a place for a graph.
    assert_eq!(unsafe { end(native, &raw mut graph) }, Code::SUCCESS);
}

/// If the library lacks a function of graphs, the device has no graphs, and works otherwise.
#[test]
fn a_missing_function_means_no_graphs() {
    for function in ["cuGraphLaunch", "cuUserObjectCreate", "cuStreamBeginCapture"] {
        let hooks = Hooks::load();
        hooks.hide(function);
        let driver = CudaDriver::new(config()).unwrap();
        hooks.reset();
        let stream = stream(&driver);
        assert!(!driver.has_graphs());
        assert!(matches!(instantiate(&driver, []), Err(DriverError::Failed { .. })));
        assert!(driver.begin_capture(stream).is_err());
        finish(&driver, stream);
    }
    assert!(driver().has_graphs());
}

#[test]
fn a_host_node_that_panics_loses_the_device() {
    let driver = driver();
    let (stream, ran) = (stream(&driver), Arc::new(AtomicU32::new(0)));
    let counter = ran.clone();
    let count = move || {
        if counter.fetch_add(1, Ordering::Relaxed) == 1 {
            panic!("planted");
        }
    };
    let exec = instantiate(&driver, [host_node(count)]).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    run(&driver, stream, move || gate.recv().unwrap_or_default());
    for _ in 0..4 {
        launch(&driver, exec, stream).unwrap();
    }
    drop(go);
    let lost = DriverError::Lost { reason: "planted".into() };
    let event = driver.record(stream).unwrap();
    assert_eq!(driver.block_on(event), Err(lost.clone()));
    assert_eq!(ran.load(Ordering::Relaxed), 2, "nothing runs after it");
    assert_eq!(launch(&driver, exec, stream), Err(lost.clone()));
    assert_eq!(instantiate(&driver, []), Err(lost.clone()));
    assert_eq!(driver.begin_capture(stream), Err(lost));
    driver.destroy_exec(exec).unwrap();
}

/// Graphs that the caller did not destroy are destroyed with the driver.
#[test]
fn a_driver_that_goes_takes_its_graphs_along() {
    let (driver, owned) = (driver(), Arc::new(()));
    let kept = owned.clone();
    let exec = instantiate(&driver, [host_node(move || drop(kept.clone()))]).unwrap();
    let stream = stream(&driver);
    launch(&driver, exec, stream).unwrap();
    finish(&driver, stream);
    assert_eq!(Arc::strong_count(&owned), 2);
    drop(driver);
    assert_eq!(Arc::strong_count(&owned), 1);
}
