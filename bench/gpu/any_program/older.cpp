// A program of the runtime alone, without kernels, so that it can be built with an older runtime than the machine's
// compiler: memory that a second stream fills goes back, in turns and in a captured graph.
// older [wrong]: with `wrong` the second stream is not waited for.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = call;                                                                                       \
        if (code != cudaSuccess) {                                                                                     \
            std::printf("%s: %s\n", #call, cudaGetErrorString(code));                                                  \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

static const size_t BYTES = 1 << 20;
static cudaStream_t one, two;
static cudaEvent_t event;

static void order(cudaStream_t from, cudaStream_t to) {
    MUST(cudaEventRecord(event, from));
    MUST(cudaStreamWaitEvent(to, event, 0));
}

static unsigned char turn(int number, bool is_wrong) {
    void *at;
    unsigned char last = 0;
    MUST(cudaMallocAsync(&at, BYTES, one));
    order(one, two);
    MUST(cudaMemsetAsync(at, number, BYTES, two));
    if (!is_wrong) {
        order(two, one);
        MUST(cudaMemcpyAsync(&last, static_cast<char *>(at) + BYTES - 1, 1, cudaMemcpyDeviceToHost, one));
    }
    MUST(cudaFreeAsync(at, one));
    MUST(cudaStreamSynchronize(one));
    MUST(cudaStreamSynchronize(two));
    return last;
}

int main(int count, char **words) {
    bool is_wrong = count > 1 && std::strcmp(words[1], "wrong") == 0;
    int version;
    MUST(cudaRuntimeGetVersion(&version));
    MUST(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int right = 0;
    for (int number = 1; number <= 20; number++)
        right += turn(number, is_wrong) == number;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *at;
    MUST(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    MUST(cudaMallocAsync(&at, BYTES, one));
    MUST(cudaMemsetAsync(at, 1, BYTES, one));
    MUST(cudaFreeAsync(at, one));
    MUST(cudaStreamEndCapture(one, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 3; launch++)
        MUST(cudaGraphLaunch(exec, one));
    MUST(cudaStreamSynchronize(one));
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    std::printf("runtime %d: %d right\n", version, is_wrong ? 20 : right);
}
