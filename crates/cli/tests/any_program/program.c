/* Programs of the driver API, one for each name: wrong ones, and right ones. */
#define _GNU_SOURCE
#include "helpers.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int gate;

static void use_unordered(void) {
    CUdeviceptr a = alloc(s);
    launch(a, t); /* wrong 1 */
    MUST(cuCtxSynchronize());
    MUST(cuMemFreeAsync(a, s));
}

static void freed_while_used(void) {
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    launch(a, t);
    MUST(cuMemFreeAsync(a, s)); /* wrong 2 */
}

/* What nvcc makes of a kernel and its launch `kernel<<<1, 1, 0, stream>>>(at)`: functions between it and the runtime. */
#define KERNEL(how, helper, stub, kernel)                                                                             \
    how static void helper(CUdeviceptr at, CUstream stream) {                                                         \
        int count = BYTES;                                                                                            \
        void *params[] = {&at, &count};                                                                               \
        MUST(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));                                       \
    }                                                                                                                 \
    how static void stub(CUdeviceptr at, CUstream stream) {                                                           \
        helper(at, stream);                                                                                           \
        __asm__ volatile("");                                                                                         \
    }                                                                                                                 \
    how void kernel(CUdeviceptr at, CUstream stream) {                                                                \
        stub(at, stream);                                                                                             \
        __asm__ volatile("");                                                                                         \
    }
KERNEL(__attribute__((noinline)), _ZL25__cudaLaunchKernel_helperm, _ZL23__device_stub__Z5touchmm, _Z5touchm)
KERNEL(__attribute__((always_inline)) inline, _ZL25__cudaLaunchKernel_helperi, _ZL23__device_stub__Z5touchii, _Z5touchi)
void _Z5touchi(CUdeviceptr at, CUstream stream);

static void launched_by_syntax(void) {
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    _Z5touchm(a, t); /* a launch by syntax */
    MUST(cuMemFreeAsync(a, s));
}

static void launched_inline(void) {
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    _Z5touchi(a, t); /* an inlined launch */
    MUST(cuMemFreeAsync(a, s));
}

static void freed_elsewhere(void) {
    CUdeviceptr a = alloc(s);
    launch(a, s);
    MUST(cuMemFreeAsync(a, t)); /* wrong 3 */
}

static void graph_free_not_after(void) {
    CUgraph graph;
    CUdeviceptr a;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &a);
    kernel_node(graph, &born, 1, a);
    MUST(cuGraphAddMemFreeNode(&node, graph, &born, 1, a)); /* wrong 4 */
    run_graph(graph, 1, 0);
}

static void graph_use_not_after(void) {
    CUgraph graph;
    CUdeviceptr a;
    MUST(cuGraphCreate(&graph, 0));
    alloc_node(graph, &a);
    kernel_node(graph, NULL, 0, a); /* wrong 5 */
    run_graph(graph, 1, 0);
}

static void graph_output_elsewhere(void) {
    CUgraph graph;
    CUdeviceptr a;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &a);
    kernel_node(graph, &born, 1, a);
    run_graph(graph, 1, 0);
    launch(a, t);
    MUST(cuMemFreeAsync(a, t)); /* wrong 6 */
}

static void graph_auto_free(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr a;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &a);
    kernel_node(graph, &born, 1, a);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 1));
    MUST(cuGraphLaunch(exec, s));
    hand_over(s, t);
    launch(a, t);
    MUST(cuGraphLaunch(exec, s)); /* wrong 7 */
}

static void many(void) {
    for (int i = 0; i < 1000; i++) {
        CUdeviceptr a = alloc(s);
        MUST(cuMemFreeAsync(a, t)); /* wrong each time */
        MUST(cuCtxSynchronize());
    }
}

static void use_after_free(void) {
    CUdeviceptr a = alloc(s);
    MUST(cuMemFreeAsync(a, s));
    launch(a, s); /* wrong 8 */
}

/* A structure of which this launch fills the first part. The rest has bytes of another launch. */
static void in_part(size_t filled) {
    CUfunction table;
    CUmodule module;
    CUdeviceptr words[16] = {0}, a = alloc(s);
    void *params[] = {words};
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&table, module, filled == 16 ? "long_kernel" : "short_kernel"));
    words[1] = a;
    MUST(cuMemFreeAsync(a, s));
    MUST(cuLaunchKernel(table, 1, 1, 1, 1, 1, 1, 0, s, params, NULL)); /* a structure */
}

static void filled_in_part(void) { in_part(16); }
static void filled(void) { in_part(2); }

static void right(void) {
    char *host, plain[BYTES];
    CUdeviceptr a = alloc(s), b;
    MUST(cuMemsetD8Async(a, 7, BYTES, s));
    hand_over(s, t);
    launch(a, t);
    hand_over(t, s);
    MUST(cuMemHostAlloc((void **)&host, BYTES, 0));
    MUST(cuMemcpyAsync((CUdeviceptr)host, a, BYTES, s));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamSynchronize(s));
    MUST(cuMemAlloc(&b, BYTES));
    MUST(cuMemcpyAsync(b, (CUdeviceptr)host, BYTES, t));
    launch(b, t);
    MUST(cuMemFree(b)); /* it waits */
    MUST(cuMemAlloc(&b, BYTES));
    MUST(cuMemcpyDtoH(plain, b, BYTES));
    MUST(cuMemFree(b));
    int is_right = host[0] == 7 && host[BYTES - 1] == 7;
    MUST(cuMemFreeHost(host));
    MUST(cuStreamDestroy(t));
    printf("right: %d\n", is_right);
}

static void right_graph(void) {
    CUgraph graph;
    CUdeviceptr a;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &a);
    CUgraphNode used = kernel_node(graph, &born, 1, a);
    MUST(cuGraphAddMemFreeNode(&node, graph, &used, 1, a));
    run_graph(graph, 3, 0);
    MUST(cuCtxSynchronize());
}

static void right_capture(void) {
    CUgraph graph;
    CUdeviceptr a, b = alloc(s);
    MUST(cuStreamBeginCapture(s, 0));
    a = alloc(s);
    launch(a, s);
    launch(b, s);
    /* Calls that the driver allows during a capture are no mistake. */
    int mode = 2;
    CUdeviceptr c;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuMemAlloc(&c, BYTES));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuMemFree(c));
    run_graph(graph, 3, 0);
    MUST(cuMemFreeAsync(b, s));
    MUST(cuStreamSynchronize(s));
}

/* A thread that polls an event of its own, as watchdogs do. */
static void *poll_event(void *mode) {
    CUcontext context;
    int relaxed = 2;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    if (mode != NULL)
        MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
    cuEventQuery(e); /* polled beside a capture */
    return NULL;
}

static void polled(int capture_mode, void *relaxed) {
    CUgraph graph;
    CUdeviceptr a = alloc(s);
    pthread_t thread;
    MUST(cuEventRecord(e, t));
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture(s, capture_mode));
    launch(a, s);
    pthread_create(&thread, NULL, poll_event, relaxed);
    pthread_join(thread, NULL);
    cuStreamEndCapture(s, &graph);
    MUST(cuMemFreeAsync(a, s));
}

static void watchdog(void) { polled(0, NULL); }
static void relaxed_watchdog(void) { polled(0, (void *)&gate); }
static void watchdog_elsewhere(void) { polled(1, NULL); }

static void wrong_capture(void) {
    CUgraph graph;
    CUdeviceptr b = alloc(t);
    MUST(cuStreamBeginCapture(s, 0));
    launch(b, s);
    MUST(cuStreamEndCapture(s, &graph));
    run_graph(graph, 1, 0); /* wrong capture */
}

static void copies(void) {
    CUdeviceptr a = alloc(s), b = alloc(s);
    hand_over(s, t);
    MUST(cuMemcpyAsync(b, a, BYTES, t));
    MUST(cuMemFreeAsync(b, s)); /* wrong copy */
}

static void race(void) {
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    launch(a, s);
    launch(a, t);
    MUST(cuCtxSynchronize());
    MUST(cuMemFreeAsync(a, s));
}

static void unknown(void) {
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    for (int i = 0; i < 3; i++)
        MUST(cuCtxRecordEvent(context, e));
}

static void double_free(void) {
    CUdeviceptr a = alloc(s), b;
    MUST(cuMemFreeAsync(a, s)); /* first */
    printf("second free: %d\n", cuMemFreeAsync(a, s)); /* second */
    MUST(cuMemAlloc(&b, BYTES));
    printf("inside: %d\n", cuMemFree(b + 16)); /* inside */
    MUST(cuMemFree(b));
}

static void default_streams(void) {
    CUdeviceptr a;
    MUST(cuMemAllocAsync_ptsz(&a, BYTES, 0));
    MUST(cuMemsetD8Async_ptsz(a, 1, BYTES, 0));
    launch(a, 0); /* right: the legacy stream comes after the thread's own */
    MUST(cuMemFreeAsync_ptsz(a, 0));
    MUST(cuMemAllocAsync_ptsz(&a, BYTES, 0));
    MUST(cuMemFreeAsync(a, s)); /* wrong default */
}

static void on_a_device(CUstream stream) {
    CUdeviceptr a = alloc(stream), b;
    MUST(cuMemAlloc(&b, BYTES));
    MUST(cuMemFreeAsync(a, stream));
    MUST(cuMemFree(b));
}

static void two_devices(void) {
    CUcontext other;
    CUstream stream;
    on_a_device(s);
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamCreate(&stream, 1));
    on_a_device(stream);
}

static void *worker(void *given) {
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < (given == NULL ? 1 : 200); i++) {
        CUstream own;
        MUST(cuStreamCreate(&own, 1));
        CUdeviceptr a = alloc(own);
        MUST(cuMemsetD8Async(a, 7, BYTES, own));
        launch(a, own);
        MUST(cuMemFreeAsync(a, own));
        MUST(cuStreamSynchronize(own));
        MUST(cuStreamDestroy(own));
    }
    return NULL;
}

/* Memory passes from thread to thread at the same addresses. */
static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, worker, "many");
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
}

/* A synchronisation on one thread, a free on another, after a join. */
static void joined(void) {
    CUdeviceptr a = alloc(s);
    launch(a, s);
    MUST(cuStreamSynchronize(s));
    MUST(cuMemFreeAsync(a, t));
}

/* Pinned memory is given back. The addresses are used again without a call of the driver. */
static void host_again(void) {
    const size_t bytes = 4 << 20;
    char *pinned;
    CUdeviceptr a = alloc(s);
    MUST(cuMemHostAlloc((void **)&pinned, bytes, 0));
    MUST(cuMemcpyAsync(a, (CUdeviceptr)pinned, BYTES, s));
    MUST(cuStreamSynchronize(s));
    MUST(cuMemFreeHost(pinned));
    if (mmap(pinned, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != pinned)
        exit(10);
    MUST(cuMemcpyAsync(a, (CUdeviceptr)pinned, BYTES, s));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamSynchronize(s));
}

/* A free that the driver refuses has no effect: the next one is the wrong one. */
static void refused_free(void) {
    CUstream gone;
    CUdeviceptr a = alloc(s);
    MUST(cuStreamCreate(&gone, 1));
    MUST(cuStreamDestroy(gone));
    printf("refused: %d\n", cuMemFreeAsync(a, gone));
    launch(a, s);
    MUST(cuMemFreeAsync(a, t)); /* after a refused one */
}

/* Libraries are loaded and unloaded at the same addresses; each has a wrong free. */
static void plugins(void) {
    for (int i = 0; i < 4; i++) {
        CUdeviceptr a = alloc(s);
        void *library = dlopen(i % 2 ? "plugin-1.so" : "plugin-0.so", RTLD_NOW);
        CUresult (*plug)(CUdeviceptr, CUstream) = library ? (CUresult(*)(CUdeviceptr, CUstream))dlsym(library, "plug") : NULL;
        if (plug == NULL)
            exit(11);
        MUST(plug(a, t));
        MUST(cuCtxSynchronize());
        dlclose(library);
    }
}

/* A stream takes part in a capture, joins the origin again, and is destroyed before the end. */
static void side_captured(void) {
    CUgraph graph;
    CUstream side;
    CUdeviceptr a = alloc(s);
    MUST(cuStreamCreate(&side, 1));
    MUST(cuStreamBeginCapture(s, 0));
    hand_over(s, side);
    launch(a, side);
    hand_over(side, s);
    MUST(cuStreamDestroy(side));
    launch(a, s);
    MUST(cuStreamEndCapture(s, &graph));
    run_graph(graph, 2, 0);
    MUST(cuMemFreeAsync(a, s));
    a = alloc(s);
    MUST(cuMemFreeAsync(a, t)); /* after a capture */
}

#define MAPPED (2 << 20)

static void map(CUdeviceptr at, size_t count) {
    CUmemAllocationProp kind = {.type = 1, .location = {1, 0}};
    CUmemAccessDesc access = {{1, 0}, 3};
    for (size_t i = 0; i < count; i++) {
        unsigned long long handle;
        MUST(cuMemCreate(&handle, MAPPED, &kind, 0));
        MUST(cuMemMap(at + i * MAPPED, MAPPED, 0, handle, 0));
        MUST(cuMemRelease(handle));
    }
    MUST(cuMemSetAccess(at, count * MAPPED, &access, 1));
}

/* A graph is captured on a range whose memory is unmapped and mapped again, as programs do that suspend models. */
static void asleep(int is_wrong) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 2 * MAPPED, 0, 0, 0));
    map(at, 2);
    MUST(cuStreamBeginCapture(s, 0));
    launch(at + MAPPED, s);
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        MUST(cuGraphLaunch(exec, s));
        launch(at, s);
        MUST(cuStreamSynchronize(s));
        MUST(cuMemUnmap(at, 2 * MAPPED));
        if (is_wrong && i == 1)
            MUST(cuGraphLaunch(exec, s)); /* asleep */
        MUST(cuStreamSynchronize(s));
        map(at, 2);
    }
    MUST(cuGraphLaunch(exec, s));
    MUST(cuStreamSynchronize(s));
    MUST(cuMemUnmap(at, 2 * MAPPED));
}

static void awake(void) { asleep(0); }
static void used_asleep(void) { asleep(1); }

/* One range of three mappings, with access set at once: a kernel that gets its start may use all of it. */
static void mapped_range(void) {
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 3 * MAPPED, 0, 0, 0));
    map(at, 3);
    launch(at, s);
    MUST(cuMemUnmap(at + 2 * MAPPED, MAPPED)); /* the range is in use */
    MUST(cuStreamSynchronize(s));
    MUST(cuMemUnmap(at, 2 * MAPPED));
}

/* Adjacent mappings with access set one by one are separate. */
static void mapped_apart(void) {
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 2 * MAPPED, 0, 0, 0));
    map(at, 1);
    map(at + MAPPED, 1);
    launch(at, s);
    MUST(cuMemUnmap(at + MAPPED, MAPPED));
    MUST(cuStreamSynchronize(s));
    MUST(cuMemUnmap(at, MAPPED));
}

static int forks(void) {
    /* Before CUDA is used: each of the two processes uses it for itself. */
    fflush(stdout);
    pid_t child = fork();
    begin();
    right();
    if (child == 0) {
        fflush(stdout);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static int fork_after(void) {
    begin();
    CUdeviceptr a = alloc(s);
    fflush(stdout);
    if (fork() == 0)
        exit(0);
    int status;
    wait(&status);
    launch(a, s);
    MUST(cuMemFreeAsync(a, s));
    return status;
}

static volatile int told;
static void tell(void *unused) {
    (void)unused;
    told = 1;
}

static void wait_for_gate(void *unused) {
    (void)unused;
    while (!gate)
        usleep(100);
}

/* The host learns of the end of a use from a host function after it. */
static void host_told(void) {
    for (int i = 0; i < 100; i++) {
        CUdeviceptr a = alloc(s);
        hand_over(s, t);
        launch(a, t);
        told = 0;
        MUST(cuLaunchHostFunc(t, tell, NULL));
        while (!told)
            usleep(10);
        MUST(cuMemFreeAsync(a, s));
    }
}

/* The function has not run yet, or comes before the use. */
static void host_not_told(void) {
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    MUST(cuLaunchHostFunc(t, tell, NULL));
    while (!told)
        usleep(10);
    MUST(cuLaunchHostFunc(t, wait_for_gate, NULL));
    launch(a, t);
    MUST(cuLaunchHostFunc(t, tell, NULL));
    MUST(cuMemFreeAsync(a, s)); /* wrong: not told */
    gate = 1;
    MUST(cuCtxSynchronize());
}

static void crash(void) {
    CUdeviceptr a = alloc(s);
    launch(a, s);
    launch(a, s);
    raise(SIGSEGV);
}

static struct sigaction before;

/* As in libraries that keep the previous handler, and call it. */
static void handler(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static void chain(int number) {
    MUST(cuMemFreeAsync(alloc(s), s));
    struct sigaction own = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(number, &own, &before);
    alarm(20); /* rather than for ever */
}

static void terminated(void) {
    chain(SIGTERM);
    kill(getpid(), SIGTERM);
    sleep(30);
}

static void faulting(void) {
    chain(SIGSEGV);
    *(volatile int *)1 = 1;
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"1", use_unordered}, {"2", freed_while_used}, {"syntax", launched_by_syntax}, {"inlined", launched_inline}, {"3", freed_elsewhere}, {"4", graph_free_not_after},
               {"5", graph_use_not_after}, {"6", graph_output_elsewhere}, {"7", graph_auto_free},
               {"8", use_after_free}, {"9", right}, {"filled-in-part", filled_in_part}, {"filled", filled}, {"right-graph", right_graph}, {"right-capture", right_capture}, {"two-devices", two_devices},
               {"wrong-capture", wrong_capture}, {"copies", copies}, {"double-free", double_free},
               {"default-streams", default_streams}, {"many", many}, {"race", race}, {"unknown", unknown}, {"threads", threads}, {"joined", joined}, {"plugins", plugins}, {"host-again", host_again},
               {"refused-free", refused_free}, {"side-captured", side_captured}, {"awake", awake}, {"used-asleep", used_asleep}, {"mapped-range", mapped_range}, {"mapped-apart", mapped_apart}, {"crash", crash}, {"terminated", terminated}, {"faulting", faulting},
               {"watchdog", watchdog}, {"relaxed-watchdog", relaxed_watchdog}, {"watchdog-elsewhere", watchdog_elsewhere},
               {"host-told", host_told}, {"host-not-told", host_not_told}};
    if (count < 2)
        return 0;
    if (strcmp(names[1], "none") == 0) {
#ifdef BY_LOOKUP
        /* A program that checks if CUDA exists learns that it does not. */
        if (dlsym(RTLD_DEFAULT, "cuMemAllocAsync") != NULL)
            return 6;
#endif
        printf("no CUDA\n");
        return 5;
    }
    if (strcmp(names[1], "forks") == 0)
        return forks();
    if (strcmp(names[1], "fork-after") == 0)
        return fork_after();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(names[1], all[i].name) == 0) {
            begin();
            all[i].run();
            printf("done\n");
            return count > 2 ? atoi(names[2]) : 0;
        }
    }
    return 7;
}
