// What is gone, and whose address something else has by now: `reused PROGRAM [wrong]`. Right programs, each with a wrong
// twin; nothing that a kernel gets is used.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <sys/mman.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                              \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const size_t BYTES = 1 << 20, LARGE = 512 << 20;
static bool is_wrong;
static cudaStream_t s, t;

struct Short {
    char *words[2];
};
// Longer than what is taken to be filled as a whole.
struct Long {
    char *words[16];
};

__global__ void touch(char *, int) {}
__global__ void touch_short(Short) {}
__global__ void touch_long(Long) {}

static void structure(char *at, bool is_long, cudaStream_t stream) {
    if (is_long)
        touch_long<<<1, 1, 0, stream>>>(Long{{nullptr, at}});
    else
        touch_short<<<1, 1, 0, stream>>>(Short{{nullptr, at}});
    MUST(cudaGetLastError());
}

static char *alloc(cudaStream_t stream) {
    char *at;
    MUST(cudaMallocAsync(&at, BYTES, stream));
    return at;
}

// The driver unmaps a large range, and the host gets its addresses.
static void host_range() {
    char *freed, *device = alloc(s);
    MUST(cudaMalloc(&freed, LARGE));
    MUST(cudaMemset(freed, 1, LARGE));
    MUST(cudaFree(freed));
    if (is_wrong) {
        touch<<<1, 1, 0, s>>>(freed, 1); // wrong: freed
        MUST(cudaDeviceSynchronize());
        return;
    }
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *host = (char *)mmap(freed, LARGE, PROT_READ | PROT_WRITE, how, -1, 0);
    if (host != freed) {
        fprintf(stderr, "the driver keeps the addresses %p\n", (void *)freed);
        host = (char *)malloc(LARGE);
    }
    memset(host, 2, LARGE);
    MUST(cudaMemcpyAsync(device, host + BYTES, BYTES, cudaMemcpyHostToDevice, s));
    MUST(cudaMemcpy(host, device, BYTES, cudaMemcpyDeviceToHost));
    touch<<<1, 1, 0, s>>>(host, 1);
    structure(host + BYTES, false, s);
    MUST(cudaFreeAsync(device, s));
    MUST(cudaDeviceSynchronize());
}

// A structure in a captured kernel has the address of memory that was freed in the capture before.
static void captured_structure() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    char *a = alloc(s);
    structure(a, true, s);
    MUST(cudaFreeAsync(a, s));
    structure(a, !is_wrong, s);
    MUST(cudaStreamEndCapture(s, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(exec, s));
    MUST(cudaDeviceSynchronize());
}

// What a graph leaves is there from its launch to its free.
static void structure_beside() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    char *a = alloc(s);
    MUST(cudaStreamEndCapture(s, &graph));
    structure(a, true, t);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cudaGraphLaunch(exec, s));
        structure(a, true, s);
        MUST(cudaFreeAsync(a, s));
        structure(a, !is_wrong, s);
    }
    MUST(cudaDeviceSynchronize());
}

// A capture fails; the program goes on, and frees late what the capture had allocated.
static void failed_capture() {
    cudaGraph_t graph;
    cudaEvent_t e;
    MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    char *late[8];
    for (char *&at : late) {
        MUST(cudaMallocAsync(&at, 4096, s));
        touch<<<1, 1, 0, s>>>(at, 1);
    }
    MUST(cudaEventRecord(e, s));
    MUST(cudaStreamWaitEvent(t, e, 0));
    touch<<<1, 1, 0, t>>>(late[0], 1);
    int code = cudaStreamEndCapture(t, &graph), end = cudaStreamEndCapture(s, &graph);
    cudaGetLastError();
    printf("refused: %d, %d\n", code, end);
    for (int i = 0; i < 64; i++) {
        char *at;
        MUST(cudaMallocAsync(&at, 4096 << i % 10, s));
        touch<<<1, 1, 0, s>>>(at, 1);
        MUST(cudaFreeAsync(at, s));
    }
    char *keep[64];
    for (char *&at : keep)
        MUST(cudaMallocAsync(&at, BYTES, s));
    int refused = 0;
    for (char *at : late)
        refused += cudaFreeAsync(at, s) != cudaSuccess;
    cudaGetLastError();
    printf("refused frees: %d\n", refused);
    for (char *at : keep)
        MUST(cudaFreeAsync(at, s));
    char *a = alloc(s);
    MUST(cudaFreeAsync(a, is_wrong ? t : s)); // wrong: another stream
    MUST(cudaDeviceSynchronize());
}

int main(int count, char **words) {
    const struct {
        const char *name;
        void (*run)();
    } all[] = {{"host-range", host_range}, {"captured-structure", captured_structure},
               {"structure-beside", structure_beside}, {"failed-capture", failed_capture}};
    is_wrong = count > 2 && !strcmp(words[2], "wrong");
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    for (auto &it : all) {
        if (count > 1 && !strcmp(words[1], it.name)) {
            it.run();
            puts("done");
            return 0;
        }
    }
    return 7;
}
