//! Capture: a stream's calls become a graph.

use std::sync::Arc;

use millpond::Buffer;
use millpond::graph::CaptureMode;

use crate::status::{Result, guard, millpond_status, place};
use crate::tables::device::DeviceEntry;
use crate::tables::graph::{self, millpond_graph_t};
use crate::tables::pointers::POINTERS;
use crate::tables::stream::{STREAMS, StreamEntry, millpond_stream_t};
use millpond_driver::locks::lock;

/// Begins a capture (CUDA: cudaStreamBeginCapture, thread-local mode): what is done on this stream, and on streams that
/// wait for its events, becomes nodes of a graph. Memory that is allocated and not freed in the capture is live after
/// each launch, at the same address. Until its end the calling thread must not synchronise or query other streams and
/// events, make pinned memory or pools, or instantiate a graph: that is refused, and the capture is invalid then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_begin_capture(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_begin_capture", || {
        Ok(STREAMS.find(stream)?.stream.begin_capture_in(CaptureMode::ThreadLocal)?)
    })
}

/// Ends the capture that began on this stream (CUDA: cudaStreamEndCapture): the graph. Only the thread that began it
/// ends it. On another thread, on a stream that did not begin it, and with a null `graph`, this is refused and the
/// capture goes on; on such a stream it is invalid from then on. Where it is refused otherwise the capture has ended,
/// and what it allocated is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_end_capture(
    stream: millpond_stream_t,
    graph: *mut millpond_graph_t,
) -> millpond_status {
    guard("millpond_stream_end_capture", || {
        let graph = place(graph, "graph")?;
        let entry = STREAMS.find(stream)?;
        *graph = end(&entry)?;
        Ok(())
    })
}

/// What the capture allocated is memory of the graph from now on, which knows it by address; of one that came to
/// nothing it is none.
fn end(entry: &StreamEntry) -> Result<millpond_graph_t> {
    // One at a time: whoever lists memory sees whether its capture goes on.
    let mut listed = lock(&entry.device.captured);
    let ended = entry.stream.end_capture();
    let buffers = take_ended(&mut listed);
    drop(listed);
    drop(buffers);
    graph::add(ended?, Arc::clone(&entry.device))
}

/// A capture may have ended with the stream that it began on: what it allocated is not memory.
pub(crate) fn abandon(device: &DeviceEntry) {
    let buffers = take_ended(&mut lock(&device.captured));
    drop(buffers);
}

/// Takes out what captures allocated that have ended. To be dropped where no locks are held: the last of a device has
/// that with it.
fn take_ended(captured: &mut Vec<u64>) -> Vec<Buffer<u8>> {
    let mut ended = Vec::new();
    captured.retain(|&address| {
        let over = POINTERS.remove_if(address, |buffer| buffer.is_captured() && !buffer.is_live());
        ended.extend(over);
        // One of a capture that goes on stays; another life in this place is none of a capture.
        POINTERS.is_captured(address)
    });
    ended
}
