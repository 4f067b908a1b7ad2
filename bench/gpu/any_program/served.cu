// What programs ask of stream-ordered memory, in the CUDA runtime and the driver API: the answers are printed, without
// addresses, so that those under `millpond run` can be compared with CUDA's own. `pairs` times allocations and frees.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(code));                                      \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define SAY(call) printf("%s: %d\n", #call, int(call))

constexpr size_t MIB = 1 << 20;

__global__ void fill(int *at, int value, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(blockDim.x) * gridDim.x)
        at[i] = value;
}
__global__ void check(const int *at, int value, size_t count, int *wrong) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(blockDim.x) * gridDim.x)
        if (at[i] != value)
            atomicAdd(wrong, 1);
}
__global__ void dawdle(long long clocks) {
    for (long long start = clock64(); clock64() - start < clocks;) {}
}

static void *alloc(size_t bytes, cudaStream_t stream) {
    void *at;
    MUST(cudaMallocAsync(&at, bytes, stream));
    return at;
}

// Memory goes from stream to stream by events; every byte is looked at.
static void streams(int rounds) {
    constexpr int N = 4;
    cudaStream_t all[N];
    cudaEvent_t event;
    int *wrong, result;
    MUST(cudaMallocManaged(&wrong, sizeof(int)));
    *wrong = 0;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (auto &stream : all)
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < rounds; i++) {
        auto from = all[i % N], to = all[(i + 1 + i / 7 % 3) % N];
        size_t bytes = (64 + size_t(i * 7919) % 4096) * 1024, count = bytes / 4;
        int *at = static_cast<int *>(alloc(bytes, from));
        fill<<<64, 256, 0, from>>>(at, i, count);
        if (i % 16 == 0)
            dawdle<<<1, 1, 0, from>>>(200000);
        check<<<64, 256, 0, from>>>(at, i, count, wrong);
        MUST(cudaEventRecord(event, from));
        MUST(cudaStreamWaitEvent(to, event, 0));
        check<<<64, 256, 0, to>>>(at, i, count, wrong);
        MUST(cudaFreeAsync(at, to));
    }
    MUST(cudaDeviceSynchronize());
    result = *wrong;
    printf("streams: %d wrong words\n", result);
    for (auto &stream : all)
        MUST(cudaStreamDestroy(stream));
    MUST(cudaFree(wrong));
}

static void pools() {
    cudaStream_t s;
    MUST(cudaStreamCreate(&s));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool, shared, current;
    MUST(cudaMemPoolCreate(&pool, &props));
    unsigned long long threshold = 64 * MIB, value;
    SAY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    void *at;
    SAY(cudaMallocFromPoolAsync(&at, 32 * MIB, pool, s));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
    printf("used %llu MiB\n", value / MIB);
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    printf("reserved at least what is used: %d\n", value >= 32 * MIB);
    SAY(cudaFreeAsync(at, s));
    SAY(cudaStreamSynchronize(s));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    printf("kept below the threshold: %d\n", value >= 32 * MIB);
    SAY(cudaMemPoolTrimTo(pool, 0));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    printf("reserved after the trim: %llu\n", value);
    SAY(cudaDeviceSetMemPool(0, pool));
    SAY(cudaDeviceGetMemPool(&current, 0));
    printf("the pool is current: %d\n", current == pool);
    at = alloc(MIB, s);
    CUmemoryPool of = nullptr;
    SAY(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CUdeviceptr(at)));
    printf("memory is of that pool: %d\n", (void *)of == (void *)pool);
    SAY(cudaMemPoolDestroy(pool)); // with memory that lives
    SAY(cudaMemsetAsync(at, 1, MIB, s));
    SAY(cudaFreeAsync(at, s));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    SAY(cudaDeviceGetMemPool(&current, 0));
    printf("the default pool is current: %d\n", current == pool);
    at = alloc(128 * MIB, s);
    MUST(cudaFreeAsync(at, s));
    MUST(cudaStreamSynchronize(s));
    SAY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    printf("threshold 0: reserved after a synchronisation: %llu\n", value);
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    int file;
    SAY(cudaMemPoolCreate(&shared, &props));
    SAY(cudaMemPoolExportToShareableHandle(&file, shared, cudaMemHandleTypePosixFileDescriptor, 0));
    SAY(cudaMallocFromPoolAsync(&at, MIB, shared, s));
    cudaMemPoolPtrExportData data;
    SAY(cudaMemPoolExportPointer(&data, at));
    SAY(cudaFreeAsync(at, s));
    SAY(cudaMemPoolDestroy(shared));
    MUST(cudaStreamDestroy(s));
}

static void pointers() {
    char *at = static_cast<char *>(alloc(3 * MIB, 0));
    CUdeviceptr p = CUdeviceptr(at) + 1000, start = 0;
    size_t bytes = 0;
    cudaPointerAttributes attributes;
    SAY(cudaPointerGetAttributes(&attributes, at + 1000));
    printf("device memory %d of device %d, the same pointer %d\n", attributes.type == cudaMemoryTypeDevice,
           attributes.device, attributes.devicePointer == at + 1000);
    SAY(cuMemGetAddressRange(&start, &bytes, p));
    printf("start %d, %zu bytes\n", start == CUdeviceptr(at), bytes);
    SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
    SAY(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    printf("start %d, %zu bytes\n", start == CUdeviceptr(at), bytes);
    unsigned long long id = 0, type = 0, flag = 0;
    SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    SAY(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    printf("type %llu, legacy IPC %llu\n", type, flag);
    SAY(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p));
    printf("handle types %llu\n", flag);
    flag = 0;
    SAY(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p));
    printf("GPUDirect RDMA: %llu\n", flag);
    CUcontext context = nullptr;
    SAY(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    cudaIpcMemHandle_t handle;
    SAY(cudaIpcGetMemHandle(&handle, at));
    (void)cudaGetLastError();
    CUmemGenericAllocationHandle physical;
    SAY(cuMemRetainAllocationHandle(&physical, at));
    int sync = 1;
    // Mapped memory has no such attribute (801): docs/any-program.md.
    fprintf(stderr, "sync memops: %d\n", cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdeviceptr(at)));
    int dmabuf = -1;
    SAY(cuMemGetHandleForAddressRange(&dmabuf, CUdeviceptr(at), 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    SAY(cudaFreeAsync(at + 512, 0));
    SAY(cudaFree(at + 512));
    (void)cudaGetLastError();
    SAY(cudaFree(at)); // it need not be freed in a stream
    SAY(cudaFreeAsync(at, 0));
    SAY(cudaFree(at));
    (void)cudaGetLastError();
    void *none;
    SAY(cudaMallocAsync(&none, 0, 0));
    SAY(cudaFreeAsync(nullptr, 0));
    (void)cudaGetLastError();
}

// All memory, and more; then all of it by another kind of allocation.
static void exhaust() {
    cudaStream_t s, t;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    size_t free, total;
    MUST(cudaMemGetInfo(&free, &total));
    std::vector<void *> all;
    void *at;
    cudaError_t code;
    while ((code = cudaMallocAsync(&at, free / 8, s)) == cudaSuccess)
        all.push_back(at);
    printf("no memory: %d, after 7 or 8: %d\n", int(code), all.size() == 7 || all.size() == 8);
    (void)cudaGetLastError();
    dawdle<<<1, 1, 0, s>>>(100000000);
    for (auto it : all)
        MUST(cudaFreeAsync(it, s));
    SAY(cudaMallocAsync(&at, free / 2, t)); // what is freed by then serves it, or is waited for
    SAY(cudaFreeAsync(at, t));
    unsigned long long threshold = ~0ull;
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    SAY(cudaMallocAsync(&at, free / 2, t));
    SAY(cudaFreeAsync(at, t));
    MUST(cudaDeviceSynchronize());
    SAY(cudaMalloc(&at, free / 4 * 3)); // the pool keeps half until it is wanted
    SAY(cudaFree(at));
    threshold = 0;
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(s));
    MUST(cudaStreamDestroy(t));
}

static void captured() {
    cudaStream_t s;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int *before = static_cast<int *>(alloc(MIB, s)), *wrong, result;
    MUST(cudaMallocManaged(&wrong, sizeof(int)));
    *wrong = 0;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    int *inside = static_cast<int *>(alloc(MIB, s));
    fill<<<8, 256, 0, s>>>(inside, 7, MIB / 4);
    fill<<<8, 256, 0, s>>>(before, 8, MIB / 4);
    check<<<8, 256, 0, s>>>(inside, 7, MIB / 4, wrong);
    MUST(cudaFreeAsync(inside, s));
    MUST(cudaStreamEndCapture(s, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; i++) {
        int *beside = static_cast<int *>(alloc(MIB, s));
        fill<<<8, 256, 0, s>>>(beside, i, MIB / 4);
        MUST(cudaGraphLaunch(exec, s));
        check<<<8, 256, 0, s>>>(beside, i, MIB / 4, wrong);
        MUST(cudaFreeAsync(beside, s));
    }
    check<<<8, 256, 0, s>>>(before, 8, MIB / 4, wrong);
    MUST(cudaFreeAsync(before, s));
    MUST(cudaStreamSynchronize(s));
    result = *wrong;
    printf("captured: %d wrong words\n", result);
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaStreamDestroy(s));
}

static void atEnd() {
    void *at;
    int first = cudaMallocAsync(&at, MIB, 0), second = cudaFreeAsync(at, 0);
    fprintf(stderr, "at exit: %d %d\n", first, second);
}

static void threads() {
    std::vector<std::thread> all;
    for (int number = 0; number < 8; number++)
        all.emplace_back([number] {
            struct AtEnd {
                ~AtEnd() {
                    void *at = nullptr;
                    if (cudaMallocAsync(&at, MIB, nullptr) == cudaSuccess)
                        cudaFreeAsync(at, nullptr);
                }
            };
            static thread_local AtEnd end;
            (void)&end;
            for (int i = 0; i < 500; i++) {
                cudaStream_t own = i % 3 ? cudaStreamPerThread : nullptr;
                if (i % 50 == 1)
                    MUST(cudaStreamCreate(&own));
                void *at = alloc(1024 * (1 + (i + number) % 100), own);
                MUST(cudaMemsetAsync(at, 1, 1024, own));
                MUST(cudaFreeAsync(at, own));
                if (i % 50 == 1)
                    MUST(cudaStreamDestroy(own));
            }
        });
    for (auto &thread : all)
        thread.join();
    MUST(cudaDeviceSynchronize());
    printf("threads: done\n");
}

static double time(int count, bool apart, size_t bytes) {
    cudaStream_t s, t;
    cudaEvent_t e;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    double least = 1e9;
    for (int turn = 0; turn < 6; turn++) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < count; i++) {
            void *at = alloc(bytes, s);
            if (apart) {
                MUST(cudaEventRecord(e, s));
                MUST(cudaStreamWaitEvent(t, e, 0));
            }
            MUST(cudaFreeAsync(at, apart ? t : s));
        }
        auto taken = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count;
        least = taken < least ? taken : least;
        MUST(cudaDeviceSynchronize());
    }
    return least;
}

static void pairs() {
    unsigned long long threshold = ~0ull;
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    printf("pair on one stream, 64 KiB        %7.0f ns\n", time(20000, false, 65536));
    printf("pair on one stream, 8 MiB         %7.0f ns\n", time(20000, false, 8 * MIB));
    printf("freed on another stream, by event %7.0f ns\n", time(2000, true, 65536));
}

int main(int count, char **words) {
    std::string_view which = count > 1 ? words[1] : "all";
    if (which == "pairs") {
        pairs();
        return 0;
    }
    if (which == "end") {
        (void)alloc(MIB, 0); // lives at the end
        atexit(atEnd);
        return 0;
    }
    streams(2000);
    pools();
    pointers();
    captured();
    threads();
    if (which == "all")
        exhaust();
    if (which == "reset") {
        MUST(cudaDeviceReset());
        streams(100);
    }
    pid_t child = fork();
    if (child == 0) {
        void *at;
        _exit(cudaMallocAsync(&at, MIB, 0));
    }
    int status;
    waitpid(child, &status, 0);
    printf("in a forked process: %d\n", WEXITSTATUS(status));
    printf("done\n");
    return 0;
}
