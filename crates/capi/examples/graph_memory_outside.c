// Memory that a graph allocates, used and freed outside of it: on the stream of the launch, on another stream after an
// event, and by another graph, with event nodes inside both graphs.
#include "example.h"

enum { BYTES = 1 << 20 };

static millpond_device_t device;

// Makes a graph that allocates and fills memory and leaves it live.
static millpond_graph_exec_t make_graph(millpond_stream_t stream, void **memory) {
    millpond_graph_t graph;
    millpond_graph_exec_t exec;
    MUST(millpond_stream_begin_capture(stream));
    MUST(millpond_malloc_async(memory, BYTES, stream));
    MUST(millpond_memset_async(*memory, 7, BYTES, stream));
    MUST(millpond_stream_end_capture(stream, &graph));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_destroy(graph));
    return exec;
}

// Everything on one stream: launch, use, free.
static void one_stream(void) {
    millpond_stream_t stream;
    void *memory;
    MUST(millpond_stream_create(&stream, device));
    millpond_graph_exec_t exec = make_graph(stream, &memory);
    for (int round = 0; round < 3; round++) {
        MUST(millpond_graph_launch(exec, stream));
        REQUIRE(all_are(memory, BYTES, 7, stream));
        MUST(millpond_free_async(memory, stream));
    }
    // Memory of an earlier launch is not freed: the next launch is refused, and has no effect.
    MUST(millpond_graph_launch(exec, stream));
    REFUSED(MILLPOND_ERROR_GRAPH, millpond_graph_launch(exec, stream));
    REQUIRE(all_are(memory, BYTES, 7, stream));
    MUST(millpond_free_async(memory, stream));
    MUST(millpond_graph_exec_destroy(exec));
    MUST(millpond_stream_destroy(stream));
    printf("one stream: launched, used, freed\n");
}

// Launched on one stream, used and freed on others, with events between them.
static void two_streams(void) {
    millpond_stream_t launching, using, freeing;
    millpond_event_t launched, used;
    void *memory;
    MUST(millpond_stream_create(&launching, device));
    MUST(millpond_stream_create(&using, device));
    MUST(millpond_stream_create(&freeing, device));
    MUST(millpond_event_create(&launched));
    MUST(millpond_event_create(&used));
    millpond_graph_exec_t exec = make_graph(launching, &memory);
    MUST(millpond_graph_launch(exec, launching));
    REFUSED(MILLPOND_ERROR_ORDER, millpond_memset_async(memory, 8, BYTES, using));
    MUST(millpond_event_record(launched, launching));
    MUST(millpond_stream_wait_event(using, launched));
    MUST(millpond_memset_async(memory, 8, BYTES, using));
    // The free must come after the use, not only after the launch.
    MUST(millpond_stream_wait_event(freeing, launched));
    REFUSED(MILLPOND_ERROR_ORDER, millpond_free_async(memory, freeing));
    REQUIRE(strstr(millpond_last_error(), "help: make stream") != NULL);
    MUST(millpond_event_record(used, using));
    MUST(millpond_stream_wait_event(freeing, used));
    MUST(millpond_free_async(memory, freeing));
    MUST(millpond_event_destroy(launched));
    MUST(millpond_event_destroy(used));
    MUST(millpond_graph_exec_destroy(exec));
    MUST(millpond_stream_destroy(launching));
    MUST(millpond_stream_destroy(using));
    MUST(millpond_stream_destroy(freeing));
    printf("an event between two streams: launched, used, freed\n");
}

// The graph that allocates the memory records an event inside, and the graph that frees it waits for another one. A
// stream outside uses the memory in between, without a wait for either launch as a whole.
static void inside_both_graphs(void) {
    millpond_stream_t producing, using, freeing;
    millpond_event_t made, used;
    millpond_graph_t producer, freer;
    millpond_graph_exec_t produce, release;
    millpond_graph_node_t alloc, fill, wait;
    void *memory;
    MUST(millpond_stream_create(&producing, device));
    MUST(millpond_stream_create(&using, device));
    MUST(millpond_stream_create(&freeing, device));
    MUST(millpond_event_create(&made));
    MUST(millpond_event_create(&used));

    MUST(millpond_graph_create(&producer, device));
    MUST(millpond_graph_add_mem_alloc_node(&alloc, producer, NULL, 0, BYTES, &memory));
    MUST(millpond_graph_add_memset_node(&fill, producer, &alloc, 1, memory, 7, BYTES));
    MUST(millpond_graph_add_event_record_node(NULL, producer, &fill, 1, made));
    MUST(millpond_graph_create(&freer, device));
    MUST(millpond_graph_add_event_wait_node(&wait, freer, NULL, 0, used));
    MUST(millpond_graph_add_mem_free_node(NULL, freer, &wait, 1, memory));
    MUST(millpond_graph_instantiate(&produce, producer, 0));
    MUST(millpond_graph_instantiate(&release, freer, 0));

    for (int round = 0; round < 3; round++) {
        MUST(millpond_graph_launch(produce, producing));
        REFUSED(MILLPOND_ERROR_ORDER, millpond_memset_async(memory, 8, BYTES, using));
        MUST(millpond_stream_wait_event(using, made)); // the node inside, not the launch
        REQUIRE(all_are(memory, BYTES, 7, using));
        MUST(millpond_memset_async(memory, 8, BYTES, using));
        // The event has no record after this use yet, so the wait node would not wait for it.
        REFUSED(MILLPOND_ERROR_ORDER, millpond_graph_launch(release, freeing));
        MUST(millpond_event_record(used, using));
        MUST(millpond_graph_launch(release, freeing));
        REFUSED(MILLPOND_ERROR_ORDER, millpond_free_async(memory, using)); // it is freed
        // The next round allocates there again, after the free.
        MUST(millpond_event_record(used, freeing));
        MUST(millpond_stream_wait_event(producing, used));
    }
    MUST(millpond_event_destroy(made));
    MUST(millpond_event_destroy(used));
    MUST(millpond_graph_destroy(producer));
    MUST(millpond_graph_destroy(freer));
    MUST(millpond_graph_exec_destroy(produce));
    MUST(millpond_graph_exec_destroy(release));
    MUST(millpond_stream_destroy(producing));
    MUST(millpond_stream_destroy(using));
    MUST(millpond_stream_destroy(freeing));
    printf("event nodes inside both graphs: launched, used, freed by the other graph\n");
}

int main(void) {
    open_device(&device);
    one_stream();
    two_streams();
    inside_both_graphs();
    MUST(millpond_device_destroy(device));
    return 0;
}
