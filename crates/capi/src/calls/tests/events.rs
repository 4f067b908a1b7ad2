//! Events, and the devices that they belong to.

use super::*;
use crate::calls::event::{
    MILLPOND_EVENT_RECORD_EXTERNAL, MILLPOND_EVENT_WAIT_EXTERNAL, millpond_event_create, millpond_event_record,
    millpond_event_record_with_flags,
};
use crate::calls::graph::{
    millpond_graph_add_event_record_node, millpond_graph_add_event_wait_node, millpond_graph_create,
};
use crate::calls::stream::millpond_stream_wait_event_with_flags;
use crate::status::millpond_status::*;
use crate::tables::event::millpond_event_t;

/// A new event, which streams of two devices may record one after the other.
fn event() -> millpond_event_t {
    let mut event = null_mut();
    must(c!(millpond_event_create(&mut event)));
    event
}

#[test]
fn a_refused_node_leaves_an_event_as_it_was() {
    let [one, other] = [(); 2].map(|()| host_device());
    let (left, right, mut graph) = (stream_of(one), stream_of(other), null_mut());
    must(c!(millpond_graph_create(&mut graph, other)));
    let is_free = |event| {
        for stream in [left, right, left] {
            must(c!(millpond_event_record(event, stream)));
        }
    };
    let named = event();
    is_free(named);
    // Its record is of the other device.
    let wrong = c!(millpond_graph_add_event_record_node(null_mut(), graph, null(), 0, named));
    refused(wrong, MILLPOND_ERROR_INVALID_VALUE);
    is_free(named);
    let wrong = c!(millpond_graph_add_event_wait_node(null_mut(), graph, null(), 0, named));
    refused(wrong, MILLPOND_ERROR_INVALID_VALUE);
    is_free(named);

    let (fresh, nowhere) = (event(), 7);
    let wrong = c!(millpond_graph_add_event_record_node(null_mut(), graph, &nowhere, 1, fresh));
    refused(wrong, MILLPOND_ERROR_INVALID_HANDLE);
    is_free(fresh);
}

#[test]
fn a_flag_outside_captures_ties_an_event_to_no_device() {
    let [left, right] = [(); 2].map(|()| stream_of(host_device()));
    let event = event();
    for stream in [left, right, left] {
        must(c!(millpond_event_record_with_flags(event, stream, MILLPOND_EVENT_RECORD_EXTERNAL)));
        must(c!(millpond_stream_wait_event_with_flags(stream, event, MILLPOND_EVENT_WAIT_EXTERNAL)));
        must(c!(millpond_event_record(event, stream)));
    }
}

#[test]
fn an_event_that_a_node_names_is_of_its_graphs_device() {
    let [one, other] = [(); 2].map(|()| host_device());
    let (event, mut graph) = (event(), null_mut());
    must(c!(millpond_event_record(event, stream_of(one))));
    must(c!(millpond_graph_create(&mut graph, one)));
    must(c!(millpond_graph_add_event_record_node(null_mut(), graph, null(), 0, event)));
    must(c!(millpond_event_record(event, stream_of(one))));
    refused(c!(millpond_event_record(event, stream_of(other))), MILLPOND_ERROR_INVALID_VALUE);
}
