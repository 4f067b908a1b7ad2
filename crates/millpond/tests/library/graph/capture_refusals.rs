//! The error of misuse of captures that no litmus program can state: CUDA's code, and if the capture goes on. All other
//! misuse of captures is in `crates/litmus/tests/live/refusals`.

use millpond::graph::{CaptureMode, Instantiate};
use millpond::{Device, Error, PoolConfig, Result, Stream};

use super::made::{each, each_alone};
use crate::common::visit;

/// Returns CUDA's code.
#[track_caller]
fn code(error: Error) -> u32 {
    let refused = error.violation().filter(|it| it.kind.is_about_captures());
    refused.and_then(|it| it.code).unwrap_or_else(|| panic!("no rule of captures: {error}"))
}

fn captured(device: &Device) -> Stream {
    let stream = device.stream().unwrap();
    stream.begin_capture().unwrap();
    stream
}

/// Asserts that the capture ends without a graph (`STREAM_CAPTURE_INVALIDATED`), and the stream is as before it.
fn assert_spoiled(stream: &Stream) {
    // Only its end is possible.
    assert_eq!(code(visit(stream, ()).unwrap_err()), 901);
    let ended = stream.end_capture().unwrap_err();
    assert!(ended.to_string().contains("its end makes no graph"), "{ended}");
    assert_eq!(code(ended), 901);
    visit(stream, ()).unwrap();
    stream.synchronize().unwrap();
}

/// Asserts that the capture goes on, and its graph runs.
fn assert_goes_on(stream: &Stream) {
    visit(stream, ()).unwrap();
    let exec = stream.end_capture().unwrap().instantiate(Instantiate::default()).unwrap();
    let _ = exec.launch(stream).unwrap();
    stream.synchronize().unwrap();
}

/// `STREAM_CAPTURE_UNSUPPORTED`.
#[test]
fn a_copy_to_the_host_spoils_the_capture() {
    each(|on| {
        let stream = captured(&on.device);
        let buffer = stream.alloc::<u8>(&on.device.default_pool(), 1)?;
        let refused = stream.copy_to_host(buffer.read()).unwrap_err();
        assert!(refused.report().to_string().contains("that makes the capture invalid"), "{refused}");
        assert_eq!(code(refused), 900);
        assert_spoiled(&stream);
        Ok(())
    });
}

/// A capture of a CUDA device forbids unsafe calls on every CUDA device of the process. A capture of a host device
/// forbids them on that device.
#[test]
fn an_unsafe_call_on_another_device_spoils_a_cuda_capture() {
    each(|on| {
        let (is_cuda, other) = (!on.runs_closures, on.another());
        let (there, device) = (other.stream(), &other.device);
        let event = there.record()?;
        let memory = there.alloc::<u8>(&device.default_pool(), 64)?;
        let calls: [&(dyn Fn() -> Result<()> + Sync); 7] = [
            &|| there.synchronize(),
            &|| there.is_idle().map(drop),
            &|| there.copy_to_host(memory.read()).map(drop),
            &|| event.synchronize(),
            &|| event.is_over().map(drop),
            &|| device.pool(PoolConfig::default()).map(drop),
            &|| device.graph()?.instantiate(Instantiate::default()).map(drop),
        ];
        for (at, call) in calls.into_iter().enumerate() {
            for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
                for is_own in [true, false] {
                    let stream = on.stream();
                    stream.begin_capture_in(mode)?;
                    let called = match is_own {
                        true => call(),
                        false => std::thread::scope(|scope| scope.spawn(call).join().unwrap()),
                    };
                    let is_forbidden = is_cuda
                        && match mode {
                            CaptureMode::Global => true,
                            CaptureMode::ThreadLocal => is_own,
                            CaptureMode::Relaxed => false,
                        };
                    let refused = called.err().map(code);
                    let said = format!("call {at}, {mode:?}, own thread: {is_own}: {refused:?}");
                    assert_eq!(refused == Some(900), is_forbidden, "{said}");
                    assert_eq!(stream.end_capture().is_err(), is_forbidden, "{said}");
                }
            }
        }
        // A device may be synchronised during captures of other devices.
        let stream = captured(&on.device);
        device.synchronize()?;
        assert_goes_on(&stream);
        there.free(memory)?;
        Ok(())
    });
}

/// `STREAM_CAPTURE_MERGE`: both are invalid.
#[test]
fn a_wait_that_would_merge_two_captures_spoils_both() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (captured(device), captured(device));
        let refused = left.wait(&right.record()?).unwrap_err();
        assert_eq!(code(refused), 902);
        assert_eq!(code(right.end_capture().unwrap_err()), 901);
        assert_spoiled(&left);
        Ok(())
    });
}

/// `STREAM_CAPTURE_UNJOINED`: the error has the leaf's kind, its name if it has one, and its place.
#[test]
fn a_side_stream_that_is_not_joined_is_named_with_its_leaf() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let side = device.stream()?;
        side.wait(&stream.record()?)?;
        visit(&side, ())?;
        let refused = stream.end_capture().unwrap_err();
        let text = refused.report().to_string();
        assert!(text.contains("kernel node 0 at ") && text.contains("capture_refusals.rs"), "{text}");
        let [unjoined, origin] = [&side, &stream].map(|stream| stream.id().to_string());
        assert!(text.starts_with(&format!("the capture ends, and {unjoined} was not joined")), "{text}");
        assert!(text.contains(&format!("help: make {origin} wait for an event recorded on {unjoined}")), "{text}");
        assert_eq!(code(refused), 904);
        // The capture has ended, and both streams can be used again.
        visit(&stream, ())?;
        side.synchronize()
    });
}

/// `STREAM_CAPTURE_IMPLICIT`: the end of a capture on the legacy default stream is refused as its operations are.
#[test]
fn an_end_on_the_legacy_stream_spoils_a_capture() {
    each_alone(|on| {
        let device = &on.device;
        let stream = captured(device);
        assert_eq!(code(device.legacy_stream().end_capture().unwrap_err()), 906);
        assert_spoiled(&stream);
        Ok(())
    });
}
