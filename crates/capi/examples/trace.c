// A trace of a program, written to a file: by a call, or by the environment variable MILLPOND_TRACE. The program has a
// wrong order, which it lets pass; `millpond check FILE` finds it. The trace has the event nodes of a capture, too.
#include "example.h"

enum { BYTES = 4096 };

int main(int count, char **arguments) {
    millpond_device_t device;
    millpond_stream_t left, right;
    millpond_event_t event;
    millpond_graph_t graph;
    millpond_graph_exec_t exec;
    void *memory;
    int capturing;
    if (count > 1) MUST(millpond_trace_start(arguments[1]));
    open_device(&device);
    MUST(millpond_trace_stop()); // devices that are opened from here on are not in it
    MUST(millpond_stream_create(&left, device));
    MUST(millpond_stream_create(&right, device));
    MUST(millpond_event_create(&event));

    MUST(millpond_malloc_async(&memory, BYTES, left));
    MUST(millpond_memset_async(memory, 1, BYTES, left));
    MUST(millpond_device_set_checks(device, MILLPOND_CHECKS_OFF));
    millpond_access use = reads(memory);
    MUST(millpond_declare(right, &use, 1));  // nothing orders it after the allocation on `left`
    MUST(millpond_free_async(memory, left)); // nor this after the use; takes effect after both
    MUST(millpond_device_set_checks(device, MILLPOND_CHECKS_ON));
    MUST(millpond_trace_flush(device));
    MUST(millpond_event_record(event, right));

    // A record and a wait of one event inside a capture, as nodes.
    MUST(millpond_malloc_async(&memory, BYTES, left));
    MUST(millpond_stream_begin_capture(left));
    MUST(millpond_stream_is_capturing(&capturing, left));
    REQUIRE(capturing);
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_event_record_with_flags(event, left, 8));
    MUST(millpond_stream_wait_event_with_flags(left, event, MILLPOND_EVENT_WAIT_EXTERNAL));
    MUST(millpond_memset_async(memory, 3, BYTES, left));
    MUST(millpond_event_record_with_flags(event, left, MILLPOND_EVENT_RECORD_EXTERNAL));
    MUST(millpond_stream_end_capture(left, &graph));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_launch(exec, left));
    MUST(millpond_stream_wait_event(right, event)); // what the node recorded
    REQUIRE(all_are(memory, BYTES, 3, right));
    MUST(millpond_free_async(memory, right));

    MUST(millpond_graph_destroy(graph));
    MUST(millpond_graph_exec_destroy(exec));
    MUST(millpond_event_destroy(event));
    MUST(millpond_stream_destroy(left));
    MUST(millpond_stream_destroy(right));
    MUST(millpond_device_destroy(device));
    printf("%s\n", count > 1 ? "traced by a call" : "traced where the environment says so");
    return 0;
}
