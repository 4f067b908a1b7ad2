/* The common parts of the programs: a device, two streams, an event, a kernel, nodes. Kernels are functions. */
#include "cuda.h"
#include <dlfcn.h>

#define BYTES 4096
static CUstream s, t;
static CUevent e;
static CUfunction touch;

/* Nobody outside of a kernel knows what it does with memory. */
void touch_kernel(void **params) { (void)params; }
size_t touch_kernel_params[] = {8, 4, 0};
void long_kernel(void **params) { (void)params; }
size_t long_kernel_params[] = {16 * 8, 0};
void short_kernel(void **params) { (void)params; }
size_t short_kernel_params[] = {2 * 8, 0};

static void begin(void) {
    CUcontext context;
    CUmodule module;
    load();
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&s, 1));
    MUST(cuStreamCreate(&t, 1));
    MUST(cuEventCreate(&e, 2));
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&touch, module, "touch_kernel"));
}

static void launch(CUdeviceptr at, CUstream stream) {
    int count = BYTES;
    void *params[] = {&at, &count};
    MUST(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL)); /* a launch */
}

static CUdeviceptr alloc(CUstream stream) {
    CUdeviceptr at;
    MUST(cuMemAllocAsync(&at, BYTES, stream));
    return at;
}

static void hand_over(CUstream from, CUstream to) {
    MUST(cuEventRecord(e, from));
    MUST(cuStreamWaitEvent(to, e, 0));
}

static CUgraphNode kernel_node(CUgraph graph, CUgraphNode *after, size_t count, CUdeviceptr at) {
    int length = BYTES;
    void *params[] = {&at, &length};
    CUDA_KERNEL_NODE_PARAMS kernel = {touch, {1, 1, 1}, {1, 1, 1}, 0, params, NULL, NULL, NULL};
    CUgraphNode node;
    MUST(cuGraphAddKernelNode(&node, graph, after, count, &kernel)); /* a kernel node */
    return node;
}

static CUgraphNode alloc_node(CUgraph graph, CUdeviceptr *at) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = BYTES};
    CUgraphNode node;
    MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    *at = params.dptr;
    return node;
}

static void run_graph(CUgraph graph, int times, unsigned long long flags) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, flags));
    for (int i = 0; i < times; i++)
        MUST(cuGraphLaunch(exec, s)); /* launched */
}
