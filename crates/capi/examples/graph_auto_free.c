// One producer, two consumers. The producer's graph has auto-free: each launch frees what the one before left, so the
// loop need not know what it allocates. The last outputs are freed explicitly.
#include "example.h"

enum { BYTES = 1 << 18 };

static unsigned char *ones, *tens;
static int made;

// The producer's kernel, if kernels are C functions: it writes another value in each round.
static void produce(void *argument) {
    (void)argument;
    made++;
    memset(ones, made, BYTES);
    memset(tens, 10 * made, BYTES);
}

// Makes a graph that copies the producer's output, of any launch.
static millpond_graph_exec_t make_consumer(millpond_device_t device, const void *from, void *to) {
    millpond_graph_t graph;
    millpond_graph_exec_t exec;
    MUST(millpond_graph_create(&graph, device));
    MUST(millpond_graph_add_memcpy_node(NULL, graph, NULL, 0, to, from, BYTES));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_destroy(graph));
    return exec;
}

int main(void) {
    millpond_device_t device;
    millpond_stream_t stream;
    millpond_graph_t graph;
    millpond_graph_exec_t producer;
    void *result;
    open_device(&device);
    MUST(millpond_stream_create(&stream, device));
    MUST(millpond_malloc_async(&result, BYTES, stream));

    MUST(millpond_stream_begin_capture(stream));
    MUST(millpond_malloc_async((void **)&ones, BYTES, stream));
    MUST(millpond_malloc_async((void **)&tens, BYTES, stream));
    millpond_access both[] = {writes(ones), writes(tens)};
    if (on_host()) {
        MUST(millpond_launch(stream, produce, NULL, both, 2));
    } else {
        MUST(millpond_memset_async(ones, 1, BYTES, stream));
        MUST(millpond_memset_async(tens, 10, BYTES, stream));
    }
    MUST(millpond_stream_end_capture(stream, &graph));
    MUST(millpond_graph_instantiate(&producer, graph, MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH));
    millpond_graph_exec_t consumers[] = {make_consumer(device, ones, result), make_consumer(device, tens, result)};

    for (int round = 1; round <= 6; round++) {
        int which = round % 2;
        MUST(millpond_graph_launch(producer, stream));
        MUST(millpond_graph_launch(consumers[which], stream));
        int made_now = on_host() ? round : 1;
        REQUIRE(all_are(result, BYTES, (unsigned char)(which ? 10 * made_now : made_now), stream));
        printf("round %d: consumer %d\n", round, which);
    }
    MUST(millpond_graph_launch(producer, stream));
    MUST(millpond_graph_exec_destroy(producer));
    MUST(millpond_graph_destroy(graph));
    // The outputs of the last launch outlive the graph and its instance.
    unsigned char last = on_host() ? 7 : 1;
    REQUIRE(all_are(ones, BYTES, last, stream) && all_are(tens, BYTES, 10 * last, stream));
    MUST(millpond_free_async(ones, stream));
    MUST(millpond_free_async(tens, stream));
    MUST(millpond_free_async(result, stream));
    printf("the last ones are freed by hand\n");
    MUST(millpond_graph_exec_destroy(consumers[0]));
    MUST(millpond_graph_exec_destroy(consumers[1]));
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(device));
    return 0;
}
