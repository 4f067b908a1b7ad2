/* Programs under a limit of device memory, one for each name. They print what is left, in MiB. */
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define SAY(call) printf("%s: %d\n", #call, (call))

static CUcontext context;
static CUstream s;
static const char *self;

static void begin(void) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&s, 1));
}

static void left(const char *when) {
    size_t free = 0, total = 0;
    MUST(cuMemGetInfo(&free, &total));
    printf("%s: %.2f of %.2f\n", when, (double)free / MIB, (double)total / MIB);
    fflush(stdout);
}

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr at = 0;
    MUST(cuMemAlloc(&at, bytes)); /* made here */
    return at;
}

static CUmemAllocationProp on(int type, int id) {
    CUmemAllocationProp props = {.type = 1, .location = {type, id}};
    return props;
}

/* What a program asks is within the limit. Either place may be null. */
static void info(void) {
    size_t bytes = 0;
    left("at first");
    SAY(cuDeviceTotalMem(&bytes, 0));
    printf("%llu in all\n", bytes / MIB);
    SAY(cuMemGetInfo(NULL, &bytes));
    SAY(cuMemGetInfo(&bytes, NULL));
}

/* Each kind of memory counts from its call to the call that ends it. */
static void kinds(void) {
    CUdeviceptr at;
    size_t pitch;
    uintptr_t array;
    CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, 0x20, 2};
    CUDA_ARRAY3D_DESCRIPTOR deep = {256, 256, 16, 0x20, 2, 0};
    MUST(cuMemAlloc(&at, 8 * MIB));
    left("cuMemAlloc");
    MUST(cuMemFree(at));
    MUST(cuMemAllocPitch(&at, &pitch, 1000, 8192, 4));
    left("cuMemAllocPitch");
    MUST(cuMemFree(at));
    MUST(cuMemAllocManaged(&at, 8 * MIB, 1));
    left("cuMemAllocManaged");
    MUST(cuMemFree(at));
    MUST(cuArrayCreate(&array, &flat));
    left("cuArrayCreate");
    MUST(cuArrayDestroy(array));
    MUST(cuArray3DCreate(&array, &deep));
    left("cuArray3DCreate");
    MUST(cuArrayDestroy(array));
    MUST(cuMipmappedArrayCreate(&array, &deep, 2));
    left("cuMipmappedArrayCreate");
    MUST(cuMipmappedArrayDestroy(array));
    MUST(cuMemAllocAsync(&at, 8 * MIB, s));
    left("cuMemAllocAsync");
    MUST(cuMemFreeAsync(at, s));
    MUST(cuCtxSynchronize());
    left("at the end");
}

/* Physical memory lives until its handles are released and its mappings are unmapped. */
static void virtual_memory(void) {
    CUmemAllocationProp props = on(1, 0);
    unsigned long long handle, again;
    CUdeviceptr at;
    MUST(cuMemCreate(&handle, 8 * MIB, &props, 0));
    MUST(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    MUST(cuMemMap(at, 8 * MIB, 0, handle, 0));
    left("mapped");
    MUST(cuMemRelease(handle));
    left("released, and still mapped");
    MUST(cuMemUnmap(at, 8 * MIB));
    left("unmapped");
    MUST(cuMemCreate(&again, 8 * MIB, &props, 0));
    MUST(cuMemRelease(again));
    left("made and released");
}

/* Memory that is not a device's does not count, whatever number its place has; and a thread needs no context. */
static void *without_context(void *unused) {
    CUmemAllocationProp props = on(1, 0);
    unsigned long long handle = 0;
    SAY(cuMemCreate(&handle, 8 * MIB, &props, 0));
    return unused;
}

static void host_memory(void) {
    CUmemAllocationProp props = on(3, 0x7ffffff0);
    unsigned long long handle;
    pthread_t thread;
    SAY(cuMemCreate(&handle, 128 * MIB, &props, 0));
    left("of the host");
    SAY(cuMemRelease(handle));
    pthread_create(&thread, NULL, without_context, NULL);
    pthread_join(thread, NULL);
    left("without a context");
}

/* The limit is 64 MiB. */
static void refused(void) {
    CUdeviceptr first = alloc(48 * MIB) /* the first */, at = 7;
    size_t pitch;
    uintptr_t array;
    CUDA_ARRAY_DESCRIPTOR flat = {4096, 4096, 0x20, 1};
    CUmemAllocationProp props = on(1, 0);
    unsigned long long handle;
    SAY(cuMemAlloc(&at, 17 * MIB));
    SAY(cuMemAllocManaged(&at, 17 * MIB, 1));
    SAY(cuMemAllocPitch(&at, &pitch, 1 * MIB, 17, 4));
    SAY(cuMemCreate(&handle, 18 * MIB, &props, 0));
    SAY(cuArrayCreate(&array, &flat));
    SAY(cuMemAllocAsync(&at, 17 * MIB, s));
    SAY(cuMemAlloc(&at, 1ull << 60));
    printf("not written: %d\n", at == 7);
    left("after all that");
    SAY(cuMemAlloc(&at, 16 * MIB));
    SAY(cuMemAlloc(&at, 1));
    SAY(cuMemFree(first));
    SAY(cuMemAllocAsync(&at, 48 * MIB, s));
}

/* Memory of a pool counts, of whatever pool it is; its free is not refused. */
static void pools(void) {
    CUmemPoolProps props = {.allocType = 1, .handleTypes = 1, .location = {1, 0}};
    CUmemoryPool shared, own;
    CUdeviceptr a, b, c, at;
    MUST(cuMemPoolCreate(&shared, &props));
    props.handleTypes = 0;
    MUST(cuMemPoolCreate(&own, &props));
    MUST(cuMemAllocFromPoolAsync(&a, 8 * MIB, shared, s));
    left("from a pool with handles");
    MUST(cuMemAllocFromPoolAsync(&b, 8 * MIB, own, s));
    left("from a pool");
    MUST(cuMemAllocAsync(&c, 8 * MIB, s));
    left("from the current pool");
    SAY(cuMemAllocFromPoolAsync(&at, 48 * MIB, shared, s));
    SAY(cuMemAllocFromPoolAsync(&at, 48 * MIB, own, s));
    SAY(cuMemAllocAsync(&at, 48 * MIB, s));
    SAY(cuMemFreeAsync(a, s));
    SAY(cuMemFreeAsync(b, s));
    SAY(cuMemFree(c));
    SAY(cuCtxSynchronize());
    SAY(cuMemPoolTrimTo(shared, 0));
    SAY(cuMemPoolDestroy(shared));
    SAY(cuMemPoolDestroy(own));
    left("at the end");
}

/* What is idle in a pool is given back before an allocation is refused. */
static void idle(void) {
    CUdeviceptr at;
    CUmemoryPool first;
    unsigned long long threshold = ~0ull;
    MUST(cuDeviceGetDefaultMemPool(&first, 0));
    MUST(cuMemPoolSetAttribute(first, 4, &threshold));
    for (int i = 0; i < 3; i++) {
        MUST(cuMemAllocAsync(&at, 40 * MIB, s));
        MUST(cuMemFreeAsync(at, s));
        MUST(cuCtxSynchronize());
        left("kept");
        SAY(cuMemAlloc(&at, 60 * MIB));
        left("taken");
        MUST(cuMemFree(at));
    }
    left("at the end");
}

/* A pool serves from what is idle in it. */
static void reused(void) {
    CUdeviceptr at;
    SAY(cuMemAllocAsync(&at, 40 * MIB, s));
    SAY(cuMemFreeAsync(at, s));
    SAY(cuMemAllocAsync(&at, 40 * MIB, s));
    SAY(cuMemFreeAsync(at, s));
    left("idle");
    SAY(cuMemAlloc(&at, 60 * MIB));
    SAY(cuMemFree(at));
    alloc(1 * MIB);
    /* The pool would take 64 MiB for these. */
    SAY(cuMemAllocAsync(&at, 62 * MIB + 1, s));
    SAY(cuMemAllocAsync(&at, 62 * MIB, s));
    left("full");
}

/* Where others pass the limit, a pool still serves from what is idle in it. */
static void over(void) {
    CUdeviceptr at;
    MUST(cuMemAllocAsync(&at, 40 * MIB, s));
    MUST(cuMemFreeAsync(at, s));
    setenv("FAKENVML_CONTEXT_MIB", "30", 1);
    usleep(120000);
    left("over");
    SAY(cuMemAllocAsync(&at, 40 * MIB, s));
    SAY(cuMemAlloc(&at, 1));
}

/* What a process uses beyond its memory counts: its context, its kernels. */
static void rest(void) {
    CUdeviceptr at;
    CUmodule module;
    left("at first");
    SAY(cuMemAlloc(&at, 55 * MIB));
    SAY(cuMemAlloc(&at, 54 * MIB));
    left("full");
    if (fork() == 0) {
        begin();
        left("in the child");
        SAY(cuMemAlloc(&at, 1));
        exit(0);
    }
    wait(NULL);
    MUST(cuMemFree(at));
    left("freed");
    setenv("FAKENVML_CONTEXT_MIB", "12", 1);
    MUST(cuModuleLoadData(&module, "x"));
    left("loaded");
    setenv("FAKENVML_CONTEXT_MIB", "10", 1);
    MUST(cuModuleUnload(module));
    left("unloaded");
    setenv("FAKENVML_CONTEXT_MIB", "0", 1);
    MUST(cuDevicePrimaryCtxReset(0));
    MUST(cuCtxSetCurrent(context));
    left("reset");
}

/* The last free bytes serve a pool, too. */
static void narrow(void) {
    CUdeviceptr at;
    alloc(62 * MIB);
    for (int i = 0; i < 2; i++) {
        SAY(cuMemAllocAsync(&at, i == 0 ? 2 * MIB : 100 * KIB, s));
        MUST(cuMemFreeAsync(at, s));
    }
    SAY(cuMemAllocAsync(&at, 2 * MIB + 1, s));
}

/* Sizes that a loop takes and gives back do not drift, and calls that are refused count nothing. */
static void loop(void) {
    CUdeviceptr at[8] = {0}, none;
    unsigned seed = 7;
    int codes = 0;
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1664525 + 1013904223;
        int slot = seed >> 29, is_async = seed >> 8 & 1;
        if (at[slot] != 0)
            MUST(slot % 2 ? cuMemFreeAsync(at[slot], s) : cuMemFree(at[slot]));
        at[slot] = 0;
        size_t bytes = (seed >> 12 & 4095) * KIB + 1;
        MUST(slot % 2 && is_async ? cuMemAllocAsync(&at[slot], bytes, s) : cuMemAlloc(&at[slot], bytes));
        if (i % 16 == 0)
            codes |= cuMemAlloc(&none, 200 * MIB) ^ 2;
        if (i % 64 == 0) {
            size_t free, total;
            MUST(cuMemGetInfo(&free, &total));
            if (free > total || total != 64 * MIB)
                printf("absurd: %zu of %zu\n", free, total);
        }
    }
    for (int i = 0; i < 8; i++)
        if (at[i] != 0)
            MUST(cuMemFree(at[i]));
    MUST(cuCtxSynchronize());
    printf("other codes: %d\n", codes);
    left("at the end");
}

static void *taking(void *unused) {
    CUdeviceptr at[2];
    CUstream own;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, 1));
    for (int i = 0; i < 500; i++) {
        int first = cuMemAlloc(&at[0], (1 + i % 7) * 3 * MIB), second = cuMemAllocAsync(&at[1], (1 + i % 5) * MIB, own);
        if ((first | second) & ~2)
            printf("other codes: %d %d\n", first, second);
        if (first == 0)
            MUST(cuMemFree(at[0]));
        if (second == 0)
            MUST(cuMemFreeAsync(at[1], own));
    }
    MUST(cuStreamDestroy(own));
    return unused;
}

/* Threads that reach the limit together. */
static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, taking, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    MUST(cuCtxSynchronize());
    left("after the threads");
}

/* Calls fail in the driver. Then memory is freed that is freed already, or nobody's. */
static void failed(void) {
    CUdeviceptr at, one = alloc(8 * MIB);
    CUmemAllocationProp props = on(1, 0);
    unsigned long long handle;
    SAY(cuMemAlloc(&at, 8 * MIB));
    SAY(cuMemCreate(&handle, 8 * MIB, &props, 0));
    SAY(cuMemAllocAsync(&at, 8 * MIB, s));
    left("after failures");
    SAY(cuMemFree(one));
    left("after a free that failed");
    SAY(cuMemFree(one));
    for (int i = 0; i < 100; i++)
        if (cuMemFree(one) == 0 || cuMemFreeAsync(one + 512, s) == 0 || cuMemRelease(12345) == 0)
            printf("freed again\n");
    left("after all frees");
}

/* Memory of one device that is freed while the other one is current. */
static void other_device(void) {
    CUcontext far;
    CUstream t;
    CUdeviceptr a, b;
    MUST(cuDevicePrimaryCtxRetain(&far, 1));
    MUST(cuCtxSetCurrent(far));
    MUST(cuStreamCreate(&t, 1));
    a = alloc(8 * MIB);
    MUST(cuMemAllocAsync(&b, 8 * MIB, t));
    left("device 1");
    MUST(cuCtxSetCurrent(context));
    left("device 0");
    MUST(cuMemFree(a));
    MUST(cuMemFreeAsync(b, t));
    left("device 0, after the frees");
    MUST(cuCtxSetCurrent(far));
    MUST(cuCtxSynchronize());
    left("device 1, after the frees");
    CUmemPoolProps props = {.allocType = 1, .handleTypes = 1, .location = {1, 1}};
    CUmemoryPool pool;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&a, 8 * MIB, pool, s));
    left("device 0, with memory of device 1's pool");
    MUST(cuCtxSetCurrent(far));
    left("device 1");
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuCtxSetCurrent(far));
    MUST(cuMemPoolDestroy(pool));
    SAY(cuMemAlloc(&a, 40 * MIB));
    MUST(cuCtxSetCurrent(context));
    SAY(cuMemAlloc(&a, 40 * MIB));
}

/* A context ends, and so does a device's primary one, with what was made in it. */
static void contexts(void) {
    CUcontext other;
    MUST(cuCtxCreate(&other, 0, 0));
    alloc(8 * MIB);
    left("in a context");
    MUST(cuCtxDestroy(other));
    MUST(cuCtxSetCurrent(context));
    left("after it");
    alloc(8 * MIB);
    MUST(cuDevicePrimaryCtxReset(0));
    left("after a reset");
    alloc(8 * MIB);
    MUST(cuDevicePrimaryCtxRelease(0));
    begin();
    left("after the last holder");
}

/* Graphs have memory, too. */
static void graphs(void) {
    /* Pinned memory of device 0. */
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.pool = {1, 1}, .bytesize = 7 * MIB}, many = params;
    CUgraph graph, captured;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr at;
    many.bytesize = 80 * MIB;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    left("a node");
    SAY(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &many));
    MUST(cuStreamBeginCapture(s, 0));
    MUST(cuMemAllocAsync(&at, 7 * MIB, s));
    SAY(cuMemAllocAsync(&at, 80 * MIB, s));
    MUST(cuStreamEndCapture(s, &captured));
    left("a captured node");
    MUST(cuGraphInstantiateWithFlags(&exec, captured, 0));
    MUST(cuGraphLaunch(exec, s));
    MUST(cuCtxSynchronize());
    left("launched");
}

static volatile int captures_done;

static void *capturing(void *at) {
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 20000; i++) {
        CUgraph graph;
        MUST(cuStreamBeginCapture(s, 0));
        MUST(cuMemsetD8Async((CUdeviceptr)at, 1, 4096, s));
        MUST(cuStreamEndCapture(s, &graph));
        MUST(cuGraphDestroy(graph));
    }
    captures_done = 1;
    return NULL;
}

/* Pools and graphs are measured beside captures, which stay valid. */
static void beside(void) {
    CUmemPoolProps props = {.allocType = 1, .handleTypes = 1, .location = {1, 0}};
    CUmemoryPool shared;
    CUstream t;
    CUgraph graph;
    CUdeviceptr at, kept;
    size_t free, total;
    pthread_t other;
    MUST(cuStreamCreate(&t, 1));
    MUST(cuMemPoolCreate(&shared, &props));
    MUST(cuMemAllocFromPoolAsync(&kept, 4096, shared, s));
    MUST(cuStreamBeginCapture(s, 0));
    MUST(cuMemAllocAsync(&at, 4096, s));
    MUST(cuStreamEndCapture(s, &graph));
    pthread_create(&other, NULL, capturing, (void *)kept);
    while (!captures_done) {
        MUST(cuMemAllocFromPoolAsync(&at, 4096, shared, t));
        MUST(cuMemFreeAsync(at, t));
        MUST(cuMemGetInfo(&free, &total));
    }
    pthread_join(other, NULL);
    left("at the end");
}

/* What a pool takes beyond the limit is given back beside captures, which stay valid. */
static void beyond(void) {
    CUstream t;
    CUdeviceptr at, kept;
    pthread_t other;
    int codes = 0;
    MUST(cuStreamCreate(&t, 1));
    MUST(cuMemAllocAsync(&kept, 4096, s));
    /* The pool has 2 MiB. For more it takes 2 MiB again. */
    alloc(61 * MIB);
    pthread_create(&other, NULL, capturing, (void *)kept);
    while (!captures_done)
        if (cuMemAllocAsync(&at, 2 * MIB - 4096 + 1, t) == 0)
            MUST(cuMemFreeAsync(at, t));
        else
            codes++;
    pthread_join(other, NULL);
    printf("some were refused: %d\n", codes > 0);
}

/* During a capture, what other streams free counts no longer. It ends with its stream's context, too. */
static void long_capture(void) {
    CUcontext own;
    CUstream t;
    CUdeviceptr at;
    int codes = 0;
    MUST(cuStreamCreate(&t, 1));
    MUST(cuCtxCreate(&own, 0, 0));
    MUST(cuStreamCreate(&s, 1));
    MUST(cuStreamBeginCapture(s, 2));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++) {
        codes += cuMemAllocAsync(&at, 10 * MIB, t);
        MUST(cuMemFreeAsync(at, t));
    }
    MUST(cuCtxDestroy(own));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++) {
        codes += cuMemAllocAsync(&at, 10 * MIB, t);
        MUST(cuMemFreeAsync(at, t));
    }
    printf("other codes: %d\n", codes);
}

/* Nodes of a capture count beside contexts, however long the capture takes. */
static void slow_capture(void) {
    CUdeviceptr at;
    CUgraph graph;
    MUST(cuStreamBeginCapture(s, 2));
    for (int i = 0; i < 4; i++) {
        SAY(cuMemAllocAsync(&at, 10 * MIB, s));
        usleep(120000);
    }
    MUST(cuStreamEndCapture(s, &graph));
}

/* A process that was forked without the C library's knowledge has its own memory, which ends with it. */
static void forked_by_the_system(void) {
    CUdeviceptr at;
    MUST(cuMemGetInfo(&(size_t){0}, &(size_t){0}));
    fflush(stdout);
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
        begin();
        SAY(cuMemAlloc(&at, 40 * MIB));
        left("in the child");
        kill(getpid(), SIGKILL);
    }
    wait(NULL);
    clearenv();
    left("in the parent");
}

static void modules(void) {
    CUmodule module, other;
    MUST(cuModuleLoadData(&module, ""));
    left("loaded");
    MUST(cuModuleLoadData(&other, ""));
    left("another");
    MUST(cuModuleUnload(module));
    left("unloaded");
}

static void start(int ends[2]) {
    if (pipe(ends) != 0)
        exit(7);
}

static void tell(int ends[2]) {
    if (write(ends[1], "x", 1) != 1)
        exit(7);
}

static void wait_for(int ends[2]) {
    char byte;
    if (read(ends[0], &byte, 1) != 1)
        exit(7);
}

/* Processes that share the limit. None of them has made a call before the fork. */
static void children(void) {
    int ready[2], go[2];
    CUdeviceptr at;
    start(ready);
    start(go);
    pid_t child = fork();
    if (child == 0) {
        begin();
        alloc(40 * MIB);
        MUST(cuMemAllocAsync(&at, 8 * MIB, s));
        left("in the child");
        tell(ready);
        wait_for(go);
        exit(0);
    }
    wait_for(ready);
    begin();
    left("in the parent");
    SAY(cuMemAlloc(&at, 24 * MIB));
    SAY(cuMemAlloc(&at, 16 * MIB));
    kill(child, SIGKILL);
    while (waitid(P_PID, child, &(siginfo_t){0}, WEXITED | WNOWAIT) != 0)
        ;
    SAY(cuMemAlloc(&at, 24 * MIB)); /* the child is dead, and is not waited for */
    left("after the kill");
    waitpid(child, NULL, 0);
    left("after the wait");
}

/* A process that forks after its first call: what the child has is its own. */
static void forks(void) {
    CUdeviceptr at = alloc(16 * MIB);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        left("in the child");
        SAY(cuMemAlloc(&at, 56 * MIB));
        SAY(cuMemAlloc(&at, 40 * MIB));
        left("in the child");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    left("in the parent");
    MUST(cuMemFree(at));
    left("in the parent");
}

/* A program that takes this one's place has none of its memory. */
static void replaced(void) {
    alloc(40 * MIB);
    left("before");
    execl(self, self, "info", NULL);
    exit(6);
}

/* Rows begin at multiples of 512 bytes. */
static void rows(void) {
    CUdeviceptr at;
    size_t pitch;
    SAY(cuMemAllocPitch(&at, &pitch, 1, 64 * 2048 + 1, 4));
    SAY(cuMemAllocPitch(&at, &pitch, 1, 64 * 2048, 4));
    left("full");
    MUST(cuMemFree(at));
    left("at the end");
}

/* What graphs keep is given back before an allocation is refused. */
static void idle_graphs(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at;
    MUST(cuStreamBeginCapture(s, 0));
    MUST(cuMemAllocAsync(&at, 39 * MIB, s));
    MUST(cuMemFreeAsync(at, s));
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, s));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    left("kept");
    SAY(cuMemAlloc(&at, 60 * MIB));
    left("taken");
}

/* A program without CUDA that takes this one's place has none of its memory, unless it does not take its place. */
static void replaced_by_another(void) {
    int done[2];
    pid_t child;
    start(done);
    if ((child = fork()) == 0) {
        begin();
        alloc(40 * MIB);
        execl("/nowhere", "/nowhere", NULL);
        left("still there");
        tell(done);
        execl("/bin/sleep", "sleep", "60", NULL);
        exit(6);
    }
    wait_for(done);
    usleep(300000);
    begin();
    left("beside it");
    kill(child, SIGKILL);
    wait(NULL);
}

static int ending_ends[2];

static void end_slowly(void) {
    tell(ending_ends);
    usleep(500000);
}

/* What a process has counts until it has ended: CUDA frees it last. */
static void ending(void) {
    start(ending_ends);
    if (fork() == 0) {
        atexit(end_slowly);
        begin();
        alloc(40 * MIB);
        exit(0);
    }
    wait_for(ending_ends);
    begin();
    left("while it ends");
    wait(NULL);
    left("after its end");
}

/* A process that does not see the accounting file any more shares the limit all the same. */
static void confined(void) {
    int begun[2];
    start(begun);
    if (fork() == 0) {
        wait_for(begun);
        MUST(unlink(getenv("MILLPOND_INTERPOSE_ACCOUNT")));
        for (int i = 3; i < 1024; i++)
            close(i);
        begin();
        SAY(cuMemAlloc(&(CUdeviceptr){0}, 25 * MIB));
        SAY(cuMemAlloc(&(CUdeviceptr){0}, 24 * MIB));
        exit(0);
    }
    begin();
    alloc(40 * MIB);
    tell(begun);
    wait(NULL);
}

enum { CROWD = 70, HELD = 20 };

/* Many processes at once: what they get together is never more than the limit. */
static void crowd(void) {
    int *holders = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < CROWD; i++)
        if (fork() == 0) {
            begin();
            for (int j = 0; j < 20; j++) {
                CUdeviceptr at = 0;
                if (cuMemAlloc(&at, HELD * MIB) != 0)
                    continue;
                if (__atomic_add_fetch(holders, 1, __ATOMIC_SEQ_CST) > 3)
                    kill(getpid(), SIGABRT);
                usleep(100);
                __atomic_sub_fetch(holders, 1, __ATOMIC_SEQ_CST);
                MUST(cuMemFree(at));
            }
            /* Some end without a word. */
            CUdeviceptr at;
            if (i % 7 == 0 && cuMemAlloc(&at, HELD * MIB) == 0)
                kill(getpid(), SIGKILL);
            exit(0);
        }
    int status, aborted = 0;
    while (wait(&status) > 0)
        aborted += WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
    printf("processes that passed the limit: %d\n", aborted);
    begin();
    left("after their ends");
}

static void *first_call(void *unused) {
    cuMemGetInfo(&(size_t){0}, &(size_t){0});
    return unused;
}

/* A process that is forked while another thread makes the first call can make calls. */
static void forked_early(void) {
    pthread_t thread;
    alarm(60);
    for (int round = 0; round < 20; round++) {
        if (fork() != 0)
            continue;
        pthread_create(&thread, NULL, first_call, NULL);
        for (int i = 0; i < 30; i++)
            if (fork() == 0) {
                size_t bytes;
                alarm(20);
                begin();
                MUST(cuMemGetInfo(&bytes, &bytes));
                _exit(0);
            }
        int status, failed = 0;
        while (wait(&status) > 0)
            failed += status != 0;
        exit(failed > 0);
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed += status != 0;
    printf("rounds that failed: %d\n", failed);
}

/* Memory that another process opens counts once. */
static void ipc(void) {
    int name[2], done[2];
    CUipcMemHandle handle;
    CUdeviceptr at;
    start(name);
    start(done);
    if (fork() == 0) {
        begin();
        if (read(name[0], &handle, sizeof handle) != sizeof handle)
            exit(7);
        MUST(cuIpcOpenMemHandle(&at, handle, 1));
        left("opened");
        MUST(cuIpcCloseMemHandle(at));
        left("closed");
        exit(0);
    }
    begin();
    at = alloc(24 * MIB);
    MUST(cuIpcGetMemHandle(&handle, at));
    if (write(name[1], &handle, sizeof handle) != sizeof handle)
        exit(7);
    wait(NULL);
    left("at the end");
}

/* The other process has another device with the same number. */
static void renumbered(void) {
    fflush(stdout);
    if (fork() == 0) {
        setenv("FAKECUDA_FIRST_DEVICE", "1", 1);
        execl(self, self, "full", NULL);
        exit(6);
    }
    wait(NULL);
    begin();
    alloc(60 * MIB);
    if (fork() == 0) {
        setenv("FAKECUDA_FIRST_DEVICE", "1", 1);
        execl(self, self, "full", NULL);
        exit(6);
    }
    wait(NULL);
    left("at the end");
}

/* NVML answers within the limit, also for a process that uses no CUDA. */
static void nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *devices[2];
    int (*handle)(unsigned, void **) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*ask)(void *, unsigned long long *) = dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*ask_2)(void *, unsigned long long *) = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    unsigned long long memory[3], memory_2[5] = {0x2000028};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            MUST(handle(i, &devices[i]));
            MUST(ask(devices[i], memory));
            printf("device %d: %llu of %llu free, %llu used\n", i, memory[1] / MIB, memory[0] / MIB, memory[2] / MIB);
        }
        MUST(ask_2(devices[0], memory_2));
        printf("device 0: %llu of %llu free, %llu used, version %llx\n", memory_2[3] / MIB, memory_2[1] / MIB,
               memory_2[4] / MIB, memory_2[0] & 0xffffffff);
        if (round == 0) {
            begin();
            alloc(24 * MIB);
        }
    }
    SAY(ask(NULL, memory));
}

static void full(void) {
    alloc(60 * MIB);
    left("full");
}

static const struct {
    const char *name;
    void (*run)(void);
    int begins_itself;
} programs[] = {
    {"info", info},           {"kinds", kinds},       {"virtual", virtual_memory}, {"host", host_memory},
    {"refused", refused},     {"pools", pools},       {"idle", idle},             {"narrow", narrow},              {"loop", loop},
    {"failed", failed},       {"devices", other_device}, {"contexts", contexts},   {"graphs", graphs},
    {"modules", modules},     {"children", children, 1}, {"forks", forks},         {"replaced", replaced},
    {"crowd", crowd, 1},      {"ipc", ipc, 1},        {"renumbered", renumbered, 1}, {"full", full},
    {"nvml", nvml, 1},
    {"threads", threads},     {"rows", rows},         {"idle-graphs", idle_graphs}, {"confined", confined, 1},
    {"reused", reused},       {"rest", rest},         {"beyond", beyond}, {"ending", ending, 1}, {"over", over},       {"long-capture", long_capture},
    {"slow-capture", slow_capture}, {"forked-by-the-system", forked_by_the_system},
    {"beside", beside},       {"replaced-by-another", replaced_by_another, 1}, {"forked-early", forked_early, 1},
};

int main(int count, char **words) {
    load();
    self = words[0];
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (count > 1 && strcmp(words[1], programs[i].name) == 0) {
            if (!programs[i].begins_itself)
                begin();
            programs[i].run();
            printf("done\n");
            return 0;
        }
    return 5;
}
