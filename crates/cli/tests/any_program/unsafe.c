/* Calls that act at once while a stream is captured: right ones, and with "wrong" ones that the capture refuses. */
#include "helpers.h"
#include <pthread.h>
#include <unistd.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED };
static int is_wrong;
static CUdeviceptr a;
static CUgraph other;

static void begin_on_s(int mode) {
    a = alloc(s);
    MUST(cuEventRecord(e, t));
    MUST(cuGraphCreate(&other, 0));
    kernel_node(other, NULL, 0, a);
    MUST(cuStreamBeginCapture(s, mode));
    launch(a, s);
}

static void end_on_s(void) {
    CUgraph graph = NULL;
    if (cuStreamEndCapture(s, &graph) != (is_wrong ? 901 : 0))
        exit(14);
    if (!is_wrong)
        run_graph(graph, 1, 0);
    MUST(cuMemFreeAsync(a, s));
    MUST(cuCtxSynchronize());
}

/* The code that a call returns in a wrong program and in a right one. */
static void answers(CUresult code) {
    if (code != (is_wrong ? 900 : 0))
        exit(15);
}

static int exchange(int mode) {
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static void on_a_thread(void *(*run)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
}

static void *watch(void *unused) {
    CUcontext context;
    (void)unused;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    answers(cuEventQuery(e)); /* wrong: an event beside */
    return NULL;
}

static void *watch_relaxed(void *unused) {
    exchange(RELAXED);
    return watch(unused);
}

/* A thread polls an event that was not captured. */
static void watched(void) {
    MUST(cuStreamSynchronize(t));
    begin_on_s(is_wrong ? GLOBAL : THREAD_LOCAL);
    on_a_thread(watch);
    end_on_s();
}

static void watched_relaxed(void) {
    begin_on_s(GLOBAL);
    on_a_thread(is_wrong ? watch : watch_relaxed);
    end_on_s();
}

static volatile int is_open;
static void hold(void *unused) {
    (void)unused;
    while (!is_open)
        usleep(100);
}

static void *wait_for(void *of_stream) {
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(of_stream != NULL ? cuStreamSynchronize(of_stream) : cuCtxSynchronize());
    return NULL;
}

/* A capture begins while threads wait, also of the stream that one waits for. */
static void waited_before(void) {
    pthread_t threads[2];
    MUST(cuLaunchHostFunc(s, hold, NULL));
    pthread_create(&threads[0], NULL, wait_for, s);
    pthread_create(&threads[1], NULL, wait_for, NULL);
    usleep(300000);
    begin_on_s(GLOBAL);
    is_open = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    end_on_s();
}

/* The thread's own captures forbid it, unless the thread allows it. */
static void waits(void) {
    begin_on_s(THREAD_LOCAL);
    int before = is_wrong ? THREAD_LOCAL : exchange(RELAXED);
    answers(cuStreamSynchronize(t)); /* wrong: a stream beside */
    if (!is_wrong)
        exchange(before);
    end_on_s();
}

static void queries(void) {
    begin_on_s(is_wrong ? GLOBAL : RELAXED);
    answers(cuStreamQuery(t)); /* wrong: another stream is asked */
    end_on_s();
}

static void waits_for_event(void) {
    begin_on_s(is_wrong ? GLOBAL : RELAXED);
    answers(cuEventSynchronize(e)); /* wrong: an event is waited for */
    end_on_s();
}

static void pinned(void) {
    void *host;
    begin_on_s(GLOBAL);
    int before = is_wrong ? GLOBAL : exchange(RELAXED);
    answers(cuMemHostAlloc(&host, BYTES, 0)); /* wrong: pinned */
    if (!is_wrong) {
        exchange(before);
        launch((CUdeviceptr)host, s);
    }
    end_on_s();
}

static void unpinned(void) {
    void *host;
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    begin_on_s(is_wrong ? GLOBAL : RELAXED);
    answers(cuMemFreeHost(host)); /* wrong: unpinned */
    end_on_s();
    if (is_wrong)
        MUST(cuMemFreeHost(host));
}

static void device_memory(void) {
    CUdeviceptr b, c;
    MUST(cuMemAlloc(&b, BYTES));
    begin_on_s(GLOBAL);
    int before = is_wrong ? GLOBAL : exchange(RELAXED);
    answers(cuMemAlloc(&c, BYTES)); /* wrong: device memory */
    if (!is_wrong)
        exchange(before);
    end_on_s();
    MUST(cuMemFree(b));
}

static void device_memory_freed(void) {
    CUdeviceptr b;
    MUST(cuMemAlloc(&b, BYTES));
    begin_on_s(is_wrong ? GLOBAL : RELAXED);
    answers(cuMemFree(b)); /* wrong: device memory is freed */
    end_on_s();
    if (is_wrong)
        MUST(cuMemFree(b));
}

static void pool_made(void) {
    const CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
    CUmemoryPool pool;
    if (!is_wrong)
        MUST(cuMemPoolCreate(&pool, &props));
    begin_on_s(GLOBAL);
    if (is_wrong)
        answers(cuMemPoolCreate(&pool, &props)); /* wrong: a pool */
    end_on_s();
}

static void instantiated(void) {
    CUgraphExec exec;
    begin_on_s(GLOBAL);
    if (is_wrong)
        answers(cuGraphInstantiateWithFlags(&exec, other, 0)); /* wrong: an instance */
    end_on_s();
    MUST(cuGraphInstantiateWithFlags(&exec, other, 0));
}

/* Nothing may wait for a captured stream, in any mode. */
static void captured(void) {
    begin_on_s(RELAXED);
    if (is_wrong)
        answers(cuStreamSynchronize(s)); /* wrong: the stream itself */
    end_on_s();
}

/* Only the first call that a capture refuses has invalidated it. */
static void first_only(void) {
    void *host;
    begin_on_s(GLOBAL);
    if (is_wrong) {
        answers(cuStreamQuery(t)); /* wrong: the first */
        answers(cuStreamQuery(t));
        answers(cuMemHostAlloc(&host, BYTES, 0));
    }
    end_on_s();
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"watched", watched}, {"watched-relaxed", watched_relaxed}, {"waits", waits}, {"queries", queries},
               {"waits-for-event", waits_for_event}, {"pinned", pinned}, {"unpinned", unpinned},
               {"device-memory", device_memory}, {"device-memory-freed", device_memory_freed},
               {"pool-made", pool_made}, {"instantiated", instantiated}, {"captured", captured},
               {"first-only", first_only}, {"waited-before", waited_before}};
    is_wrong = count > 2 && strcmp(names[2], "wrong") == 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (count > 1 && strcmp(names[1], all[i].name) == 0) {
            begin();
            all[i].run();
            printf("done\n");
            return 0;
        }
    }
    return 7;
}
