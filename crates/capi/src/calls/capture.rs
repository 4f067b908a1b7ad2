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

/// Begins a capture (CUDA: cudaStreamBeginCapture, thread-local mode). Calls on this stream, and on streams that wait
/// for its events, become nodes of a graph. Memory that is allocated and not freed in the capture is live after each
/// launch, at the same address. Until the capture's end the calling thread must not synchronise or query other streams
/// and events, make pinned memory or pools, or instantiate a graph. Such a call is refused, and the capture is then
/// invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_begin_capture(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_begin_capture", || {
        Ok(STREAMS.find(stream)?.stream.begin_capture_in(CaptureMode::ThreadLocal)?)
    })
}

/// Ends the capture that began on this stream, and returns its graph (CUDA: cudaStreamEndCapture). Only the thread that
/// began the capture may end it. The call is refused and the capture goes on in three cases: on another thread, with a
/// null `graph`, and on a stream that did not begin it. In the last case the capture is invalid from then on. After any
/// other refusal the capture has ended, and its memory is gone.
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

/// Ends a capture. Its memory belongs to the graph from now on, which knows it by address. If the capture failed, its
/// memory does not exist.
fn end(entry: &StreamEntry) -> Result<millpond_graph_t> {
    // One at a time, so that a thread that lists memory sees whether its capture is still open.
    let mut listed = lock(&entry.device.captured);
    let ended = entry.stream.end_capture();
    let buffers = take_ended(&mut listed);
    drop(listed);
    drop(buffers);
    graph::add(ended?, Arc::clone(&entry.device))
}

/// Forgets the memory of captures that ended without a graph, because the stream that they began on was destroyed.
pub(crate) fn abandon(device: &DeviceEntry) {
    let buffers = take_ended(&mut lock(&device.captured));
    drop(buffers);
}

/// Removes the buffers of captures that have ended. The result must be dropped while no locks are held: the last buffer
/// of a device drops the device.
fn take_ended(captured: &mut Vec<u64>) -> Vec<Buffer<u8>> {
    let mut ended = Vec::new();
    captured.retain(|&address| {
        let over = POINTERS.remove_if(address, |buffer| buffer.is_captured() && !buffer.is_live());
        ended.extend(over);
        // A buffer of an open capture stays listed. Other memory at this address is not a capture's.
        POINTERS.is_captured(address)
    });
    ended
}
