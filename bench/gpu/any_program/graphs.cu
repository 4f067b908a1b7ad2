// Memory of graphs in the order of streams, events and other graphs, and frees on other streams, by the CUDA runtime.
// graphs PROGRAM [wrong]: the second argument leaves one order out.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                              \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

constexpr int COUNT = 1 << 18;
static cudaStream_t s, t;
static cudaEvent_t e;
static bool isWrong;

__global__ void scale(float *data, int count, float by) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        data[at] = data[at] * by + 1.0f;
}

static void use(float *data, cudaStream_t stream) { scale<<<COUNT / 256, 256, 0, stream>>>(data, COUNT, 0.5f); }

static void handOver(cudaStream_t from, cudaStream_t to) {
    MUST(cudaEventRecord(e, from));
    MUST(cudaStreamWaitEvent(to, e, 0));
}

static cudaGraphNode_t addKernel(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, float *data) {
    int length = COUNT;
    float by = 0.5f;
    void *args[] = {&data, &length, &by};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void *>(scale);
    params.gridDim = dim3(COUNT / 256);
    params.blockDim = dim3(256);
    params.kernelParams = args;
    cudaGraphNode_t node;
    MUST(cudaGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static cudaGraphNode_t addAlloc(cudaGraph_t graph, float **data) {
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = COUNT * sizeof(float);
    cudaGraphNode_t node;
    MUST(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    *data = static_cast<float *>(params.dptr);
    return node;
}

// A graph whose memory outlives its launch. With `done`, it records that after the kernel, or beside it.
static cudaGraphExec_t maker(float **data, unsigned long long flags, cudaEvent_t done = nullptr, bool isBeside = false) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t born = addAlloc(graph, data), node;
    cudaGraphNode_t used = addKernel(graph, &born, 1, *data);
    if (done)
        MUST(cudaGraphAddEventRecordNode(&node, graph, &used, isBeside ? 0 : 1, done));
    MUST(cudaGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

// The launch's own stream uses and frees what the graph allocated.
static void byStream() {
    float *data;
    cudaGraphExec_t exec = maker(&data, 0);
    MUST(cudaGraphLaunch(exec, s));
    use(data, isWrong ? t : s); // wrong: another stream
    MUST(cudaDeviceSynchronize());
    MUST(cudaFreeAsync(data, s));
}

// Another stream uses it, by an event; the first one frees it after that.
static void byEvent() {
    float *data;
    cudaGraphExec_t exec = maker(&data, 0);
    MUST(cudaGraphLaunch(exec, s));
    handOver(s, t);
    use(data, t);
    if (!isWrong)
        handOver(t, s);
    MUST(cudaFreeAsync(data, s)); // wrong: the reader is not waited for
}

// An event that the graph itself records orders another stream.
static void byNode() {
    float *data;
    cudaEvent_t done;
    MUST(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    cudaGraphExec_t exec = maker(&data, 0, done, isWrong);
    MUST(cudaGraphLaunch(exec, s));
    MUST(cudaStreamWaitEvent(t, done, 0));
    use(data, t); // wrong: the record is after nothing
    handOver(t, s);
    MUST(cudaFreeAsync(data, s));
}

// A second graph uses it and has the free node.
static void byGraph() {
    float *data;
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec = maker(&data, 0), second;
    MUST(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t used = addKernel(graph, nullptr, 0, data);
    MUST(cudaGraphAddMemFreeNode(&node, graph, &used, 1, data));
    MUST(cudaGraphInstantiateWithFlags(&second, graph, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cudaGraphLaunch(exec, s));
        MUST(cudaGraphLaunch(second, isWrong && i == 1 ? t : s)); // wrong: the launch is not waited for
    }
}

// A loop of launches that free what the one before left; another stream reads each time.
static void autoFree() {
    float *data;
    cudaGraphExec_t exec = maker(&data, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    for (int i = 0; i < 3; i++) {
        MUST(cudaGraphLaunch(exec, s)); // wrong: the reader may still run
        handOver(s, t);
        use(data, t);
        if (!isWrong || i != 1)
            handOver(t, s);
    }
}

// A loop of launches, each of whose memory is freed by the program before the next.
static void freedEachTime() {
    float *data;
    cudaGraphExec_t exec = maker(&data, 0);
    for (int i = 0; i < 3; i++) {
        MUST(cudaGraphLaunch(exec, s));
        use(data, s);
        MUST(cudaFreeAsync(data, isWrong && i == 2 ? t : s)); // wrong: another stream frees it
    }
}

// Two streams use memory, and a third one frees it.
static void freedElsewhere() {
    cudaStream_t u;
    float *data;
    MUST(cudaStreamCreateWithFlags(&u, cudaStreamNonBlocking));
    MUST(cudaMallocAsync(&data, COUNT * sizeof(float), s));
    handOver(s, t);
    use(data, s);
    use(data, t);
    handOver(s, u);
    if (!isWrong)
        handOver(t, u);
    MUST(cudaFreeAsync(data, u)); // wrong: one of the two is not waited for
}

// A stream takes part in a capture, comes back to the one that began it, and is destroyed before the end.
static void sideStream() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t side;
    float *data;
    MUST(cudaMallocAsync(&data, COUNT * sizeof(float), s));
    MUST(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    handOver(s, side);
    use(data, side);
    handOver(side, s);
    MUST(cudaStreamDestroy(side));
    use(data, s);
    MUST(cudaStreamEndCapture(s, &graph));
    MUST(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cudaGraphLaunch(exec, s));
    MUST(cudaFreeAsync(data, isWrong ? t : s)); // wrong: another stream frees it
}

int main(int count, char **words) {
    const struct {
        const char *name;
        void (*run)();
    } all[] = {{"by-stream", byStream},         {"by-event", byEvent},
               {"by-node", byNode},             {"by-graph", byGraph},
               {"auto-free", autoFree},         {"freed-each-time", freedEachTime},
               {"freed-elsewhere", freedElsewhere}, {"side-stream", sideStream}};
    isWrong = count > 2 && strcmp(words[2], "wrong") == 0;
    for (auto &it : all) {
        if (count < 2 || strcmp(words[1], it.name) != 0)
            continue;
        MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        it.run();
        MUST(cudaDeviceSynchronize());
        printf("done\n");
        return 0;
    }
    return 7;
}
