// What the programs of races.cu share: what they use, how they are listed, and how one is run.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = (call);                                                                                     \
        if (code != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(code));                   \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

constexpr int COUNT = 1 << 18, ROW = COUNT / 4, THREADS = 256, GRID = COUNT / THREADS;
constexpr size_t BYTES = COUNT * sizeof(int), ROW_BYTES = ROW * sizeof(int);
static bool right;
static unsigned long long delayNanoseconds;

__device__ void spinFor(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}

__global__ void spin(unsigned long long nanoseconds) { spinFor(nanoseconds); }

__global__ void fill(int *to, int count, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = value;
}

__global__ void add(int *to, const int *from, int count, int by) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = from[i] + by;
}

__global__ void gather(int *to, const int *from, const int *rows, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = from[rows[i]];
}

// With --delay, the operation that comes next on `stream` is late.
static void late(cudaStream_t stream) {
    if (!delayNanoseconds)
        return;
    spin<<<1, 1, 0, stream>>>(delayNanoseconds);
    MUST(cudaGetLastError());
}

// A value that no memory of this process has.
static int fresh() {
    static int last = 1000;
    return ++last;
}

// What the round in progress has; given back at its end, once the device is idle.
static std::vector<int *> deviceMemory, hostMemory;
static std::vector<cudaStream_t> streams;
static std::vector<cudaGraphExec_t> execs;
static std::vector<cudaEvent_t> events;
static size_t eventsTaken;
static cudaMemPool_t pool;

static int *device(int value = 0) {
    int *at;
    MUST(cudaMalloc(&at, BYTES));
    deviceMemory.push_back(at);
    fill<<<GRID, THREADS, 0, 0>>>(at, COUNT, value);
    MUST(cudaDeviceSynchronize());
    return at;
}

static int *pinned(int value = 0) {
    int *at;
    MUST(cudaHostAlloc(&at, BYTES, cudaHostAllocDefault));
    hostMemory.push_back(at);
    std::fill_n(at, COUNT, value);
    return at;
}

static cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t made;
    MUST(cudaStreamCreateWithFlags(&made, flags));
    streams.push_back(made);
    return made;
}

static cudaEvent_t event() { return events.at(eventsTaken++); }

static void handOver(cudaStream_t from, cudaStream_t to) {
    cudaEvent_t reached = event();
    MUST(cudaEventRecord(reached, from));
    MUST(cudaStreamWaitEvent(to, reached, 0));
}

// A block of a pool that has room for one: whoever comes next gets the same bytes.
static int *alloc(cudaStream_t stream) {
    int *at;
    MUST(cudaMallocFromPoolAsync(&at, 20 << 20, pool, stream));
    return at;
}

// An instance of what `work` does on `stream`.
template <typename Work> static cudaGraphExec_t captured(cudaStream_t stream, Work work, unsigned long long flags = 0) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiateWithFlags(&exec, graph, flags));
    MUST(cudaGraphDestroy(graph));
    execs.push_back(exec);
    return exec;
}

static bool holds(const int *at, int count, int value) {
    return std::all_of(at, at + count, [=](int has) { return has == value; });
}

static bool deviceHolds(const int *at, int count, int value) {
    std::vector<int> copy(count);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(copy.data(), at, count * sizeof(int), cudaMemcpyDeviceToHost));
    return holds(copy.data(), count, value);
}

struct Race {
    const char *kind, *link, *delayed;
    bool (*run)();
};

static std::map<std::string, Race> &races() {
    static std::map<std::string, Race> all;
    return all;
}

#define RACE(name, kind, link, delayed)                                                                                \
    static bool name();                                                                                                \
    static const bool name##_is_listed = races().insert({#name, {kind, link, delayed, name}}).second;                  \
    static bool name()

static void open() {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.maxSize = 32 << 20;
    MUST(cudaMemPoolCreate(&pool, &props));
    unsigned long long keep = ~0ull;
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    events.resize(16);
    for (cudaEvent_t &it : events)
        MUST(cudaEventCreateWithFlags(&it, cudaEventDisableTiming));
}

static bool round(bool (*run)()) {
    bool isRight = run();
    MUST(cudaDeviceSynchronize());
    for (cudaGraphExec_t exec : execs)
        MUST(cudaGraphExecDestroy(exec));
    for (cudaStream_t it : streams)
        MUST(cudaStreamDestroy(it));
    for (int *at : deviceMemory)
        MUST(cudaFree(at));
    for (int *at : hostMemory)
        MUST(cudaFreeHost(at));
    execs.clear(), streams.clear(), deviceMemory.clear(), hostMemory.clear();
    eventsTaken = 0;
    return isRight;
}

static int runRaces(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "list")) {
        for (auto &[name, race] : races())
            printf("%s\t%s\t%s\t%s\n", name.c_str(), race.kind, race.link, race.delayed);
        return 0;
    }
    int rounds = 1, failed = 0;
    auto race = count < 3 ? races().end() : races().find(words[1]);
    bool isUnderstood = race != races().end() && (!strcmp(words[2], "wrong") || !strcmp(words[2], "right"));
    for (int at = 3; isUnderstood && at < count; at += 2) {
        char *end = nullptr;
        double given = at + 1 < count ? strtod(words[at + 1], &end) : -1;
        isUnderstood = given >= 0 && given <= 1e6 && *end == 0;
        if (!strcmp(words[at], "--delay"))
            delayNanoseconds = given * 1e6;
        else if (!strcmp(words[at], "--rounds"))
            rounds = given;
        else
            isUnderstood = false;
    }
    if (!isUnderstood) {
        fprintf(stderr, "races list\nraces NAME wrong|right [--delay MS] [--rounds N]\n");
        return 2;
    }
    // Else a kernel that is loaded at its first launch may wait for the delay, and so may streams that share a queue.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    right = !strcmp(words[2], "right");
    open();
    for (int it = 0; it < rounds; it++)
        failed += !round(race->second.run);
    for (cudaEvent_t it : events)
        MUST(cudaEventDestroy(it));
    MUST(cudaMemPoolDestroy(pool));
    printf("%d of %d wrong\n", failed, rounds);
    return failed != 0;
}
