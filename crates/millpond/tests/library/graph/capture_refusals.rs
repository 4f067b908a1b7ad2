//! The error of each misuse of captures, a test for each: CUDA's code, and if the capture goes on.

use millpond::check::Kind;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::{Device, Error, PoolConfig, Result, Stream};

use super::made::{each, each_alone, expect, is_kind, is_of_graph};
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
fn refuses_as_unsupported(call: impl Fn(&Device, &Stream) -> Result<()>) {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let refused = call(device, &stream).unwrap_err();
        assert!(refused.report().to_string().contains("that makes the capture invalid"), "{refused}");
        assert_eq!(code(refused), 900);
        assert_spoiled(&stream);
        Ok(())
    });
}

#[test]
fn a_synchronise_of_the_stream_spoils_the_capture() {
    refuses_as_unsupported(|_, s| s.synchronize());
}

#[test]
fn a_query_of_the_stream_spoils_the_capture() {
    refuses_as_unsupported(|_, s| s.is_idle().map(|_| ()));
}

#[test]
fn a_synchronise_of_the_device_spoils_the_capture() {
    refuses_as_unsupported(|device, _| device.synchronize());
}

#[test]
fn an_immediate_free_spoils_the_capture() {
    refuses_as_unsupported(|device, s| {
        let buffer = s.alloc::<u8>(&device.default_pool(), 1).unwrap();
        device.free(buffer).map_err(|refused| refused.error)
    });
}

#[test]
fn an_immediate_free_of_other_memory_spoils_the_capture() {
    each(|on| {
        let (device, other) = (&on.device, on.stream());
        let plain = other.alloc::<u8>(&device.default_pool(), 1)?;
        other.synchronize()?;
        let stream = captured(device);
        let refused = device.free(plain).unwrap_err();
        assert_eq!(code(refused.error), 900);
        assert_spoiled(&stream);
        Ok(device.free(refused.buffer)?)
    });
}

#[test]
fn a_copy_to_the_host_spoils_the_capture() {
    refuses_as_unsupported(|device, s| {
        let buffer = s.alloc::<u8>(&device.default_pool(), 1).unwrap();
        s.copy_to_host(buffer.read()).map(|_| ())
    });
}

/// A side stream is captured, too: a wait for it invalidates the whole capture.
#[test]
fn a_synchronise_of_a_side_stream_spoils_the_capture() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let side = device.stream().unwrap();
        side.wait(&stream.record().unwrap()).unwrap();
        assert_eq!(code(side.synchronize().unwrap_err()), 900);
        assert_spoiled(&stream);
        side.synchronize().unwrap();
        Ok(())
    });
}

/// The first call that invalidates it gets its own error. All later calls get the error that it is invalid.
#[test]
fn a_spoiled_capture_answers_that_it_is_invalid() {
    each(|on| {
        let device = &on.device;
        let (stream, side) = (captured(device), device.stream()?);
        let event = stream.record()?;
        side.wait(&event)?;
        assert_eq!(code(stream.synchronize().unwrap_err()), 900);
        let later = [stream.synchronize(), side.is_idle().map(drop), device.synchronize(), side.wait(&event)];
        for answer in later {
            assert_eq!(code(answer.unwrap_err()), 901);
        }
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

/// `CAPTURED_EVENT`.
#[test]
fn a_synchronise_or_query_of_a_captured_event_spoils_the_capture() {
    each(|on| {
        for is_query in [false, true] {
            let stream = captured(&on.device);
            let event = stream.record().unwrap();
            let refused = if is_query { event.is_over().map(|_| ()) } else { event.synchronize() };
            assert_eq!(code(refused.unwrap_err()), 907);
            assert_spoiled(&stream);
            // The same after the end: it never stands for work that runs.
            assert_eq!(code(event.synchronize().unwrap_err()), 907);
            assert_eq!(code(stream.wait(&event).unwrap_err()), 907);
        }
        Ok(())
    });
}

/// `STREAM_CAPTURE_ISOLATION`.
#[test]
fn a_wait_for_an_event_from_outside_spoils_the_capture() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        let (own, others) = (stream.record()?, other.record()?);
        for event in [own, others] {
            stream.begin_capture()?;
            let refused = stream.wait(&event).unwrap_err();
            assert!(refused.report().to_string().contains("wait with the external flag"), "{refused}");
            assert_eq!(code(refused), 905);
            assert_spoiled(&stream);
        }
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

/// `STREAM_CAPTURE_UNMATCHED`.
#[test]
fn an_end_on_a_stream_that_joined_spoils_the_capture() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let side = device.stream()?;
        side.wait(&stream.record()?)?;
        let refused = side.end_capture().unwrap_err();
        let [ended, origin] = [&side, &stream].map(|stream| stream.id().to_string());
        assert!(
            refused.to_string().starts_with(&format!("{ended} joined a capture that began on {origin}")),
            "{refused}"
        );
        assert_eq!(code(refused), 903);
        assert_spoiled(&stream);
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

/// A free on a side stream is a leaf, too.
#[test]
fn a_free_in_a_side_stream_that_is_not_joined_is_its_leaf() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let side = device.stream()?;
        let x = stream.alloc::<u8>(&device.default_pool(), 16)?;
        side.wait(&stream.record()?)?;
        side.free(x)?;
        let refused = stream.end_capture().unwrap_err();
        assert!(refused.report().to_string().contains("its last node is mem free node 1 at "), "{refused}");
        Ok(())
    });
}

/// `STREAM_CAPTURE_IMPLICIT`. Non-blocking streams are independent of the legacy stream.
#[test]
fn a_use_of_the_legacy_stream_spoils_the_captures_of_blocking_streams() {
    each_alone(|on| {
        let device = &on.device;
        let legacy = device.legacy_stream();
        let stream = captured(device);
        assert_eq!(code(visit(&legacy, ()).unwrap_err()), 906);
        assert_spoiled(&stream);
        let apart = device.non_blocking_stream()?;
        apart.begin_capture()?;
        visit(&legacy, ())?;
        assert_goes_on(&apart);
        Ok(())
    });
}

/// `STREAM_CAPTURE_UNSUPPORTED`: no capture begins.
#[test]
fn a_capture_of_the_legacy_stream_does_not_begin() {
    each_alone(|on| {
        let device = &on.device;
        let legacy = device.legacy_stream();
        assert_eq!(code(legacy.begin_capture().unwrap_err()), 900);
        visit(&legacy, ())?;
        device.synchronize()
    });
}

/// `ILLEGAL_STATE`: the capture in progress stays valid.
#[test]
fn a_second_begin_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        assert_eq!(code(stream.begin_capture().unwrap_err()), 401);
        assert_goes_on(&stream);
        Ok(())
    });
}

/// `ILLEGAL_STATE`.
#[test]
fn an_end_without_a_begin_is_refused() {
    each_alone(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        assert_eq!(code(stream.end_capture().unwrap_err()), 401);
        assert_eq!(code(device.legacy_stream().end_capture().unwrap_err()), 401);
        stream.synchronize()
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

/// `STREAM_CAPTURE_WRONG_THREAD`: the capture goes on, and ends on its own thread. A relaxed one ends on any thread.
#[test]
fn an_end_in_another_thread_is_refused_unless_the_capture_is_relaxed() {
    each(|on| {
        let device = &on.device;
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let stream = device.stream()?;
            stream.begin_capture_in(mode)?;
            let there = stream.clone();
            let ended = std::thread::spawn(move || there.end_capture().map(|_| ())).join().unwrap();
            match mode {
                CaptureMode::Relaxed => ended?,
                _ => {
                    assert_eq!(code(ended.unwrap_err()), 908);
                    assert_goes_on(&stream);
                }
            }
        }
        Ok(())
    });
}

/// `INVALID_VALUE`: a captured free of memory that no graph allocated. The capture goes on.
#[test]
fn a_captured_free_of_uncaptured_memory_leaves_the_capture_as_it_was() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let plain = stream.alloc::<u32>(&device.default_pool(), 4)?;
        stream.begin_capture()?;
        let refused = stream.free(plain).unwrap_err();
        assert!(is_kind(&refused.error, Kind::CaptureForeignFree));
        assert!(refused.report().to_string().contains("free it outside of the capture"), "{refused}");
        let by_address = stream.free_address(refused.buffer.address()).unwrap_err();
        assert!(is_kind(&by_address, Kind::CaptureForeignFree));
        assert!(stream.free_address(0x1000).unwrap_err().invalid().is_some());
        stream.memset(refused.buffer.write(), 1)?;
        assert_goes_on(&stream);
        expect(&stream, refused.buffer.read(), 1);
        stream.free(refused.buffer)?;
        Ok(())
    });
}

/// `INVALID_VALUE`: memory of a capture, freed outside of it before any launch.
#[test]
fn memory_of_a_capture_is_not_freed_outside_of_it() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (captured(device), device.stream()?);
        let x = stream.alloc::<u32>(&device.default_pool(), 8)?;
        let refused = other.free(x).unwrap_err();
        assert!(is_kind(&refused.error, Kind::FreeBeforeAlloc), "{refused}");
        assert!(other.free_address(refused.buffer.address()).unwrap_err().invalid().is_some());
        stream.free(refused.buffer)?;
        assert_goes_on(&stream);
        Ok(())
    });
}

/// `INVALID_VALUE`: a second free of captured memory is a fault of the graph. The capture goes on.
#[test]
fn a_second_captured_free_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = captured(device);
        let address = stream.alloc::<u32>(&device.default_pool(), 8)?.into_address();
        stream.free_address(address)?;
        let refused = stream.free_address(address).unwrap_err();
        assert!(is_of_graph(&refused), "{refused}");
        assert!(refused.report().to_string().contains("it is freed already"), "{refused}");
        assert_goes_on(&stream);
        Ok(())
    });
}
