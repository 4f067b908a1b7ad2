//! Captures: the calls that they refuse, the codes, and if they go on.

use millpond::{Device, Result, Stream};
use millpond_driver::cuda::abi::graph::Graph as TheirGraph;
use millpond_driver::cuda::abi::{Code, Event, Stream as Theirs};

use super::cuda::Cuda;
use super::{compare, keeping};

/// Checks that a call in a capture is refused and invalidates the capture: its end reports that, and the stream can be
/// used again. `theirs` is given an event that was recorded outside.
fn spoils(
    what: &str,
    theirs: impl FnOnce(&Cuda, Theirs, Event) -> Code,
    ours: impl FnOnce(&Device, &Stream) -> Result<()>,
) {
    compare(|rows, cuda, device| {
        let (their_stream, stream) = (cuda.stream(), device.stream()?);
        let x = cuda.had(cuda.pool(u64::MAX, 0), 4096, their_stream);
        let y = stream.alloc::<u8>(&keeping(device)?, 4096)?;
        let outside = cuda.record(cuda.stream());
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(their_stream));
        let called = theirs(cuda, their_stream, outside);
        let (ended, graph) = cuda.end_capture(their_stream);
        let after = cuda.touch(x, their_stream);
        stream.begin_capture()?;
        rows.agree(what, called, ours(device, &stream));
        rows.agree("the end of the capture", ended, stream.end_capture());
        rows.holds("CUDA gives no graph", graph == TheirGraph::default(), format!("{graph:?}"));
        rows.agree("work after it", after, stream.memset(y.write(), 1));
        Ok(())
    });
}

#[test]
fn a_synchronise_of_the_stream() {
    spoils("cuStreamSynchronize", |cuda, s, _| cuda.table.stream_synchronize(s), |_, stream| stream.synchronize());
}

#[test]
fn a_query_of_the_stream() {
    spoils("cuStreamQuery", |cuda, s, _| cuda.table.stream_query(s), |_, stream| stream.is_idle().map(drop));
}

#[test]
fn a_synchronise_of_the_device() {
    spoils("cuCtxSynchronize", |cuda, _, _| cuda.table.synchronize(), |device, _| device.synchronize());
}

#[test]
fn a_free_without_a_stream() {
    let mut at = 0;
    spoils(
        "cuMemFree",
        |cuda, s, _| {
            // Allocated before the capture: the present capture is ended for that, and begun again.
            let _ = cuda.end_capture(s);
            cuda.must("cuMemAlloc", cuda.table.alloc_now(&raw mut at, 4096));
            cuda.must("cuStreamBeginCapture", cuda.begin_capture(s));
            cuda.table.free_now(at)
        },
        |device, stream| {
            stream.end_capture()?;
            let other = device.stream()?;
            let plain = other.alloc::<u8>(&device.default_pool(), 4096)?.into_address();
            other.synchronize()?;
            stream.begin_capture()?;
            device.free_address(plain)
        },
    );
}

/// Millpond allocates in stream order only.
#[test]
fn an_allocation_without_a_stream() {
    compare(|rows, cuda, _| {
        let (theirs, mut at) = (cuda.stream(), 0);
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        let code = cuda.table.alloc_now(&raw mut at, 4096);
        let (ended, _) = cuda.end_capture(theirs);
        rows.holds("CUDA refuses cuMemAlloc", code == Code::CAPTURE_UNSUPPORTED, cuda.table.explain(code));
        rows.holds("and the capture's end", ended == Code::CAPTURE_INVALIDATED, cuda.table.explain(ended));
        Ok(())
    });
}

#[test]
fn a_query_of_a_captured_event() {
    spoils(
        "cuEventQuery of an event recorded in the capture",
        |cuda, s, _| cuda.table.event_query(cuda.record(s)),
        |_, stream| stream.record()?.is_over().map(drop),
    );
}

#[test]
fn a_synchronise_with_a_captured_event() {
    spoils(
        "cuEventSynchronize with an event recorded in the capture",
        |cuda, s, _| cuda.table.event_synchronize(cuda.record(s)),
        |_, stream| stream.record()?.synchronize(),
    );
}

#[test]
fn a_wait_for_an_event_from_outside() {
    spoils(
        "cuStreamWaitEvent for an event recorded outside",
        |cuda, s, outside| cuda.table.stream_wait(s, outside, 0),
        |device, stream| {
            let other = device.stream()?;
            stream.wait(&other.record()?)
        },
    );
}

#[test]
fn memory_of_a_pool_is_not_freed_in_a_capture_which_goes_on() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let x = cuda.had(cuda.pool(u64::MAX, 0), 4096, theirs);
        let y = stream.alloc::<u8>(&keeping(device)?, 4096)?;
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        let (called, used) = (cuda.free(x, theirs), cuda.touch(x, theirs));
        let (ended, graph) = cuda.end_capture(theirs);
        stream.begin_capture()?;
        rows.agree("a free of memory of a pool", called, stream.free_address(y.address()));
        rows.agree("a use after it", used, stream.memset(y.write(), 1));
        let captured = rows.agree("the end of the capture", ended, stream.end_capture());
        if let Some(captured) = captured {
            let (code, their_exec) = cuda.instantiate(graph, 0);
            if let Some(exec) = rows.agree("an instance", code, captured.instantiate(Default::default())) {
                let launched = exec.launch(&stream).map(drop);
                rows.agree("its launch", cuda.table.launch(their_exec, theirs), launched);
            }
        }
        rows.agree("a free outside", cuda.free(x, theirs), stream.free(y));
        Ok(())
    });
}

#[test]
fn where_captures_begin_and_end() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let begun = cuda.begin_capture(Theirs::LEGACY);
        rows.agree("a begin on the legacy default stream", begun, device.legacy_stream().begin_capture());
        rows.agree("an end without a begin", cuda.end_capture(theirs).0, stream.end_capture());
        let codes = (cuda.begin_capture(theirs), cuda.begin_capture(theirs), cuda.end_capture(theirs).0);
        rows.agree("a begin", codes.0, stream.begin_capture());
        rows.agree("a second begin", codes.1, stream.begin_capture());
        rows.agree("the end", codes.2, stream.end_capture());
        Ok(())
    });
}

#[test]
fn an_end_on_another_thread() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        let end = || {
            cuda.enter();
            cuda.end_capture(theirs).0
        };
        let code = std::thread::scope(|scope| scope.spawn(end).join()).expect("it ends");
        rows.note("the end on its own thread after it", cuda.end_capture(theirs).0);
        stream.begin_capture()?;
        let there = stream.clone();
        let ended = std::thread::spawn(move || there.end_capture().map(drop)).join().expect("it ends");
        rows.agree("an end on another thread", code, ended);
        stream.end_capture().map(drop)
    });
}

#[test]
fn a_side_stream_that_is_not_joined() {
    compare(|rows, cuda, device| {
        let (theirs, their_side) = (cuda.stream(), cuda.stream());
        let (stream, side) = (device.stream()?, device.stream()?);
        let x = cuda.had(cuda.pool(u64::MAX, 0), 4096, theirs);
        let y = stream.alloc::<u8>(&keeping(device)?, 4096)?;
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        cuda.order(theirs, their_side);
        cuda.must("cuLaunchKernel", cuda.touch(x, their_side));
        let ended = cuda.end_capture(theirs).0;
        stream.begin_capture()?;
        side.wait(&stream.record()?)?;
        side.memset(y.write(), 1)?;
        rows.agree("the end without a join", ended, stream.end_capture());
        rows.agree("work on the side stream after it", cuda.touch(x, their_side), {
            stream.synchronize()?;
            side.memset(y.write(), 1)
        });
        Ok(())
    });
}

#[test]
fn two_captures_are_not_merged() {
    compare(|rows, cuda, device| {
        let (theirs, others) = (cuda.stream(), cuda.stream());
        let (stream, other) = (device.stream()?, device.stream()?);
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(others));
        let code = cuda.table.stream_wait(theirs, cuda.record(others), 0);
        rows.note("the end of the waiting one", cuda.end_capture(theirs).0);
        rows.note("the end of the other", cuda.end_capture(others).0);
        stream.begin_capture()?;
        other.begin_capture()?;
        rows.agree("a wait for an event of another capture", code, stream.wait(&other.record()?));
        let _ = (stream.end_capture(), other.end_capture());
        Ok(())
    });
}
