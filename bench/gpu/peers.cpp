// The peers' side of the comparison on a real device: CUDA's pool, PyTorch's C++ allocator and RMM's resources, under
// the workloads of `crates/millpond/benches/device.rs`, with the same random numbers. Prints tab-separated lines:
//
//     workload  peer  value  unit
//
// Built where the peers are installed (see `run`); one process a peer, so that none holds memory while another runs:
//     peers cuda|torch|expandable|rmm-arena|rmm-pool [TRACE...]
// TRACE is a recording as plain lines: `a ID BYTES STREAM`, `f ID STREAM`.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#ifdef WITH_TORCH
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#ifdef WITH_RMM
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;

void check(cudaError_t result, const char *what) {
    if (result != cudaSuccess) {
        std::fprintf(stderr, "peers: %s: %s\n", what, cudaGetErrorString(result));
        std::exit(1);
    }
}
#define CHECK(call) check((call), #call)

struct Peak {
    size_t reserved = 0, used = 0;
};

// An allocator of stream-ordered memory.
struct Peer {
    virtual ~Peer() = default;
    virtual void *alloc(size_t bytes, cudaStream_t stream) = 0;
    virtual void free(void *memory, size_t bytes, cudaStream_t stream) = 0;
    // The high-water marks since the last call of `fresh`; zeros where the peer keeps none.
    virtual Peak peak() { return {}; }
    // Gives idle memory back and sets the marks to what is live.
    virtual void fresh() {}
};

struct Cuda : Peer {
    cudaMemPool_t pool = nullptr;
    Cuda() {
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        uint64_t all = UINT64_MAX;
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    }
    void *alloc(size_t bytes, cudaStream_t stream) override {
        void *memory = nullptr;
        CHECK(cudaMallocAsync(&memory, bytes, stream));
        return memory;
    }
    void free(void *memory, size_t, cudaStream_t stream) override { CHECK(cudaFreeAsync(memory, stream)); }
    Peak peak() override {
        uint64_t reserved = 0, used = 0;
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reserved));
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &used));
        return {reserved, used};
    }
    void fresh() override {
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemPoolTrimTo(pool, 0));
        uint64_t zero = 0;
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    }
};

#ifdef WITH_TORCH
namespace caching = c10::cuda::CUDACachingAllocator;
struct Torch : Peer {
    Torch() { caching::init(1); }
    void *alloc(size_t bytes, cudaStream_t stream) override { return caching::raw_alloc_with_stream(bytes, stream); }
    void free(void *memory, size_t, cudaStream_t) override { caching::raw_delete(memory); }
    Peak peak() override {
        auto stats = caching::getDeviceStats(0);
        return {size_t(stats.reserved_bytes[0].peak), size_t(stats.requested_bytes[0].peak)};
    }
    void fresh() override {
        CHECK(cudaDeviceSynchronize());
        caching::emptyCache();
        caching::resetPeakStats(0);
    }
};
#endif

#ifdef WITH_RMM
template <class Resource> struct Rmm : Peer {
    Resource resource;
    explicit Rmm(Resource resource) : resource(std::move(resource)) {}
    void *alloc(size_t bytes, cudaStream_t stream) override {
        return resource.allocate(cuda::stream_ref{stream}, bytes, 256);
    }
    void free(void *memory, size_t bytes, cudaStream_t stream) override {
        resource.deallocate(cuda::stream_ref{stream}, memory, bytes, 256);
    }
};
#endif

std::unique_ptr<Peer> make(const std::string &name) {
    if (name == "cuda") return std::make_unique<Cuda>();
#ifdef WITH_TORCH
    if (name == "torch" || name == "expandable") return std::make_unique<Torch>();
#endif
#ifdef WITH_RMM
    size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    size_t half = free / 2 / (64 * MIB) * (64 * MIB);
    rmm::mr::cuda_memory_resource upstream;
    if (name == "rmm-arena") {
        return std::make_unique<Rmm<rmm::mr::arena_memory_resource>>(
            rmm::mr::arena_memory_resource(upstream, half));
    }
    if (name == "rmm-pool") {
        return std::make_unique<Rmm<rmm::mr::pool_memory_resource>>(rmm::mr::pool_memory_resource(upstream, half));
    }
#endif
    std::fprintf(stderr, "peers: no peer '%s' in this build\n", name.c_str());
    std::exit(2);
}

double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The median over rounds of the time of one call, in nanoseconds.
double rounds(int calls, const std::function<void()> &call) {
    std::vector<double> times;
    for (int round = 0; round < 7; round++) {
        double start = seconds();
        for (int i = 0; i < calls; i++) call();
        times.push_back((seconds() - start) * 1e9 / calls);
    }
    return median(times);
}

struct Random {
    uint64_t state = 0x123456789ABCDEF1ull;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    // Log-uniform between 512 B and 16 MiB.
    size_t size() { return size_t(std::exp2(9.0 + 15.0 * double(next() >> 11) / double(1ull << 53))); }
};

// Streams live as long as the process: PyTorch's expandable segments synchronise with theirs whenever they unmap.
cudaStream_t stream() {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

struct Bench {
    std::string name;
    Peer &peer;

    void row(const std::string &workload, double value, const char *unit) const {
        std::printf("%s\t%s\t%.4f\t%s\n", workload.c_str(), name.c_str(), value, unit);
        std::fflush(stdout);
    }

    void pairs() const {
        cudaStream_t s = stream();
        for (auto [bytes, label] : {std::pair<size_t, const char *>{512, "512 B"},
                                    {64 * KIB, "64 KiB"}, {MIB, "1 MiB"}, {256 * MIB, "256 MiB"}}) {
            auto pair = [&, bytes = bytes] { peer.free(peer.alloc(bytes, s), bytes, s); };
            for (int i = 0; i < 100; i++) pair();
            row(std::string("pair ") + label, rounds(50000, pair), "ns");
        }
    }

    void threads() const {
        for (int count : {1, 2, 4, 8, 16}) {
            std::vector<double> totals;
            for (int round = 0; round < 3; round++) {
                const int calls = 100000;
                std::barrier gate(count);
                std::vector<double> spent(count);
                std::vector<std::thread> all;
                for (int t = 0; t < count; t++) {
                    all.emplace_back([&, t] {
                        CHECK(cudaSetDevice(0));
                        cudaStream_t s = stream();
                        peer.free(peer.alloc(64 * KIB, s), 64 * KIB, s);
                        gate.arrive_and_wait();
                        double start = seconds();
                        for (int i = 0; i < calls; i++) peer.free(peer.alloc(64 * KIB, s), 64 * KIB, s);
                        spent[t] = seconds() - start;
                        CHECK(cudaStreamSynchronize(s));
                    });
                }
                for (auto &thread : all) thread.join();
                totals.push_back(double(calls) * count / *std::max_element(spent.begin(), spent.end()) / 1e6);
            }
            row("threads " + std::to_string(count), median(totals), "Mpairs/s");
        }
    }

    void replacement() const {
        peer.fresh();
        cudaStream_t s = stream();
        Random random;
        std::vector<std::pair<void *, size_t>> live;
        for (int i = 0; i < 1000; i++) {
            size_t bytes = random.size();
            live.emplace_back(peer.alloc(bytes, s), bytes);
        }
        auto replace = [&] {
            size_t at = random.next() % live.size(), fresh = random.size();
            auto old = live[at];
            live[at] = live.back();
            live.pop_back();
            peer.free(old.first, old.second, s);
            live.emplace_back(peer.alloc(fresh, s), fresh);
        };
        for (int i = 0; i < 20000; i++) replace();
        row("replacement", rounds(20000, replace), "ns");
        Peak peak = peer.peak();
        if (peak.used) row("replacement ratio", double(peak.reserved) / double(peak.used), "ratio");
        for (auto &[memory, bytes] : live) peer.free(memory, bytes, s);
    }

    void holes() const {
        for (size_t holes : {4096, 16384, 65536}) {
            if (name == "rmm-pool" && holes > 16384) continue; // Minutes: each pair walks all holes.
            peer.fresh();
            cudaStream_t s = stream();
            std::vector<void *> all;
            for (size_t i = 0; i < 2 * holes; i++) all.push_back(peer.alloc(KIB, s));
            for (size_t i = 0; i < all.size(); i += 2) peer.free(all[i], KIB, s);
            int calls = name == "rmm-pool" ? 500 : 20000;
            row("holes " + std::to_string(holes), rounds(calls, [&] { peer.free(peer.alloc(KIB, s), KIB, s); }), "ns");
            for (size_t i = 1; i < all.size(); i += 2) peer.free(all[i], KIB, s);
        }
    }

    // Allocated on one stream, handed over by an event, freed on another.
    void hand_over() const {
        if (name != "cuda") return;
        cudaStream_t left = stream(), right = stream();
        cudaEvent_t event = nullptr;
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        row("hand-over", rounds(5000, [&] {
                void *memory = peer.alloc(64 * KIB, left);
                CHECK(cudaEventRecord(event, left));
                CHECK(cudaStreamWaitEvent(right, event, 0));
                peer.free(memory, 64 * KIB, right);
            }), "ns");
        CHECK(cudaDeviceSynchronize());
        std::vector<double> times;
        for (int round = 0; round < 7; round++) {
            double start = seconds();
            for (int i = 0; i < 100; i++) {
                void *memory = peer.alloc(64 * KIB, left);
                CHECK(cudaMemsetAsync(memory, 0, 64 * KIB, left));
                CHECK(cudaEventRecord(event, left));
                CHECK(cudaStreamWaitEvent(right, event, 0));
                CHECK(cudaMemsetAsync(memory, 1, 64 * KIB, right));
                peer.free(memory, 64 * KIB, right);
            }
            times.push_back((seconds() - start) * 1e9 / 100);
            CHECK(cudaDeviceSynchronize());
        }
        row("hand-over of work", median(times), "ns");
    }

    void trace(const std::string &path) const {
        std::ifstream file(path);
        struct Event {
            bool alloc;
            size_t id, bytes, stream;
        };
        std::vector<Event> events;
        size_t ids = 0, streams = 0;
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            char kind = 0;
            Event event{};
            words >> kind >> event.id;
            event.alloc = kind == 'a';
            if (event.alloc) words >> event.bytes;
            words >> event.stream;
            ids = std::max(ids, event.id + 1);
            streams = std::max(streams, event.stream + 1);
            events.push_back(event);
        }
        std::vector<cudaStream_t> on;
        for (size_t i = 0; i < streams; i++) on.push_back(stream());
        peer.fresh();
        std::string program = path.substr(path.find_last_of('/') + 1);
        program = program.substr(0, program.find('.'));
        std::vector<double> times;
        size_t requested = 0;
        for (int pass = 0; pass < 4; pass++) {
            std::vector<std::pair<void *, size_t>> live(ids);
            size_t used = 0;
            double start = seconds();
            for (const Event &event : events) {
                auto &slot = live[event.id];
                if (event.alloc) {
                    slot = {peer.alloc(event.bytes, on[event.stream]), event.bytes};
                    requested = std::max(requested, used += event.bytes);
                } else {
                    peer.free(slot.first, slot.second, on[event.stream]);
                    used -= slot.second;
                    slot.first = nullptr;
                }
            }
            times.push_back((seconds() - start) * 1e9 / double(events.size()));
            for (auto &[memory, bytes] : live)
                if (memory) peer.free(memory, bytes, on[0]);
            CHECK(cudaDeviceSynchronize());
            if (pass == 0 && peer.peak().reserved)
                row("trace " + program + " ratio first", double(peer.peak().reserved) / double(requested), "ratio");
        }
        row("trace " + program + " first", times[0], "ns/event");
        times.erase(times.begin());
        row("trace " + program + " later", median(times), "ns/event");
        if (peer.peak().reserved)
            row("trace " + program + " ratio", double(peer.peak().reserved) / double(requested), "ratio");
    }

    // RMM's `random_allocations` with its parameters: 2 N steps over at most 16 000 MiB.
    void random_allocations() const {
        for (size_t count : {1000, 10000})
            for (size_t most : {1, 64, 1024}) {
                peer.fresh();
                Random random;
                std::vector<std::pair<void *, size_t>> live;
                size_t bytes = 0, made = 0;
                double start = seconds();
                for (size_t step = 0; step < 2 * count; step++) {
                    size_t size = (1 + random.next() % most) * MIB;
                    size_t chance = random.next() % 100, index = random.next() % count;
                    bool alloc = live.empty() || (chance < 73 && made < count && bytes + size < 16000 * MIB);
                    if (alloc) {
                        live.emplace_back(peer.alloc(size, nullptr), size);
                        bytes += size;
                        made++;
                    } else {
                        index %= live.size();
                        peer.free(live[index].first, live[index].second, nullptr);
                        bytes -= live[index].second;
                        live[index] = live.back();
                        live.pop_back();
                    }
                }
                double ns = (seconds() - start) * 1e9 / double(2 * count);
                for (auto &[memory, size] : live) peer.free(memory, size, nullptr);
                CHECK(cudaDeviceSynchronize());
                row("random_allocations " + std::to_string(count) + " x " + std::to_string(most) + " MiB", ns, "ns/step");
            }
    }

    // RMM's `multi_stream_allocations`: four kernels over so many streams, each with 8 B of its own, until the device
    // is through. Where it has a kernel that spins, here is a fill that takes a while.
    void multi_stream() const {
        for (size_t count : {1, 2, 4}) {
            peer.fresh();
            std::vector<std::pair<cudaStream_t, void *>> streams;
            for (size_t i = 0; i < count; i++) {
                cudaStream_t s = stream();
                streams.emplace_back(s, peer.alloc(256 * MIB, s));
            }
            double ns = rounds(10, [&] {
                for (size_t kernel = 0; kernel < 4; kernel++) {
                    auto [s, busy] = streams[kernel % count];
                    void *own = peer.alloc(8, s);
                    CHECK(cudaMemsetAsync(own, 0, 8, s));
                    CHECK(cudaMemsetAsync(busy, 0, 256 * MIB, s));
                    peer.free(own, 8, s);
                }
                CHECK(cudaDeviceSynchronize());
            });
            for (auto [s, busy] : streams) peer.free(busy, 256 * MIB, s);
            row("multi_stream_allocations " + std::to_string(count), ns / 1e3, "us");
        }
    }
};

// Graphs of N memsets in a chain, each with 4 MiB whose life overlaps the next: memory nodes, and memory taken before.
struct Graphs {
    static void row(const std::string &workload, const char *peer, double value) {
        std::printf("%s\t%s\t%.4f\tus\n", workload.c_str(), peer, value);
        std::fflush(stdout);
    }

    static cudaGraphNode_t fill(cudaGraph_t graph, cudaGraphNode_t after, void *memory, size_t bytes = 4 * MIB,
                                unsigned value = 0) {
        cudaMemsetParams params{};
        params.dst = memory;
        params.value = value;
        params.elementSize = 1;
        params.width = bytes;
        params.height = 1;
        cudaGraphNode_t node = nullptr;
        CHECK(cudaGraphAddMemsetNode(&node, graph, after ? &after : nullptr, after ? 1 : 0, &params));
        return node;
    }

    static void *alloc(cudaGraph_t graph, cudaGraphNode_t &last, size_t bytes) {
        cudaMemAllocNodeParams params{};
        params.poolProps.allocType = cudaMemAllocationTypePinned;
        params.poolProps.location = {cudaMemLocationTypeDevice, {0}};
        params.bytesize = bytes;
        cudaGraphNode_t node = nullptr;
        CHECK(cudaGraphAddMemAllocNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &params));
        last = node;
        return params.dptr;
    }

    static cudaGraph_t chain(int count, bool owns, void *const *taken) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphNode_t last = nullptr;
        void *before = nullptr;
        for (int i = 0; i < count; i++) {
            void *memory = owns ? alloc(graph, last, 4 * MIB) : taken[i];
            last = fill(graph, last, memory);
            if (owns && before) {
                cudaGraphNode_t node = nullptr;
                CHECK(cudaGraphAddMemFreeNode(&node, graph, &last, 1, before));
                last = node;
            }
            before = memory;
        }
        if (owns) {
            cudaGraphNode_t node = nullptr;
            CHECK(cudaGraphAddMemFreeNode(&node, graph, &last, 1, before));
        }
        return graph;
    }

    static void launches(const std::string &name, const char *peer, cudaGraphExec_t exec, cudaStream_t s) {
        for (int i = 0; i < 20; i++) CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaStreamSynchronize(s));
        std::vector<double> host, whole;
        for (int i = 0; i < 200; i++) {
            double start = seconds();
            CHECK(cudaGraphLaunch(exec, s));
            host.push_back((seconds() - start) * 1e6);
            CHECK(cudaStreamSynchronize(s));
            whole.push_back((seconds() - start) * 1e6);
        }
        row(name + " launch", peer, median(host));
        row(name + " launch + sync", peer, median(whole));
    }

    static void run() {
        cudaStream_t s = stream();
        for (int count : {1, 10, 100})
            for (bool owns : {true, false}) {
                const char *peer = owns ? "cuda" : "preallocated";
                std::string name = "graph " + std::to_string(count);
                std::vector<void *> taken;
                std::vector<double> times, firsts, wholes;
                cudaGraphExec_t exec = nullptr;
                for (int round = 0; round < 10; round++) {
                    for (int i = 0; !owns && i < count; i++) CHECK(cudaMalloc(&taken.emplace_back(), 4 * MIB));
                    double whole = seconds();
                    cudaGraph_t graph = chain(count, owns, taken.data() + taken.size() - (owns ? 0 : count));
                    double start = seconds();
                    CHECK(cudaGraphInstantiate(&exec, graph, 0));
                    times.push_back((seconds() - start) * 1e6);
                    CHECK(cudaGraphLaunch(exec, s));
                    firsts.push_back((seconds() - start) * 1e6);
                    wholes.push_back((seconds() - whole) * 1e6);
                    CHECK(cudaStreamSynchronize(s));
                    if (round < 9) {
                        CHECK(cudaGraphExecDestroy(exec));
                        CHECK(cudaGraphDestroy(graph));
                    }
                }
                row(name + " instantiate", peer, median(times));
                row(name + " instantiate and first launch", peer, median(firsts));
                row(name + " build to first launch", peer, median(wholes));
                launches(name, peer, exec, s);
                CHECK(cudaGraphExecDestroy(exec));
                for (void *memory : taken) CHECK(cudaFree(memory));
            }
        for (auto [outputs, unlike] : {std::pair{2, false}, {16, false}, {16, true}}) {
            cudaGraph_t graph = nullptr;
            CHECK(cudaGraphCreate(&graph, 0));
            cudaGraphNode_t last = nullptr;
            for (int i = 0; i < outputs; i++) {
                void *memory = alloc(graph, last, 64 << 10);
                last = fill(graph, last, memory, 64 << 10, unlike ? i : 0);
            }
            cudaGraphExec_t exec = nullptr;
            CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
            launches("auto-free " + std::to_string(outputs) + (unlike ? " unlike" : ""), "cuda", exec, s);
            CHECK(cudaGraphExecDestroy(exec));
        }
    }
};

} // namespace

int main(int count, char **words) {
    if (count < 2) {
        std::fprintf(stderr, "usage: peers cuda|torch|expandable|rmm-arena|rmm-pool|graphs [TRACE...]\n");
        return 2;
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    std::string name = words[1];
    if (name == "graphs") {
        Graphs::run();
        return 0;
    }
    if (name == "expandable") setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1);
    auto peer = make(name);
    Bench bench{name, *peer};
    // Whatever runs first is slower by a tenth: a processor that was idle takes its time.
    for (double start = seconds(); seconds() - start < 0.3;) {}
    bench.pairs();
    bench.replacement();
    bench.hand_over();
    bench.holes();
    for (int i = 2; i < count; i++) bench.trace(words[i]);
    bench.random_allocations();
    bench.multi_stream();
    bench.threads();
}
