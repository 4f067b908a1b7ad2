/* Destroyed things whose address or handle is used again. Each program is right, or wrong with "wrong". */
#define _GNU_SOURCE
#include "helpers.h"
#include <sys/mman.h>

#define LARGE (64 << 20)
#define MAPPED (2 << 20)
static int is_wrong;

/* The system has the addresses of a device's memory again, and gives them to the host. */
static int is_of_host(CUdeviceptr at, size_t bytes) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    return mmap((void *)at, bytes, PROT_READ | PROT_WRITE, how, -1, 0) == (void *)at;
}

/* Returns memory of the host at addresses that `freed` allocated and freed. A thread of the driver may get them first. */
static CUdeviceptr of_host(CUdeviceptr (*freed)(void)) {
    for (int attempt = 0; attempt < 20; attempt++) {
        CUdeviceptr at = freed();
        if (is_of_host(at, LARGE))
            return at;
    }
    exit(10);
}

static CUdeviceptr freed(void) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, LARGE));
    MUST(cuMemsetD8Async(at, 1, BYTES, s));
    MUST(cuMemFree(at));
    return at;
}

static CUdeviceptr freed_and_of_host(void) { return of_host(freed); }

static void host_side(void) {
    CUdeviceptr device = alloc(s), host = freed_and_of_host();
    MUST(cuMemcpyAsync(device, host + 4096, BYTES, s));
    MUST(cuMemcpyAsync(host + 8192, device, BYTES, s));
    MUST(cuMemcpyDtoH((void *)(host + 4096), device, BYTES));
    MUST(cuMemFreeAsync(device, s));
}

static CUfunction kernel_of(const char *name) {
    CUmodule module;
    CUfunction function;
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

/* 128 bytes, a part of which a launch fills; 16 bytes are filled completely. */
static void launch_structure(CUdeviceptr at, int is_long, CUstream stream) {
    CUdeviceptr words[16] = {0, at};
    void *params[] = {words};
    CUfunction kernel = kernel_of(is_long ? "long_kernel" : "short_kernel");
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL)); /* the structure */
}

static void host_argument(void) { launch(freed_and_of_host(), s); }
static void host_structure(void) { launch_structure(freed_and_of_host(), 0, s); }

static void host_node(void) {
    CUgraph graph;
    MUST(cuGraphCreate(&graph, 0));
    kernel_node(graph, NULL, 0, freed_and_of_host());
    run_graph(graph, 1, 0);
}

static CUdeviceptr freed_with_its_context(void) {
    CUcontext other;
    CUdeviceptr at;
    MUST(cuCtxCreate(&other, 0, 0));
    MUST(cuMemAlloc(&at, LARGE));
    MUST(cuCtxDestroy(other));
    return at;
}

/* Memory is freed with its context. */
static void host_of_context(void) {
    CUdeviceptr device = alloc(s), at = of_host(freed_with_its_context);
    MUST(cuMemcpyAsync(device, at, BYTES, s));
    launch(at, t);
    MUST(cuMemFreeAsync(device, s));
}

static void reserved(void) {
    CUmemAllocationProp kind = {.type = 1, .location = {1, 0}};
    CUmemAccessDesc access = {{1, 0}, 3};
    unsigned long long handle;
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, MAPPED, 0, 0, 0));
    MUST(cuMemCreate(&handle, MAPPED, &kind, 0));
    MUST(cuMemMap(at, MAPPED, 0, handle, 0));
    MUST(cuMemSetAccess(at, MAPPED, &access, 1));
    MUST(cuMemUnmap(at, MAPPED));
    launch(at, s);
}

static void unmapped(void) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, LARGE));
    MUST(cuMemFree(at));
    launch(at, s);
}

static void kept(void) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, BYTES));
    MUST(cuMemFree(at));
    MUST(cuMemsetD8Async(at, 1, BYTES, s)); /* wrong: kept */
}

/* A structure has the address of memory that was freed in the capture before. */
static void captured_structure(void) {
    CUgraph graph;
    MUST(cuStreamBeginCapture(s, 0));
    CUdeviceptr a = alloc(s);
    launch(a, s);
    launch_structure(a, 1, s);
    MUST(cuMemFreeAsync(a, s));
    launch_structure(a, !is_wrong, s);
    MUST(cuStreamEndCapture(s, &graph));
    if (!is_wrong)
        run_graph(graph, 2, 0);
}

static void structure_node(void) {
    CUgraph graph;
    CUgraphNode freed, node;
    CUdeviceptr a, words[16] = {0};
    void *params[] = {words};
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &a), used = kernel_node(graph, &born, 1, a);
    MUST(cuGraphAddMemFreeNode(&freed, graph, &used, 1, a));
    words[1] = a;
    CUfunction kernel = kernel_of(is_wrong ? "short_kernel" : "long_kernel");
    CUDA_KERNEL_NODE_PARAMS last = {kernel, {1, 1, 1}, {1, 1, 1}, 0, params, NULL, NULL, NULL};
    MUST(cuGraphAddKernelNode(&node, graph, &freed, 1, &last)); /* a structure node */
    run_graph(graph, 1, 0);
}

/* Memory that a graph leaves is live from its launch to the free. */
static void structure_beside(void) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture(s, 0));
    CUdeviceptr a = alloc(s);
    MUST(cuStreamEndCapture(s, &graph));
    launch_structure(a, 1, t);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuGraphLaunch(exec, s));
        launch_structure(a, 1, s);
        MUST(cuMemFreeAsync(a, s));
        launch_structure(a, !is_wrong || i == 0, s);
    }
    MUST(cuStreamSynchronize(s));
}

/* Memory that a captured kernel's structure points to, but that is not used, is freed after the capture. */
static void structure_later(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr a = alloc(s);
    MUST(cuStreamBeginCapture(s, 0));
    launch_structure(a, 1, s);
    MUST(cuStreamEndCapture(s, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    hand_over(s, t);
    MUST(cuGraphLaunch(exec, s));
    MUST(cuMemFreeAsync(a, is_wrong ? t : s)); /* wrong: the graph is not waited for */
    MUST(cuGraphLaunch(exec, s));
    MUST(cuStreamSynchronize(s));
}

static CUgraphExec some_exec(void) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* A capture fails. Its allocations are freed late, when other memory has these addresses. */
static void fails(int has_fork) {
    CUgraph graph = NULL;
    CUgraphExec exec = some_exec();
    MUST(cuStreamBeginCapture(s, 0));
    CUdeviceptr a = alloc(s);
    if (has_fork) {
        hand_over(s, t);
        launch(a, t);
    }
    if (cuGraphLaunch(exec, s) == 0 || cuStreamEndCapture(s, &graph) == 0)
        exit(11);
    CUdeviceptr b = alloc(s);
    launch(b, s);
    if (cuMemFreeAsync(a, s) == 0)
        exit(12);
    MUST(cuMemFreeAsync(b, s));
    b = alloc(s);
    MUST(cuMemFreeAsync(b, is_wrong ? t : s)); /* wrong: after a failed capture */
    MUST(cuCtxSynchronize());
}

static void failed_capture(void) { fails(0); }
static void failed_fork(void) { fails(1); }

/* The stream that a capture began on is destroyed: there is no graph, and no mistake. */
static void origin_destroyed(void) {
    CUstream origin;
    MUST(cuStreamCreate(&origin, 1));
    MUST(cuStreamBeginCapture(origin, 0));
    CUdeviceptr a = alloc(origin);
    hand_over(origin, t);
    launch(a, t);
    MUST(cuStreamDestroy(origin));
    CUdeviceptr b = alloc(s);
    if (cuMemFreeAsync(a, s) == 0)
        exit(12);
    MUST(cuMemFreeAsync(b, s));
    MUST(cuCtxSynchronize());
}

/* A capture that is not followed fails; the next one is followed. */
static void failed_unfollowed(void) {
    CUgraph into, graph = NULL;
    CUgraphExec exec = some_exec();
    CUdeviceptr b = alloc(t);
    MUST(cuGraphCreate(&into, 0));
    MUST(cuStreamBeginCaptureToGraph(s, into, NULL, NULL, 0, 0));
    if (cuGraphLaunch(exec, s) == 0 || cuStreamEndCapture(s, &graph) == 0)
        exit(11);
    MUST(cuStreamBeginCapture(s, 0));
    CUdeviceptr a = alloc(s);
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamEndCapture(s, &graph));
    run_graph(graph, 1, 0);
    if (is_wrong)
        MUST(cuMemFreeAsync(b, s)); /* wrong: captured after one that is not followed */
    MUST(cuCtxSynchronize());
}

static void stream_again(void) {
    CUstream first, again;
    MUST(cuStreamCreate(&first, 1));
    CUdeviceptr a = alloc(s);
    hand_over(s, first);
    MUST(cuStreamDestroy(first));
    MUST(cuStreamCreate(&again, 1));
    if (first != again)
        exit(13);
    if (!is_wrong)
        hand_over(s, again);
    MUST(cuMemsetD8Async(a, 1, BYTES, again)); /* wrong: another stream */
    MUST(cuCtxSynchronize());
}

static void event_again(void) {
    CUevent first, again;
    CUdeviceptr a = alloc(s);
    MUST(cuEventCreate(&first, 2));
    MUST(cuEventRecord(first, s));
    MUST(cuEventDestroy(first));
    MUST(cuEventCreate(&again, 2));
    if (first != again)
        exit(13);
    if (!is_wrong)
        MUST(cuEventRecord(again, s));
    MUST(cuStreamWaitEvent(t, again, 0)); /* of what was never recorded: no wait */
    MUST(cuMemsetD8Async(a, 1, BYTES, t)); /* wrong: another event */
    MUST(cuCtxSynchronize());
}

static void graph_again(void) {
    CUgraph first, again;
    CUdeviceptr a = alloc(s), b = alloc(t);
    MUST(cuGraphCreate(&first, 0));
    CUgraphNode node = kernel_node(first, NULL, 0, a), other;
    MUST(cuGraphDestroy(first));
    MUST(cuGraphCreate(&again, 0));
    if (first != again)
        exit(13);
    other = kernel_node(again, NULL, 0, is_wrong ? b : a);
    if (node != other)
        exit(13);
    kernel_node(again, &other, 1, a);
    run_graph(again, 1, 0);
    MUST(cuCtxSynchronize());
}

static void exec_again(void) {
    CUgraph graph, other;
    CUgraphExec first, again;
    CUdeviceptr a = alloc(s), b = alloc(t);
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphCreate(&other, 0));
    kernel_node(graph, NULL, 0, a);
    kernel_node(other, NULL, 0, is_wrong ? b : a);
    MUST(cuGraphInstantiateWithFlags(&first, graph, 0));
    MUST(cuGraphExecDestroy(first));
    MUST(cuGraphInstantiateWithFlags(&again, other, 0));
    if (first != again)
        exit(13);
    MUST(cuGraphLaunch(again, s)); /* wrong: another instance */
    MUST(cuCtxSynchronize());
}

/* A function gets the handle of one with other parameters. */
static void function_again(void) {
    CUcontext other;
    CUmodule module, own;
    CUfunction first, again;
    CUdeviceptr a = alloc(s), words[2] = {0, a};
    int count = BYTES;
    void *params[] = {&a, &count}, *structure[] = {words};
    MUST(cuModuleLoadData(&own, ""));
    MUST(cuStreamSynchronize(s));
    MUST(cuCtxCreate(&other, 0, 0));
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&first, module, "touch_kernel"));
    MUST(cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuCtxDestroy(other)); /* its modules go with it */
    MUST(cuModuleGetFunction(&again, own, "short_kernel"));
    if (first != again)
        exit(13);
    if (is_wrong)
        MUST(cuMemFreeAsync(a, s));
    MUST(cuLaunchKernel(again, 1, 1, 1, 1, 1, 1, 0, s, structure, NULL)); /* wrong: another function */
    MUST(cuCtxSynchronize());
}

/* A context is destroyed with its streams. The next one gets their handles. */
static void context_again(void) {
    CUcontext first, again;
    CUstream old, stream;
    CUevent event;
    CUdeviceptr a = alloc(s);
    MUST(cuEventRecord(e, s));
    MUST(cuCtxCreate(&first, 0, 0));
    MUST(cuStreamCreate(&old, 1));
    MUST(cuStreamWaitEvent(old, e, 0));
    MUST(cuCtxDestroy(first));
    a = alloc(s);
    MUST(cuEventRecord(e, s));
    MUST(cuCtxCreate(&again, 0, 0));
    MUST(cuEventCreate(&event, 2));
    MUST(cuStreamCreate(&stream, 1));
    if (!is_wrong)
        MUST(cuStreamWaitEvent(stream, e, 0));
    MUST(cuMemsetD8Async(a, 1, BYTES, stream)); /* wrong: of another context */
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxDestroy(again));
}

static void pool_again(void) {
    const CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
    CUmemoryPool first, again;
    CUdeviceptr a;
    MUST(cuMemPoolCreate(&first, &props));
    MUST(cuDeviceSetMemPool(0, first));
    MUST(cuMemPoolDestroy(first));
    MUST(cuMemFreeAsync(alloc(s), s)); /* of the default pool again */
    MUST(cuMemPoolCreate(&again, &props));
    if (first != again)
        exit(13);
    MUST(cuMemAllocFromPoolAsync(&a, BYTES, again, s));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuMemPoolDestroy(again));
}

static CUdeviceptr freed_by_a_reset(void) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, LARGE));
    MUST(cuDevicePrimaryCtxReset(0));
    return at;
}

/* Everything of a device's primary context is destroyed, and handles are used again. */
static void reset(void) {
    CUgraph graph;
    MUST(cuStreamBeginCapture(s, 2));
    alloc(s);
    CUdeviceptr at = of_host(freed_by_a_reset);
    MUST(cuStreamCreate(&s, 1));
    MUST(cuStreamCreate(&t, 1));
    MUST(cuEventCreate(&e, 2));
    touch = kernel_of("touch_kernel");
    CUdeviceptr a = alloc(s);
    MUST(cuMemcpyAsync(a, at, BYTES, s));
    hand_over(s, t);
    launch(a, t);
    MUST(cuStreamBeginCapture(t, 0));
    launch(a, t);
    MUST(cuStreamEndCapture(t, &graph));
    a = alloc(s);
    if (!is_wrong)
        hand_over(s, t);
    MUST(cuMemsetD8Async(a, 1, BYTES, t)); /* wrong: after a reset */
    MUST(cuCtxSynchronize());
}

/* Two adjacent numbers in an argument look like an address in a freed allocation; wrong: the argument was a pointer. */
static void numbers_beside(void) {
    CUdeviceptr a = alloc(s);
    if (is_wrong)
        launch(a, s);
    MUST(cuMemFreeAsync(a, s)); /* freed before the numbers */
    launch(a + 8, s);
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"host-side", host_side}, {"host-argument", host_argument}, {"host-structure", host_structure},
               {"host-node", host_node}, {"host-of-context", host_of_context}, {"reserved", reserved},
               {"unmapped", unmapped}, {"kept", kept}, {"captured-structure", captured_structure},
               {"structure-node", structure_node}, {"structure-beside", structure_beside},
               {"structure-later", structure_later}, {"failed-capture", failed_capture}, {"failed-fork", failed_fork},
               {"origin-destroyed", origin_destroyed}, {"failed-unfollowed", failed_unfollowed},
               {"stream-again", stream_again}, {"event-again", event_again}, {"graph-again", graph_again},
               {"exec-again", exec_again}, {"function-again", function_again}, {"context-again", context_again},
               {"pool-again", pool_again}, {"reset", reset},
               {"numbers-beside", numbers_beside}};
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
