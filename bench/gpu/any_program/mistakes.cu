// Nine small programs of the CUDA runtime: eight wrong orders, and a right one. The number is the first argument.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                              \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

constexpr size_t BYTES = 1 << 20;
static cudaStream_t s, t;
static cudaEvent_t e;

__global__ void touch(float *at, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        at[i] += 1.0f;
}

static void launch(float *at, cudaStream_t stream) { touch<<<1, 256, 0, stream>>>(at, 1024); }

static float *alloc(cudaStream_t stream) {
    float *at;
    MUST(cudaMallocAsync(&at, BYTES, stream));
    return at;
}

static void handOver(cudaStream_t from, cudaStream_t to) {
    MUST(cudaEventRecord(e, from));
    MUST(cudaStreamWaitEvent(to, e, 0));
}

static cudaGraphNode_t allocNode(cudaGraph_t graph, float **at) {
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = BYTES;
    cudaGraphNode_t node;
    MUST(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    *at = static_cast<float *>(params.dptr);
    return node;
}

static cudaGraphNode_t kernelNode(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, float *at) {
    int length = 1024;
    void *args[] = {&at, &length};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void *>(touch);
    params.gridDim = dim3(1);
    params.blockDim = dim3(256);
    params.kernelParams = args;
    cudaGraphNode_t node;
    MUST(cudaGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

int main(int count, char **words) {
    int which = count > 1 ? atoi(words[1]) : 9;
    float *a;
    cudaGraph_t graph;
    cudaGraphNode_t born, node;
    cudaGraphExec_t exec;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    MUST(cudaGraphCreate(&graph, 0));
    switch (which) {
    case 1: // used on a stream that is not ordered after the allocation
        a = alloc(s);
        launch(a, t);
        MUST(cudaDeviceSynchronize());
        MUST(cudaFreeAsync(a, s));
        break;
    case 2: // freed while another stream still uses it
        a = alloc(s);
        handOver(s, t);
        launch(a, t);
        MUST(cudaFreeAsync(a, s));
        break;
    case 3: // freed on another stream, unordered
        a = alloc(s);
        launch(a, s);
        MUST(cudaFreeAsync(a, t));
        break;
    case 4: // a free node that is not after the kernel
        born = allocNode(graph, &a);
        kernelNode(graph, &born, 1, a);
        MUST(cudaGraphAddMemFreeNode(&node, graph, &born, 1, a));
        MUST(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, s));
        break;
    case 5: // a kernel node that is not after the alloc node
        allocNode(graph, &a);
        kernelNode(graph, nullptr, 0, a);
        MUST(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, s));
        break;
    case 6: // a graph's allocation used and freed on another stream, unordered
        born = allocNode(graph, &a);
        kernelNode(graph, &born, 1, a);
        MUST(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, s));
        launch(a, t);
        MUST(cudaFreeAsync(a, t));
        break;
    case 7: // launched again with auto free while a consumer still reads
        born = allocNode(graph, &a);
        kernelNode(graph, &born, 1, a);
        MUST(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
        MUST(cudaGraphLaunch(exec, s));
        handOver(s, t);
        launch(a, t);
        MUST(cudaGraphLaunch(exec, s));
        break;
    case 8: // used after its free, in one stream
        a = alloc(s);
        MUST(cudaFreeAsync(a, s));
        launch(a, s);
        break;
    default: // right
        a = alloc(s);
        MUST(cudaMemsetAsync(a, 0, BYTES, s));
        handOver(s, t);
        launch(a, t);
        handOver(t, s);
        MUST(cudaFreeAsync(a, s));
    }
    cudaDeviceSynchronize();
    printf("done\n");
    return 0;
}
