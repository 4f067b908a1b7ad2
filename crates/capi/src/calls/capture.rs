//! Capture: a stream's calls become a graph.

use std::sync::Arc;

use crate::status::{Result, guard, millpond_status, place};
use crate::tables::graph::{self, millpond_graph_t};
use crate::tables::pointers::POINTERS;
use crate::tables::stream::{STREAMS, StreamEntry, millpond_stream_t};
use millpond_driver::locks::lock;

/// Begins a capture (CUDA: cudaStreamBeginCapture, global mode): what is done on this stream, and on streams that wait
/// for its events, becomes nodes of a graph. Memory that is allocated and not freed in the capture is live after each
/// launch, at the same address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_begin_capture(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_begin_capture", || Ok(STREAMS.find(stream)?.stream.begin_capture()?))
}

/// Ends the capture that began on this stream (CUDA: cudaStreamEndCapture): the graph. The capture has ended also where
/// that is refused, but on a stream that did not begin it.
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

/// The buffers of the capture become alloc nodes of the graph, known by address.
fn end(entry: &StreamEntry) -> Result<millpond_graph_t> {
    let ended = entry.stream.end_capture()?;
    let nodes = entry.device.add_graph();
    lock(&entry.device.captured).retain(|&address| {
        // One of another capture, which goes on, stays; so does another life in this place.
        match POINTERS.remove_if(address, |buffer| ended.has_captured(buffer)) {
            Some(buffer) => {
                nodes.add(buffer.into_alloc_node());
                false
            }
            None => POINTERS.is_captured(address),
        }
    });
    graph::add(ended, nodes, Arc::clone(&entry.device))
}
