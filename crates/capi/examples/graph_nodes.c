// A graph with memory, built node by node: the wrong order is refused with the missing edge, then corrected.
#include "example.h"

enum { BYTES = 1 << 16 };

static unsigned char *scratch, *result;

static void fill(void *argument) {
    (void)argument;
    memset(scratch, 4, BYTES);
}

static void copy(void *argument) {
    (void)argument;
    memcpy(result, scratch, BYTES);
}

int main(void) {
    millpond_device_t device;
    millpond_stream_t stream;
    millpond_graph_t graph;
    millpond_graph_node_t alloc, filled, copied, freed;
    millpond_graph_exec_t exec;
    size_t count;
    MUST(millpond_device_create_host(&device, NULL));
    MUST(millpond_stream_create(&stream, device));
    MUST(millpond_malloc_async((void **)&result, BYTES, stream));

    MUST(millpond_graph_create(&graph, device));
    MUST(millpond_graph_add_mem_alloc_node(&alloc, graph, NULL, 0, BYTES, (void **)&scratch));
    millpond_access written = writes(scratch);
    MUST(millpond_graph_add_kernel_node(&filled, graph, &alloc, 1, fill, NULL, &written, 1));
    millpond_access both[] = {reads(scratch), writes(result)};
    MUST(millpond_graph_add_kernel_node(&copied, graph, &filled, 1, copy, NULL, both, 2));
    // The free comes after the fill, but no edge puts it after the copy.
    MUST(millpond_graph_add_mem_free_node(&freed, graph, &filled, 1, scratch));
    REFUSED(MILLPOND_ERROR_GRAPH, millpond_graph_instantiate(&exec, graph, 0));
    printf("missing: %s\n", millpond_last_error());
    MUST(millpond_graph_add_dependency(graph, copied, freed));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_get_node_count(&count, graph));
    REQUIRE(count == 4);
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_graph_add_dependency(graph, 1, freed));

    for (int round = 0; round < 3; round++) {
        MUST(millpond_memset_async(result, 0, BYTES, stream));
        MUST(millpond_graph_launch(exec, stream));
        REQUIRE(all_are(result, BYTES, 4, stream));
    }
    printf("built by hand, launched three times\n");
    MUST(millpond_free_async(result, stream));
    MUST(millpond_graph_exec_destroy(exec));
    MUST(millpond_graph_destroy(graph));
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(device));
    return 0;
}
