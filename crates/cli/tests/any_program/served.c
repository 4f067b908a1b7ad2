/* Programs of stream-ordered memory, one for each name. They print the answers of calls, without addresses. */
#define _GNU_SOURCE
#include "cuda.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define SAY(call) printf("%s: %d\n", #call, (call))

static CUcontext context;
static CUstream s, t;
static CUevent e;
static CUmemoryPool first;

static void begin(void) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&s, 1));
    MUST(cuStreamCreate(&t, 1));
    MUST(cuEventCreate(&e, 2));
    MUST(cuDeviceGetDefaultMemPool(&first, 0));
}

static CUdeviceptr alloc(size_t bytes, CUstream stream) {
    CUdeviceptr at = 0;
    MUST(cuMemAllocAsync(&at, bytes, stream));
    return at;
}

static unsigned long long figure(CUmemoryPool pool, int which) {
    unsigned long long value = 0;
    MUST(cuMemPoolGetAttribute(pool, which, &value));
    return value / KIB;
}

static void say(CUmemoryPool pool, const char *when) {
    printf("%s: %llu KiB reserved, %llu KiB used\n", when, figure(pool, 5), figure(pool, 7));
}

static void pools(void) {
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
    CUmemoryPool pool, now, shared;
    CUdeviceptr at;
    unsigned long long threshold = 8 * MIB;
    int flag = -1;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemPoolGetAttribute(pool, 1, &flag));
    printf("follows events: %d\n", flag);
    flag = 0;
    MUST(cuMemPoolSetAttribute(pool, 1, &flag));
    MUST(cuMemPoolSetAttribute(pool, 4, &threshold));
    threshold = 0;
    MUST(cuMemPoolGetAttribute(pool, 4, &threshold));
    printf("threshold: %llu MiB\n", threshold / MIB);
    MUST(cuMemAllocFromPoolAsync(&at, 4 * MIB, pool, s));
    say(pool, "allocated");
    MUST(cuMemFreeAsync(at, s));
    MUST(cuStreamSynchronize(s));
    say(pool, "kept");
    MUST(cuMemPoolTrimTo(pool, 0));
    say(pool, "trimmed");
    printf("high: %llu KiB reserved, %llu KiB used\n", figure(pool, 6), figure(pool, 8));
    unsigned long long none = 0;
    MUST(cuMemPoolSetAttribute(pool, 6, &none));
    MUST(cuMemPoolSetAttribute(pool, 8, &none));
    printf("high again: %llu KiB reserved, %llu KiB used\n", figure(pool, 6), figure(pool, 8));
    MUST(cuDeviceSetMemPool(0, pool));
    at = alloc(100 * KIB, s);
    say(pool, "current");
    MUST(cuMemPoolDestroy(pool));
    MUST(cuMemsetD8Async(at, 1, 100 * KIB, s));
    MUST(cuMemFreeAsync(at, s));
    MUST(cuDeviceGetMemPool(&now, 0));
    printf("the default one is current: %d\n", now == first);
    at = alloc(100 * KIB, s);
    say(first, "default");
    MUST(cuMemFreeAsync(at, s));
    MUST(cuCtxSynchronize());
    say(first, "synchronised");
    props.handleTypes = 1;
    MUST(cuMemPoolCreate(&shared, &props));
    MUST(cuMemAllocFromPoolAsync(&at, 100 * KIB, shared, s));
    say(shared, "shareable, of the driver");
    MUST(cuMemFreeAsync(at, s));
    SAY(cuMemPoolDestroy(shared));
    SAY(cuMemPoolDestroy(first));
    props.maxSize = 4 * MIB;
    props.handleTypes = 0;
    MUST(cuMemPoolCreate(&pool, &props));
    SAY(cuMemAllocFromPoolAsync(&at, 5 * MIB, pool, s));
    SAY(cuMemAllocFromPoolAsync(&at, 3 * MIB, pool, s));
    MUST(cuMemFreeAsync(at, s));
    SAY(cuMemPoolDestroy(pool));
}

static void decompression(void) {
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}, .usage = 2};
    CUmemoryPool pool;
    CUdeviceptr at;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&at, 100 * KIB, pool, s));
    say(pool, "for decompression");
    MUST(cuMemFreeAsync(at, s));
    MUST(cuMemPoolDestroy(pool));
}

static void pointers(void) {
    CUdeviceptr at = alloc(100 * KIB, s), start = 0;
    size_t bytes = 0;
    int ordinal = -1, type = -1;
    CUmemoryPool pool = NULL;
    unsigned long long handle;
    char name[64];
    SAY(cuMemGetAddressRange(&start, &bytes, at + 1000));
    printf("its start %d, %zu KiB\n", start == at, (size_t)(bytes / KIB));
    SAY(cuMemGetAddressRange(NULL, &bytes, at));
    int which[] = {2, 9, 11, 12, 17, 8};
    int managed = 0;
    void *places[] = {&type, &ordinal, &start, &bytes, &pool, &managed};
    start = bytes = 0;
    SAY(cuPointerGetAttributes(6, which, places, at + 99));
    printf("type %d, device %d, its start %d, %zu KiB, of the default pool %d\n", type, ordinal, start == at,
           (size_t)(bytes / KIB), pool == first);
    pool = NULL;
    SAY(cuPointerGetAttribute(&pool, 17, at));
    unsigned long long number = 0, other = 0;
    SAY(cuPointerGetAttribute(&number, 7, at));
    SAY(cuMemRetainAllocationHandle(&handle, (void *)at));
    SAY(cuIpcGetMemHandle(name, at));
    SAY(cuMemFreeAsync(at + 512, s));
    SAY(cuMemFree(at + 512));
    SAY(cuMemFree(at));
    SAY(cuMemFreeAsync(at, s));
    SAY(cuMemFree(at));
    CUdeviceptr again = alloc(100 * KIB, s);
    SAY(cuPointerGetAttribute(&other, 7, again));
    printf("of the default pool %d, another number %d\n", pool == first, number != other);
    MUST(cuMemFreeAsync(again, s));
    SAY(cuMemAllocAsync(&at, 0, s) != 0 || at == 0);
    SAY(cuMemAllocAsync(NULL, 10, s));
    SAY(cuMemAllocAsync(&at, 10, (CUstream)0x1234560));
    at = alloc(10, s);
    SAY(cuMemFreeAsync(at, (CUstream)0x1234560));
    SAY(cuMemFreeAsync(at, s));
}

static volatile int gate;
static void wait_for_gate(void *unused) {
    (void)unused;
    while (!gate)
        usleep(100);
}

/* Memory that is freed on a stream that is still busy serves no other stream before that has finished. */
static void apart(void) {
    static unsigned char bytes[2][64 * 1024];
    CUdeviceptr a = alloc(sizeof bytes[0], s), b;
    MUST(cuMemsetD8Async(a, 1, sizeof bytes[0], s));
    MUST(cuEventRecord(e, s));
    MUST(cuStreamWaitEvent(t, e, 0));
    MUST(cuLaunchHostFunc(t, wait_for_gate, NULL));
    MUST(cuMemcpyAsync((CUdeviceptr)bytes[0], a, sizeof bytes[0], t));
    MUST(cuMemFreeAsync(a, t)); /* after the copy */
    b = alloc(sizeof bytes[0], s);
    MUST(cuMemsetD8Async(b, 2, sizeof bytes[0], s));
    MUST(cuMemcpyAsync((CUdeviceptr)bytes[1], b, sizeof bytes[0], s));
    usleep(20000);
    gate = 1;
    MUST(cuMemFreeAsync(b, s));
    MUST(cuCtxSynchronize());
    int wrong = 0;
    for (size_t i = 0; i < sizeof bytes[0]; i++)
        wrong += bytes[0][i] != 1 || bytes[1][i] != 2;
    printf("wrong bytes: %d\n", wrong);
}

/* FAKECUDA_BYTES is 32 MiB. */
static void exhaust(void) {
    CUdeviceptr all[64], at;
    int count = 0, code;
    while (count < 64 && (code = cuMemAllocAsync(&all[count], 4 * MIB, s)) == 0)
        count++;
    printf("%d, then %d\n", count, code);
    while (count > 0)
        MUST(cuMemFreeAsync(all[--count], s));
    SAY(cuMemAllocAsync(&at, 24 * MIB, t));
    SAY(cuMemFreeAsync(at, t));
    unsigned long long threshold = ~0ull;
    MUST(cuMemPoolSetAttribute(first, 4, &threshold));
    MUST(cuCtxSynchronize());
    printf("kept: %d\n", figure(first, 5) >= 24 * KIB);
    SAY(cuMemAlloc(&at, 30 * MIB));
    printf("kept: %llu\n", figure(first, 5));
    SAY(cuMemAllocAsync(&at, 4 * MIB, s));
}

static void captured(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr before = alloc(4096, s), inside, beside;
    say(first, "before");
    MUST(cuStreamBeginCapture(s, 0));
    inside = alloc(4096, s);
    MUST(cuMemsetD8Async(inside, 1, 4096, s));
    MUST(cuMemFreeAsync(inside, s));
    beside = alloc(4096, t);
    say(first, "in a capture");
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, s));
    MUST(cuMemFreeAsync(before, s));
    MUST(cuMemFreeAsync(beside, t));
    MUST(cuCtxSynchronize());
    say(first, "after");
}

/* There is no memory for the allocations of a capture: the capture goes on. */
static void captured_exhaust(void) {
    CUgraph graph;
    CUdeviceptr at, kept = alloc(4 * MIB, s);
    MUST(cuMemsetD8Async(kept, 1, 4 * MIB, s));
    MUST(cuMemFreeAsync(kept, s)); /* idle, and not known to be */
    MUST(cuStreamBeginCapture(s, 0));
    SAY(cuMemAllocAsync(&at, 1ull << 40, s));
    SAY(cuStreamEndCapture(s, &graph));
}

/* A stream in a capture is destroyed before the end: the capture goes on, and memory is given back later. */
static void side_captured(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUstream side;
    CUdeviceptr before = alloc(4096, s), on_side;
    MUST(cuStreamCreate(&side, 1));
    on_side = alloc(4096, side);
    MUST(cuStreamBeginCapture(s, 0));
    MUST(cuEventRecord(e, s));
    MUST(cuStreamWaitEvent(side, e, 0));
    MUST(cuMemsetD8Async(before, 1, 4096, side));
    MUST(cuEventRecord(e, side));
    MUST(cuStreamWaitEvent(s, e, 0));
    SAY(cuStreamDestroy(side));
    MUST(cuMemsetD8Async(before, 2, 4096, s));
    SAY(cuStreamEndCapture(s, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, s));
    MUST(cuMemFreeAsync(before, s));
    MUST(cuMemFreeAsync(on_side, s));
    MUST(cuCtxSynchronize());
    say(first, "after");
}

static CUdeviceptr handed[64];
static void *freeing(void *unused) {
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 64; i++)
        MUST(cuMemFreeAsync(handed[i], i % 2 ? s : t));
    return unused;
}

static void other_thread(void) {
    pthread_t thread;
    for (int i = 0; i < 64; i++)
        handed[i] = alloc(4096 * (1 + i), s);
    MUST(cuStreamSynchronize(s));
    pthread_create(&thread, NULL, freeing, NULL);
    pthread_join(thread, NULL);
    MUST(cuCtxSynchronize());
    say(first, "freed by another thread");
}

static pthread_key_t key;
static void at_thread_end(void *unused) {
    CUdeviceptr at = alloc(4096, (CUstream)2);
    MUST(cuMemsetD8Async(at, 1, 4096, (CUstream)2));
    MUST(cuMemFreeAsync(at, (CUstream)2));
    (void)unused;
}

static void *ending(void *unused) {
    MUST(cuCtxSetCurrent(context));
    pthread_setspecific(key, &key);
    CUdeviceptr at = alloc(8192, (CUstream)2);
    MUST(cuMemFreeAsync(at, (CUstream)2));
    return unused;
}

static void at_exit(void) {
    CUdeviceptr at = alloc(4096, s);
    MUST(cuMemFreeAsync(at, s));
    say(first, "at exit");
}

static void ends(void) {
    pthread_t thread;
    atexit(at_exit);
    pthread_key_create(&key, at_thread_end);
    for (int i = 0; i < 20; i++) {
        pthread_create(&thread, NULL, ending, NULL);
        pthread_join(thread, NULL);
    }
    alloc(4096, s); /* lives at the end */
}

/* Streams of a context that is destroyed, and memory that outlives it. */
static void context_ends(void) {
    CUcontext other;
    CUstream own;
    for (int i = 0; i < 3; i++) {
        MUST(cuCtxCreate(&other, 0, 0));
        MUST(cuStreamCreate(&own, 1));
        CUdeviceptr at = alloc(4096, own), more = alloc(8192, own);
        MUST(cuMemsetD8Async(at, 1, 4096, own));
        MUST(cuMemFreeAsync(more, own));
        MUST(cuCtxDestroy(other));
        MUST(cuCtxSetCurrent(context));
        MUST(cuMemFreeAsync(at, s));
    }
    MUST(cuCtxSynchronize());
    say(first, "after the contexts");
}

/* Default streams of another context than the device's primary one: its memory is CUDA's, and a free there waits. */
static void other_default(void) {
    CUcontext other;
    CUdeviceptr ours = alloc(4096, s);
    MUST(cuStreamSynchronize(s));
    MUST(cuCtxCreate(&other, 0, 0));
    CUdeviceptr theirs = alloc(4096, 0);
    MUST(cuMemsetD8Async(ours, 7, 4096, 0));
    MUST(cuMemFreeAsync(ours, 0));
    MUST(cuMemFreeAsync(theirs, 0));
    MUST(cuCtxDestroy(other));
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
    say(first, "after the default streams");
}

/* A thread captures while another allocates and frees. The legacy stream is used only while nothing is captured. */
static pthread_mutex_t legacy = PTHREAD_MUTEX_INITIALIZER;
static volatile int captures_done;

static void *capture_often(void *unused) {
    CUstream blocking;
    CUdeviceptr at;
    CUgraph graph;
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&blocking, 0));
    MUST(cuMemAlloc(&at, 4096));
    for (int i = 0; i < 40000; i++) {
        pthread_mutex_lock(&legacy);
        MUST(cuStreamBeginCapture(blocking, 2));
        MUST(cuMemsetD8Async(at, 1, 4096, blocking));
        MUST(cuStreamEndCapture(blocking, &graph));
        MUST(cuGraphDestroy(graph));
        pthread_mutex_unlock(&legacy);
    }
    captures_done = 1;
    return 0;
}

static void captures_beside(void) {
    pthread_t other;
    pthread_create(&other, 0, capture_often, 0);
    while (!captures_done) {
        CUdeviceptr at = alloc(1 << 20, s);
        MUST(cuStreamSynchronize(s));
        pthread_mutex_lock(&legacy);
        MUST(cuMemFreeAsync(at, 0));
        pthread_mutex_unlock(&legacy);
        MUST(cuMemFreeAsync(alloc(1 << 20, s), s));
    }
    pthread_join(other, 0);
    MUST(cuCtxSynchronize());
    say(first, "after the captures");
}

/* A capture is abandoned with its stream. */
static void given_up(void) {
    CUstream own;
    MUST(cuStreamCreate(&own, 1));
    MUST(cuMemFreeAsync(alloc(1 << 20, own), own));
    MUST(cuStreamBeginCapture(own, 2));
    MUST(cuStreamDestroy(own));
    MUST(cuMemFreeAsync(alloc(1 << 20, s), s));
    MUST(cuCtxSynchronize());
    say(first, "after the capture");
}

/* Streams are opened and closed, with handles that may be used again. */
static void short_streams(void) {
    for (int i = 0; i < 300; i++) {
        CUstream own;
        MUST(cuStreamCreate(&own, i % 2));
        CUdeviceptr at = alloc(4096 * (1 + i % 9), own);
        MUST(cuMemsetD8Async(at, 1, 4096, own));
        if (i % 3)
            MUST(cuMemFreeAsync(at, own));
        MUST(cuStreamDestroy(own));
        if (i % 3 == 0)
            MUST(cuMemFreeAsync(at, t));
    }
    MUST(cuCtxSynchronize());
    say(first, "after the streams");
}

/* Another device uses a device's memory: by a grant, and freed on the other's stream. */
static void two_devices(void) {
    CUcontext other;
    CUstream far;
    CUmemAccessDesc access = {{1, 1}, 3};
    CUmemLocation where = {1, 1};
    int flags = 0;
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    CUdeviceptr at = alloc(4096, s);
    MUST(cuMemPoolSetAccess(first, &access, 1));
    MUST(cuMemPoolGetAccess(&flags, first, &where));
    printf("access: %d\n", flags);
    MUST(cuStreamSynchronize(s));
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamCreate(&far, 1));
    CUdeviceptr own = alloc(4096, far);
    MUST(cuMemFreeAsync(own, far));
    SAY(cuMemFreeAsync(at, far));
    MUST(cuMemAllocFromPoolAsync(&at, 4096, first, NULL)); /* of the driver */
    MUST(cuMemFreeAsync(at, NULL));
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
    say(first, "freed by the other device");
}

static void fork_after(void) {
    CUdeviceptr at = alloc(4096, s);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr own;
        int code = cuMemAllocAsync(&own, 4096, s), freed = cuMemFreeAsync(at, s);
        printf("the child: %d %d\n", code, freed);
        fflush(stdout);
        _exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    printf("it ended with %d\n", WEXITSTATUS(status));
    SAY(cuMemFreeAsync(at, s));
}

#ifdef BY_LOOKUP
static void closes(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr at = alloc(4096, s);
    dlclose(library);
    dlclose(library);
    dlclose(library);
    MUST(cuMemFreeAsync(at, s));
    say(first, "closed");
}
#else
static void closes(void) {}
#endif

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"pools", pools}, {"pointers", pointers}, {"decompression", decompression}, {"apart", apart}, {"exhaust", exhaust}, {"captured", captured}, {"captured-exhaust", captured_exhaust}, {"side-captured", side_captured},
               {"other-thread", other_thread}, {"ends", ends}, {"context-ends", context_ends},
               {"other-default", other_default}, {"captures-beside", captures_beside},
               {"given-up", given_up},
               {"short-streams", short_streams}, {"two-devices", two_devices}, {"fork-after", fork_after},
               {"closes", closes}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (count > 1 && strcmp(names[1], all[i].name) == 0) {
            load();
            begin();
            all[i].run();
            printf("done\n");
            return 0;
        }
    }
    return 7;
}
