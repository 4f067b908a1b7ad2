// A server written in C keeps nothing for each request: the bytes of the heap are the same after many rounds.
// MILLPOND_STEADY_SECONDS is the time that each loop runs.
#include "example.h"
#include <malloc.h>
#include <time.h>

enum { BYTES = 512, NOISE = 16 << 10 };

static millpond_device_t device;
static millpond_stream_t main_stream;

static void nothing(void *argument) { (void)argument; }

// A stream of its own, closed without a synchronisation.
static void stream(void) {
    millpond_stream_t own;
    void *x;
    MUST(millpond_stream_create(&own, device));
    MUST(millpond_stream_set_name(own, "request"));
    MUST(millpond_malloc_async(&x, BYTES, own));
    MUST(millpond_memset_async(x, 1, BYTES, own));
    MUST(millpond_free_async(x, own));
    MUST(millpond_stream_destroy(own));
}

static void pool(void) {
    millpond_pool_t own;
    void *x;
    MUST(millpond_pool_create(&own, device, NULL));
    MUST(millpond_malloc_from_pool_async(&x, BYTES, own, main_stream));
    MUST(millpond_free_async(x, main_stream));
    MUST(millpond_pool_destroy(own));
    MUST(millpond_stream_synchronize(main_stream));
}

static void event(void) {
    millpond_event_t own;
    MUST(millpond_event_create(&own));
    MUST(millpond_event_record(own, main_stream));
    MUST(millpond_stream_wait_event(main_stream, own));
    MUST(millpond_event_synchronize(own));
    MUST(millpond_event_destroy(own));
}

// Memory that a launch leaves live, freed after it.
static void graph(void) {
    millpond_graph_t graph;
    millpond_graph_node_t born, node;
    millpond_graph_exec_t exec;
    void *x;
    MUST(millpond_graph_create(&graph, device));
    MUST(millpond_graph_add_mem_alloc_node(&born, graph, NULL, 0, BYTES, &x));
    MUST(millpond_graph_add_memset_node(&node, graph, &born, 1, x, 1, BYTES));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_destroy(graph));
    MUST(millpond_graph_launch(exec, main_stream));
    MUST(millpond_free_async(x, main_stream));
    MUST(millpond_stream_synchronize(main_stream));
    MUST(millpond_graph_exec_destroy(exec));
}

static void capture(void) {
    millpond_graph_t graph;
    millpond_graph_exec_t exec;
    void *x;
    MUST(millpond_stream_begin_capture(main_stream));
    MUST(millpond_malloc_async(&x, BYTES, main_stream));
    MUST(millpond_memset_async(x, 1, BYTES, main_stream));
    MUST(millpond_free_async(x, main_stream));
    MUST(millpond_stream_end_capture(main_stream, &graph));
    MUST(millpond_graph_instantiate(&exec, graph, 0));
    MUST(millpond_graph_destroy(graph));
    MUST(millpond_graph_launch(exec, main_stream));
    MUST(millpond_stream_synchronize(main_stream));
    MUST(millpond_graph_exec_destroy(exec));
}

// Refused calls with their errors, and a picture of the memory.
static void refused(void) {
    millpond_stream_t other;
    void *x;
    char *picture;
    MUST(millpond_stream_create(&other, device));
    MUST(millpond_malloc_async(&x, BYTES, main_stream));
    REFUSED(MILLPOND_ERROR_ORDER, millpond_free_async(x, other));
    MUST(millpond_free_async(x, main_stream));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free_async(x, main_stream));
    MUST(millpond_memory_picture(&picture, device));
    millpond_string_free(picture);
    MUST(millpond_stream_destroy(other));
    MUST(millpond_stream_synchronize(main_stream));
}

static void by_host(void) {
    void *x;
    MUST(millpond_malloc(&x, BYTES, device));
    MUST(millpond_launch(main_stream, nothing, NULL, NULL, 0));
    MUST(millpond_free(x, device));
}

static void trusted(void) {
    void *x;
    MUST(millpond_trusted_malloc(&x, BYTES, 0, NULL));
    MUST(millpond_trusted_free(x, 0, NULL));
}

// The bytes of the heap, after waiting for the device: a closed stream is kept until its work has completed.
static size_t in_use(void) {
    MUST(millpond_device_synchronize(device));
    return mallinfo2().uordblks;
}

// A leak in each round grows by the same amount each time. Tables grow until they have held the most that ever waits
// for the device: less each time, by a fifth less if other programs delay the device's thread.
static int check(const char *name, int rounds, void (*round)(void)) {
    for (int i = 0; i < 2 * rounds; i++)
        round();
    const char *seconds = getenv("MILLPOND_STEADY_SECONDS");
    for (int again = 0; again < 16; again++) {
        size_t before = in_use();
        time_t end = time(NULL) + (seconds ? atoi(seconds) : 0);
        long done = 0;
        do {
            for (int i = 0; i < rounds; i++)
                round();
            done += rounds;
        } while (time(NULL) < end);
        size_t after = in_use();
        printf("%s: %ld rounds: from %zu to %zu bytes\n", name, done, before, after);
        fflush(stdout);
        if (after <= before + NOISE)
            return 0;
    }
    return 1;
}

int main(void) {
    int kept = 0;
    // One arena, so that the figures cover everything.
    mallopt(M_ARENA_MAX, 1);
    open_device(&device);
    MUST(millpond_torch_use_host(1));
    MUST(millpond_stream_create(&main_stream, device));
    kept += check("streams", 4000, stream);
    kept += check("pools", 4000, pool);
    kept += check("events", 4000, event);
    kept += check("graphs", 9000, graph);
    kept += check("captures", 4000, capture);
    kept += check("refusals", 4000, refused);
    kept += check("memory of the host", 4000, by_host);
    kept += check("trusted", 4000, trusted);
    printf("kept: %d\n", kept);
    return 0;
}
