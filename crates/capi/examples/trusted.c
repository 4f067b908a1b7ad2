// PyTorch's and CuPy's entry points, beside work, streams and captures that only the program knows. Each case runs in
// its own process: `trusted CASE` runs one, `trusted` runs all of them, one after the other.
#define _DEFAULT_SOURCE
#include "trusted.h"
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 1 << 20, LARGE = 4 << 20, HUGE_BYTES = 80 << 20 };

static const millpond_pool_key POOL = {0, 1}, OTHER_POOL = {0, 2};

static void begin(millpond_pool_key pool) { millpond_torch_begin_allocate_to_pool(DEVICE, pool, NULL); }
static void end(millpond_pool_key pool) { millpond_torch_end_allocate_to_pool(DEVICE, pool); }

// Captures a graph that fills memory of the pool.
static void *captured_fill(stream_t stream, unsigned char value, void **memory) {
    void *graph = NULL, *exec = NULL;
    begin(POOL);
    CUDA(cuStreamBeginCapture_v2(stream, GLOBAL));
    *memory = take(SMALL, stream);
    fill(*memory, value, SMALL, stream);
    CUDA(cuStreamEndCapture(stream, &graph));
    end(POOL);
    CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

// A graph's output is read on a stream that is recorded for it, and freed. The next capture into the pool must not take
// it before that stream has read it.
static void recorded_user_of_a_graphs_memory(void) {
    stream_t main = new_stream(), side = new_stream();
    void *event = NULL, *output, *next, *seen = take(SMALL, side);
    CUDA(cuEventCreate(&event, NO_TIMING));
    void *first = captured_fill(main, 0xAA, &output);
    CUDA(cuGraphLaunch(first, main));
    CUDA(cuEventRecord(event, main));
    CUDA(cuStreamWaitEvent(side, event, 0));
    keep_busy(side);
    copy(seen, output, SMALL, side);
    millpond_torch_record_stream(output, side);
    give(output, main);
    void *second = captured_fill(main, 0xBB, &next);
    CUDA(cuGraphLaunch(second, main));
    CUDA(cuStreamSynchronize(main));
    open_gate();
    CUDA(cuStreamSynchronize(side));
    REQUIRE(wrong_bytes(seen, 0xAA, SMALL, side) == 0);
    // Now the memory may be reused.
    void *third;
    captured_fill(main, 0xCC, &third);
    REQUIRE(third == output);
}

// The same, freed while allocations go to the pool.
static void recorded_user_of_memory_freed_in_a_recording(void) {
    stream_t main = new_stream(), side = new_stream();
    void *seen = take(SMALL, side);
    begin(POOL);
    void *memory = take(SMALL, main);
    fill(memory, 0xAA, SMALL, main);
    CUDA(cuStreamSynchronize(main));
    keep_busy(side);
    copy(seen, memory, SMALL, side);
    millpond_torch_record_stream(memory, side);
    give(memory, main);
    end(POOL);
    begin(POOL);
    void *next = take(SMALL, main);
    end(POOL);
    fill(next, 0xBB, SMALL, main);
    CUDA(cuStreamSynchronize(main));
    open_gate();
    CUDA(cuStreamSynchronize(side));
    REQUIRE(wrong_bytes(seen, 0xAA, SMALL, side) == 0);
}

// One handle names the default streams of all threads: memory that one thread freed is not free for another.
static pthread_barrier_t meeting;
static void *seen_by_first;

static void *first_thread(void *unused) {
    (void)unused;
    use_device();
    void *memory = millpond_cupy_malloc(PER_THREAD, SMALL, DEVICE);
    REQUIRE(memory != NULL);
    fill(memory, 0xAA, SMALL, PER_THREAD);
    keep_busy(PER_THREAD);
    copy(seen_by_first, memory, SMALL, PER_THREAD);
    millpond_cupy_free(PER_THREAD, memory, DEVICE);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    CUDA(cuStreamSynchronize(PER_THREAD));
    return NULL;
}

static void *second_thread(void *unused) {
    (void)unused;
    use_device();
    pthread_barrier_wait(&meeting);
    void *memory = millpond_cupy_malloc(PER_THREAD, SMALL, DEVICE);
    REQUIRE(memory != NULL);
    fill(memory, 0xBB, SMALL, PER_THREAD);
    CUDA(cuStreamSynchronize(PER_THREAD));
    millpond_cupy_free(PER_THREAD, memory, DEVICE);
    open_gate();
    pthread_barrier_wait(&meeting);
    return NULL;
}

static void default_streams_of_two_threads(void) {
    stream_t main = new_stream();
    pthread_t first, second;
    seen_by_first = take(SMALL, main);
    pthread_barrier_init(&meeting, NULL, 2);
    pthread_create(&first, NULL, first_thread, NULL);
    pthread_create(&second, NULL, second_thread, NULL);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    REQUIRE(wrong_bytes(seen_by_first, 0xAA, SMALL, main) == 0);
}

// A graph is replayed on a stream that never allocated. Its pool is released meanwhile.
static void replay_on_an_unknown_stream(void) {
    stream_t capturing = new_stream(), replaying = new_stream(), other = new_stream();
    void *graph = NULL, *exec = NULL, *seen = take(LARGE, other);
    begin(POOL);
    CUDA(cuStreamBeginCapture_v2(capturing, GLOBAL));
    void *memory = take(LARGE, capturing);
    fill(memory, 0x11, LARGE, capturing);
    keep_busy(capturing);
    copy(seen, memory, LARGE, capturing);
    give(memory, capturing);
    CUDA(cuStreamEndCapture(capturing, &graph));
    end(POOL);
    CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUDA(cuGraphLaunch(exec, replaying));
    usleep(100 * 1000);
    millpond_torch_release_pool(DEVICE, POOL);
    millpond_torch_empty_cache();
    fill(take(LARGE, other), 0x33, LARGE, other);
    open_gate();
    CUDA(cuCtxSynchronize());
    REQUIRE(wrong_bytes(seen, 0x11, LARGE, other) == 0);
    millpond_pool_statistics now;
    MUST(millpond_torch_get_statistics(&now, DEVICE));
    REQUIRE(now.used_bytes == 2 * LARGE);
}

// A program that does not announce its capture. Allocations of other streams do not invalidate it. Its own allocations
// stay where the graph finds them at every replay. Other memory that it frees is free after its end.
static void captures_that_are_not_announced(void) {
    stream_t capturing = new_stream(), other = new_stream();
    void *graph = NULL, *exec = NULL;
    void *freed = millpond_cupy_malloc(capturing, 8 << 20, DEVICE);
    fill(freed, 1, 8 << 20, capturing);
    millpond_cupy_free(capturing, freed, DEVICE);
    void *before = millpond_cupy_malloc(capturing, SMALL, DEVICE);
    CUDA(cuStreamBeginCapture_v2(capturing, GLOBAL));
    void *temporary = millpond_cupy_malloc(capturing, SMALL, DEVICE);
    REQUIRE(temporary != NULL);
    fill(temporary, 5, SMALL, capturing);
    void *output = millpond_cupy_malloc(capturing, SMALL, DEVICE);
    REQUIRE(output != NULL);
    copy(output, temporary, SMALL, capturing);
    millpond_cupy_free(capturing, temporary, DEVICE);
    // The capture is one order: the next allocation in it takes the memory.
    void *next = millpond_cupy_malloc(capturing, SMALL, DEVICE);
    REQUIRE(next == temporary);
    fill(next, 6, SMALL, capturing);
    millpond_cupy_free(capturing, next, DEVICE);
    void *beside = millpond_cupy_malloc(other, LARGE, DEVICE);
    REQUIRE(beside != NULL);
    REQUIRE(strlen(millpond_last_error()) == 0);
    millpond_cupy_free(capturing, before, DEVICE);
    REQUIRE(strlen(millpond_last_error()) == 0);
    millpond_cupy_free(capturing, before, DEVICE);
    REQUIRE(strstr(millpond_last_error(), "freed already") != NULL);
    millpond_pool_statistics now;
    MUST(millpond_torch_get_statistics(&now, DEVICE));
    REQUIRE(now.used_bytes >= LARGE + SMALL);
    CUDA(cuStreamEndCapture(capturing, &graph));
    CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    fill(beside, 7, LARGE, other);
    CUDA(cuStreamSynchronize(other));
    // Memory from before the capture, freed during it, is the stream's again.
    void *after = millpond_cupy_malloc(capturing, SMALL, DEVICE);
    REQUIRE(after == before);
    // No other allocation gets the graph's memory, however many there are.
    for (int i = 0; i < 64; i++) {
        void *eager = millpond_cupy_malloc(i % 2 ? capturing : other, SMALL, DEVICE);
        REQUIRE(eager != NULL && eager != temporary && eager != output);
        fill(eager, 9, SMALL, i % 2 ? capturing : other);
    }
    for (int i = 0; i < 2; i++) {
        fill(output, 0, SMALL, capturing);
        CUDA(cuGraphLaunch(exec, capturing));
        REQUIRE(wrong_bytes(output, 5, SMALL, capturing) == 0 && wrong_bytes(beside, 7, LARGE, other) == 0);
    }
    // A later capture of the stream takes the memory that the first one freed.
    CUDA(cuStreamBeginCapture_v2(capturing, GLOBAL));
    REQUIRE(millpond_cupy_malloc(capturing, SMALL, DEVICE) == temporary);
    REQUIRE(millpond_cupy_malloc(capturing, SIZE_MAX, DEVICE) == NULL);
    REQUIRE(strstr(millpond_last_error(), "out of memory") != NULL);
    CUDA(cuStreamEndCapture(capturing, &graph));
    millpond_cupy_free(capturing, output, DEVICE);
}

// Idle memory of other streams serves a capture, also memory that the capturing stream freed before the capture. Runs
// only if the device has little memory: FAKECUDA_BYTES.
static void idle_memory_for_a_capture(void) {
    if (getenv("FAKECUDA_BYTES") == NULL) {
        printf("skipped: the device has more memory than that\n");
        return;
    }
    stream_t capturing = new_stream(), other = new_stream(), streams[] = {other, capturing};
    for (int i = 0; i < 2; i++) {
        void *graph = NULL, *idle = take(HUGE_BYTES, streams[i]);
        fill(idle, 1, HUGE_BYTES, streams[i]);
        give(idle, streams[i]);
        CUDA(cuCtxSynchronize());
        millpond_pool_key pool = {1, i};
        begin(pool);
        CUDA(cuStreamBeginCapture_v2(capturing, GLOBAL));
        void *memory = take(HUGE_BYTES / 2, capturing);
        fill(memory, 2, HUGE_BYTES / 2, capturing);
        give(memory, capturing);
        CUDA(cuStreamEndCapture(capturing, &graph));
        end(pool);
        millpond_torch_release_pool(DEVICE, pool);
        millpond_torch_empty_cache();
    }
}

// Freed on another stream while its own stream still reads it.
static void freed_on_another_stream(void) {
    stream_t own = new_stream(), freeing = new_stream(), third = new_stream();
    void *seen = take(LARGE, own), *memory = take(LARGE, own), *taken[64];
    fill(memory, 0xAA, LARGE, own);
    CUDA(cuStreamSynchronize(own));
    // Makes the library query the progress of the stream.
    give(take(512, own), own);
    give(take(HUGE_BYTES / 2, third), third);
    give(take(HUGE_BYTES, freeing), freeing);
    keep_busy(own);
    copy(seen, memory, LARGE, own);
    give(memory, freeing);
    CUDA(cuStreamSynchronize(freeing));
    for (int i = 0; i < 64; i++) {
        taken[i] = take(LARGE, third);
        fill(taken[i], 0xBB, LARGE, third);
    }
    usleep(100 * 1000);
    open_gate();
    CUDA(cuStreamSynchronize(own));
    REQUIRE(wrong_bytes(seen, 0xAA, LARGE, own) == 0);
}

// The thread's current context is unchanged, also if there is none.
static void *without_a_context(void *unused) {
    (void)unused;
    void *context = NULL, *memory = NULL;
    MUST(millpond_trusted_malloc(&memory, SMALL, 1, NULL));
    MUST(millpond_trusted_free(memory, 1, NULL));
    CUDA(cuCtxGetCurrent(&context));
    REQUIRE(context == NULL);
    return NULL;
}

static void current_context(void) {
    int devices = 0;
    CUDA(cuDeviceGetCount(&devices));
    if (devices < 2) {
        printf("skipped: one device\n");
        return;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, without_a_context, NULL);
    pthread_join(thread, NULL);
}

static void sizes_near_the_maximum(void) {
    stream_t stream = new_stream();
    begin(POOL);
    for (size_t less = 0; less < 4 * SMALL; less += 512 * 1024 - 1) {
        void *memory = NULL;
        REFUSED(MILLPOND_ERROR_OUT_OF_MEMORY, millpond_trusted_malloc(&memory, SIZE_MAX - less, DEVICE, stream));
    }
    give(take(SMALL, stream), stream);
    end(POOL);
}

// PyTorch's order of calls if a capture fails, and the same without an end.
static void pool_released_before_its_end(void) {
    stream_t stream = new_stream();
    for (int ends = 0; ends < 2; ends++) {
        begin(POOL);
        give(take(2 * LARGE, stream), stream);
        millpond_torch_release_pool(DEVICE, POOL);
        if (ends) {
            end(POOL);
        }
    }
    CUDA(cuCtxSynchronize());
    millpond_torch_empty_cache();
    millpond_pool_statistics now;
    MUST(millpond_torch_get_statistics(&now, DEVICE));
    REQUIRE(now.used_bytes == 0 && now.reserved_bytes == 0);
}

// Captures of two threads at once: the later one is refused, and the first one's memory is its own.
static void *second_capture(void *stream) {
    use_device();
    void *memory = NULL;
    begin(OTHER_POOL);
    REQUIRE(strstr(millpond_last_error(), "one graph at a time") != NULL);
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_trusted_malloc(&memory, SMALL, DEVICE, stream));
    end(OTHER_POOL);
    return NULL;
}

static void two_captures_at_once(void) {
    stream_t first = new_stream(), second = new_stream();
    pthread_t thread;
    begin(POOL);
    // A nested capture of the same thread is no second capture.
    begin(OTHER_POOL);
    end(OTHER_POOL);
    void *memory = take(LARGE, first);
    pthread_create(&thread, NULL, second_capture, second);
    pthread_join(thread, NULL);
    give(memory, first);
    REQUIRE(take(LARGE, first) == memory);
    end(POOL);
}

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    CASE(recorded_user_of_a_graphs_memory), CASE(recorded_user_of_memory_freed_in_a_recording),
    CASE(default_streams_of_two_threads),   CASE(replay_on_an_unknown_stream),
    CASE(captures_that_are_not_announced),  CASE(idle_memory_for_a_capture),
    CASE(freed_on_another_stream),          CASE(current_context),
    CASE(sizes_near_the_maximum),           CASE(pool_released_before_its_end),
    CASE(two_captures_at_once),
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

int main(int count, char **arguments) {
    if (on_host()) {
        printf("skipped: there is no foreign code on a host device\n");
        return 0;
    }
    int failed = 0;
    for (int i = 0; i < CASE_COUNT; i++) {
        if (count > 1 && strcmp(arguments[1], CASES[i].name) != 0) {
            continue;
        }
        fflush(stdout);
        // The process that uses the library must load it.
        pid_t process = fork();
        if (process == 0) {
            load_cuda();
            use_device();
            CASES[i].run();
            exit(0);
        }
        int status = 1;
        waitpid(process, &status, 0);
        printf("%s: %s\n", CASES[i].name, status == 0 ? "ok" : "FAILED");
        failed |= status != 0;
    }
    return failed;
}
